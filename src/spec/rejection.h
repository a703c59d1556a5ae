// Rejection verification: the other way to verify, exact in distribution instead of to the byte (Leviathan et al.,
// "Fast Inference from Transformers via Speculative Decoding", 2023, algorithm 1; Chen et al., 2023). A draft x that
// was drawn from q is taken over with min(1, p(x) / q(x)); else the token is drawn from (p - q)+, normalised; after a
// draft that was taken over, or without one, from p. It takes over 1 - TV(p, q) of the drafts, the most that any scheme
// can, where coupled verification may take less (docs/users/speculation.md).
//
// Siblings, several drafts for one place, are tried one after the other; with each refusal p becomes its residual
// (Miao et al., "SpecInfer", 2023, algorithm 2, "multi-step speculative sampling"). They were drawn from q
// independently of each other, and may be equal; or each from q without those before it, normalised again, so that they
// are distinct (Chen et al., "Sequoia", 2024, algorithm 1; Jeon et al., "Recursive Speculative Decoding", 2024).
//
// p and q are what is left to draw from after all processors, each of its own model. A draft that nobody drew (a
// look-up's) is certain: q is 1 there. Proposal, acceptance and residual have noise of their own, each a function of
// seed, position and place among the siblings: who shares it is biased, and no test of three tokens sees that.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sample/sampler.h"
#include "spec/drafts.h"

namespace ibid {

// The formulas alone, for numbers of any kind: fractions in tests, doubles where tokens are drawn.
template <typename Number>
struct Rejection {
  static Number acceptance(Number p, Number q) { return q > p ? p / q : Number(1); }  // of a draft: q > 0
  static Number residual(Number p, Number q) { return p > q ? p - q : Number(0); }    // not normalised
  // Of a token that is none of those put aside; they leave `rest` of q.
  static Number without(Number q, Number rest) { return q / rest; }
};

// Tries n siblings. p[i] is the law of all tokens that may come; after it, where no sibling was taken over, the law
// that the token comes from, of sum 1 as p was. place(c) is the index of sibling c in p, -1: p cannot give it; q(c, i)
// what c was drawn from, once those before it were refused; takes(c, p, q), of c's own p and q, whether it is taken
// over: it is with acceptance(p, q). The one that is; -1: none.
template <typename Formulas, typename Number, typename Place, typename Q, typename Takes>
int32_t try_siblings(std::span<Number> p, int32_t n, const Place& place, const Q& q, const Takes& takes) {
  for (int32_t c = 0; c < n; ++c) {
    const int32_t at = place(c);
    if (at >= 0 && takes(c, p[static_cast<size_t>(at)], q(c, at))) return c;
    Number mass(0);
    for (size_t i = 0; i < p.size(); ++i) mass = mass + Formulas::residual(p[i], q(c, static_cast<int32_t>(i)));
    if (!(mass > Number(0))) return -1;  // p is q but for rounding
    for (size_t i = 0; i < p.size(); ++i) p[i] = Formulas::residual(p[i], q(c, static_cast<int32_t>(i))) / mass;
  }
  return -1;
}

// Draws siblings from q and writes q down, [V]: the i-th and those before it are the same however many are drawn.
class ProposeRule final : public DrawRule {
 public:
  static constexpr int32_t kMost = 8;
  // `n` of them, 1 to kMost; fewer where they are distinct and q has no more.
  explicit ProposeRule(std::span<float> q, int32_t n = 1, bool is_distinct = true)
      : q_(q), n_wanted_(n), is_distinct_(is_distinct) {}
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;
  std::span<const TokenId> drawn() const { return {drawn_.data(), static_cast<size_t>(n_drawn_)}; }  // one at least

 private:
  std::span<float> q_;
  int32_t n_wanted_, n_drawn_ = 0;
  bool is_distinct_;
  std::array<TokenId, kMost> drawn_ = {};
};

// Draws what the race of coupled verification draws, and tells who came next in it: of n tokens that may be the
// target's the likeliest, for one who races the same noise over a row of its own.
class FirstOfRace final : public DrawRule {
 public:
  explicit FirstOfRace(int32_t n) : n_wanted_(n) {}  // 1 to ProposeRule::kMost
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;
  std::span<const TokenId> drawn() const { return {drawn_.data(), static_cast<size_t>(n_drawn_)}; }

 private:
  int32_t n_wanted_, n_drawn_ = 0;
  std::array<TokenId, ProposeRule::kMost> drawn_ = {};
};

// A draft beside others for the same place.
struct Sibling {
  TokenId token = TokenId::kNone;
  std::span<const float> q;  // [V] that it was drawn from; empty: it is certain
  bool is_distinct = false;  // from q without the tokens of the siblings before it
};

// The drafts after `parent` (-1: the sequence) among the first n, in their order.
void list_siblings(const Drafts& drafts, int32_t parent, int32_t n, std::vector<Sibling>& out);

// Verifies siblings. The token is one of theirs if that is accepted, and mostly another one if none is. A call looks at
// support and q once or twice for each sibling. `scratch` is anything; all outlive the draw.
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
