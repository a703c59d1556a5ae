// The target drafts for itself over a part of its sequences: what it reads, what it leaves, which blocks it borrows,
// its cost. tests/property shows that it changes no byte of a real model.
#include "spec/model/window_proposer.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "fake_model.h"
#include "spec/proposer_chain.h"

namespace ibid {
namespace {

using testing::FakeModel;
using testing::kFakeEnd;

constexpr int32_t kContext = 320, kLen = 8;

// The target, negated after some positions of its views.
class FixedDrafts final : public ForwardPass {
 public:
  explicit FixedDrafts(int32_t wrong_one_in) : wrong_one_in_(wrong_one_in) {}
  const ModelFacts& facts() const override { return fake.facts(); }
  void run(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    fake.run(b, kv, logits, hidden);
    for (int32_t row = 0; b.places != nullptr && wrong_one_in_ > 0 && row < b.n_rows; ++row) {
      if (b.positions[b.logit_rows[row]] % wrong_one_in_ != 0) continue;
      for (float& x : std::span(logits.row_as<float>(row), testing::kFakeVocabSize)) x = -x;
    }
  }
  FakeModel fake{kContext};

 private:
  int32_t wrong_one_in_;
};

Request request(uint64_t id, int32_t n_prompt, int32_t n_answer = 40) {
  Request r;
  r.id = RequestId{id};
  for (uint64_t t = 0; t < static_cast<uint64_t>(n_prompt); ++t)
    r.prompt.push_back(TokenId{static_cast<int32_t>(1 + testing::mix(id / 100, t) % 60)});
  r.max_tokens = n_answer;
  r.sampling.seed = 7 * id;
  r.sampling.temperature = id % 2 == 0 ? 0 : 0.9F;
  r.sampling.ignore_eos = true;
  return r;
}

// An engine whose model drafts over the first 16 tokens and the last 32.
struct Drafted {
  // The proposer before the view, and an observer of the results; null: none.
  explicit Drafted(EngineOptions options = {}, int32_t wrong_one_in = 0, int32_t k = 4, bool always = true,
                   std::unique_ptr<Proposer> before = nullptr, std::unique_ptr<Proposer> following = nullptr) {
    options.block_len = kLen;
    options.max_rows = 64;
    auto model = std::make_unique<FixedDrafts>(wrong_one_in);
    fake = &model->fake;
    engine = Engine::create(std::move(model), nullptr, stream, options, steady_clock()).value();
    if (k == 0) return;
    auto made = WindowProposer::create(
        engine->seat(),
        {.n_sink = 16, .n_window = 32, .max_sequences = 4, .end_of_generation = {kFakeEnd}, .always = always});
    window = made->get();
    std::vector<std::unique_ptr<Proposer>> all;
    if (before != nullptr) all.push_back(std::move(before));
    all.push_back(*std::move(made));
    if (following != nullptr) all.push_back(std::move(following));
    engine->speculate(std::make_unique<ProposerChain>(std::move(all)), k);
  }
  // Runs until idle; calls `between` before each step.
  template <typename Between>
  void drain(const Between& between) {
    std::vector<Output> out;
    for (between(); engine->step(out); between()) {
      for (const Output& o : out) {
        for (const TokenRecord& t : o.tokens) said[{raw(o.request), o.choice}].push_back(t.chosen.token);
      }
      out.clear();
      engine->self_check();
    }
    EXPECT_TRUE(fake->faults().empty()) << fake->faults().front();
    EXPECT_EQ(engine->cache().pool().n_in_use(), 0);
  }
  void drain() {
    drain([] {});
  }
  void submit(const Request& r) { EXPECT_TRUE(engine->submit(r).ok()); }
  void expect_answer(const Request& r) {
    for (int32_t choice = 0; choice < r.n; ++choice) {
      EXPECT_EQ((said[{raw(r.id), choice}]), testing::expected_answer(r, choice, kContext).tokens) << raw(r.id);
    }
  }

