// Decoding: the bytes that each token of a vocabulary adds to a text (Tokenizer::decode defines how they combine).
//
// WordPiece fits too: a token that begins a word is a space and its spelling, with the reference's clean-up (" ." is
// ".", " n't" is "n't") already applied, as that looks at one token at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace ibid {

// One of the reference's decoders.
struct DecoderStep {
  enum class Kind { kByteLevel, kByteFallback, kReplace, kStrip, kMetaspace, kWordPiece, kBpe, kSpaced };
  Kind kind;
  std::string pattern = {};    // kReplace; kMetaspace: the replacement; kWordPiece: the prefix; kBpe: the suffix
  std::string content = {};    // kReplace, kStrip
  size_t left = 0, right = 0;  // kStrip: how many at most
  bool clean_up = false;       // kWordPiece
};

class Decoding {
 public:
  // The bytes that `token` adds after others: the result of the steps on its spelling.
  static std::string bytes_of(std::string_view token, std::span<const DecoderStep> steps);

  void reserve(size_t n_tokens, size_t n_bytes);
  // Tokens in the order of their ids, each with the bytes that bytes_of returns. Hidden ones are shown only where
  // special tokens are.
  void add(std::string_view token, std::span<const DecoderStep> steps, bool hidden);
  void set_strips_leading_space(bool strips) { strips_leading_space_ = strips; }
  // A BPEDecoder's last word ends without the space that stands for its suffix (not in a stream, where the last word is
  // not known).
  void set_strips_trailing_space(bool strips) { strips_trailing_space_ = strips; }

  std::string_view token_bytes(TokenId id, bool special) const {
    auto i = static_cast<size_t>(raw(id));
    if (raw(id) < 0 || i >= hidden_.size() || (hidden_[i] && !special)) return {};
    return std::string_view(bytes_).substr(begins_[i], begins_[i + 1] - begins_[i]);
  }
  size_t n_bytes() const { return bytes_.size(); }  // of all tokens together
  bool strips_leading_space() const { return strips_leading_space_; }
  bool strips_trailing_space() const { return strips_trailing_space_; }

 private:
  std::string bytes_;
  std::vector<size_t> begins_ = {0};  // one per token, and the end of the last
  std::vector<bool> hidden_;
  bool strips_leading_space_ = false;
  bool strips_trailing_space_ = false;
};

}  // namespace ibid
