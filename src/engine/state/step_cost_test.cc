#include "engine/state/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ibid {
namespace {

StepLoad load_of(int32_t n_prompt, int32_t n_before, int32_t n_decodes, int32_t kv_len) {
  StepLoad load;
  if (n_prompt > 0) load.add_prompt(n_before, n_prompt, 1);
  for (int32_t i = 0; i < n_decodes; ++i) load.add_decode(kv_len);
  return load;
}

double truth(const StepLoad& l) {
  return 3e-3 + 0.6e-3 * l.n_prompt_tokens + 0.7e-3 * l.n_decode_tokens + 0.4e-6 * static_cast<double>(l.prompt_reads) +
         1e-6 * static_cast<double>(l.decode_reads) + 0.2e-3 * l.n_rows;
}

struct Random {
  std::mt19937_64 bits{7};
  int32_t up_to(int32_t n) { return static_cast<int32_t>(bits() % static_cast<uint64_t>(n)); }
  StepLoad load() {
    const int32_t kind = up_to(3);
    return load_of(kind == 0 ? 0 : 2 + up_to(300), up_to(4000), kind == 1 ? 0 : 1 + up_to(40), up_to(2000));
  }
};

double error_at(const StepCost& cost, const StepLoad& load, double speed = 1) {
  return std::abs(cost.seconds(load) / (speed * truth(load)) - 1);
}

TEST(StepCost, KnowsNothingAtFirstAndFindsThePartsOfALinearCost) {
  StepCost cost;
  EXPECT_FALSE(cost.is_known());
  Random random;
  for (int i = 0; i < 200; ++i) {
    const StepLoad load = random.load();
    cost.observe(load, truth(load));
  }
  for (int i = 0; i < 100; ++i) EXPECT_LT(error_at(cost, random.load()), 0.05);
}

TEST(StepCost, TenStepsAreEnoughForAnEstimateWithinAThird) {
  StepCost cost;
  cost.observe(load_of(40, 0, 0, 0), truth(load_of(40, 0, 0, 0)));
  for (int i = 0; i < 9; ++i) cost.observe(load_of(0, 0, 1, 40 + i), truth(load_of(0, 0, 1, 40 + i)));
  EXPECT_LT(error_at(cost, load_of(60, 0, 1, 50)), 0.34);
  EXPECT_LT(error_at(cost, load_of(0, 0, 8, 50)), 0.34);
}

// It reads the same positions as its sequence's other row. Before it is measured, it must not be assumed as costly as
// that row, or no draft would be tried after a long sequence; afterwards it has its measured cost.
TEST(StepCost, ADraftAfterALongSequenceIsNotPricedAsASequenceOfItsOwn) {
  StepCost cost;
  const auto load = [](int32_t n_before, int32_t n_drafts) {
    StepLoad of = load_of(0, 0, 1, n_before);
    if (n_drafts > 0) of.add_drafts(n_before + 1, n_drafts);
    return of;
  };
  const auto took = [](int32_t n_before, int32_t n_drafts) { return 3e-3 + 4e-6 * n_before + 1.5e-3 * n_drafts; };
  const auto price = [&](int32_t n_before) {
    return cost.seconds(load(n_before, 1)) - cost.seconds(load(n_before, 0));
  };
  for (int i = 0; i < 40; ++i) cost.observe(load(6000 + i, 0), took(6000 + i, 0));
  EXPECT_GT(price(6040), 0);
  EXPECT_LT(price(6040), 0.5 * cost.seconds(load(6040, 0)));
  for (int i = 40; i < 80; ++i) cost.observe(load(6000 + i, i % 4), took(6000 + i, i % 4));
  EXPECT_NEAR(price(6080), 1.5e-3, 0.3e-3);
}

// Before that, they are tried: at a fraction of the reads of the sequence's own token.
TEST(StepCost, ReadsOfDraftsCountAsSharedUntilObserved) {
  for (const double each : {1.5e-3, 12e-3}) {
    StepCost cost;
    const auto load = [](int32_t n_before, int32_t n_drafts) {
      StepLoad of = load_of(0, 0, 1, n_before);
      if (n_drafts > 0) of.add_drafts(n_before + 1, n_drafts);
      return of;
    };
    const auto took = [&](int32_t n_before, int32_t n_drafts) { return 3e-3 + 4e-6 * n_before + each * n_drafts; };
    for (int i = 0; i < 40; ++i) cost.observe(load(100 * i, 0), took(100 * i, 0));
    const double hoped = cost.of_drafts(load(6040, 0), load(6040, 1));
    const double feared = cost.seconds(load(6040, 1)) - cost.seconds(load(6040, 0));
    EXPECT_LT(hoped, 0.75 * feared);
    EXPECT_GT(hoped, 0.1 * 4e-6 * 6040);
    for (int i = 0; i < 12; ++i) cost.observe(load(6000 + i, i % 3), took(6000 + i, i % 3));
    const double known = cost.of_drafts(load(6040, 0), load(6040, 1));
    EXPECT_NEAR(known, each, 0.3 * each);
    EXPECT_DOUBLE_EQ(known, cost.seconds(load(6040, 1)) - cost.seconds(load(6040, 0)));
  }
}

TEST(StepCost, ManyDecodesDoNotMakeItForgetPrompts) {
  // Far from what it estimates where it knows nothing.
  const auto costly = [](const StepLoad& load) { return truth(load) + 2e-3 * load.n_prompt_tokens; };
  StepCost cost;
  Random random;
  for (int i = 0; i < 200; ++i) {
    const StepLoad load = random.load();
    cost.observe(load, costly(load));
  }
  for (int i = 0; i < 20000; ++i) {
    const StepLoad load = load_of(0, 0, 1 + i % 8, 100 + i % 900);
    cost.observe(load, costly(load));
  }
  const StepLoad prompt = load_of(200, 1000, 4, 500);
  EXPECT_NEAR(cost.seconds(prompt) / costly(prompt), 1, 0.1);
}

TEST(StepCost, AStalledStepTeachesNothing) {
  StepCost cost;
  Random random;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = random.load();
    cost.observe(load, truth(load) * (i % 10 == 9 ? 100 : 1));
  }
  for (int i = 0; i < 100; ++i) EXPECT_LT(error_at(cost, random.load()), 0.1);
}

