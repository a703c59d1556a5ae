// Numbers of eight bits (OCP 8-bit Floating Point 1.0; MX 1.0) as floats, exact, in integer arithmetic.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/half.h"

namespace ibid {

// What a byte of a tensor is.
enum class EightBits : uint8_t { kInteger, kE4M3, kE5M2, kE8M0 };

// Four bits of exponent, three of fraction: no infinity, one NaN of each sign, 448 the most.
inline float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24, exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & 0x7f) == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000);
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-9f));
  return std::bit_cast<float>(sign | (exponent + 120) << 23 | fraction << 20);
}
// The nearest, ties to even; what is larger than 448, or NaN, is 448.
inline uint8_t float_to_e4m3(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 24 & 0x80;
  bits &= 0x7fffffff;
  if (bits >= std::bit_cast<uint32_t>(448.0f)) return static_cast<uint8_t>(sign | 0x7e);
  // Below 2^-6, the least normal number, codes are multiples of 2^-9: those of 2^-9 fit the last bits of a float of
  // 2^14.
  if (bits < 121u << 23)
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0x1p14f) & 15));
  return static_cast<uint8_t>(sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)));
}
// The upper half of an F16.
inline float e5m2_to_float(uint8_t code) { return half_to_float(static_cast<uint16_t>(code << 8)); }
// 2^(code - 127), the least a subnormal; 255 is NaN.
inline float e8m0_to_float(uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

inline float to_float(EightBits type, uint8_t code) {
  switch (type) {
    case EightBits::kE4M3:
      return e4m3_to_float(code);
    case EightBits::kE5M2:
      return e5m2_to_float(code);
    case EightBits::kE8M0:
      return e8m0_to_float(code);
    case EightBits::kInteger:
      break;
  }
  return static_cast<float>(static_cast<int8_t>(code));
}

}  // namespace ibid
