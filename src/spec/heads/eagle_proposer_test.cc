// An EAGLE head's drafts as a proposer equal those of a single pass over the whole sequence, however its hidden states
// arrived, whatever was drafted before and accepted or not, and wherever its own memory began.
#include "spec/heads/eagle_proposer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "eagle_texts.h"

namespace ibid {
namespace {

using testing::EagleTexts;
using Kind = EagleTexts::Kind;

constexpr int32_t kMany = 5;

class EagleDrafts : public ::testing::TestWithParam<Kind> {
 protected:
  void start(int32_t n_texts, int32_t n_blocks = 0, int32_t most_running = EagleOptions().most_running) {
    const EagleOptions options = {.vocab_size = EagleTexts::kVocab, .always = true, .most_running = most_running};
    texts_ = std::make_unique<EagleTexts>(GetParam(), n_texts, n_blocks, options);
    proposer_ = texts_->proposer.get();
  }
  void SetUp() override { start(2); }
  void tell(int64_t sequence, std::span<const TokenId> text, int32_t first, int32_t n, int32_t row = 0) {
    texts_->tell(sequence, text, first, n, row);
  }
  std::vector<TokenId> drafted(int64_t sequence, std::span<const TokenId> text, int32_t n = kMany) {
    Drafts drafts;
    proposer_->propose({.sequence = sequence,
                        .prompt = text.first(4),
                        .answer = text.subspan(4),
                        .max_drafts = n,
                        .sampler = texts_->greedy.get()},
                       drafts);
    EXPECT_TRUE(drafts.is_chain(drafts.size()));
    return drafts.tokens;
  }
  // By the head alone, which has the pairs from `begin` on.
  std::vector<TokenId> expected(std::span<const TokenId> text, int32_t begin = 0, int32_t n = kMany) {
    std::vector<TokenId> out;
    for (int32_t i = 0; i < n; ++i) {
      const std::vector<float> row = texts_->row_after(text, out, begin);
      out.push_back(TokenId{static_cast<int32_t>(std::ranges::max_element(row) - row.begin())});
    }
    return out;
  }

