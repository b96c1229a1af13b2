// From logits to tokens and log-probabilities, a row at a time: a row's bits never depend on the others.
//
// Order: logit bias, penalties, mask, temperature, top-k, top-p, min-p. Log-probabilities are of the raw logits. A draw inverts
// the cumulative weights, in the order of token ids where nothing is filtered, else from the likeliest on (ties by id).
// runtime/worker/sampler.py defines the meaning; runtime/plan.py the arrays.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "simd.h"

namespace palmette {

// One sample's parameters: runtime/plan.py's SAMPLE, field by field.
struct Sample {
  uint64_t seed;
  float temperature, top_p, min_p, repetition, frequency, presence;
  int32_t top_k, top_count, wants_logprob, reserved;
  int64_t output_index;
  int32_t row;   // of the logits
  int32_t mask;  // 1 + its index; 0: none
};

struct Scored {
  int32_t row, target, top_count;
};

struct Drawn {
  int32_t token;
  float logprob;
  int32_t failed;  // a Failure
};

// The arrays of a SamplePlan, and where the results go. CSR: starts have one entry more than samples, or are null where no
// sample has any.
struct SamplePlan {
  int32_t samples, scores, vocabulary, mask_words;
  const float* logits;
  const Sample* sample;
  const int32_t *bias_starts, *bias_tokens;
  const float* bias_values;
  const int32_t *seen_starts, *seen_tokens, *seen_counts;
  const uint32_t* masks;  // [masks][mask_words]
  const Scored* scored;
  Drawn* drawn;  // [samples]
  const int32_t* top_starts;  // of samples, then of scores
  int32_t* top_tokens;
  float* top_logprobs;
  float* scored_logprobs;
};

// A number in [0, 1) with 53 random bits, from (seed, index) alone: runtime/worker/sampler.py's uniform_noise.
static inline uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}
static inline double uniform_noise(uint64_t seed, int64_t index) {
  return double(mix(mix(seed) ^ uint64_t(index)) >> 11) * 0x1p-53;
}

enum Failure : int32_t { NONE = 0, NOT_FINITE = 1, NOTHING_LEFT = 2 };

class Sampler {
 public:
  // Before the first score of a plan: the logits may be others at the same place.
  void begin() { scored_ = nullptr; }

  void draw(const SamplePlan& plan, int index) {
    const Sample& sample = plan.sample[index];
    Drawn& drawn = plan.drawn[index];
    const float* raw = plan.logits + int64_t(sample.row) * plan.vocabulary;
    drawn = Drawn{0, 0, NONE};
    const float most = peak(raw, plan.vocabulary);
    if (!std::isfinite(most)) {
      drawn.failed = NOT_FINITE;
      return;
    }
    const uint32_t* mask = sample.mask > 0 ? plan.masks + int64_t(sample.mask - 1) * plan.mask_words : nullptr;
    float best = most;
    const float* row = raw;
    if (adjusts(plan, index)) {
      row = adjust(plan, index, raw);
      if (mask != nullptr) bar(row, mask, plan.mask_words, plan.vocabulary);
      best = peak(row, plan.vocabulary);
    } else if (mask != nullptr) {
      best = bar(raw, mask, plan.mask_words, plan.vocabulary);
      row = row_.data();
    }
    int token;
    if (!std::isfinite(best)) {
      token = -1;  // bias, penalties and mask have left no number
    } else if (sample.temperature == 0 || sample.top_k == 1) {
      token = first_of(row, plan.vocabulary, best);
    } else {
      weigh(row, plan.vocabulary, best, sample.temperature, mask, plan.mask_words);
      const double noise = uniform_noise(sample.seed, sample.output_index);
      const bool filtered = sample.top_k > 0 || sample.top_p < 1 || sample.min_p > 0;
      token = filtered ? draw_filtered(plan.vocabulary, sample.top_k, sample.top_p, sample.min_p, noise)
                       : draw_any(plan.vocabulary, noise);
    }
    if (token < 0) {
      drawn.failed = NOTHING_LEFT;
      return;
    }
    drawn.token = token;
    if (sample.wants_logprob) {
      const double normaliser = log_normaliser(raw, plan.vocabulary, most);
      drawn.logprob = float(raw[token] - normaliser);
      likeliest(plan, raw, normaliser, index);
    }
  }