TEST(StepCost, FollowsAMachineThatBecomesSlowerWithinAFewSteps) {
  StepCost cost;
  Random random;
  for (int i = 0; i < 200; ++i) {
    const StepLoad load = random.load();
    cost.observe(load, truth(load));
  }
  for (int i = 0; i < 5; ++i) cost.observe(load_of(0, 0, 8, 500), 2 * truth(load_of(0, 0, 8, 500)));
  for (int i = 0; i < 100; ++i) EXPECT_LT(error_at(cost, random.load(), 2), 0.25);
}

TEST(StepCost, NoPartCostsLessThanNothing) {
  StepCost cost;
  std::mt19937_64 random{3};
  for (int i = 0; i < 500; ++i) {  // noise alone
    const auto n = static_cast<int32_t>(random() % 200);
    cost.observe(load_of(2 + n, 10 * n, n % 9, n), 1e-3 * static_cast<double>(1 + random() % 100));
    const StepLoad small = load_of(2, 0, 0, 0), large = load_of(400, 4000, 40, 4000);
    ASSERT_LE(cost.seconds(small), cost.seconds(large));
    ASSERT_TRUE(std::isfinite(cost.seconds(large)));
  }
}

TEST(StepCost, AClockThatStandsStillTeachesNothing) {
  StepCost cost;
  cost.observe(load_of(40, 0, 0, 0), 0);
  EXPECT_FALSE(cost.is_known());
  EXPECT_EQ(cost.seconds(load_of(40, 0, 0, 0)), 0);
}

TEST(StepCost, ComputesHowMuchOfAPromptFits) {
  StepCost cost;
  Random random;
  for (int i = 0; i < 200; ++i) {
    const StepLoad load = random.load();
    cost.observe(load, truth(load));
  }
  const StepLoad decodes = load_of(0, 0, 8, 500);
  const double limit = 0.040;
  const int32_t n = cost.n_within(limit, decodes, 1000, 500, 499);
  StepLoad fits = decodes, does_not = decodes;
  fits.add_prompt(1000, n, 0);
  does_not.add_prompt(1000, n + 1, 0);
  EXPECT_LE(cost.seconds(fits), limit);
  EXPECT_GT(cost.seconds(does_not), limit);
  EXPECT_EQ(cost.n_within(10, decodes, 1000, 500, 499), 500);
  EXPECT_EQ(cost.n_within(0, decodes, 1000, 500, 499), 0);
  EXPECT_LT(cost.n_within(limit, decodes, 1000, 500, 0), n) << "rows of logits cost something";
}

// A step of a mixture reads the weights of the experts that its tokens touch: two tokens read nearly twice as much as
// one, two hundred little more than one hundred. No sum of the other parts is that curve.
TEST(StepCost, KnowsTheExpertsThatAStepTouchesAndTheStatesOfItsSequences) {
  const CostTerms terms = {.n_experts = 64, .n_experts_used = 4, .has_state = true};
  EXPECT_EQ(distinct_experts(terms, 0), 0);
  EXPECT_DOUBLE_EQ(distinct_experts(terms, 1), 4);
  EXPECT_NEAR(distinct_experts(terms, 16), 64 * (1 - std::pow(60.0 / 64, 16)), 1e-9);
  EXPECT_LT(distinct_experts(terms, 10000), 64.0001);
  EXPECT_EQ(distinct_experts({}, 7), 0);
  const auto takes = [&](const StepLoad& l) {
    return truth(l) + 0.5e-3 * distinct_experts(terms, int64_t{l.n_prompt_tokens} + l.n_decode_tokens) +
           0.3e-3 * l.n_sequences;
  };
  StepCost with(terms), without;
  Random random;
  for (int i = 0; i < 400; ++i) {
    const StepLoad load = random.load();
    with.observe(load, takes(load)), without.observe(load, takes(load));
  }
  double worst = 0, worst_without = 0;
  for (int32_t n = 1; n <= 40; ++n) {
    const StepLoad load = load_of(0, 0, n, 500);
    worst = std::max(worst, std::abs(with.seconds(load) / takes(load) - 1));
    worst_without = std::max(worst_without, std::abs(without.seconds(load) / takes(load) - 1));
  }
  EXPECT_LT(worst, 0.05);
  EXPECT_GT(worst_without, 0.15);
}

// Before any step separates them, a cache of half the bytes is assumed to be read in half the time.
TEST(StepCost, ThinksACacheOfFewerBitsReadInLessTime) {
  StepCost half({.kv_bytes = 0.5}), whole;
  const StepLoad prompt = load_of(64, 0, 0, 0);
  half.observe(prompt, 1e-2), whole.observe(prompt, 1e-2);
  const auto of_reading = [&](const StepCost& cost) {
    return (cost.seconds(load_of(0, 0, 1, 100000)) - cost.seconds(load_of(0, 0, 1, 0))) / cost.seconds({});
  };
  EXPECT_NEAR(of_reading(half) / of_reading(whole), 0.5, 0.05);
}

}  // namespace
}  // namespace ibid
