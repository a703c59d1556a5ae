// Shares of tenants, on a virtual clock: the service of each tenant under overload.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "timed_model.h"

namespace ibid {
namespace {

using testing::TimedEngine;

struct Tenant {
  std::string name;
  int n_prompt = 100, n_answer = 40;
  float weight = 1;
  double rate = 0;  // requests per second; if 0, `at_once` requests are always active
  int at_once = 0;
  double from = 0;  // arrival time of the first request
  float ttft_target = 0, tpot_target = 0;
};

class Load {
 public:
  explicit Load(std::vector<Tenant> tenants, EngineOptions options = {}) : tenants_(std::move(tenants)), t(options) {
    next_.resize(tenants_.size());
    for (size_t i = 0; i < tenants_.size(); ++i) next_[i] = tenants_[i].rate > 0 ? pause(i) : 0;
  }
  void run_for(double seconds) {
    const double end = t.clock.now() + seconds;
    while (t.clock.now() < end) {
      for (size_t i = 0; i < tenants_.size(); ++i) arrive(i);
      if (!t.step()) t.clock.advance(0.001);
    }
  }
  // Tokens of answers and of prompts whose first token came in [from, to).
  double served(const std::string& tenant, double from, double to) const {
    double n = 0;
    for (const auto& [id, s] : t.seen) {
      if (s.tenant != tenant) continue;
      for (size_t i = 0; i < s.tokens.size(); ++i) {
        if (s.tokens[i] >= from && s.tokens[i] < to) n += i == 0 ? 1 + n_prompt(tenant) : 1;
      }
    }
    return n;
  }
  // For requests that arrived at `from` or later.
  double ttft(const std::string& tenant, double q, double from) const {
    std::vector<double> all;
    for (const auto& [id, s] : t.seen) {
      if (s.tenant == tenant && s.asked >= from && !s.tokens.empty()) all.push_back(s.ttft());
    }
    std::ranges::sort(all);
    return TimedEngine::quantile(all, q);
  }

 private:
  double pause(size_t i) {
    const double u = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
    return -std::log(u) / tenants_[i].rate;
  }
  void arrive(size_t i) {
    const Tenant& tenant = tenants_[i];
    if (tenant.rate > 0) {
      for (; next_[i] <= t.clock.now(); next_[i] += pause(i)) submit(tenant);
      return;
    }
    if (t.clock.now() < tenant.from) return;
    int n_here = 0;
    for (const auto& id : here_[tenant.name]) n_here += !t.seen[id].finished;
    std::erase_if(here_[tenant.name], [&](RequestId id) { return t.seen[id].finished; });
    while (n_here++ < tenant.at_once) submit(tenant);
  }
  void submit(const Tenant& tenant) {
    Request r = t.request(tenant.n_prompt, tenant.n_answer);
    r.tenant = tenant.name;
    r.weight = tenant.weight;
    r.ttft_target = tenant.ttft_target;
    r.tpot_target = tenant.tpot_target;
    const RequestId id = t.submit(std::move(r));
    if (!t.seen[id].refused) here_[tenant.name].insert(id);
  }
  int n_prompt(const std::string& name) const {
    for (const Tenant& tenant : tenants_) {
      if (tenant.name == name) return tenant.n_prompt;
    }
    return 0;
  }

  std::vector<Tenant> tenants_;
  std::vector<double> next_;
  std::map<std::string, std::set<RequestId>> here_;
  std::mt19937_64 random_{11};

