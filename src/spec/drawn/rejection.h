// Rejection verification: exact in distribution instead of to the byte (Leviathan et al., "Fast Inference from
// Transformers via Speculative Decoding", 2023, algorithm 1; Chen et al., 2023). A draft x drawn from q is accepted
// with probability min(1, p(x) / q(x)); otherwise the token is drawn from (p - q)+, normalised; after an accepted
// draft, or without drafts, from p. It accepts 1 - TV(p, q) of the drafts, the maximum for any scheme; coupled
// verification may accept fewer (docs/users/speculation.md).
//
// Siblings, several drafts for one place, are tried in order; each rejection replaces p with its residual (Miao et al.,
// "SpecInfer", 2023, algorithm 2, "multi-step speculative sampling"). They are drawn from q either independently, and
// may be equal; or each from q without those before it, normalised again, so that they are distinct (Chen et al.,
// "Sequoia", 2024, algorithm 1; Jeon et al., "Recursive Speculative Decoding", 2024).
//
// p and q are the distributions after all processors, each of its own model. A draft that was not sampled (a look-up's)
// is certain: q is 1 there. Proposal, acceptance and residual use separate noise, each a function of seed, position and
// index among the siblings: sharing noise causes a bias that tests with three tokens do not show.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sample/sampler.h"
#include "spec/drafts.h"

namespace ibid {

// The formulas only, for any number type: fractions in tests, doubles for sampling.
template <typename Number>
struct Rejection {
  static Number acceptance(Number p, Number q) { return q > p ? p / q : Number(1); }  // for a draft: q > 0
  static Number residual(Number p, Number q) { return p > q ? p - q : Number(0); }    // not normalised
  // For a token that is not among the removed ones, which leave a mass of `rest` in q.
  static Number without(Number q, Number rest) { return q / rest; }
};

// Tries n siblings. p[i] is the target's distribution over the candidate tokens; on return without an accepted sibling,
// p is the distribution that the token is drawn from, with the same sum 1. place(c) is the index of sibling c in p, -1:
// p does not contain it; q(c, i) is the distribution that c was drawn from, given that those before it were rejected;
// takes(c, p, q), with c's own p and q, decides with probability acceptance(p, q) whether c is accepted. Returns the
// accepted sibling; -1: none.
template <typename Formulas, typename Number, typename Place, typename Q, typename Takes>
int32_t try_siblings(std::span<Number> p, int32_t n, const Place& place, const Q& q, const Takes& takes) {
  for (int32_t c = 0; c < n; ++c) {
    const int32_t at = place(c);
    if (at >= 0 && takes(c, p[static_cast<size_t>(at)], q(c, at))) return c;
    Number mass(0);
    for (size_t i = 0; i < p.size(); ++i) mass = mass + Formulas::residual(p[i], q(c, static_cast<int32_t>(i)));
    if (!(mass > Number(0))) return -1;  // p equals q except for rounding
    for (size_t i = 0; i < p.size(); ++i) p[i] = Formulas::residual(p[i], q(c, static_cast<int32_t>(i))) / mass;
  }
  return -1;
}

// Draws siblings from q and stores q, [V]: the first i siblings are the same however many are drawn.
class ProposeRule final : public DrawRule {
 public:
  static constexpr int32_t kMost = 8;
  // `n` siblings, 1 to kMost; fewer if they are distinct and q has no more.
  explicit ProposeRule(std::span<float> q, int32_t n = 1, bool is_distinct = true)
      : q_(q), n_wanted_(n), is_distinct_(is_distinct) {}
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;
  std::span<const TokenId> drawn() const { return {drawn_.data(), static_cast<size_t>(n_drawn_)}; }  // at least one

 private:
  std::span<float> q_;
  int32_t n_wanted_, n_drawn_ = 0;
  bool is_distinct_;
  std::array<TokenId, kMost> drawn_ = {};
};

// Draws the token of coupled verification's race, and reports the runners-up of the race: the n likeliest candidates
// for the target's token, for a proposer that races the same noise over a row of its own.
class FirstOfRace final : public DrawRule {
 public:
  explicit FirstOfRace(int32_t n) : n_wanted_(n) {}  // 1 to ProposeRule::kMost
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;
  std::span<const TokenId> drawn() const { return {drawn_.data(), static_cast<size_t>(n_drawn_)}; }

 private:
  int32_t n_wanted_, n_drawn_ = 0;
  std::array<TokenId, ProposeRule::kMost> drawn_ = {};
};

// One of several drafts for the same place.
struct Sibling {
  TokenId token = TokenId::kNone;
  std::span<const float> q;  // [V] distribution that it was drawn from; empty: it is certain
  bool is_distinct = false;  // from q without the tokens of the siblings before it
};

// Lists the successors of `parent` (-1: the sequence) among the first n drafts, in order.
void list_siblings(const Drafts& drafts, int32_t parent, int32_t n, std::vector<Sibling>& out);

// Verifies siblings. The token is a sibling's if that one is accepted, and usually another one if none is. A call scans
// support and q once or twice per sibling. `scratch` may have any content; all arguments outlive the draw.
class VerifyRule final : public DrawRule {
 public:
  VerifyRule(std::span<const Sibling> siblings, std::vector<double>& scratch) : siblings_(siblings), p_(scratch) {}
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;

 private:
  double rest(int32_t sibling) const;
  double proposed(int32_t sibling, TokenId token, double rest) const;
  std::span<const Sibling> siblings_;
  std::vector<double>& p_;
};

}  // namespace ibid
