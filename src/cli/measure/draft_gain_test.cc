#include "cli/measure/draft_gain.h"

#include <gtest/gtest.h>

#include "cli/measure/draft_prompts.h"
#include "spec/gain.h"

namespace ibid::cli {
namespace {

// An answer of n tokens, and proposers that each propose k tokens after each of them, of which the first so many are
// right.
struct FakeProposer {
  size_t n_right;
  float likely;
  double cost;
};
DraftMeasures measures(size_t n, size_t k, std::vector<double> rows, const std::vector<FakeProposer>& proposers) {
  DraftMeasures out{.rows = std::move(rows)};
  DraftedText text;
  for (size_t i = 0; i < n; ++i) text.answer.push_back(TokenId{static_cast<int32_t>(i % 50)});
  for (const FakeProposer& g : proposers) {
    out.names.push_back(out.names.empty() ? "ngram" : "eagle");
    out.costs.push_back(g.cost);
    std::vector<DraftChain> drafts(n);
    for (size_t at = 1; at < n; ++at) {
      for (size_t i = 0; i < k; ++i) {
        const bool is_right = i < g.n_right && at + i < n;
        drafts[at - 1].tokens.push_back(is_right ? text.answer[at + i] : TokenId{99});
        drafts[at - 1].likely.push_back(g.likely);
      }
    }
    text.drafts.push_back(std::move(drafts));
  }
  out.texts.push_back(std::move(text));
  return out;
}
const std::vector<double> kFree = {1, 1, 1, 1, 1}, kCostly = {1, 2, 3, 4, 5}, kUsual = {1, 1.1, 1.3, 1.5, 1.7};

TEST(DraftGain, IsThatOfTheFormulaForWhatWasCounted) {
  // 120 tokens after the first, three drafts right of four: steps of four tokens.
  const DraftMeasures m = measures(121, 4, kUsual, {{.n_right = 3, .likely = 1, .cost = 0.05}});
  EXPECT_EQ(right_by_place(m, 0), (std::vector<double>{1, 1, 1, 0}));
  const DraftGain three = gain_of(m, 0, 3);
  EXPECT_DOUBLE_EQ(three.tokens, 4);
  EXPECT_DOUBLE_EQ(three.times, 4 / 1.5);  // the first one's drafts are in no sum: it takes next to no time
  EXPECT_LT(gain_of(m, 0, 4).times, three.times);
  EXPECT_EQ(best_gain(m, 0).k, 3);
}

TEST(DraftGain, NetworkDraftsCostAndAreUsedWhereTheLookupIsLessLikely) {
  const DraftMeasures m = measures(121, 4, kUsual, {{.n_right = 1, .likely = 0.5F, .cost = 0}, {3, 0.9F, 0.1}});
  const DraftGain both = gain_of(m, 1, 3);
  EXPECT_DOUBLE_EQ(both.tokens, 4);
  EXPECT_DOUBLE_EQ(both.times, speedup_of(4, 3 * 0.1, 1.5));
  EXPECT_DOUBLE_EQ(both.times, speedup(1, 3, 0.1, 1.5));
  // Where the look-up believes itself likelier the network is not asked, and costs nothing.
  const DraftMeasures sure = measures(121, 4, kUsual, {{.n_right = 1, .likely = 0.95F, .cost = 0}, {3, 0.9F, 0.1}});
  EXPECT_DOUBLE_EQ(gain_of(sure, 1, 3).times, gain_of(sure, 0, 3).times);
}

TEST(DraftGain, RowsThatDoNotPayAreNotVerified) {
  const DraftMeasures unlikely = measures(121, 4, kCostly, {{.n_right = 4, .likely = 0.6F, .cost = 0}});
  EXPECT_DOUBLE_EQ(gain_of(unlikely, 0, 4).times, 1);
  EXPECT_DOUBLE_EQ(gain_of(unlikely, 0, 4).verified, 0);
}

TEST(DraftReport, NamesTheBestModeOrNone) {
  const std::string best = draft_report(measures(121, 4, kUsual, {{1, 0.5F, 0}, {3, 0.9F, 0.02}}));
  EXPECT_NE(best.find("eagle: a draft costs 0.020 of a step; right at its first places: 1.00 1.00 1.00 0.00"),
            std::string::npos)
      << best;
  EXPECT_NE(best.find("best: --spec eagle --spec-k 3, 2.56 times"), std::string::npos) << best;
  // As costly as the model: the look-up alone is better.
  const std::string costly = draft_report(measures(121, 4, kUsual, {{1, 0.6F, 0}, {3, 0.9F, 1}}));
  EXPECT_NE(costly.find("best: --spec ngram --spec-k 1, 1.82 times"), std::string::npos) << costly;
  const std::string wrong = draft_report(measures(121, 4, kUsual, {{0, 0.6F, 0}, {0, 0.9F, 0.02}}));
  EXPECT_NE(wrong.find("none pays here: --spec off"), std::string::npos) << wrong;
  EXPECT_NE(draft_report(measures(121, 0, kFree, {{0, 0, 0}})).find("places: none"), std::string::npos);
}

TEST(DraftPrompts, HaveTheirPassagesBeforeThem) {
  const auto prompts = draft_prompts("# a remark\n== passage 1\nA text.\n== edit 1\nDo this.\n== chat\nHello\nyou\n");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].kind, "edit");
  EXPECT_EQ(prompts[0].text, "A text.\n\nDo this.\n");
  EXPECT_EQ(prompts[1].text, "Hello\nyou\n");
  const auto lines = draft_prompts("one\n\ntwo == 2");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].text, "two == 2");
  EXPECT_TRUE(draft_prompts("").empty());
  EXPECT_EQ(own_draft_prompts().size(), 5u);
}

TEST(DraftPrompts, PiecesAreSpreadOverAText) {
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
