#include "spec/experimental/lookahead_proposer.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

namespace ibid {
namespace {

using Ids = std::vector<TokenId>;

Ids ids(std::initializer_list<int32_t> tokens) {
  Ids out;
  for (const int32_t t : tokens) out.push_back(TokenId{t});
  return out;
}

Ids proposed(LookAheadProposer& proposer, const Ids& prompt, const Ids& answer, int32_t max_drafts = 16,
             int64_t sequence = 1) {
  Drafts drafts;
  proposer.propose({.sequence = sequence, .prompt = prompt, .answer = answer, .max_drafts = max_drafts}, drafts);
  EXPECT_TRUE(drafts.is_chain(drafts.size()));
  return drafts.tokens;
}

TEST(LookAheadProposer, BeginsWithTheSequencesLastTokens) {
  LookAheadProposer proposer({.n_window = 3, .always = true});
  EXPECT_EQ(proposed(proposer, ids({1, 2, 3, 4, 5}), {}), ids({3, 4, 5}));
  EXPECT_EQ(proposed(proposer, ids({7}), {}, 16, 2), ids({7, 7, 7}));
}

TEST(LookAheadProposer, GoesOnWithWhatCameAfterRefusedDrafts) {
  LookAheadProposer proposer({.n_window = 3, .always = true});
  const Ids prompt = ids({1, 2, 3, 4, 5});
  ASSERT_EQ(proposed(proposer, prompt, {}), ids({3, 4, 5}));
  // The model drew 10, and after 3, 4 and 5, had they been right, 11, 12 and 13.
  const std::vector<RefusedDraft> refused = {{TokenId{3}, TokenId{11}}, {TokenId{4}, TokenId{12}}};
  proposer.refused(1, 6, refused);
  EXPECT_EQ(proposed(proposer, prompt, ids({10})), ids({11, 12, 10}));
  // A window after another sequence's end is none.
  proposer.refused(1, 7, refused);
  EXPECT_EQ(proposed(proposer, prompt, ids({10})), ids({4, 5, 10}));
}

TEST(LookAheadProposer, AsksThePoolHowATokenWentOn) {
  LookAheadProposer proposer({.n_window = 4, .always = true});
  const Ids prompt = ids({1, 2, 3});
  proposed(proposer, prompt, {});
  const std::vector<RefusedDraft> refused = {{TokenId{5}, TokenId{6}}, {TokenId{6}, TokenId{7}}};
  proposer.refused(1, 4, refused);
  // 5, 6, 7 by pairs, then the window's fourth token, which was not drawn yet.
  EXPECT_EQ(proposed(proposer, prompt, ids({5})), ids({6, 7, 3, 5}));
  EXPECT_EQ(proposed(proposer, ids({5, 5, 5}), {}, 2, 9), ids({5, 5})) << "another text's pairs";
  proposer.forget(1);
  EXPECT_EQ(proposed(proposer, prompt, ids({5}), 1), ids({1})) << "the same number, another text";
}

TEST(LookAheadProposer, StopsAfterAnEndAndWhereNothingIsLikely) {
  LookAheadProposer proposer({.n_window = 4, .end_of_generation = {TokenId{0}}, .always = true});
  EXPECT_EQ(proposed(proposer, ids({4, 3, 0, 5}), {}), ids({4, 3, 0}));
  LookAheadProposer shy({.n_window = 16});
  const size_t n = proposed(shy, ids({1, 2, 3, 4, 5, 6, 7, 8, 9}), {}).size();
  EXPECT_GT(n, 1U);
  EXPECT_LT(n, 6U) << "of chains of 28 in 100";
}

// A model that is a function, verified as the engine does: the steps that `n` tokens take.
int steps_of(const std::function<int32_t(const Ids&)>& next, LookAheadProposer& proposer, size_t n) {
  const Ids prompt = ids({1, 2, 3});
  Ids text = prompt;
  int n_steps = 0;
  while (text.size() < prompt.size() + n) {
    const Ids drafts = proposed(proposer, prompt, Ids(text.begin() + 3, text.end()));
    ++n_steps;
    size_t taken = 0;
    while (taken < drafts.size() && raw(drafts[taken]) == next(text)) text.push_back(drafts[taken++]);
    std::vector<RefusedDraft> refused;
    Ids as_if = text;
    for (size_t i = taken; i < drafts.size(); ++i) {
      as_if.push_back(drafts[i]);
      refused.push_back({drafts[i], TokenId{next(as_if)}});
    }
    text.push_back(TokenId{next(text)});
    if (!refused.empty()) proposer.refused(1, static_cast<int32_t>(text.size()), refused);
    // What was taken over and drawn is the model's.
    EXPECT_EQ(raw(text.back()), next(Ids(text.begin(), text.end() - 1)));
  }
  return n_steps;
}

TEST(LookAheadProposer, FindsByIterationWhatLooksLittleBack) {
  LookAheadProposer proposer({.n_window = 6, .always = true});
  // Each token depends on its place and the token before it halved three times: a wrong one is soon forgotten.
  const auto fading = [](const Ids& text) {
    return static_cast<int32_t>(100 * text.size()) + raw(text.back()) % 100 / 8;
  };
  EXPECT_LT(steps_of(fading, proposer, 120), 45);
  // One that only the whole sequence would show is not found.
  LookAheadProposer other({.n_window = 6, .always = true});
  const auto all = [](const Ids& text) {
    uint32_t hash = 7;
    for (const TokenId t : text) hash = (hash ^ static_cast<uint32_t>(raw(t))) * 16777619U;
    return static_cast<int32_t>(hash >> 12);
  };
  EXPECT_EQ(steps_of(all, other, 120), 120);
}

TEST(LookAheadProposer, FindsByPairsWhatTheLastTokenPredicts) {
  LookAheadProposer proposer({.n_window = 6, .always = true});
  const auto walk = [](const Ids& text) { return (raw(text.back()) * 5 + 3) % 64; };
  EXPECT_LT(steps_of(walk, proposer, 200), 80);
}

}  // namespace
}  // namespace ibid