  ThreadTeam team{2};
  Stream stream{team};
  FakeModel* fake = nullptr;
  std::unique_ptr<Engine> engine;
  WindowProposer* window = nullptr;
  std::map<std::pair<uint64_t, int32_t>, std::vector<TokenId>> said;
};

TEST(WindowProposer, ReadsTheSinkAndTheWindowAtTheirTruePositions) {
  Drafted g({}, 5);
  const std::vector<Request> all = {request(1, 200), request(2, 77), request(3, 49), request(4, 20)};
  for (const Request& r : all) g.submit(r);
  g.drain();
  for (const Request& r : all) g.expect_answer(r);
  EXPECT_GT(g.engine->stats().accepted_tokens, 40);
  EXPECT_LT(g.engine->stats().accepted_tokens, g.engine->stats().drafted_tokens);
  int32_t n_shared = 0, n_partial = 0;
  for (const auto& pass : g.fake->views()) {
    n_shared += pass.size() > 1;
    for (const std::vector<int32_t>& seen : pass) {
      const int32_t end = seen.back() + 1;
      const auto n_seen = static_cast<int32_t>(seen.size());
      n_partial += n_seen < end;
      // The whole sequence if it is short; else the sink and the window before the drafts, in whole blocks.
      if (end <= 48) {
        EXPECT_EQ(n_seen, end);
      }
      for (int32_t p = 0; p < std::min(16, end); ++p) EXPECT_EQ(seen[static_cast<size_t>(p)], p);
      for (int32_t p = std::max(0, end - 32); p < end; ++p)
        EXPECT_TRUE(std::ranges::binary_search(seen, p)) << p << " of " << end;
      EXPECT_LT(n_seen, 16 + 32 + kLen + 5);
    }
  }
  EXPECT_GT(n_shared, 20);
  EXPECT_GT(n_partial, 50);
}

// Drafting affects neither the reads of the sequence's next step, nor another choice, nor later hits on its blocks on
// the device or in the tier below, nor the next user of the blocks: the model itself checks each cell that it reads.
TEST(WindowProposer, ItsKeysAreNeverReadAsTheSequences) {
  for (const int32_t wrong_one_in : {0, 2, 5}) {
    EngineOptions options;
    options.max_sequences = 4;
    const auto context_blocks = int64_t{kContext / kLen};
    const int64_t block_bytes = KvStore::block_bytes(FakeModel(kContext).facts(), options.kv_dtype, kLen);
    options.kv_bytes = (context_blocks + 9) * block_bytes;
    options.host_bytes = 3 * context_blocks * block_bytes;
    Drafted g(options, wrong_one_in, 6);
    std::vector<Request> all;
    for (uint64_t i = 0; i < 12; ++i) {
      all.push_back(request(100 * (i % 3) + i, 50 + 9 * static_cast<int32_t>(i)));
      all.back().n = i % 4 == 3 ? 2 : 1;
    }
    for (const Request& r : all) g.submit(r);
    int32_t n_steps = 0;
    g.drain([&] {
      ++n_steps;
      if (n_steps % 37 == 0) g.engine->preempt(RequestId{static_cast<uint64_t>(n_steps) % 12});
    });
    for (const Request& r : all) g.expect_answer(r);
    // The answers are requested again, and found.
    const int64_t n_cached = g.engine->stats().cached_tokens;
    for (Request r : all) {
      const std::vector<TokenId>& answer = g.said[{raw(r.id), 0}];
      r.prompt.insert(r.prompt.end(), answer.begin(), answer.end());
      r.id = RequestId{raw(r.id) + 1000};
      g.submit(r);
      g.drain();
      g.expect_answer(r);
    }
    EXPECT_GT(g.engine->stats().cached_tokens - n_cached, 200);
    EXPECT_GT(g.engine->stats().n_blocks_up, 5);
    EXPECT_GT(g.engine->stats().n_preemptions, 0);
    EXPECT_GT(g.engine->stats().drafted_tokens, 200);
  }
}

// Drafts of an earlier proposer are read by the pass of the first draft; the drafts stay the same.
TEST(WindowProposer, ReadsOthersDraftsInOnePassAndDraftsTheSame) {
  struct Said {  // for a sequence of n_text tokens
    size_t n_text;
    std::vector<TokenId> drafts;
    bool operator==(const Said&) const = default;
  };
  using Log = std::map<int64_t, std::vector<Said>>;
  class Looker final : public Proposer {
   public:
    explicit Looker(Log& log) : log_(log) {}
    void propose(const ProposalInput&, Drafts&) override {}
    void propose_all(std::span<const Proposal> all) override {
      for (const Proposal& p : all)
        log_[p.input.sequence].push_back({p.input.prompt.size() + p.input.answer.size(), p.drafts->tokens});
    }

   private:
    Log& log_;
  };
  // Proposes the expected answers, wrong after some positions; a tree, of which the first path is read.
  class Knows final : public Proposer {
   public:
    explicit Knows(const std::vector<Request>& all, uint64_t wrong_one_in) : wrong_one_in_(wrong_one_in) {
      for (const Request& r : all) answers_[r.prompt] = testing::expected_answer(r, 0, kContext).tokens;
    }
    void propose(const ProposalInput& input, Drafts& drafts) override {
      const auto& answer = answers_.at({input.prompt.begin(), input.prompt.end()});
      int32_t last = -1;
      for (size_t i = input.answer.size(); i < answer.size() && drafts.size() + 1 < input.max_drafts; ++i) {
        const bool is_wrong = testing::mix(7, input.prompt.size() + i) % wrong_one_in_ == 0;
        drafts.add(is_wrong ? TokenId{1 + raw(answer[i]) % 60} : answer[i], last, 0.1F);
        const int32_t parent = std::exchange(last, drafts.size() - 1);
        drafts.add(TokenId{61}, parent, 0.05F);
      }
    }

   private:
    uint64_t wrong_one_in_;
    std::map<std::vector<TokenId>, std::vector<TokenId>> answers_;
  };
  const std::vector<Request> all = {request(1, 200), request(2, 77), request(3, 120), request(4, 20)};
  for (const uint64_t wrong_one_in : {1, 3, 1000}) {
    Log alone, beside;
    Drafted one({}, 5, 8, true, nullptr, std::make_unique<Looker>(alone));
    Drafted two({}, 5, 8, true, std::make_unique<Knows>(all, wrong_one_in), std::make_unique<Looker>(beside));
    for (Drafted* g : {&one, &two}) {
      for (const Request& r : all) g->submit(r);
      g->drain();
      for (const Request& r : all) g->expect_answer(r);
    }
    EXPECT_EQ(alone, beside) << wrong_one_in;
    EXPECT_EQ(one.window->n_spared(), 0);
    if (wrong_one_in == 1) {
      EXPECT_EQ(two.window->n_spared(), 0);
    } else {
      EXPECT_GT(two.window->n_spared(), wrong_one_in == 3 ? 4 : 30) << wrong_one_in;
      EXPECT_LT(two.window->n_passes(), one.window->n_passes()) << wrong_one_in;
    }
  }
}

// A sequence that is preempted or cancelled between its drafts and its next step leaves none of them either.
TEST(WindowProposer, CancelledSequencesLeaveNothing) {
  Drafted g({}, 3);
  int32_t n_steps = 0;
  uint64_t n_sent = 0;
  g.drain([&] {
    if (n_sent < 30 && n_steps % 5 == 0) {
      ++n_sent;
      g.submit(request(n_sent % 4 * 100 + n_sent, 60 + static_cast<int32_t>(n_sent % 4) * 30));
    }
    if (++n_steps % 7 == 0) g.engine->cancel(RequestId{n_sent % 4 * 100 + n_sent});
  });
  EXPECT_GT(g.engine->stats().n_cancelled, 5);
  EXPECT_GT(g.engine->stats().drafted_tokens, 100);
}

// A step with drafts that are never verified does the same as one without drafts: the same blocks in the same order.
TEST(WindowProposer, PutsThePoolBackAsItWas) {
  EngineOptions options;
  options.max_sequences = 3;
  options.kv_bytes = 50 * KvStore::block_bytes(FakeModel(kContext).facts(), options.kv_dtype, kLen);
  Drafted with(options), without(options, 0, 0);
  for (Drafted* g : {&with, &without}) {
    for (uint64_t i = 1; i < 9; ++i) g->submit(request(i, 30 * static_cast<int32_t>(i)));
  }
  // It drafts for all running sequences, then its drafts are removed.
  class Silent final : public Proposer {
   public:
    explicit Silent(Engine& engine) : seat_(engine.seat()) {}
    void propose(const ProposalInput& input, Drafts&) override {
      const auto n = static_cast<int32_t>(input.prompt.size() + input.answer.size());
      const TargetSeat::Loan loan = seat_.lend(*input.blocks, n - 1, 1 + n % 23);
      n_lent += loan.end - loan.n_written;
      seat_.take_back(loan);
    }
    int64_t n_lent = 0;

   private:
    TargetSeat seat_;
  };
  auto silent = std::make_unique<Silent>(*with.engine);
  const Silent& lender = *silent;
  with.engine->speculate(std::move(silent), 4);
  std::vector<Output> a, b;
  for (bool goes_on = true; goes_on;) {
    goes_on = with.engine->step(a);
    EXPECT_EQ(without.engine->step(b), goes_on);
    for (uint64_t i = 1; i < 9; ++i) {
      const Sequence* x = with.engine->find(RequestId{i}, 0);
      const Sequence* y = without.engine->find(RequestId{i}, 0);
      ASSERT_EQ(x == nullptr, y == nullptr);
      if (x != nullptr) {
        ASSERT_EQ(x->place.blocks(), y->place.blocks()) << i;
      }
    }
    ASSERT_EQ(with.engine->cache().pool().front(), without.engine->cache().pool().front());
    ASSERT_EQ(with.engine->cache().pool().n_cached(), without.engine->cache().pool().n_cached());
  }
  EXPECT_GT(lender.n_lent, 500);
}

// If all unused blocks hold prefixes, it has the rest of the sequence's own block, and no prefix is evicted for it.
TEST(WindowProposer, EvictsNothing) {
  EngineOptions options;
  options.max_sequences = 1;
  const int32_t n_blocks = kContext / kLen + 1;
  options.kv_bytes = n_blocks * KvStore::block_bytes(FakeModel(kContext).facts(), options.kv_dtype, kLen);
  Drafted g(options);
  const std::vector<Request> all = {request(1, 200), request(201, 90, 30), request(401, 70, 90)};
  for (const Request& r : all) {
    g.submit(r);
    g.drain();
    g.expect_answer(r);
  }
  BlockTable blocks;
  TargetSeat seat = g.engine->seat();
  EXPECT_EQ(g.engine->cache().pool().n_free(), 0);
  EXPECT_GT(g.engine->cache().pool().n_cached(), 30);
  EXPECT_EQ(seat.lend(blocks, 0, 8).end, 0);
  EXPECT_TRUE(blocks.empty());
}

TEST(WindowProposer, RefusesWhatItSparesNothing) {
  ThreadTeam team(1);
  Stream stream(team);
  EngineOptions options;
  options.block_len = kLen;
  const auto error_of = [&](int32_t context_len, int32_t window, const WindowOptions& of_window) {
    auto engine =
        Engine::create(std::make_unique<FakeModel>(context_len, window), nullptr, stream, options, steady_clock())
            .value();
    const auto made = WindowProposer::create(engine->seat(), of_window);
    return made ? std::string() : made.error().message;
  };
  EXPECT_EQ(error_of(320, 0, {.n_sink = 16, .n_window = 32}), "");
  EXPECT_NE(error_of(320, 64, {.n_sink = 16, .n_window = 32}).find("No layer"), std::string::npos);
  EXPECT_NE(error_of(320, 0, {.n_sink = 64, .n_window = 256}).find("all of a context"), std::string::npos);
}

// ---- time ----------------------------------------------------------------------------------------------------------

// A model on a virtual clock; rows of one sequence share their reads, as on real machines.
class Sharing final : public ForwardPass {
 public:
  struct Costs {
    double step = 2e-3, read = 4e-6,
           row = 0.4e-3;        // seconds: of a step, of a position that a sequence reads, of a token
    uint64_t wrong_one_in = 8;  // positions of views
  };
  Sharing(ManualClock& clock, const Costs& costs) : clock_(clock), costs_(costs) {
    facts_ = {.layers = {{.n_kv_heads = 1, .key_len = 8, .value_len = 8}},
              .vocab_size = 64,
              .context_len = 8192,
              .digest = "sharing",
              .rope = "none"};
  }
  const ModelFacts& facts() const override { return facts_; }
  void run(const ForwardBatch& b, std::span<const PagedKv>, const TensorView& logits, const HiddenStates&) override {
    double taken = costs_.step + costs_.row * b.n_tokens;
    for (int32_t s = 0; s < b.n_sequences; ++s) taken += costs_.read * b.kv_len[s];
    clock_.advance(taken);
    for (int32_t row = 0; row < b.n_rows; ++row) {
      float* out = logits.row_as<float>(row);
      std::fill(out, out + facts_.vocab_size, 0.0F);
      const auto position = static_cast<uint64_t>(b.positions[b.logit_rows[row]]);
      const bool is_wrong = b.places != nullptr && testing::mix(5, position) % costs_.wrong_one_in == 0;
      out[testing::mix(is_wrong ? 8 : 9, position) % 60] = 1;
    }
  }

