// A real model with recurrent layers in an engine: what a conversation's next turn computes, and that its answers are
// those of a conversation that nothing is known of. With a fake model: resume_points_test.cc.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "model/testing/loaded_model.h"
#include "spec/model/window_proposer.h"
#include "worker/model_pass.h"

namespace ibid {
namespace {

constexpr int32_t kStateStep = 64;

class RecurrentModel : public ::testing::TestWithParam<std::string_view> {
 protected:
  struct Turn {
    std::vector<TokenId> answer;
    int32_t n_cached = 0, n_computed = 0;
  };
  class Conversation {
   public:
    Conversation(testing::LoadedModel& m, bool prefix_cache) {
      EngineOptions options{.step_tokens = 64, .max_sequences = 4, .prefix_cache = prefix_cache};
      options.state_step = kStateStep;
      options.max_rows = m.model->options().max_rows;
      core_ = Engine::create(std::make_unique<ModelPass>(*m.model, *m.stream, std::span<const TokenId>{}, "digest"),
                             nullptr, *m.stream, options, steady_clock())
                  .value();
    }
    Turn turn(const std::vector<TokenId>& prompt) {
      Request r;
      r.id = RequestId{next_id_++};
      r.prompt = prompt;
      r.max_tokens = 30;
      r.sampling.seed = 11;
      r.sampling.ignore_eos = true;
      EXPECT_TRUE(core_->submit(std::move(r)));
      Turn out;
      for (std::vector<Output> outputs; core_->step(outputs); outputs.clear()) {
        for (const StepShare& share : core_->last_step()) out.n_computed += share.n_tokens;
        for (const Output& o : outputs) {
          out.n_cached = o.usage.cached_tokens;
          for (const TokenRecord& t : o.tokens) out.answer.push_back(t.chosen.token);
        }
      }
      core_->self_check();
      return out;
    }

   private:
    std::unique_ptr<Engine> core_;
    uint64_t next_id_ = 1;
  };
};

// The answer's last token is computed by the next turn; the answer of 30 takes 29 steps after the prompt's.
TEST_P(RecurrentModel, ASecondTurnComputesItsOwnTokensAlone) {
  testing::LoadedModel m(testing::TinyModelOptions{.architecture = GetParam()});
  Conversation known(m, true), unknown(m, false);
  std::vector<TokenId> text = testing::some_tokens(200, m.model->config().vocab_size);
  const Turn first = known.turn(text);
  EXPECT_EQ(first.n_computed, 200 + 29);
  text.insert(text.end(), first.answer.begin(), first.answer.end());
  const auto next = testing::some_tokens(17, m.model->config().vocab_size, 2);
  text.insert(text.end(), next.begin(), next.end());
  const Turn second = known.turn(text);
  EXPECT_EQ(second.n_cached, 200 + 29);
  EXPECT_EQ(second.n_computed, 1 + 17 + 29);
  EXPECT_EQ(second.answer, unknown.turn(text).answer);
}

// Where a template leaves out what ended the last prompt, the text goes on before it, and an answer's states are of no
// use: at most the tokens between two snapshots are computed again.
TEST_P(RecurrentModel, ATurnThatForksBeforeAPromptsEndComputesAtMostASnapshotsStepMore) {
  testing::LoadedModel m(testing::TinyModelOptions{.architecture = GetParam()});
  Conversation known(m, true), unknown(m, false);
  std::vector<TokenId> text = testing::some_tokens(200, m.model->config().vocab_size);
  known.turn(text);
  const TokenId was = text[190];
  text.resize(190);
  text.push_back(TokenId{(raw(was) + 1) % 96});
  const auto next = testing::some_tokens(24, m.model->config().vocab_size, 2);
  text.insert(text.end(), next.begin(), next.end());
  const Turn second = known.turn(text);
  EXPECT_EQ(second.n_cached, 2 * kStateStep) << "the last snapshot before the fork";
  EXPECT_LE(second.n_computed, 25 + kStateStep + 29);
  EXPECT_EQ(second.answer, unknown.turn(text).answer);
}

TEST_P(RecurrentModel, DraftsNothingByAViewOfASequence) {
  testing::LoadedModel m(testing::TinyModelOptions{.architecture = GetParam()});
  const ModelPass pass(*m.model, *m.stream, {}, "digest");
  EXPECT_GT(pass.facts().state_bytes, 0);
  const Status refused = WindowProposer::check(pass.facts(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("recurrent layers"), std::string::npos) << refused.error().message;
}

INSTANTIATE_TEST_SUITE_P(Architectures, RecurrentModel,
                         ::testing::Values("lfm2", "qwen35", "qwen3next", "granitehybrid", "nemotron_h",
                                           "nemotron_h_moe", "falcon_h1"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace ibid
