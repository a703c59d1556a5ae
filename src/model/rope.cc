#include "model/rope.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"

namespace ibid {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

double llama3_frequency(double frequency, const RopeConfig& c) {
  const double wavelength = kTwoPi / frequency;
  const double original = static_cast<double>(c.original_context);
  if (wavelength > original / c.low_freq_factor) return frequency / c.factor;
  if (wavelength < original / c.high_freq_factor) return frequency;
  const double keep = (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return (1.0 - keep) * frequency / c.factor + keep * frequency;
}

// The pair that turns `rotations` times within the original context.
double yarn_pair(double rotations, const RopeConfig& c) {
  const double dim = 2.0 * c.n_pairs;
  return dim * math::log(static_cast<double>(c.original_context) / (rotations * kTwoPi)) / (2.0 * math::log(c.base));
}

void scale_by_yarn(const RopeConfig& c, std::vector<double>& frequency) {
  double low = yarn_pair(c.beta_fast, c), high = yarn_pair(c.beta_slow, c);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, 2.0 * c.n_pairs - 1.0);
  if (low == high) high += 0.001;
  for (int i = 0; i < c.n_pairs; ++i) {
    const double scaled = std::clamp((i - low) / (high - low), 0.0, 1.0);
    double& f = frequency[static_cast<size_t>(i)];
    f = f / c.factor * scaled + f * (1.0 - scaled);
  }
}

double magnitude_of(const RopeConfig& c) {
  if (c.magnitude != 0) return c.magnitude;
  if (c.factor <= 1) return 1.0;
  if (c.scaling == RopeScaling::kYarn) return 0.1 * math::log(c.factor) + 1.0;
  if (c.scaling == RopeScaling::kLongrope) {
    return std::sqrt(1.0 + math::log(c.factor) / math::log(static_cast<double>(c.original_context)));
  }
  return 1.0;
}

}  // namespace

RopeTable make_rope_table(const RopeConfig& c, int64_t context_len) {
  RopeTable table;
  table.interleaved = c.interleaved;
  table.axes = c.axes;
  table.magnitude = static_cast<float>(magnitude_of(c));
  table.frequency.resize(static_cast<size_t>(c.n_pairs));
  for (int i = 0; i < c.n_pairs; ++i) {
    table.frequency[static_cast<size_t>(i)] = math::pow(c.base, -static_cast<double>(i) / c.n_pairs);
  }
  auto divide = [&table](const std::vector<double>& by) {
    for (size_t i = 0; i < by.size(); ++i) table.frequency[i] /= by[i];
  };
  switch (c.scaling) {
    case RopeScaling::kNone:
      divide(c.divisors);
      break;
    case RopeScaling::kLinear:
      for (double& f : table.frequency) f /= c.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& f : table.frequency) f = llama3_frequency(f, c);
      break;
    case RopeScaling::kYarn:
      scale_by_yarn(c, table.frequency);
      break;
    case RopeScaling::kLongrope:
      table.long_factors = context_len > c.original_context;
      divide(table.long_factors ? c.long_factors : c.short_factors);
      break;
  }
  for (int i = c.n_turning; c.n_turning > 0 && i < c.n_pairs; ++i) table.frequency[static_cast<size_t>(i)] = 0.0;
  return table;
}

}  // namespace ibid
