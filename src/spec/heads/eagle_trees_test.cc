// Trees of an EAGLE head: what they consist of, how they grow, and that rejection may verify them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "eagle_texts.h"
#include "spec/drawn/rejection.h"
#include "spec_counting.h"

namespace ibid {
namespace {

using testing::EagleTexts;

constexpr int32_t kVocab = EagleTexts::kVocab;

TEST(FixedTree, IsTheLikeliestOfItsSizeAndOneOfFewerIsItsBeginning) {
  const std::vector<DraftPlace> chain = fixed_tree(5, 1, 3, kMaxDrafts);
  ASSERT_EQ(chain.size(), 5u);
  for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(chain[static_cast<size_t>(i)].parent, i - 1);
  for (const int32_t branches : {2, 3, 8}) {
    for (const int32_t width : {1, 3}) {
      const std::vector<DraftPlace> all = fixed_tree(kMaxDrafts, branches, width, kMaxDrafts);
      ASSERT_EQ(all.size(), static_cast<size_t>(kMaxDrafts));
      std::map<int32_t, int32_t> n_children, n_after;  // of a place; of a depth
      for (size_t i = 0; i < all.size(); ++i) {
        const DraftPlace& p = all[i];
        ASSERT_LT(p.parent, static_cast<int32_t>(i));
        ASSERT_EQ(p.rank, n_children[p.parent]++) << "siblings in their order";
        ASSERT_LT(p.rank, branches);
        ASSERT_EQ(p.depth, p.parent < 0 ? 1 : all[static_cast<size_t>(p.parent)].depth + 1);
        if (p.rank == 0 && p.parent >= 0) {
          ASSERT_LE(++n_after[p.depth], width);
        }
      }
      for (const int32_t n : {1, 2, 7, 30}) {
        const std::vector<DraftPlace> some = fixed_tree(n, branches, width, kMaxDrafts);
        ASSERT_EQ(some.size(), static_cast<size_t>(n));
        for (size_t i = 0; i < some.size(); ++i)
          ASSERT_TRUE(some[i].parent == all[i].parent && some[i].rank == all[i].rank);
      }
    }
  }
  // .6, .36, .216, then the second for the first place with .15 before .13.
  const std::vector<DraftPlace> four = fixed_tree(4, 2, 3, kMaxDrafts);
  EXPECT_EQ(four[2].parent, 1);
  EXPECT_TRUE(four[3].parent == -1 && four[3].rank == 1);
  // Of two levels, with three for a place: three, and three after each, however many are asked for.
  const std::vector<DraftPlace> flat = fixed_tree(kMaxDrafts, 3, 3, 2);
  EXPECT_EQ(flat.size(), 3u + 9u);
  EXPECT_TRUE(std::ranges::all_of(flat, [](const DraftPlace& p) { return p.depth <= 2; }));
}

// Time passes with each look.
class Ticking final : public Clock {
 public:
  double now() const override { return now_ += 1e-4; }

 private:
  mutable double now_ = 0;
};

class EagleTrees : public ::testing::TestWithParam<bool> {
 protected:
  void start(bool always) {
    const EagleOptions options = {.vocab_size = kVocab, .always = always, .branches = 3};
    texts_ = std::make_unique<EagleTexts>(GetParam() ? EagleTexts::Kind::kEagle3 : EagleTexts::Kind::kEagle1, 2, 0,
                                          options, clock_);
  }
  Drafts drafted(std::span<const TokenId> text, int32_t n) {
    Drafts drafts;
    texts_->proposer->begin_step({.n_decodes = 1, .step = 1, .row = 0.01});
    texts_->proposer->propose({.sequence = 1,
                               .prompt = text.first(4),
                               .answer = text.subspan(4),
                               .max_drafts = n,
                               .sampler = texts_->greedy.get()},
                              drafts);
    return drafts;
  }
  static std::vector<TokenId> way_to(const Drafts& drafts, int32_t draft) {
    std::vector<TokenId> out;
    for (int32_t i = draft; i >= 0; i = drafts.parents[static_cast<size_t>(i)])
      out.insert(out.begin(), drafts.tokens[static_cast<size_t>(i)]);
    return out;
  }
  static std::vector<int32_t> children(const Drafts& drafts, int32_t parent) {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < drafts.size(); ++i) {
      if (drafts.parents[static_cast<size_t>(i)] == parent) out.push_back(i);
    }
    return out;
  }
  // Checks that the drafts after each node are among the head's best three after that path alone; for a fixed tree, in
  // order.
  void expect_best(std::span<const TokenId> text, const Drafts& drafts, bool is_fixed) {
    for (int32_t parent = -1; parent < drafts.size(); ++parent) {
      const std::vector<int32_t> following = children(drafts, parent);
      if (following.empty()) continue;
      std::vector<float> row = texts_->row_after(text, way_to(drafts, parent));
      std::vector<TokenId> best;
      for (size_t i = 0; i < (is_fixed ? following.size() : 3); ++i) {
        const auto next = std::ranges::max_element(row);
        best.push_back(TokenId{static_cast<int32_t>(next - row.begin())});
        *next = -INFINITY;
      }
      for (size_t i = 0; i < following.size(); ++i) {
        const TokenId token = drafts.tokens[static_cast<size_t>(following[i])];
        ASSERT_TRUE(is_fixed ? token == best[i] : std::ranges::find(best, token) != best.end()) << following[i];
      }
    }
  }

