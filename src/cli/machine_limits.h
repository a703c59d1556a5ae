// What this machine can do at most, measured: the bounds that matrix products are held against. (bench/limits.h has
// those of the other ops.)
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/thread_team.h"

namespace ibid::cli {

struct MachineLimits {
  double read_bytes_per_s = 0;  // from memory, all threads
  double int8_macs_per_s = 0;   // multiply-adds, by the widest dot instruction that the kernels use; 0: none
  double bf16_macs_per_s = 0;
  double fp32_macs_per_s = 0;
};

template <typename Work>
double best_rate(double amount, Work&& work) {
  double best = 0;
  for (int round = 0; round < 12; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, amount / took.count());
  }
  return best;
}

inline constexpr int64_t kLoops = 3'000'000;
inline constexpr int kChains = 12;  // enough independent sums to hide any latency

#if defined(__x86_64__)
// Chains in named registers: an array of them would go through memory.
#define IBID_PEAK(name, features, Vector, init, step)                                                        \
  __attribute__((target(features), noinline)) inline int name() {                                            \
    Vector x = init, y = init;                                                                               \
    asm volatile("" : "+v"(x), "+v"(y));                                                                     \
    Vector a0 = x, a1 = x, a2 = x, a3 = x, a4 = x, a5 = x, a6 = x, a7 = x, a8 = x, a9 = x, a10 = x, a11 = x; \
    for (int64_t i = 0; i < kLoops; ++i) {                                                                   \
      a0 = step(a0), a1 = step(a1), a2 = step(a2), a3 = step(a3), a4 = step(a4), a5 = step(a5);              \
      a6 = step(a6), a7 = step(a7), a8 = step(a8), a9 = step(a9), a10 = step(a10), a11 = step(a11);          \
      asm volatile("" : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4), "+v"(a5));                         \
      asm volatile("" : "+v"(a6), "+v"(a7), "+v"(a8), "+v"(a9), "+v"(a10), "+v"(a11));                       \
    }                                                                                                        \
    asm volatile("" ::"v"(a0), "v"(a1), "v"(a2), "v"(a3), "v"(a4), "v"(a5));                                 \
    asm volatile("" ::"v"(a6), "v"(a7), "v"(a8), "v"(a9), "v"(a10), "v"(a11));                               \
    return 0;                                                                                                \
  }
#define STEP_INT8(a) _mm512_dpbusd_epi32(a, x, y)
#define STEP_BF16(a) _mm512_dpbf16_ps(a, (__m512bh)x, (__m512bh)y)
#define STEP_FP32(a) _mm512_fmadd_ps(x, y, a)
#define STEP_FP32_AVX2(a) _mm256_fmadd_ps(x, y, a)
#define AVX512 "avx512f,avx512bw,avx512vl"
IBID_PEAK(peak_int8, AVX512 ",avx512vnni", __m512i, _mm512_set1_epi8(1), STEP_INT8)
IBID_PEAK(peak_bf16, AVX512 ",avx512bf16", __m512, _mm512_set1_ps(1), STEP_BF16)
IBID_PEAK(peak_fp32, AVX512, __m512, _mm512_set1_ps(1), STEP_FP32)
IBID_PEAK(peak_fp32_avx2, "avx2,fma", __m256, _mm256_set1_ps(1), STEP_FP32_AVX2)
#endif

inline volatile int measured_sink;

inline double peak(ThreadTeam& team, int (*loop)(), double macs_per_step) {
  const double amount = static_cast<double>(kLoops) * kChains * macs_per_step * team.n_threads();
  return best_rate(amount, [&] { team.parallel_for(team.n_threads(), [&](int64_t, int) { measured_sink = loop(); }); });
}

inline double read_rate(ThreadTeam& team) {
  constexpr size_t kBytes = size_t{512} << 20, kPiece = size_t{256} << 10;
  std::vector<uint64_t> data(kBytes / 8, 1);
  return best_rate(kBytes, [&] {
    team.parallel_for(kBytes / kPiece, [&](int64_t piece, int) {
      const uint64_t* p = data.data() + static_cast<size_t>(piece) * (kPiece / 8);
      uint64_t sum[8] = {};
      for (size_t i = 0; i < kPiece / 8; i += 8) {
        for (size_t j = 0; j < 8; ++j) sum[j] += p[i + j];
      }
      measured_sink = static_cast<int>(sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7]);
    });
  });
}

// The best of several rounds of about 10 ms each, so that a neighbour's burst does not lower a limit.
inline MachineLimits measure_limits(ThreadTeam& team) {
  MachineLimits limits;
  limits.read_bytes_per_s = read_rate(team);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    if (__builtin_cpu_supports("avx512vnni")) limits.int8_macs_per_s = peak(team, peak_int8, 64);
    if (__builtin_cpu_supports("avx512bf16")) limits.bf16_macs_per_s = peak(team, peak_bf16, 32);
    limits.fp32_macs_per_s = peak(team, peak_fp32, 16);
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    limits.fp32_macs_per_s = peak(team, peak_fp32_avx2, 8);
  }
#endif
  return limits;
}

}  // namespace ibid::cli
