// Products of rows with packed weights. One arithmetic a weight format, whatever the number of rows: groups of 32 in
// ascending order, per group an exact integer sum, then the same fused multiply-adds in every tile. Rows of a tile share
// the loaded weights and nothing else.
//
// Packed weights: blocks of 16 outputs; per block, groups of 32 inputs in order. A group of a block:
//   q4      256 bytes: 4 × 64, low nibbles are inputs 8j … 8j+3, high nibbles 8j+4 … 8j+7 of 16 outputs (4 bytes each);
//           then 16 half scales d and 16 half minima m: w = d q + m, q in 0 … 15
//   q8      512 bytes: 8 × 64, inputs 4j … 4j+3 of 16 outputs, q + 128; then 16 half scales: w = d q, q in −127 … 127
//   q8_min  512 bytes as q8, q in 0 … 255; then 16 half scales and 16 half minima: w = d q + m
//   q8_16   512 bytes as q8, q + 128; then 16 half scales of the first 16 inputs and 16 of the others
//   bf16    16 × 64 bytes: inputs 2j, 2j+1 of 16 outputs
//   f32     32 × 64 bytes: input j of 16 outputs
#pragma once
#include <algorithm>
#include <type_traits>

#include "simd.h"

namespace palmette {

constexpr int GROUP = 32;

enum Format : int32_t { Q4 = 0, Q8 = 1, BF16 = 2, F32 = 3, Q8_MIN = 4, Q8_16 = 5 };

// Products with bfloat16 weights are bfloat16 dot products where the processor has them: their inputs are rounded to
// bfloat16 then. Elsewhere the inputs stay float: rounding them would cost accuracy and save nothing.
#if defined(__AVX512BF16__)
constexpr bool PAIRED_BF16 = true;
#else
constexpr bool PAIRED_BF16 = false;
#endif

constexpr bool quantised(int32_t format) { return format != BF16 && format != F32; }
constexpr bool has_minimum(int32_t format) { return format == Q4 || format == Q8_MIN; }
constexpr int64_t quant_bytes(int32_t format) { return format == Q4 ? 256 : 512; }
constexpr int64_t group_bytes(int32_t format) {
  return format == BF16 ? 1024 : format == F32 ? 2048 : quant_bytes(format) + (format == Q8 ? 32 : 64);
}

// Outputs of one format, a multiple of 16 (the packer pads).
struct Part {
  int32_t format;
  int32_t blocks;  // of 16 outputs
  const uint8_t* data;
  const float* bias;  // or null
};

// Parts share their inputs; their outputs follow each other.
struct Linear {
  int32_t blocks;  // of all parts
  int32_t inputs;  // a multiple of 32
  int32_t parts;
  int32_t reserved;
  const Part* part;
};

// The part that holds a block, and which of its own blocks that is.
struct Place {
  const Part& part;
  int block;
};
inline Place locate(const Linear& w, int block) {
  const Part* part = w.part;
  while (block >= part->blocks) block -= part++->blocks;
  return Place{*part, block};
}

// What a (row, group of 32) of int8 inputs has beside its quants. Weights stored as q + 128 take `offset` off again.
struct Group {
  float scale, total;         // total = scale × sum of the quants
  int32_t offset, first_offset;  // −128 × sum of the quants; of the first 16 alone
};

// Rows of inputs in the forms that products take: int8 with a Group each 32; float; pairs of bfloat16, the even one in the
// low half. Row r begins at r × inputs.
struct Rows {
  int8_t* q;
  Group* group;
  float* f;
  uint32_t* pairs;
  Rows from(int64_t row, int64_t inputs) const {
    return Rows{q + row * inputs, group + row * (inputs / GROUP), f + row * inputs, pairs + row * (inputs / 2)};
  }
};

// Which of the forms the parts of a linear take.
struct Forms {
  bool int8, floats, pairs;
};
inline Forms forms_of(const Linear& w) {
  Forms forms{};
  for (int i = 0; i < w.parts; i++) {
    const int32_t format = w.part[i].format;
    (quantised(format) ? forms.int8 : PAIRED_BF16 && format == BF16 ? forms.pairs : forms.floats) = true;
  }
  return forms;
}

// x[0 … 32) → int8: scale = max |x| / 127, ties to even.
PALMETTE_INLINE void quantise_group(const float* x, int8_t* q, Group* group) {
  const vf a = load<vf>(x), b = load<vf>(x + LANES);
  // As integers, sizes are ordered as they are as floats, and infinities and NaN come behind them: none is lost.
  const vi size_a = (vi)a & 0x7fffffff, size_b = (vi)b & 0x7fffffff;
  const int32_t bits = max_lanes(size_a > size_b ? size_a : size_b);
  float most;
  std::memcpy(&most, &bits, 4);
  if (bits >= 0x7f800000) {
    std::memset(q, 0, GROUP);
    *group = Group{NAN, NAN, 0, 0};
    return;
  }
  const float inverse = most > 0 ? 127.0f / most : 0.0f;
  const vi low = __builtin_convertvector(round_even(a * splat(inverse)), vi);
  const vi high = __builtin_convertvector(round_even(b * splat(inverse)), vi);
  store_bytes(q, low);
  store_bytes(q + LANES, high);
  const int32_t first = sum_lanes(low), second = sum_lanes(high);
  const float scale = most / 127.0f;
  *group = Group{scale, scale * float(first + second), -128 * (first + second), -128 * first};
}

PALMETTE_INLINE void to_pairs(const float* x, uint32_t* pairs) {
#if defined(__AVX512BF16__)
  store(pairs, (vh)_mm512_cvtneps_pbh((__m512)load<vf>(x)));
#else
  (void)x, (void)pairs;
#endif
}

// A row of floats in the forms that are wanted; it may lie in row.f already.
static inline void prepare_row(const float* x, int inputs, Forms forms, const Rows& row) {
  if (forms.floats && x != row.f) std::memcpy(row.f, x, sizeof(float) * inputs);
  if (forms.int8)
    for (int g = 0; g < inputs / GROUP; g++) quantise_group(x + g * GROUP, row.q + g * GROUP, row.group + g);
  if (forms.pairs)
    for (int i = 0; i < inputs; i += LANES) to_pairs(x + i, row.pairs + i / 2);
}

// Few rows read weights as fast as memory gives them, if they ask early enough. Blocks follow each other in memory, so what
// is fetched behind the end of one is the beginning of the next.
constexpr int64_t FETCH_AHEAD = 4096;
PALMETTE_INLINE void prefetch(const uint8_t* at, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + FETCH_AHEAD + line);
}

