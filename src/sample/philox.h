// The only source of randomness: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011),
// keyed by the request's seed. The counter is (absolute position, purpose, token id / 4), so a token's noise depends on
// neither the support nor the token's rank in it, and no request shifts another's draws.
#pragma once

#include <Random123/philox.h>

#include <array>
#include <cstdint>

#include "base/ids.h"

namespace ibid {

enum class NoisePurpose : uint32_t {
  kDraw = 0,
  kXtc = 1,
  kPropose = 2,  // rejection verification (spec/drawn/rejection.h): draws a draft token,
  kAccept = 3,   // decides whether it is accepted,
  kResidual = 4  // and draws its replacement if not
};

// Four 32-bit words for tokens 4 * group .. 4 * group + 3. `turn`: for callers that draw several times at one position.
inline std::array<uint32_t, 4> noise_words(uint64_t seed, int32_t position, NoisePurpose purpose, uint32_t group,
                                           uint32_t turn = 0) {
  r123::Philox4x32::ctr_type counter = {{static_cast<uint32_t>(position), static_cast<uint32_t>(purpose), group, turn}};
  r123::Philox4x32::key_type key = {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
  r123::Philox4x32::ctr_type words = r123::Philox4x32()(counter, key);
  return {words[0], words[1], words[2], words[3]};
}

// (0, 1): never 0, never 1.
inline double open_unit(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

}  // namespace ibid
