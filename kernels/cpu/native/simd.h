// Sixteen lanes of float or int32, whatever the machine: GCC's vector extensions, with intrinsics only where an
// instruction matters (fused multiply-add, the byte dot product). Lanes never meet but in the sums written out below,
// so every instruction set gives a lane the same operations in the same order.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace palmette {

constexpr int LANES = 16;
typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef uint8_t vb __attribute__((vector_size(64)));
typedef _Float16 vh __attribute__((vector_size(32)));

#define PALMETTE_INLINE static inline __attribute__((always_inline))
#define PALMETTE_METHOD inline __attribute__((always_inline))

template <class V> PALMETTE_INLINE V load(const void* from) {
  V value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class V> PALMETTE_INLINE void store(void* to, V value) { std::memcpy(to, &value, sizeof value); }

PALMETTE_INLINE vf splat(float x) { return vf{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
PALMETTE_INLINE vi splat(int32_t x) { return vi{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
PALMETTE_INLINE vf to_float(vi x) { return __builtin_convertvector(x, vf); }
// Sixteen halves. Compilers turn the generic conversion into sixteen scalar ones, so the instruction is named.
PALMETTE_INLINE vf from_half(const void* from) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  union { __m256 h[2]; vf v; } out;
  out.h[0] = _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  out.h[1] = _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from) + 1));
  return out.v;
#else
  return __builtin_convertvector(load<vh>(from), vf);
#endif
}

// Sixteen signed bytes.
PALMETTE_INLINE vf from_int8(const int8_t* from) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load<__m128i>(from)));
#elif defined(__AVX2__)
  union { __m256 h[2]; vf v; } out;
  for (int i = 0; i < 2; i++) out.h[i] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(from + 8 * i))));
  return out.v;
#else
  vf out;
  for (int i = 0; i < LANES; i++) out[i] = from[i];
  return out;
#endif
}

PALMETTE_INLINE vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  union { vf v; __m256 h[2]; } x{a}, y{b}, z{c};
  z.h[0] = _mm256_fmadd_ps(x.h[0], y.h[0], z.h[0]);
  z.h[1] = _mm256_fmadd_ps(x.h[1], y.h[1], z.h[1]);
  return z.v;
#else
  vf out;
  for (int i = 0; i < LANES; i++) out[i] = std::fma(a[i], b[i], c[i]);
  return out;
#endif
}

PALMETTE_INLINE vf max(vf a, vf b) { return a > b ? a : b; }

// The lower and the upper four bits of each byte. Compilers take wide vectors of bytes apart into words where the machine
// has only narrower ones, so the instructions are named.
#if defined(__AVX2__) && !defined(__AVX512F__)
PALMETTE_INLINE vb nibbles(vb bytes, bool upper) {
  union { vb v; __m256i h[2]; } x{bytes};
  for (int half = 0; half < 2; half++)
    x.h[half] = _mm256_and_si256(upper ? _mm256_srli_epi16(x.h[half], 4) : x.h[half], _mm256_set1_epi8(15));
  return x.v;
}
#else
PALMETTE_INLINE vb nibbles(vb bytes, bool upper) {
  typedef uint16_t v32s __attribute__((vector_size(64)));
  return (upper ? (vb)((v32s)bytes >> 4) : bytes) & (vb{} + uint8_t(15));
}
#endif

