#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "random_sampling.h"
#include "sample/parameter_rows.h"
#include "sample/philox.h"
#include "sample/sampling_digest.h"
#include "sample/stages.h"
#include "sample/testing/random_rows.h"
#include "sample/testing/stage_by_name.h"

namespace ibid {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<TokenId> ids(std::initializer_list<int32_t> list) {
  std::vector<TokenId> out;
  for (int32_t i : list) out.push_back(TokenId{i});
  return out;
}

// A request over a small row: sampler("top_k") reads as what it does.
struct Draws {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> prompt = ids({0}), answer = {}, ends = {};

  Result<TokenRecord> at(int32_t position, uint64_t seed = 7) const {
    auto sampler = Sampler::compile(params, static_cast<int32_t>(logits.size()), ends, seed);
    if (!sampler) return sampler.error();
    std::vector<TokenId> history = answer;
    history.resize(static_cast<size_t>(position) - prompt.size(), TokenId{0});
    SamplerState state = (*sampler)->initial_state();
    SamplerScratch scratch;
    return (*sampler)->sample(logits, {prompt, history}, state, scratch);
  }
  std::map<int32_t, int> frequencies(int n) const {
    std::map<int32_t, int> out;
    for (int i = 1; i <= n; ++i) ++out[raw(at(1 + (i % 64), static_cast<uint64_t>(i)).value().chosen.token)];
    return out;
  }
};

TEST(Sampler, TemperatureZeroTakesTheHighestAndTiesGoToTheLowerId) {
  Draws d{.logits = {1, 5, 5, 2}, .params = {.temperature = 0}};
  EXPECT_EQ(d.at(3).value().chosen.token, TokenId{1});
}

TEST(Sampler, FrequenciesFollowTheProcessedDistribution) {
  Draws d{.logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)}, .params = {}};
  auto f = d.frequencies(20000);
  double expected[] = {0.5, 0.3, 0.15, 0.05}, chi = 0;
  for (int i = 0; i < 4; ++i) {
    double e = expected[i] * 20000;
    chi += (f[i] - e) * (f[i] - e) / e;
  }
  EXPECT_LT(chi, 16.27);  // p = 0.001 at 3 degrees of freedom
}

TEST(Sampler, ADrawDependsOnSeedAndPositionOnly) {
  Draws d{.logits = {0, 0.1f, 0.2f, 0.3f, 0.4f}, .params = {}};
  Draws masked = d;
  masked.logits[4] = -kInf;
  std::set<int32_t> seen;
  for (int position = 1; position < 50; ++position) {
    TokenId free = d.at(position).value().chosen.token;
    EXPECT_EQ(free, d.at(position).value().chosen.token);
    // Removing a token that lost changes nothing: noise does not depend on the support.
    if (free != TokenId{4}) {
      EXPECT_EQ(free, masked.at(position).value().chosen.token);
    }
    seen.insert(raw(free));
  }
  EXPECT_GT(seen.size(), 3u);
}

TEST(Sampler, TopPKeepsTheSmallestPrefixThatReachesP) {
  std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.25f), std::log(0.125f)};
  auto support = [&](float p) {
    Draws d{.logits = logits, .params = {.top_p = p}};
    return d.at(1).value().support;
  };
  EXPECT_EQ(support(0.4f), 1);
  EXPECT_EQ(support(0.5f), 1);  // >= : a prefix that reaches p exactly is enough
  EXPECT_EQ(support(0.6f), 2);
  EXPECT_EQ(support(0.8f), 3);  // of equals the lower id stays
  EXPECT_EQ(support(0.99f), 4);
}

TEST(Sampler, TopKKeepsExactlyKWithTiesToTheLowerId) {
  Draws d{.logits = {1, 2, 2, 2, 0}, .params = {.top_k = 2}};
  auto f = d.frequencies(400);
  EXPECT_EQ(f[1] + f[2], 400);
}

TEST(Sampler, MinPIsRelativeToTheHighest) {
  Draws d{.logits = {0, std::log(0.5f), std::log(0.2f), std::log(0.05f)}, .params = {.min_p = 0.1f}};
  EXPECT_EQ(d.at(1).value().support, 3);
}

TEST(Sampler, TemperatureMovesTopPAndNotTopK) {
  std::vector<float> logits = {std::log(0.5f), std::log(0.25f), std::log(0.15f), std::log(0.1f)};
  auto support = [&](SamplingParams params, float temperature) {
    params.temperature = temperature;
    return Draws{.logits = logits, .params = params}.at(1).value().support;
  };
  for (float temperature : {0.3f, 1.0f, 3.0f}) EXPECT_EQ(support({.top_k = 2}, temperature), 2);
  EXPECT_EQ(support({.top_p = 0.7f}, 0.3f), 1);
  EXPECT_EQ(support({.top_p = 0.7f}, 1.0f), 2);
  EXPECT_EQ(support({.top_p = 0.7f}, 3.0f), 3);
}

