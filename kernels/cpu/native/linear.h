// Products of rows with packed weights. One arithmetic a weight format, whatever the number of rows: groups of 32 in
// ascending order, per group an exact integer sum, then the same fused multiply-adds in every tile. Rows of a tile share
// the loaded weights and nothing else.
//
// Packed weights: blocks of 16 outputs; per block, groups of 32 inputs in order. A group of a block:
//   q4   256 bytes: 4 × 64, low nibbles are inputs 8j … 8j+3, high nibbles 8j+4 … 8j+7 of 16 outputs (4 bytes each);
//        then 16 half scales d and 16 half minima m: w = d q + m, q in 0 … 15
//   q8   512 bytes: 8 × 64, inputs 4j … 4j+3 of 16 outputs, q + 128; then 16 half scales: w = d q, q in −127 … 127
//   bf16 16 × 64 bytes: inputs 2j, 2j+1 of 16 outputs
//   f32  32 × 64 bytes: input j of 16 outputs
#pragma once
#include "simd.h"

namespace palmette {

constexpr int GROUP = 32;

enum Format : int32_t { Q4 = 0, Q8 = 1, BF16 = 2, F32 = 3 };

struct Linear {
  int32_t format;
  int32_t outputs;  // a multiple of 16 (the packer pads)
  int32_t inputs;   // a multiple of 32
  int32_t reserved;
  const uint8_t* data;
  const float* bias;  // outputs, or null
};

constexpr int64_t group_bytes(int32_t format) {
  return format == Q4 ? 320 : format == Q8 ? 544 : format == BF16 ? 1024 : 2048;
}
inline bool quantised(int32_t format) { return format == Q4 || format == Q8; }

// Rows of inputs in the two forms that products take: int8 `q` with a scale per (row, group of 32), the sum of the
// group's q, and scale × sum; or float `f`. Row r begins at r × inputs (and r × groups).
struct Rows {
  int8_t* q;
  float* scale;
  int32_t* sum;
  float* total;
  float* f;
  Rows from(int64_t row, int64_t inputs) const {
    const int64_t group = row * (inputs / GROUP);
    return Rows{q + row * inputs, scale + group, sum + group, total + group, f + row * inputs};
  }
};

// x[0 … 32) → int8: scale = max |x| / 127, ties to even.
PALMETTE_INLINE void quantise_group(const float* x, int8_t* q, float* scale, int32_t* sum, float* total) {
  const vf a = load<vf>(x), b = load<vf>(x + LANES);
  const vf zero{};
  const float most = max_lanes(max(max(a, zero - a), max(b, zero - b)));
  const float inverse = most > 0 ? 127.0f / most : 0.0f;
  const vi qa = __builtin_convertvector(round_even(a * splat(inverse)), vi);
  const vi qb = __builtin_convertvector(round_even(b * splat(inverse)), vi);
  typedef int8_t v16b __attribute__((vector_size(16)));
  store(q, __builtin_convertvector(qa, v16b));
  store(q + LANES, __builtin_convertvector(qb, v16b));
  const vi both = qa + qb;
  int32_t all = 0;
  for (int i = 0; i < LANES; i++) all += both[i];
  *scale = most / 127.0f;
  *sum = all;
  *total = *scale * float(all);
}

static inline void quantise_row(const float* x, int inputs, const Rows& row) {
  for (int g = 0; g < inputs / GROUP; g++)
    quantise_group(x + g * GROUP, row.q + g * GROUP, row.scale + g, row.sum + g, row.total + g);
}

// A single row reads weights as fast as memory gives them, if it asks early enough: the processor's own prefetching stops
// at the end of each block.
PALMETTE_INLINE void prefetch(const uint8_t* at, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + 2048 + line);
}

// A tile of R rows × C blocks of 16 outputs → out[r][c × 16 …], C × 16 floats a row. `x` begins at the tile's first row.
template <int R, int C> static void tile_q4(const uint8_t* blocks, int64_t stride, int groups, const Rows& x, float* out) {
  vf acc[R][C] = {};
  const int64_t inputs = int64_t(groups) * GROUP;
  const vb low = vb{} + uint8_t(15);
  for (int g = 0; g < groups; g++) {
    for (int c = 0; c < C; c++) {
      const uint8_t* at = blocks + c * stride + g * group_bytes(Q4);
      prefetch(at, group_bytes(Q4));
      vb w[8];
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        const vb packed = load<vb>(at + 64 * j);
        typedef uint16_t v32s __attribute__((vector_size(64)));
        w[2 * j] = packed & low;
        w[2 * j + 1] = (vb)((v32s)packed >> 4) & low;
      }
      const vf d = from_half(at + 256), m = from_half(at + 288);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const int8_t* q = x.q + r * inputs + g * GROUP;
        vi sum{};
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) sum = dot4(sum, w[j], q + 4 * j);
        const float scale = x.scale[int64_t(r) * groups + g];
        acc[r][c] = fma(d * splat(scale), to_float(sum), acc[r][c]);
        acc[r][c] = fma(m, splat(x.total[int64_t(r) * groups + g]), acc[r][c]);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) store(out + (r * C + c) * LANES, acc[r][c]);
}

