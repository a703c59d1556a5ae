// How the CPU's bodies spread independent rows over a stream's team. Waking a team costs microseconds; a row of a small
// model costs less, so little work stays on the caller's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/stream.h"

namespace ibid::cpu {

// Below this many elements of plain arithmetic (about 3 us) an op runs on one thread. An op with costlier elements
// passes a `weight`.
inline constexpr int64_t kSerialElements = 1 << 15;

// body(begin, end) over parts of [0, n_rows); row_len elements each. Parts depend on nothing that could change a bit:
// rows are independent.
template <typename Body>
void for_rows(Stream& s, int64_t n_rows, int64_t row_len, int weight, Body&& body) {
  const int64_t cost = n_rows * row_len * weight;
  const int64_t n_parts = std::min<int64_t>(n_rows, cost <= kSerialElements ? 1 : 4 * s.team().n_threads());
  if (n_parts <= 1 || s.team().n_threads() == 1) {
    if (n_rows > 0) body(0, n_rows);
    return;
  }
  s.team().parallel_for(n_parts,
                        [&](int64_t part, int) { body(n_rows * part / n_parts, n_rows * (part + 1) / n_parts); });
}

}  // namespace ibid::cpu
