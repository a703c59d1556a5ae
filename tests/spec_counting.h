// Rows of logits to draw from by rejection, and whether counts are those of a law: the G statistic and the total
// variation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace ibid::testing {

inline constexpr int32_t kCountedVocab = 96;

// Normal ones; around `near`'s, where that is given.
inline std::vector<float> normal_logits(uint64_t seed, float scale, const std::vector<float>* near = nullptr,
                                        int32_t vocab_size = kCountedVocab) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(static_cast<size_t>(vocab_size));
  for (size_t i = 0; i < out.size(); ++i) out[i] = normal(random) + (near == nullptr ? 0 : (*near)[i]);
  return out;
}

// In standard deviations, by the cube root of the G statistic over its degrees of freedom (Wilson and Hilferty, 1931);
// tokens that are expected fewer than ten times count as one. Infinite where something came that cannot.
inline double deviation(std::span<const int64_t> counts, std::span<const double> law) {
  int64_t n = 0;
  for (const int64_t c : counts) n += c;
  double g = 0, rare = 0, rare_count = 0;
  int32_t n_kinds = 0;
  const auto add = [&](double count, double expected) {
    if (count > 0) g += 2 * count * std::log(count / expected);
    ++n_kinds;
  };
  for (size_t x = 0; x < law.size(); ++x) {
    const auto count = static_cast<double>(counts[x]);
    const double expected = law[x] * static_cast<double>(n);
    if (expected == 0 && count > 0) return INFINITY;
    if (expected >= 10)
      add(count, expected);
    else
      rare += expected, rare_count += count;
  }
  if (rare > 0) add(rare_count, rare);
  const double freedom = n_kinds - 1;
  if (freedom < 1) return 0;
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(g / freedom) - (1 - spread)) / std::sqrt(spread);
}
inline constexpr double kMostDeviation = 5.2;  // one in ten million

inline double distance(std::span<const int64_t> counts, std::span<const double> law) {
  int64_t n = 0;
  for (const int64_t c : counts) n += c;
  double sum = 0;
  for (size_t x = 0; x < law.size(); ++x)
    sum += std::abs(static_cast<double>(counts[x]) / static_cast<double>(n) - law[x]);
  return sum / 2;
}

// Counts of n direct draws from a law.
inline std::vector<int64_t> direct_counts(std::span<const double> law, int64_t n, std::mt19937_64& random) {
  std::vector<int64_t> out(law.size());
  double left = 1;
  for (size_t x = 0; x < law.size() && n > 0; left -= law[x], ++x) {
    if (law[x] <= 0) continue;
    const double part = std::clamp(law[x] / left, 0.0, 1.0);
    n -= out[x] = part >= 1 ? n : std::binomial_distribution<int64_t>(n, part)(random);
  }
  return out;
}

// The distance that one of a thousand direct draws of n tokens reaches: the largest of a thousand.
inline double distance_of_direct_draws(std::span<const double> law, int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  double most = 0;
  for (int32_t run = 0; run < 1000; ++run) most = std::max(most, distance(direct_counts(law, n, random), law));
  return most;
}

}  // namespace ibid::testing
