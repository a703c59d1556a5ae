// What Engine::forecast() says of a queue, beside what the scheduler then does with it, on the virtual clock.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "timed_model.h"

namespace ibid {
namespace {

using testing::LinearCost;
using testing::TimedEngine;

// Tokens of prompts that no step has had: of what was submitted, without what shares took.
class Counted {
 public:
  explicit Counted(TimedEngine& t) : t_(t) {}
  void submit(int32_t n_prompt, int32_t n_answer) { left_[t_.submit(n_prompt, n_answer)] = n_prompt; }
  bool step() {
    const bool busy = t_.step();
    for (const StepShare& share : t_.engine->last_step()) {
      int32_t& left = left_[share.request];
      left = std::max(0, left - share.n_tokens);  // an answer's tokens come once nothing is left
    }
    return busy;
  }
  int64_t n_left() const {
    int64_t n = 0;
    for (const auto& [id, left] : left_) n += left;
    return n;
  }

 private:
  TimedEngine& t_;
  std::map<RequestId, int32_t> left_;
};

TEST(Forecast, QueueTokensAreThoseOfPromptsThatNoStepHad) {
  TimedEngine t({.max_sequences = 6, .prefix_cache = false});
  Counted counted(t);
  std::mt19937_64 random(3);
  int n_deep = 0;
  for (int i = 0; i < 300; ++i) {
    if (random() % 4 == 0)
      counted.submit(1 + static_cast<int32_t>(random() % 900), 1 + static_cast<int32_t>(random() % 60));
    EXPECT_EQ(t.engine->forecast().queue_tokens, counted.n_left()) << "step " << i;
    n_deep += counted.n_left() > 2000;
    counted.step();
  }
  EXPECT_GT(n_deep, 20);
  while (counted.step()) EXPECT_EQ(t.engine->forecast().queue_tokens, counted.n_left());
  EXPECT_EQ(t.engine->forecast().queue_tokens, 0);
}

TEST(Forecast, QueueTokensLeaveOutWhatIsCached) {
  TimedEngine t;
  const Request first = t.request(480, 1);
  t.submit(first);
  t.drain();
  Request second = t.request(0, 1);
  second.prompt = first.prompt;
  second.prompt.resize(700, TokenId{2});
  t.submit(second);
  EXPECT_EQ(t.engine->forecast().queue_tokens, 700 - 480);
}

TEST(Forecast, QueueTokensHaveWhatAPreemptedAnswerComputesAgain) {
  TimedEngine t({.prefix_cache = false});
  const RequestId id = t.submit(100, 50);
  for (int i = 0; i < 12; ++i) t.step();
  EXPECT_EQ(t.engine->forecast().queue_tokens, 0);
  const int64_t n_tokens = t.engine->find(id, 0)->n_tokens();
  ASSERT_TRUE(t.engine->preempt(id));
  EXPECT_EQ(t.engine->forecast().queue_tokens, n_tokens);
}

// A request that comes now: what is predicted of it, and how long it waits with none after it.
struct Look {
  double predicted = 0, waited = 0;
  double error() const { return std::abs(predicted - waited) / waited; }
};
Look look_at(TimedEngine& t, int32_t n_prompt) {
  Look look{.predicted = t.engine->forecast(n_prompt).first_token_seconds};
  const RequestId id = t.submit(n_prompt, 2);
  while (t.seen[id].tokens.empty() && t.step()) {
  }
  look.waited = t.seen[id].ttft();
  return look;
}

struct Load {
  const char* name;
  EngineOptions options;
  LinearCost cost;
  int n_at_once;    // requests that come together every so often
  double arrivals;  // of further ones, a step
  int32_t most_prompt, most_answer;
  int32_t n_blocks = 0;  // 0: no bound
  double part = 0.95;    // of the requests, that are within a fifth of what was predicted
};

class ForecastError : public ::testing::TestWithParam<Load> {};

TEST_P(ForecastError, OfTheFirstTokenIsWithinAFifth) {
  Load load = GetParam();
  ManualClock clock;
  const ModelFacts facts = testing::TimedModel(clock, {}, 8192).facts();
  load.options.kv_bytes = load.n_blocks * KvStore::block_bytes(facts, load.options.kv_dtype, load.options.block_len);
  std::mt19937_64 random(11);
  const auto below = [&](int32_t n) { return 1 + static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  load.options.prefix_cache = false;
  std::vector<double> errors;
  TimedEngine t(load.options, load.cost);
  t.engine->measure_steps(t.clock);
  double due = 0;
  while (errors.size() < 200) {
    for (int i = errors.size() % 10 == 0 ? load.n_at_once : 0; i > 0; --i)
      t.submit(below(load.most_prompt), below(load.most_answer));
    for (int i = below(40); i > 0; --i) {
      for (due += load.arrivals; due >= 1; --due) t.submit(below(load.most_prompt), below(load.most_answer));
      t.step();
    }
    errors.push_back(look_at(t, below(load.most_prompt)).error());
  }
  std::ranges::sort(errors);
  const auto percent = [&](double q) { return 100 * TimedEngine::quantile(errors, q); };
  std::printf("%s: error of p50 %.1f %%, p%g %.1f %%\n", load.name, percent(0.5), 100 * load.part, percent(load.part));
  EXPECT_LE(percent(load.part), 20);
}

INSTANTIATE_TEST_SUITE_P(
    Loads, ForecastError,
    ::testing::Values(
        Load{"idle", {}, {}, 0, 0, 2000, 100}, Load{"few_answers", {}, {}, 4, 0.02, 1200, 300},
        Load{"many_answers", {}, {}, 24, 0.05, 600, 400}, Load{"prompts_queue", {}, {}, 4, 0.3, 1200, 60},
        Load{"no_places", {.max_sequences = 8}, {}, 24, 0.05, 400, 200},
        Load{"no_blocks", {}, {}, 24, 0.12, 800, 600, 8192 / 16, 0.875},
        Load{"first_come", {.policy = PolicyKind::kFirstCome}, {}, 8, 0.1, 1200, 200},
        Load{"bounded_gaps", {.max_itl = 0.05}, {}, 8, 0.05, 1200, 200},
        Load{"a_fast_machine",
             {},
             {.step = 2.4e-4, .prompt = 0.51e-4, .decode = 0.8e-4, .prompt_read = 0.34e-7, .decode_read = 1.2e-7},
             16,
             0.3,
             1200,
             200},
        Load{"noisy_steps", {}, {.noise = 0.1}, 8, 0.1, 1200, 200}),
    [](const auto& of) { return std::string(of.param.name); });

// A queue that is too long to be gone through to its end.
TEST(Forecast, OfALongQueueGoesOnAsItBegan) {
  TimedEngine t({.max_sequences = 400, .prefix_cache = false});
  t.engine->measure_steps(t.clock);
  for (int i = 0; i < 1500; ++i) t.submit(100 + i % 100, 4);
  for (int i = 0; i < 20; ++i) t.step();
  const Look look = look_at(t, 300);
  EXPECT_GT(look.waited, 50);
  EXPECT_LE(look.error(), 0.3) << look.predicted << " and " << look.waited;
}

// Where requests state no end, answers are thought to be as long as those before them.
TEST(Forecast, LearnsWhatRequestsAreLike) {
  TimedEngine t({.max_sequences = 1, .prefix_cache = false}, {}, 8192,
                [](int32_t position) { return position % 70 == 69 ? 2 : 1; });
  for (int i = 0; i < 60; ++i) t.submit(300, 40);
  t.drain();
  const double one = t.engine->forecast().first_token_seconds;
  EXPECT_NEAR(one, t.engine->forecast(300).first_token_seconds, 0.02 * one);
  Request unbounded = t.request(300, 4000);
  unbounded.sampling.ignore_eos = false;
  t.submit(unbounded);
  t.step();
  const double seconds_of_forty = 40 * (2.4e-3 + 0.8e-3 + 1.24e-6 * 320);
  EXPECT_NEAR(t.engine->forecast(300).first_token_seconds, one + seconds_of_forty, 0.2 * (one + seconds_of_forty));
}

}  // namespace
}  // namespace ibid