TEST(Sampler, APermutedOrderGivesAnotherSupport) {
  // p = 0.4, 0.3, 0.2, 0.1. top_k before top_p: the two highest have 4/7 and 3/7 of what is left, so that 0.5 is
  // reached by the first alone. top_p before top_k: 0.5 of all is reached by two.
  std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  SamplingParams params{.top_k = 2, .top_p = 0.5f};
  std::vector<StageId> permuted(stage_order().begin(), stage_order().end());
  std::iter_swap(std::ranges::find(permuted, testing::stage_id("top_k")),
                 std::ranges::find(permuted, testing::stage_id("top_p")));
  auto support = [&](std::span<const StageId> order) {
    auto sampler = Sampler::compile(params, 4, {}, 7, order).value();
    SamplerState state = sampler->initial_state();
    SamplerScratch scratch;
    return sampler->sample(logits, {}, state, scratch).value().support;
  };
  EXPECT_EQ(support(stage_order()), 1);
  EXPECT_EQ(support(permuted), 2);
  EXPECT_NE(sampling_digest(spell_stages()), sampling_digest(spell_stages(permuted)));
}

TEST(Sampler, APermutedOrderOfThePenaltiesAndTheBiasesGivesAnotherToken) {
  SamplingParams params{.repetition_penalty = 2.0f, .logit_bias = {{TokenId{0}, -3.0f}}, .temperature = 0};
  std::vector<StageId> bias_first(stage_order().begin(), stage_order().end());
  std::iter_swap(std::ranges::find(bias_first, testing::stage_id("logit_bias")),
                 std::ranges::find(bias_first, testing::stage_id("repetition_penalty")));
  std::vector<float> logits = {4, 0};
  auto token = [&](std::span<const StageId> order) {
    auto sampler = Sampler::compile(params, 2, {}, 7, order).value();
    SamplerState state = sampler->initial_state();
    SamplerScratch scratch;
    auto prompt = ids({0});
    return sampler->sample(logits, {prompt, {}}, state, scratch).value().chosen.token;
  };
  EXPECT_EQ(token(stage_order()), TokenId{1});  // 4 / 2 - 3 < 0
  EXPECT_EQ(token(bias_first), TokenId{0});     // (4 - 3) / 2 > 0
}

TEST(StageOrder, HasEveryStageOnceTheRowsFirstAndTheDrawLast) {
  std::vector<StageId> order(stage_order().begin(), stage_order().end());
  EXPECT_TRUE(is_stage_order(order));
  std::set<std::string_view> names;
  for (StageId id : order) names.insert(stage_name(id));
  EXPECT_EQ(names.size(), order.size());
  std::vector<StageId> twice = order, late = order, short_one(order.begin(), order.end() - 1);
  twice[0] = twice[1];
  std::swap(late[0], late[late.size() - 2]);  // a penalty after truncation
  EXPECT_FALSE(is_stage_order(twice));
  EXPECT_FALSE(is_stage_order(late));
  EXPECT_FALSE(is_stage_order(short_one));
}

// Time of each token in the race for (seed, position), without any sampler.
double race_time(const std::vector<float>& logits, size_t token, uint64_t seed, int32_t position) {
  auto words = noise_words(seed, position, NoisePurpose::kDraw, static_cast<uint32_t>(token) / 4);
  return -std::log1p(-open_unit(words[token % 4])) / std::exp(static_cast<double>(logits[token]));
}

TEST(Sampler, AMaskActsBeforeTheOneDrawAndNothingIsDrawnTwice) {
  std::vector<float> logits = {0.3f, 1.2f, -0.5f, 0.9f, 0.1f};
  Draws masked{.logits = logits, .params = {}};
  masked.params.banned = ids({1, 3});
  int n_hit = 0;
  for (int32_t position = 1; position <= 500; ++position) {
    // A filter after the draw would draw again, with other noise; here the best of those that are left wins the one
    // race.
    size_t best = 0, free_best = 0;
    for (size_t t = 0; t < logits.size(); ++t) {
      double time = race_time(logits, t, 7, position);
      if (time < race_time(logits, free_best, 7, position)) free_best = t;
      if (t != 1 && t != 3 && time < race_time(logits, best, 7, position)) best = t;
    }
    TokenRecord s = masked.at(position).value();
    ASSERT_EQ(raw(s.chosen.token), static_cast<int32_t>(best)) << position;
    EXPECT_EQ(s.support, 3);
    n_hit += free_best == 1 || free_best == 3;
  }
  EXPECT_GT(n_hit, 200);  // so often the mask made a difference
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  std::vector<float> row = {2, -2, 3};
  SamplerScratch scratch;
  auto prompt = ids({0, 1});
  stages::repetition_penalty(row, {prompt, {}}, 2.0f, -1, scratch);
  EXPECT_EQ(row, (std::vector<float>{1, -4, 3}));
}

