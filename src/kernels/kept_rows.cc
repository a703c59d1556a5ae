#include "kernels/kept_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace ibid {

void choose_rows(std::span<const float> scores, int32_t first, std::span<int32_t> order, std::span<int32_t> out) {
  CHECK(order.size() == scores.size() && out.size() <= order.size());
  std::iota(order.begin(), order.end(), 0);
  const auto is_before = [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    const bool has_x = !std::isnan(x), has_y = !std::isnan(y);
    if (has_x != has_y) return has_x;
    return has_x && x != y ? x > y : a < b;
  };
  const auto n = static_cast<std::ptrdiff_t>(out.size());
  if (n < std::ssize(order)) std::nth_element(order.begin(), order.begin() + n, order.end(), is_before);
  std::sort(order.begin(), order.begin() + n);
  for (size_t i = 0; i < out.size(); ++i) out[i] = first + order[i];
}

}  // namespace ibid
