// Each stage that looks at the history, against a search by hand over random histories.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "sample/stages.h"
#include "sample/testing/random_rows.h"
#include "spelled_tokens.h"
#include "text/output/breaker_set.h"

namespace ibid {
namespace {

using testing::kMasked, testing::random_row, testing::random_tokens, testing::Row;

TEST(Stages, PenaltiesEqualCountingByHand) {
  std::mt19937 rng(3);
  SamplerScratch scratch;
  for (int i = 0; i < 300; ++i) {
    Row row = random_row(rng);
    auto v = static_cast<int>(row.size());
    auto prompt = random_tokens(rng, 40, v), answer = random_tokens(rng, 40, v);
    SampleHistory history{prompt, answer};
    auto last_n = static_cast<int32_t>(rng() % 50) - 1;
    float r = 0.5f + static_cast<float>(rng() % 100) / 50.0f, pres = 0.7f, freq = -0.3f;
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    size_t from = last_n < 0 || static_cast<size_t>(last_n) > all.size() ? 0 : all.size() - static_cast<size_t>(last_n);
    Row expected = row;
    for (int t = 0; t < v; ++t) {
      float& z = expected[static_cast<size_t>(t)];
      if (std::count(all.begin() + static_cast<long>(from), all.end(), TokenId{t}) > 0) z = z > 0 ? z / r : z * r;
      auto n = static_cast<float>(std::count(answer.begin(), answer.end(), TokenId{t}));
      if (n > 0) z -= n * freq + pres;
    }
    stages::repetition_penalty(row, history, r, last_n, scratch);
    stages::presence_frequency_penalty(row, history, pres, freq, scratch);
    ASSERT_EQ(row, expected);
  }
}

TEST(Stages, NoRepeatNgramAndBadWordsEqualSearchingByHand) {
  std::mt19937 rng(4);
  SamplerScratch scratch;
  for (int i = 0; i < 300; ++i) {
    int v = 4;
    auto prompt = random_tokens(rng, 12, v), answer = random_tokens(rng, 12, v);
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    auto n = 1 + static_cast<int32_t>(rng() % 4);
    Row row(static_cast<size_t>(v), 1.0f), expected = row;
    for (int t = 0; t < v; ++t) {
      std::vector<TokenId> next = all;
      next.push_back(TokenId{t});
      if (next.size() <= static_cast<size_t>(n)) continue;
      auto tail = next.end() - n;
      if (std::search(next.begin(), next.end() - 1, tail, next.end()) != next.end() - 1)
        expected[static_cast<size_t>(t)] = kMasked;
    }
    stages::no_repeat_ngram(row, {prompt, answer}, n, scratch);
    ASSERT_EQ(row, expected) << i;

    SamplingParams params;
    params.banned_sequences = {{TokenId{1}, TokenId{2}}, {TokenId{3}}};
    Row banned(static_cast<size_t>(v), 0.0f), wanted = banned;
    wanted[3] = kMasked;
    if (!all.empty() && all.back() == TokenId{1}) wanted[2] = kMasked;
    stages::ban_sequences(banned, {prompt, answer}, params);
    ASSERT_EQ(banned, wanted);
  }
}

// Tokens after the one in which the last breaker ends; found in the text, without looking at single tokens.
size_t n_unbroken(const std::vector<TokenId>& all, size_t window, const std::vector<std::string>& breakers,
                  const Tokenizer& tokenizer) {
  std::string text;
  std::vector<size_t> ends;  // of each token of the window, in bytes
  for (size_t i = all.size() - window; i < all.size(); ++i) {
    text += tokenizer.token_bytes(all[i], false);
    ends.push_back(text.size());
  }
  size_t begin = 0, end = 0;
  for (const std::string& breaker : breakers) {
    size_t at = text.rfind(breaker);
    if (at == std::string::npos || at + breaker.size() == 0) continue;
    if (end == 0 || at > begin || (at == begin && at + breaker.size() > end)) begin = at, end = at + breaker.size();
  }
  if (end == 0) return window;
  auto token = std::lower_bound(ends.begin(), ends.end(), end);  // the first that reaches the breaker's end
  return static_cast<size_t>(ends.end() - token) - 1;
}

TEST(Stages, DryPenaltyGrowsWithTheRepeatThatATokenWouldExtend) {
  std::mt19937 rng(5);
  SamplerScratch scratch;
  // They overlap, so that a breaker lies in one token, across two, or across three.
  const auto tokenizer =
      std::make_shared<const SpelledTokens>(std::vector<std::string>{"a", "b", "\n", "b\n", "x:", ": ", "", "a:\nb"});
  const std::vector<std::vector<std::string>> breakers = {{}, {"\n"}, {":", "\n"}, {": a"}, {"b\nb", ":\n", "\n:"}};
  int n_broken = 0;
  for (int i = 0; i < 2000; ++i) {
    int v = tokenizer->vocab_size();
    // Few kinds of tokens now and then, so that long repeats are seen too.
    int n_kinds = rng() % 2 ? 3 : v;
    auto prompt = random_tokens(rng, 20, n_kinds), answer = random_tokens(rng, 20, n_kinds);
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    SamplingParams params;
    params.dry_multiplier = 0.8f;
    params.dry_allowed_len = 1 + static_cast<int32_t>(rng() % 3);
    params.dry_last_n = rng() % 3 ? -1 : static_cast<int32_t>(rng() % 20);
    const std::vector<std::string>& texts = breakers[rng() % breakers.size()];
    if (!texts.empty()) params.dry_breakers = BreakerSet::compile(texts, tokenizer).value();
    size_t window = params.dry_last_n < 0 ? all.size() : std::min(all.size(), static_cast<size_t>(params.dry_last_n));
    size_t free = n_unbroken(all, window, texts, *tokenizer);
    n_broken += free < window;
    Row row(static_cast<size_t>(v), 0.0f), expected = row;
    std::vector<int> longest(static_cast<size_t>(v), 0);
    // An earlier occurrence ends at k, its next token is all[k + 1].
    for (size_t k = all.size() - window; k + 1 < all.size(); ++k) {
      size_t len = 0;
      while (len <= k - (all.size() - window) && len < free && all[k - len] == all[all.size() - 1 - len]) ++len;
      int& best = longest[static_cast<size_t>(raw(all[k + 1]))];
      best = std::max(best, static_cast<int>(len));
    }
    for (size_t t = 0; t < longest.size(); ++t) {
      if (longest[t] >= params.dry_allowed_len) {
        expected[t] -= static_cast<float>(0.8f * std::pow(1.75, longest[t] - params.dry_allowed_len));
      }
    }
    stages::dry_penalty(row, {prompt, answer}, params, scratch);
    for (size_t t = 0; t < row.size(); ++t) ASSERT_NEAR(row[t], expected[t], 1e-4 * (1 + std::fabs(expected[t]))) << i;
  }
  EXPECT_GT(n_broken, 500);
}

}  // namespace
}  // namespace ibid
