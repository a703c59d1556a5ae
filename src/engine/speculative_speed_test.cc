// Row S6: how much faster a draft model makes an engine, on a virtual clock, is what the formulas of spec/gain.h say.
// Drafts are right at random places, each as often as the next; the number of them is pinned.
#include <gtest/gtest.h>

#include <string>

#include "fake_model.h"
#include "spec/draft_model.h"
#include "spec/gain.h"
#include "timed_model.h"

namespace ibid {
namespace {

using testing::LinearCost;
using testing::TimedEngine;
using testing::TimedModel;

constexpr int32_t kAnswer = 1500;

int32_t any(int32_t position) { return static_cast<int32_t>(testing::mix(9, static_cast<uint64_t>(position)) % 60); }
// Right so often of a hundred times.
template <uint64_t kPercent>
int32_t near(int32_t position) {
  const bool is_right = testing::mix(31, static_cast<uint64_t>(position)) % 100 < kPercent;
  return is_right ? any(position) : (any(position) + 1) % 60;
}

// A step's shared part and its rows'. What a draft model reads before its first draft, two tokens where all drafts were
// right, costs as much as one.
LinearCost cost_of(double part) {
  return {.step = 2.4e-3 * part, .prompt = 0.4e-3 * part, .decode = 0.8e-3 * part, .prompt_read = 0, .decode_read = 0};
}
constexpr double kStep = 3.2e-3;
double rows(int32_t k) { return (2.4e-3 + (1 + k) * 0.8e-3) / kStep; }

struct Measured {
  double seconds = 0;  // from the first token to the last
  double tokens_per_step = 0;
};

Measured measured(int32_t k, double c, TimedModel::Next next) {
  EngineOptions options;
  options.max_rows = 64;
  TimedEngine t(options, cost_of(1), 8192, any);
  ThreadTeam team(1);
  Stream stream(team);
  if (k > 0) {
    const DraftModelOptions of_draft = {.block_len = 16, .kv_bytes = 64 << 20, .vocab_size = 64, .always = true};
    t.engine->speculate(
        DraftModel::create(std::make_unique<TimedModel>(t.clock, cost_of(c), 8192, next), stream, of_draft, t.clock)
            .value(),
        k);
  }
  Request r = t.request(8, kAnswer);
  r.speculation.verifier = Verifier::kRejection;  // all are verified, whatever they cost
  const RequestId id = t.submit(std::move(r));
  t.drain();
  const std::vector<double>& tokens = t.seen[id].tokens;
  return {tokens.back() - tokens.front(),
          static_cast<double>(tokens.size() - 1) / static_cast<double>(t.engine->stats().n_steps - 1)};
}

TEST(Gain, IsThatOfAnEngineOnAVirtualClock) {
  const double plain = measured(0, 0, any).seconds;
  EXPECT_NEAR(plain, kStep * (kAnswer - 1), 0.01 * plain);
  struct Draft {
    double alpha;
    TimedModel::Next next;
  };
  for (const Draft& draft : {Draft{0.2, near<20>}, Draft{0.5, near<50>}, Draft{0.8, near<80>}, Draft{0.95, near<95>}}) {
    for (const int32_t k : {1, 2, 4, 8}) {
      for (const double c : {0.05, 0.1, 0.15, 1.0}) {
        const std::string what =
            std::to_string(draft.alpha) + ", " + std::to_string(k) + " drafts of " + std::to_string(c);
        const Measured m = measured(k, c, draft.next);
        const double expected = expected_tokens(draft.alpha, k), gain = speedup(draft.alpha, k, c, rows(k));
        EXPECT_NEAR(m.tokens_per_step, expected, 0.15 * expected) << what;
        EXPECT_NEAR(plain / m.seconds, gain, 0.15 * gain) << what;
        const double rate = tokens_per_second(draft.alpha, k, kStep, c * kStep, rows(k));
        EXPECT_NEAR((kAnswer - 1) / m.seconds, rate, 0.15 * rate) << what;
      }
    }
  }
}

}  // namespace
}  // namespace ibid
