// Texts that a matcher allows, drawn token by token.
#pragma once

#include <random>
#include <vector>

#include "sample/grammar/matcher.h"

namespace ibid::grammar::testing {

// `n_texts` of choice 0, of 300 tokens at most; seen() after each token.
template <typename Seen>
void draw_texts(Matcher& matcher, std::mt19937& random, int n_texts, Seen&& seen) {
  std::vector<uint32_t> mask(matcher.mask_words());
  for (int text = 0; text < n_texts; ++text) {
    StateId state = kInitial;
    for (int i = 0; i < 300 && state != kDead && !matcher.is_closed(state); ++i) {
      matcher.fill(state, -1, mask);
      std::vector<TokenId> may;
      for (size_t t = 0; t < 32 * mask.size(); ++t)
        if (mask[t / 32] >> t % 32 & 1) may.push_back(TokenId{static_cast<int32_t>(t)});
      if (may.empty()) break;
      state = matcher.after(0, state, may[random() % may.size()]);
      matcher.hold(0, state);
      seen();
    }
  }
}

}  // namespace ibid::grammar::testing
