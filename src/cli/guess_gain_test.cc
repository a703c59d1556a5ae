#include "cli/guess_gain.h"

#include <gtest/gtest.h>

#include "cli/guess_prompts.h"
#include "spec/gain.h"

namespace ibid::cli {
namespace {

// An answer of n tokens, and proposers of which each says k tokens behind each of them, of which the first so many are
// right.
struct Guesser {
  size_t n_right;
  float likely;
  double cost;
};
GuessMeasures measures(size_t n, size_t k, std::vector<double> rows, const std::vector<Guesser>& guessers) {
  GuessMeasures out{.rows = std::move(rows)};
  GuessedText text;
  for (size_t i = 0; i < n; ++i) text.answer.push_back(TokenId{static_cast<int32_t>(i % 50)});
  for (const Guesser& g : guessers) {
    out.names.push_back(out.names.empty() ? "ngram" : "eagle");
    out.costs.push_back(g.cost);
    std::vector<Guess> guesses(n);
    for (size_t at = 1; at < n; ++at) {
      for (size_t i = 0; i < k; ++i) {
        const bool is_right = i < g.n_right && at + i < n;
        guesses[at - 1].tokens.push_back(is_right ? text.answer[at + i] : TokenId{99});
        guesses[at - 1].likely.push_back(g.likely);
      }
    }
    text.guesses.push_back(std::move(guesses));
  }
  out.texts.push_back(std::move(text));
  return out;
}
const std::vector<double> kFree = {1, 1, 1, 1, 1}, kDear = {1, 2, 3, 4, 5}, kUsual = {1, 1.1, 1.3, 1.5, 1.7};

TEST(GuessGain, IsThatOfTheFormulaForWhatWasCounted) {
  // 120 tokens behind the first, three guesses right of four: steps of four tokens.
  const GuessMeasures m = measures(121, 4, kUsual, {{.n_right = 3, .likely = 1, .cost = 0.05}});
  EXPECT_EQ(right_by_place(m, 0), (std::vector<double>{1, 1, 1, 0}));
  const GuessGain three = gain_of(m, 0, 3);
  EXPECT_DOUBLE_EQ(three.tokens, 4);
  EXPECT_DOUBLE_EQ(three.times, 4 / 1.5);  // the first one's guesses are in no sum: it takes next to no time
  EXPECT_LT(gain_of(m, 0, 4).times, three.times);
  EXPECT_EQ(best_gain(m, 0).k, 3);
}

TEST(GuessGain, ANetworksGuessesCostAndAreAskedForWhereNobodyKnowsBetter) {
  const GuessMeasures m = measures(121, 4, kUsual, {{.n_right = 1, .likely = 0.5F, .cost = 0}, {3, 0.9F, 0.1}});
  const GuessGain both = gain_of(m, 1, 3);
  EXPECT_DOUBLE_EQ(both.tokens, 4);
  EXPECT_DOUBLE_EQ(both.times, speedup_of(4, 3 * 0.1, 1.5));
  EXPECT_DOUBLE_EQ(both.times, speedup(1, 3, 0.1, 1.5));
  // Where the look-up believes itself likelier the network is not asked, and costs nothing.
  const GuessMeasures sure = measures(121, 4, kUsual, {{.n_right = 1, .likely = 0.95F, .cost = 0}, {3, 0.9F, 0.1}});
  EXPECT_DOUBLE_EQ(gain_of(sure, 1, 3).times, gain_of(sure, 0, 3).times);
}

TEST(GuessGain, RowsThatDoNotPayAreNotVerified) {
  const GuessMeasures unlikely = measures(121, 4, kDear, {{.n_right = 4, .likely = 0.6F, .cost = 0}});
  EXPECT_DOUBLE_EQ(gain_of(unlikely, 0, 4).times, 1);
  EXPECT_DOUBLE_EQ(gain_of(unlikely, 0, 4).verified, 0);
}

TEST(GuessReport, NamesTheBestModeOrNone) {
  const std::string best = guess_report(measures(121, 4, kUsual, {{1, 0.5F, 0}, {3, 0.9F, 0.02}}));
  EXPECT_NE(best.find("eagle: a guess costs 0.020 of a step; right at its first places: 1.00 1.00 1.00 0.00"),
            std::string::npos)
      << best;
  EXPECT_NE(best.find("best: --spec eagle --spec-k 3, 2.56 times"), std::string::npos) << best;
  // As dear as the model: the look-up alone is better.
  const std::string dear = guess_report(measures(121, 4, kUsual, {{1, 0.6F, 0}, {3, 0.9F, 1}}));
  EXPECT_NE(dear.find("best: --spec ngram --spec-k 1, 1.82 times"), std::string::npos) << dear;
  const std::string wrong = guess_report(measures(121, 4, kUsual, {{0, 0.6F, 0}, {0, 0.9F, 0.02}}));
  EXPECT_NE(wrong.find("none pays here: --spec off"), std::string::npos) << wrong;
  EXPECT_NE(guess_report(measures(121, 0, kFree, {{0, 0, 0}})).find("places: none"), std::string::npos);
}

TEST(GuessPrompts, HaveTheirPassagesBeforeThem) {
  const auto prompts = guess_prompts("# a remark\n== passage 1\nA text.\n== edit 1\nDo this.\n== chat\nHello\nyou\n");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].kind, "edit");
  EXPECT_EQ(prompts[0].text, "A text.\n\nDo this.\n");
  EXPECT_EQ(prompts[1].text, "Hello\nyou\n");
  const auto lines = guess_prompts("one\n\ntwo == 2");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].text, "two == 2");
  EXPECT_TRUE(guess_prompts("").empty());
  EXPECT_EQ(own_guess_prompts().size(), 5u);
}

TEST(GuessPrompts, PiecesAreSpreadOverAText) {
  std::vector<TokenId> text;
  for (int32_t i = 0; i < 100; ++i) text.push_back(TokenId{i});
  const auto pieces = pieces_of(text, 10, 4);
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[3].front(), TokenId{75});
  EXPECT_EQ(pieces[3].size(), 10u);
  EXPECT_EQ(pieces_of(text, 200, 4), (std::vector<std::vector<TokenId>>{text}));
}

}  // namespace
}  // namespace ibid::cli
