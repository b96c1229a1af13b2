// One step of a decoder-only transformer, from token ids to logits, as one call. The model comes as data: its sizes, its
// layers' weights, its rotary table. Called through ctypes by kernels/cpu/library.py, which mirrors the structs here.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "attention.h"
#include "batch_attention.h"
#include "buffer.h"
#include "linear.h"
#include "simd.h"
#include "sample.h"
#include "team.h"

namespace palmette {

struct Layer {
  const float* attention_norm;  // hidden
  Linear qkv;                   // (heads + 2 kv_heads) × head_dim outputs
  Linear out;
  const float* mlp_norm;
  Linear gate_up;  // per 32 of the inner size: 32 gates, then the 32 ups of the same columns
  Linear down;
  Attention attention;
};

struct Model {
  int32_t layers, hidden, inner, heads, kv_heads, head_dim, vocabulary, kv;
  float eps, scale;
  const float* cosines;  // [positions][head_dim / 2]
  const float* sines;
  const float* final_norm;
  Linear embedding;  // looked up, a row a token
  Linear head;
  const Layer* layer;
};

struct Step {
  int32_t tokens, rows, logits, page_size, table_stride, states;
  const int32_t* ids;          // [tokens]
  const int32_t* positions;    // [tokens]
  const int32_t* write_slots;  // [tokens]
  const int32_t* row_starts;   // [rows + 1]
  const int32_t* tables;       // [rows][table_stride]
  const int32_t* logits_at;    // [logits]
  void* const* keys;           // per layer
  void* const* values;
  float* out;  // [logits][vocabulary]
  const int32_t* states_at;  // [states]
  float* states_out;         // [states][hidden]: behind the final norm
};

constexpr int FEW = 4;        // rows that every thread prepares for itself: cheaper than waiting for each other
constexpr int ROW_PIECE = 96;  // rows of a piece of a product; a multiple of the 12 of a tile of floats
constexpr int MANY = 64;
constexpr int PHASES_A_LAYER = 11;

struct Prepared {
  Buffer<int8_t> q;
  Buffer<Group> group;
  Buffer<float> f;
  Buffer<uint32_t> pairs;
  Rows rows(int count, int width) {
    const size_t values = size_t(count) * width;
    return Rows{q.need(values), group.need(values / GROUP), f.need(values), pairs.need(values / 2)};
  }
};

// x / sqrt(mean of squares + eps) × weight, `width` a multiple of 16.
static void norm(const float* x, const float* weight, int width, float eps, float* out) {
  vf squares{};
  for (int i = 0; i < width; i += LANES) {
    const vf v = load<vf>(x + i);
    squares = fma(v, v, squares);
  }
  const float inverse = 1.0f / std::sqrt(sum_lanes(squares) / float(width) + eps);
  for (int i = 0; i < width; i += LANES) store(out + i, load<vf>(x + i) * splat(inverse) * load<vf>(weight + i));
}

// The row of a token in a packed embedding.
static void embed(const Linear& w, int32_t token, float* out) {
  const Place at = locate(w, token / LANES);
  const int lane = token % LANES, format = at.part.format;
  const int64_t size = group_bytes(format);
  const uint8_t* block = at.part.data + int64_t(at.block) * (w.inputs / GROUP) * size;
  for (int g = 0; g < w.inputs / GROUP; g++, block += size) {
    const auto half = [&](int row) {  // of the halves behind the quants
      _Float16 value;
      std::memcpy(&value, block + quant_bytes(format) + 32 * row + 2 * lane, 2);
      return float(value);
    };
    for (int i = 0; i < GROUP; i++) {
      float value;
      if (format == Q4) {
        const uint8_t byte = block[64 * (i / 8) + 4 * lane + i % 4];
        value = half(0) * float(i % 8 < 4 ? byte & 15 : byte >> 4) + half(1);
      } else if (quantised(format)) {
        const int q = block[64 * (i / 4) + 4 * lane + i % 4];
        value = format == Q8_MIN ? half(0) * float(q) + half(1) : half(format == Q8_16 ? i / 16 : 0) * float(q - 128);
      } else if (format == BF16) {
        uint16_t bits;
        std::memcpy(&bits, block + 64 * (i / 2) + 4 * lane + 2 * (i % 2), 2);
        const uint32_t wide = uint32_t(bits) << 16;
        std::memcpy(&value, &wide, 4);
      } else {
        std::memcpy(&value, block + 64 * i + 4 * lane, 4);
      }
      out[g * GROUP + i] = value;
    }
  }
}

class Engine {
 public:
  Engine(const Model& model, int threads)
      : m_(model), team_(threads), own_(threads), samplers_(threads), attention_({model.heads, model.kv_heads, model.head_dim}, threads) {}
  void forward(const Step& step);

