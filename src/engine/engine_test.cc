#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "engine/engine_size.h"
#include "fake_model.h"

namespace ibid {
namespace {

using testing::FakeModel;

struct Fixture {
  explicit Fixture(EngineOptions options = {}, int32_t context_len = 64, int n_blocks = 64) {
    auto fake = std::make_unique<FakeModel>(context_len);
    model = fake.get();
    options.kv_dtype = DType::kF32;
    options.kv_bytes = n_blocks * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
    core = Engine::create(std::move(fake), nullptr, stream, options, clock).value();
  }
  Request request(int prompt_len, int max_tokens, uint64_t seed = 1) {
    Request r;
    r.id = RequestId{next_id++};
    for (int i = 0; i < prompt_len; ++i) {
      r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(seed, static_cast<uint64_t>(i)) % 63)});
    }
    r.max_tokens = max_tokens;
    r.sampling.seed = seed;
    r.sampling.ignore_eos = true;
    return r;
  }
  std::vector<Output> drain() {
    std::vector<Output> out;
    while (core->step(out)) {
    }
    return out;
  }
  static std::vector<TokenId> tokens_of(const std::vector<Output>& outputs, RequestId id, int32_t choice = 0) {
    std::vector<TokenId> out;
    for (const Output& o : outputs) {
      if (o.request != id || o.choice != choice) continue;
      for (const TokenRecord& t : o.tokens) out.push_back(t.chosen.token);
    }
    return out;
  }

  ThreadTeam team{1};
  Stream stream{team};
  ManualClock clock;
  FakeModel* model = nullptr;
  std::unique_ptr<Engine> core;
  uint64_t next_id = 1;
};

// The row of one token is invalid, e.g. because a weight overflowed.
class OverflowingModel final : public ForwardPass {
 public:
  static constexpr TokenId kBad{13};
  const ModelFacts& facts() const override { return model_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    model_.run(batch, kv, logits, hidden);
    for (int32_t row = 0; row < batch.n_rows; ++row) {
      if (batch.tokens[batch.logit_rows[row]] == kBad)
        logits.row_as<float>(row)[5] = std::numeric_limits<float>::infinity();
    }
  }

 private:
  FakeModel model_{64};
};

TEST(Engine, UnsoundPromptRowEndsAllChoicesOfItsRequestOnly) {
  Fixture f;
  EngineOptions options{.step_tokens = 8, .max_sequences = 4};
  options.kv_dtype = DType::kF32;
  auto model = std::make_unique<OverflowingModel>();
  options.kv_bytes = 64 * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
  f.core = Engine::create(std::move(model), nullptr, f.stream, options, f.clock).value();
  Request bad = f.request(20, 5);
  for (TokenId& t : bad.prompt) t = t == OverflowingModel::kBad ? TokenId{14} : t;
  Request good = bad;
  good.id = RequestId{77};
  bad.prompt[12] = OverflowingModel::kBad;
  bad.n = 3;
  bad.prompt_logprobs = good.prompt_logprobs = 2;
  good.max_tokens = 0;
  ASSERT_TRUE(f.core->submit(bad).ok());
  ASSERT_TRUE(f.core->submit(good).ok());
  int n_failed = 0, n_right = 0;
  for (const Output& o : f.drain()) {
    if (!o.finished) continue;
    if (o.request == good.id) n_right += o.reason == FinishReason::kLength;
    if (o.request == bad.id) n_failed += o.reason == FinishReason::kError && o.error().kind == ErrorKind::kUnavailable;
  }
  EXPECT_EQ(n_failed, 3);
  EXPECT_EQ(n_right, 1);
  EXPECT_EQ(f.core->cache().pool().n_in_use(), 0);
  f.core->self_check();
}

TEST(Engine, ARequestWithoutRoomForItsTokensIsRefusedAndNothingIsKept) {
  Fixture f;
  const Status s = f.core->submit(f.request(65, 1));
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(s.error().where, "prompt");
  EXPECT_EQ(f.core->stats().n_waiting, 0);
}

