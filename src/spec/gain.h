// What speculation brings, as formulas (Leviathan et al., 2023, section 3): of a chain of k drafts of which each is
// taken over with probability a, given those before it.
#pragma once

#include <cstdint>
#include <span>

namespace ibid {

// Tokens of a step: 1 + a + ... + a^k = (1 - a^(k + 1)) / (1 - a).
inline double expected_tokens(double a, int32_t k) {
  double sum = 1, power = 1;
  for (int32_t i = 0; i < k; ++i) sum += power *= a;
  return sum;
}

// The same of drafts that differ: a[i] is that of the i-th, given those before it. 1 + a[0] + a[0] a[1] + ...
inline double expected_tokens(std::span<const double> a) {
  double sum = 1, product = 1;
  for (const double each : a) sum += product *= each;
  return sum;
}

// How many times as fast as without: of a step that says so many tokens, what its drafts cost and what its rows take,
// each as a part of a step of one row.
inline double speedup_of(double tokens, double drafting, double v) { return tokens / (v + drafting); }

// The same of such a chain: `c`, what a drafted token costs, and `v`, what a step of 1 + k rows takes. v = 1:
// verification is free, as the paper has it.
inline double speedup(double a, int32_t k, double c, double v = 1) {
  return speedup_of(expected_tokens(a, k), k * c, v);
}

// Tokens a second, where a step of one row takes `step` seconds and a drafted token `draft`.
inline double tokens_per_second(double a, int32_t k, double step, double draft, double v = 1) {
  return expected_tokens(a, k) / (v * step + k * draft);
}

}  // namespace ibid
