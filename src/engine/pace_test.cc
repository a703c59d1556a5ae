// No stalls: the effect of a new prompt on running streams, on a virtual clock with the default model's step costs.
#include <gtest/gtest.h>

#include "timed_model.h"

namespace ibid {
namespace {

using testing::LinearCost;
using testing::TimedEngine;

// So many streams, each well into its answer.
void run_streams(TimedEngine& t, int n_streams, int n_steps = 100) {
  for (int i = 0; i < n_streams; ++i) t.submit(40, 4000);
  for (int i = 0; i < n_steps; ++i) t.step();
}

double prefill_alone(int32_t n_prompt) {
  TimedEngine t;
  const RequestId id = t.submit(n_prompt, 1);
  t.drain();
  return t.seen[id].ttft();
}

void expect_no_stall(const LinearCost& cost) {
  TimedEngine t({}, cost);
  run_streams(t, 8);
  const double p50 = TimedEngine::quantile(t.gaps(t.clock.now() / 2), 0.5);
  const double asked = t.clock.now();
  const RequestId newcomer = t.submit(4300, 2);
  double decodes = 0;  // of the eight streams, for the tokens made meanwhile
  while (t.seen[newcomer].tokens.empty()) {
    t.step();
    decodes += p50;
  }
  const double longest = t.gaps(asked).back();
  EXPECT_LE(longest, 3 * p50 * (1 + cost.noise));
  EXPECT_LE(longest, p50 + 0.060);
  EXPECT_LE(t.seen[newcomer].ttft(), 1.3 * (prefill_alone(4300) + decodes));
}

TEST(Pace, LongPromptOverEightStreamsStallsNoneAndIsSlowedByTheirTokensOnly) { expect_no_stall({}); }

TEST(Pace, LongPromptStallsNoneOnAMachineTenTimesAsFast) {
  expect_no_stall({.step = 2.4e-4, .prompt = 0.51e-4, .decode = 0.8e-4, .prompt_read = 0.34e-7, .decode_read = 1.2e-7});
}

TEST(Pace, LongPromptStallsNoneWithNoisyStepTimes) { expect_no_stall({.noise = 0.1}); }

// As a server before its first request: the engine need not run an overlong step to learn its cost.
TEST(Pace, StartupMeasurementHoldsForTheFirstRequests) {
  const LinearCost costs[] = {
      {},
      {.step = 1e-3, .prompt = 6e-4, .decode = 1e-4},  // decodes that cost far less than estimated
      {.step = 0.2, .prompt = 0.02, .decode = 0.03, .prompt_read = 1e-5, .decode_read = 4e-5}};
  for (const LinearCost& cost : costs) {
    TimedEngine t({}, cost);
    const double begin = t.clock.now();
    t.engine->measure_steps(t.clock);
    const double a_step = cost.step + 32 * (cost.prompt + 16 * cost.prompt_read);
    EXPECT_LE(t.clock.now() - begin, 0.05 + 128 * cost.prompt + a_step);
    EXPECT_EQ(t.engine->stats().n_steps, 0);
    run_streams(t, 8, 1);  // one step, and the newcomer is there
    const double asked = t.clock.now(), decodes = cost.step + 8 * cost.decode;
    t.submit(2000, 2);
    for (int i = 0; i < 40; ++i) t.step();
    EXPECT_LE(t.gaps(asked).back(), 3 * 1.2 * decodes) << cost.step;
  }
}

// For models whose positions are cheap or costly to read relative to their products.
TEST(Pace, ADecodeAfterALongSequenceIsForeseenBeforeThereWasOne) {
  for (const double read : {0.1e-6, 1.24e-6, 6e-6}) {
    LinearCost cost;
    cost.decode_read = read;
    TimedEngine t({}, cost);
    t.engine->measure_steps(t.clock);
    StepCost learned;
    for (const MeasuredStep& step : t.engine->options().measured_steps) learned.observe(step.load, step.seconds);
    for (const int32_t n_before : {100, 1000, 4000}) {
      StepLoad load;
      load.add_decode(n_before);
      const double taken = cost.step + cost.decode + cost.decode_read * n_before;
      EXPECT_NEAR(learned.seconds(load) / taken, 1, 0.2) << read << ", after " << n_before;
    }
  }
}

TEST(Pace, SixteenStreamsThatComeAtOnceHaveNoLongItl) {
  TimedEngine t;
  for (int i = 0; i < 16; ++i) t.submit(280, 128);
  t.drain();
  const std::vector<double> gaps = t.gaps();
  const double p50 = TimedEngine::quantile(gaps, 0.5);
  EXPECT_LE(TimedEngine::quantile(gaps, 0.99), 3 * p50);
  EXPECT_LE(TimedEngine::quantile(gaps, 0.999), 5 * p50);
}

// As measured in a virtual machine: a fifth of the steps take up to a third longer.
TEST(Pace, MemoryThatIsWrittenForTheFirstTimeIsForeseen) {
  TimedEngine t({}, {.new_block = 2.4e-3});
  for (int i = 0; i < 16; ++i) t.submit(280, 128);
  t.drain();
  EXPECT_LE(t.engine->stats().step_error_p95, 0.1);
}

// The blocks' memory is touched before the first request, as much as configured, and steps are priced accordingly.
TEST(Pace, AnIdleEngineBringsMemory) {
  TimedEngine t;
  ASSERT_TRUE(t.engine->has_idle_work());
  const int32_t n_blocks = 8192 / t.engine->options().block_len;
  ASSERT_LT(n_blocks, t.engine->cache().pool().n_total());
  for (int i = 0; i < n_blocks; ++i) {
    EXPECT_TRUE(t.engine->has_idle_work());
    EXPECT_FALSE(t.step());
  }
  EXPECT_FALSE(t.engine->has_idle_work());
  EXPECT_EQ(t.engine->stats().n_steps, 0);
}

TEST(Pace, AShortPromptDoesNotWaitForALongOne) {
  TimedEngine t;
  run_streams(t, 2);
  t.submit(6000, 2);
  for (int i = 0; i < 5; ++i) t.step();
  const RequestId newcomer = t.submit(20, 2);
  while (t.seen[newcomer].tokens.empty()) t.step();
  EXPECT_LE(t.seen[newcomer].ttft(), 0.5);
}

// docs/users/fairness.md: its first token comes within four times the time it would take alone, whatever comes later.
TEST(Pace, ALongPromptIsNotStarvedByShortOnes) {
  TimedEngine alone;
  const RequestId only = alone.submit(4096, 1);
  alone.drain();
  TimedEngine t;
  const RequestId longest = t.submit(4096, 1);
  while (t.seen[longest].tokens.empty() && t.clock.now() < 60) {
    while (t.engine->stats().n_waiting < 50) t.submit(200, 1);
    t.step();
  }
  EXPECT_LE(t.seen[longest].ttft(), 4 * alone.seen[only].ttft());
  EXPECT_GE(t.seen[longest].ttft(), 2 * alone.seen[only].ttft()) << "the short ones go first";
}

// It waits for the end of one piece of the other's prompt, and shares the next.
TEST(Pace, ShortPromptWaitsForOnePieceOfALongOne) {
  TimedEngine t;
  t.submit(6000, 2);
  for (int i = 0; i < 20; ++i) t.step();
  const RequestId newcomer = t.submit(20, 2);
  while (t.seen[newcomer].tokens.empty()) t.step();
  EXPECT_LE(t.seen[newcomer].ttft(), 0.3);
}

TEST(Pace, AGivenBoundIsKept) {
  TimedEngine t({.max_itl = 0.040});
  run_streams(t, 8);
  const double asked = t.clock.now();
  const RequestId newcomer = t.submit(2000, 2);
  while (t.seen[newcomer].tokens.empty()) t.step();
  EXPECT_LE(t.gaps(asked).back(), 0.042);
  EXPECT_GE(TimedEngine::quantile(t.gaps(asked), 0.5), 0.030) << "what the bound allows is used";
}

// docs/users/fairness.md: a fifth of each step's time, whatever the bound is.
TEST(Pace, PromptsAreNotStarvedWhereManyStreamsDecode) {
  TimedEngine t({.max_itl = 0.001});
  run_streams(t, 60, 400);
  const RequestId newcomer = t.submit(1600, 2);
  while (t.seen[newcomer].tokens.empty()) t.step();
  const double ttft = t.seen[newcomer].ttft();
  EXPECT_LE(ttft, 5.3 * prefill_alone(1600));
  const double longest = t.gaps(t.clock.now() - ttft).back();
  for (int i = 0; i < 9; ++i) t.step();
  EXPECT_LE(longest, 1.3 * (t.clock.now() - t.seen[newcomer].tokens[0]) / 9);
}

TEST(Pace, InOrderOfComingWithoutStreamsAStepIsAsLargeAsItMayBe) {
  TimedEngine t({.policy = PolicyKind::kFirstCome});
  t.submit(100, 3);
  t.drain();
  const RequestId newcomer = t.submit(2048, 2);
  t.step();
  EXPECT_EQ(t.engine->last_step().at(0).n_tokens, 512);
  while (t.seen[newcomer].tokens.empty()) t.step();
}

TEST(Pace, WithOneTenantFairPlansArePriorityPlans) {
  TimedEngine fair({.policy = PolicyKind::kFair}), priority({.policy = PolicyKind::kPriority});
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) {
    const auto n_prompt = static_cast<int>(1 + random() % 900), n_answer = static_cast<int>(random() % 60);
    for (TimedEngine* t : {&fair, &priority}) {
      Request r = t->request(n_prompt, n_answer);
      r.priority = i % 7 == 0;
      t->submit(std::move(r));
    }
    for (int k = 0; k < 8; ++k) {
      EXPECT_EQ(fair.step(), priority.step());
      EXPECT_EQ(fair.engine->last_step(), priority.engine->last_step());
    }
  }
}

TEST(Pace, AStepsTimeIsPredicted) {
  TimedEngine t({}, {.noise = 0.05});
  for (int i = 0; i < 40; ++i) {
    t.submit(30 + 97 * (i % 11), 20 + i % 7);
    for (int k = 0; k < 9; ++k) t.step();
  }
  t.drain();
  const EngineStats stats = t.engine->stats();
  EXPECT_GT(stats.step_error_p95, 0);
  EXPECT_LT(stats.step_error_p95, 0.2);
  EXPECT_LT(stats.step_error_p50, stats.step_error_p95);
}

}  // namespace
}  // namespace ibid
