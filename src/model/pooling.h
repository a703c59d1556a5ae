// Which tokens' hidden states a text's vector is made of (engine/pooling.h makes it).
#pragma once

#include <cstdint>

namespace ibid {

enum class Pooling : uint8_t { kNone, kMean, kLast, kFirst };

}  // namespace ibid
