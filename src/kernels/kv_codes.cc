#include "kernels/kv_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/half.h"

namespace ibid {
namespace {

// The least half that is not below x, x >= 0: infinity above the largest, NaN of NaN.
uint16_t half_above(float x) {
  const uint16_t half = float_to_half(x);
  return half_to_float(half) < x ? static_cast<uint16_t>(half + 1) : half;
}

}  // namespace

uint16_t quantise_head(const float* x, int32_t n, int8_t* codes) {
  // Magnitudes as whole numbers, which order as they do, NaN last: a loop that vectors run.
  int32_t largest = 0;
  for (int32_t i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  const uint16_t half = half_above(std::bit_cast<float>(largest) / static_cast<float>(kMostCode));
  const float scale = half_to_float(half);
  const float factor = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int32_t i = 0; i < n; ++i) {
    // Rounded by a sum with 1.5 * 2^23; what is no number becomes a bound, as a conversion of it would be undefined.
    float code = (x[i] * factor + 12582912.0f) - 12582912.0f;
    code = code > -static_cast<float>(kMostCode) ? code : -static_cast<float>(kMostCode);
    code = code < static_cast<float>(kMostCode) ? code : static_cast<float>(kMostCode);
    codes[i] = static_cast<int8_t>(code);
  }
  return half;
}

}  // namespace ibid
