#include "text/output/breaker_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "spelled_tokens.h"

namespace ibid {
namespace {

// Tokens after the last breaker of a history that is spelled token by token.
size_t n_after(const std::vector<std::string>& history, const std::vector<std::string>& breakers, size_t n = 100,
               size_t n_older = 0) {
  const auto tokenizer = std::make_shared<const SpelledTokens>(history);  // token i is the history's i-th
  const auto set = BreakerSet::compile(breakers, tokenizer).value();
  std::vector<TokenId> ids;
  for (size_t i = 0; i < history.size(); ++i) ids.push_back(TokenId{static_cast<int32_t>(i)});
  const std::span<const TokenId> all(ids);
  return set->n_after_last(all.first(n_older), all.subspan(n_older), std::min(n, all.size()));
}

TEST(BreakerSet, FindsABreakerHoweverItIsCutIntoTokens) {
  EXPECT_EQ(n_after({"a", "\n", "b", "c"}, {"\n"}), 2u);
  EXPECT_EQ(n_after({"a", "x.\n\n", "b"}, {"\n"}), 1u);  // inside a token
  EXPECT_EQ(n_after({"a", "\n", "b", "c"}, {}), 4u);
  EXPECT_EQ(n_after({"xEN", "D", "b"}, {"END"}), 1u);          // over two
  EXPECT_EQ(n_after({"E", "", "N", "Dx", "b"}, {"END"}), 1u);  // over four, one of them without text
  EXPECT_EQ(n_after({"E", "N", "b"}, {"END"}), 3u);
  EXPECT_EQ(n_after({"a", "EN"}, {"END"}), 2u);  // not whole yet
  EXPECT_EQ(n_after({"a", ":"}, {":"}), 0u);
}

TEST(BreakerSet, CountsWhatBeginsLastAndOfThoseTheLongest) {
  EXPECT_EQ(n_after({"a:", "\n", "b", "c"}, {":", "\n"}), 2u);
  EXPECT_EQ(n_after({":", "\n", "b"}, {":", ":\nb"}), 0u);   // both begin at the colon
  EXPECT_EQ(n_after({":", "\n", "b"}, {":\nb", "\n"}), 1u);  // the newline begins later
}

TEST(BreakerSet, LooksAtNoMoreThanTheWindowAndAcrossPromptAndAnswer) {
  EXPECT_EQ(n_after({"\n", "b", "c"}, {"\n"}, 2), 2u);
  for (size_t n_older = 0; n_older <= 4; ++n_older) EXPECT_EQ(n_after({"E", "N", "D", "b"}, {"END"}, 100, n_older), 1u);
  EXPECT_EQ(n_after({"E", "ND", "b"}, {"END"}, 2), 2u);  // its beginning lies outside
}

// The last beginning of any text, then the longest; by trying all of them everywhere.
size_t n_after_by_hand(const std::vector<std::string>& history, const std::vector<std::string>& breakers) {
  std::string text;
  std::vector<size_t> ends;
  for (const std::string& token : history) ends.push_back((text += token).size());
  for (size_t begin = text.size(); begin-- > 0;) {
    size_t longest = 0;
    for (const std::string& breaker : breakers) {
      if (text.substr(begin).starts_with(breaker)) longest = std::max(longest, breaker.size());
    }
    if (longest == 0) continue;
    const auto last = std::lower_bound(ends.begin(), ends.end(), begin + longest);
    return static_cast<size_t>(ends.end() - last) - 1;
  }
  return history.size();
}

TEST(BreakerSet, FindsWhatASearchByHandFindsAlsoWhereTextsLieInEachOther) {
  std::mt19937 rng(12);
  const auto word = [&](size_t most) {
    std::string out(rng() % (most + 1), 'a');
    for (char& c : out) c = static_cast<char>('a' + rng() % 2);
    return out;
  };
  size_t n_found = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> history(1 + rng() % 12), breakers(rng() % 5);
    for (std::string& token : history) token = word(4);
    for (std::string& breaker : breakers) breaker = "b" + word(7);
    if (i % 2 == 0) {
      for (std::string& breaker : breakers) breaker = word(9) + "a";
    }
    const size_t wanted = n_after_by_hand(history, breakers);
    n_found += wanted < history.size();
    ASSERT_EQ(n_after(history, breakers), wanted) << i;
  }
  EXPECT_GT(n_found, 1000u);
}

TEST(BreakerSet, KnowsNoTokensBeyondTheVocabulary) {
  const auto set =
      BreakerSet::compile({"\n"}, std::make_shared<const SpelledTokens>(std::vector<std::string>{"\n"})).value();
  const std::vector<TokenId> ids = {TokenId{0}, TokenId{7}, TokenId::kNone};
  EXPECT_EQ(set->n_after_last(ids, {}, 3), 2u);
}

TEST(BreakerSet, RefusesTextsThatAreEmptyOrTooLong) {
  const auto tokenizer = std::make_shared<const SpelledTokens>(std::vector<std::string>{"a"});
  EXPECT_FALSE(BreakerSet::compile({"a", ""}, tokenizer).ok());
  EXPECT_FALSE(BreakerSet::compile({std::string(41, 'a')}, tokenizer).ok());
  EXPECT_TRUE(BreakerSet::compile({std::string(40, 'a')}, tokenizer).ok());
  EXPECT_FALSE(BreakerSet::compile(std::vector<std::string>(103, std::string(40, 'a')), tokenizer).ok());
}

}  // namespace
}  // namespace ibid
