// The order of tokens and the best of a row against the standard library's sort, over wide rows with many ties.
#include "sample/sort_candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace ibid {
namespace {

float some_logit(std::mt19937& rng, int kind) {
  const float z = std::normal_distribution<float>(0, 4)(rng);
  if (kind == 0) return z;
  if (kind == 1) return std::round(z) * 0.0f;  // 0 and -0
  if (rng() % 50 == 0) return -std::numeric_limits<float>::infinity();
  return std::round(z);
}

TEST(SortCandidates, EqualsTheStandardSortWhateverTheOrderBefore) {
  std::mt19937 rng(31);
  std::vector<Candidate> spare;
  for (int i = 0; i < 60; ++i) {
    std::vector<Candidate> given(1 + rng() % 6000);
    for (size_t k = 0; k < given.size(); ++k) {
      given[k] = {some_logit(rng, i % 3), static_cast<float>(k), static_cast<int32_t>(k * (1 + i % 7))};
    }
    if (i % 2 == 0) std::shuffle(given.begin(), given.end(), rng);
    std::vector<Candidate> expected = given;
    std::sort(expected.begin(), expected.end(), goes_before);
    sort_candidates(given, spare);
    for (size_t k = 0; k < given.size(); ++k) {
      ASSERT_EQ(given[k].id, expected[k].id) << i << " at " << k;
      ASSERT_EQ(given[k].weight, expected[k].weight);
    }
  }
}

TEST(SortCandidates, TheBestOfARowAreThoseOfTheWholeRowSorted) {
  std::mt19937 rng(32);
  SamplerScratch scratch;
  for (int i = 0; i < 40; ++i) {
    std::vector<float> row(2 + rng() % 5000);
    for (float& z : row) z = some_logit(rng, i % 3);
    row[0] = 1;
    if (i % 4 == 0) std::sort(row.begin(), row.end());
    const auto size = static_cast<int32_t>(row.size());
    const TokenRecord all = score_row(row, TokenId{0}, size, scratch).value();
    ASSERT_EQ(all.top.size(), row.size());
    for (size_t k = 1; k < all.top.size(); ++k) {
      const TokenLogprob &a = all.top[k - 1], &b = all.top[k];
      ASSERT_TRUE(a.raw > b.raw || (a.raw == b.raw && a.token < b.token));
    }
    for (const int32_t n : {1, 5, 32, 33, 100, size - 1}) {
      const TokenRecord some = score_row(row, TokenId{0}, n, scratch).value();
      ASSERT_EQ(some.top.size(), static_cast<size_t>(std::min(n, size)));
      for (size_t k = 0; k < some.top.size(); ++k) ASSERT_EQ(some.top[k].token, all.top[k].token) << n << " at " << k;
    }
  }
}

}  // namespace
}  // namespace ibid
