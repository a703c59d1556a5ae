#include "cli/measure/plan_speed.h"

#include <gtest/gtest.h>

namespace ibid::cli {
namespace {

PredictedSpeed target(double two, double three, double five) { return {.one = 100, .rows = {two, three, five}}; }

// Rows S6 and S11: the formulas' results for measured costs.
TEST(SpeculationAdvice, StatesWhenItPaysAndWhenNot) {
  const std::string free = speculation_advice(target(1, 1, 1), 0.1, 4);
  EXPECT_NE(free.find("0.8 of the drafts right: 2.40 times as fast, 4 drafts"), std::string::npos) << free;
  EXPECT_NE(free.find("0.5 of the drafts right: 1.46 times as fast, 2 drafts"), std::string::npos) << free;
  const std::string as_costly = speculation_advice(target(1, 1, 1), 1, 4);
  EXPECT_NE(as_costly.find("never pays"), std::string::npos) << as_costly;
  const std::string rows_are_costly = speculation_advice(target(1.5, 2, 3), 0, 8);
  EXPECT_NE(rows_are_costly.find("0.5 of the drafts right: does not pay"), std::string::npos) << rows_are_costly;
  EXPECT_NE(rows_are_costly.find("it pays from 0.51 on"), std::string::npos) << rows_are_costly;
}

}  // namespace
}  // namespace ibid::cli
