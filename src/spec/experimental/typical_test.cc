// Typical acceptance: drafts are accepted according to the paper's formula, and nothing else changes a draw.
#include "spec/experimental/typical.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sample/sampler.h"
#include "spec_counting.h"

namespace ibid {
namespace {

using testing::kCountedVocab;
using testing::normal_logits;

// Row S16. Each token as the draft, over laws from nearly flat to sharp.
TEST(TypicalAcceptance, TakesWhatIsLikelyBesideTheEntropyAndElseDraws) {
  SamplerScratch scratch;
  int32_t n_by_entropy = 0, n_by_epsilon = 0, n_refused = 0;
  for (const float scale : {0.3F, 1.0F, 2.0F, 4.0F, 8.0F, 12.0F}) {
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 1}, SamplingParams{.temperature = 0.7F, .top_k = 20, .top_p = 0.95F}}) {
      const std::vector<float> row = normal_logits(7, scale);
      const auto sampler = Sampler::compile(params, kCountedVocab, {}, 5).value();
      std::vector<float> p(kCountedVocab);
      SamplerState state = sampler->initial_state();
      ProposeRule law(p);
      ASSERT_TRUE(sampler->sample(row, {}, state, scratch, {}, &law).ok());
      double entropy = 0;
      for (const float x : p) entropy -= x > 0 ? static_cast<double>(x) * std::log(static_cast<double>(x)) : 0;
      const double least = std::min(0.09, 0.3 * std::exp(-entropy));
      state = sampler->initial_state();
      const TokenId plain = sampler->sample(row, {}, state, scratch, {})->chosen.token;
      for (int32_t x = 0; x < kCountedVocab; ++x) {
        const Sibling offered[] = {{.token = TokenId{x}}};
        TypicalRule rule(offered);
        state = sampler->initial_state();
        const TokenId token = sampler->sample(row, {}, state, scratch, {}, &rule)->chosen.token;
        const bool is_typical = static_cast<double>(p[static_cast<size_t>(x)]) > least;
        ASSERT_EQ(token, is_typical ? TokenId{x} : plain) << scale << " " << x;
        ++(!is_typical ? n_refused : least < 0.09 ? n_by_entropy : n_by_epsilon);
      }
    }
  }
  EXPECT_GT(n_by_entropy, 8);
  EXPECT_GT(n_by_epsilon, 2);
  EXPECT_GT(n_refused, 200);
}

TEST(TypicalAcceptance, TakesTheFirstSiblingThatIsTypical) {
  std::vector<float> row(8, -20.0F);
  row[2] = 1, row[5] = 0.9F, row[6] = 0.8F;
  const auto sampler = Sampler::compile({.temperature = 1}, 8, {}, 5).value();
  SamplerScratch scratch;
  const auto drawn = [&](std::vector<int32_t> ids) {
    std::vector<Sibling> offered;
    for (const int32_t id : ids) offered.push_back({.token = TokenId{id}});
    TypicalRule rule(offered);
    SamplerState state = sampler->initial_state();
    return raw(sampler->sample(row, {}, state, scratch, {}, &rule)->chosen.token);
  };
  EXPECT_EQ(drawn({1, 6, 2}), 6);
  EXPECT_EQ(drawn({5, 6}), 5);
  EXPECT_EQ(drawn({0, 1, 3, 4}), drawn({}));
}

// As Rejection.GivesATokenOfASupportThatWeighsNothing.
TEST(TypicalAcceptance, GivesATokenOfASupportThatWeighsNothing) {
  const std::vector<Candidate> support = {{.weight = 0, .id = 5}, {.weight = 0, .id = 2}};
  const Sibling offered{TokenId{5}, {}};
  EXPECT_EQ(TypicalRule({&offered, 1}).draw(support, 0, 1, 7), TokenId{2});
}

}  // namespace
}  // namespace ibid
