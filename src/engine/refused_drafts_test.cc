// Input of a proposer that reads rejected drafts: for each of them along the first path, the token that the request
// would have drawn after it.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "model/testing/loaded_model.h"
#include "spec/experimental/lookahead_proposer.h"

namespace ibid {
namespace {

using testing::LoadedModel;

struct Told {
  std::vector<TokenId> text;  // the sequence before the rejected drafts, without the token drawn instead
  std::vector<RefusedDraft> drafts;
};

// Chains and trees of any tokens, sometimes the tokens of the last answer.
class Watching final : public Proposer, public ProposerExtras {
 public:
  explicit Watching(std::map<int64_t, std::vector<Told>>& told) : told_(told) {}
  bool reads_refused() const override { return true; }
  void refused(int64_t sequence, int32_t n_tokens, std::span<const RefusedDraft> drafts) override {
    waiting_[sequence] = {n_tokens, {drafts.begin(), drafts.end()}};
  }
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    std::vector<TokenId> text(input.prompt.begin(), input.prompt.end());
    text.insert(text.end(), input.answer.begin(), input.answer.end());
    if (const auto it = waiting_.find(input.sequence); it != waiting_.end()) {
      EXPECT_EQ(it->second.first, static_cast<int32_t>(text.size()));
      told_[input.sequence].push_back({{text.begin(), text.end() - 1}, it->second.second});
      waiting_.erase(it);
    }
    for (int32_t i = 0; i < std::min(input.max_drafts, 5); ++i) {
      const auto any = static_cast<int32_t>((text.size() * 31 + static_cast<size_t>(i) * 17) % 96);
      drafts.add(TokenId{any}, i == 0 || (i == 3 && text.size() % 2 == 0) ? -1 : i - 1);
    }
  }

 private:
  std::map<int64_t, std::pair<int32_t, std::vector<RefusedDraft>>> waiting_;
  std::map<int64_t, std::vector<Told>>& told_;
};

TEST(RefusedDrafts, CarryTheTargetsTokensAfterThem) {
  LoadedModel m(testing::tiny_model_file({}), {.step_tokens = 128, .max_rows = 128});
  const EngineOptions options = {.step_tokens = 64, .max_sequences = 4, .max_rows = 32};
  auto engine = Engine::create(*m.model, nullptr, *m.stream, options).value();
  std::map<int64_t, std::vector<Told>> told;
  engine->speculate(std::make_unique<Watching>(told), 5);
  const auto request = [](uint64_t i, std::vector<TokenId> prompt, int32_t max_tokens) {
    Request r;
    r.id = RequestId{i + 1};
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.sampling = {.temperature = i % 2 == 0 ? 0 : 0.8F, .ignore_eos = true};
    r.sampling.seed = 5;
    return r;
  };
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(engine->submit(request(i, std::vector<TokenId>(12, TokenId{3 + static_cast<int32_t>(i)}), 12)).ok());
  }
  std::vector<Output> out;
  while (engine->step(out)) {
  }
  ASSERT_EQ(told.size(), 2U);
  int n = 0;
  for (const auto& [sequence, all] : told) {
    const auto i = static_cast<uint64_t>(raw(all.front().text.front()) - 3);
    for (const Told& t : all) {
      std::vector<TokenId> text = t.text;
      for (const RefusedDraft& draft : t.drafts) {
        text.push_back(draft.token);
        auto alone = Engine::create(*m.model, nullptr, *m.stream, options).value();
        ASSERT_TRUE(alone->submit(request(i, text, 1)).ok());
        out.clear();
        while (alone->step(out)) {
        }
        ASSERT_FALSE(out.empty());
        ASSERT_EQ(out.front().tokens.size(), 1U);
        EXPECT_EQ(raw(out.front().tokens.front().chosen.token), raw(draft.following)) << "after " << text.size();
        ++n;
      }
    }
  }
  EXPECT_GT(n, 40);
}

// Reading rejected drafts changes no answer: with stateful samplers, and with look-ahead itself.
TEST(RefusedDrafts, LeaveTheAnswerAlone) {
  LoadedModel m(testing::tiny_model_file({}), {.step_tokens = 128, .max_rows = 128});
  std::vector<std::vector<TokenId>> answers;
  for (const bool drafts : {false, true}) {
    auto engine =
        Engine::create(*m.model, nullptr, *m.stream, {.step_tokens = 64, .max_sequences = 4, .max_rows = 32}).value();
    if (drafts) engine->speculate(std::make_unique<LookAheadProposer>(LookAheadOptions{.always = true}), 6);
    Request r;
    r.id = RequestId{1};
    r.prompt = std::vector<TokenId>(9, TokenId{3});
    r.max_tokens = 60;
    r.sampling = {.temperature = 0.9F, .ignore_eos = true};
    r.sampling.seed = 11;
    r.sampling.mirostat = 2;
    r.sampling.repetition_penalty = 1.2F;
    r.sampling.dry_multiplier = 0.8F;
    ASSERT_TRUE(engine->submit(std::move(r)).ok());
    std::vector<Output> out;
    std::vector<TokenId> answer;
    while (engine->step(out)) {
    }
    for (const Output& o : out) {
      for (const TokenRecord& t : o.tokens) answer.push_back(t.chosen.token);
    }
    EXPECT_EQ(engine->stats().drafted_tokens > 60, drafts);
    answers.push_back(answer);
  }
  EXPECT_EQ(answers[0].size(), 60U);
  EXPECT_EQ(answers[0], answers[1]);
}

}  // namespace
}  // namespace ibid
