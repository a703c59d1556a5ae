// A ledger's phases add up to the elapsed time, whatever happens to the request.
#include "engine/state/ledger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "engine/engine.h"
#include "fake_model.h"

namespace ibid {
namespace {

// Time passes with each reading, as it does in a step.
class TickingClock final : public Clock {
 public:
  double now() const override { return now_ += static_cast<double>(random_() % 1000) * 1e-5; }

 private:
  mutable std::mt19937_64 random_{1};
  mutable double now_ = 1000;
};

struct Told {
  Timing timing;
  double heard = 0;
};

// `n_blocks` determines how often requests are preempted.
std::vector<Told> live(int32_t n_requests, int32_t n_blocks) {
  const TickingClock clock;
  ThreadTeam team(1);
  Stream stream(team);
  auto model = std::make_unique<testing::FakeModel>(64);
  EngineOptions options{.step_tokens = 40, .max_sequences = 8, .max_waiting = 1 << 20};
  options.block_len = 8;
  options.kv_dtype = DType::kF32;
  options.kv_bytes = n_blocks * KvStore::block_bytes(model->facts(), options.kv_dtype, 8);
  auto engine = Engine::create(std::move(model), nullptr, stream, options, clock).value();
  std::mt19937_64 random(7);
  std::vector<Told> out;
  std::vector<Output> outputs;
  for (int32_t i = 1, n_live = 0; i <= n_requests || n_live > 0;) {
    for (; i <= n_requests && n_live < 24 && random() % 3 != 0; ++i) {
      Request r;
      r.id = RequestId{static_cast<uint64_t>(i)};
      for (uint64_t k = 1 + random() % 40; k > 0; --k) r.prompt.push_back(TokenId{static_cast<int32_t>(random() % 64)});
      r.max_tokens = static_cast<int32_t>(random() % 12);
      r.n = 1 + static_cast<int32_t>(random() % 5 == 0);
      n_live +=
          engine->submit(std::move(r)).ok() ? 1 + (engine->find(RequestId{static_cast<uint64_t>(i)}, 1) != nullptr) : 0;
    }
    if (random() % 20 == 0) engine->cancel(RequestId{1 + random() % static_cast<uint64_t>(i)});
    engine->step(outputs);
    const double heard = clock.now();
    for (const Output& o : outputs) {
      if (!o.finished) continue;
      --n_live;
      out.push_back({o.timing, heard});
    }
    outputs.clear();
  }
  return out;
}

TEST(Ledger, AddsUpToTheTimeThatPassedForTenThousandRequests) {
  std::map<Phase, double> sums;
  size_t n = 0;
  for (const int32_t n_blocks : {12, 64}) {
    for (const Told& told : live(5000, n_blocks)) {
      const Ledger& ledger = told.timing.ledger;
      double sum = 0;
      for (size_t i = 0; i < ledger.seconds.size(); ++i) {
        EXPECT_GE(ledger.seconds[i], -1e-9) << kPhaseNames[i];
        sum += ledger.seconds[i];
        sums[static_cast<Phase>(i)] += ledger.seconds[i];
      }
      EXPECT_NEAR(sum, ledger.until - told.timing.arrived, 1e-3);
      EXPECT_LE(ledger.until, told.heard);
      EXPECT_LT(told.heard - ledger.until, 0.5) << "up to its end, also where it waited then";
      EXPECT_GE(ledger.until, told.timing.last_token);
      ++n;
    }
  }
  EXPECT_GE(n, 10000u);
  for (const Phase phase :
       {Phase::kQueue, Phase::kPrefill, Phase::kDecode, Phase::kSampling, Phase::kOthers, Phase::kPreempted})
    EXPECT_GT(sums[phase], 0.1) << kPhaseNames[static_cast<size_t>(phase)];
  EXPECT_EQ(sums[Phase::kSwapped], 0);
  EXPECT_EQ(sums[Phase::kNetwork], 0);
}

class StepClock final : public Clock {  // a second for each reading
 public:
  double now() const override { return now_ += 1; }

 private:
  mutable double now_ = 0;
};

// The ledger of a prompt of 20 tokens and an answer of 3, alone, in steps of 8, preempted after its second token or
// not at all.
Ledger alone(bool is_preempted) {
  const StepClock clock;
  ThreadTeam team(1);
  Stream stream(team);
  auto model = std::make_unique<testing::FakeModel>(64);
  EngineOptions options{.step_tokens = 8, .max_sequences = 1, .prefix_cache = false};
  options.block_len = 8;
  options.kv_dtype = DType::kF32;
  options.kv_bytes = 16 * KvStore::block_bytes(model->facts(), options.kv_dtype, 8);
  auto engine = Engine::create(std::move(model), nullptr, stream, options, clock).value();
  Request r;
  r.id = RequestId{1};
  r.prompt.assign(20, TokenId{3});
  r.max_tokens = 3;
  r.sampling.ignore_eos = true;
  EXPECT_TRUE(engine->submit(std::move(r)).ok());
  std::vector<Output> outputs;
  for (int n_tokens = 0; engine->step(outputs);) {
    n_tokens = outputs.empty() ? 0 : outputs.back().usage.completion_tokens;
    if (is_preempted && n_tokens == 2 && engine->stats().n_preemptions == 0) {
      EXPECT_TRUE(engine->preempt(RequestId{1}, 0));
    }
  }
  return outputs.back().timing.ledger;
}

// Alone, a request owns all of a step's forward pass: three pieces of the prompt and two more tokens; the clock counts
// one second of forward pass per step.
TEST(Ledger, NothingIsOthersWorkWhereThereAreNoOthers) {
  Ledger ledger = alone(false);
  EXPECT_EQ(ledger[Phase::kPrefill], 3);
  EXPECT_EQ(ledger[Phase::kDecode], 2);
  EXPECT_EQ(ledger[Phase::kSampling], 3) << "steps whose rows are read";
  EXPECT_EQ(ledger[Phase::kPreempted], 0);
}

// Recomputation counts neither as prefill nor as decode, even if a piece continues after it.
TEST(Ledger, RecomputedTokensCountAsPreemption) {
  Ledger ledger = alone(true), without = alone(false);
  EXPECT_EQ(ledger[Phase::kPrefill], without[Phase::kPrefill]);
  // 21 tokens in pieces of 8, 8 and 6, the last of which also computes its second token's successor.
  EXPECT_GE(ledger[Phase::kPreempted], 2 + 5.0 / 6) << "and the time until they begin";
  EXPECT_NEAR(ledger[Phase::kDecode], without[Phase::kDecode] - 1 + 1.0 / 6, 1e-9);
}

}  // namespace
}  // namespace ibid
