// Typical acceptance: a verifier that is not exact (Cai et al., "Medusa: Simple LLM Inference Acceleration Framework
// with Multiple Decoding Heads", 2024, section 3.3.1, with its constants). A draft x is accepted if
//     p(x) > min(epsilon, delta exp(-H(p)))
// where p is the distribution after all processors and H its entropy: a flat p accepts many tokens. Otherwise the token
// is drawn from p with the request's noise. So likely tokens come more often than under p, and the answer depends on
// the proposer. At temperature 0 a draft is accepted only if it is the best token.
#pragma once

#include <span>

#include "spec/drawn/rejection.h"

namespace ibid {

struct TypicalAcceptance {
  static constexpr double kEpsilon = 0.09, kDelta = 0.3;
  // The threshold for p's entropy in nats.
  static double threshold(double entropy);
};

// The first typical sibling is the token. A call scans the support twice, and once more per sibling.
class TypicalRule final : public DrawRule {
 public:
  explicit TypicalRule(std::span<const Sibling> siblings) : siblings_(siblings) {}
  TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) override;

 private:
  std::span<const Sibling> siblings_;
};

}  // namespace ibid