  // Every sample and score of the plan, over the team.
  void sample(const SamplePlan& plan) {
    const std::function<void(int)> work = [&](int thread) {
      samplers_[thread].begin();
      team_.run(0, thread, plan.samples + plan.scores, [&](int piece) {
        if (piece < plan.samples) samplers_[thread].draw(plan, piece);
        else samplers_[thread].score(plan, piece - plan.samples);
      });
    };
    team_.start(1, work);
  }

 private:
  template <class F> Rows prepare(int thread, int& phase, int count, const Linear& w, const float* norm_weight, F&& source);
  template <class F> void each_product(int thread, int& phase, const Linear& w, int width, const Rows& x, int count, F&& then);
  template <class E> void layers(const Step& step, int thread, int& phase);
  void run(const Step& step, int thread);

  const Model m_;
  Team team_;
  std::vector<Prepared> own_;  // a thread's own prepared rows
  std::vector<Sampler> samplers_;
  Prepared shared_;
  Buffer<float> x_, q_, mixed_, mid_, last_;
  BatchAttention attention_;
};

// Rows in the forms that the product with `w` takes: source(row) → its floats, normed where a weight is given.
template <class F>
Rows Engine::prepare(int thread, int& phase, int count, const Linear& w, const float* weight, F&& source) {
  const int width = w.inputs;
  const Forms forms = forms_of(w);
  const bool alone = count <= FEW;
  const int mine = phase++;
  Rows rows = alone ? own_[thread].rows(count, width) : shared_.rows(count, width);
  const auto one = [&](int row) {
    const float* from = source(row);
    float* normed = rows.f + int64_t(row) * width;
    if (weight != nullptr) norm(from, weight, width, m_.eps, normed);
    prepare_row(weight != nullptr ? normed : from, width, forms, rows.from(row, width));
  };
  if (alone) {
    // What is prepared here serves the next phase; a thread that comes when that is over needn't.
    if (!team_.over(phase)) for (int row = 0; row < count; row++) one(row);
  } else {
    const int rows_a_piece = count <= MANY ? 2 : 8;  // what a thread waits for at the end is one piece
    team_.run(mine, thread, (count + rows_a_piece - 1) / rows_a_piece, [&](int piece) {
      for (int row = piece * rows_a_piece; row < std::min(count, (piece + 1) * rows_a_piece); row++) one(row);
    });
  }
  return rows;
}

// The product in pieces of `width` blocks × ROW_PIECE rows; then(first block, first row, rows, values[row][width × 16]).
template <class F>
void Engine::each_product(int thread, int& phase, const Linear& w, int width, const Rows& x, int count, F&& then) {
  const int blocks = w.blocks;
  const int across = (blocks + width - 1) / width, down = (count + ROW_PIECE - 1) / ROW_PIECE;
  team_.run(phase++, thread, across * down, [&](int piece) {
    const int first = piece % across * width, row = piece / across * ROW_PIECE;
    const int wide = std::min(width, blocks - first), rows = std::min(ROW_PIECE, count - row);
    alignas(64) thread_local float values[ROW_PIECE * 16 * LANES];
    product(w, first, wide, x.from(row, w.inputs), rows, values);
    then(first, wide, row, rows, values);
  });
}

template <class E> void Engine::layers(const Step& step, int thread, int& phase) {
  const int tokens = step.tokens, hidden = m_.hidden, dim = m_.head_dim, wide = m_.heads * dim;
  const PageShape shape(step.page_size, m_.kv_heads, dim, Element<E>::SCALE);
  const auto x_row = [&](int row) { return x_.data + int64_t(row) * hidden; };
  const auto add_to_x = [&](int first, int width, int row, int rows, const float* values) {
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < width; c++) {
        float* to = x_row(row + r) + (first + c) * LANES;
        store(to, load<vf>(to) + load<vf>(values + (r * width + c) * LANES));
      }
  };
  for (int index = 0; index < m_.layers; index++) {
    const Layer& layer = m_.layer[index];
    E* keys = static_cast<E*>(step.keys[index]);
    E* values_out = static_cast<E*>(step.values[index]);
    Rows rows = prepare(thread, phase, tokens, layer.qkv, layer.attention_norm, x_row);
    each_product(thread, phase, layer.qkv, dim / LANES, rows, tokens, [&](int first, int, int row, int count, float* values) {
      const int head = first * LANES / dim;
      for (int r = 0; r < count; r++) {
        const int token = row + r, slot = step.write_slots[token];
        float* v = values + r * dim;
        if (head < m_.heads + m_.kv_heads) {
          const float* cosine = m_.cosines + int64_t(step.positions[token]) * (dim / 2);
          const float* sine = m_.sines + int64_t(step.positions[token]) * (dim / 2);
          for (int d = 0; d < dim / 2; d++) {
            const float a = v[d], b = v[d + dim / 2];
            v[d] = a * cosine[d] - b * sine[d];
            v[d + dim / 2] = b * cosine[d] + a * sine[d];
          }
        }
        if (head < m_.heads) {
          float* to = q_.data + (int64_t(token) * m_.heads + head) * dim;
          for (int d = 0; d < dim; d++) to[d] = v[d] * m_.scale;
        } else if (head < m_.heads + m_.kv_heads) {
          write_key(keys, shape, slot / step.page_size, head - m_.heads, slot % step.page_size, v);
        } else {
          write_value(values_out, shape, slot / step.page_size, head - m_.heads - m_.kv_heads, slot % step.page_size, v);
        }
      }
    });
    const Layered<E> attended{layer.attention, keys, values_out, q_.data, mixed_.data};
    team_.run(phase++, thread, attention_.tiles(), [&](int piece) { attention_.attend(attended, thread, piece); });
    team_.run(phase++, thread, attention_.folds(), [&](int piece) { attention_.fold(attended, piece); });
    rows = prepare(thread, phase, tokens, layer.out, nullptr, [&](int row) { return mixed_.data + int64_t(row) * wide; });
    each_product(thread, phase, layer.out, 2, rows, tokens, add_to_x);
    rows = prepare(thread, phase, tokens, layer.gate_up, layer.mlp_norm, x_row);
    each_product(thread, phase, layer.gate_up, 4, rows, tokens, [&](int first, int, int row, int count, const float* values) {
      for (int r = 0; r < count; r++)
        for (int half = 0; half < 2; half++) {
          const vf gate = load<vf>(values + (r * 4 + half) * LANES), up = load<vf>(values + (r * 4 + 2 + half) * LANES);
          const vf gated = gate / (splat(1.0f) + exp(vf{} - gate)) * up;
          store(mid_.data + int64_t(row + r) * m_.inner + first / 4 * 32 + half * LANES, gated);
        }
    });
    rows = prepare(thread, phase, tokens, layer.down, nullptr, [&](int row) { return mid_.data + int64_t(row) * m_.inner; });
    each_product(thread, phase, layer.down, 2, rows, tokens, add_to_x);
  }
}

