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
