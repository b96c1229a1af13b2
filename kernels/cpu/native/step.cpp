// One step of a decoder-only transformer, from token ids to logits, as one call. The model comes as data: its sizes, its
// layers' weights, its rotary table. Called through ctypes by kernels/cpu/library.py, which mirrors the structs here.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "attention.h"
#include "linear.h"
#include "simd.h"
#include "team.h"
#include "tiles.h"

namespace palmette {

struct Layer {
  const float* attention_norm;  // hidden
  Linear qkv;                   // (heads + 2 kv_heads) × head_dim outputs
  Linear out;
  const float* mlp_norm;
  Linear gate_up;  // per 32 of the inner size: 32 gates, then the 32 ups of the same columns
  Linear down;
};

struct Model {
  int32_t layers, hidden, inner, heads, kv_heads, head_dim, vocabulary, kv_float;
  float eps, scale;
  const float* cosines;  // [positions][head_dim / 2]
  const float* sines;
  const float* final_norm;
  Linear embedding;  // looked up, a row a token
  Linear head;
  const Layer* layer;
};

struct Step {
  int32_t tokens, rows, logits, page_size, table_stride, reserved;
  const int32_t* ids;          // [tokens]
  const int32_t* positions;    // [tokens]
  const int32_t* write_slots;  // [tokens]
  const int32_t* row_starts;   // [rows + 1]
  const int32_t* tables;       // [rows][table_stride]
  const int32_t* logits_at;    // [logits]
  void* const* keys;           // per layer
  void* const* values;
  float* out;  // [logits][vocabulary]
};

template <class T> struct Buffer {
  T* data = nullptr;
  size_t size = 0;
  T* need(size_t count) {
    if (count > size) {
      std::free(data);
      size = count + count / 4;
      data = static_cast<T*>(std::aligned_alloc(64, (size * sizeof(T) + 127) / 64 * 64));
    }
    return data;
  }
  ~Buffer() { std::free(data); }
};

constexpr int FEW = 4;        // rows that every thread prepares for itself: cheaper than waiting for each other
constexpr int ROW_PIECE = 96;  // rows of a piece of a product; a multiple of TILE_ROWS
constexpr int PHASES_A_LAYER = 11;
constexpr int MOST_HEAD_DIM = 256;

struct Prepared {
  Buffer<int8_t> q;
  Buffer<float> scale, total, f;
  Buffer<int32_t> sum;
  Rows rows(int count, int width) {
    const size_t values = size_t(count) * width, groups = values / GROUP;
    return Rows{q.need(values), scale.need(groups), sum.need(groups), total.need(groups), f.need(values)};
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
  const int lane = token % LANES;
  const int64_t size = group_bytes(w.format);
  const uint8_t* block = w.data + int64_t(token / LANES) * (w.inputs / GROUP) * size;
  for (int g = 0; g < w.inputs / GROUP; g++, block += size) {
    const auto half = [&](int at) {
      _Float16 value;
      std::memcpy(&value, block + at + 2 * lane, 2);
      return float(value);
    };
    for (int i = 0; i < GROUP; i++) {
      float value;
      if (w.format == Q4) {
        const uint8_t byte = block[64 * (i / 8) + 4 * lane + i % 4];
        value = half(256) * float(i % 8 < 4 ? byte & 15 : byte >> 4) + half(288);
      } else if (w.format == Q8) {
        value = half(512) * float(int(block[64 * (i / 4) + 4 * lane + i % 4]) - 128);
      } else if (w.format == BF16) {
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
  Engine(const Model& model, int threads) : m_(model), team_(threads), own_(threads), scratch_(threads) {}
  void forward(const Step& step);

 private:
  template <class F> Rows prepare(int thread, int& phase, int count, int width, int32_t format, const float* norm_weight, F&& source);
  template <class F> void each_product(int& phase, const Linear& w, int width, const Rows& x, int count, F&& then);
  template <class E> void attend(const Step& step, int layer, int thread, int piece);
  template <class E> void fold_states(const Step& step, int piece);
  State kept(int state, int head, int dims) const;
  template <class E> void layers(const Step& step, int thread, int& phase);
  void run(const Step& step, int thread);

  const Model m_;
  Team team_;
  std::vector<Prepared> own_;  // a thread's own prepared rows
  std::vector<Buffer<float>> scratch_;
  Prepared shared_;
  Buffer<float> x_, q_, mixed_, mid_, last_, states_;
  TilePlan plan_;
};

// Rows in the form that a product of `format` takes: source(row) → its floats, normed where a weight is given.
template <class F>
Rows Engine::prepare(int thread, int& phase, int count, int width, int32_t format, const float* weight, F&& source) {
  const bool alone = count <= FEW;
  const int mine = phase++;
  Rows rows = alone ? own_[thread].rows(count, width) : shared_.rows(count, width);
  const auto one = [&](int row) {
    const float* from = source(row);
    float* to = rows.f + int64_t(row) * width;
    if (weight != nullptr) {
      norm(from, weight, width, m_.eps, to);
    } else if (!quantised(format)) {
      std::memcpy(to, from, sizeof(float) * width);
    }
    if (quantised(format)) quantise_row(weight != nullptr ? to : from, width, rows.from(row, width));
  };
  if (alone) {
    // What is prepared here serves the next phase; a thread that comes when that is over needn't.
    if (!team_.over(phase)) for (int row = 0; row < count; row++) one(row);
  } else {
    const int pieces = (count + 7) / 8;
    team_.run(mine, pieces, [&](int piece) {
      for (int row = piece * 8; row < std::min(count, piece * 8 + 8); row++) one(row);
    });
  }
  return rows;
}

// The product in pieces of `width` blocks × ROW_PIECE rows; then(first block, first row, rows, values[row][width × 16]).
template <class F>
void Engine::each_product(int& phase, const Linear& w, int width, const Rows& x, int count, F&& then) {
  const int blocks = w.outputs / LANES;
  const int across = (blocks + width - 1) / width, down = (count + ROW_PIECE - 1) / ROW_PIECE;
  team_.run(phase++, across * down, [&](int piece) {
    const int first = piece % across * width, row = piece / across * ROW_PIECE;
    const int wide = std::min(width, blocks - first), rows = std::min(ROW_PIECE, count - row);
    alignas(64) thread_local float values[ROW_PIECE * 16 * LANES];
    product(w, first, wide, x.from(row, w.inputs), rows, values);
    if (w.bias != nullptr)
      for (int r = 0; r < rows; r++)
        for (int c = 0; c < wide; c++) {
          float* v = values + (r * wide + c) * LANES;
          store(v, load<vf>(v) + load<vf>(w.bias + (first + c) * LANES));
        }
    then(first, wide, row, rows, values);
  });
}

// Where a state of a KV head lies: maxima, sums and values of the group's heads.
State Engine::kept(int state, int head, int dims) const {
  const int share = m_.heads / m_.kv_heads;
  float* at = states_.data + (int64_t(state) * m_.kv_heads + head) * share * (dims + 2);
  return State{at, at + share, at + 2 * share};
}

template <class E> void Engine::attend(const Step& step, int layer, int thread, int piece) {
  const Tile& tile = plan_.tiles[piece / m_.kv_heads];
  const int head = piece % m_.kv_heads, share = m_.heads / m_.kv_heads, rows = tile.tokens * tile.heads;
  const PageShape shape(step.page_size, m_.kv_heads, m_.head_dim);
  const View<E> kv{static_cast<const E*>(step.keys[layer]), static_cast<const E*>(step.values[layer]),
                   step.tables + int64_t(tile.row) * step.table_stride, shape, head};
  const int dims = shape.padded_dim;
  const auto at = [&](int r) {  // row r of the tile among the step's (token, head) rows
    return int64_t(tile.token[r / tile.heads]) * m_.heads + head * share + tile.head + r % tile.heads;
  };
  alignas(64) float q[TILE * MOST_HEAD_DIM];
  int32_t positions[TILE];
  int last = 0;
  for (int r = 0; r < rows; r++) {
    std::memcpy(q + r * m_.head_dim, q_.data + at(r) * m_.head_dim, sizeof(float) * m_.head_dim);
    positions[r] = step.positions[tile.token[r / tile.heads]];
    last = std::max(last, positions[r]);
  }
  float* memory = scratch_[thread].need(size_t(2) * TILE * (dims + 2) + size_t(BLOCK) * m_.head_dim);
  const auto state_at = [&](float* from) { return State{from, from + TILE, from + 2 * TILE}; };
  State state = state_at(memory), next = state_at(memory + TILE * (dims + 2));
  E* keys = reinterpret_cast<E*>(memory + 2 * TILE * (dims + 2));
  attend_split<E>(rows, kv, std::max(tile.split, 0) * SPLIT, positions, q, state, keys);
  if (tile.split != Tile::ALL) {
    for (int r = 0; r < rows; r++) copy_row(kept(tile.state[r / tile.heads], head, dims), r % tile.heads, state, r, dims);
    return;
  }
  for (int split = 1; split * SPLIT <= last; split++) {
    attend_split<E>(rows, kv, split * SPLIT, positions, q, next, keys);
    fold(state, next, rows, dims);
  }
  for (int r = 0; r < rows; r++) finish<E>(state, r, shape, mixed_.data + at(r) * m_.head_dim);
}

template <class E> void Engine::fold_states(const Step& step, int piece) {
  const Fold& folded = plan_.folds[piece / m_.kv_heads];
  const int head = piece % m_.kv_heads, share = m_.heads / m_.kv_heads;
  const PageShape shape(step.page_size, m_.kv_heads, m_.head_dim);
  State state = kept(folded.first, head, shape.padded_dim);
  for (int split = 1; split < folded.splits; split++)
    fold(state, kept(folded.first + split, head, shape.padded_dim), share, shape.padded_dim);
  for (int r = 0; r < share; r++)
    finish<E>(state, r, shape, mixed_.data + (int64_t(folded.token) * m_.heads + head * share + r) * m_.head_dim);
}

template <class E> void Engine::layers(const Step& step, int thread, int& phase) {
  const int tokens = step.tokens, hidden = m_.hidden, dim = m_.head_dim, wide = m_.heads * dim;
  const PageShape shape(step.page_size, m_.kv_heads, dim);
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
    Rows rows = prepare(thread, phase, tokens, hidden, layer.qkv.format, layer.attention_norm, x_row);
    each_product(phase, layer.qkv, dim / LANES, rows, tokens, [&](int first, int, int row, int count, float* values) {
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
    team_.run(phase++, int(plan_.tiles.size()) * m_.kv_heads, [&](int piece) { attend<E>(step, index, thread, piece); });
    team_.run(phase++, int(plan_.folds.size()) * m_.kv_heads, [&](int piece) { fold_states<E>(step, piece); });
    rows = prepare(thread, phase, tokens, wide, layer.out.format, nullptr, [&](int row) { return mixed_.data + int64_t(row) * wide; });
    each_product(phase, layer.out, 2, rows, tokens, add_to_x);
    rows = prepare(thread, phase, tokens, hidden, layer.gate_up.format, layer.mlp_norm, x_row);
    each_product(phase, layer.gate_up, 4, rows, tokens, [&](int first, int, int row, int count, const float* values) {
      for (int r = 0; r < count; r++)
        for (int half = 0; half < 2; half++) {
          const vf gate = load<vf>(values + (r * 4 + half) * LANES), up = load<vf>(values + (r * 4 + 2 + half) * LANES);
          const vf gated = gate / (splat(1.0f) + exp(vf{} - gate)) * up;
          store(mid_.data + int64_t(row + r) * m_.inner + first / 4 * 32 + half * LANES, gated);
        }
    });
    rows = prepare(thread, phase, tokens, m_.inner, layer.down.format, nullptr, [&](int row) { return mid_.data + int64_t(row) * m_.inner; });
    each_product(phase, layer.down, 2, rows, tokens, add_to_x);
  }
}

void Engine::run(const Step& step, int thread) {
  int phase = 0;
  team_.run(phase++, step.tokens, [&](int row) { embed(m_.embedding, step.ids[row], x_.data + int64_t(row) * m_.hidden); });
  if (m_.kv_float) layers<float>(step, thread, phase);
  else layers<uint16_t>(step, thread, phase);
  if (step.logits == 0) return;
  const Rows rows = prepare(thread, phase, step.logits, m_.hidden, m_.head.format, m_.final_norm,
                            [&](int row) { return x_.data + int64_t(step.logits_at[row]) * m_.hidden; });
  each_product(phase, m_.head, 8, rows, step.logits, [&](int first, int width, int row, int count, const float* values) {
    for (int r = 0; r < count; r++) {
      const int from = first * LANES, most = std::min(width * LANES, m_.vocabulary - from);
      if (most > 0) std::memcpy(step.out + int64_t(row + r) * m_.vocabulary + from, values + r * width * LANES, sizeof(float) * most);
    }
  });
}

void Engine::forward(const Step& step) {
  const size_t tokens = step.tokens;
  x_.need(tokens * m_.hidden), q_.need(tokens * m_.heads * m_.head_dim), mixed_.need(tokens * m_.heads * m_.head_dim);
  mid_.need(tokens * m_.inner);
  shared_.rows(step.tokens, std::max({m_.hidden, m_.inner, m_.heads * m_.head_dim}));
  plan_.make(step.rows, step.row_starts, step.positions, step.tables, step.table_stride, step.page_size, m_.heads / m_.kv_heads);
  states_.need(size_t(plan_.states) * m_.heads * (PageShape(step.page_size, m_.kv_heads, m_.head_dim).padded_dim + 2));
  const std::function<void(int)> work = [&](int thread) { run(step, thread); };
  team_.start(m_.layers * PHASES_A_LAYER + 8, work);
}

}  // namespace palmette

extern "C" {
// The size of a struct, for the mirror in library.py.
int32_t palmette_layout(int32_t which) {
  const size_t sizes[] = {sizeof(palmette::Linear), sizeof(palmette::Layer), sizeof(palmette::Model), sizeof(palmette::Step)};
  return int32_t(sizes[which]);
}
void* palmette_new(const palmette::Model* model, int32_t threads) { return new palmette::Engine(*model, threads); }
void palmette_delete(void* engine) { delete static_cast<palmette::Engine*>(engine); }
void palmette_forward(void* engine, const palmette::Step* step) { static_cast<palmette::Engine*>(engine)->forward(*step); }
}

// Single kernels, one thread, for comparison with kernels/reference.
extern "C" {
// x [rows][inputs] times the packed weight → out [rows][outputs], outputs a multiple of 16.
void palmette_linear(const palmette::Linear* w, const float* x, int32_t rows, float* out) {
  using namespace palmette;
  Prepared prepared;
  const Rows in = prepared.rows(rows, w->inputs);
  for (int64_t row = 0; row < rows; row++) {
    std::memcpy(in.f + row * w->inputs, x + row * w->inputs, sizeof(float) * w->inputs);
    quantise_row(x + row * w->inputs, w->inputs, in.from(row, w->inputs));
  }
  product(*w, 0, w->outputs / LANES, in, rows, out);
}
// The weight's row for each token, dequantised → out [tokens][inputs].
void palmette_embed(const palmette::Linear* w, const int32_t* tokens, int32_t count, float* out) {
  for (int32_t i = 0; i < count; i++) palmette::embed(*w, tokens[i], out + int64_t(i) * w->inputs);
}
void palmette_norm(const float* x, const float* weight, int32_t rows, int32_t width, float eps, float* out) {
  for (int64_t row = 0; row < rows; row++) palmette::norm(x + row * width, weight, width, eps, out + row * width);
}
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
