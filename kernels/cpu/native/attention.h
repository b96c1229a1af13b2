// Attention over paged KV: one function of (row position, KV), whatever else is in the step.
//
// KV is cut into absolute blocks of 64 positions and splits of 256. Inside a split the blocks ascend with one running
// maximum and sum; every split starts fresh; splits are folded from left to right. Rows of a tile share loaded KV and
// nothing else; a lane that a row may not see has weight exactly 0, and meets finite values only. Blocks and splits that lie wholly before a row's
// window leave its state as it is, bit for bit, so a tile may skip them or not.
//
// A layer's pages: keys [page][kv head][dim pair][position][2], so that 16 positions of a pair are one vector; values
// [page][kv head][position][dims, padded to 32]. Elements are bfloat16, float, or int8 with a scale per position: floats
// [position] behind a head's keys and behind its values, so that a token's KV is rounded by itself.
#pragma once
#include <algorithm>
#include <limits>

#include "simd.h"

namespace palmette {

constexpr int BLOCK = 64;
constexpr int SPLIT = 256;
constexpr int TILE = 12;  // rows (queries × heads a KV head) that one tile holds at most
constexpr int MOST_HEAD_DIM = 256;

// What a layer asks of attention beyond causality. In this order: scores, soft cap, mask, softmax, sinks.
struct Attention {
  int32_t window;      // a row at p sees positions > p − window; 0: all
  float soft_cap;      // score → cap × tanh(score / cap); 0: none
  const float* sinks;  // [heads]: a logit that joins the softmax's sum, with no value; or null

