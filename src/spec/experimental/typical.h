// Typical acceptance: the verifier that is not exact (Cai et al., "Medusa: Simple LLM Inference Acceleration Framework
// with Multiple Decoding Heads", 2024, section 3.3.1, whose constants these are). A draft x is taken over where
//     p(x) > min(epsilon, delta exp(-H(p)))
// with p what is left to draw from after all processors and H its entropy: where p is flat, much is typical. Otherwise
// the token is drawn from p with the request's noise. So likelier tokens come more often than p has them, and what
// comes depends on who drafts. At temperature 0 a draft is taken over only where it is the token.
#pragma once

#include <span>

#include "spec/rejection.h"

namespace ibid {

struct TypicalAcceptance {
  static constexpr double kEpsilon = 0.09, kDelta = 0.3;
  // Of p's entropy in nats.
  static double threshold(double entropy);
};

// The first of the siblings that is typical is the token. A call looks at the support twice, and once for each sibling.
class TypicalRule final : public DrawRule {
 public:
  explicit TypicalRule(std::span<const Sibling> siblings) : siblings_(siblings) {}
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;

 private:
  std::span<const Sibling> siblings_;
};

}  // namespace ibid
