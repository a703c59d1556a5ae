// Row S6: the speedup by a draft model, on a virtual clock, equals the formulas of spec/gain.h. Drafts are right at
// random, each with the same probability; their number is fixed.
#include <gtest/gtest.h>

#include <string>

#include "fake_model.h"
#include "spec/gain.h"
#include "spec/model/draft_model.h"
#include "timed_model.h"

namespace ibid {
namespace {

using testing::LinearCost;
using testing::TimedEngine;
using testing::TimedModel;

constexpr int32_t kAnswer = 1500;

int32_t any(int32_t position) { return static_cast<int32_t>(testing::mix(9, static_cast<uint64_t>(position)) % 60); }
// Percentage of right drafts.
template <uint64_t kPercent>
int32_t near(int32_t position) {
  const bool is_right = testing::mix(31, static_cast<uint64_t>(position)) % 100 < kPercent;
  return is_right ? any(position) : (any(position) + 1) % 60;
}

// Costs of a step's shared part and of its rows. The draft model's catch-up before its first draft (two tokens if all
// drafts were right) costs as much as one token.
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

// Proposes with probability 1 tokens that are right from one position on, and takes no time.
template <int32_t kRightFrom>
class Boaster final : public Proposer {
 public:
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const auto n = static_cast<int32_t>(input.prompt.size() + input.answer.size());
    for (int32_t i = 0; i < input.max_drafts; ++i) {
      const int32_t right = any(n - 1 + i);
      drafts.add(TokenId{n >= kRightFrom ? right : (right + 1) % 60}, i - 1, 0.98F);
    }
  }
};

double seconds_with(std::unique_ptr<Proposer> (*make)(TimedEngine&, Stream&), int32_t n_answer, int32_t n_texts) {
  EngineOptions options;
  options.max_rows = 64;
  TimedEngine t(options, cost_of(1), 8192, any);
  ThreadTeam team(1);
  Stream stream(team);
  t.engine->measure_steps(t.clock);
  if (make != nullptr) t.engine->speculate(make(t, stream), 8);
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < n_texts; ++i) ids.push_back(t.submit(8, n_answer));
  t.drain();
  double sum = 0;
  for (const RequestId id : ids) sum += t.seen[id].tokens.back() - t.seen[id].tokens.front();
  return sum;
}

template <int32_t kRightFrom>
std::unique_ptr<Proposer> boaster(TimedEngine&, Stream&) {
  return std::make_unique<Boaster<kRightFrom>>();
}

// Certain of its drafts, never right.
std::unique_ptr<Proposer> wrong_model(TimedEngine& t, Stream& stream) {
  const DraftModelOptions options = {.block_len = 16, .kv_bytes = 64 << 20, .vocab_size = 64};
  auto model = std::make_unique<TimedModel>(t.clock, cost_of(0.05), 8192, near<0>, 20.0F);
  return DraftModel::create(std::move(model), stream, options, t.clock).value();
}

// With any estimates, a sequence loses at most its account's loan and the rest of a step.
TEST(Gain, IsNeverALossOfMoreThanAnAccountLends) {
  for (const int32_t n_texts : {1, 4}) {
    for (const int32_t n : {32, 128, 512}) {
      const double plain = seconds_with(nullptr, n, n_texts);
      const double most = plain * (1 + 2.25 / n + 0.015);
      const double boasted = seconds_with(boaster<8192>, n, n_texts);
      EXPECT_LE(boasted, most) << n << " tokens of " << n_texts;
      EXPECT_LE(seconds_with(wrong_model, n, n_texts), most) << n << " tokens of " << n_texts;
      EXPECT_GT(boasted, plain * 1.005) << "it is not tried";
    }
  }
}

TEST(Gain, ComesAlsoToSequencesThatWereInDebt) {
  const double plain = seconds_with(nullptr, 512, 1);
  const double best = seconds_with(boaster<0>, 512, 1), late = seconds_with(boaster<264>, 512, 1);
  EXPECT_LT(best, plain / 2);
  EXPECT_LT(late, plain * 0.5 * 1.015 + best * 0.5 + plain * 0.06) << plain << ' ' << best;
}

}  // namespace
}  // namespace ibid
