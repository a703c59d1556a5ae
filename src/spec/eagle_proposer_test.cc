// What an EAGLE head drafts as a proposer is what it says of the whole text gone over at once, however it was told of
// the text, whatever was drafted before and taken over or not, and wherever its own memory began.
#include "spec/eagle_proposer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/testing/loaded_model.h"
#include "sample/sampler.h"
#include "tiny_eagle.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::PairsOfOne;
using testing::TinyEagle;

constexpr int32_t kContext = 160, kStep = 64, kMany = 5;

// What the target makes of the token at `position` behind this text, as far as a head can tell.
float feature(std::span<const TokenId> text, int32_t position, int64_t column) {
  uint64_t hash = 1469598103934665603U + static_cast<uint64_t>(column);
  for (int32_t i = 0; i <= position; ++i)
    hash = (hash ^ static_cast<uint64_t>(raw(text[static_cast<size_t>(i)]))) * 1099511628211U;
  return static_cast<float>(hash >> 40) / float{1 << 23} - 1;
}

enum class Kind { kEagle1, kEagle3, kMtp };

class EagleDrafts : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    tiny_ = {.width = m_.model->config().width, .vocab_size = 96, .is_third = GetParam() == Kind::kEagle3};
    if (tiny_.is_third) {
      for (int64_t i = 0; i < 96; i += 2) tiny_.ids.push_back(i);
    }
    start(2);
    // Goes over each text at once, and nothing else.
    EagleSizes sizes = EagleProposer::sizes(8, kContext, kStep);
    sizes.kv_dtype = DType::kF32;
    reference_ = EagleHead::load(file(), *m_.model, *m_.stream, sizes).value();
  }
  std::shared_ptr<const ModelFile> file() const {
    return GetParam() == Kind::kMtp ? testing::tiny_mtp_file(m_.model->config(), true)
                                    : testing::tiny_eagle_file(tiny_);
  }
  void start(int32_t n_texts, int32_t n_blocks = 0) {
    EagleSizes sizes = EagleProposer::sizes(n_texts, kContext, kStep);
    sizes.kv_dtype = DType::kF32;
    if (n_blocks > 0) sizes.n_blocks = n_blocks;
    proposer_ = std::make_unique<EagleProposer>(EagleHead::load(file(), *m_.model, *m_.stream, sizes).value(),
                                                *m_.stream, EagleOptions{.vocab_size = 96, .always = true});
  }
  // A step that computed the tokens [first, first + n) of this text, in rows from `row` on.
  void tell(int64_t sequence, std::span<const TokenId> text, int32_t first, int32_t n, int32_t row = 0) {
    std::vector<int32_t> rows;
    const HiddenStates& taps = *proposer_->taps();
    const int64_t C = tiny_.width;
    for (int32_t i = 0; i < n; ++i) {
      rows.push_back(row + i);
      for (size_t tap = 0; tap < taps.out.size(); ++tap) {
        for (int64_t c = 0; c < C; ++c)
          taps.out[tap].row_as<float>(row + i)[c] = feature(text, first + i, static_cast<int64_t>(tap) * C + c);
      }
    }
    proposer_->read({.sequence = sequence, .first = first, .rows = rows, .text = text});
  }
  std::vector<TokenId> drafted(int64_t sequence, std::span<const TokenId> text, int32_t n = kMany) {
    Drafts drafts;
    proposer_->propose({.sequence = sequence,
                        .prompt = text.first(4),
                        .answer = text.subspan(4),
                        .max_drafts = n,
                        .sampler = greedy_.get()},
                       drafts);
    return drafts.tokens;
  }
  // By the head alone, which has the pairs from `begin` on.
  std::vector<TokenId> expected(std::span<const TokenId> text, int32_t begin = 0, int32_t n = kMany) {
    EagleHead& head = *reference_;
    PairsOfOne pairs(head);
    const auto n_pairs = static_cast<int32_t>(text.size()) - 1 - begin;
    for (int32_t i = 0; i < n_pairs; ++i) {
      for (int64_t c = 0; c < head.feature_len(); ++c)
        head.feature(i)[static_cast<size_t>(c)] = feature(text, begin + i, c);
    }
    head.fuse(n_pairs);
    const int32_t last = n_pairs - 1, first = 0;
    EagleHead::Said said = pairs.run(text.last(static_cast<size_t>(n_pairs)), {&last, 1});
    std::vector<TokenId> out;
    for (int32_t i = 0; i < n; ++i) {
      const auto best = static_cast<size_t>(std::ranges::max_element(said.logits) - said.logits.begin());
      out.push_back(head.ids().empty() ? TokenId{static_cast<int32_t>(best)} : head.ids()[best]);
      std::ranges::copy(said.states, head.state(0).begin());
      if (i + 1 < n) said = pairs.run({&out.back(), 1}, {&first, 1});
    }
    return out;
  }

  LoadedModel m_{testing::TinyModelOptions{}};
  TinyEagle tiny_;
  std::unique_ptr<EagleProposer> proposer_;
  std::unique_ptr<EagleHead> reference_;
  std::shared_ptr<const Sampler> greedy_ = Sampler::compile({.temperature = 0}, 96, {}, 1).value();
};