// The quants of a group: byte 4i + b of w[j] is input 4j + b of output i.
template <int32_t F> PALMETTE_INLINE void load_quants(const uint8_t* at, vb* w) {
  if constexpr (F == Q4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      const vb packed = load<vb>(at + 64 * j);
      w[2 * j] = nibbles(packed, false);
      w[2 * j + 1] = nibbles(packed, true);
    }
  } else {
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) w[j] = load<vb>(at + 64 * j);
  }
}

// Where the registers hold them, the sums of a group are two chains each, for one would wait for itself.
#if defined(__AVX512F__)
constexpr int CHAINS = 2;
#else
constexpr int CHAINS = 1;
#endif

// The sums of C blocks over words [FROM, TO) of a group: each word of the row is broadcast once for all of them.
template <int32_t F, int C, int FROM, int TO>
PALMETTE_INLINE void sums(const vb (*w)[8], const int8_t* q, int32_t offset, vi* out) {
  Dots<F == Q4> dots[CHAINS][C];
#pragma GCC unroll 4
  for (int c = 0; c < C; c++) dots[0][c] = Dots<F == Q4>(offset);
#pragma GCC unroll 8
  for (int j = FROM; j < TO; j++) {
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) dots[j % CHAINS][c].add(w[c][j], q + 4 * j);
  }
#pragma GCC unroll 4
  for (int c = 0; c < C; c++) {
    out[c] = dots[0][c].total();
    if constexpr (CHAINS == 2) out[c] += dots[1][c].total();
  }
}

// The weights of C blocks in one group.
template <int32_t F, int C> struct Weights {
  vb w[C][8];
  vf d[C], other[C];  // scales; minima, or scales of the other 16
  PALMETTE_METHOD void load(const uint8_t* at, int64_t stride) {
#pragma GCC unroll 4
    for (int c = 0; c < C; c++, at += stride) {
      load_quants<F>(at, w[c]);
      d[c] = from_half(at + quant_bytes(F));
      other[c] = F == Q8 ? vf{} : from_half(at + quant_bytes(F) + 32);
    }
  }
  // acc[c] += the products of a row's group with block c.
  PALMETTE_METHOD void add(const int8_t* q, const Group& group, vf* acc) const {
    if constexpr (F == Q8_16) {  // the first 16 inputs have scales of their own
      vi first[C];
      sums<F, C, 0, 4>(w, q, group.first_offset, first);
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) acc[c] = fma(d[c] * splat(group.scale), to_float(first[c]), acc[c]);
    }
    vi sum[C];
    constexpr int from = F == Q8_16 ? 4 : 0;
    sums<F, C, from, 8>(w, q, F == Q8 ? group.offset : F == Q8_16 ? group.offset - group.first_offset : 0, sum);
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      acc[c] = fma((F == Q8_16 ? other[c] : d[c]) * splat(group.scale), to_float(sum[c]), acc[c]);
      if constexpr (has_minimum(F)) acc[c] = fma(other[c], splat(group.total), acc[c]);
    }
  }
};

