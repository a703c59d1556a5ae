// How a step's drafts become tokens of a sequence.
#pragma once

#include <cstdint>

namespace ibid {

enum class Verifier : uint8_t {
  kCoupled,    // a draft is taken over where it is what would have been drawn anyway: no byte depends on drafts
  kRejection,  // spec/rejection.h: the answer's law is the target's, its bytes depend on drafts
  kTypical,    // spec/experimental/typical.h: whatever is likely enough is taken over; the law is another one
};

// Of requests whose bytes depend on how many drafts there are: neither time nor what drafts cost has a say in that
// number. What who drafts knows of a sequence has (docs/users/speculation.md).
inline bool pins_drafts(Verifier verifier) { return verifier != Verifier::kCoupled; }

}  // namespace ibid