  Ticking clock_;
  std::unique_ptr<EagleTexts> texts_;
};

// Whichever way the sequence takes, a sibling's among them, what is kept of it is as if nothing had been drafted.
TEST_P(EagleTrees, AreWhatTheHeadPredictsOnEachPath) {
  start(true);
  std::vector<TokenId> text = testing::some_tokens(20, kVocab, 4);
  texts_->tell(1, text, 0, 19);
  for (int turn = 0; turn < 14; ++turn) {
    const Drafts drafts = drafted(text, 13);
    ASSERT_EQ(drafts.size(), 13) << turn;
    ASSERT_GT(children(drafts, -1).size(), 1u);
    ASSERT_NO_FATAL_FAILURE(expect_best(text, drafts, true)) << turn;
    // The way to some draft is right, and then another token comes.
    const std::vector<TokenId> right = way_to(drafts, turn % 13);
    const auto n = static_cast<int32_t>(text.size());
    text.insert(text.end(), right.begin(), right.end());
    text.push_back(TokenId{turn});
    texts_->tell(1, text, n - 1, static_cast<int32_t>(right.size()) + 1, 5);
  }
}

// A sequence that goes the second way has second drafts, then the likeliest first; one that goes the first way a chain.
TEST_P(EagleTrees, GrowWhereRunnersUpAreRight) {
  for (const size_t goes : {1, 0}) {
    start(false);
    std::vector<TokenId> text = testing::some_tokens(20, kVocab, 5);
    texts_->tell(1, text, 0, 19);
    Drafts drafts;
    int32_t n_forks = 0;
    for (int turn = 0; turn < 40; ++turn) {
      drafts = drafted(text, 8);
      ASSERT_FALSE(drafts.empty());
      ASSERT_LE(drafts.size(), 8);
      n_forks += children(drafts, -1).size() > 1;
      ASSERT_TRUE(std::ranges::is_sorted(drafts.likely, std::greater<>()));
      if (turn % 10 == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_best(text, drafts, false));
      }
      std::vector<float> row = texts_->row_after(text, {});
      if (goes == 1) *std::ranges::max_element(row) = -INFINITY;
      text.push_back(TokenId{static_cast<int32_t>(std::ranges::max_element(row) - row.begin())});
      texts_->tell(1, text, static_cast<int32_t>(text.size()) - 2, 1);
    }
    if (goes == 1) {
      EXPECT_GT(n_forks, 3);
      // The second choice is the likeliest now, and comes before the first.
      std::vector<float> row = texts_->row_after(text, {});
      *std::ranges::max_element(row) = -INFINITY;
      EXPECT_EQ(drafted(text, 8).tokens[0], TokenId{static_cast<int32_t>(std::ranges::max_element(row) - row.begin())});
    } else {
      EXPECT_TRUE(drafts.is_chain(5));
    }
  }
}

