#include "model/alibi.h"

#include <bit>

#include "kernels/math.h"

namespace ibid {

std::vector<float> alibi_slopes(int64_t n_heads, float bias_max) {
  const auto P = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n_heads)));
  const double step = double{bias_max} / static_cast<double>(2 * P);
  std::vector<float> slopes;
  for (int64_t h = 0; h < n_heads; ++h) {
    const int64_t i = h < P ? 2 * (h + 1) : 2 * (h - P) + 1;
    slopes.push_back(static_cast<float>(math::pow(2.0, -step * static_cast<double>(i))));
  }
  return slopes;
}

}  // namespace ibid