  void score(const SamplePlan& plan, int index) {
    const Scored& scored = plan.scored[index];
    const float* raw = plan.logits + int64_t(scored.row) * plan.vocabulary;
    if (raw != scored_) {  // many choices may share a row
      normaliser_ = log_normaliser(raw, plan.vocabulary, peak(raw, plan.vocabulary));
      scored_ = raw;
    }
    plan.scored_logprobs[index] = there(plan, scored.target) ? float(raw[scored.target] - normaliser_) : NAN;
    likeliest(plan, raw, normaliser_, plan.samples + index);
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

  static bool adjusts(const SamplePlan& plan, int index) {
    return part(plan.bias_starts, index) != part(plan.bias_starts, index + 1) ||
           part(plan.seen_starts, index) != part(plan.seen_starts, index + 1);
  }

  // Bias and penalties.
  const float* adjust(const SamplePlan& plan, int index, const float* raw) {
    const Sample& sample = plan.sample[index];
    const int bias = part(plan.bias_starts, index), bias_end = part(plan.bias_starts, index + 1);
    const int seen = part(plan.seen_starts, index), seen_end = part(plan.seen_starts, index + 1);
    row_.assign(raw, raw + plan.vocabulary);
    for (int i = bias; i < bias_end; i++)
      if (there(plan, plan.bias_tokens[i])) row_[plan.bias_tokens[i]] += plan.bias_values[i];
    for (int i = seen; i < seen_end; i++) {
      if (!there(plan, plan.seen_tokens[i])) continue;
      float& value = row_[plan.seen_tokens[i]];
      const int count = plan.seen_counts[i];
      value = value > 0 ? value / sample.repetition : value * sample.repetition;
      value = value - float(count) * sample.frequency - (count > 0 ? sample.presence : 0.0f);
    }
    return row_.data();
  }
  static bool there(const SamplePlan& plan, int token) { return token >= 0 && token < plan.vocabulary; }
  static int part(const int32_t* starts, int index) { return starts == nullptr ? 0 : starts[index]; }

  // row_ is x, with −infinity for what the mask doesn't allow, or has no bit for. The largest of it, where x has no NaN.
  float bar(const float* x, const uint32_t* mask, int words, int count) {
    const vi bits = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    row_.resize(count);
    const vf none = splat(-INFINITY);
    vf most = none;
    float found = -INFINITY;
    for (int from = 0; from < count; from += LANES) {
      const uint32_t word = from / 32 < words ? mask[from / 32] >> from % 32 & 0xffff : 0;
      float* to = row_.data() + from;
      if (from + LANES <= count) {
        if (word == 0) {
          store(to, none);
          continue;
        }
        const vf v = (splat(int32_t(word)) & bits) != 0 ? load<vf>(x + from) : none;
        store(to, v);
        most = max(most, v);
      } else {
        for (int i = 0; i < count - from; i++) to[i] = word >> i & 1 ? x[from + i] : -INFINITY, found = std::max(found, to[i]);
      }
    }
    return std::max(found, max_lanes(most));
  }

  // The mask allows none of the ids from `from` on that one run holds.
  static bool barred(const uint32_t* mask, int words, int from) {
    uint32_t any = 0;
    for (int word = from / 32; word < std::min(words, (from + RUN) / 32); word++) any |= mask[word];
    return any == 0;
  }

  // weights_[i] = exp((x[i] − most) / temperature), and the sums of runs of RUN ids. Where a mask allows nothing of a run
  // they are 0, which needn't be worked out.
  void weigh(const float* x, int count, float most, float temperature, const uint32_t* mask, int words) {
    weights_.resize(size_t(count) + LANES);
    sums_.clear();
    const float inverse = std::min(1.0f / temperature, 3e38f);
    for (int from = 0; from < count; from += RUN) {
      const int end = std::min(count, from + RUN);
      if (mask != nullptr && barred(mask, words, from)) {
        std::fill(weights_.begin() + from, weights_.begin() + end, 0.0f);
        sums_.push_back(0);
        continue;
      }
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
      while (keep < ids_.size() && (keep == 0 || sum < top_p * mass)) sum += weights_[ids_[keep++]];
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

  // `position`: of the samples, then of the scores.
  void likeliest(const SamplePlan& plan, const float* raw, double normaliser, int position) {
    const int at = part(plan.top_starts, position), wanted = part(plan.top_starts, position + 1) - at;
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
  const float* scored_ = nullptr;  // the row that was scored last, and its normaliser
  double normaliser_ = 0;
};

}  // namespace palmette
