// Formulas for the gain of speculation (Leviathan et al., 2023, section 3), for a chain of k drafts, each accepted with
// probability a, given those before it.
#pragma once

#include <cstdint>
#include <span>

namespace ibid {

// Expected tokens of a step: 1 + a + ... + a^k = (1 - a^(k + 1)) / (1 - a).
inline double expected_tokens(double a, int32_t k) {
  double sum = 1, power = 1;
  for (int32_t i = 0; i < k; ++i) sum += power *= a;
  return sum;
}

// The same for drafts with different probabilities: a[i] is that of the i-th, given those before it. 1 + a[0] + a[0]
// a[1] + ...
inline double expected_tokens(std::span<const double> a) {
  double sum = 1, product = 1;
  for (const double each : a) sum += product *= each;
  return sum;
}

// Speedup over decoding without drafts: a step yields `tokens`; `drafting` is the cost of its drafts and `v` that of
// its rows, both relative to a step of one row.
inline double speedup_of(double tokens, double drafting, double v) { return tokens / (v + drafting); }

// The same for such a chain: `c` is the cost of a drafted token and `v` that of a step of 1 + k rows. v = 1:
// verification is free, as in the paper.
inline double speedup(double a, int32_t k, double c, double v = 1) {
  return speedup_of(expected_tokens(a, k), k * c, v);
}

// Tokens per second, for a step of one row of `step` seconds and a drafted token of `draft` seconds.
inline double tokens_per_second(double a, int32_t k, double step, double draft, double v = 1) {
  return expected_tokens(a, k) / (v * step + k * draft);
}

}  // namespace ibid