  int first_seen(int position) const { return window > 0 ? std::max(0, position - window + 1) : 0; }
};

// How elements of a storage meet queries and weights: always two positions or dims at a time, as a Pair, so that bfloat16
// products do two in one instruction. Queries and weights are rounded to bfloat16 where KV is; sums are float.
template <class E> struct Element;
template <> struct Element<uint16_t> {
  static constexpr int SCALE = 0;  // elements that a position's scale takes
  static constexpr uint32_t EXPONENTS = 0x7f807f80u;  // of the elements in a word; all ones where one isn't finite
  using Pair = Bf16Pair;
  using Vectors = vu;
  static Pair pair(float even, float odd) { return bf16_pair(even, odd); }
  PALMETTE_INLINE void pairs(Pair* to, vf first, vf second) { store_pairs(to, first, second); }
  // A pair of dims of 16 positions.
  PALMETTE_INLINE vu key(const uint16_t* at) { return load<vu>(at); }
  // 32 dims of two positions, those of a pair of dims in one word: as vectors of the even dims and of the odd ones.
  PALMETTE_INLINE void value(const uint16_t* even, const uint16_t* odd, vu& low, vu& high) {
    const vu a = load<vu>(even), b = load<vu>(odd);
    low = (a & 0xffffu) | (b << 16), high = (a >> 16) | (b & 0xffff0000u);
  }
  PALMETTE_INLINE vf add(vu words, Pair x, vf sum) { return add_dot(words, x, sum); }
  static uint16_t from(float x) { return to_bf16(x); }
  static int low(int i) { return 2 * i; }       // dim (of 32) of lane i of the first vector
  static int high(int i) { return 2 * i + 1; }  // … of the second
};

// Two vectors beside each other; the packing of a pair is [2][16] for keys.
template <class E> struct Unpaired {
  using Pair = FloatPair;
  struct Vectors {
    vf even, odd;
  };
  static Pair pair(float even, float odd) { return Pair{even, odd}; }
  PALMETTE_INLINE void pairs(Pair* to, vf first, vf second) { store(to, first), store(to + LANES / 2, second); }
  PALMETTE_INLINE Vectors key(const E* at) { return Vectors{Element<E>::wide(at), Element<E>::wide(at + LANES)}; }
  PALMETTE_INLINE void value(const E* even, const E* odd, Vectors& low, Vectors& high) {
    low = Vectors{Element<E>::wide(even), Element<E>::wide(odd)};
    high = Vectors{Element<E>::wide(even + LANES), Element<E>::wide(odd + LANES)};
  }
  PALMETTE_INLINE vf add(const Vectors& stored, Pair x, vf sum) {
    return fma(stored.even, splat(x.even), fma(stored.odd, splat(x.odd), sum));
  }
  static int low(int i) { return i; }
  static int high(int i) { return i + LANES; }
};
template <> struct Element<float> : Unpaired<float> {
  static constexpr int SCALE = 0;
  static constexpr uint32_t EXPONENTS = 0x7f800000u;
  PALMETTE_INLINE vf wide(const float* at) { return load<vf>(at); }
  static float from(float x) { return x; }
};
template <> struct Element<int8_t> : Unpaired<int8_t> {
  static constexpr int SCALE = sizeof(float);
  PALMETTE_INLINE vf wide(const int8_t* at) { return from_int8(at); }
  static int8_t from(float x) { return std::fabs(x) < 127.5f ? int8_t(std::nearbyintf(x)) : 0; }  // ties to even
};

// A query's dims as pairs, `stride` apart.
template <class E> static void pair_up(const float* q, int dims, typename Element<E>::Pair* to, int stride) {
  typename Element<E>::Pair pairs[LANES];
  for (int d = 0; d < dims; d += 2 * LANES) {
    const int count = std::min(2 * LANES, dims - d);
    if (count == 2 * LANES) {
      Element<E>::pairs(pairs, load<vf>(q + d), load<vf>(q + d + LANES));
    } else {
      for (int i = 0; i < count; i += 2) pairs[i / 2] = Element<E>::pair(q[d + i], q[d + i + 1]);
    }
    for (int i = 0; i < count / 2; i++) to[(d / 2 + i) * stride] = pairs[i];
  }
}

// Writes the scale of x [count] to `at`, where E has one; returns what x is multiplied by before it is rounded.
template <class E> static float write_scale(E* at, const float* x, int count) {
  if constexpr (Element<E>::SCALE == 0) return 1.0f;
  float most = 0.0f;
  bool finite = true;
  for (int i = 0; i < count; i++) most = std::max(most, std::fabs(x[i])), finite &= std::isfinite(x[i]);
  if (most < 1e-30f) most = 0.0f;  // its inverse would leave the range
  const float scale = finite ? most / 127.0f : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(at, &scale, sizeof scale);
  return finite && most > 0.0f ? 127.0f / most : 0.0f;
}

// Calls then(E{}) with the element type of a storage, in the order of library.KV_CODES.
template <class F> static void with_element(int storage, F&& then) {
  switch (storage) {
    case 0: return then(uint16_t{});
    case 1: return then(float{});
    case 2: return then(int8_t{});
  }
}

// Where things are in a page. Positions of a page come in runs of `lanes`: 16 where the page size allows, else 1.
struct PageShape {
  int page_size, kv_heads, head_dim, scale, padded_dim, lanes;
  PageShape(int page_size, int kv_heads, int head_dim, int scale)
      : page_size(page_size), kv_heads(kv_heads), head_dim(head_dim), scale(scale), padded_dim((head_dim + 31) / 32 * 32),
        lanes(page_size % LANES == 0 ? LANES : 1) {}
  // First element of a head's keys, and of its values.
  int64_t keys(int64_t page, int head) const { return (page * kv_heads + head) * page_size * (head_dim + scale); }
  int64_t values(int64_t page, int head) const { return (page * kv_heads + head) * page_size * (padded_dim + scale); }
  // First element of run `offset / lanes` of a head's keys: [dim pair][lanes][2] (bfloat16) or [dim pair][2][lanes].
  int64_t key_run(int64_t page, int head, int offset) const {
    return keys(page, head) + offset / lanes * lanes * head_dim;
  }
  int64_t value_row(int64_t page, int head, int offset) const { return values(page, head) + offset * padded_dim; }
  int64_t key_scale(int64_t page, int head, int offset) const { return keys(page, head) + page_size * head_dim + offset * scale; }
  int64_t value_scale(int64_t page, int head, int offset) const {
    return values(page, head) + page_size * padded_dim + offset * scale;
  }
};

// Index within a run of (dim, lane).
template <class E> inline int64_t key_index(int dim, int lane, int lanes) {
  if (sizeof(E) == 2) return (int64_t(dim / 2) * lanes + lane) * 2 + dim % 2;
  return (int64_t(dim / 2) * 2 + dim % 2) * lanes + lane;
}

template <class E> void write_key(E* keys, const PageShape& shape, int64_t page, int head, int offset, const float* k) {
  E* run = keys + shape.key_run(page, head, offset);
  const float inverse = write_scale(keys + shape.key_scale(page, head, offset), k, shape.head_dim);
  for (int d = 0; d < shape.head_dim; d++)
    run[key_index<E>(d, offset % shape.lanes, shape.lanes)] = Element<E>::from(k[d] * inverse);
}
template <class E> void write_value(E* values, const PageShape& shape, int64_t page, int head, int offset, const float* v) {
  E* row = values + shape.value_row(page, head, offset);
  const float inverse = write_scale(values + shape.value_scale(page, head, offset), v, shape.head_dim);
  for (int d = 0; d < shape.padded_dim; d++) row[d] = Element<E>::from(d < shape.head_dim ? v[d] * inverse : 0.0f);
}

// What a tile carries along a split, and what it is folded into. Values in the lane order of Element.
struct State {
  float* most;   // [rows]
  float* total;  // [rows]
  float* value;  // [rows][padded_dim]
};

template <class E> struct View {
  const E* keys;
  const E* values;
  const int32_t* table;  // the row's pages
  const PageShape& shape;
  int head;
};

// Positions [begin, end) page by page: then(position, how many, page, offset).
template <class E, class F> PALMETTE_INLINE void each_page(const View<E>& kv, int begin, int end, F&& then) {
  const int size = kv.shape.page_size;
  for (int position = begin, offset = begin % size, at = begin / size; position < end; at++, offset = 0) {
    const int count = std::min(end - position, size - offset);
    then(position, count, kv.table[at], offset);
    position += count;
  }
}

// The 16 keys from `position` on as [dim pair][16][2]: in place where a page holds them so, else gathered to `scratch`.
template <class E> static const E* key_vectors(const View<E>& kv, int position, int count, E* scratch) {
  const PageShape& shape = kv.shape;
  if (shape.lanes == LANES)
    return kv.keys + shape.key_run(kv.table[position / shape.page_size], kv.head, position % shape.page_size);
  for (int i = 0; i < std::min(LANES, count); i++) {
    const int p = position + i;
    const E* one = kv.keys + shape.key_run(kv.table[p / shape.page_size], kv.head, p % shape.page_size);
    for (int d = 0; d < shape.head_dim; d++) scratch[key_index<E>(d, i, LANES)] = one[d];
  }
  return scratch;
}

// scores[r] of M rows with V × 16 positions whose keys begin at runs[v]; q [dim pair][M]. A lane's sum runs over the pairs of
// dims in order.
template <class E, int M, int V>
static void key_scores(const E* const* runs, int dims, const typename Element<E>::Pair* q, float* scores) {
  vf acc[V][M] = {};
  for (int64_t at = 0; at < int64_t(dims) * LANES; at += 2 * LANES, q += M) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
      const auto keys = Element<E>::key(runs[v] + at);
#pragma GCC unroll 12
      for (int r = 0; r < M; r++) acc[v][r] = Element<E>::add(keys, q[r], acc[v][r]);
    }
  }
  for (int v = 0; v < V; v++)
    for (int r = 0; r < M; r++) store(scores + r * BLOCK + v * LANES, acc[v][r]);
}