TEST(Engine, BadFieldsAreNamed) {
  Fixture f;
  const auto where = [&f](auto&& change) {
    Request r = f.request(4, 4);
    change(r);
    const Status s = f.core->submit(std::move(r));
    EXPECT_FALSE(s.ok());
    EXPECT_GT(s.error().message.size(), 20u);
    return s.error().where;
  };
  EXPECT_EQ(where([](Request& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(where([](Request& r) { r.prompt[2] = TokenId{64}; }), "prompt");
  EXPECT_EQ(where([](Request& r) { r.prompt[2] = TokenId{-1}; }), "prompt");
  EXPECT_EQ(where([](Request& r) { r.n = 1000; }), "n");
  EXPECT_EQ(where([](Request& r) { r.max_tokens = -7; }), "max_tokens");
  EXPECT_EQ(where([](Request& r) { r.sampling.min_tokens = 5; }), "min_tokens");
  EXPECT_EQ(where([](Request& r) { r.prompt_logprobs = 65; }), "prompt_logprobs");
  EXPECT_EQ(where([](Request& r) { r.stops = StopSet::compile({"x"}).value(); }), "stop");
  EXPECT_FALSE(where([](Request& r) { r.sampling.top_p = 7; }).empty());
}

TEST(Engine, ARunningIdIsNotTakenTwice) {
  Fixture f;
  Request r = f.request(4, 4);
  ASSERT_TRUE(f.core->submit(r).ok());
  EXPECT_FALSE(f.core->submit(r).ok());
  f.drain();
  EXPECT_TRUE(f.core->submit(r).ok());
}

TEST(Engine, ChoiceIIsTheRequestWithSeedPlusI) {
  Fixture f;
  Request r = f.request(10, 12, 5);
  r.n = 3;
  ASSERT_TRUE(f.core->submit(r).ok());
  const auto together = f.drain();
  for (int32_t i = 0; i < 3; ++i) {
    Fixture solo;
    Request one = r;
    one.n = 1;
    one.sampling.seed += static_cast<uint64_t>(i);
    ASSERT_TRUE(solo.core->submit(one).ok());
    EXPECT_EQ(Fixture::tokens_of(together, r.id, i), Fixture::tokens_of(solo.drain(), r.id));
  }
}

// Row B7: a request that is preempted at any step k gives the same answer afterwards.
TEST(Engine, ARequestStoppedAtAnyStepGoesOnAsIfNothingHadHappened) {
  Fixture undisturbed({.step_tokens = 16, .max_sequences = 4});
  const Request r = undisturbed.request(40, 15);
  ASSERT_TRUE(undisturbed.core->submit(r).ok());
  const auto expected = Fixture::tokens_of(undisturbed.drain(), r.id);
  ASSERT_EQ(expected.size(), 15u);
  for (int k = 0; k < 18; ++k) {
    for (const bool cache : {false, true}) {
      Fixture f({.step_tokens = 16, .max_sequences = 4, .prefix_cache = cache});
      ASSERT_TRUE(f.core->submit(r).ok());
      std::vector<Output> out;
      for (int i = 0; i < k; ++i) f.core->step(out);
      EXPECT_EQ(f.core->preempt(r.id), k > 0 && k < 17);
      while (f.core->step(out)) {
      }
      EXPECT_EQ(Fixture::tokens_of(out, r.id), expected) << "stopped after step " << k;
      EXPECT_TRUE(f.model->faults().empty());
    }
  }
}

// Row C4: a step writes one position for each token that it computes, and samples one next token per answer.
TEST(Engine, TheCacheGrowsByOnePositionForEachToken) {
  Fixture f({.block_len = 8, .step_tokens = 16, .max_sequences = 4});
  ASSERT_TRUE(f.core->submit(f.request(10, 20)).ok());
  std::vector<Output> out;
  f.core->step(out);
  for (int n_computed = 11; n_computed < 10 + 20; ++n_computed) {
    f.core->step(out);
    ASSERT_EQ(f.core->last_step().size(), 1u);
    EXPECT_EQ(f.core->last_step()[0].n_tokens, 1);
    if (f.core->stats().n_running > 0) {
      EXPECT_EQ(f.core->stats().blocks_in_use, (n_computed + 7) / 8);
    }
  }
}

// Row P4: a running sequence wastes less than one block, and no block is reserved in advance.
TEST(Engine, ASequenceHoldsBlocksForItsTokensAndOneMore) {
  Fixture f({.block_len = 8, .step_tokens = 32, .max_sequences = 4});
  ASSERT_TRUE(f.core->submit(f.request(16, 40)).ok());
  std::vector<Output> out;
  f.core->step(out);
  EXPECT_EQ(f.core->stats().blocks_in_use, 3);
}

// Row P11.
TEST(Engine, TenThousandAbortsReturnEveryBlock) {
  Fixture f({.step_tokens = 32, .max_sequences = 8, .prefix_cache = false}, 64, 24);
  std::mt19937_64 random(3);
  std::vector<Output> out;
  int64_t n_ended = 0;
  for (int i = 0; i < 10000; ++i) {
    Request r = f.request(1 + static_cast<int>(random() % 40), 20, random());
    r.n = 1 + static_cast<int32_t>(random() % 3);
    const RequestId id = r.id;
    const int32_t n = r.n;
    ASSERT_TRUE(f.core->submit(std::move(r)).ok());
    for (uint64_t k = random() % 6; k > 0; --k) f.core->step(out);
    f.core->cancel(id);
    f.core->step(out);
    n_ended += n;
  }
  f.drain();
  const EngineStats s = f.core->stats();
  EXPECT_EQ(s.blocks_free, s.blocks_total);
  EXPECT_EQ(s.n_finished, n_ended);
  EXPECT_GT(s.n_cancelled, 9000);
  EXPECT_EQ(s.n_running + s.n_waiting, 0);
  f.core->self_check();
}

// Row X6: one system prompt of 900 tokens, then 100 of the user's own: all but the first request find the 900.
TEST(Engine, ACommonSystemPromptGivesExactlyItsHitRate) {
  Fixture f({.step_tokens = 256, .max_sequences = 4}, 1024, 600);
  const Request system = f.request(900, 1, 7);
  for (int i = 0; i < 20; ++i) {
    Request r = f.request(1000, 4, 100 + static_cast<uint64_t>(i));
    std::copy(system.prompt.begin(), system.prompt.end(), r.prompt.begin());
    r.prompt[900] = TokenId{1 + i};  // so that only the system prompt is shared
    ASSERT_TRUE(f.core->submit(std::move(r)).ok());
    f.drain();
  }
  EXPECT_EQ(f.core->stats().prompt_tokens, 20 * 1000);
  EXPECT_EQ(f.core->stats().cached_tokens, 19 * 900);
}

TEST(Engine, UsageAddsUp) {
  Fixture f;
  const Request a = f.request(20, 5, 9);
  Request b = a;
  b.id = RequestId{77};
  b.n = 2;
  ASSERT_TRUE(f.core->submit(a).ok());
  f.drain();
  ASSERT_TRUE(f.core->submit(b).ok());
  int32_t n_completion = 0;
  for (const Output& o : f.drain()) {
    if (!o.finished) continue;
    EXPECT_EQ(o.usage.prompt_tokens, 20);
    EXPECT_EQ(o.usage.cached_tokens, 19);  // all but the last, whose row is needed
    EXPECT_EQ(o.timing.n_preemptions, 0);
    n_completion += o.usage.completion_tokens;
  }
  EXPECT_EQ(n_completion, 10);
  EXPECT_EQ(f.core->stats().generated_tokens, 15);
}

TEST(Engine, TimesAreInOrder) {
  Fixture f({.step_tokens = 8, .max_sequences = 4});
  ASSERT_TRUE(f.core->submit(f.request(20, 5)).ok());
  std::vector<Output> out;
  do {
    f.clock.advance(1);
  } while (f.core->step(out));
  const Timing& t = out.back().timing;
  EXPECT_EQ(t.arrived, 0);
  EXPECT_EQ(t.admitted, 1);
  EXPECT_EQ(t.first_token, 3);  // 20 tokens in pieces of 8
  EXPECT_EQ(t.last_token, 7);
}

TEST(Engine, AnEmptySupportEndsItsRequestAlone) {
  Fixture f;
  Request bad = f.request(6, 4);
  for (int32_t v = 0; v < testing::kFakeVocabSize; ++v) bad.sampling.banned.push_back(TokenId{v});
  const Request good = f.request(6, 4);
  const Status taken = f.core->submit(bad);
  ASSERT_TRUE(f.core->submit(good).ok());
  const auto out = f.drain();
  EXPECT_EQ(Fixture::tokens_of(out, good.id).size(), 4u);
  if (!taken) return;  // rejected at once: also allowed
  const auto end = std::ranges::find_if(out, [&](const Output& o) { return o.request == bad.id && o.finished; });
  ASSERT_NE(end, out.end());
  EXPECT_EQ(end->reason, FinishReason::kError);
  EXPECT_FALSE(end->error().message.empty());
  EXPECT_EQ(f.core->stats().n_failed, 1);
}

TEST(EngineSize, ACacheSmallerThanOneContextIsRefusedWithTheNumbers) {
  const FakeModel model(1000);
  EngineOptions o{.kv_bytes = 10 * KvStore::block_bytes(model.facts(), DType::kF16, 16)};
  const auto sized = size_engine(model.facts(), o);
  ASSERT_FALSE(sized.ok());
  EXPECT_NE(sized.error().message.find("holds 160 tokens and the context is 1000"), std::string::npos)
      << sized.error().message;
}

TEST(EngineSize, EveryRunningSequenceNeedsATokenAndARow) {
  const FakeModel model(64);
  EXPECT_FALSE(size_engine(model.facts(), {.step_tokens = 3, .max_sequences = 4}).ok());
  EXPECT_FALSE(size_engine(model.facts(), {.max_sequences = 4, .max_rows = 3}).ok());
  EXPECT_FALSE(size_engine(model.facts(), {.max_sequences = 0}).ok());
  const auto sized = size_engine(model.facts(), {.max_sequences = 8});
  ASSERT_TRUE(sized.ok());
  EXPECT_EQ(sized->max_rows, 8);
  EXPECT_EQ(sized->kv_bytes, 2 * 4 * KvStore::block_bytes(model.facts(), DType::kF16, 16));
}

// Plan and settle with 64 answers running, in microseconds a step.
TEST(SlowEngine, SchedulingSixtyFourAnswersTakesLessThanAHundredMicroseconds) {
  EngineOptions options{.step_tokens = 512, .max_sequences = 64};
  auto fake = std::make_unique<FakeModel>(1024);
  options.kv_dtype = DType::kF32;
  options.kv_bytes = 4096 * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
  ThreadTeam team(1);
  Stream stream(team);
  auto core = Engine::create(std::move(fake), nullptr, stream, options, steady_clock()).value();
  Fixture f;
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(core->submit(f.request(64, 900, static_cast<uint64_t>(i))).ok());
  std::vector<double> plan, settle;
  // The number of steps of the prompts depends on the clock: chunks in steps with decodes are sized by measured step
  // times.
  for (int i = 0; i < 900 && plan.size() <= 200; ++i) {
    std::vector<Output> out;
    core->step(out);
    if (core->stats().step_decode_tokens < 64) continue;
    plan.push_back(core->stats().step_plan * 1e6);
    settle.push_back(core->stats().step_settle * 1e6);
  }
  ASSERT_GT(plan.size(), 200u);
  std::ranges::sort(plan);
  std::ranges::sort(settle);
  const double plan_us = plan[plan.size() / 2], settle_us = settle[settle.size() / 2];
  printf("64 running: plan %.1f us, settle and publish %.1f us (medians)\n", plan_us, settle_us);
#ifdef NDEBUG
  EXPECT_LT(plan_us + settle_us, 100);
#endif
}

TEST(Engine, ReportsPromptProgressAfterEachStep) {
  const auto told = [](Fixture& f, bool has) {
    Request r = f.request(40, 3);
    r.reports_progress = has;
    EXPECT_TRUE(f.core->submit(r).ok());
    std::vector<int32_t> computed;
    const std::vector<Output> outputs = f.drain();
    for (const Output& o : outputs) {
      if (o.n_computed > 0) computed.push_back(o.n_computed);
    }
    return std::pair(computed, Fixture::tokens_of(outputs, r.id));
  };
  const EngineOptions options{.block_len = 8, .step_tokens = 16, .max_sequences = 4};
  Fixture f(options), other(options);
  const auto [steps, tokens] = told(f, true);
  EXPECT_EQ(steps, (std::vector<int32_t>{16, 32, 40}));
  EXPECT_EQ(tokens, told(other, false).second);
  EXPECT_TRUE(told(other, false).first.empty());
  EXPECT_EQ(told(f, true).first, (std::vector<int32_t>{40})) << "what is cached is computed already";
}

}  // namespace
}  // namespace ibid
