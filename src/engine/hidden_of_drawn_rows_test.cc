// Input of a proposer that reads hidden states: after each step, for each sequence that goes on, the state of the row
// that its last token was drawn from, whatever was drafted, cut or preempted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/engine.h"
#include "model/testing/batch_of_one.h"
#include "model/testing/loaded_model.h"
#include "spec/lookup/lookup_proposer.h"

namespace ibid {
namespace {

using testing::LoadedModel;

struct Told {
  std::map<int64_t, std::map<int32_t, std::vector<float>>> states;  // by sequence, by its number of tokens
  std::map<int64_t, std::vector<TokenId>> texts;                    // the longest version seen of each sequence
};

// Drafts by look-up, so that some drafts are right, and records its inputs.
class Watching final : public Proposer, public ProposerExtras {
 public:
  explicit Watching(Told& told) : told_(told), lookup_(512, 8, {}) {}
  bool reads_hidden() const override { return true; }
  void saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) override {
    told_.states[sequence][n_tokens].assign(hidden.begin(), hidden.end());
  }
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    std::vector<TokenId>& text = told_.texts[input.sequence];
    text.assign(input.prompt.begin(), input.prompt.end());
    text.insert(text.end(), input.answer.begin(), input.answer.end());
    lookup_.propose(input, drafts);
    std::ranges::fill(drafts.likely, 1.0F);  // verified whatever rows cost
  }

 private:
  Told& told_;
  LookupProposer lookup_;
};

TEST(HiddenOfDrawnRows, IsThatOfTheTokenBeforeTheLast) {
  LoadedModel m(testing::tiny_model_file({}), {.step_tokens = 128, .max_rows = 128});
  EngineOptions options;
  options.kv_dtype = DType::kF32;
  options.step_tokens = 48;
  options.max_sequences = 4;
  auto engine = Engine::create(*m.model, nullptr, *m.stream, options).value();
  Told told;
  engine->speculate(std::make_unique<Watching>(told), 6);
  for (uint64_t i = 0; i < 5; ++i) {
    Request r;
    r.id = RequestId{i + 1};
    for (uint64_t t = 0; t < 20 + 15 * i; ++t) r.prompt.push_back(TokenId{static_cast<int32_t>(t % (5 + i))});
    r.max_tokens = 40;
    r.sampling = {.temperature = i % 2 == 0 ? 0 : 0.7F, .ignore_eos = true};
    r.sampling.seed = i;
    r.sampling.logit_bias = {{TokenId{1}, 6.0F}, {TokenId{2}, 6.0F}};
    ASSERT_TRUE(engine->submit(std::move(r)).ok());
  }
  std::vector<Output> out;
  for (int step = 0; engine->step(out); ++step) {
    if (step % 11 == 10) engine->preempt(RequestId{1 + static_cast<uint64_t>(step) % 5});
  }
  EXPECT_GT(engine->stats().accepted_tokens, 15);
  EXPECT_GT(engine->stats().n_preemptions, 0);
  ASSERT_EQ(told.texts.size(), 5U);
  const auto C = static_cast<size_t>(m.model->config().width);
  const std::vector<int32_t> final_norm = {static_cast<int32_t>(m.model->config().n_layers)};
  for (const auto& [sequence, text] : told.texts) {
    const auto all = testing::BatchOfOne(*m.model, *m.stream).step(text, {}, final_norm).hidden.front();
    int n = 0;
    for (const auto& [n_tokens, hidden] : told.states[sequence]) {
      if (n_tokens > static_cast<int32_t>(text.size())) continue;
      ASSERT_EQ(hidden.size(), C);
      const float* expected = all.data() + static_cast<size_t>(n_tokens - 2) * C;
      EXPECT_EQ(std::memcmp(hidden.data(), expected, C * sizeof(float)), 0) << sequence << ": " << n_tokens;
      ++n;
    }
    EXPECT_GE(n, 5) << "at most seven tokens of forty come at once";
  }
}

}  // namespace
}  // namespace ibid