 public:
  TimedEngine t;
};

double ratio(const Load& load, double from, double to) {
  return load.served("a", from, to) / load.served("b", from, to);
}

TEST(Fairness, TwoTenantsWhoAskAHundredToOneAreServedOneToOne) {
  Load load({{.name = "a", .at_once = 1000}, {.name = "b", .at_once = 10}}, {.max_sequences = 16});
  load.run_for(60);
  EXPECT_NEAR(ratio(load, 20, 60), 1, 0.05);
}

TEST(Fairness, FirstComeServesWhoAsksMore) {
  Load load({{.name = "a", .at_once = 1000}, {.name = "b", .at_once = 10}},
            {.max_sequences = 16, .policy = PolicyKind::kFirstCome});
  load.run_for(60);
  EXPECT_GT(ratio(load, 20, 60), 20) << "else the test above shows nothing";
}

TEST(Fairness, AWeightOfThreeHasThreeTimesAsMuch) {
  Load load({{.name = "a", .weight = 3, .at_once = 200}, {.name = "b", .at_once = 200}}, {.max_sequences = 16});
  load.run_for(60);
  EXPECT_NEAR(ratio(load, 20, 60), 3, 0.15);
}

// Prompt tokens are weighted by their cost relative to decoded ones; both tenants get the same service time.
TEST(Fairness, LongPromptsBesideLongAnswersHaveTheSameTime) {
  Load load({{.name = "a", .n_prompt = 600, .n_answer = 4, .at_once = 100},
             {.name = "b", .n_prompt = 10, .n_answer = 200, .at_once = 100}},
            {.max_sequences = 16});
  load.run_for(80);
  const testing::LinearCost cost;
  const double of_a = load.served("a", 30, 80) * cost.prompt;
  const double of_b = load.served("b", 30, 80) * cost.decode;
  EXPECT_NEAR(of_a / of_b, 1, 0.2);
}

TEST(Fairness, IdleTenantSavesUpNothing) {
  Load load({{.name = "a", .at_once = 100}, {.name = "b", .at_once = 100, .from = 40}}, {.max_sequences = 16});
  load.run_for(60);
  EXPECT_NEAR(ratio(load, 41, 46), 1, 0.2);
  EXPECT_NEAR(ratio(load, 45, 60), 1, 0.05);
}

// ---- Shares of a step's time ----

// Decoded tokens per second of a tenant's `n` sequences, after short prompts.
double decoded(const Load& load, const std::string& tenant) {
  double n = 0;
  for (const auto& [id, s] : load.t.seen) {
    if (s.tenant == tenant) n += static_cast<double>(std::ranges::count_if(s.tokens, [](double t) { return t >= 10; }));
  }
  return n / 50;
}
Tenant decoding(const std::string& name, int at_once, float weight = 1) {
  return {.name = name, .n_prompt = 8, .n_answer = 400, .weight = weight, .at_once = at_once};
}
// Each tenant's speed relative to its speed alone.
std::map<std::string, double> speeds(const std::vector<Tenant>& tenants, const EngineOptions& options = {}) {
  std::map<std::string, double> of_alone;
  Load all(tenants, options);
  all.run_for(60);
  for (const Tenant& tenant : tenants) {
    Load alone({tenant}, options);
    alone.run_for(60);
    of_alone[tenant.name] = decoded(all, tenant.name) / decoded(alone, tenant.name);
  }
  return of_alone;
}

TEST(FairSteps, OneSequenceBesideSixtyThreeHasHalfItsSpeed) {
  auto of_alone = speeds({decoding("a", 63), decoding("b", 1)});
  EXPECT_GE(of_alone["b"], 0.47);
  EXPECT_GE(of_alone["a"], 0.47);
}

TEST(FairSteps, InOrderOfComingItHasATwelfth) {
  auto of_alone = speeds({decoding("a", 63), decoding("b", 1)}, {.policy = PolicyKind::kFirstCome});
  EXPECT_LT(of_alone["b"], 0.15) << "else the test above shows nothing";
}

TEST(FairSteps, AWeightOfNineIsNineTenthsOfTheSpeed) {
  auto of_alone = speeds({decoding("a", 63), decoding("b", 1, 9)});
  EXPECT_GE(of_alone["b"], 0.84);
  EXPECT_GE(of_alone["a"], 0.08);
  of_alone = speeds({decoding("a", 63), decoding("b", 1, 1000)});
  EXPECT_GE(of_alone["b"], 0.95);
  EXPECT_GT(of_alone["a"], 0.0005) << "a small part and not none";
}

TEST(FairSteps, EachOfThreeTenantsHasAThird) {
  for (const auto& [tenant, speed] : speeds({decoding("a", 40), decoding("b", 1), decoding("c", 20)}))
    EXPECT_GE(speed, 0.31) << tenant;
}

TEST(FairSteps, ManyChoicesOfOneRequestAreOneTenants) {
  TimedEngine t;
  Request many = t.request(8, 300), one = t.request(8, 300);
  many.tenant = "a", many.n = 63;
  one.tenant = "b";
  const RequestId a = t.submit(std::move(many)), b = t.submit(std::move(one));
  while (!t.seen[b].finished) t.step();
  const double alone = 300 * 3.5e-3;  // 2.4 and 0.8 ms a token, and what attention reads
  EXPECT_LE(t.clock.now(), 2.2 * alone);
  t.drain();
  EXPECT_EQ(t.seen[a].tokens.size(), 63u * 300);
}

// With a bound on inter-token latency that exceeds the prompts' share of the machine, prompts get only their share.
TEST(FairSteps, PromptsOfOneTenantLeaveAnothersDecodesTheirPart) {
  auto of_alone =
      speeds({{.name = "a", .n_prompt = 2000, .n_answer = 1, .at_once = 8}, decoding("b", 1)}, {.max_itl = 0.1});
  EXPECT_GE(of_alone["b"], 0.42);
  EXPECT_GE(of_alone["a"], 0.40);
}

TEST(FairSteps, NoDecodeSitsOutWhileStepsKeepWithinEachShare) {
  Load two({decoding("a", 8), decoding("b", 8)}), one({decoding("a", 16)});
  two.run_for(60), one.run_for(60);
  EXPECT_GE(decoded(two, "a") + decoded(two, "b"), 0.97 * decoded(one, "a"));
}

// All of a tenant's sequences advance, none far ahead of the others.
TEST(FairSteps, SequencesSitOutInTurns) {
  TimedEngine t;
  std::vector<RequestId> crowd;
  for (int i = 0; i < 40; ++i) {
    Request r = t.request(8, 600);
    r.tenant = "a";
    crowd.push_back(t.submit(std::move(r)));
  }
  Request r = t.request(8, 3000);
  r.tenant = "b";
  const RequestId b = t.submit(std::move(r));
  while (t.seen[b].tokens.size() < 2000) t.step();
  size_t least = 600, most = 0;
  for (RequestId id : crowd) {
    least = std::min(least, t.seen[id].tokens.size());
    most = std::max(most, t.seen[id].tokens.size());
  }
  EXPECT_GT(least, 100u);
  EXPECT_LE(most - least, 25u) << "of " << most;  // tokens of the first ones before the last one's prompt was read
}

// ---- Requests that come at a rate ----

// The capacity of a machine for requests of this shape, in requests a second.
double capacity(const EngineOptions& options) {
  Load load({{.name = "a", .at_once = 300}}, options);
  load.run_for(40);
  return load.served("a", 10, 40) / 140 / 30;
}

TEST(Fairness, ATenantThatAsksATenthOfItsShareDoesNotNoticeHowMuchTheOtherAsks) {
  const EngineOptions options = {.max_sequences = 16, .max_waiting = 512};
  const double share = capacity(options) / 2;
  Load calm({{.name = "a", .rate = share}, {.name = "b", .rate = share / 10}}, options);
  calm.run_for(600);
  Load loud({{.name = "a", .rate = 20 * share}, {.name = "b", .rate = share / 10}}, options);
  loud.run_for(600);
  EXPECT_LE(loud.ttft("b", 0.95, 20), 1.5 * calm.ttft("b", 0.95, 20));
  EXPECT_GT(loud.ttft("a", 0.5, 20), 10 * loud.ttft("b", 0.5, 20)) << "the other has to wait";
}

// ---- Targets ----

// Requests per second whose first token and mean inter-token latency met their targets.
double goodput(double rate, const EngineOptions& options, bool has_targets) {
  Tenant tenant{.name = "a", .n_prompt = 300, .n_answer = 60, .rate = rate};
  if (has_targets) tenant.ttft_target = 1, tenant.tpot_target = 0.03f;
  Load load({tenant}, options);
  load.run_for(120);
  double n = 0;
  for (const auto& [id, s] : load.t.seen) {
    const bool counts = s.asked > 20 && s.asked < 100 && s.tokens.size() == 60;
    n += counts && s.ttft() <= 1 && (s.tokens.back() - s.tokens.front()) / 59 <= 0.03;
  }
  return n / 80;
}

TEST(Targets, GoodputStaysAtItsPeakWhenThreeTimesAsMuchIsAskedForAsThereIs) {
  const EngineOptions options = {.max_sequences = 32, .max_waiting = 512};
  double peak = 0;  // the machine's capacity
  for (double rate = 1; rate < 8; rate *= 1.3) peak = std::max(peak, goodput(rate, options, true));
  EXPECT_GE(goodput(3 * peak, options, true), 0.9 * peak) << "of " << peak;
  EXPECT_LT(goodput(3 * peak, options, false), 0.5 * peak) << "else targets do nothing";
}

TEST(Targets, OnlyRequestsPastTheirMaxWaitAreRefused) {
  TimedEngine t({.max_sequences = 1});
  t.submit(100, 2000);
  t.step();
  Request hurried = t.request(100, 3), patient = t.request(100, 3);
  hurried.max_wait = 0.5;
  const RequestId early = t.submit(std::move(hurried)), late = t.submit(std::move(patient));
  const double begin = t.clock.now();
  while (!t.seen[early].finished) t.step();
  EXPECT_NEAR(t.clock.now() - begin, 0.5, 0.05);
  EXPECT_TRUE(t.seen[early].tokens.empty());
  EXPECT_EQ(t.engine->stats().n_overdue, 1);
  t.drain();
  EXPECT_EQ(t.seen[late].tokens.size(), 3u);
  EXPECT_EQ(t.engine->stats().n_overdue, 1);
}

TEST(Targets, AFirstTokenThatCannotComeInTimeIsRefusedAtOnce) {
  TimedEngine t;
  t.submit(100, 5);
  t.drain();  // something is known of the machine
  Request r = t.request(4000, 3);
  r.ttft_target = 0.5;
  const RequestId id = t.submit(std::move(r));
  t.step();
  EXPECT_TRUE(t.seen[id].finished);
  EXPECT_TRUE(t.seen[id].tokens.empty());
}

TEST(Targets, RequestsThatWouldBreakTheItlTargetStayOut) {
  TimedEngine t;
  for (int i = 0; i < 40; ++i) {
    Request r = t.request(50, 100);
    r.tpot_target = 0.02f;
    t.submit(std::move(r));
  }
  t.drain();
  const std::vector<double> gaps = t.gaps(1);
  EXPECT_LE(TimedEngine::quantile(gaps, 0.99), 0.0205);
  EXPECT_GE(TimedEngine::quantile(gaps, 0.5), 0.012) << "the machine is used";
}

// Seconds to the first token of a request that arrives during a long answer of tenant a with a target.
double waits_beside(float tpot_target, const std::string& tenant) {
  TimedEngine t;
  t.submit(100, 5);
  t.drain();  // something is known of the machine
  Request first = t.request(50, 200), second = t.request(50, 5);
  first.tpot_target = tpot_target;
  first.tenant = "a";
  second.tenant = tenant;
  const RequestId longer = t.submit(std::move(first));
  while (t.seen[longer].tokens.size() < 10) t.step();
  const RequestId next = t.submit(std::move(second));
  while (t.seen[next].tokens.empty()) t.step();
  return t.seen[next].ttft();
}

// A decode alone takes 3.3 to 3.5 ms, two take 4.2; and a fifth is for prompts. All of the answer takes 0.6 s.
TEST(Targets, TargetBelowALoneDecodeIsIgnored) {
  EXPECT_GT(waits_beside(0.0048F, "a"), 0.5) << "one that it keeps does";
  EXPECT_LT(waits_beside(0.001F, "a"), 0.1);
}

TEST(Targets, OfOneTenantKeepNoOtherOut) { EXPECT_LT(waits_beside(0.0048F, "b"), 0.1); }

}  // namespace
}  // namespace ibid
