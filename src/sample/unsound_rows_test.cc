// Rows that are none: NaN and infinity, from the model or made by a request's own stages.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sample/sampler.h"

namespace ibid {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kHuge = 3e38f;

Result<TokenRecord> draw(const std::vector<float>& row, SamplingParams params) {
  params.logprobs = static_cast<int32_t>(row.size());
  params.processed_logprobs = true;
  const auto sampler = Sampler::compile(params, static_cast<int32_t>(row.size()), {}, 1).value();
  SamplerState state = sampler->initial_state();
  SamplerScratch scratch;
  const std::vector<TokenId> prompt = {TokenId{0}};
  return sampler->sample(row, {prompt, {}}, state, scratch);
}

void expect_numbers(const TokenRecord& s) {
  EXPECT_FALSE(std::isnan(s.chosen.raw) || std::isnan(s.chosen.processed));
  for (const TokenLogprob& t : s.top) EXPECT_FALSE(std::isnan(t.raw) || std::isnan(t.processed));
}

TEST(UnsoundRows, AreErrorsOfTheRequestWhateverItAsks) {
  const std::vector<SamplingParams> kinds = {{},
                                             {.temperature = 0},
                                             {.repetition_penalty = 1.2f},
                                             {.top_k = 2},
                                             {.top_p = 0.5f},
                                             {.typical_p = 0.5f},
                                             {.min_p = 1},
                                             {.top_n_sigma = 1},
                                             {.xtc_probability = 1},
                                             {.mirostat = 1},
                                             {.mirostat = 2},
                                             {.dynatemp_range = 0.5f}};
  for (const float bad : {kInf, kNan}) {
    for (const SamplingParams& params : kinds) {
      const Result<TokenRecord> s = draw({1, bad, 0, -kInf}, params);
      ASSERT_FALSE(s.ok());
      EXPECT_EQ(s.error().kind, ErrorKind::kUnavailable);
    }
  }
}

TEST(UnsoundRows, OfAPromptAreErrorsToo) {
  SamplerScratch scratch;
  for (const std::vector<float>& row : {std::vector<float>{1, kInf}, {kNan, 1}, {-kInf, -kInf}}) {
    EXPECT_FALSE(score_row(row, TokenId{0}, 1, scratch).ok());
  }
  const Result<TokenRecord> masked = score_row(std::vector<float>{1, -kInf}, TokenId{1}, 2, scratch);
  ASSERT_TRUE(masked.ok());
  EXPECT_EQ(masked->chosen.raw, -kInf);
  expect_numbers(*masked);
}

TEST(UnsoundRows, AreNotMadeBySoundOnesOfTheLargestFloats) {
  const std::vector<SamplingParams> kinds = {{},
                                             {.temperature = 0.001f},
                                             {.repetition_penalty = 0.001f, .temperature = 0},
                                             {.repetition_penalty = 0.001f},
                                             {.top_p = 0.9f},
                                             {.typical_p = 0.5f},
                                             {.top_n_sigma = 1},
                                             {.mirostat = 1},
                                             {.mirostat = 2},
                                             {.dynatemp_range = 0.5f}};
  for (const std::vector<float>& row :
       {std::vector<float>{kHuge, -kHuge, 0}, {kHuge, kHuge, -kInf}, {-kHuge, -kHuge}}) {
    for (const SamplingParams& params : kinds) {
      const Result<TokenRecord> s = draw(row, params);
      if (s) expect_numbers(*s);
    }
  }
  EXPECT_EQ(draw({kHuge, 0}, {.repetition_penalty = 0.001f}).error().kind, ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ibid