TEST(Sampler, PresenceAndFrequencyCountTheAnswerAlone) {
  std::vector<float> row = {0, 0, 0};
  SamplerScratch scratch;
  auto prompt = ids({0}), answer = ids({1, 1, 2});
  stages::presence_frequency_penalty(row, {prompt, answer}, 0.5f, 0.25f, scratch);
  EXPECT_EQ(row, (std::vector<float>{0, -1.0f, -0.75f}));
}

TEST(Sampler, NoRepeatNgramBansTheWordThatWouldRepeat) {
  // the cat sat on the cat -> with n = 3, "sat" would repeat "the cat sat".
  std::vector<float> row(5, 1.0f);
  SamplerScratch scratch;
  auto prompt = ids({0, 1, 2, 3, 0, 1});
  stages::no_repeat_ngram(row, {prompt, {}}, 3, scratch);
  EXPECT_EQ(row, (std::vector<float>{1, 1, -kInf, 1, 1}));
  // n = 1 bans every token seen.
  std::vector<float> all(5, 1.0f);
  stages::no_repeat_ngram(all, {prompt, {}}, 1, scratch);
  EXPECT_EQ(all, (std::vector<float>{-kInf, -kInf, -kInf, -kInf, 1}));
}

TEST(Sampler, EndOfGenerationWaitsForMinTokens) {
  Draws d{.logits = {0, 9}, .params = {.temperature = 0, .min_tokens = 2}};
  d.ends = ids({1});
  EXPECT_EQ(d.at(2).value().chosen.token, TokenId{0});
  EXPECT_EQ(d.at(3).value().chosen.token, TokenId{1});
}

TEST(Sampler, AnEmptySupportIsAnErrorOfThisRequest) {
  Draws d{.logits = {0, 1}, .params = {}};
  d.params.banned = ids({0, 1});
  EXPECT_FALSE(d.at(1).ok());
}

TEST(Sampler, LogProbabilitiesAreThoseOfTheModel) {
  Draws d{.logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)}, .params = {.temperature = 0, .logprobs = 2}};
  d.params.banned = ids({0});
  TokenRecord s = d.at(1).value();
  EXPECT_EQ(s.chosen.token, TokenId{1});
  EXPECT_NEAR(s.chosen.raw, std::log(0.3f), 1e-6);
  ASSERT_EQ(s.top.size(), 2u);
  EXPECT_EQ(s.top[0].token, TokenId{0});
  EXPECT_NEAR(s.top[0].raw, std::log(0.5f), 1e-6);
}

TEST(Sampler, NamedTokensAreReportedBestFirstWithTheChosenOne) {
  Draws d{.logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), -kInf},
          .params = {.temperature = 0, .logprobs = 4, .processed_logprobs = true}};
  d.params.logprob_tokens = ids({3, 2, 3});
  TokenRecord s = d.at(1).value();
  ASSERT_EQ(s.top.size(), 3u);
  const int32_t wanted[] = {0, 2, 3};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(s.top[i].token, TokenId{wanted[i]});
  EXPECT_NEAR(s.top[1].raw, std::log(0.2f / 0.9f), 1e-6);
  EXPECT_EQ(s.top[2].raw, -kInf);
  EXPECT_EQ(s.top[0].processed, s.chosen.processed);
  EXPECT_EQ(s.top[1].processed, -kInf) << "greedy leaves one token";
  d.params.logprobs = -1;
  EXPECT_TRUE(d.at(1).value().top.empty());
}

