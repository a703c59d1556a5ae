#include "cli/measure/machine_limits.h"

#include <gtest/gtest.h>

namespace ibid::cli {
namespace {

TEST(MachineLimits, EachTableButBaselineHasARateOfEachUnit) {
  ThreadTeam team(2);
  for (const Isa isa : supported_isas()) {
    const MachineLimits limits = measure_peaks(team, isa, 1);
    for (const double rate : {limits.int8_macs_per_s, limits.bf16_macs_per_s, limits.fp32_macs_per_s}) {
      EXPECT_EQ(rate > 0, isa != Isa::kBaseline) << isa_name(isa);
      EXPECT_LT(rate, 2 * 64 * 4 * 10e9) << isa_name(isa) << " steps of 64 by two threads, four a cycle of 10 GHz";
    }
  }
}

TEST(MachineLimits, Bf16WithoutAUnitHasTheRateOfFloats) {
  ThreadTeam team(1);
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::kAvx512Bf16) continue;
    const MachineLimits limits = measure_peaks(team, isa, 1);
    EXPECT_EQ(limits.bf16_macs_per_s, limits.fp32_macs_per_s) << isa_name(isa);
  }
}

}  // namespace
}  // namespace ibid::cli
