// Rejection verification: the other way to verify, exact in distribution instead of to the byte (Leviathan et al.,
// "Fast Inference from Transformers via Speculative Decoding", 2023, algorithm 1; Chen et al., 2023). A draft x that
// was drawn from q is taken over with min(1, p(x) / q(x)); else the token is drawn from (p - q)+, normalised; behind a
// draft that was taken over, or without one, from p. It takes over 1 - TV(p, q) of the drafts, the most that any scheme
// can, where coupled verification may take less (docs/speculation.md).
//
// p and q are what is left to draw from after all processors, each of its own model. A draft that nobody drew (a
// look-up's) is certain: q is 1 there. Proposal, acceptance and residual have noise of their own, each a function of
// seed and position: who shares it is biased, and no test of three tokens sees that.
#pragma once

#include <cstdint>
#include <span>

#include "sample/sampler.h"

namespace ibid {

// The formulas alone, for numbers of any kind: fractions in tests, doubles where tokens are drawn.
template <typename Number>
struct Rejection {
  static Number acceptance(Number p, Number q) { return q > p ? p / q : Number(1); }  // of a draft: q > 0
  static Number residual(Number p, Number q) { return p > q ? p - q : Number(0); }    // not normalised
};

// Draws from q and writes it down. [V] of `q`.
class ProposeRule final : public DrawRule {
 public:
  explicit ProposeRule(std::span<float> q) : q_(q) {}
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;

 private:
  std::span<float> q_;
};

// Verifies `draft`, which was drawn from q[V]; an empty q: it is certain. The token is the draft if that is accepted,
// and mostly another one if not.
class VerifyRule final : public DrawRule {
 public:
  VerifyRule(TokenId draft, std::span<const float> q) : draft_(draft), q_(q) {}
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;

 private:
  double proposed(int32_t id) const;
  TokenId draft_;
  std::span<const float> q_;
};

}  // namespace ibid