void Engine::run(const Step& step, int thread) {
  int phase = 0;
  team_.run(phase++, thread, step.tokens, [&](int row) {
    float* to = x_.data + int64_t(row) * m_.hidden;
    const int32_t token = step.ids[row];
    if (token >= 0 && token < m_.vocabulary) embed(m_.embedding, token, to);
    else std::fill_n(to, m_.hidden, NAN);  // no token of this model: its request hears of it
  });
  with_element(m_.kv, [&](auto e) { layers<decltype(e)>(step, thread, phase); });
  if (step.states > 0)
    team_.run(phase++, thread, step.states, [&](int row) {
      norm(x_.data + int64_t(step.states_at[row]) * m_.hidden, m_.final_norm, m_.hidden, m_.eps, step.states_out + int64_t(row) * m_.hidden);
    });
  if (step.logits == 0) return;
  const Rows rows = prepare(thread, phase, step.logits, m_.head, m_.final_norm,
                            [&](int row) { return x_.data + int64_t(step.logits_at[row]) * m_.hidden; });
  each_product(thread, phase, m_.head, 8, rows, step.logits, [&](int first, int width, int row, int count, const float* values) {
    for (int r = 0; r < count; r++) {
      const int from = first * LANES, most = std::min(width * LANES, m_.vocabulary - from);
      if (most > 0) std::memcpy(step.out + int64_t(row + r) * m_.vocabulary + from, values + r * width * LANES, sizeof(float) * most);
    }
  });
}

// Attention alone, for comparison with kernels/reference.
struct AttentionCall {
  int32_t kv, reserved;
  Heads heads;
  Attention kind;
  Batch batch;
  const float* q;  // [tokens][heads][head_dim], scaled
  const void* keys;
  const void* values;
  float* out;
};

template <class E> static void attention(const AttentionCall& call, int threads) {
  BatchAttention work(call.heads, threads);
  work.plan(call.batch);
  const Layered<E> layer{call.kind, static_cast<const E*>(call.keys), static_cast<const E*>(call.values), call.q, call.out};
  Team team(threads);
  team.start(2, [&](int thread) {
    team.run(0, thread, work.tiles(), [&](int piece) { work.attend(layer, thread, piece); });
    team.run(1, thread, work.folds(), [&](int piece) { work.fold(layer, piece); });
  });
}

