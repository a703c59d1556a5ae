// The id of a stage by its name, for tests that build orders of their own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "sample/stage_order.h"

namespace ibid::testing {

inline StageId stage_id(std::string_view name) {
  const auto found = std::ranges::find(stage_order(), name, stage_name);
  EXPECT_NE(found, stage_order().end()) << name;
  return found == stage_order().end() ? stage_order().back() : *found;
}

}  // namespace ibid::testing