  std::unique_ptr<EagleTexts> texts_;
  EagleProposer* proposer_ = nullptr;
};

TEST_P(EagleDrafts, AreWhatTheHeadPredictsFromTheWholeSequence) {
  const std::vector<TokenId> text = testing::some_tokens(120, 96, 3);
  const auto upto = [&](int32_t n) { return std::span(text).first(static_cast<size_t>(n)); };
  EXPECT_TRUE(drafted(1, upto(20)).empty()) << "nothing was told of this text";
  // A prompt of 100 tokens in three pieces, more than wait at a time, beside another sequence.
  tell(1, upto(100), 0, 40);
  tell(2, upto(9), 0, 8, 3);
  EXPECT_EQ(drafted(2, upto(9)), expected(upto(9)));
  tell(1, upto(100), 40, 1);
  EXPECT_TRUE(drafted(1, upto(100)).empty()) << "the prompt's end was not computed yet";
  tell(1, upto(100), 41, 59);
  EXPECT_GT(proposer_->n_read(), 60) << "prompts are read as they come";
  EXPECT_EQ(drafted(1, upto(101)), (std::vector<TokenId>{})) << "told without the token that was drawn after it";
  tell(1, upto(101), 99, 1);
  EXPECT_EQ(drafted(1, upto(101)), expected(upto(101)));
  EXPECT_EQ(drafted(1, upto(101)), expected(upto(101))) << "the step was not carried out";
  EXPECT_EQ(drafted(2, upto(9)), expected(upto(9)));
  // As a preempted sequence is computed again.
  tell(1, upto(101), 0, 60);
  tell(1, upto(101), 60, 40);
  EXPECT_EQ(drafted(1, upto(101)), expected(upto(101)));
  tell(1, upto(104), 100, 3, 7);
  EXPECT_EQ(drafted(1, upto(104)), expected(upto(104)));
}

TEST_P(EagleDrafts, WrongDraftsLeaveNoState) {
  std::vector<TokenId> text = testing::some_tokens(20, 96, 4);
  tell(1, text, 0, 19);
  for (int turn = 0; turn < 12; ++turn) {
    const std::vector<TokenId> drafts = drafted(1, text);
    ASSERT_EQ(drafts, expected(text)) << turn;
    // So many of them are right, then the sequence goes its own way.
    const auto n_right = static_cast<size_t>(turn) % 4, n = text.size();
    text.insert(text.end(), drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(n_right));
    text.push_back(TokenId{(raw(drafts[n_right]) + 1) % 96});
    tell(1, text, static_cast<int32_t>(n) - 1, static_cast<int32_t>(n_right) + 1, 5);
    proposer_->self_check(
        {.sequence = 1, .n_computed = static_cast<int32_t>(text.size()) - 1, .tokens = std::span(text)});
  }
}

TEST_P(EagleDrafts, BeginAtTheFirstTokenWithHiddenStates) {
  const std::vector<TokenId> text = testing::some_tokens(60, 96, 5);
  const auto all = std::span(text);
  tell(1, all.first(50), 33, 17);  // the rest came from the prefix cache
  tell(1, all.first(51), 49, 1);
  EXPECT_EQ(drafted(1, all.first(51)), expected(all.first(51), 33));
  tell(1, all.first(54), 52, 1);  // the states of one token are missing
  EXPECT_EQ(drafted(1, all.first(54)), expected(all.first(54), 52));
  // Both places are taken; then one is free again.
  tell(2, all.first(9), 0, 8);
  tell(3, all.first(9), 0, 8);
  EXPECT_TRUE(drafted(3, all.first(9)).empty());
  proposer_->forget(2);
  tell(3, all.first(9), 0, 8);
  EXPECT_EQ(drafted(3, all.first(9)), expected(all.first(9)));
}

TEST_P(EagleDrafts, ForgetWhatFindsNoRoomAndGoOn) {
  start(3, 5);  // 80 pairs of all sequences
  const std::vector<TokenId> text = testing::some_tokens(150, 96, 6);
  const auto upto = [&](int32_t n) { return std::span(text).first(static_cast<size_t>(n)); };
  tell(1, upto(61), 0, 60);
  EXPECT_EQ(drafted(1, upto(61), 2), expected(upto(61), 0, 2));
  tell(2, upto(12), 0, 11);
  EXPECT_EQ(drafted(2, upto(12), 2), expected(upto(12), 0, 2));
  EXPECT_EQ(proposer_->cache().pool().n_free(), 0);
  tell(3, upto(9), 0, 8);
  EXPECT_TRUE(drafted(3, upto(9)).empty()) << "no block is left";
  proposer_->forget(2);
  tell(3, upto(10), 8, 1);
  EXPECT_EQ(drafted(3, upto(10), 2), expected(upto(10), 8, 2)) << "goes on where it had no room";
  for (int32_t n = 61; n < 150; ++n) tell(1, upto(n + 1), n - 1, 1);
  EXPECT_FALSE(drafted(1, upto(149)).empty() && drafted(1, upto(150)).empty()) << "reads on from somewhere";
  proposer_->forget(1);
  proposer_->forget(3);
  EXPECT_EQ(proposer_->cache().pool().n_in_use(), 0);
  proposer_->cache().self_check();
}

TEST_P(EagleDrafts, InACrowdAreOfThoseAloneWhoseDraftsArePinned) {
  start(2, 0, /*most_running=*/2);
  const std::vector<TokenId> text = testing::some_tokens(20, 96, 7);
  const auto upto = [&](int32_t n) { return std::span(text).first(static_cast<size_t>(n)); };
  texts_->tell(1, upto(9), 0, 8, 0, /*n_running=*/2);
  EXPECT_EQ(drafted(1, upto(9)), expected(upto(9)));
  texts_->tell(1, upto(10), 8, 1, 0, /*n_running=*/3);
  EXPECT_TRUE(drafted(1, upto(10)).empty());
  EXPECT_EQ(proposer_->cache().pool().n_in_use(), 0) << "nothing is held for nothing";
  texts_->tell(2, upto(9), 0, 8, 0, /*n_running=*/3, /*is_pinned=*/true);
  EXPECT_EQ(drafted(2, upto(9)), expected(upto(9)));
  texts_->tell(1, upto(11), 9, 1, 0, /*n_running=*/3);
  proposer_->self_check({.sequence = 1, .n_computed = 10, .tokens = upto(11)});
  tell(1, upto(13), 11, 1);
  EXPECT_EQ(drafted(1, upto(13)), expected(upto(13), 11)) << "goes on where the others have gone";
}

INSTANTIATE_TEST_SUITE_P(Kinds, EagleDrafts, ::testing::Values(Kind::kEagle1, Kind::kEagle3, Kind::kMtp),
                         [](const auto& param_info) {
                           return param_info.param == Kind::kEagle1   ? "eagle1"
                                  : param_info.param == Kind::kEagle3 ? "eagle3"
                                                                      : "mtp";
                         });

}  // namespace
}  // namespace ibid
