// From logits to tokens and log-probabilities, a row at a time: a row's bits never depend on the others.
//
// Order: logit bias, penalties, temperature, top-k, top-p, min-p. Log-probabilities are of the raw logits. A draw inverts
// the cumulative weights, in the order of token ids where nothing is filtered, else from the likeliest on (ties by id).
// runtime/worker/sampler.py defines the meaning; runtime/plan.py the arrays.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "simd.h"

namespace palmette {

// The arrays of a SamplePlan, and where the results go. CSR: starts have one entry more than rows.
struct SamplePlan {
  int32_t samples, scores, vocabulary, reserved;
  const float* logits;
  const int32_t* rows;  // [samples]
  const float *temperatures, *top_ps, *min_ps, *repetitions, *frequencies, *presences;
  const int32_t* top_ks;
  const double* noise;  // [samples], in [0, 1)
  const int32_t *bias_starts, *bias_tokens;
  const float* bias_values;
  const int32_t *seen_starts, *seen_tokens, *seen_counts;
  const uint8_t* wants_logprob;
  const int32_t* scored_rows;  // [scores]
  const int32_t* scored_targets;
  int32_t* tokens;  // [samples]
  float* logprobs;
  uint8_t* failed;  // [samples], a Failure
  const int32_t* top_starts;  // of samples, then of scores
  int32_t* top_tokens;
  float* top_logprobs;
  float* scored_logprobs;
};

enum Failure : uint8_t { NONE = 0, NOT_FINITE = 1, NOTHING_LEFT = 2 };

class Sampler {
 public:
  void draw(const SamplePlan& plan, int index) {
    const float* raw = plan.logits + int64_t(plan.rows[index]) * plan.vocabulary;
    plan.failed[index] = NONE;
    const float most = peak(raw, plan.vocabulary);
    if (!std::isfinite(most)) {
      plan.failed[index] = NOT_FINITE;
      return;
    }
    const float* row = adjust(plan, index, raw);
    const float temperature = plan.temperatures[index];
    const int top_k = plan.top_ks[index];
    int token;
    if (row != raw && !std::isfinite(peak(row, plan.vocabulary))) {
      token = -1;  // bias and penalties have left no number
    } else if (temperature == 0 || top_k == 1) {
      token = first_of(row, plan.vocabulary, peak(row, plan.vocabulary));
    } else {
      weigh(row, plan.vocabulary, temperature);
      const bool filtered = top_k > 0 || plan.top_ps[index] < 1 || plan.min_ps[index] > 0;
      token = filtered ? draw_filtered(plan.vocabulary, top_k, plan.top_ps[index], plan.min_ps[index], plan.noise[index])
                       : draw_any(plan.vocabulary, plan.noise[index]);
    }
    if (token < 0) {
      plan.failed[index] = NOTHING_LEFT;
      return;
    }
    plan.tokens[index] = token;
    const int wanted = plan.top_starts[index + 1] - plan.top_starts[index];
    if (plan.wants_logprob[index]) {
      const double normaliser = log_normaliser(raw, plan.vocabulary, most);
      plan.logprobs[index] = float(raw[token] - normaliser);
      likeliest(plan, raw, normaliser, plan.top_starts[index], wanted);
    }
  }

  void score(const SamplePlan& plan, int index) {
    const float* raw = plan.logits + int64_t(plan.scored_rows[index]) * plan.vocabulary;
    const double normaliser = log_normaliser(raw, plan.vocabulary, peak(raw, plan.vocabulary));
    plan.scored_logprobs[index] = float(raw[plan.scored_targets[index]] - normaliser);
    const int32_t* starts = plan.top_starts + plan.samples + index;
    likeliest(plan, raw, normaliser, starts[0], starts[1] - starts[0]);
  }

 private:
  static constexpr int RUN = 256;  // ids whose weights are summed apart, so that a draw looks at few of them

  // NaN where one is met: a comparison with it is never true.
  static float peak(const float* x, int count) {
    vf most = splat(-INFINITY), odd{};
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
      const vf v = load<vf>(x + i);
      most = max(most, v);
      odd = odd + (v - v);  // NaN for NaN and for infinities
    }
    float found = max_lanes(most), strange = sum_lanes(odd);
    for (; i < count; i++) found = std::max(found, x[i]), strange += x[i] - x[i];
    // −infinity is a barred token, not a fault
    if (strange != strange)
      for (int j = 0; j < count; j++)
        if (x[j] != x[j]) return NAN;
    return found;
  }

  static int first_of(const float* x, int count, float value) {
    for (int i = 0; i < count; i++)
      if (x[i] == value) return i;
    return 0;
  }

