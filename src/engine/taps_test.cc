// Input of a proposer that taps layers: for each computed token of a sequence, once its successor is known, the states
// of those layers, whatever was drafted, rejected, cut or preempted. And nothing for sequences without drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "engine/engine.h"
#include "model/testing/batch_of_one.h"
#include "model/testing/loaded_model.h"
#include "spec/lookup/lookup_proposer.h"

namespace ibid {
namespace {

using testing::LoadedModel;

struct Told {
  std::map<int64_t, std::map<int32_t, std::vector<float>>> states;  // by sequence, by position
  std::map<int64_t, std::vector<TokenId>> texts;                    // the longest version seen of each sequence
  int n_twice = 0;
  std::set<int32_t> n_running;
  std::set<bool> is_pinned;
};

// Drafts by look-up, as chains or with a wrong sibling before each, and records its inputs.
class Tapping final : public Proposer, public ProposerExtras {
 public:
  Tapping(Told& told, std::vector<int32_t> layers, int64_t width, bool is_tree)
      : told_(told), layers_(std::move(layers)), is_tree_(is_tree), lookup_(512, 8, {}) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      memory_.emplace_back(static_cast<size_t>(128 * width));
      views_.emplace_back(memory_.back().data(), DType::kF32, std::initializer_list<int64_t>{128, width});
    }
    taps_ = {.layers = layers_, .out = views_};
  }
  const HiddenStates* taps() const override { return &taps_; }
  void read(const ReadTokens& tokens) override {
    told_.n_running.insert(tokens.n_running);
    told_.is_pinned.insert(tokens.is_pinned);
    for (size_t i = 0; i < tokens.rows.size(); ++i) {
      const int32_t position = tokens.first + static_cast<int32_t>(i);
      std::vector<float> state;
      for (const TensorView& view : views_) {
        const auto* row = view.row_as<const float>(tokens.rows[i]);
        state.insert(state.end(), row, row + view.row_len());
      }
      auto& known = told_.states[tokens.sequence][position];
      told_.n_twice += !known.empty();
      known = state;
    }
    if (told_.texts[tokens.sequence].size() < tokens.tokens.size())
      told_.texts[tokens.sequence].assign(tokens.tokens.begin(), tokens.tokens.end());
  }
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    Drafts found;
    lookup_.propose(input, found);
    int32_t parent = -1;
    for (const TokenId token : found.tokens) {
      if (is_tree_) drafts.add(TokenId{(raw(token) + 1) % 96}, parent);
      const int32_t before = parent;
      parent = drafts.size();
      drafts.add(token, before);
    }
  }

 private:
  Told& told_;
  std::vector<int32_t> layers_;
  bool is_tree_;
  std::vector<std::vector<float>> memory_;
  std::vector<TensorView> views_;
  HiddenStates taps_;
  LookupProposer lookup_;
};

