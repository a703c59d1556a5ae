// TokenTrie: the vocabulary of one model for masks: tries over the bytes of its tokens, one for each kind of token, so
// that a kind that may come as a whole is not walked; and tries of the rest of tokens after their first code points of
// a kind, for states that do not distinguish such code points. Immutable, one per model; made in some 200 ms.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "sample/grammar/byte_trie.h"

namespace ibid::grammar {

// The kinds. All but the last two hold tokens that are whole code points, none of them one that JSON escapes in a
// string; each token is of the first kind that has all of its code points.
enum class TokenKind : uint8_t {
  kLower,    // a-z
  kLetters,  // A-Z a-z
  kDigits,   // 0-9
  kWord,     // A-Z a-z 0-9 _ -
  kPhrase,   // A-Z a-z and space
  kPrinted,  // 20..7E
  kUnicode,
  kTailed,  // begin with code points of kUnicode and end with others
  kRest,    // begin with quotes, backslashes, controls, parts of code points
};
inline constexpr size_t kTokenKinds = 9, kPlainKinds = 7;
inline constexpr auto kDigits = static_cast<size_t>(TokenKind::kDigits);
inline constexpr auto kUnicode = static_cast<size_t>(TokenKind::kUnicode);
inline constexpr auto kTailed = static_cast<size_t>(TokenKind::kTailed);
inline constexpr uint32_t kMaxCounted = 32;  // code points in a token beyond which tokens are counted as one

class TokenTrie {
 public:
  // `bytes[t]`: the bytes that token t adds to a text; empty for tokens without text.
  explicit TokenTrie(std::span<const std::string_view> bytes);

  struct Kind {
    ByteTrie trie;
    uint32_t longest = 0;                                 // code points of the longest, in kinds of whole ones
    std::vector<std::pair<uint32_t, int32_t>> long_ones;  // code points beyond kMaxCounted, token
    // up_to[n]: bits of the tokens of at most n code points, n = 0..kMaxCounted; the last one is of all.
    // Kinds that are never taken as a whole (kTailed, kRest) have none.
    std::vector<std::vector<uint32_t>> up_to;
    const std::vector<uint32_t>& up_to_n(uint32_t n) const { return up_to[n < up_to.size() ? n : up_to.size() - 1]; }
  };
  const Kind& kind(size_t i) const { return kinds_[i]; }
  // Of the tokens that begin with one or more code points of a kind and go on otherwise: what lies after these, and as
  // `lengths` how many they are.
  struct Tails {
    ByteTrie trie;
    std::vector<uint8_t> first;                  // byte of the token of each entry
    uint32_t longest = 0;                        // of the lengths, and of all code points of tokens of the kind
    std::vector<std::vector<uint16_t>> lengths;  // of the entries below each child of the root, ascending, each once
    std::vector<uint32_t> bucket;  // of the token of each entry, where they are those of kTailed (kUnicode)
  };
  const Tails& tails(size_t i) const { return tails_[i]; }  // of kDigits and kUnicode
  // The tokens but those of kRest by what they begin with, up to their end or to what is no code point of kUnicode: the
  // first of these code points is of one group, those after it are of the same groups. Within a bucket by how many
  // they are, those beyond kMaxCounted as one more; then by their bytes. Those of kTailed come last.
  struct Bucket {
    ByteGroups rest = 0;     // without the first code point
    uint32_t begin = 0;      // in bucket_tokens(), up to where the next one begins
    uint8_t first = 0;       // a group
    uint8_t kind = 0;        // of all of them
    uint8_t longest = 0;     // code points, as counted
    uint8_t bits = kNoBits;  // in bucket_bits(), where they are many
  };
  static constexpr uint8_t kNoBits = 255;
  // All of them, or those of kTailed alone.
  uint32_t n_buckets() const { return static_cast<uint32_t>(buckets_.size() - 1); }
  uint32_t first_tailed() const { return first_tailed_; }
  const Bucket& bucket(uint32_t i) const { return buckets_[i]; }
  uint32_t bucket_end(uint32_t i) const { return buckets_[i + 1].begin; }
  const std::vector<uint32_t>& bucket_bits(uint8_t i) const { return bucket_bits_[i]; }
  uint32_t n_first(size_t group) const { return n_first_[group]; }  // tokens in buckets that begin so
  std::span<const int32_t> bucket_tokens() const { return bucket_tokens_; }
  std::span<const uint8_t> bucket_lengths() const { return bucket_lengths_; }  // in code points, as counted
  std::span<const uint8_t> bucket_shared() const { return bucket_shared_; }  // first bytes that the one before has too
  std::string_view bucket_bytes(uint32_t i) const {                          // side by side, for what goes over many
    return {bucket_text_.data() + bucket_begin_[i], bucket_begin_[i + 1] - bucket_begin_[i]};
  }
  const std::bitset<256>& used_bytes() const { return used_bytes_; }  // by any token
  // plain_up_to(n): bits of the tokens of all plain kinds with at most n code points.
  const std::vector<uint32_t>& plain_up_to(uint32_t n) const {
    return plain_[n < plain_.size() ? n : plain_.size() - 1];
  }
  // Of those of kDigits that do not begin with 0.
  const std::vector<uint32_t>& counts_up_to(uint32_t n) const {
    return counts_[n < counts_.size() ? n : counts_.size() - 1];
  }
  // Those that some token has in a whole code point of kUnicode, wherever.
  const std::bitset<256>& plain_bytes() const { return plain_bytes_; }
  bool has_plain(uint32_t lo, uint32_t hi) const {  // any of these
    for (uint32_t b = lo; b <= hi; ++b)
      if (plain_bytes_[b]) return true;
    return false;
  }
  int32_t vocab_size() const { return vocab_size_; }
  size_t mask_words() const { return (static_cast<size_t>(vocab_size_) + 31) / 32; }
  const std::bitset<256>& single_bytes() const { return single_bytes_; }  // that some token spells alone
  std::string_view bytes_of(TokenId token) const;
  uint32_t longest() const { return longest_; }

 private:
  void build(Kind& kind, std::span<const int32_t> tokens);
  void build_tails(size_t kind);
  void build_buckets();

  int32_t vocab_size_ = 0;
  uint32_t longest_ = 0;
  std::vector<char> text_;
  std::vector<uint32_t> begin_;  // in text_, per token, and the end
  std::array<Kind, kTokenKinds> kinds_;
  std::array<Tails, kPlainKinds> tails_;
  std::vector<std::vector<uint32_t>> plain_, counts_, bucket_bits_;
  std::vector<Bucket> buckets_;  // and one more, where they end
  uint32_t first_tailed_ = 0;
  std::array<uint32_t, kByteGroups> n_first_{};
  std::vector<int32_t> bucket_tokens_;
  std::vector<uint8_t> bucket_lengths_, bucket_shared_;
  std::vector<char> bucket_text_;
  std::vector<uint32_t> bucket_begin_;  // in bucket_text_, and the end
  std::bitset<256> single_bytes_, plain_bytes_, used_bytes_;
};

// Whether a byte may be in a code point of the kind that is ASCII; kinds but kUnicode have nothing else.
bool kind_has(size_t kind, uint8_t byte);
// The groups of the bytes of a plain kind.
ByteGroups groups_of_kind(size_t kind);
// Whether all code points of `inner` are of `outer`, both plain.
bool kind_has_kind(size_t outer, size_t inner);

}  // namespace ibid::grammar
