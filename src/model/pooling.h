// Which tokens' hidden states a text's vector is made of (engine/state/pooling.h makes it).
#pragma once

#include <cstdint>

namespace ibid {

// kRank: of none; what a cross-encoder's head makes of the first, scores instead of a vector. kEach: a vector for each
// token, one after the other.
enum class Pooling : uint8_t { kNone, kMean, kLast, kFirst, kRank, kEach };

}  // namespace ibid
