#include "model/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::some_tokens;

TEST(ScoreText, IsTheMeanOfEachNextTokensLogProbability) {
  LoadedModel m(testing::TinyModelOptions{.architecture = "llama"});
  const auto tokens = some_tokens(40, 96);
  const std::vector<float> logits = m.logits(tokens, {.kv_dtype = DType::kF32});
  double sum = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    double total = 0;
    for (size_t v = 0; v < 96; ++v) total += std::exp(static_cast<double>(logits[i * 96 + v]));
    sum += std::log(total) - static_cast<double>(logits[i * 96 + static_cast<size_t>(raw(tokens[i + 1]))]);
  }
  const auto score = score_text(*m.model, *m.stream, DType::kF32, tokens);
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->n_scored, 39);
  EXPECT_NEAR(score->mean_nll, sum / 39, 1e-5);
  EXPECT_NEAR(score->perplexity(), std::exp(sum / 39), 1e-3 * std::exp(sum / 39));
  EXPECT_GT(score->standard_error, 0);
}

TEST(ScoreText, GivesEveryRowOnceInOrderAndNormalised) {
  LoadedModel m(testing::tiny_model_file({}), {.step_tokens = 16, .max_rows = 8});
  const auto tokens = some_tokens(29, 96);
  int64_t next = 0;
  const auto score = score_text(*m.model, *m.stream, DType::kF16, tokens, [&](int64_t at, std::span<const float> row) {
    EXPECT_EQ(at, next++);
    double total = 0;
    for (float x : row) total += std::exp(static_cast<double>(x));
    EXPECT_NEAR(total, 1.0, 1e-5);
  });
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(next, 29);
  LoadedModel wide(testing::tiny_model_file({}));
  EXPECT_EQ(score->mean_nll, score_text(*wide.model, *wide.stream, DType::kF16, tokens)->mean_nll)
      << "steps do not matter";
}

TEST(ScoreText, RefusesTextsThatItCannotScore) {
  LoadedModel m(testing::tiny_model_file({.context_len = 64}), {.step_tokens = 16, .max_rows = 16});
  EXPECT_FALSE(score_text(*m.model, *m.stream, DType::kF16, some_tokens(1, 96)).ok());
  EXPECT_FALSE(score_text(*m.model, *m.stream, DType::kF16, some_tokens(65, 96)).ok());
  const std::vector<TokenId> outside = {TokenId{1}, TokenId{96}};
  EXPECT_FALSE(score_text(*m.model, *m.stream, DType::kF16, outside).ok());
  const std::vector<TokenId> negative = {TokenId{1}, TokenId::kNone};
  EXPECT_FALSE(score_text(*m.model, *m.stream, DType::kF16, negative).ok());
}

}  // namespace
}  // namespace ibid