TEST(Sampler, MaskedAndCutTokensHaveNoProcessedProbability) {
  Draws d{.logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)},
          .params = {.temperature = 0.5f, .top_k = 2, .logprobs = 4, .processed_logprobs = true}};
  d.params.banned = ids({0});
  TokenRecord s = d.at(1).value();
  ASSERT_EQ(s.top.size(), 4u);
  // The squares of 1 and 2 are left, 0.09 and 0.04; 0 is masked, 3 is cut.
  const float expected[] = {-kInf, std::log(0.09f / 0.13f), std::log(0.04f / 0.13f), -kInf};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(s.top[i].token, TokenId{static_cast<int32_t>(i)});
    EXPECT_NEAR(s.top[i].raw, d.logits[i], 1e-6);
    if (expected[i] == -kInf) {
      EXPECT_EQ(s.top[i].processed, -kInf);
    } else {
      EXPECT_NEAR(s.top[i].processed, expected[i], 1e-6);
    }
    if (s.top[i].token == s.chosen.token) {
      EXPECT_EQ(s.top[i].processed, s.chosen.processed);
    }
  }
  // Greedy leaves one token, with all of the probability.
  d.params.temperature = 0;
  s = d.at(1).value();
  EXPECT_EQ(s.chosen.token, TokenId{1});
  EXPECT_EQ(s.chosen.processed, 0.0f);
  EXPECT_EQ(s.top[2].processed, -kInf);
}

TEST(Sampler, ProcessedProbabilitiesAreThoseOfWhatIsLeft) {
  std::mt19937 rng(21);
  SamplerScratch scratch;
  for (int i = 0; i < 300; ++i) {
    std::vector<float> row = testing::random_row(rng);
    if (row.size() > kMaxLogprobs) row.resize(kMaxLogprobs);
    SamplingParams params{.temperature = 0.3f + static_cast<float>(rng() % 20) / 10.0f,
                          .top_k = 1 + static_cast<int32_t>(rng() % 30),
                          .seed = rng(),
                          .logprobs = static_cast<int32_t>(row.size()),
                          .processed_logprobs = true};
    auto sampler = Sampler::compile(params, static_cast<int32_t>(row.size()), {}, params.seed).value();
    SamplerState state = sampler->initial_state();
    TokenRecord s = sampler->sample(row, {}, state, scratch).value();
    // top is the whole row by raw, so that the first top_k of those that are finite are what was drawn from.
    std::vector<double> scaled;
    double raw_total = 0, total = 0;
    for (const TokenLogprob& t : s.top) {
      double z =
          static_cast<double>(row[static_cast<size_t>(raw(t.token))] - row[static_cast<size_t>(raw(s.top[0].token))]);
      raw_total += std::exp(z);
      scaled.push_back(std::exp(z / static_cast<double>(params.temperature)));
      if (static_cast<int32_t>(scaled.size()) <= s.support) total += scaled.back();
    }
    for (size_t k = 0; k < s.top.size(); ++k) {
      double z = static_cast<double>(row[static_cast<size_t>(raw(s.top[k].token))] -
                                     row[static_cast<size_t>(raw(s.top[0].token))]);
      bool is_left = static_cast<int32_t>(k) < s.support;
      if (z == -static_cast<double>(kInf)) {
        EXPECT_EQ(s.top[k].raw, -kInf);
      } else {
        ASSERT_NEAR(s.top[k].raw, z - std::log(raw_total), 2e-5) << i;
      }
      if (is_left) {
        ASSERT_NEAR(s.top[k].processed, std::log(scaled[k] / total), 2e-5) << i;
      } else {
        ASSERT_EQ(s.top[k].processed, -kInf);
      }
      if (s.top[k].token == s.chosen.token) {
        EXPECT_TRUE(is_left);
        EXPECT_EQ(s.top[k].raw, s.chosen.raw);
        EXPECT_EQ(s.top[k].processed, s.chosen.processed);
      }
    }
  }
}

TEST(Sampler, NoProcessedProbabilityIsMoreThanOne) {
  // XTC leaves the last token alone: what is left of it by rounding must not exceed all.
  Draws d{.logits = {0, -3.3f, -1.1f, -2.7f},
          .params = {.xtc_probability = 1, .xtc_threshold = 0, .logprobs = 0, .processed_logprobs = true}};
  for (int i = 0; i < 200; ++i) {
    d.logits[1] = -3.0f - 0.01f * static_cast<float>(i);
    TokenRecord s = d.at(1).value();
    EXPECT_EQ(s.support, 1);
    EXPECT_LE(s.chosen.processed, 0.0f);
    EXPECT_NEAR(s.chosen.processed, 0.0f, 1e-6);
  }
}