// `count` rows × C blocks of 16 outputs → out[r × across + c][16]: a group's weights are unpacked once for all rows, and stay
// in the registers; the rows' results so far lie in `out`, which the nearest cache holds.
template <int32_t F, int C>
static void many_int(const uint8_t* blocks, int64_t stride, int groups, const Rows& x, int count, float* out, int across) {
  const int64_t inputs = int64_t(groups) * GROUP, step = int64_t(across) * LANES;
  for (int r = 0; r < count; r++)
    for (int c = 0; c < C; c++) store(out + r * step + c * LANES, vf{});
  for (int g = 0; g < groups; g++, blocks += group_bytes(F)) {
    Weights<F, C> weights;
    // The same group of the next blocks, in good time.
    for (int c = 0; c < C; c++)
      for (int64_t line = 0; line < group_bytes(F); line += 64) __builtin_prefetch(blocks + (C + c) * stride + line);
    weights.load(blocks, stride);
    const int8_t* q = x.q + g * GROUP;
    const Group* group = x.group + g;
    float* to = out;
    for (int r = 0; r < count; r++, q += inputs, group += groups, to += step) {
      vf acc[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) acc[c] = palmette::load<vf>(to + c * LANES);
      weights.add(q, *group, acc);
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) store(to + c * LANES, acc[c]);
    }
  }
}

// A tile of R rows × a block of 16 outputs → out[r × across][16]. `x` begins at the tile's first row.
template <int32_t F, int R>
static void tile_int(const uint8_t* block, int groups, const Rows& x, float* out, int across) {
  vf acc[R][1] = {};
  const int64_t inputs = int64_t(groups) * GROUP;
  for (int g = 0; g < groups; g++, block += group_bytes(F)) {
    Weights<F, 1> weights;
    prefetch(block, group_bytes(F));
    weights.load(block, 0);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) weights.add(x.q + r * inputs + g * GROUP, x.group[int64_t(r) * groups + g], acc[r]);
  }
  for (int r = 0; r < R; r++) store(out + int64_t(r) * across * LANES, acc[r][0]);
}

template <int R, int C, bool HALF>
static void tile_float(const uint8_t* blocks, int64_t stride, int groups, const Rows& x, float* out, int across) {
  vf acc[R][C] = {};
  const int64_t inputs = int64_t(groups) * GROUP;
  for (int64_t i = 0; i < inputs; i += 2) {
    vf even[C], odd[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      if (HALF) {
        const vu pair = load<vu>(blocks + c * stride + i * 32);
        even[c] = low_bf16(pair), odd[c] = high_bf16(pair);
      } else {
        even[c] = load<vf>(blocks + c * stride + i * 64), odd[c] = load<vf>(blocks + c * stride + i * 64 + 64);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const vf first = splat(x.f[r * inputs + i]), second = splat(x.f[r * inputs + i + 1]);
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) acc[r][c] = fma(odd[c], second, fma(even[c], first, acc[r][c]));
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) store(out + (int64_t(r) * across + c) * LANES, acc[r][c]);
}

#if defined(__AVX512BF16__)
// As tile_float on pairs, which ascend.
template <int R, int C>
static void tile_pairs(const uint8_t* blocks, int64_t stride, int groups, const Rows& x, float* out, int across) {
  __m512 acc[R][C] = {};
  const int64_t pairs = int64_t(groups) * GROUP / 2;
  for (int64_t i = 0; i < pairs; i++) {
    __m512bh w[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      const uint8_t* at = blocks + c * stride + i * 64;
      if (R == 1) __builtin_prefetch(at + FETCH_AHEAD);
      w[c] = (__m512bh)_mm512_loadu_si512(at);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(int(x.pairs[r * pairs + i]));
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], w[c], pair);
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) store(out + (int64_t(r) * across + c) * LANES, (vf)acc[r][c]);
}
#endif