void Engine::forward(const Step& step) {
  const size_t tokens = step.tokens;
  x_.need(tokens * m_.hidden), q_.need(tokens * m_.heads * m_.head_dim), mixed_.need(tokens * m_.heads * m_.head_dim);
  mid_.need(tokens * m_.inner);
  shared_.rows(step.tokens, std::max({m_.hidden, m_.inner, m_.heads * m_.head_dim}));
  attention_.plan({step.tokens, step.rows, step.page_size, step.table_stride, step.positions, step.row_starts, step.tables});
  const std::function<void(int)> work = [&](int thread) { run(step, thread); };
  team_.start(m_.layers * PHASES_A_LAYER + 8, work);
}

}  // namespace palmette

extern "C" {
// The size of a struct, for the mirror in library.py.
int32_t palmette_layout(int32_t which) {
  const size_t sizes[] = {sizeof(palmette::Part), sizeof(palmette::Linear), sizeof(palmette::Layer), sizeof(palmette::Model), sizeof(palmette::Step),
                          sizeof(palmette::AttentionCall), sizeof(palmette::SamplePlan), sizeof(palmette::Sample),
                          sizeof(palmette::Scored), sizeof(palmette::Drawn)};
  return int32_t(sizes[which]);
}
void* palmette_new(const palmette::Model* model, int32_t threads) { return new palmette::Engine(*model, threads); }
// Samples over an engine's threads, or in this one where `engine` is null.
void palmette_sample(void* engine, const palmette::SamplePlan* plan) {
  if (engine != nullptr) {
    static_cast<palmette::Engine*>(engine)->sample(*plan);
    return;
  }
  palmette::Sampler sampler;
  for (int i = 0; i < plan->samples; i++) sampler.draw(*plan, i);
  for (int i = 0; i < plan->scores; i++) sampler.score(*plan, i);
}
void palmette_delete(void* engine) { delete static_cast<palmette::Engine*>(engine); }
void palmette_forward(void* engine, const palmette::Step* step) { static_cast<palmette::Engine*>(engine)->forward(*step); }
}

// Single kernels for comparison with kernels/reference; one thread where none are given.
extern "C" {
void palmette_attention(const palmette::AttentionCall* call, int32_t threads) {
  palmette::with_element(call->kv, [&](auto e) { palmette::attention<decltype(e)>(*call, threads); });
}
// k, v [count][kv_heads][head_dim] into the slots of a layer's pages.
void palmette_write_kv(int32_t kv, int32_t page_size, int32_t kv_heads, int32_t head_dim, int32_t count, const int32_t* slots,
                       const float* k, const float* v, void* keys, void* values) {
  palmette::with_element(kv, [&](auto e) {
    using E = decltype(e);
    const palmette::PageShape shape(page_size, kv_heads, head_dim, palmette::Element<E>::SCALE);
    for (int32_t i = 0; i < count; i++)
      for (int head = 0; head < kv_heads; head++) {
        const int64_t from = (int64_t(i) * kv_heads + head) * head_dim;
        palmette::write_key(static_cast<E*>(keys), shape, slots[i] / page_size, head, slots[i] % page_size, k + from);
        palmette::write_value(static_cast<E*>(values), shape, slots[i] / page_size, head, slots[i] % page_size, v + from);
      }
  });
}
void palmette_tanh(const float* x, int32_t count, float* out) {
  using namespace palmette;
  for (int32_t i = 0; i < count; i++) out[i] = tanh(splat(x[i]))[0];
}
// x [rows][inputs] times the packed weight → out [rows][blocks × 16].
void palmette_linear(const palmette::Linear* w, const float* x, int32_t rows, float* out) {
  using namespace palmette;
  Prepared prepared;
  const Rows in = prepared.rows(rows, w->inputs);
  for (int64_t row = 0; row < rows; row++)
    prepare_row(x + row * w->inputs, w->inputs, forms_of(*w), in.from(row, w->inputs));
  product(*w, 0, w->blocks, in, rows, out);
}
// The weight's row for each token, dequantised → out [tokens][inputs].
void palmette_embed(const palmette::Linear* w, const int32_t* tokens, int32_t count, float* out) {
  for (int32_t i = 0; i < count; i++) palmette::embed(*w, tokens[i], out + int64_t(i) * w->inputs);
}
void palmette_norm(const float* x, const float* weight, int32_t rows, int32_t width, float eps, float* out) {
  for (int64_t row = 0; row < rows; row++) palmette::norm(x + row * width, weight, width, eps, out + row * width);
}
double palmette_noise(uint64_t seed, int64_t index) { return palmette::uniform_noise(seed, index); }
void palmette_exp(const float* x, int32_t count, float* out) {
  using namespace palmette;
  for (int32_t i = 0; i < count; i += LANES) {
    alignas(64) float lane[LANES] = {};
    std::memcpy(lane, x + i, sizeof(float) * std::min(LANES, count - i));
    store(lane, exp(load<vf>(lane)));
    std::memcpy(out + i, lane, sizeof(float) * std::min(LANES, count - i));
  }
}
}
