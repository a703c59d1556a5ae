// Philox words for a whole vocabulary, once per instruction set. Integer arithmetic: the same words everywhere.
#pragma once

#include <cstdint>

namespace ibid::cpu {

struct NoiseTable {
  // out[4 * g .. 4 * g + 3] = Philox4x32-10 of counter (position, purpose, g, 0) for g in [0, n_groups).
  void (*fill)(uint32_t* out, int64_t n_groups, uint64_t seed, uint32_t position, uint32_t purpose);
};

}  // namespace ibid::cpu
