#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ibid {
namespace {

RopeConfig plain(int n_pairs = 16) {
  RopeConfig rope;
  rope.n_pairs = n_pairs;
  return rope;
}

TEST(RopeTable, FrequenciesFallFromOneByTheBase) {
  const RopeTable table = make_rope_table(plain(), 128);
  for (int i = 0; i < 16; ++i) {
    EXPECT_NEAR(table.frequency[static_cast<size_t>(i)], std::pow(10000.0, -i / 16.0), 1e-15);
  }
  EXPECT_EQ(table.frequency[0], 1.0);
  EXPECT_EQ(table.magnitude, 1.0f);
}

TEST(RopeTable, LinearScalingDividesEveryFrequency) {
  RopeConfig rope = plain();
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 2.5;
  const RopeTable scaled = make_rope_table(rope, 128), unscaled = make_rope_table(plain(), 128);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(scaled.frequency[i], unscaled.frequency[i] / 2.5);
}

TEST(RopeTable, Llama3KeepsShortWavesDividesLongOnesAndBlendsBetween) {
  RopeConfig rope = plain(64);
  rope.base = 500000;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.original_context = 8192;
  const RopeTable scaled = make_rope_table(rope, 131072);
  rope.scaling = RopeScaling::kNone;
  const RopeTable unscaled = make_rope_table(rope, 131072);
  int kept = 0, divided = 0, blended = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double wavelength = 6.283185307179586 / unscaled.frequency[i],
                 share = scaled.frequency[i] / unscaled.frequency[i];
    if (wavelength < 2048) {
      EXPECT_EQ(share, 1.0);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_EQ(share, 0.125);
      ++divided;
    } else {
      EXPECT_GT(share, 0.125);
      EXPECT_LT(share, 1.0);
      ++blended;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(blended, 0);
}

TEST(RopeTable, YarnRaisesTheMagnitudeAndKeepsTheFastestPair) {
  RopeConfig rope = plain(32);
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 4;
  rope.original_context = 4096;
  const RopeTable table = make_rope_table(rope, 16384);
  EXPECT_NEAR(table.magnitude, 0.1 * std::log(4.0) + 1.0, 1e-6);
  EXPECT_EQ(table.frequency[0], 1.0);
  EXPECT_NEAR(table.frequency[31], std::pow(10000.0, -31 / 32.0) / 4, 1e-12);
  rope.magnitude = 1.5;
  EXPECT_EQ(make_rope_table(rope, 16384).magnitude, 1.5f) << "a file's own factor wins";
}

TEST(RopeTable, LongropeChoosesByTheConfiguredContextAlone) {
  RopeConfig rope = plain(2);
  rope.scaling = RopeScaling::kLongrope;
  rope.original_context = 4096;
  rope.factor = 32;
  rope.short_factors = {1.0, 2.0};
  rope.long_factors = {4.0, 8.0};
  const RopeTable at = make_rope_table(rope, 4096), above = make_rope_table(rope, 4097);
  EXPECT_FALSE(at.long_factors);
  EXPECT_TRUE(above.long_factors);
  EXPECT_EQ(at.frequency[0], 1.0);
  EXPECT_EQ(above.frequency[0], 0.25);
  EXPECT_NEAR(at.frequency[1] / above.frequency[1], 4.0, 1e-12);
  EXPECT_NEAR(at.magnitude, std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-6);
  EXPECT_EQ(at.magnitude, above.magnitude);
}

TEST(RopeTable, FrequencyFactorsOfAFileDivide) {
  RopeConfig rope = plain(2);
  rope.divisors = {1.0, 8.0};
  EXPECT_EQ(make_rope_table(rope, 128).frequency[1], make_rope_table(plain(2), 128).frequency[1] / 8);
}

}  // namespace
}  // namespace ibid
