// What this machine can do at best: bytes and operations a second, by short loops that do nothing else. A library of its
// own, called by kernels/cpu/limits.py; shares nothing with the kernels that are compared with it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t PIECE = 1 << 18;  // bytes that a thread takes at a time: one that is held back delays little
constexpr int CHAINS = 16;          // independent accumulators: more than latency × units of any processor at hand

typedef float vf __attribute__((vector_size(64)));
typedef uint64_t vw __attribute__((vector_size(64)));

std::atomic<uint64_t> sink{0};  // where results go, so that no loop is found to be useless

// Puts the calling thread on the n-th processor that this process may use: two on one would halve every figure.
void pin(int n) {
#if defined(__linux__)
  cpu_set_t may, one;
  if (sched_getaffinity(0, sizeof may, &may) != 0 || CPU_COUNT(&may) == 0) return;
  n %= CPU_COUNT(&may);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &may) && n-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
#endif
}

// Seconds of work() in `threads` threads of their own, from the moment when all are there to the last one's end.
template <class F> double timed(int threads, F&& work) {
  std::atomic<int> there{0};
  std::atomic<bool> go{false};
  std::vector<Clock::time_point> ends(threads);
  std::vector<std::thread> team;
  for (int i = 0; i < threads; i++)
    team.emplace_back([&, i] {
      pin(i);
      there.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      work();
      ends[i] = Clock::now();
    });
  while (there.load() < threads) std::this_thread::yield();
  const auto start = Clock::now();
  go.store(true);
  for (auto& member : team) member.join();
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) - start).count();
}

// The best of as many tries as fit into `budget` seconds, three at least.
template <class F> double best(double budget, F&& once) {
  double least = once(), spent = least;
  for (int tries = 1; tries < 3 || spent < budget; tries++) {
    const double seconds = once();
    spent += seconds;
    if (seconds < least) least = seconds;
  }
  return least;
}

// piece(offset, bytes) for all of `total`, over the threads that come.
template <class F> double over_pieces(int64_t total, int threads, F&& piece) {
  std::atomic<int64_t> next{0};
  return timed(threads, [&] {
    for (int64_t at; (at = next.fetch_add(PIECE)) < total;) piece(at, total - at < PIECE ? total - at : PIECE);
  });
}

void read_piece(const uint8_t* from, int64_t bytes) {
  vw sums[8] = {};
  for (int64_t i = 0; i + 512 <= bytes; i += 512)
    for (int j = 0; j < 8; j++) {
      vw value;
      std::memcpy(&value, from + i + 64 * j, 64);
      sums[j] ^= value;
    }
  vw all = sums[0];
  for (int j = 1; j < 8; j++) all ^= sums[j];
  sink.fetch_xor(all[0] ^ all[3] ^ all[7], std::memory_order_relaxed);
}

// Stores go around the caches where the processor can do that: else each written line would be read first.
void copy_piece(const uint8_t* from, uint8_t* to, int64_t bytes) {
#if defined(__AVX512F__)
  for (int64_t i = 0; i + 64 <= bytes; i += 64) _mm512_stream_si512((__m512i*)(to + i), _mm512_loadu_si512(from + i));
  _mm_sfence();
#elif defined(__AVX2__)
  for (int64_t i = 0; i + 32 <= bytes; i += 32)
    _mm256_stream_si256((__m256i*)(to + i), _mm256_loadu_si256((const __m256i*)(from + i)));
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  union { vf v; __m256 h[2]; } x{a}, y{b}, z{c};
  for (int i = 0; i < 2; i++) z.h[i] = _mm256_fmadd_ps(x.h[i], y.h[i], z.h[i]);
  return z.v;
#elif defined(__FP_FAST_FMAF)
  vf out;
  for (int i = 0; i < 16; i++) out[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return out;
#else
  return a * b + c;
#endif
}

// As many vectors of 16 as stay in registers beside the operands.
#if defined(__AVX512F__)
constexpr int FLOATS = CHAINS;
#elif defined(__AVX2__)
constexpr int FLOATS = 5;
#else
constexpr int FLOATS = 4;
#endif

// The loops: `rounds` steps of accumulators in registers; they return operations, a multiply-add being two.
double float_loop(int64_t rounds, float seed) {
  vf acc[FLOATS], x = vf{} + seed, y = vf{} + 1e-9f;
  for (int j = 0; j < FLOATS; j++) acc[j] = vf{} + float(j);
  for (int64_t i = 0; i < rounds; i++)
#pragma GCC unroll 16
    for (int j = 0; j < FLOATS; j++) acc[j] = fma(acc[j], x, y);
  vf all = acc[0];
  for (int j = 1; j < FLOATS; j++) all += acc[j];
  sink.fetch_add(all[0] > 0, std::memory_order_relaxed);
  return 2.0 * 16 * FLOATS * double(rounds);
}

#if defined(__AVX512VNNI__)
#define PALMETTE_BYTE_DOT
double byte_loop(int64_t rounds, float seed) {
  __m512i acc[CHAINS], w = _mm512_set1_epi8(char(seed) | 1), x = _mm512_set1_epi8(3);
  for (int j = 0; j < CHAINS; j++) acc[j] = _mm512_set1_epi32(j);
  for (int64_t i = 0; i < rounds; i++)
#pragma GCC unroll 16
    for (int j = 0; j < CHAINS; j++) acc[j] = _mm512_dpbusd_epi32(acc[j], w, x);
  __m512i all = acc[0];
  for (int j = 1; j < CHAINS; j++) all = _mm512_xor_si512(all, acc[j]);
  sink.fetch_xor(uint64_t(_mm512_reduce_add_epi32(all)), std::memory_order_relaxed);
  return 2.0 * 64 * CHAINS * double(rounds);
}
#elif defined(__AVX2__)
#define PALMETTE_BYTE_DOT
// Without a byte dot product: 16-bit multiply-adds of widened bytes, which never saturate.
double byte_loop(int64_t rounds, float seed) {
  __m256i acc[8], w = _mm256_set1_epi16(short(seed) | 1), x = _mm256_set1_epi16(3);
  for (int j = 0; j < 8; j++) acc[j] = _mm256_set1_epi32(j);
  for (int64_t i = 0; i < rounds; i++) {
    w = _mm256_xor_si256(w, x);  // another operand each round: else the product would be taken out of the loop
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
      const __m256i other = _mm256_add_epi16(w, _mm256_set1_epi16(short(j)));
      acc[j] = _mm256_add_epi32(acc[j], _mm256_madd_epi16(other, x));
    }
  }
  __m256i all = acc[0];
  for (int j = 1; j < 8; j++) all = _mm256_xor_si256(all, acc[j]);
  sink.fetch_xor(uint64_t(_mm256_extract_epi32(all, 0)), std::memory_order_relaxed);
  return 2.0 * 16 * 8 * double(rounds);
}
#endif