// Sixteen exact sums: lane i of total() is the offset + Σ over at most eight add() of Σ over j < 4 of weights[4 i + j]
// (unsigned; below 16 where NIBBLES) × x[j] (signed, −127 … 127).
template <bool NIBBLES> class Dots {
 public:
#if defined(__AVX512VNNI__)
  PALMETTE_METHOD Dots(int32_t offset = 0) : sum_(splat(offset)) {}
  PALMETTE_METHOD void add(vb weights, const int8_t* x) {
    sum_ = (vi)_mm512_dpbusd_epi32((__m512i)sum_, (__m512i)weights, _mm512_set1_epi32(word(x)));
  }
  PALMETTE_METHOD vi total() const { return sum_; }

 private:
  vi sum_;
#elif defined(__AVX2__)
  // Sums of pairs stay in 16 bits: eight times 2 × 15 × 127 is below 2^15. Larger weights are two nibbles.
  PALMETTE_METHOD Dots(int32_t offset = 0) : offset_(offset) {}
  PALMETTE_METHOD void add(vb weights, const int8_t* x) {
    const union { vb v; __m256i h[2]; } w{weights};
    const __m256i xs = _mm256_set1_epi32(word(x)), nibble = _mm256_set1_epi8(15);
    for (int half = 0; half < 2; half++) {
      const __m256i low = NIBBLES ? w.h[half] : _mm256_and_si256(w.h[half], nibble);
      low_[half] = _mm256_add_epi16(low_[half], _mm256_maddubs_epi16(low, xs));
      if (!NIBBLES) {
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w.h[half], 4), nibble);
        high_[half] = _mm256_add_epi16(high_[half], _mm256_maddubs_epi16(high, xs));
      }
    }
  }
  PALMETTE_METHOD vi total() const {
    union { vi v; __m256i h[2]; } sum{splat(offset_)};
    const __m256i ones = _mm256_set1_epi16(1), sixteens = _mm256_set1_epi16(16);
    for (int half = 0; half < 2; half++) {
      sum.h[half] = _mm256_add_epi32(sum.h[half], _mm256_madd_epi16(low_[half], ones));
      if (!NIBBLES) sum.h[half] = _mm256_add_epi32(sum.h[half], _mm256_madd_epi16(high_[half], sixteens));
    }
    return sum.v;
  }

 private:
  int32_t offset_;
  __m256i low_[2] = {}, high_[2] = {};
#else
  PALMETTE_METHOD Dots(int32_t offset = 0) : sum_(splat(offset)) {}
  PALMETTE_METHOD void add(vb weights, const int8_t* x) {
    for (int i = 0; i < LANES; i++)
      sum_[i] += int(weights[4 * i]) * x[0] + int(weights[4 * i + 1]) * x[1] + int(weights[4 * i + 2]) * x[2] +
                 int(weights[4 * i + 3]) * x[3];
  }
  PALMETTE_METHOD vi total() const { return sum_; }

 private:
  vi sum_;
#endif
  PALMETTE_INLINE int32_t word(const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, 4);
    return four;
  }
};

// The lanes of x moved down by 8, 4, 2, 1: what the trees below add.
template <int HALF> PALMETTE_INLINE vf upper(vf x) {
  constexpr auto at = [](int i) { return (i + HALF) % LANES; };
  return __builtin_shufflevector(x, x, at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11),
                                 at(12), at(13), at(14), at(15));
}
// The sum and the maximum over the lanes, by halves: a fixed tree.
PALMETTE_INLINE float sum_lanes(vf x) {
  x = x + upper<8>(x);
  x = x + upper<4>(x);
  x = x + upper<2>(x);
  x = x + upper<1>(x);
  return x[0];
}
PALMETTE_INLINE float max_lanes(vf x) {
  x = max(x, upper<8>(x));
  x = max(x, upper<4>(x));
  x = max(x, upper<2>(x));
  x = max(x, upper<1>(x));
  return x[0];
}
// The same tree over the lanes of each of M vectors at once, the halves of several in one: lane r of the result is of x[r],
// from `FROM` on. HALF: the lanes that are left of each. `join`: + or max, lane by lane.
template <int HALF = 1, int FROM = 0, int M, class F> PALMETTE_INLINE vf fold_lanes(const vf (&x)[M], F&& join) {
  if constexpr (HALF == LANES) {
    return x[FROM];
  } else {
    constexpr int NEXT = FROM + LANES / HALF / 2;
    const vf a = fold_lanes<2 * HALF, FROM>(x, join), b = fold_lanes<2 * HALF, (NEXT < M ? NEXT : FROM)>(x, join);
    constexpr auto at = [](int i) { return i / HALF * 2 * HALF + i % HALF; };
#define PALMETTE_HALVES(OF) __builtin_shufflevector(a, b, OF(0), OF(1), OF(2), OF(3), OF(4), OF(5), OF(6), OF(7), OF(8), \
                                                    OF(9), OF(10), OF(11), OF(12), OF(13), OF(14), OF(15))
#define PALMETTE_LOWER(i) at(i)
#define PALMETTE_UPPER(i) at(i) + HALF
    return join(PALMETTE_HALVES(PALMETTE_LOWER), PALMETTE_HALVES(PALMETTE_UPPER));
#undef PALMETTE_HALVES
#undef PALMETTE_LOWER
#undef PALMETTE_UPPER
  }
}

// The lanes of integers: exact in any order.
PALMETTE_INLINE int32_t sum_lanes(vi x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)x);
#else
  int32_t sum = 0;
  for (int i = 0; i < LANES; i++) sum += x[i];
  return sum;