TEST_P(EagleDrafts, AreWhatTheHeadSaysOfTheWholeText) {
  const std::vector<TokenId> text = testing::some_tokens(120, 96, 3);
  const auto upto = [&](int32_t n) { return std::span(text).first(static_cast<size_t>(n)); };
  EXPECT_TRUE(drafted(1, upto(20)).empty()) << "nothing was told of this text";
  // A prompt of 100 tokens in three pieces, more than wait at a time, beside another text.
  tell(1, upto(100), 0, 40);
  tell(2, upto(9), 0, 8, 3);
  EXPECT_EQ(drafted(2, upto(9)), expected(upto(9)));
  tell(1, upto(100), 40, 1);
  EXPECT_TRUE(drafted(1, upto(100)).empty()) << "the prompt's end was not computed yet";
  tell(1, upto(100), 41, 59);
  EXPECT_GT(proposer_->n_read(), 60) << "prompts are read as they come";
  EXPECT_EQ(drafted(1, upto(101)), (std::vector<TokenId>{})) << "told without the token that was drawn behind it";
  tell(1, upto(101), 99, 1);
  EXPECT_EQ(drafted(1, upto(101)), expected(upto(101)));
  EXPECT_EQ(drafted(1, upto(101)), expected(upto(101))) << "the step was not carried out";
  EXPECT_EQ(drafted(2, upto(9)), expected(upto(9)));
  // As a preempted text is computed again.
  tell(1, upto(101), 0, 60);
  tell(1, upto(101), 60, 40);
  EXPECT_EQ(drafted(1, upto(101)), expected(upto(101)));
  tell(1, upto(104), 100, 3, 7);
  EXPECT_EQ(drafted(1, upto(104)), expected(upto(104)));
}

TEST_P(EagleDrafts, LeaveNothingBehindWhereTheyWereWrong) {
  std::vector<TokenId> text = testing::some_tokens(20, 96, 4);
  tell(1, text, 0, 19);
  for (int turn = 0; turn < 12; ++turn) {
    const std::vector<TokenId> drafts = drafted(1, text);
    ASSERT_EQ(drafts, expected(text)) << turn;
    // So many of them are right, then the text goes its own way.
    const auto n_right = static_cast<size_t>(turn) % 4, n = text.size();
    text.insert(text.end(), drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(n_right));
    text.push_back(TokenId{(raw(drafts[n_right]) + 1) % 96});
    tell(1, text, static_cast<int32_t>(n) - 1, static_cast<int32_t>(n_right) + 1, 5);
  }
}

TEST_P(EagleDrafts, BeginWhereTheTextWasFirstTold) {
  const std::vector<TokenId> text = testing::some_tokens(60, 96, 5);
  const auto all = std::span(text);
  tell(1, all.first(50), 33, 17);  // the rest came from the prefix cache
  tell(1, all.first(51), 49, 1);
  EXPECT_EQ(drafted(1, all.first(51)), expected(all.first(51), 33));
  tell(1, all.first(54), 52, 1);  // a token was not told of
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
  start(3, 5);  // 80 pairs of all texts
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

INSTANTIATE_TEST_SUITE_P(Kinds, EagleDrafts, ::testing::Values(Kind::kEagle1, Kind::kEagle3, Kind::kMtp),
                         [](const auto& param_info) {
                           return param_info.param == Kind::kEagle1   ? "eagle1"
                                  : param_info.param == Kind::kEagle3 ? "eagle3"
                                                                      : "mtp";
                         });

}  // namespace
}  // namespace ibid
