// Random words for every token of a vocabulary at once: Philox4x32-10 as sample/philox.h defines it, by the selected
// instruction set; the words are the same on every one.
#pragma once

#include <cstdint>
#include <span>

namespace ibid {

// out[4 * g .. 4 * g + 3] are the words of counter (position, purpose, g, 0) under the key `seed`. A size that is no
// multiple of 4 is a mistake.
void fill_noise(std::span<uint32_t> out, uint64_t seed, int32_t position, uint32_t purpose);

}  // namespace ibid
