// Scalar conversions between float and the two 16-bit formats, in integer arithmetic: the same bits on every machine.
// Rounding is to nearest, ties to even; subnormals are kept; what overflows F16 becomes infinite.
#pragma once

#include <bit>
#include <cstdint>

namespace ibid {

inline float half_to_float(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  uint32_t exponent = (half >> 10) & 31;
  uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
  }
  uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

// A NaN stays one: quiet, with the upper bits of its payload.
inline uint16_t float_to_half(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more round to infinity
  if (magnitude < 0x38800000) {                                              // below 2^-14: subnormal
    // Adding 1/2 places the units of 2^-24 at the end of the fraction; the addition rounds.
    uint32_t rounded = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
    return static_cast<uint16_t>(sign | (rounded - std::bit_cast<uint32_t>(0.5f)));
  }
  uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

inline float bf16_to_float(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

inline uint16_t float_to_bf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 64);  // quiet
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// The scale of an MXFP4 block: 2^(exponent - 128), half of E8M0's value because kMXFP4Values are doubled. Exponents 0
// and 1 give subnormals; 255, NaN in the OCP specification, is read as 2^127 as ggml reads it.
inline float mxfp4_scale(uint8_t exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23);
}

// The scale of 16 weights of NVFP4: half the value of E4M3 without its sign, because the codes' values are doubled. The
// NaN 0x7f is zero, as ggml reads it; with a sign bit it is 240.
inline float nvfp4_scale(uint8_t e4m3) {
  const uint32_t exponent = (e4m3 >> 3) & 15u, fraction = e4m3 & 7u;
  if (e4m3 == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(fraction) * 0x1p-10f;
  return static_cast<float>(8 + fraction) * std::bit_cast<float>((exponent + 116) << 23);
}

}  // namespace ibid
