// Biases, masks and temperature against the plainest way over random rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sample/stages.h"
#include "sample/testing/random_rows.h"

namespace ibid {
namespace {

using testing::kMasked, testing::random_row, testing::random_tokens, testing::Row;

TEST(Masks, ChangeTheirTokensAndNoOthers) {
  std::mt19937 rng(11);
  for (int i = 0; i < 300; ++i) {
    const Row row = random_row(rng);
    const auto v = static_cast<int>(row.size());
    SamplingParams params;
    for (const TokenId t : random_tokens(rng, 20, v))
      params.logit_bias.emplace_back(t, static_cast<float>(rng() % 200) / 10 - 10);
    const std::vector<TokenId> banned = random_tokens(rng, 20, v), allowed = random_tokens(rng, 50, v);
    std::vector<uint8_t> is_allowed(row.size(), 0);
    for (const TokenId t : allowed) is_allowed[static_cast<size_t>(raw(t))] = 1;
    Row biased = row, without = row, only = row;
    stages::logit_bias(biased, params);
    stages::ban_tokens(without, banned);
    stages::allow_only(only, is_allowed);
    for (int t = 0; t < v; ++t) {
      const auto at = static_cast<size_t>(t);
      float sum = row[at];  // a token that is named twice gets both
      for (const auto& [id, bias] : params.logit_bias) sum += id == TokenId{t} ? bias : 0.0f;
      ASSERT_EQ(biased[at], sum);
      ASSERT_EQ(without[at], std::ranges::count(banned, TokenId{t}) > 0 ? kMasked : row[at]);
      ASSERT_EQ(only[at], std::ranges::count(allowed, TokenId{t}) > 0 ? row[at] : kMasked);
    }
  }
}

TEST(Temperature, VariesWithTheNormalisedEntropyOfTheRow) {
  std::mt19937 rng(12);
  SamplerScratch scratch;
  for (int i = 0; i < 300; ++i) {
    const Row row = random_row(rng);
    SamplingParams params;
    params.temperature = 0.1f + static_cast<float>(rng() % 20) / 10;
    params.dynatemp_range = static_cast<float>(rng() % 20) / 10;
    params.dynatemp_exponent = static_cast<float>(rng() % 30) / 10;
    double most = -1e30, total = 0, entropy = 0, n = 0;
    for (const float z : row) most = std::max(most, static_cast<double>(z));
    for (const float z : row) total += std::exp(static_cast<double>(z) - most);
    for (const float z : row) {
      const double p = std::exp(static_cast<double>(z) - most) / total;
      if (z == kMasked) continue;
      entropy -= p * std::log(p);
      ++n;
    }
    double expected = static_cast<double>(params.temperature);
    if (params.dynatemp_range > 0 && n > 1) {
      const double low = std::max(0.0, expected - static_cast<double>(params.dynatemp_range));
      const double high = expected + static_cast<double>(params.dynatemp_range);
      expected = low + (high - low) * std::pow(entropy / std::log(n), static_cast<double>(params.dynatemp_exponent));
    }
    const float found = stages::effective_temperature(row, params, scratch);
    ASSERT_NEAR(found, expected, 1e-4) << i;
    Row scaled = row;
    stages::temperature(scaled, params, scratch);
    const float divisor = std::max(found, 1e-6f);
    for (size_t t = 0; t < row.size(); ++t) ASSERT_EQ(scaled[t], divisor == 1.0f ? row[t] : row[t] / divisor);
  }
}

}  // namespace
}  // namespace ibid