#if defined(__AVX512F__)
#define PALMETTE_BF16_DOT
// The kernels' own flags leave these instructions out, so this one function asks for them.
__attribute__((target("avx512bf16"))) double bf16_loop(int64_t rounds, float seed) {
  __m512 acc[CHAINS];
  const __m512bh w = (__m512bh)_mm512_set1_epi16(short(0x3f80)), x = (__m512bh)_mm512_set1_epi16(short(seed) | 1);
  for (int j = 0; j < CHAINS; j++) acc[j] = _mm512_set1_ps(float(j));
  for (int64_t i = 0; i < rounds; i++)
#pragma GCC unroll 16
    for (int j = 0; j < CHAINS; j++) acc[j] = _mm512_dpbf16_ps(acc[j], w, x);
  __m512 all = acc[0];
  for (int j = 1; j < CHAINS; j++) all = _mm512_add_ps(all, acc[j]);
  sink.fetch_add(_mm512_reduce_add_ps(all) > 0, std::memory_order_relaxed);
  return 2.0 * 32 * CHAINS * double(rounds);
}
#endif

using Loop = double (*)(int64_t, float);

Loop loop_of(int32_t kind) {
  switch (kind) {
    case 0: return float_loop;
#if defined(PALMETTE_BF16_DOT)
    case 1: return __builtin_cpu_supports("avx512bf16") ? bf16_loop : nullptr;
#endif
#if defined(PALMETTE_BYTE_DOT)
    case 2: return byte_loop;
#endif
    default: return nullptr;
  }
}

}  // namespace

extern "C" {
// Best seconds of reading `bytes` (a multiple of 512) once.
double palmette_limits_read(const uint8_t* from, int64_t bytes, int32_t threads, double budget) {
  return best(budget, [&] {
    return over_pieces(bytes, threads, [&](int64_t at, int64_t size) { read_piece(from + at, size); });
  });
}
// Best seconds of copying `bytes` (a multiple of 64) once; `to` aligned to 64 bytes.
double palmette_limits_copy(const uint8_t* from, uint8_t* to, int64_t bytes, int32_t threads, double budget) {
  return best(budget, [&] {
    return over_pieces(bytes, threads, [&](int64_t at, int64_t size) { copy_piece(from + at, to + at, size); });
  });
}
// Operations a second of kind 0 float32 multiply-add, 1 bfloat16 dot product, 2 int8 dot product; 0: not on this path.
double palmette_limits_rate(int32_t kind, int32_t threads, double budget) {
  const Loop loop = loop_of(kind);
  if (loop == nullptr) return 0;
  const int64_t rounds = 1 << 17;
  // Each thread takes its own best moment: on a busy machine they seldom have one together.
  std::atomic<double> sum{0};
  timed(threads, [&] {
    const auto start = Clock::now();
    double most = 0;
    for (auto before = start; std::chrono::duration<double>(before - start).count() < budget;) {
      const double operations = loop(rounds, 0.5f);
      const auto now = Clock::now();
      most = std::max(most, operations / std::chrono::duration<double>(now - before).count());
      before = now;
    }
    for (double seen = sum.load(); !sum.compare_exchange_weak(seen, seen + most);) {
    }
  });
  return sum.load();
}
}