// Whoever draws: what is no place of the row, or may not come, is an error of this draw.
TEST(Sampler, ARuleThatGivesWhatCannotComeFailsItsDraw) {
  struct Gives final : DrawRule {
    int32_t id = 0;
    TokenId draw(std::span<const Candidate>, double, uint64_t, int32_t) override { return TokenId{id}; }
  };
  const std::vector<float> logits = {0, 1, 2, 3};
  const SamplingParams params = {.banned = {TokenId{2}}, .mirostat = 2, .logprobs = 1, .processed_logprobs = true};
  const auto sampler = Sampler::compile(params, 4, {}, 1).value();
  SamplerScratch scratch;
  SamplerState state = sampler->initial_state();
  Gives rule;
  for (const int32_t id : {-1, 4, 2}) {
    rule.id = id;
    EXPECT_FALSE(sampler->sample(logits, {}, state, scratch, {}, &rule).ok()) << id;
    EXPECT_EQ(state.mirostat_mu, sampler->initial_state().mirostat_mu);
  }
  rule.id = 1;
  EXPECT_TRUE(sampler->sample(logits, {}, state, scratch, {}, &rule).ok());
}

// A mask of the row is the same as the list of what it allows, whatever the other parameters are.
TEST(Sampler, AMaskIsAListOfAllowedTokens) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const int32_t vocab_size = 1 + static_cast<int32_t>(random() % 100);
    std::vector<float> logits;
    for (int32_t v = 0; v < vocab_size; ++v) logits.push_back(static_cast<float>(random() % 1000) / 100.0f);
    SamplingParams params = testing::random_sampling(random, vocab_size);
    params.allowed.clear();
    params.logprobs = 0;
    std::vector<uint32_t> mask(static_cast<size_t>(vocab_size + 31) / 32);
    SamplingParams listed = params;
    for (int32_t v = 0; v < vocab_size; ++v) {
      if (random() % 3 == 0) continue;
      mask[static_cast<size_t>(v) / 32] |= uint32_t{1} << v % 32;
      listed.allowed.push_back(TokenId{v});
    }
    if (listed.allowed.empty()) continue;
    const std::vector<TokenId> prompt = ids({0}), answer(3, TokenId{0}), ends = ids({0});
    SamplerScratch scratch;
    const auto draw = [&](const SamplingParams& p, std::span<const uint32_t> m) {
      const auto sampler = Sampler::compile(p, vocab_size, ends, 7).value();
      SamplerState state = sampler->initial_state();
      return sampler->sample(logits, {prompt, answer}, state, scratch, m);
    };
    const Result<TokenRecord> by_mask = draw(params, mask), by_list = draw(listed, {});
    ASSERT_EQ(by_mask.ok(), by_list.ok()) << i;
    if (!by_mask) continue;
    EXPECT_EQ(by_mask->chosen.token, by_list->chosen.token) << i;
    EXPECT_EQ(by_mask->chosen.processed, by_list->chosen.processed) << i;
    EXPECT_EQ(by_mask->support, by_list->support) << i;
  }
}

TEST(Sampler, ParametersOutOfRangeAreNamed) {
  SamplingParams p;
  p.top_p = 0;
  EXPECT_EQ(validate(p, 10).error().where, "top_p");
  p = {};
  p.logit_bias = {{TokenId{10}, 1.0f}};
  EXPECT_EQ(validate(p, 10).error().where, "logit_bias");
}

// Both ends of each row's range are served, what lies beyond is not, and the sentence has the number as it was given.
TEST(SamplingParams, EachNumberIsHeldToTheRangeOfItsRow) {
  SamplingParams p;
  int n_numbers = 0;
  for_each_parameter_row(p, [&]<typename T>(std::string_view name, const T& value, const ParameterRange& range) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      ++n_numbers;
      T& member = const_cast<T&>(value);  // of p, which may be changed
      const T usual = member;
      const auto wrong = [&](T number) {
        member = number;
        const Status status = validate(p, 1 << 20);
        return status ? "" : status.error().where;
      };
      const T low = static_cast<T>(range.low), high = static_cast<T>(range.high);
      EXPECT_EQ(wrong(low), "") << name;
      EXPECT_EQ(wrong(high), "") << name;
      if constexpr (std::is_same_v<T, float>) {
        EXPECT_EQ(wrong(std::nextafter(low, -INFINITY)), name);
        EXPECT_EQ(wrong(std::nextafter(high, INFINITY)), name);
        EXPECT_EQ(wrong(NAN), name);
      } else {
        EXPECT_EQ(wrong(low - 1), name);
        if (high < std::numeric_limits<T>::max()) {
          EXPECT_EQ(wrong(high + 1), name);
        }
      }
      member = usual;
    }
  });
  EXPECT_GT(n_numbers, 20);
  p.repetition_penalty = 0.0001f;
  EXPECT_EQ(validate(p, 10).error().message, "repetition_penalty is 0.0001, but must be between 0.001 and 100");
}

TEST(Philox, EqualsThePublishedVectors) {
  // Random123's known answers: counter and key zero, and all ones.
  auto zero = noise_words(0, 0, NoisePurpose::kDraw, 0);
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

}  // namespace
}  // namespace ibid
