// Possible errors when sampling a sequence's next tokens from a step with drafts, each alone: the row, the draft, the
// sampler's state, its history, the keys after, and the places of a tree. Answers must follow from the sampler and the
// tokens only, and the fake's attention may read only the sequence's own cells.
#include <gtest/gtest.h>

#include <functional>

#include "engine/engine.h"
#include "fake_model.h"

namespace ibid {
namespace {

using testing::FakeModel;
using testing::kFakeVocabSize;

constexpr int32_t kContext = 96, kBlockLen = 8, kPlenty = 64;

TokenId wrong(TokenId right) { return TokenId{(raw(right) + 1) % kFakeVocabSize}; }

// Proposes the expected answers, by prompt. A chain is wrong only at every `wrong_each`th place of the answer; in a
// tree each place has two drafts, of which the second is right.
class Knowing final : public Proposer {
 public:
  Knowing(std::vector<Request> requests, size_t wrong_each, bool is_tree)
      : requests_(std::move(requests)), wrong_each_(wrong_each), is_tree_(is_tree) {
    for (const Request& r : requests_) answers_.push_back(testing::expected_answer(r, 0, kContext).tokens);
  }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const auto is_it = [&](const Request& r) { return std::ranges::equal(r.prompt, input.prompt); };
    const auto which = std::ranges::find_if(requests_, is_it) - requests_.begin();
    const std::vector<TokenId>& answer = answers_.at(static_cast<size_t>(which));
    int32_t parent = -1;
    for (size_t at = input.answer.size(); at < answer.size() && drafts.size() < input.max_drafts; ++at) {
      const bool is_right = (at + 1) % wrong_each_ != 0;
      if (is_tree_) drafts.add(wrong(answer[at]), parent);
      drafts.add(is_right ? answer[at] : wrong(answer[at]), parent);
      parent = drafts.size() - 1;
    }
  }

 private:
  std::vector<Request> requests_;
  size_t wrong_each_;
  bool is_tree_;
  std::vector<std::vector<TokenId>> answers_;
};

// In addition to the fake's attention checks: a draft's distance from the sequence equals its number of ancestors.
class Depths final : public ForwardPass {
 public:
  const ModelFacts& facts() const override { return fake.facts(); }
  void run(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      int32_t end = b.positions[b.query_start[s]];
      for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) {
        const auto depth = static_cast<int32_t>(b.path(i).size());
        if (depth == 0) end = b.positions[i];
        n_misplaced += b.positions[i] != end + depth;
      }
    }
    fake.run(b, kv, logits, hidden);
  }
  FakeModel fake{kContext};
  int64_t n_misplaced = 0;
};

std::vector<Request> requests(const SamplingParams& sampling, size_t n = 4) {
  std::vector<Request> out(n);
  for (size_t i = 0; i < n; ++i) {
    Request& r = out[i];
    r.id = RequestId{i + 1};
    for (uint64_t t = 0; t < 5 + 4 * i; ++t)
      r.prompt.push_back(TokenId{static_cast<int32_t>(1 + testing::mix(i, t) % 60)});
    r.max_tokens = 40;
    r.sampling = sampling;
    r.sampling.seed = 5 * i;
    r.sampling.ignore_eos = true;
  }
  return out;
}

struct Ran {
  EngineStats stats;
  int64_t n_misplaced = 0;
};

// Runs all requests in one engine with n_blocks blocks; calls `after` after each step.
Ran run(const std::vector<Request>& all, int32_t k, size_t wrong_each, bool is_tree, int32_t n_blocks = kPlenty,
        const std::function<void(const Engine&)>& after = {}) {
  ThreadTeam team(2);
  Stream stream(team);
  auto model = std::make_unique<Depths>();
  const Depths& watched = *model;
  EngineOptions options;
  options.block_len = kBlockLen;
  options.max_sequences = 4;
  options.max_rows = 80;
  options.kv_bytes = n_blocks * KvStore::block_bytes(model->facts(), options.kv_dtype, kBlockLen);
  auto engine = Engine::create(std::move(model), nullptr, stream, options, steady_clock()).value();
  if (k > 0) engine->speculate(std::make_unique<Knowing>(all, wrong_each, is_tree), k);
  std::map<RequestId, std::vector<TokenId>> said;
  for (const Request& r : all) EXPECT_TRUE(engine->submit(r).ok());
  std::vector<Output> out;
  while (engine->step(out)) {
    for (const Output& o : out) {
      for (const TokenRecord& t : o.tokens) said[o.request].push_back(t.chosen.token);
    }
    out.clear();
    if (after) after(*engine);
  }
  for (const Request& r : all)
    EXPECT_EQ(said[r.id], testing::expected_answer(r, 0, kContext).tokens) << static_cast<int>(r.id);
  EXPECT_TRUE(watched.fake.faults().empty()) << watched.fake.faults().front();
  return {engine->stats(), watched.n_misplaced};
}

