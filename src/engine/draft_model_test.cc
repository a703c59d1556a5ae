// A draft model in an engine: its state, its acceptance, the cost of its time. tests/property shows that it changes no
// byte.
#include "spec/model/draft_model.h"

#include <gtest/gtest.h>

#include <bit>

#include "fake_model.h"
#include "spec/proposer_chain.h"
#include "timed_model.h"

namespace ibid {
namespace {

using testing::FakeModel;
using testing::kFakeEnd;
using testing::kFakeVocabSize;
using testing::TimedEngine;
using testing::TimedModel;

constexpr int32_t kContext = 160;

// The target's logits, negated after every position that `is_contrary`.
class Contrary final : public ForwardPass {
 public:
  explicit Contrary(bool (*is_contrary)(int32_t position)) : is_contrary_(is_contrary) {}
  const ModelFacts& facts() const override { return fake.facts(); }
  void run(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    fake.run(b, kv, logits, hidden);
    for (int32_t row = 0; row < b.n_rows; ++row) {
      if (!is_contrary_(b.positions[b.logit_rows[row]])) continue;
      for (float& x : std::span(logits.row_as<float>(row), kFakeVocabSize)) x = -x;
    }
  }
  FakeModel fake{kContext};

 private:
  bool (*is_contrary_)(int32_t position);
};

DraftModelOptions drafting(bool always = true) {
  return {.block_len = 8,
          .kv_bytes = 1 << 20,
          .step_tokens = 96,
          .vocab_size = kFakeVocabSize,
          .end_of_generation = {kFakeEnd},
          .always = always};
}

std::vector<Request> requests() {
  std::vector<Request> out(6);
  for (size_t i = 0; i < out.size(); ++i) {
    Request& r = out[i];
    r.id = RequestId{i + 1};
    for (uint64_t t = 0; t < 3 + 17 * i; ++t)
      r.prompt.push_back(TokenId{static_cast<int32_t>(1 + testing::mix(i, t) % 60)});
    r.max_tokens = 40;
    r.sampling.seed = 7 * i;
    r.sampling.temperature = i == 0 ? 0 : 0.9F;
    r.sampling.ignore_eos = true;
  }
  out[1].sampling.top_p = 0.8F;
  out[2].sampling.frequency_penalty = 0.6F;
  out[2].sampling.repetition_penalty = 1.4F;
  out[3].sampling.mirostat = 2;
  out[3].sampling.mirostat_tau = 3;
  out[4].sampling.no_repeat_ngram = 3;
  out[4].sampling.dry_multiplier = 0.8F;
  out[5].sampling.xtc_probability = 0.5F;
  out[5].sampling.xtc_threshold = 0.05F;
  return out;
}

struct Ran {
  EngineStats stats;
  std::vector<std::string> faults;
};

// Runs all requests in one engine and compares them with the expected answers.
Ran run(const std::vector<Request>& all, bool (*is_contrary)(int32_t), int32_t k, int32_t n_places,
        const DraftModelOptions& options = drafting()) {
  ThreadTeam team(2);
  Stream stream(team);
  EngineOptions of_engine;
  of_engine.block_len = 8;
  of_engine.max_sequences = n_places;
  of_engine.max_rows = 64;
  auto engine =
      Engine::create(std::make_unique<FakeModel>(kContext), nullptr, stream, of_engine, steady_clock()).value();
  auto draft = std::make_unique<Contrary>(is_contrary);
  const Contrary& watched = *draft;
  auto proposer = DraftModel::create(std::move(draft), stream, options).value();
  const DraftModel& model = *proposer;
  engine->speculate(std::move(proposer), k);
  std::map<RequestId, std::vector<TokenId>> said;
  for (const Request& r : all) EXPECT_TRUE(engine->submit(r).ok());
  std::vector<Output> out;
  while (engine->step(out)) {
    for (const Output& o : out) {
      for (const TokenRecord& t : o.tokens) said[o.request].push_back(t.chosen.token);
    }
    out.clear();
    model.cache().self_check();
    engine->self_check();
  }
  for (const Request& r : all)
    EXPECT_EQ(said[r.id], testing::expected_answer(r, 0, kContext).tokens) << static_cast<int>(r.id);
  EXPECT_EQ(model.cache().pool().n_in_use(), 0);
  Ran ran{engine->stats(), watched.fake.faults()};
  EXPECT_TRUE(ran.faults.empty()) << ran.faults.front();
  return ran;
}

// With any sampler: it draws with the request's own noise, history and state.
TEST(DraftModel, TargetAsItsOwnDraftModelIsAlwaysRight) {
  for (const int32_t k : {1, 3, 8}) {
    for (const int32_t n_places : {1, 4}) {
      const Ran ran = run(
          requests(), [](int32_t) { return false; }, k, n_places);
      EXPECT_GT(ran.stats.drafted_tokens, 100);
      EXPECT_EQ(ran.stats.accepted_tokens, ran.stats.drafted_tokens) << k << " " << n_places;
    }
  }
}

TEST(DraftModel, AContraryOneIsNeverRight) {
  std::vector<Request> greedy = requests();
  for (Request& r : greedy) r.sampling = {.temperature = 0, .ignore_eos = true};
  const Ran ran = run(
      greedy, [](int32_t) { return true; }, 4, 4);
  EXPECT_GT(ran.stats.drafted_tokens, 100);
  EXPECT_EQ(ran.stats.accepted_tokens, 0);
}

// After rejected drafts it reads the actual sequence: it is wrong after every fifth position only, so its drafts are
// right up to that one.
TEST(DraftModel, SeesTheSequenceAfterWhatWasRefused) {
  for (const int32_t k : {1, 2, 5, 9}) {
    Request r = requests()[0];
    int64_t n_accepted = 0;
    for (int32_t n = static_cast<int32_t>(r.prompt.size()) + 1, left = r.max_tokens - 1; left > 0;) {
      int32_t a = 0;  // the first draft is drawn after position n - 1
      while (a < std::min(k, left - 1) && (n - 1 + a) % 5 != 4) ++a;
      n_accepted += a;
      n += a + 1, left -= a + 1;
    }
    const Ran ran = run(
        {r}, [](int32_t position) { return position % 5 == 4; }, k, 1);
    EXPECT_EQ(ran.stats.accepted_tokens, n_accepted) << k;
  }
}

// ---- windows -------------------------------------------------------------------------------------------------------

// The logits that FakeModel gives after a sequence.
uint64_t mark_of(std::span<const float> row) {
  uint64_t out = 0;
  for (const float x : row.subspan(1, 8)) out = testing::mix(out, std::bit_cast<uint32_t>(x));
  return out;
}

// Predicts from the last token only, so a draft model that reads part of the sequence is as good as one that reads all
// of it; records each sequence that was read before a row.
class ShortSighted final : public ForwardPass {
 public:
  explicit ShortSighted(int32_t context_len) : fake(context_len) {}
  const ModelFacts& facts() const override { return fake.facts(); }
  void run(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    fake.run(b, kv, logits, hidden);
    for (int32_t row = 0; row < b.n_rows; ++row) {
      marks.insert(mark_of(std::span(logits.row_as<float>(row), kFakeVocabSize)));
      const auto last = static_cast<uint64_t>(raw(b.tokens[b.logit_rows[row]]));
      testing::fake_logits(testing::mix(3, last), {logits.row_as<float>(row), kFakeVocabSize});
      n_longest = std::max(n_longest, b.positions[b.logit_rows[row]] + 1);
    }
  }
  FakeModel fake;
  std::set<uint64_t> marks;
  int32_t n_longest = 0;
};

struct Windowed {
  EngineStats stats;
  int64_t n_computed = 0;
  int32_t n_longest = 0;
  std::set<uint64_t> marks;
  std::vector<TokenId> said;  // the tokens of all answers
};

// Sequences of up to 600 tokens, by a draft model of 128.
Windowed run_windowed(const std::vector<Request>& all, int32_t n_sink, int32_t n_window, int32_t k) {
  constexpr int32_t kLong = 640, kShort = 128;
  ThreadTeam team(2);
  Stream stream(team);
  EngineOptions of_engine;
  of_engine.block_len = 8;
  of_engine.max_rows = 64;
  auto engine =
      Engine::create(std::make_unique<ShortSighted>(kLong), nullptr, stream, of_engine, steady_clock()).value();
  auto draft = std::make_unique<ShortSighted>(kShort);
  const ShortSighted& watched = *draft;
  DraftModelOptions options = drafting();
  options.n_sink = n_sink, options.n_window = n_window;
  auto proposer = DraftModel::create(std::move(draft), stream, options).value();
  const DraftModel& model = *proposer;
  engine->speculate(std::move(proposer), k);
  for (const Request& r : all) EXPECT_TRUE(engine->submit(r).ok());
  std::vector<TokenId> said;
  std::vector<Output> out;
  while (engine->step(out)) {
    for (const Output& o : out) {
      for (const TokenRecord& t : o.tokens) said.push_back(t.chosen.token);
    }
    out.clear();
    model.cache().self_check();
    engine->self_check();
  }
  EXPECT_EQ(model.cache().pool().n_in_use(), 0);
  EXPECT_TRUE(watched.fake.faults().empty()) << watched.fake.faults().front();
  return {engine->stats(), model.n_computed_tokens(), watched.n_longest, watched.marks, std::move(said)};
}

TEST(DraftModel, ReadsTheBeginAndTheEndOfALongSequence) {
  for (const int32_t n_sink : {0, 5, 8}) {
    for (const int32_t n_window : {1, 7, 24}) {
      std::vector<Request> all = requests();
      for (Request& r : all) r.max_tokens = 150;
      const Windowed ran = run_windowed(all, n_sink, n_window, 1 + n_window % 5);
      EXPECT_GT(ran.stats.drafted_tokens, 300);
      EXPECT_EQ(ran.stats.accepted_tokens, ran.stats.drafted_tokens) << n_sink << " " << n_window;
      EXPECT_LE(ran.n_longest, n_sink + 2 * n_window + 5);
    }
  }
}

// Each row of the draft model reads the sink and n_window to twice as many tokens, and nothing else.
TEST(DraftModel, ReadsNothingButItsWindow) {
  constexpr int32_t kSink = 4, kWindow = 24, kDrafts = 3;
  Request r = requests()[0];
  for (int32_t i = 0; i < 500; ++i) r.prompt.push_back(TokenId{1 + i * i % 61});
  r.max_tokens = 90;
  const Windowed ran = run_windowed({r}, kSink, kWindow, kDrafts);
  EXPECT_GT(ran.stats.accepted_tokens, 60);
  EXPECT_LT(ran.n_computed, kSink + kWindow + 90 + 4 * kWindow);  // and each token again when the window moves
  std::vector<TokenId> text = r.prompt;
  text.insert(text.end(), ran.said.begin(), ran.said.end());
  std::set<uint64_t> allowed;
  std::vector<float> row(kFakeVocabSize);
  for (size_t end = r.prompt.size(); end <= text.size(); ++end) {
    for (size_t begin = end - kWindow; begin + 2 * kWindow + kDrafts >= end; --begin) {
      uint64_t hash = testing::mix(77, 0);
      for (size_t i = 0; i < kSink; ++i) hash = testing::mix(hash, static_cast<uint64_t>(raw(text[i])));
      for (size_t i = begin; i < end; ++i) hash = testing::mix(hash, static_cast<uint64_t>(raw(text[i])));
      testing::fake_logits(hash, row);
      allowed.insert(mark_of(row));
    }
  }
  EXPECT_TRUE(std::ranges::includes(allowed, ran.marks));
}

TEST(DraftModel, AWindowFitsItsContext) {
  ThreadTeam team(1);
  Stream stream(team);
  DraftModelOptions options = drafting();
  options.n_sink = 8;
  for (const int32_t n_window : {44, 45}) {  // 8 + 2 * 44 + 64 = 160
    options.n_window = n_window;
    EXPECT_EQ(DraftModel::create(std::make_unique<FakeModel>(kContext), stream, options).ok(), n_window == 44);
  }
}

// ---- time ----------------------------------------------------------------------------------------------------------

// Costs as fractions of the target's.
testing::LinearCost cost_of(double part) {
  testing::LinearCost c;
  c.step *= part, c.prompt *= part, c.decode *= part, c.prompt_read *= part, c.decode_read *= part;
  return c;
}

struct Timed {
  double seconds = 0;
  double longest_itl = 0;
  int64_t n_draft_tokens = 0;
  EngineStats stats;
};

int32_t any(int32_t position) { return static_cast<int32_t>(testing::mix(9, static_cast<uint64_t>(position)) % 60); }
int32_t other(int32_t position) { return (any(position) + 1) % 60; }

Timed timed(int32_t n_streams, int32_t n_prompt, int32_t n_answer, TimedModel::Next next, double part, int32_t k = 8,
            double max_itl = 0) {
  EngineOptions options;
  options.max_rows = 128;
  options.max_itl = max_itl;
  TimedEngine t(options, {}, 8192, any);
  ThreadTeam team(1);
  Stream stream(team);
  DraftModelOptions of_draft = drafting(false);
  of_draft.kv_bytes = 64 << 20;
  of_draft.step_tokens = 1024;
  std::unique_ptr<DraftModel> draft;
  const DraftModel* model = nullptr;
  if (k > 0) {
    draft =
        DraftModel::create(std::make_unique<TimedModel>(t.clock, cost_of(part), 8192, next), stream, of_draft, t.clock)
            .value();
    model = draft.get();
    t.engine->speculate(std::move(draft), k);
  }
  for (int32_t i = 0; i < n_streams; ++i) t.submit(n_prompt, n_answer);
  t.drain();
  const std::vector<double> gaps = t.gaps(0.2);
  return {t.clock.now(), gaps.empty() ? 0 : gaps.back(), model == nullptr ? 0 : model->n_computed_tokens(),
          t.engine->stats()};
}

TEST(DraftModel, RightAndCheapModelPays) {
  const double plain = timed(1, 40, 200, any, 0.1, 0).seconds;
  EXPECT_LT(timed(1, 40, 200, any, 0.05).seconds / plain, 0.75);
  EXPECT_LT(timed(1, 40, 200, any, 0.1).seconds / plain, 0.85);
}

// Row S27 for a proposer that takes time itself: useless, costly, or both; few streams and many; many answers in
// succession, so the pair's statistics are forgotten and learned again.
TEST(DraftModel, IsNeverSlowerThanNone) {
  for (const int32_t n_streams : {1, 2, 8, 32}) {
    const int32_t n_prompt = n_streams == 1 ? 400 : 12;
    const double plain = timed(n_streams, n_prompt, 200, any, 1, 0).seconds;
    for (const double part : {0.05, 0.3, 1.0}) {
      EXPECT_LE(timed(n_streams, n_prompt, 200, other, part).seconds / plain, 1.03) << n_streams << " wrong " << part;
      EXPECT_LE(timed(n_streams, n_prompt, 200, any, part).seconds / plain, 1.03) << n_streams << " right " << part;
    }
  }
}

// The cost of a draft and its row is considered before drafting, not only once the sequence is in debt.
TEST(DraftModel, CostlyModelIsNotAsked) {
  for (const double part : {0.5, 0.7, 1.0}) EXPECT_EQ(timed(1, 2, 200, any, part).stats.drafted_tokens, 0) << part;
}

TEST(DraftModel, ReadsALongPromptInPieces) {
  const Timed plain = timed(1, 900, 250, any, 0.05, 0), with = timed(1, 900, 250, any, 0.05);
  EXPECT_GT(with.n_draft_tokens, 900);
  EXPECT_GT(with.stats.accepted_tokens, 50);
  EXPECT_LE(with.longest_itl, 2.5 * plain.longest_itl);  // eight drafts make 2.2 of it
  EXPECT_LT(with.seconds, plain.seconds);
}

// A model whose first pass loads its weights from a disk.
class ColdModel final : public ForwardPass {
 public:
  ColdModel(ManualClock& clock, std::unique_ptr<ForwardPass> model) : clock_(clock), model_(std::move(model)) {}
  const ModelFacts& facts() const override { return model_->facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    clock_.advance(std::exchange(seconds_, 0));
    model_->run(batch, kv, logits, hidden);
  }

