// How a step's drafts become tokens of a sequence.
#pragma once

#include <cstdint>

namespace ibid {

enum class Verifier : uint8_t {
  kCoupled,    // a draft is accepted if it is the token that would be drawn anyway: no byte depends on drafts
  kRejection,  // the answer's distribution is the target's, its bytes depend on drafts
  kTypical,    // any draft that is likely enough is accepted; the distribution differs
};

// For these verifiers the answer's bytes depend on the number of drafts, so that number must not depend on time or
// cost. It may depend on the proposer's state for the sequence (docs/users/speculation.md).
inline bool pins_drafts(Verifier verifier) { return verifier != Verifier::kCoupled; }

}  // namespace ibid
