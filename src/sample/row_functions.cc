#include "sample/row_functions.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"

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

void row_exp(std::span<float> out, std::span<const float> in) {
  CHECK(out.size() == in.size());
  cpu::table().row->exp(out.data(), in.data(), static_cast<int64_t>(in.size()));
}

void row_log_softmax(std::span<float> out, std::span<const float> logits) {
  CHECK(out.size() == logits.size());
  cpu::table().row->log_softmax(out.data(), logits.data(), static_cast<int64_t>(logits.size()));
}

}  // namespace ibid