// scores[r][0 … 64) of M rows with positions [begin, begin + count) of a block; lanes beyond count hold anything.
template <class E, int M>
static void block_scores(const View<E>& kv, int begin, int count, const typename Element<E>::Pair* q, float* scores,
                         E* scratch) {
  constexpr int V = M <= 4 ? 4 : M <= 8 ? 2 : 1;  // few rows: several vectors at once keep the arithmetic units busy
  const int dims = kv.shape.head_dim;
  const E* runs[BLOCK / LANES];
  const int vectors = (count + LANES - 1) / LANES;
  for (int v = 0; v < vectors; v++)
    runs[v] = key_vectors(kv, begin + v * LANES, count - v * LANES, scratch + int64_t(v) * LANES * dims);
  int v = 0;
  for (; v + V <= vectors; v += V) key_scores<E, M, V>(runs + v, dims, q, scores + v * LANES);
  for (; v < vectors; v++) key_scores<E, M, 1>(runs + v, dims, q, scores + v * LANES);
}

// value[r] += sum over positions [from, to) of weight[r][position] × V[position], ascending by pairs, for C × 32 dims from
// d on; from and to are even.
template <class E, int M, int C>
static void weigh_values(const E* const* rows, int from, int to, int d, const typename Element<E>::Pair* weights, float* value,
                         int dims) {
  vf low[C][M], high[C][M];
  for (int c = 0; c < C; c++)
    for (int r = 0; r < M; r++) {
      const float* at = value + r * dims + d + c * 2 * LANES;
      low[c][r] = load<vf>(at), high[c][r] = load<vf>(at + LANES);
    }
  for (int i = from; i < to; i += 2) {
    const auto* pair = weights + i / 2;
#pragma GCC unroll 2
    for (int c = 0; c < C; c++) {
      typename Element<E>::Vectors lows, highs;
      Element<E>::value(rows[i] + d + c * 2 * LANES, rows[i + 1] + d + c * 2 * LANES, lows, highs);
#pragma GCC unroll 12
      for (int r = 0; r < M; r++) {
        low[c][r] = Element<E>::add(lows, pair[r * (BLOCK / 2)], low[c][r]);
        high[c][r] = Element<E>::add(highs, pair[r * (BLOCK / 2)], high[c][r]);
      }
    }
  }
  for (int c = 0; c < C; c++)
    for (int r = 0; r < M; r++) {
      float* at = value + r * dims + d + c * 2 * LANES;
      store(at, low[c][r]), store(at + LANES, high[c][r]);
    }
}

