#include "cli/measure/step_profile.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace ibid::cli {
namespace {

OpRun product(double begin, double end) {
  return {
      "linear", {.macs = {3'000'000, 0, 1'000'000}, .bytes = 2'000'000, .n_outputs = 96, .n_inputs = 64}, begin, end};
}
constexpr MachineLimits kLimits = {.read_bytes_per_s = 4e9, .int8_macs_per_s = 6e9, .fp32_macs_per_s = 2e9};

// Two calls of 6 M int8, 2 M fp32 in 4 ms, which 1 + 1 ms could do; their bytes take 1 ms.
TEST(StepProfile, PrintsTimesRatesAndSharesOfTheBound) {
  StepProfile profile;
  profile.ran(product(0, 1));  // before any phase: not counted
  profile.begin("pp4");
  profile.ran(product(1, 2));  // forgotten: the clock was started again
  profile.begin("pp4");
  profile.ran(product(10.000, 10.003));
  profile.ran({"rope", {}, 10.003, 10.004});
  profile.ran(product(10.004, 10.005));
  profile.end(0.010);
  const std::string text = profile.text(kLimits);
  EXPECT_NE(text.find("pp4: 10.00 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("| linear 96 x 64 | 2 | 4.00 | 40.0 % | 2.0 | 1.0 | 50 % |"), std::string::npos) << text;
  EXPECT_NE(text.find("| rope | 1 | 1.00 | 10.0 % | - | - | - |"), std::string::npos) << text;
  EXPECT_NE(text.find("| the step's rest | | 5.00 | 50.0 % |"), std::string::npos) << text;
  EXPECT_LT(text.find("linear"), text.find("| rope")) << "the costliest first";
}

TEST(StepProfile, IsBoundByBytesWhereThoseTakeLongerOrNothingElseIsKnown) {
  StepProfile profile;
  profile.begin("tg1");
  profile.ran({"paged_attention", {.macs = {0, 0, 1'000}, .bytes = 4'000'000}, 1.0, 1.002});
  profile.ran({"linear", {.macs = {0, 1'000'000'000, 0}, .bytes = 2'000'000}, 2.0, 2.001});
  profile.ran({"rope", {.macs = {0, 1'000, 0}}, 3.0, 3.0});
  profile.end(0.003);
  const std::string text = profile.text(kLimits);
  EXPECT_NE(text.find("| paged_attention | 1 | 2.00 | 66.7 % | 0.0 | 2.0 | 50 % |"), std::string::npos) << text;
  EXPECT_NE(text.find("| linear | 1 | 1.00 | 33.3 % | 1000.0 | 2.0 | 50 % |"), std::string::npos)
      << "no limit of bf16, so by its bytes: " << text;
  EXPECT_NE(text.find("| rope | 1 | 0.00 | 0.0 % | - | - | - |"), std::string::npos) << text;
}

TEST(StepProfile, ATraceHasEachRunInItsPhasesThread) {
  StepProfile profile;
  profile.begin("pp4");
  profile.ran(product(10.000, 10.003));
  profile.begin("tg\"2");
  profile.ran({"rope", {}, 10.5, 10.5005});
  const auto json = parse_json(profile.trace());
  ASSERT_TRUE(json.ok()) << profile.trace();
  const auto& events = *json->find("traceEvents")->array();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(*events[1].find("name")->string(), "linear 96 x 64");
  EXPECT_EQ(*events[1].find("ph")->string(), "X");
  EXPECT_NEAR(events[1].find("dur")->number(), 3000, 1e-3);
  EXPECT_EQ(*events[1].find("args")->find("bytes")->integer(), 2'000'000);
  EXPECT_EQ(*events[2].find("args")->find("name")->string(), "tg\"2");
  EXPECT_NEAR(events[3].find("ts")->number(), 500'000, 1e-3);
  EXPECT_EQ(*events[3].find("tid")->integer(), 2);
}

}  // namespace
}  // namespace ibid::cli
