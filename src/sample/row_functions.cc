#include "sample/row_functions.h"

#include <algorithm>
#include <array>
#include <limits>

namespace ibid {

// Sixteen lanes, so that the compiler may keep them in vectors; a maximum has no order of sums to keep.
float row_max(std::span<const float> row) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> most;
  most.fill(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) most[j] = row[i + j] > most[j] ? row[i + j] : most[j];
  }
  for (; i < row.size(); ++i) most[0] = row[i] > most[0] ? row[i] : most[0];
  return *std::max_element(most.begin(), most.end());
}

bool row_is_sound(std::span<const float> row) {
  int n_unsound = 0;
  for (float z : row) n_unsound |= !(z < std::numeric_limits<float>::infinity());
  return n_unsound == 0;
}

int32_t row_argmax(std::span<const float> row) {
  float most = row_max(row);
  return static_cast<int32_t>(std::find(row.begin(), row.end(), most) - row.begin());
}

}  // namespace ibid