// The same for positions [from, to) of the block that begins at `block`, all dims. A position that completes a pair and is
// hidden from all rows has weight 0 and counts as zeros: its page may be anybody's.
template <class E, int M>
static void block_values(const View<E>& kv, int block, int from, int to, const typename Element<E>::Pair* weights, float* value) {
  constexpr int C = M <= 6 ? 2 : 1;
  alignas(64) static constexpr E NOTHING[MOST_HEAD_DIM] = {};
  const PageShape& shape = kv.shape;
  const int dims = shape.padded_dim;
  const E* rows[BLOCK];
  if (from % 2 != 0) rows[from - 1] = NOTHING;
  each_page(kv, block + from, block + to, [&](int position, int count, int page, int offset) {
    const E* row = kv.values + shape.value_row(page, kv.head, offset);
    for (int i = 0; i < count; i++, row += dims) rows[position - block + i] = row;
  });
  if (to % 2 != 0) rows[to++] = NOTHING;
  from -= from % 2;
  int d = 0;
  for (; d + C * 2 * LANES <= dims; d += C * 2 * LANES) weigh_values<E, M, C>(rows, from, to, d, weights, value, dims);
  for (; d < dims; d += 2 * LANES) weigh_values<E, M, 1>(rows, from, to, d, weights, value, dims);
}

// The scales of positions [block + from, block + to), for E that has them, into [from, to) of each; 0 elsewhere.
template <class E>
static void block_scales(const View<E>& kv, int block, int from, int to, float* keys, float* values) {
  std::fill(keys, keys + BLOCK, 0.0f), std::fill(values, values + BLOCK, 0.0f);
  each_page(kv, block + from, block + to, [&](int position, int count, int page, int offset) {
    std::memcpy(keys + position - block, kv.keys + kv.shape.key_scale(page, kv.head, offset), sizeof(float) * count);
    std::memcpy(values + position - block, kv.values + kv.shape.value_scale(page, kv.head, offset), sizeof(float) * count);
  });
}

