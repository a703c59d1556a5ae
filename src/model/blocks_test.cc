#include "model/blocks.h"

#include <gtest/gtest.h>

#include <numeric>

#include "model/testing/tiny_model.h"

namespace ibid {
namespace {

// A pass that has come to the end of a layer's attention: t.x and t.attention identify each row's token.
class RowsThatGoOn : public ::testing::Test {
 protected:
  static constexpr int32_t kTokens = 6;

  RowsThatGoOn() {
    whole_ = *Scratch::allocate(config_, 8, 4);
    t_.cut_to(whole_, kTokens, static_cast<int64_t>(wanted_.size()));
    for (int32_t i = 0; i < kTokens; ++i) {
      for (TensorView* x : {&t_.x, &t_.attention}) std::fill_n(x->row_as<float>(i), x->row_len(), float(i));
    }
    batch_.n_tokens = kTokens;
    batch_.n_rows = static_cast<int32_t>(wanted_.size());
    batch_.logit_rows = wanted_.data();
  }
  Pass pass(HiddenStates hidden = {}) {
    return {.s = stream_,
            .config = config_,
            .batch = batch_,
            .states = no_states_,
            .state_layout = no_state_layout_,
            .hidden = hidden,
            .tap = tap_,
            .t = t_,
            .rows = {&batch_, all_}};
  }

  const ModelConfig config_ = testing::tiny_config({});  // two layers
  const std::vector<int32_t> all_ = {0, 1, 2, 3, 4, 5}, wanted_ = {1, 4};
  ThreadTeam team_{1};
  Stream stream_{team_};
  ForwardBatch batch_;
  Scratch whole_, t_;
  const StateSlots no_states_;
  const StateLayout no_state_layout_;
  const Tap tap_;
};

TEST_F(RowsThatGoOn, AreAllBeforeTheLastLayer) {
  Pass p = pass();
  EXPECT_TRUE(keep_wanted_rows(p, 0));
  EXPECT_EQ(t_.x.n_rows(), kTokens);
  EXPECT_EQ(p.rows.tokens.size(), all_.size());
}

TEST_F(RowsThatGoOn, AreTheNeededOnesAfterTheLastAttentionWithTheirTokens) {
  Pass p = pass();
  EXPECT_TRUE(keep_wanted_rows(p, 1));
  EXPECT_EQ(std::vector<int32_t>(p.rows.tokens.begin(), p.rows.tokens.end()), wanted_);
  for (const TensorView* x : {&t_.x, &t_.attention}) {
    ASSERT_EQ(x->n_rows(), 2);
    EXPECT_EQ(*x->row_as<float>(0), 1.0f);
    EXPECT_EQ(*x->row_as<float>(1), 4.0f);
  }
  EXPECT_EQ(t_.out.n_rows(), 2);
}

TEST_F(RowsThatGoOn, AreNoneIfNoLogitsAreNeeded) {
  batch_.n_rows = 0;
  Pass p = pass();
  EXPECT_FALSE(keep_wanted_rows(p, 1));
}

TEST_F(RowsThatGoOn, AreAllIfHiddenStatesOfTheLastLayerAreNeeded) {
  const std::vector<int32_t> layers = {0, 1};
  const std::vector<TensorView> out(2);
  batch_.n_rows = 0;
  Pass p = pass({.layers = layers, .out = out});
  EXPECT_TRUE(keep_wanted_rows(p, 1));
  EXPECT_EQ(t_.x.n_rows(), kTokens);
}

}  // namespace
}  // namespace ibid
