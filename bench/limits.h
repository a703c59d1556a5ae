// What this machine can do at best, measured in the same run as what we do: read bandwidth and F32 multiply-adds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_team.h"

namespace ibid::bench {

inline double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
// The best of `n` runs, for limits and for what is held against them alike.
inline double best_seconds(int n, const std::function<void()>& work) {
  double best = seconds(work);
  for (int i = 1; i < n; ++i) best = std::min(best, seconds(work));
  return best;
}

inline uint64_t sum_words(const uint64_t* p, int64_t n) {
  uint64_t sum[8] = {};
  for (int64_t i = 0; i < n; i += 8) {
    for (int j = 0; j < 8; ++j) sum[j] += p[i + j];
  }
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

// Bytes per second read from memory by the whole team, the best of some runs over 256 MiB.
inline double read_bandwidth(ThreadTeam& team) {
  constexpr int64_t kWords = int64_t{1} << 25;
  constexpr int64_t kParts = 256;
  std::vector<uint64_t> words(kWords, 1);
  std::vector<uint64_t> sums(kParts);
  double best = 1e9;
  for (int i = 0; i < 12; ++i) {
    best = std::min(best, seconds([&] {
                      team.parallel_for(kParts, [&](int64_t part, int) {
                        sums[static_cast<size_t>(part)] =
                            sum_words(words.data() + part * (kWords / kParts), kWords / kParts);
                      });
                    }));
  }
  volatile uint64_t keep = sums[0];
  (void)keep;
  return kWords * 8 / best;
}

#if defined(__x86_64__)
// 24 chains of multiply-adds in registers of 16 lanes; named, because compilers keep such sums in memory.
inline void fma_loop_avx512(int64_t n) {
#define IBID_FMA(r) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" #r "\n\t"
  asm volatile("1:\n\t"
               // clang-format off
      IBID_FMA(0) IBID_FMA(1) IBID_FMA(2) IBID_FMA(3) IBID_FMA(4) IBID_FMA(5) IBID_FMA(6) IBID_FMA(7)
      IBID_FMA(8) IBID_FMA(9) IBID_FMA(10) IBID_FMA(11) IBID_FMA(12) IBID_FMA(13) IBID_FMA(14) IBID_FMA(15)
      IBID_FMA(16) IBID_FMA(17) IBID_FMA(18) IBID_FMA(19) IBID_FMA(20) IBID_FMA(21) IBID_FMA(22) IBID_FMA(23)
               // clang-format on
               "dec %0\n\tjnz 1b\n\t"
               "vzeroupper"
               : "+r"(n)
               :
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                 "xmm12", "xmm13", "xmm14", "xmm15");
#undef IBID_FMA
}
#endif

// F32 operations per second (a multiply-add is two) of the whole team with AVX-512; 0 where that is missing.
inline double f32_rate(ThreadTeam& team) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f")) return 0.0;
  constexpr int64_t kSteps = 4000;
  const int64_t parts = team.n_threads() * 8;
  double best = 1e9;
  for (int i = 0; i < 200; ++i) {
    best = std::min(best, seconds([&] { team.parallel_for(parts, [&](int64_t, int) { fma_loop_avx512(kSteps); }); }));
  }
  return static_cast<double>(parts * kSteps * 24 * 16 * 2) / best;
#else
  (void)team;
  return 0.0;
#endif
}

}  // namespace ibid::bench