 private:
  ManualClock& clock_;
  Costs costs_;
  ModelFacts facts_;
};

struct Timed {
  double seconds = 0;  // after the first token
  int64_t n_passes = 0;
  EngineStats stats;
};

Timed timed(int32_t n_prompt, int32_t k, const Sharing::Costs& costs = {}) {
  ManualClock clock;
  ThreadTeam team(1);
  Stream stream(team);
  EngineOptions options;
  options.max_rows = 64;
  auto engine = Engine::create(std::make_unique<Sharing>(clock, costs), nullptr, stream, options, clock).value();
  engine->measure_steps(clock);
  WindowProposer* window = nullptr;
  if (k > 0) {
    auto made = WindowProposer::create(engine->seat(), {.n_sink = 64, .n_window = 512}, clock).value();
    window = made.get();
    window->measure();
    engine->speculate(std::move(made), k);
  }
  Request r = request(2, n_prompt, 300);
  EXPECT_TRUE(engine->submit(r).ok());
  std::vector<Output> out;
  double first = 0;
  while (engine->step(out)) {
    if (first == 0 && !out.empty() && !out.front().tokens.empty()) first = clock.now();
  }
  return {clock.now() - first, window == nullptr ? 0 : window->n_passes(), engine->stats()};
}

TEST(WindowProposer, LeavesShortSequencesAlone) {
  const Timed drafted = timed(200, 4);
  EXPECT_EQ(drafted.n_passes, 0);
  EXPECT_EQ(drafted.stats.drafted_tokens, 0);
}

// If a view costs a small part of a step, its drafts pay off; if positions cost almost nothing, it is not used.
TEST(WindowProposer, PaysWhereReadingIsCostly) {
  EXPECT_LT(timed(7000, 4).seconds / timed(7000, 0).seconds, 0.75);
  const Sharing::Costs of_cheap = {.read = 1e-8, .row = 2e-3};
  const Timed cheap = timed(7000, 4, of_cheap);
  EXPECT_LT(cheap.seconds / timed(7000, 0, of_cheap).seconds, 1.03);
  EXPECT_LT(cheap.n_passes, 30);
}

// The default model's costs after 7,600 tokens, with drafts that are right four times in five, before any draft was
// observed.
TEST(WindowProposer, IsTriedAfterALongSequenceBeforeItsPriceIsKnown) {
  const Sharing::Costs costs = {.step = 6.2e-3, .read = 2.1e-6, .row = 2e-3, .wrong_one_in = 5};
  const Timed drafted = timed(7600, 8, costs);
  EXPECT_GT(drafted.stats.drafted_tokens, 100);
  EXPECT_LT(drafted.seconds / timed(7600, 0, costs).seconds, 0.9);
}

}  // namespace
}  // namespace ibid
