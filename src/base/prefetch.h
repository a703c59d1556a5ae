// Asks the processor for memory that a loop will need some turns later. A hint: wrong addresses do nothing.
#pragma once

#include <cstddef>

namespace ibid {

// All cache lines of an object, or its first n_bytes.
template <typename T>
void prefetch(const T& x, size_t n_bytes = sizeof(T)) {
  for (size_t at = 0; at < n_bytes; at += 64) __builtin_prefetch(reinterpret_cast<const char*>(&x) + at, 1);
}

}  // namespace ibid