#endif
}
PALMETTE_INLINE int32_t max_lanes(vi x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32((__m512i)x);
#else
  int32_t most = x[0];
  for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
  return most;
#endif
}
// Sixteen integers of -128 … 127 as bytes.
PALMETTE_INLINE void store_bytes(int8_t* to, vi x) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8((__m512i)x));
#else
  typedef int8_t v16b __attribute__((vector_size(16)));
  store(to, __builtin_convertvector(x, v16b));
#endif
}

// Round to the nearest integer, ties to even; |x| < 2^22.
PALMETTE_INLINE vf round_even(vf x) {
  const vf magic = splat(12582912.0f);
  return (x + magic) - magic;
}

// e^x to about one unit in the last place (range reduction by ln 2 in two parts, polynomial of degree 6); 0 below -87.3, NaN
// of NaN.
PALMETTE_INLINE vf exp(vf x) {
  const vf low = splat(-87.3f), high = splat(88.3f);
  const vf clamped = x > high ? high : (x < low ? low : x);
  const vf n = round_even(clamped * splat(1.44269504088896341f));
  vf r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  vf p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
  const vi exponent = (__builtin_convertvector(n, vi) + 127) << 23;
  const vf value = p * (vf)exponent;
  return x <= low ? vf{} : value;
}

// tanh x to about two units in the last place: an odd polynomial below 0.625, 1 − 2 / (e^2|x| + 1) above.
PALMETTE_INLINE vf tanh(vf x) {
  const vf size = x < vf{} ? vf{} - x : x, square = x * x;
  vf p = splat(-5.70498872745e-3f);
  p = fma(p, square, splat(2.06390887954e-2f));
  p = fma(p, square, splat(-5.37397155531e-2f));
  p = fma(p, square, splat(1.33314422036e-1f));
  p = fma(p, square, splat(-3.33332819422e-1f));
  const vf near = fma(p * square, x, x);
  const vf far = splat(1.0f) - splat(2.0f) / (exp(size + size) + splat(1.0f));
  return size < splat(0.625f) ? near : (x < vf{} ? vf{} - far : far);
}

// bfloat16, two to a 32-bit word: the even one in the low half.
PALMETTE_INLINE vf low_bf16(vu words) { return (vf)(words << 16); }
PALMETTE_INLINE vf high_bf16(vu words) { return (vf)(words & 0xffff0000u); }
static inline uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t(bits >> 16) | 0x40;  // stays NaN
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// Two numbers that a sum takes at once: first odd × odd, then even × even, each rounded, as vdpbf16ps does it.
struct FloatPair {
  float even, odd;
};
#if defined(__AVX512BF16__)
struct Bf16Pair {
  uint32_t word;
};
static inline Bf16Pair bf16_pair(float even, float odd) {
  return Bf16Pair{uint32_t(to_bf16(even)) | uint32_t(to_bf16(odd)) << 16};
}
// 2 × 16 numbers as 16 pairs.
PALMETTE_INLINE void store_pairs(Bf16Pair* to, vf first, vf second) {
  store(to, (vu)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
}
PALMETTE_INLINE vf add_dot(vu words, Bf16Pair x, vf sum) {
  return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)words, (__m512bh)_mm512_set1_epi32(int32_t(x.word)));
}
#else
// Products of bfloat16 are exact in float, so the same numbers in multiply-adds give the same bits, except that vdpbf16ps
// takes numbers below 2^-126 as zero and leaves zero for them.
struct Bf16Pair : FloatPair {};
PALMETTE_INLINE vf rounded_to_bf16(vf x) {
  const vu bits = (vu)x;
  const vf rounded = (vf)((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
  return x == x ? rounded : x;  // stays NaN
}
static inline Bf16Pair bf16_pair(float even, float odd) {
  const auto rounded = [](float x) {
    const uint32_t bits = uint32_t(to_bf16(x)) << 16;
    std::memcpy(&x, &bits, 4);
    return x;
  };
  return Bf16Pair{{rounded(even), rounded(odd)}};
}
PALMETTE_INLINE void store_pairs(Bf16Pair* to, vf first, vf second) {
  store(to, rounded_to_bf16(first)), store(to + LANES / 2, rounded_to_bf16(second));
}
PALMETTE_INLINE vf add_dot(vu words, Bf16Pair x, vf sum) {
  return fma(low_bf16(words), splat(x.even), fma(high_bf16(words), splat(x.odd), sum));
}
#endif

}  // namespace palmette
