// How a product is cut into tasks for a team. Any cut gives the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace ibid::cpu {

// Every task takes `n_rows` rows by `n_tiles[j]` tiles of weight j, the last of each fewer.
struct Cut {
  int64_t n_rows;
  std::array<int64_t, ops::kMaxLinearWeights> n_tiles;
};

// Of T >= 1 rows by `n_tiles[j]` >= 1 tiles of each of up to kMaxLinearWeights weights. Tasks begin at multiples of
// eight rows, where x's chunks do, and of three tiles, so that register tiles stay whole.
Cut cut_product(int64_t T, std::span<const int64_t> n_tiles, int64_t n_threads);

}  // namespace ibid::cpu
