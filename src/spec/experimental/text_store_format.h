// Shared by the reader and the writer of a text store (spec/experimental/text_store.h): the file's header, and the
// order of its places.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/ids.h"
#include "base/sha256.h"

namespace ibid {

struct TextStoreHead {
  static constexpr std::array<char, 8> kMagic = {'I', 'B', 'I', 'D', 'T', 'E', 'X', 'T'};
  static constexpr uint32_t kVersion = 1;
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t vocab_size = 0;
  uint64_t n_tokens = 0;
  uint32_t name_len = 0;
  uint32_t zero = 0;
  Sha256Digest vocabulary = {};
  std::array<char, 64> name = {};
  Sha256Digest digest = {};
};
static_assert(sizeof(TextStoreHead) == 160 && std::endian::native == std::endian::little);
inline constexpr size_t kHeadDigested = sizeof(TextStoreHead) - sizeof(Sha256Digest);  // the header without its digest

// Compares the tokens before two places, read backwards: returns -1, 0 or 1 if the first is less, equal within max_len
// tokens, or greater; a text's end and positions before the file are less than any token and end the comparison. `a(i)`
// and `b(i)`: the i-th token before, from 1 on. `n_same`: number of equal tokens.
template <typename A, typename B>
int compare_backwards(A a, B b, int32_t max_len, int32_t& n_same) {
  for (n_same = 0; n_same < max_len; ++n_same) {
    const TokenId of_a = a(n_same + 1), of_b = b(n_same + 1);
    if (of_a != of_b) return of_a < of_b ? -1 : 1;
    if (of_a == TokenId::kNone) return 0;
  }
  return 0;
}

}  // namespace ibid
