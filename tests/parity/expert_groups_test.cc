// The order of sums over experts (kernels/expert_groups.h): ranks that hold groups of their own give the same bits.
#include "kernels/expert_groups.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace ibid {
namespace {

TEST(ExpertGroups, AreEightNeighbourhoodsOfIndices) {
  for (const int32_t n : {1, 4, 8, 10, 60, 64, 128, 257}) {
    int before = 0;
    for (int32_t e = 0; e < n; ++e) {
      const int group = expert_group(e, n);
      EXPECT_GE(group, before);
      EXPECT_LT(group, kExpertGroups);
      before = group;
    }
    EXPECT_EQ(expert_group(0, n), 0);
    if (n >= kExpertGroups) {
      EXPECT_EQ(before, kExpertGroups - 1);
    }
  }
}

// Each rank adds the groups that it holds, and the ranks' sums are added as the rest of the tree.
TEST(ExpertGroups, GiveEachOfEightRanksASubtreeOfItsOwn) {
  constexpr size_t kWidth = 48;
  std::mt19937 random(1);
  std::normal_distribution<float> draw;
  size_t n_unlike_a_fold = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto n_experts = static_cast<int32_t>(8 * (1 + random() % 16));
    std::vector<std::vector<float>> outputs;
    std::vector<ExpertOutput> chosen;
    for (int32_t e = 0; e < n_experts; ++e) {
      if (random() % 4 != 0) continue;
      std::vector<float>& row = outputs.emplace_back(kWidth);
      for (float& x : row) x = draw(random);
      chosen.push_back({e, std::fabs(draw(random)), row.data()});
    }
    std::vector<float> whole(kWidth);
    reference::add_experts(whole, chosen, n_experts);
    for (const int ranks : {2, 4, 8}) {
      std::vector<std::vector<float>> sums;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<ExpertOutput> own;
        for (const ExpertOutput& of : chosen) {
          if (expert_group(of.expert, n_experts) * ranks / kExpertGroups == rank) own.push_back(of);
        }
        reference::add_experts(sums.emplace_back(kWidth), own, n_experts);
      }
      for (size_t step = 1; step < sums.size(); step *= 2) {
        for (size_t r = 0; r < sums.size(); r += 2 * step) {
          for (size_t c = 0; c < kWidth; ++c) sums[r][c] += sums[r + step][c];
        }
      }
      EXPECT_EQ(std::memcmp(sums[0].data(), whole.data(), kWidth * sizeof(float)), 0) << ranks << " ranks";
    }
    std::vector<float> fold(kWidth);
    for (const ExpertOutput& of : chosen) {
      for (size_t c = 0; c < kWidth; ++c) fold[c] = std::fma(of.weight, of.output[c], fold[c]);
    }
    n_unlike_a_fold += fold != whole;
  }
  EXPECT_GT(n_unlike_a_fold, 100u) << "the test would not see an order";
}

}  // namespace
}  // namespace ibid
