#include "sample/stage_order.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "sample/stage_table.h"

namespace ibid {

std::string_view stage_name(StageId id) { return stage(id).name; }

std::span<const StageId> stage_order() {
  static const std::vector<StageId> order = [] {
    std::vector<StageId> ids;
    for (size_t i = 0; i < stage_table().size(); ++i) ids.push_back(StageId{static_cast<uint8_t>(i)});
    return ids;
  }();
  return order;
}

bool works_on_row(StageId id) { return stage(id).change_row != nullptr; }

bool is_stage_order(std::span<const StageId> order) {
  if (order.size() != stage_table().size()) return false;
  std::array<bool, 256> seen{};
  for (const StageId id : order) {
    if (static_cast<size_t>(id) >= order.size() || std::exchange(seen[static_cast<size_t>(id)], true)) return false;
  }
  return std::ranges::is_partitioned(order, works_on_row) && order.back() == stage_order().back();
}

}  // namespace ibid
