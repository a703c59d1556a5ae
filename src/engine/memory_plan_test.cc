#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/engine.h"
#include "fake_model.h"
#include "model/kv_arithmetic.h"
#include "model/testing/hand_made.h"
#include "model/testing/loaded_model.h"
#include "worker/disk_thread.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::TinyModelOptions;

TEST(MemoryPlan, RestOfALimitIsForKeysAndValuesInWholeBlocks) {
  const LoadedModel m(TinyModelOptions{});
  const EngineOptions options{.max_sequences = 4, .max_waiting = 2};
  MemoryPlan plan;
  plan.add("program", 1 << 20);
  add_engine_parts(plan, *m.model, options, 2);
  int64_t sum = 0;
  for (const MemoryPart& part : plan.parts) {
    EXPECT_GE(part.bytes, 0) << part.name;
    sum += part.bytes;
  }
  EXPECT_EQ(plan.total(), sum);

  const int64_t with_notes = planned_block_bytes(*m.model, options);
  const int64_t bytes = kv_bytes_of_block(*m.model, options.kv_dtype, options.block_len);
  const int64_t n_context = (m.model->context_len() + 15) / 16;
  EXPECT_EQ(kv_bytes_within(sum + n_context * with_notes, plan, *m.model, options).value(), n_context * bytes);
  EXPECT_EQ(kv_bytes_within(sum + (n_context + 4) * with_notes - 1, plan, *m.model, options).value(),
            (n_context + 3) * bytes);

  const auto refused = kv_bytes_within(sum + n_context * with_notes - 1, plan, *m.model, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kExhausted);
  for (const MemoryPart& part : plan.parts) EXPECT_NE(refused.error().message.find(part.name), std::string::npos);
  EXPECT_FALSE(kv_bytes_within(1000, plan, *m.model, options).ok());
}

TEST(MemoryPlan, OfAModelWithRecurrentLayersHasItsStates) {
  ThreadTeam team(1);
  Stream stream(team);
  testing::hand_made::Matrices matrices;
  const auto parts_of = [&](bool has_state, const EngineOptions& options) {
    const testing::hand_made::HandMade model(matrices, stream, has_state);
    MemoryPlan plan;
    add_engine_parts(plan, model, options, 1);
    std::map<std::string, int64_t> out;
    for (const MemoryPart& part : plan.parts) {
      if (part.name.starts_with("recurrent states")) out[part.name] = part.bytes;
    }
    return out;
  };
  using Parts = std::map<std::string, int64_t>;
  constexpr int64_t kState = 4 * testing::hand_made::kWidth;  // F32, of its one such layer
  const EngineOptions options{.max_sequences = 3};
  EXPECT_EQ(parts_of(false, options), Parts());
  EXPECT_EQ(parts_of(true, options), (Parts{{"recurrent states", 4 * 3 * kState}}));
  const EngineOptions tiers{.disk_folder = "x", .states_bytes = 5 * kState, .host_states_bytes = 7 * kState};
  EXPECT_EQ(parts_of(true, tiers), (Parts{{"recurrent states", 5 * kState},
                                          {"recurrent states on the host", 7 * kState},
                                          {"recurrent states on their way to a disk", kDiskThreadBytes}}));
}

// The budget of a 70B model with eight sequences of 4,096 tokens (row K13), in bytes and in the sequence's round
// numbers.
TEST(MemoryPlan, OfSeventyBillionIsTightOnTwoCardsAndTypicalOnFour) {
  constexpr int64_t kGb = 1'000'000'000;
  const KvShape kv{.n_layers = 80, .n_kv_heads = 8, .head_len = 128};
  MemoryPlan plan;
  plan.add("weights", 70 * kGb * 2);
  plan.add("keys and values", kv.bytes(4096, 8));
  plan.add("intermediates of a step", 2 * kGb);
  EXPECT_EQ(plan.total(), 140 * kGb + 8 * int64_t{1'342'177'280} + 2 * kGb);
  EXPECT_NEAR(static_cast<double>(plan.total()), 152e9, 1e9);
  const auto fit = [&](int64_t n) { return Devices{n, 80 * kGb}.fit(plan.total()); };
  EXPECT_EQ(fit(1), DeviceFit::kNot);
  EXPECT_EQ(fit(2), DeviceFit::kTight);
  EXPECT_EQ(fit(4), DeviceFit::kRoomy);
  plan.add("a draft model of 7B", 7 * kGb * 2);
  EXPECT_EQ(fit(2), DeviceFit::kNot);
  EXPECT_EQ(fit(4), DeviceFit::kRoomy);
  plan.parts.pop_back();
  plan.add("a trained head", kGb / 5);
  EXPECT_EQ(fit(2), DeviceFit::kTight);
}

// Row K14: whole contexts at once, as `ibid plan` counts them.
TEST(MemoryPlan, AsManySequencesRunAsThePlanPromises) {
  ThreadTeam team(1);
  Stream stream(team);
  constexpr int32_t kContext = 256;
  for (const int32_t n_blocks : {17, 40, 100, 333}) {
    ManualClock clock;
    auto model = std::make_unique<testing::FakeModel>(kContext);
    EngineOptions options{.block_len = 16, .kv_dtype = DType::kF32, .step_tokens = 40 * kContext, .max_sequences = 64};
    options.kv_bytes = n_blocks * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
    auto engine = Engine::create(std::move(model), nullptr, stream, options, clock).value();
    const int32_t predicted = n_blocks * options.block_len / kContext;
    for (uint64_t i = 0; i < 40; ++i) {
      Request r;
      r.id = RequestId{i};
      for (int32_t k = 0; k < kContext - 4; ++k)
        r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(i, static_cast<uint64_t>(k)) % 60)});
      r.sampling.ignore_eos = true;
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
    }
    int32_t most = 0;
    std::vector<Output> out;
    while (engine->step(out)) most = std::max(most, engine->stats().n_running);
    EXPECT_LE(std::abs(most - predicted), 1)
        << n_blocks << " blocks: " << most << " ran, " << predicted << " were said";
    EXPECT_EQ(engine->stats().n_preemptions, 0);
  }
}

}  // namespace
}  // namespace ibid