  const float* adjust(const SamplePlan& plan, int index, const float* raw) {
    const int bias = plan.bias_starts[index], bias_end = plan.bias_starts[index + 1];
    const int seen = plan.seen_starts[index], seen_end = plan.seen_starts[index + 1];
    if (bias == bias_end && seen == seen_end) return raw;
    row_.assign(raw, raw + plan.vocabulary);
    for (int i = bias; i < bias_end; i++) row_[plan.bias_tokens[i]] += plan.bias_values[i];
    for (int i = seen; i < seen_end; i++) {
      float& value = row_[plan.seen_tokens[i]];
      const int count = plan.seen_counts[i];
      value = value > 0 ? value / plan.repetitions[index] : value * plan.repetitions[index];
      value = value - float(count) * plan.frequencies[index] - (count > 0 ? plan.presences[index] : 0.0f);
    }
    return row_.data();
  }

  // weights_[i] = exp((x[i] − max) / temperature), and the sums of runs of RUN ids.
  void weigh(const float* x, int count, float temperature) {
    weights_.resize(size_t(count) + LANES);
    sums_.clear();
    const float most = peak(x, count), inverse = 1.0f / temperature;
    for (int from = 0; from < count; from += RUN) {
      const int end = std::min(count, from + RUN);
      double sum = 0;
      for (int i = from; i < end; i += LANES) {
        vf v = splat(-INFINITY);
        if (i + LANES <= count) v = load<vf>(x + i);
        else std::memcpy(&v, x + i, sizeof(float) * (count - i));
        v = exp((v - splat(most)) * splat(inverse));
        store(weights_.data() + i, v);
        sum += sum_lanes(v);
      }
      sums_.push_back(sum);
    }
  }

  double total() const {
    double all = 0;
    for (const double sum : sums_) all += sum;
    return all;
  }

  int draw_any(int count, double noise) const {
    double left = noise * total();
    size_t run = 0;
    while (run + 1 < sums_.size() && left >= sums_[run]) left -= sums_[run++];
    int last = -1;
    for (int i = int(run) * RUN; i < std::min(count, int(run + 1) * RUN); i++) {
      if (weights_[i] <= 0) continue;
      last = i;
      if (left < weights_[i]) return i;
      left -= weights_[i];
    }
    return last;
  }

  bool before(int a, int b) const { return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b; }

  int draw_filtered(int count, int top_k, double top_p, double min_p, double noise) {
    // Enough of the likeliest ids, sorted: first those above a ten-thousandth of the likeliest, all where these don't do.
    double mass = total();
    for (const float floor : {1e-4f, 0.0f}) {
      ids_.clear();
      double found = 0;
      for (int i = 0; i < count; i++)
        if (weights_[i] > floor) ids_.push_back(i), found += weights_[i];
      const bool enough = (top_k > 0 && int(ids_.size()) >= top_k) || (top_k <= 0 && top_p < 1 && found >= top_p * mass) ||
                          (top_k <= 0 && top_p >= 1 && min_p > floor);
      if (enough || floor == 0) break;
    }
    std::sort(ids_.begin(), ids_.end(), [this](int a, int b) { return before(a, b); });
    if (top_k > 0 && top_k < int(ids_.size())) ids_.resize(top_k);
    if (top_k > 0 && top_k < count) {
      mass = 0;
      for (const int id : ids_) mass += weights_[id];
    }
    if (top_p < 1) {
      double sum = 0;
      size_t keep = 0;
      while (keep < ids_.size() && sum < top_p * mass) sum += weights_[ids_[keep++]];
      ids_.resize(keep);
    }
    if (min_p > 0)
      while (ids_.size() > 1 && weights_[ids_.back()] < min_p * weights_[ids_.front()]) ids_.pop_back();
    double all = 0;
    for (const int id : ids_) all += weights_[id];
    double left = noise * all;
    for (const int id : ids_) {
      if (left < weights_[id]) return id;
      left -= weights_[id];
    }
    return ids_.empty() ? -1 : ids_.back();
  }

  static double log_normaliser(const float* x, int count, float most) {
    double sum = 0;
    for (int i = 0; i < count; i += LANES) {
      vf v = splat(-INFINITY);
      if (i + LANES <= count) v = load<vf>(x + i);
      else std::memcpy(&v, x + i, sizeof(float) * (count - i));
      sum += sum_lanes(exp(v - splat(most)));
    }
    return double(most) + std::log(sum);
  }

  void likeliest(const SamplePlan& plan, const float* raw, double normaliser, int at, int wanted) {
    if (wanted <= 0) return;
    ids_.resize(plan.vocabulary);
    for (int i = 0; i < plan.vocabulary; i++) ids_[i] = i;
    std::partial_sort(ids_.begin(), ids_.begin() + wanted, ids_.end(),
                      [raw](int a, int b) { return raw[a] != raw[b] ? raw[a] > raw[b] : a < b; });
    for (int i = 0; i < wanted; i++) {
      plan.top_tokens[at + i] = ids_[i];
      plan.top_logprobs[at + i] = float(raw[ids_[i]] - normaliser);
    }
  }

  std::vector<float> row_, weights_;
  std::vector<double> sums_;
  std::vector<int> ids_;
};

}  // namespace palmette