template <int R, int C> static void tile_q8(const uint8_t* blocks, int64_t stride, int groups, const Rows& x, float* out) {
  vf acc[R][C] = {};
  const int64_t inputs = int64_t(groups) * GROUP;
  for (int g = 0; g < groups; g++) {
    for (int c = 0; c < C; c++) {
      const uint8_t* at = blocks + c * stride + g * group_bytes(Q8);
      prefetch(at, group_bytes(Q8));
      vb w[8];
#pragma GCC unroll 8
      for (int j = 0; j < 8; j++) w[j] = load<vb>(at + 64 * j);
      const vf d = from_half(at + 512);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const int8_t* q = x.q + r * inputs + g * GROUP;
        vi sum = splat(-128 * x.sum[int64_t(r) * groups + g]);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) sum = dot4(sum, w[j], q + 4 * j);
        acc[r][c] = fma(d * splat(x.scale[int64_t(r) * groups + g]), to_float(sum), acc[r][c]);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) store(out + (r * C + c) * LANES, acc[r][c]);
}

template <int R, int C, bool HALF>
static void tile_float(const uint8_t* blocks, int64_t stride, int groups, const Rows& x, float* out) {
  vf acc[R][C] = {};
  const int64_t inputs = int64_t(groups) * GROUP;
  for (int64_t i = 0; i < inputs; i += 2) {
    for (int c = 0; c < C; c++) {
      vf even, odd;
      if (HALF) {
        const vu pair = load<vu>(blocks + c * stride + i * 32);
        even = low_bf16(pair), odd = high_bf16(pair);
      } else {
        even = load<vf>(blocks + c * stride + i * 64), odd = load<vf>(blocks + c * stride + i * 64 + 64);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        acc[r][c] = fma(even, splat(x.f[r * inputs + i]), acc[r][c]);
        acc[r][c] = fma(odd, splat(x.f[r * inputs + i + 1]), acc[r][c]);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) store(out + (r * C + c) * LANES, acc[r][c]);
}

template <int R, int C>
static void tile(int32_t format, const uint8_t* blocks, int64_t stride, int groups, const Rows& x, float* out) {
  switch (format) {
    case Q4: return tile_q4<R, C>(blocks, stride, groups, x, out);
    case Q8: return tile_q8<R, C>(blocks, stride, groups, x, out);
    case BF16: return tile_float<R, C, true>(blocks, stride, groups, x, out);
    default: return tile_float<R, C, false>(blocks, stride, groups, x, out);
  }
}

constexpr int TILE_ROWS = 12;

// `count` rows × `width` blocks from block `first` on → out[row][width × 16]. Any cut into tiles gives the same bits.
static void product(const Linear& w, int first, int width, Rows x, int count, float* out) {
  const int groups = w.inputs / GROUP;
  const int64_t stride = groups * group_bytes(w.format);
  const uint8_t* blocks = w.data + first * stride;
  float piece[TILE_ROWS * LANES];
  if (count == 1) {  // a single row: several blocks at once keep the arithmetic units busy
    int c = 0;
    for (; c + 4 <= width; c += 4) tile<1, 4>(w.format, blocks + c * stride, stride, groups, x, out + c * LANES);
    for (; c + 2 <= width; c += 2) tile<1, 2>(w.format, blocks + c * stride, stride, groups, x, out + c * LANES);
    for (; c < width; c++) tile<1, 1>(w.format, blocks + c * stride, stride, groups, x, out + c * LANES);
    return;
  }
  while (count > 0) {
    int rows = 0;
    for (int c = 0; c < width; c++) {
      const uint8_t* block = blocks + c * stride;
      if (count >= 12) tile<12, 1>(w.format, block, stride, groups, x, piece), rows = 12;
      else if (count >= 8) tile<8, 1>(w.format, block, stride, groups, x, piece), rows = 8;
      else if (count >= 4) tile<4, 1>(w.format, block, stride, groups, x, piece), rows = 4;
      else if (count >= 2) tile<2, 1>(w.format, block, stride, groups, x, piece), rows = 2;
      else tile<1, 1>(w.format, block, stride, groups, x, piece), rows = 1;
      for (int r = 0; r < rows; r++) store(out + (int64_t(r) * width + c) * LANES, load<vf>(piece + r * LANES));
    }
    x = x.from(rows, w.inputs);
    out += int64_t(rows) * width * LANES;
    count -= rows;
  }
}

}  // namespace palmette
