// Ids that cannot be predicted, and how they are written.
#pragma once

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

namespace ibid {

// 64 bits of the system's own randomness.
inline uint64_t random_bits() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

// In 16 hexadecimal digits.
inline std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace ibid