class Taps : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const auto L = static_cast<int32_t>(m_.model->config().n_layers);
    layers_ = {0, 1, L - 1, L};
    EngineOptions options;
    options.kv_dtype = DType::kF32;
    options.step_tokens = 48;
    options.max_sequences = 4;
    engine_ = Engine::create(*m_.model, nullptr, *m_.stream, options).value();
    engine_->speculate(std::make_unique<Tapping>(told_, layers_, m_.model->config().width, GetParam()), 6);
  }
  Request request(uint64_t i) const {
    Request r;
    r.id = RequestId{i + 1};
    for (uint64_t t = 0; t < 20 + 15 * i; ++t) r.prompt.push_back(TokenId{static_cast<int32_t>(t % (5 + i))});
    r.cache_salt = std::to_string(i);  // no sequence shares another's prefix
    r.max_tokens = 40;
    r.sampling = {.temperature = i % 2 == 0 ? 0 : 0.7F, .ignore_eos = true};
    r.sampling.seed = i;
    r.sampling.logit_bias = {{TokenId{1}, 6.0F}, {TokenId{2}, 6.0F}};
    return r;
  }
  void run(bool preempts) {
    std::vector<Output> out;
    for (int step = 0; engine_->step(out); ++step) {
      if (preempts && step % 11 == 10) engine_->preempt(RequestId{1 + static_cast<uint64_t>(step) % 5});
    }
  }
  // For each sequence, all positions from `begin` on, except the last one's pair with the token that ended it.
  void hold(int32_t begin) {
    const auto C = static_cast<size_t>(m_.model->config().width);
    for (const auto& [sequence, text] : told_.texts) {
      const auto all = testing::BatchOfOne(*m_.model, *m_.stream).step(text, {}, layers_).hidden;
      const auto& states = told_.states[sequence];
      EXPECT_LE(states.begin()->first, begin) << sequence;
      EXPECT_EQ(states.rbegin()->first, static_cast<int32_t>(text.size()) - 2) << sequence;
      EXPECT_EQ(static_cast<int32_t>(states.size()), states.rbegin()->first - states.begin()->first + 1) << sequence;
      for (const auto& [position, state] : states) {
        ASSERT_EQ(state.size(), layers_.size() * C);
        for (size_t layer = 0; layer < layers_.size(); ++layer) {
          const float* expected = all[layer].data() + static_cast<size_t>(position) * C;
          EXPECT_EQ(std::memcmp(state.data() + layer * C, expected, C * sizeof(float)), 0)
              << sequence << ": " << position << " of layer " << layers_[layer];
        }
      }
    }
  }

  LoadedModel m_{testing::tiny_model_file({.n_layers = 4}), {.step_tokens = 128, .max_rows = 128}};
  std::vector<int32_t> layers_;
  Told told_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(Taps, AreThoseOfTheTokensThatSequencesHave) {
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(engine_->submit(request(i)).ok());
  run(/*preempts=*/true);
  EXPECT_GT(engine_->stats().accepted_tokens, 15);
  EXPECT_GT(engine_->stats().drafted_tokens, engine_->stats().accepted_tokens);
  EXPECT_GT(engine_->stats().n_preemptions, 0);
  ASSERT_EQ(told_.texts.size(), 5U);
  EXPECT_EQ(*told_.n_running.rbegin(), 4) << "of five, as many as may run";
  hold(0);
}

TEST_P(Taps, OfWhatThePrefixCacheKnowsComeForRejectionAlone) {
  ASSERT_TRUE(engine_->submit(request(3)).ok());
  run(false);
  for (const bool is_rejection : {false, true}) {
    told_ = {};
    Request again = request(3);
    again.speculation.verifier = is_rejection ? Verifier::kRejection : Verifier::kCoupled;
    ASSERT_TRUE(engine_->submit(std::move(again)).ok());
    run(false);
    ASSERT_EQ(told_.states.size(), 1U);
    EXPECT_EQ(told_.states.begin()->second.begin()->first == 0, is_rejection);
    EXPECT_EQ(told_.is_pinned, std::set<bool>{is_rejection});
    EXPECT_EQ(told_.n_running, std::set<int32_t>{1});
    hold(65);
  }
}

TEST_P(Taps, AreNotReadWhereNoSequenceMayHaveDrafts) {
  Request r = request(0);
  r.speculation.max_drafts = 0;
  ASSERT_TRUE(engine_->submit(std::move(r)).ok());
  run(false);
  EXPECT_TRUE(told_.states.empty());
  // Contrastive search reads the last of these states too, beside a sequence that is drafted for.
  Request searches = request(1);
  searches.search = {.kind = SearchKind::kContrastive, .width = 3, .alpha = 0.4F};
  searches.sampling = {};
  ASSERT_TRUE(engine_->submit(std::move(searches)).ok());
  ASSERT_TRUE(engine_->submit(request(2)).ok());
  run(false);
  ASSERT_EQ(told_.states.size(), 1U);
  hold(0);
}

INSTANTIATE_TEST_SUITE_P(Drafts, Taps, ::testing::Bool(),
                         [](const auto& param_info) { return param_info.param ? "trees" : "chains"; });

}  // namespace
}  // namespace ibid
