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

// To nearest, ties to even: by a sum with 1.5 * 2^23. What is no number becomes a bound, as a conversion of it would be
// undefined.
float nearest(float x, float least, float most) {
  x = (x + 12582912.0f) - 12582912.0f;
  x = x > least ? x : least;
  return x < most ? x : most;
}

// Magnitudes as whole numbers, which order as they do, NaN last: a loop that vectors run.
float largest_of(const float* x, int32_t n) {
  int32_t largest = 0;
  for (int32_t i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  return std::bit_cast<float>(largest);
}

constexpr int32_t kMostTurned = 64;
constexpr uint16_t kHalfNaN = 0x7e00;

template <typename Real>
void turn(Real* x, int32_t n, bool out) {
  const int32_t len = std::min(kMostTurned, n & -n);
  const int b = std::countr_zero(static_cast<uint32_t>(len));
  const Real by = std::ldexp(Real{1}, -(out ? (b + 1) / 2 : b / 2));
  for (Real* run = x; run < x + n; run += len) {
    for (int32_t distance = 1; distance < len; distance *= 2) {
      for (int32_t first = 0; first < len; first += 2 * distance) {
        for (Real *p = run + first, *q = p + distance; p < run + first + distance; ++p, ++q) {
          const Real sum = *p + *q;
          *q = *p - *q;
          *p = sum;
        }
      }
    }
    for (int32_t i = 0; i < len; ++i) run[i] *= by;
  }
}

}  // namespace

uint16_t quantise_head(const float* x, int32_t n, int8_t* codes) {
  const uint16_t half = half_above(largest_of(x, n) / static_cast<float>(kMostCode));
  const float scale = half_to_float(half);
  const float factor = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int32_t i = 0; i < n; ++i) {
    codes[i] = static_cast<int8_t>(nearest(x[i] * factor, -static_cast<float>(kMostCode), kMostCode));
  }
  return half;
}

uint16_t quantise_head_e4m3(const float* x, int32_t n, uint8_t* codes) {
  const uint16_t half = half_above(largest_of(x, n) / 448.0f);
  const float scale = half_to_float(half);
  const float factor = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int32_t i = 0; i < n; ++i) codes[i] = float_to_e4m3(x[i] * factor);
  return half;
}

uint16_t quantise_head(KvType type, const float* x, int32_t n, uint8_t* codes) {
  if (type == KvType::kF8) return quantise_head_e4m3(x, n, codes);
  return quantise_head(x, n, reinterpret_cast<int8_t*>(codes));
}

FourBits quantise_group(const float* x, int32_t n, uint8_t* codes) {
  float least = 0.0f, most = 0.0f, sum = 0.0f;
  for (int32_t i = 0; i < n; ++i) {
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
    sum += x[i] * 0.0f;  // NaN where one is not finite
  }
  FourBits out = {half_above((most - least) / 240.0f), 0};
  const float step = half_to_float(out.step);
  if (!(sum == 0.0f) || !(step <= 65504.0f)) out.step = kHalfNaN;
  const float factor = step > 0.0f ? 1.0f / step : 0.0f;
  const float zero = nearest(-least * factor, 0.0f, 240.0f);
  out.zero = static_cast<uint8_t>(zero);
  for (int32_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(nearest((x[i] * factor + zero) * 0.0625f, 0.0f, 15.0f));
  }
  return out;
}

void turn_in(float* x, int32_t n) { turn(x, n, false); }
void turn_out(float* x, int32_t n) { turn(x, n, true); }
void turn_out(double* x, int32_t n) { turn(x, n, true); }

}  // namespace ibid