constexpr size_t kNever = 1000;
constexpr bool kChain = false, kTree = true;

TEST(Verification, ATokenIsDrawnFromTheRowOfTheDraftBeforeIt) {
  const Ran ran = run(requests({.temperature = 0.8F}), 5, kNever, kChain);
  EXPECT_EQ(ran.stats.accepted_tokens, ran.stats.drafted_tokens);
}

TEST(Verification, ADraftIsTakenOverOnlyWhereItIsWhatWasDrawn) {
  const Ran ran = run(requests({.temperature = 0.8F}), 5, 2, kChain);
  EXPECT_LT(ran.stats.accepted_tokens, ran.stats.drafted_tokens);
}

TEST(Verification, ASamplersStateGoesFromDraftToDraft) {
  for (const int32_t version : {1, 2}) {
    const Ran ran = run(requests({.mirostat = version, .mirostat_tau = 2.5F, .mirostat_eta = 0.4F}), 5, kNever, kChain);
    EXPECT_EQ(ran.stats.accepted_tokens, ran.stats.drafted_tokens);
  }
}

TEST(Verification, ASamplerSeesTheDraftsBeforeIt) {
  const Ran ran =
      run(requests({.repetition_penalty = 1.6F, .presence_penalty = 1, .dry_multiplier = 1}), 5, kNever, kChain);
  EXPECT_EQ(ran.stats.accepted_tokens, ran.stats.drafted_tokens);
}

TEST(Verification, ARefusedDraftsKeysAreNoTokensOfTheSequence) {
  const auto after = [](const Engine& engine) {
    for (uint64_t id = 1; id <= 4; ++id) {
      const Sequence* s = engine.find(RequestId{id}, 0);
      if (s == nullptr || s->n_answered() == 0) continue;
      EXPECT_EQ(s->n_computed(), s->n_tokens() - 1);
    }
  };
  for (const size_t wrong_each : {size_t{1}, size_t{3}})
    run(requests({.temperature = 0.8F}), 5, wrong_each, kChain, kPlenty, after);
}

TEST(Verification, AcceptedDraftsOfATreeAreMovedToWhereTheirSequenceIs) {
  const Ran ran = run(requests({.temperature = 0.8F}), 8, kNever, kTree);
  EXPECT_GT(ran.stats.accepted_tokens, 100);
}

TEST(Verification, ADraftOfATreeStandsAtItsDepth) {
  EXPECT_EQ(run(requests({.temperature = 0.8F}), 8, 3, kTree).n_misplaced, 0);
}

// ---- drafts and room -----------------------------------------------------------------------------------------------

// The older sequence is short and could use blocks for its drafts, which the younger one holds until it ends. Without
// drafts there is room for both.
TEST(Verification, DraftsTakeBlocksFromNoSequence) {
  std::vector<Request> all = requests({.temperature = 0.8F}, 2);
  all[0].prompt.resize(4), all[0].max_tokens = 30;
  all[1].prompt.resize(9);
  while (all[1].prompt.size() < 68) all[1].prompt.push_back(TokenId{7});
  all[1].max_tokens = 4;
  constexpr int32_t kBlocks = kContext / kBlockLen;
  EXPECT_EQ(run(all, 0, 1, kChain, kBlocks).stats.n_preemptions, 0);
  const Ran ran = run(all, 28, kNever, kChain, kBlocks);
  EXPECT_EQ(ran.stats.n_preemptions, 0);
  EXPECT_GT(ran.stats.accepted_tokens, 10);
}

// A sequence that loses its blocks loses its drafts too: they continue a sequence that it no longer is.
TEST(Verification, DraftsOfAPreemptedSequenceAreDropped) {
  int64_t n_held = 0;
  const auto after = [&](const Engine& engine) {
    for (uint64_t id = 1; id <= 4; ++id) {
      const Sequence* s = engine.find(RequestId{id}, 0);
      if (s != nullptr && s->state != SequenceState::kRunning) n_held += s->drafts.size();
    }
  };
  const Ran ran = run(requests({.temperature = 0.8F}), 6, 3, kChain, kContext / kBlockLen, after);
  EXPECT_GT(ran.stats.n_preemptions, 0);
  EXPECT_EQ(n_held, 0);
}

}  // namespace
}  // namespace ibid
