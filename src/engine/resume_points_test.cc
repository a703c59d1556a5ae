// Sequences of a model with recurrent layers: where they go on, and what that costs. That they go on rightly is what
// random lives show (tests/property/engine_property_test.cc).
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"
#include "spec/model/draft_model.h"

namespace ibid {
namespace {

using testing::FakeModel;

constexpr int32_t kContextLen = 96;

// Drafts by a script, as a chain.
class Scripted final : public Proposer {
 public:
  explicit Scripted(std::function<std::vector<TokenId>(size_t n_answered)> script) : script_(std::move(script)) {}
  void propose(const ProposalInput& input, Drafts& drafts) override {
    for (const TokenId token : script_(input.answer.size())) drafts.add(token, drafts.size() - 1);
  }

 private:
  std::function<std::vector<TokenId>(size_t)> script_;
};

struct Recurrent {
  explicit Recurrent(EngineOptions options = {}) {
    auto fake = std::make_unique<FakeModel>(kContextLen, 0, 0, true);
    model = fake.get();
    options.block_len = 8;
    options.kv_dtype = DType::kF32;
    options.kv_bytes = 64 * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
    options.states_bytes *= fake->facts().state_bytes;
    core = Engine::create(std::move(fake), nullptr, stream, options, clock).value();
  }
  Request request(int prompt_len, int max_tokens) {
    Request r;
    r.id = RequestId{next_id++};
    for (int i = 0; i < prompt_len; ++i) r.prompt.push_back(TokenId{1 + i % 63});
    r.max_tokens = max_tokens;
    r.sampling.ignore_eos = true;
    return r;
  }
  // Runs it; returns how many tokens were found, and counts steps and tokens that were computed.
  int32_t run(const Request& r) {
    EXPECT_TRUE(core->submit(r));
    n_steps = n_tokens = 0;
    int32_t n_cached = 0;
    answers.assign(static_cast<size_t>(r.n), {});
    began.assign(static_cast<size_t>(r.n), 0);
    for (std::vector<Output> out; core->step(out); out.clear()) {
      ++n_steps;
      for (const StepShare& share : core->last_step()) n_tokens += share.n_tokens;
      for (const Output& o : out) {
        n_cached = o.usage.cached_tokens;
        if (answers[static_cast<size_t>(o.choice)].empty()) began[static_cast<size_t>(o.choice)] = n_steps;
        for (const TokenRecord& t : o.tokens) answers[static_cast<size_t>(o.choice)].push_back(t.chosen.token);
      }
      core->self_check();
    }
    for (int32_t i = 0; i < r.n; ++i)
      EXPECT_EQ(answers[static_cast<size_t>(i)], testing::expected_answer(r, i, kContextLen).tokens);
    EXPECT_EQ(model->faults(), std::vector<std::string>());
    return n_cached;
  }