// One split [begin, …) of a tile of M rows, from fresh; row r is at positions[r].
template <class E, int M>
static void attend_split(const View<E>& kv, const Attention& kind, int begin, const int32_t* positions,
                         const typename Element<E>::Pair* q, const State& state, E* scratch) {
  constexpr bool scaled = Element<E>::SCALE > 0;
  const int dims = kv.shape.padded_dim;
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  alignas(64) float scores[M * BLOCK];
  alignas(64) typename Element<E>::Pair weights[M * BLOCK / 2];
  alignas(64) float most[LANES], factor[LANES], total[LANES];
  alignas(64) float key_scales[BLOCK], value_scales[BLOCK];
  int firsts[M], first = positions[0], last = positions[0];
  for (int r = 0; r < M; r++) {
    firsts[r] = kind.first_seen(positions[r]);
    first = std::min(first, firsts[r]), last = std::max(last, positions[r]);
    state.most[r] = minus_infinity, state.total[r] = 0.0f;
    std::fill(state.value + r * dims, state.value + (r + 1) * dims, 0.0f);
  }
  const vi lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int block = std::max(begin, first / BLOCK * BLOCK); block < begin + SPLIT && block <= last; block += BLOCK) {
    const int from = std::max(0, first - block), count = std::min(BLOCK, last + 1 - block);
    block_scores<E, M>(kv, block, count, q, scores, scratch);
    if constexpr (scaled) {
      block_scales(kv, block, from, count, key_scales, value_scales);
      for (int at = 0; at < M * BLOCK; at += LANES)
        store(scores + at, load<vf>(scores + at) * load<vf>(key_scales + at % BLOCK));
    }
    if (kind.soft_cap > 0.0f) {
      const vf cap = splat(kind.soft_cap);
      for (int at = 0; at < M * BLOCK; at += LANES) store(scores + at, cap * tanh(load<vf>(scores + at) / cap));
    }
    vf peaks[M], sums[M];
    for (int r = 0; r < M; r++) {
      float* row = scores + r * BLOCK;
      vf peak = splat(minus_infinity);
      for (int at = 0; at < BLOCK; at += LANES) {
        vf s = load<vf>(row + at);
        if (block + at < firsts[r] || block + at + LANES - 1 > positions[r]) {
          const vi position = lanes + splat(block + at);
          s = (position >= splat(firsts[r])) & (position <= splat(positions[r])) ? s : splat(minus_infinity);
          store(row + at, s);
        }
        peak = max(peak, s);
      }
      peaks[r] = peak;
    }
    store(most, fold_lanes(peaks, [](vf a, vf b) { return max(a, b); }));
    std::fill(factor, factor + LANES, 0.0f);
    for (int r = 0; r < M; r++) {
      most[r] = std::max(most[r], state.most[r]);
      factor[r] = most[r] == minus_infinity ? 0.0f : state.most[r] - most[r];
    }
    store(factor, exp(load<vf>(factor)));
    for (int r = 0; r < M; r++) {
      const float* row = scores + r * BLOCK;
      const vf peak = splat(most[r] == minus_infinity ? 0.0f : most[r]);
      vf e[BLOCK / LANES];
      for (int at = 0; at < BLOCK; at += LANES) e[at / LANES] = exp(load<vf>(row + at) - peak);
      for (int at = 0; at < BLOCK; at += 2 * LANES) {
        vf first = e[at / LANES], second = e[at / LANES + 1];
        if (scaled) first *= load<vf>(value_scales + at), second *= load<vf>(value_scales + at + LANES);
        Element<E>::pairs(weights + (r * BLOCK + at) / 2, first, second);
      }
      sums[r] = (e[0] + e[1]) + (e[2] + e[3]);
    }
    store(total, fold_lanes(sums, [](vf a, vf b) { return a + b; }));
    for (int r = 0; r < M; r++) {
      state.total[r] = state.total[r] * factor[r] + total[r];
      state.most[r] = most[r];
      if (factor[r] != 1.0f) {
        const vf f = splat(factor[r]);
        float* value = state.value + r * dims;
        for (int d = 0; d < dims; d += LANES) store(value + d, load<vf>(value + d) * f);
      }
    }
    block_values<E, M>(kv, block, from, count, weights, state.value);
  }
}

// into = into ⊕ next, row by row; `into` is the fold of the splits before. A row that saw nothing of `next` stays.
static inline void fold(const State& into, const State& next, int rows, int dims) {
  for (int r = 0; r < rows; r++) {
    if (next.total[r] == 0.0f) continue;
    const float most = std::max(into.most[r], next.most[r]);
    alignas(64) float f[LANES] = {into.most[r] - most, next.most[r] - most};
    store(f, exp(load<vf>(f)));
    into.most[r] = most;
    into.total[r] = into.total[r] * f[0] + next.total[r] * f[1];
    float *a = into.value + r * dims;
    const float* b = next.value + r * dims;
    for (int d = 0; d < dims; d += LANES)
      store(a + d, load<vf>(a + d) * splat(f[0]) + load<vf>(b + d) * splat(f[1]));
  }
}

