// TokenTrie: the vocabulary of one model as masks need it: tries over the bytes of its tokens, one for each kind of
// token, so that of a kind of which all may come none is looked at. Immutable, one per model; made in some 100 ms.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace ibid::grammar {

// The kinds. All but the last hold tokens that are whole code points, none of them one that JSON escapes in a string;
// each token is of the first kind that has all of its code points.
enum class TokenKind : uint8_t {
  kLower,    // a-z
  kLetters,  // A-Z a-z
  kDigits,   // 0-9
  kWord,     // A-Z a-z 0-9 _ -
  kPhrase,   // A-Z a-z and space
  kPrinted,  // 20..7E
  kUnicode,
  kRest,  // quotes, backslashes, controls, parts of code points
};
inline constexpr size_t kTokenKinds = 8, kPlainKinds = 7;
inline constexpr uint32_t kMaxCounted = 32;  // code points in a token beyond which tokens are counted as one

// A node of a trie in depth-first order. A byte that is refused leads to `skip`.
struct TrieNode {
  uint32_t skip = 0;
  uint8_t byte = 0;
  uint8_t is_token = 0;
  uint16_t depth = 0;  // of children of the root: 1
};

class TokenTrie {
 public:
  // `bytes[t]`: what token t adds to a text; empty for what is no text.
  explicit TokenTrie(std::span<const std::string_view> bytes);

  struct Kind {
    std::vector<TrieNode> nodes;
    std::vector<int32_t> tokens;  // per node where is_token
    uint32_t n_tokens = 0;
    uint32_t longest = 0;  // code points of the longest, in kinds of whole ones
    // up_to[n]: bits of the tokens of at most n code points, n = 0..kMaxCounted; the last one is of all.
    // Kinds of few tokens that are never taken as a whole (kRest) have none.
    std::vector<std::vector<uint32_t>> up_to;
    const std::vector<uint32_t>& up_to_n(uint32_t n) const { return up_to[n < up_to.size() ? n : up_to.size() - 1]; }
  };
  const Kind& kind(size_t i) const { return kinds_[i]; }
  int32_t vocab_size() const { return vocab_size_; }
  size_t mask_words() const { return (static_cast<size_t>(vocab_size_) + 31) / 32; }
  // The next token with the same bytes, or -1.
  int32_t twin(int32_t token) const { return twins_[static_cast<size_t>(token)]; }
  const std::bitset<256>& single_bytes() const { return single_bytes_; }  // that some token spells alone
  std::string_view bytes_of(TokenId token) const;
  uint32_t longest() const { return longest_; }

 private:
  void build(Kind& kind, std::vector<int32_t>& tokens);

  int32_t vocab_size_ = 0;
  uint32_t longest_ = 0;
  std::vector<char> text_;
  std::vector<uint32_t> begin_;  // in text_, per token, and the end
  std::array<Kind, kTokenKinds> kinds_;
  std::vector<int32_t> twins_;
  std::bitset<256> single_bytes_;
};

// Whether a byte may be in a code point of the kind that is ASCII; kinds but kUnicode have nothing else.
bool kind_has(size_t kind, uint8_t byte);

}  // namespace ibid::grammar