 private:
  ManualClock& clock_;
  std::unique_ptr<ForwardPass> model_;
  double seconds_ = 5;
};

TEST(DraftModel, IsNotGivenUpForItsFirstPass) {
  const double plain = timed(1, 40, 200, any, 0.1, 0).seconds;
  EngineOptions of_engine;
  of_engine.max_rows = 128;
  TimedEngine t(of_engine, {}, 8192, any);
  ThreadTeam team(1);
  Stream stream(team);
  DraftModelOptions options = drafting(false);
  options.kv_bytes = 64 << 20;
  auto model = std::make_unique<ColdModel>(t.clock, std::make_unique<TimedModel>(t.clock, cost_of(0.05), 8192, any));
  auto draft = DraftModel::create(std::move(model), stream, options, t.clock).value();
  draft->measure();
  EXPECT_EQ(draft->cache().pool().n_free(), draft->cache().pool().n_total());
  t.engine->speculate(std::move(draft), 8);
  const double begin = t.clock.now();
  t.submit(40, 200);
  t.drain();
  EXPECT_LT((t.clock.now() - begin) / plain, 0.75);
}

// A short answer cannot pay for reading its prompt.
TEST(DraftModel, LeavesALongPromptWithAShortAnswerAlone) { EXPECT_LT(timed(1, 400, 12, any, 0.1).n_draft_tokens, 100); }

TEST(DraftModel, KeepsWithinTheTimeBetweenTokens) {
  for (const double bound : {0.005, 0.007}) {
    const Timed with = timed(1, 40, 400, any, 0.1, 8, bound);
    EXPECT_LE(with.longest_itl, bound * 1.05);
    EXPECT_GT(with.stats.drafted_tokens, 50);
  }
}

// ---- beside others -------------------------------------------------------------------------------------------------

// Keys and values computed for drafting depend on the sequence's prefix: they are reused by the same tenant only.
TEST(DraftModel, FindsSequencesOfItsOwnTenantAlone) {
  ThreadTeam team(1);
  Stream stream(team);
  auto model = DraftModel::create(std::make_unique<FakeModel>(kContext), stream, drafting()).value();
  const auto sampler = Sampler::compile({.temperature = 0}, kFakeVocabSize, {}, 1).value();
  const std::vector<TokenId> prompt(64, TokenId{5});
  const auto n_computed = [&](int64_t sequence, std::string_view scope) {
    const int64_t before = model->n_computed_tokens();
    for (int32_t n = 63; n <= 64; ++n) {  // computed blocks are published when the sequence has gone on
      Drafts drafts;
      model->begin_step({});
      model->propose({.sequence = sequence,
                      .prompt = std::span(prompt).first(static_cast<size_t>(n)),
                      .max_drafts = 1,
                      .sampler = sampler.get(),
                      .state = sampler->initial_state(),
                      .scope = scope},
                     drafts);
      EXPECT_EQ(drafts.size(), 1);
    }
    model->forget(sequence);
    return model->n_computed_tokens() - before;
  };
  EXPECT_EQ(n_computed(1, "a"), 64);
  EXPECT_LT(n_computed(2, "a"), 20);
  EXPECT_EQ(n_computed(3, "b"), 64);
  EXPECT_EQ(n_computed(4, {}), 64);
  EXPECT_EQ(n_computed(5, {}), 64);
}

// Predicts one token, with this probability.
class Sure final : public Proposer {
 public:
  explicit Sure(float likely) : likely_(likely) {}
  void propose(const ProposalInput&, Drafts& drafts) override { drafts.add(TokenId{3}, -1, likely_); }

 private:
  float likely_;
};

TEST(DraftModel, LeavesLikelierDraftsOfOthersInPlace) {
  ThreadTeam team(1);
  Stream stream(team);
  const auto sampler = Sampler::compile({.temperature = 0}, kFakeVocabSize, {}, 1).value();
  const std::vector<TokenId> prompt(10, TokenId{5});
  for (const float likely : {0.05F, 0.95F}) {
    DraftModelOptions options = drafting(false);
    std::vector<std::unique_ptr<Proposer>> all;
    all.push_back(std::make_unique<Sure>(likely));
    all.push_back(DraftModel::create(std::make_unique<FakeModel>(kContext), stream, options).value());
    ProposerChain chain(std::move(all));
    Drafts drafts;
    chain.begin_step({});
    chain.propose(
        {.sequence = 1, .prompt = prompt, .max_drafts = 4, .sampler = sampler.get(), .state = sampler->initial_state()},
        drafts);
    EXPECT_EQ(drafts.tokens.front() == TokenId{3}, likely > 0.5F);
  }
}

}  // namespace
}  // namespace ibid
