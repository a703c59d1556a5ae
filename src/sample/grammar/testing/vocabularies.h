// Vocabularies for tests of masks, and what a mask must be: the bits of those tokens whose bytes, one by one, lead to a
// state that is alive.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sample/grammar/token_masks.h"

namespace ibid::grammar::testing {

struct Words {
  std::vector<std::string> texts;
  std::shared_ptr<const TokenTrie> trie() const {
    std::vector<std::string_view> views(texts.begin(), texts.end());
    return std::make_shared<const TokenTrie>(views);
  }
};

// All single bytes, all texts of 1 to `n_letters` of `letters`, 2 or 3, halves of code points, twins, an empty one,
// long ones.
inline Words adversarial(std::string_view letters, int n_letters = 3) {
  Words words;
  for (int b = 0; b < 256; ++b) words.texts.push_back(std::string(1, static_cast<char>(b)));
  for (char a : letters)
    for (char b : letters) {
      words.texts.push_back({a, b});
      for (char c : n_letters > 2 ? letters : "") words.texts.push_back({a, b, c});
    }
  for (const char* more : {"",
                           "\xC3",
                           "\xA9\"",
                           "\"\xC3",
                           "é",
                           "éé",
                           "\xF0\x9F\x98",
                           "\x80",
                           "ab",
                           "ab",
                           "abc",
                           "    ",
                           "\n\n  ",
                           "\",\"",
                           "\":",
                           "\": \"",
                           "},{",
                           "]]",
                           "\\u00",
                           "\\n",
                           "\\\"",
                           " the",
                           "the",
                           "The",
                           "12",
                           "345",
                           "-1",
                           "0.5",
                           "1e9",
                           "true",
                           "null",
                           "fal",
                           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                           "Über",
                           "日本",
                           "a-b_c",
                           "naïve \"q",
                           "bbbbbbbb",
                           "abababababab",
                           "Ab",
                           "A",
                           "zZ9_",
                           "://",
                           ".a",
                           "a.a",
                           "-a-",
                           "A1-",
                           "a/",
                           "/",
                           "日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語",
                           "\x7F"})
    words.texts.push_back(more);
  return words;
}

inline std::vector<uint32_t> brute_force(TokenMasks& masks, StateId state, uint32_t left = TokenMasks::kNoLimit) {
  std::vector<uint32_t> mask(masks.trie().mask_words(), 0);
  const bool is_tight = left != TokenMasks::kNoLimit && masks.states().shortest(state) <= left;
  for (int32_t t = 0; t < masks.trie().vocab_size(); ++t) {
    const StateId after = masks.after(state, TokenId{t});
    if (after == kDead || (is_tight && masks.states().shortest(after) >= left)) continue;
    mask[static_cast<size_t>(t) / 32] |= 1u << (t % 32);
  }
  return mask;
}

}  // namespace ibid::grammar::testing
