// Several drafts for one place under rejection: the scheme with exact fractions, its draws by counting.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "sample/sampler.h"
#include "spec/drawn/rejection.h"
#include "spec_counting.h"
#include "spec_laws.h"

namespace ibid {
namespace {

using testing::deviation;
using testing::distance;
using testing::Fraction;
using testing::kCountedVocab;
using testing::Law;
using testing::laws;
using testing::normal_logits;

enum class Scheme : uint8_t { kIndependent, kDistinct, kCertain };

// How the scheme may be got wrong, each of which must show.
enum class Mistake : uint8_t { kNone, kFirstP, kNotClamped, kNotNormalised, kForgetsQ };

struct Unclamped : Rejection<Fraction> {
  static Fraction residual(Fraction p, Fraction q) { return p > q ? p - q : q - p; }
};
struct Forgetful : Rejection<Fraction> {
  static Fraction residual(Fraction p, Fraction) { return p; }
};

using Tuple = std::vector<size_t>;

Fraction sum_without(const Law& q, std::span<const size_t> apart) {
  Fraction sum;
  for (size_t x = 0; x < q.size(); ++x) {
    if (std::ranges::find(apart, x) == apart.end()) sum = sum + q[x];
  }
  return sum;
}

// What sibling c of these was drawn from.
Fraction q_of(const Law& q, Scheme scheme, const Tuple& siblings, size_t c, size_t x, Mistake mistake) {
  if (scheme == Scheme::kCertain) return Fraction(x == siblings[c] ? 1 : 0);
  const auto before = std::span(siblings).first(c);
  if (scheme == Scheme::kIndependent) return q[x];
  if (std::ranges::find(before, x) != before.end()) return {};
  const Fraction rest = mistake == Mistake::kNotNormalised ? Fraction(1) : sum_without(q, before);
  return Rejection<Fraction>::without(q[x], rest);
}

// Every way to draw n siblings, with its probability; fewer where q has no more distinct ones. Certain ones are any.
void each_tuple(const Law& q, Scheme scheme, size_t n,
                const std::function<void(const Tuple&, const Fraction&)>& visit) {
  Tuple siblings;
  const auto go = [&](auto&& self, const Fraction& likely) -> void {
    const bool is_out = scheme == Scheme::kDistinct && sum_without(q, siblings) == Fraction(0);
    if (siblings.size() == n || is_out) return visit(siblings, likely);
    for (size_t x = 0; x < q.size(); ++x) {
      siblings.push_back(x);
      const Fraction of_x =
          scheme == Scheme::kCertain ? Fraction(1) : q_of(q, scheme, siblings, siblings.size() - 1, x, Mistake::kNone);
      if (of_x > Fraction(0)) self(self, likely * of_x);
      siblings.pop_back();
    }
  };
  go(go, Fraction(1));
}

struct Verified {
  std::vector<Fraction> taken;  // of each sibling, how likely it is taken over
  Law drawn;                    // how likely the token comes from the residual, of each
};

// The engine's own walk over siblings, each refused and taken over as likely as it is.
template <typename Formulas>
Verified verified(Law p, const Law& q, Scheme scheme, const Tuple& siblings, Mistake mistake) {
  Verified out{std::vector<Fraction>(siblings.size()), Law(p.size())};
  const Law first = p;
  Fraction reached(1);
  try_siblings<Formulas>(
      std::span(p), static_cast<int32_t>(siblings.size()),
      [&](int32_t c) { return static_cast<int32_t>(siblings[static_cast<size_t>(c)]); },
      [&](int32_t c, int32_t x) {
        return q_of(q, scheme, siblings, static_cast<size_t>(c), static_cast<size_t>(x), mistake);
      },
      [&](int32_t c, const Fraction& of_p, const Fraction& of_q) {
        const auto at = static_cast<size_t>(c);
        const Fraction accepted = Formulas::acceptance(mistake == Mistake::kFirstP ? first[siblings[at]] : of_p, of_q);
        out.taken[at] = reached * accepted;
        reached = reached - out.taken[at];
        return !(reached > Fraction(0));
      });
  for (size_t x = 0; x < p.size(); ++x) out.drawn[x] = reached * p[x];
  return out;
}

Verified verified(const Law& p, const Law& q, Scheme scheme, const Tuple& siblings, Mistake mistake = Mistake::kNone) {
  if (mistake == Mistake::kNotClamped) return verified<Unclamped>(p, q, scheme, siblings, mistake);
  if (mistake == Mistake::kForgetsQ) return verified<Forgetful>(p, q, scheme, siblings, mistake);
  return verified<Rejection<Fraction>>(p, q, scheme, siblings, mistake);
}

Law law_of(const Law& p, const Law& q, Scheme scheme, size_t n, Mistake mistake = Mistake::kNone) {
  Law out(p.size());
  each_tuple(q, scheme, n, [&](const Tuple& siblings, const Fraction& likely) {
    const Verified v = verified(p, q, scheme, siblings, mistake);
    for (size_t c = 0; c < siblings.size(); ++c) out[siblings[c]] = out[siblings[c]] + likely * v.taken[c];
    for (size_t x = 0; x < p.size(); ++x) out[x] = out[x] + likely * v.drawn[x];
  });
  return out;
}

// Row S14. All laws of four tokens with two siblings, of three with three; equal siblings are among the independent
// ones.
TEST(Siblings, GiveTheTargetsLawWhateverTheDraftsByEnumeration) {
  for (const Scheme scheme : {Scheme::kIndependent, Scheme::kDistinct}) {
    for (const size_t n : {2, 3}) {
      const std::vector<Law> all = laws(6 - n);
      for (const Law& p : all) {
        for (const Law& q : all) ASSERT_EQ(law_of(p, q, scheme, n), p);
      }
    }
  }
}

// Drafts that were not sampled, equal ones among them: each tuple by itself.
TEST(Siblings, ThatAreCertainGiveTheTargetsLawByEnumeration) {
  const std::vector<Law> all = laws(4);
  for (const Law& p : all) {
    for (const size_t n : {1, 2, 3}) {
      each_tuple(p, Scheme::kCertain, n, [&](const Tuple& siblings, const Fraction&) {
        const Verified v = verified(p, p, Scheme::kCertain, siblings);
        Law out = v.drawn;
        for (size_t c = 0; c < n; ++c) out[siblings[c]] = out[siblings[c]] + v.taken[c];
        ASSERT_EQ(out, p);
      });
    }
  }
}

// Two siblings, each with two of its own: the law of two tokens is the target's product. Below equal siblings only the
// first one's are ever looked at.
TEST(Siblings, GiveTheTargetsLawOfWholeTreesByEnumeration) {
  const std::vector<Law> all = laws(3);
  std::mt19937 random(5);
  const auto any = [&]() -> const Law& { return all[random() % all.size()]; };
  for (const Scheme scheme : {Scheme::kIndependent, Scheme::kDistinct}) {
    for (int turn = 0; turn < 25; ++turn) {
      const Law p1 = any(), q1 = any();
      std::vector<Law> p2, q2;
      for (int x = 0; x < 3; ++x) p2.push_back(any()), q2.push_back(any());
      std::vector<Law> out(3, Law(3));  // of the first token and the second
      each_tuple(q1, scheme, 2, [&](const Tuple& first, const Fraction& likely) {
        const Verified v = verified(p1, q1, scheme, first);
        for (size_t c = 0; c < first.size(); ++c) {
          const size_t x = first[c];
          each_tuple(q2[x], scheme, 2, [&](const Tuple& second, const Fraction& likely_too) {
            const Verified w = verified(p2[x], q2[x], scheme, second);
            const Fraction both = likely * v.taken[c] * likely_too;
            for (size_t d = 0; d < second.size(); ++d) out[x][second[d]] = out[x][second[d]] + both * w.taken[d];
            for (size_t y = 0; y < 3; ++y) out[x][y] = out[x][y] + both * w.drawn[y];
          });
        }
        // After a token that is no draft comes a plain draw.
        for (size_t x = 0; x < 3; ++x) {
          for (size_t y = 0; y < 3; ++y) out[x][y] = out[x][y] + likely * v.drawn[x] * p2[x][y];
        }
      });
      for (size_t x = 0; x < 3; ++x) {
        for (size_t y = 0; y < 3; ++y) ASSERT_EQ(out[x][y], p1[x] * p2[x][y]);
      }
    }
  }
}

// A sibling more never lowers what is taken over; distinct ones that are all there is are never all refused, and take
// over as much as independent ones or more.
TEST(Siblings, AreWorthTheirRows) {
  const std::vector<Law> all = laws(3);
  const auto taken = [](const Law& p, const Law& q, Scheme scheme, size_t n) {
    Fraction sum;
    each_tuple(q, scheme, n, [&](const Tuple& siblings, const Fraction& likely) {
      for (const Fraction& of_one : verified(p, q, scheme, siblings).taken) sum = sum + likely * of_one;
    });
    return sum;
  };
  int64_t n_better = 0;
  for (const Law& p : all) {
    for (const Law& q : all) {
      const bool is_everywhere = std::ranges::none_of(q, [](const Fraction& x) { return x == Fraction(0); });
      for (const Scheme scheme : {Scheme::kIndependent, Scheme::kDistinct})
        ASSERT_FALSE(taken(p, q, scheme, 1) > taken(p, q, scheme, 2));
      if (is_everywhere) {
        ASSERT_EQ(taken(p, q, Scheme::kDistinct, 3), Fraction(1));
      }
      n_better += taken(p, q, Scheme::kDistinct, 2) > taken(p, q, Scheme::kIndependent, 2);
    }
  }
  EXPECT_GT(n_better, 100);
}

TEST(Siblings, VerifiedWronglyAreBiased) {
  const std::vector<Law> all = laws(3);
  const auto biased = [&](Scheme scheme, Mistake mistake) {
    int64_t n = 0;
    for (const Law& p : all) {
      for (const Law& q : all) n += law_of(p, q, scheme, 2, mistake) != p;
    }
    return static_cast<double>(n) / static_cast<double>(all.size() * all.size());
  };
  EXPECT_EQ(biased(Scheme::kDistinct, Mistake::kNone), 0);
  for (const Scheme scheme : {Scheme::kIndependent, Scheme::kDistinct}) {
    EXPECT_GT(biased(scheme, Mistake::kFirstP), 0.3);
    EXPECT_GT(biased(scheme, Mistake::kNotClamped), 0.3);
    EXPECT_GT(biased(scheme, Mistake::kForgetsQ), 0.3);
  }
  EXPECT_GT(biased(Scheme::kDistinct, Mistake::kNotNormalised), 0.15);
}

// ---- draws ---------------------------------------------------------------------------------------------------------

struct Counted {
  std::vector<int64_t> n = std::vector<int64_t>(kCountedVocab);  // of each token
  std::vector<double> p = std::vector<double>(kCountedVocab);
  std::vector<int64_t> taken;  // of each sibling
};

Counted counted(const SamplingParams& params, const std::vector<float>& of_p, const std::vector<float>& of_q,
                int32_t n_siblings, bool is_distinct, int64_t n) {
  const auto sampler = Sampler::compile(params, kCountedVocab, {}, 11).value();
  const std::vector<TokenId> prompt = {TokenId{1}, TokenId{2}, TokenId{3}};
  SamplerScratch scratch;
  Counted out;
  out.taken.resize(static_cast<size_t>(n_siblings));
  std::vector<float> p(kCountedVocab), q(kCountedVocab);
  std::vector<double> law;
  std::vector<Sibling> siblings;
  for (int64_t i = 0; i < n; ++i) {
    SamplerState state = sampler->initial_state(static_cast<uint64_t>(i));
    SamplerState of_draft = state;
    ProposeRule propose(q, n_siblings, is_distinct);
    EXPECT_TRUE(sampler->sample(of_q, {prompt, {}}, of_draft, scratch, {}, &propose).ok());
    siblings.clear();
    for (const TokenId token : propose.drawn()) siblings.push_back({token, q, is_distinct});
    VerifyRule verify(siblings, law);
    const TokenId token = sampler->sample(of_p, {prompt, {}}, state, scratch, {}, &verify)->chosen.token;
    ++out.n[static_cast<size_t>(raw(token))];
    const auto it = std::ranges::find(siblings, token, &Sibling::token);
    if (it != siblings.end()) ++out.taken[static_cast<size_t>(it - siblings.begin())];
  }
  SamplerState state = sampler->initial_state(0);
  ProposeRule target(p);
  EXPECT_TRUE(sampler->sample(of_p, {prompt, {}}, state, scratch, {}, &target).ok());
  for (size_t x = 0; x < p.size(); ++x) out.p[x] = static_cast<double>(p[x]);
  return out;
}

class SiblingDraws : public ::testing::TestWithParam<bool> {};

TEST_P(SiblingDraws, HaveTheTargetsLaw) {
  const std::vector<float> p = normal_logits(1, 1), q = normal_logits(2, 1, &p);
  constexpr int64_t kDraws = 200'000;
  const Counted c = counted({}, p, q, 3, GetParam(), kDraws);
  EXPECT_LT(deviation(c.n, c.p), testing::kMostDeviation);
  EXPECT_LT(distance(c.n, c.p), 0.01);
  for (size_t i = 0; i < c.taken.size(); ++i) EXPECT_GT(c.taken[i], kDraws / 50) << i;
  EXPECT_LT(std::accumulate(c.taken.begin(), c.taken.end(), int64_t{0}), kDraws * 95 / 100);
}

TEST_P(SiblingDraws, HaveTheTargetsLawUnderStages) {
  const std::vector<float> p = normal_logits(3, 1.5F), q = normal_logits(4, 0.9F, &p);
  std::vector<std::pair<const char*, SamplingParams>> all(5);
  all[0] = {"temperature", {.temperature = 0.6F}};
  all[1] = {"top_k", {.top_k = 3}};  // fewer distinct ones than are asked for
  all[2] = {"top_p", {.top_p = 0.8F}};
  all[3] = {"penalties", {.repetition_penalty = 1.5F, .presence_penalty = 0.7F}};
  all[4] = {"several", {.logit_bias = {{TokenId{7}, 2.0F}}, .temperature = 1.3F, .min_p = 0.02F}};
  for (const auto& [name, params] : all) {
    const Counted c = counted(params, p, q, 4, GetParam(), 40'000);
    EXPECT_LT(deviation(c.n, c.p), testing::kMostDeviation) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, SiblingDraws, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "distinct" : "independent"; });

// Who races the same noise: the first is what is drawn, each further one what would be without those before it.
TEST(FirstOfRace, IsWhatTheSamplerDrawsAndThenWhatItWould) {
  const std::vector<float> row = normal_logits(6, 1.5F);
  const auto sampler = Sampler::compile({.temperature = 1.2F, .top_k = 60}, kCountedVocab, {}, 11).value();
  const std::vector<TokenId> prompt = {TokenId{1}, TokenId{2}};
  SamplerScratch scratch;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SamplerState state = sampler->initial_state(seed);
    FirstOfRace race(4);
    const TokenId first = sampler->sample(row, {prompt, {}}, state, scratch, {}, &race)->chosen.token;
    ASSERT_EQ(race.drawn().size(), 4u);
    ASSERT_EQ(race.drawn().front(), first);
    // By the candidates of the same support, one after the other taken out.
    std::vector<Candidate> support;
    const double highest = static_cast<double>(*std::ranges::max_element(row));
    std::vector<float> sorted = row;
    std::ranges::sort(sorted, std::greater<>());
    for (int32_t x = 0; x < kCountedVocab; ++x) {
      const float of_x = row[static_cast<size_t>(x)];
      if (of_x >= sorted[59])
        support.push_back(
            {.weight = static_cast<float>(std::exp((static_cast<double>(of_x) - highest) / 1.2)), .id = x});
    }
    for (const TokenId token : race.drawn()) {
      FirstOfRace alone(1);
      ASSERT_EQ(alone.draw(support, 1, 11 + seed, 2), token);
      std::erase_if(support, [token](const Candidate& c) { return TokenId{c.id} == token; });
    }
    state = sampler->initial_state(seed);
    ASSERT_EQ(sampler->sample(row, {prompt, {}}, state, scratch)->chosen.token, first);
  }
}

// Certain ones, drawn ones and equal ones in one place; the first of more draws is that of fewer.
TEST(Siblings, HaveTheirEdges) {
  const std::vector<Candidate> support = {
      {.weight = 1, .id = 2}, {.weight = 3, .id = 5}, {.weight = 2, .id = 7}, {.weight = 4, .id = 9}};
  const std::vector<double> law = {0, 0, 0.1, 0, 0, 0.3, 0, 0.2, 0, 0.4};
  std::vector<float> q(10);
  std::vector<double> scratch;
  std::vector<int64_t> counts(10);
  for (uint64_t seed = 0; seed < 60'000; ++seed) {
    const std::vector<Candidate> of_q = {{.weight = 2, .id = 2}, {.weight = 1, .id = 5}, {.weight = 1, .id = 8}};
    ProposeRule one(q), propose(q, 3);
    const TokenId first = one.draw(of_q, 4, seed, 7);
    ASSERT_EQ(propose.draw(of_q, 4, seed, 7), first);
    ASSERT_EQ(propose.drawn().size(), 3u);
    // A look-up's draft twice, then what was drawn without it; of q all that is left, then nothing that p gives.
    std::vector<Sibling> siblings = {{TokenId{9}, {}}, {TokenId{9}, {}}};
    for (const TokenId token : propose.drawn()) siblings.push_back({token, q, true});
    siblings.push_back({TokenId{4}, {}});
    ++counts[static_cast<size_t>(raw(VerifyRule(siblings, scratch).draw(support, 10, seed, 7)))];
  }
  EXPECT_LT(deviation(counts, law), testing::kMostDeviation);
  // Of a q that is nearly one token's, what is left of it is another one's.
  std::vector<float> sharp(10);
  sharp[2] = 1, sharp[5] = 1e-30F;
  const std::vector<Candidate> only = {{.weight = 1, .id = 5}};
  const std::vector<Sibling> siblings = {{TokenId{2}, sharp, true}, {TokenId{5}, sharp, true}};
  EXPECT_EQ(VerifyRule(siblings, scratch).draw(only, 1, 3, 7), TokenId{5});
}

}  // namespace
}  // namespace ibid