template <int R, int C>
static void tile_floats(int32_t format, const uint8_t* blocks, int64_t stride, int groups, const Rows& x, float* out, int across) {
  if (format == F32) return tile_float<R, C, false>(blocks, stride, groups, x, out, across);
#if defined(__AVX512BF16__)
  return tile_pairs<R, C>(blocks, stride, groups, x, out, across);
#else
  return tile_float<R, C, true>(blocks, stride, groups, x, out, across);
#endif
}

// Calls then(format as a constant).
template <class F> PALMETTE_INLINE void with_quants(int32_t format, F&& then) {
  switch (format) {
    case Q4: return then(std::integral_constant<int32_t, Q4>());
    case Q8: return then(std::integral_constant<int32_t, Q8>());
    case Q8_MIN: return then(std::integral_constant<int32_t, Q8_MIN>());
    case Q8_16: return then(std::integral_constant<int32_t, Q8_16>());
  }
}
template <int R>
static void tile_ints(int32_t format, const uint8_t* blocks, int64_t stride, int groups, const Rows& x, float* out, int across) {
  with_quants(format, [&](auto f) { tile_int<f, R>(blocks, groups, x, out, across); });
}

// Rows of a tile that the registers hold: larger ones would spill, and cost the compiler a minute. Blocks that many rows take
// at a time: fewer rows wait for memory, which gives one stream of weights faster than two.
#if defined(__AVX512F__)
constexpr int FLOAT_ROWS = 12, INT_ROWS = 2, MOST_BLOCKS = 2;
#else
constexpr int FLOAT_ROWS = 4, INT_ROWS = 4, MOST_BLOCKS = 1;
#endif

template <int R, int C> constexpr auto floats_of_at_most() { return tile_floats<(R < FLOAT_ROWS ? R : FLOAT_ROWS), C>; }

// All rows × C blocks, so that the blocks' weights are read from memory once.
template <int C>
static void tiles(int32_t format, const uint8_t* blocks, int64_t stride, int groups, Rows x, int count, float* out,
                  int across) {
  const bool ints = quantised(format);
  if (ints && count > INT_ROWS)
    return with_quants(format, [&](auto f) { many_int<f, C>(blocks, stride, groups, x, count, out, across); });
  while (count > 0) {
    const int most = std::min(count, ints ? INT_ROWS : FLOAT_ROWS);
    const int rows = most >= 12 ? 12 : most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
    const auto shape = ints         ? (rows >= 4 ? tile_ints<4> : rows == 2 ? tile_ints<2> : tile_ints<1>)
                       : rows == 12 ? floats_of_at_most<12, C>()
                       : rows == 8  ? floats_of_at_most<8, C>()
                       : rows == 4  ? tile_floats<4, C>
                       : rows == 2  ? tile_floats<2, C>
                                    : tile_floats<1, C>;
    shape(format, blocks, stride, groups, x, out, across);
    x = x.from(rows, int64_t(groups) * GROUP);
    out += int64_t(rows) * across * LANES;
    count -= rows;
  }
}

// `count` rows × `width` blocks of a part, from `first` on → out[row][across × 16]. Any cut into tiles gives the same
// bits.
static void product(const Part& w, int inputs, int first, int width, const Rows& x, int count, float* out, int across) {
  const int groups = inputs / GROUP;
  const int64_t stride = groups * group_bytes(w.format);
  const uint8_t* blocks = w.data + first * stride;
  int c = 0;
  if (count > (quantised(w.format) ? INT_ROWS : FLOAT_ROWS - 1))
    for (; c + MOST_BLOCKS <= width; c += MOST_BLOCKS)
      tiles<MOST_BLOCKS>(w.format, blocks + c * stride, stride, groups, x, count, out + c * LANES, across);
  for (; c < width; c++) tiles<1>(w.format, blocks + c * stride, stride, groups, x, count, out + c * LANES, across);
}

// The same over all parts, biases added → out[row][width × 16].
static void product(const Linear& w, int first, int width, const Rows& x, int count, float* out) {
  for (int done = 0; done < width;) {
    const Place at = locate(w, first + done);
    const int wide = at.part.blocks - at.block < width - done ? at.part.blocks - at.block : width - done;
    float* to = out + done * LANES;
    product(at.part, w.inputs, at.block, wide, x, count, to, width);
    if (at.part.bias != nullptr)
      for (int r = 0; r < count; r++)
        for (int i = 0; i < wide * LANES; i += LANES) {
          float* value = to + int64_t(r) * width * LANES + i;
          store(value, load<vf>(value) + load<vf>(at.part.bias + at.block * LANES + i));
        }
    done += wide;
  }
}

}  // namespace palmette
