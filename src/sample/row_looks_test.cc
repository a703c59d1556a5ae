// What draws ask of whole rows, on every instruction set, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "kernels/isa.h"
#include "kernels/math.h"
#include "kernels/row_math.h"

namespace ibid {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

void for_each_isa(const std::function<void()>& body) {
  const Isa before = selected_isa();
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    ASSERT_TRUE(select_isa(isa).ok());
    body();
  }
  ASSERT_TRUE(select_isa(before).ok());
}

std::vector<float> row_of(std::mt19937& random, size_t n) {
  std::normal_distribution<float> normal(0, 20);
  std::vector<float> row(n);
  for (float& x : row) x = random() % 5 == 0 ? -kInf : normal(random);
  return row;
}

TEST(RowLooks, SeeTheHighestThePossibleAndWhatIsUnsound) {
  for_each_isa([] {
    std::mt19937 random(1);
    for (size_t n = 0; n < 200; ++n) {
      std::vector<float> row = row_of(random, n);
      const RowLook sound = row_look(row);
      EXPECT_TRUE(sound.is_sound);
      EXPECT_EQ(sound.most, n == 0 ? -kInf : std::ranges::max(row));
      EXPECT_EQ(sound.n_possible, std::ranges::count_if(row, [](float x) { return x > -kInf; }));
      if (n == 0) continue;
      for (const float bad : {kInf, std::numeric_limits<float>::quiet_NaN()}) {
        const size_t at = random() % n;
        const float before = std::exchange(row[at], bad);
        EXPECT_FALSE(row_look(row).is_sound) << n << " at " << at;
        row[at] = before;
      }
    }
  });
}

TEST(RowLooks, ExponentialsAreThoseOfTheDifference) {
  for_each_isa([] {
    std::mt19937 random(2);
    for (const size_t n : {1, 15, 16, 17, 1000}) {
      std::vector<float> row = row_of(random, n), out(n);
      row[n / 2] = 90;
      row_exp_below(out, row, 90);
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(math::exp(row[i] - 90.0F))) << row[i];
    }
  });
}

TEST(RowLooks, BlocksHaveTheirHighest) {
  for_each_isa([] {
    std::mt19937 random(3);
    for (size_t n = 1; n < 200; ++n) {
      const std::vector<float> row = row_of(random, n);
      std::vector<float> most((n + kMaxBlock - 1) / kMaxBlock);
      row_block_max(most, row);
      for (size_t b = 0; b < most.size(); ++b) {
        const auto block = std::span(row).subspan(b * kMaxBlock, std::min(kMaxBlock, n - b * kMaxBlock));
        EXPECT_EQ(most[b], std::ranges::max(block));
      }
    }
  });
}

// Blocks that `look` passes over hold no token that is searched for, and it stops at the first that does. What is left
// at the end is never more than a block.
void check_blocks(size_t n, const std::function<size_t(size_t)>& look, const std::function<bool(size_t)>& is_wanted) {
  for (size_t from = 0; from < n; from += kLookBlock) {
    const size_t found = look(from);
    ASSERT_EQ(found % kLookBlock, 0U);
    ASSERT_GE(found, from);
    ASSERT_LE(found, n);
    for (size_t i = from; i < found; ++i) ASSERT_FALSE(is_wanted(i)) << i << " of " << n;
    if (found + kLookBlock > n) break;
    from = found;
  }
}

TEST(RowLooks, StopAtATokenThatIsHighEnough) {
  for_each_isa([] {
    std::mt19937 random(4);
    for (int round = 0; round < 200; ++round) {
      const std::vector<float> row = row_of(random, random() % 1000);
      const float least = row.empty() ? 0 : std::max(-200.0F, row[random() % row.size()]);
      check_blocks(
          row.size(), [&](size_t from) { return next_block_from(row, from, least); },
          [&](size_t i) { return row[i] >= least; });
    }
    std::vector<float> zeros(64, -1.0F);
    zeros[40] = -0.0F;
    zeros.resize(128, 1.0F);
    EXPECT_EQ(next_block_from(zeros, 0, 0.0F), 0U);
  });
}

// Also tokens that meet the bound to the last bit, with weights down to the smallest float.
TEST(RowLooks, MissNoTokenNearTheBound) {
  for_each_isa([] {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> unit(0, 1);
    for (int round = 0; round < 400; ++round) {
      const size_t n = random() % 700;
      std::vector<uint32_t> words(n);
      std::vector<float> weights(n);
      for (uint32_t& w : words) w = static_cast<uint32_t>(random()) >> (random() % 32);
      for (float& w : weights) w = static_cast<float>(std::pow(2.0, -150 * std::pow(unit(random), 3)));
      for (size_t i = 0; i < n; i += 7) weights[i] = 0;
      const auto time = [&](size_t i) { return (static_cast<double>(words[i]) + 0.5) * 0x1p-32; };
      double bound = std::pow(2.0, 60 * unit(random) - 40);
      if (n > 1 && round % 2 == 0) bound = time(1) / static_cast<double>(weights[1]);
      if (round % 50 == 0) bound = std::numeric_limits<double>::infinity();
      check_blocks(
          n, [&](size_t from) { return next_block_near(words, weights, from, bound); },
          [&](size_t i) { return weights[i] > 0 && time(i) <= bound * static_cast<double>(weights[i]); });
    }
    // And most others are passed over: none of the unlikely tokens meets a likely token's bound.
    const std::vector<uint32_t> words(6400, 1U << 31);
    EXPECT_EQ(next_block_near(words, std::vector<float>(6400, 1e-4F), 0, 1), 6400U);
  });
}

}  // namespace
}  // namespace ibid
