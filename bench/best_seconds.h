// How benches measure times. The machine's limits: cli/measure/machine_limits.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

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

}  // namespace ibid::bench