  ThreadTeam team{1};
  Stream stream{team};
  ManualClock clock;
  FakeModel* model = nullptr;
  std::unique_ptr<Engine> core;
  std::vector<std::vector<TokenId>> answers;
  std::vector<int32_t> began;  // the step of each choice's first token, from 1
  int32_t n_steps = 0, n_tokens = 0;
  uint64_t next_id = 1;
};

TEST(ResumePoints, APromptThatComesAgainIsFoundToItsLastToken) {
  Recurrent r;
  EXPECT_EQ(r.run(r.request(37, 5)), 0);
  EXPECT_EQ(r.run(r.request(37, 5)), 36);
  EXPECT_EQ(r.n_tokens, 1 + 4);
}

TEST(ResumePoints, AnAnswerIsFoundByWhatGoesOnAfterIt) {
  Recurrent r;
  Request first = r.request(20, 6);
  r.run(first);
  Request next = r.request(20, 3);
  next.prompt.insert(next.prompt.end(), r.answers[0].begin(), r.answers[0].end());
  next.prompt.push_back(TokenId{7});
  EXPECT_EQ(r.run(next), 25);  // the answer's last token was never computed
}

TEST(ResumePoints, ALongPromptIsFoundAtItsLastSnapshotAndNoFurther) {
  Recurrent r({.state_step = 16});
  r.run(r.request(60, 1));
  Request other = r.request(60, 1);
  other.prompt[50] = TokenId{63};  // the prompt's own snapshot lies after it
  EXPECT_EQ(r.run(other), 48);
}

TEST(ResumePoints, FurtherChoicesForkAtThePromptsEndAndDrawFromItsRow) {
  Recurrent r;
  Request choices = r.request(30, 4);
  choices.n = 3;
  r.run(choices);
  EXPECT_EQ(r.n_tokens, 30 + 3 * 3);
  EXPECT_EQ(r.began, std::vector<int32_t>(3, 1));
}

TEST(ResumePoints, FurtherChoicesMayEndWithTheirFirstTokenOrWithout) {
  for (const int max_tokens : {0, 1}) {
    Recurrent r;
    Request choices = r.request(30, max_tokens);
    choices.n = 3;
    r.run(choices);
    EXPECT_EQ(r.n_steps, 1);
    EXPECT_EQ(r.n_tokens, 30);
  }
}

TEST(ResumePoints, ThereAreAsManyChoicesWithoutAPrefixCache) {
  Recurrent r({.prefix_cache = false});
  Request choices = r.request(30, 4);
  choices.n = 3;
  r.run(choices);
  EXPECT_EQ(r.n_tokens, 30 + 3 * 3);
}

TEST(ResumePoints, AcceptedDraftsAreNotComputedAgain) {
  Recurrent r;
  const Request request = r.request(20, 9);
  const std::vector<TokenId> answer = testing::expected_answer(request, 0, kContextLen).tokens;
  // Three right ones and a wrong one.
  r.core->speculate(std::make_unique<Scripted>([&](size_t n) {
                      std::vector<TokenId> drafts;
                      for (size_t i = n; i < answer.size() && i < n + 3; ++i) drafts.push_back(answer[i]);
                      drafts.push_back(TokenId{(raw(answer.at(std::min(n + 3, answer.size() - 1))) + 1) % 64});
                      return drafts;
                    }),
                    4);
  r.run(request);
  EXPECT_EQ(r.n_steps, 1 + 2);  // the prompt gives one token, each step four
}

TEST(ResumePoints, DraftsAreGrantedAsFarAsThereAreStates) {
  Recurrent r({.max_sequences = 1, .max_rows = 16, .states_bytes = 3});
  const Request request = r.request(20, 9);
  const std::vector<TokenId> answer = testing::expected_answer(request, 0, kContextLen).tokens;
  r.core->speculate(std::make_unique<Scripted>([&](size_t n) {
                      return std::vector<TokenId>(answer.begin() + static_cast<std::ptrdiff_t>(n), answer.end());
                    }),
                    8);
  r.run(request);
  EXPECT_GT(r.n_steps, 3);
  EXPECT_LT(r.n_steps, 9);
}

TEST(ResumePoints, TwoStatesAreEnoughAndOneIsRefused) {
  Recurrent r({.max_sequences = 3, .states_bytes = 2});
  for (int i = 0; i < 2; ++i) {
    Request choices = r.request(33, 6);
    choices.n = 3;
    r.run(choices);
  }
  auto fake = std::make_unique<FakeModel>(kContextLen, 0, 0, true);
  const int64_t bytes = fake->facts().state_bytes;
  const auto refused = Engine::create(std::move(fake), nullptr, r.stream, {.states_bytes = bytes}, r.clock);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().where, "states_bytes");
}

// Beside a count of its own: what each prompt shares with an earlier one, and where snapshots lie.
TEST(ResumePoints, CountsWhatSnapshotsSpareAndWhatTheirLackCosts) {
  Recurrent r({.max_sequences = 2, .states_bytes = 40, .state_step = 16});
  int64_t n_hits = 0, n_again = 0;
  struct Asked {
    int prompt_len, changed;  // the token from which it is another; -1: none
  };
  for (const Asked& asked :
       {Asked{60, -1}, Asked{60, 50}, Asked{60, 30}, Asked{60, 10}, Asked{40, -1}, Asked{60, -1}}) {
    Request request = r.request(asked.prompt_len, 1);
    if (asked.changed >= 0) request.prompt[static_cast<size_t>(asked.changed)] = TokenId{63};
    const bool is_first = n_hits == 0 && asked.changed < 0;
    const int n_known = is_first ? 0 : asked.changed >= 0 ? asked.changed : asked.prompt_len - 1;
    // At multiples of 16, and before the last token of the prompt that was asked before.
    const bool is_again = !is_first && asked.changed < 0 && asked.prompt_len == 60;
    const int n_found = is_again ? 59 : n_known / 16 * 16;
    EXPECT_EQ(r.run(request), n_found) << asked.prompt_len << ' ' << asked.changed;
    n_hits += n_found > 0;
    n_again += n_known - n_found;
  }
  const EngineStats stats = r.core->stats();
  EXPECT_EQ(stats.n_snapshot_hits, n_hits);
  EXPECT_EQ(stats.tokens_without_snapshot, n_again);
  EXPECT_EQ(stats.states_total, 40);
  EXPECT_EQ(stats.states_in_use, 0);
  EXPECT_EQ(stats.states_free + stats.states_cached, 40);
  EXPECT_EQ(stats.states_cached, stats.n_snapshots);
  EXPECT_EQ(stats.state_bytes, r.model->facts().state_bytes);
}

TEST(ResumePoints, ADraftModelThatHasThemIsRefused) {
  Recurrent r;
  const auto refused = DraftModel::create(std::make_unique<FakeModel>(kContextLen, 0, 0, true), r.stream,
                                          {.block_len = 8, .kv_bytes = 1 << 20});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace ibid