// What rejection makes of drawn trees has the target's law: its first token and its second.
TEST_P(EagleTrees, DrawnForRejectionLeaveTheTargetsLaw) {
  start(true);
  const float temperature = GetParam() ? 2.5F : 12;  // the first kind's rows are sharper
  const auto sampler = Sampler::compile({.temperature = temperature}, kVocab, {}, 7).value();
  const std::vector<TokenId> text = testing::some_tokens(20, kVocab, 6);
  texts_->tell(1, text, 0, 19);
  // Close to the head's distribution, and spread over the vocabulary.
  std::map<TokenId, std::vector<float>> rows;
  const auto target = [&](std::span<const TokenId> following) -> const std::vector<float>& {
    std::vector<float>& row = rows[following.empty() ? TokenId::kNone : following[0]];
    if (!row.empty()) return row;
    row = texts_->row_after(text, following);
    const float most = *std::ranges::max_element(row);
    for (size_t v = 0; v < row.size(); ++v) {
      const uint64_t noise = ((v + 7 * following.size()) * 0x9e3779b97f4a7c15U) >> 40;
      row[v] = 0.7F * std::max(row[v], most - 4) + static_cast<float>(noise) / 1.2e7F;
    }
    return row;
  };
  std::vector<std::vector<int64_t>> counts(2, std::vector<int64_t>(kVocab));
  SamplerScratch scratch;
  std::vector<double> law;
  std::vector<Sibling> siblings;
  int64_t n_second_child = 0, n_drafted = 0;
  constexpr int64_t kDraws = 20'000;
  for (int64_t i = 0; i < kDraws; ++i) {
    Drafts drafts;
    const SamplerState begin = sampler->initial_state(static_cast<uint64_t>(i));
    texts_->proposer->propose({.sequence = 1,
                               .prompt = std::span(text).first(4),
                               .answer = std::span(text).subspan(4),
                               .max_drafts = 6,
                               .temperature = temperature,
                               .sampler = sampler.get(),
                               .state = begin,
                               .verifier = Verifier::kRejection},
                              drafts);
    n_drafted += drafts.size();
    std::vector<TokenId> said;
    SamplerState state = begin;
    bool is_after = false;  // a token that was not drafted
    for (int32_t draft = -1; said.size() < 2;) {
      std::vector<TokenId> answer(text.begin() + 4, text.end());
      answer.insert(answer.end(), said.begin(), said.end());
      siblings.clear();
      if (!is_after) list_siblings(drafts, draft, drafts.size(), siblings);
      VerifyRule verify(siblings, law);
      DrawRule* rule = siblings.empty() ? nullptr : &verify;
      const SampleHistory history{std::span(text).first(4), answer};
      said.push_back(sampler->sample(target(said), history, state, scratch, {}, rule)->chosen.token);
      ++counts[said.size() - 1][static_cast<size_t>(raw(said.back()))];
      if (!is_after) draft = drafts.child(draft, said.back(), drafts.size());
      is_after = draft < 0;
      n_second_child += !is_after && siblings.size() > 1 && siblings[0].token != said.back();
    }
  }
  EXPECT_GT(n_second_child, kDraws / 50);
  EXPECT_GT(n_drafted, 5 * kDraws);
  std::vector<std::vector<double>> laws(2, std::vector<double>(kVocab));
  const auto law_of = [&](std::span<const TokenId> said) {
    std::vector<float> p(kVocab);
    ProposeRule rule(p);
    SamplerState state = sampler->initial_state();
    EXPECT_TRUE(sampler->sample(target(said), {text, said}, state, scratch, {}, &rule).ok());
    return p;
  };
  const std::vector<float> first = law_of({});
  for (int32_t x = 0; x < kVocab; ++x) {
    const auto of_x = static_cast<double>(first[static_cast<size_t>(x)]);
    laws[0][static_cast<size_t>(x)] = of_x;
    if (of_x == 0) continue;
    const TokenId token{x};
    const std::vector<float> second = law_of({&token, 1});
    for (size_t y = 0; y < second.size(); ++y) laws[1][y] += of_x * static_cast<double>(second[y]);
  }
  for (const size_t place : {0, 1}) EXPECT_LT(testing::deviation(counts[place], laws[place]), testing::kMostDeviation);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EagleTrees, ::testing::Bool(),
                         [](const auto& param_info) { return param_info.param ? "eagle3" : "eagle1"; });

}  // namespace
}  // namespace ibid