// Row `from` of one state into row `to` of another.
static inline void copy_row(const State& into, int to, const State& state, int from, int dims) {
  into.most[to] = state.most[from], into.total[to] = state.total[from];
  std::memcpy(into.value + to * dims, state.value + from * dims, sizeof(float) * dims);
}

// Row `r` of a finished state → head_dim floats in dim order; `sink` joins the sum, where there is one.
template <class E> static void finish(const State& state, int r, const PageShape& shape, const float* sink, float* out) {
  float scale = 1.0f / state.total[r];
  if (sink != nullptr) {
    const float most = std::max(state.most[r], *sink);
    alignas(64) float f[LANES] = {state.most[r] - most, *sink - most};
    store(f, exp(load<vf>(f)));
    scale = f[0] / (state.total[r] * f[0] + f[1]);
  }
  const float* value = state.value + r * shape.padded_dim;
  for (int d = 0; d < shape.padded_dim; d += 2 * LANES)
    for (int i = 0; i < LANES; i++) {
      // Zero is +0: weights of hidden lanes, of which a tile may have more or fewer, turn −0 into it.
      const int low = d + Element<E>::low(i), high = d + Element<E>::high(i);
      if (low < shape.head_dim) out[low] = value[d + i] * scale + 0.0f;
      if (high < shape.head_dim) out[high] = value[d + LANES + i] * scale + 0.0f;
    }
}

// Whether what positions [from, to) hold for values is finite, so that a weight of 0 adds 0.
template <class E> static bool finite_values(const View<E>& kv, int from, int to) {
  const PageShape& shape = kv.shape;
  vu carries{};  // of exponents that are all ones
  each_page(kv, from, to, [&](int, int count, int page, int offset) {
    if constexpr (Element<E>::SCALE > 0) {
      const E* at = kv.values + shape.value_scale(page, kv.head, offset);
      for (int i = 0; i < count; i++) carries[0] |= (load<uint32_t>(at + i * shape.scale) & 0x7f800000u) + 0x00800000u;
    } else {
      constexpr uint32_t exponents = Element<E>::EXPONENTS, lowest = exponents & ~(exponents << 1);
      const E* at = kv.values + shape.value_row(page, kv.head, offset);
      const E* end = at + count * shape.padded_dim;
      for (; at < end; at += sizeof(vu) / sizeof(E)) carries |= (load<vu>(at) & exponents) + lowest;
    }
  });
  return max_lanes((vi)(carries >> 15 & 0x10001u)) == 0;
}

// A split of a tile. Where a position that only some of its rows see isn't finite, each row goes by itself.
template <class E>
static void attend_split(int rows, const View<E>& kv, const Attention& kind, int begin, const int32_t* positions,
                         const typename Element<E>::Pair* q, const State& state, E* scratch) {
  const auto [low, high] = std::minmax_element(positions, positions + rows);
  const int end = std::min(*high + 1, begin + SPLIT);
  if (!finite_values(kv, std::max(kind.first_seen(*low), begin), std::min(kind.first_seen(*high), end)) ||
      !finite_values(kv, std::max(*low + 1, begin), end)) {
    typename Element<E>::Pair alone[MOST_HEAD_DIM / 2];
    for (int r = 0; r < rows; r++) {
      for (int pair = 0; pair < kv.shape.head_dim / 2; pair++) alone[pair] = q[pair * rows + r];
      const State own{state.most + r, state.total + r, state.value + r * kv.shape.padded_dim};
      attend_split<E, 1>(kv, kind, begin, positions + r, alone, own, scratch);
    }
    return;
  }
  switch (rows) {
#define PALMETTE_ROWS(M) \
  case M: return attend_split<E, M>(kv, kind, begin, positions, q, state, scratch);
    PALMETTE_ROWS(1) PALMETTE_ROWS(2) PALMETTE_ROWS(3) PALMETTE_ROWS(4) PALMETTE_ROWS(5) PALMETTE_ROWS(6)
    PALMETTE_ROWS(7) PALMETTE_ROWS(8) PALMETTE_ROWS(9) PALMETTE_ROWS(10) PALMETTE_ROWS(11) PALMETTE_ROWS(12)
#undef PALMETTE_ROWS
  }
}

}  // namespace palmette
