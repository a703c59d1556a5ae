// A walk along masks that must be those of brute force, and none of them empty before an end.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "sample/grammar/testing/vocabularies.h"

namespace ibid::grammar::testing {

constexpr size_t kMostBytes = 1 << 20;

// `choices` select which of the allowed tokens comes next; at least one. Aborts where a mask is wrong. Where texts
// stand at very many places at once the walk ends: one mask of such a state takes as long as a thousand others.
inline void walk_masks(TokenMasks& masks, std::span<const uint8_t> choices) {
  const int32_t vocab_size = masks.trie().vocab_size();
  std::vector<uint32_t> mask(masks.trie().mask_words());
  StateId state = kInitial;
  for (size_t step = 0; step < 8 && !masks.states().is_closed(state); ++step) {
    if (!masks.states().is_small(state) || masks.bytes() > kMostBytes) break;
    masks.fill(state, mask);
    if (mask != brute_force(masks, state)) std::abort();
    int32_t next = -1;
    for (int32_t i = 0, at = choices[step % choices.size()] * 7; i < vocab_size && next < 0; ++i) {
      const int32_t t = (at + i) % vocab_size;
      if (mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) next = t;
    }
    if (next < 0 && !masks.states().accepts(state)) std::abort();
    if (next < 0) break;
    state = masks.after(state, TokenId{next});
    masks.forget_others({&state, 1});
  }
}

}  // namespace ibid::grammar::testing
