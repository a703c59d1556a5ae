// SpelledTokens: a tokenizer that knows how its tokens are spelled and nothing else; an id beyond them has no text.
// Where ids from `first` on are the characters from `character` on, each one token, it also encodes, a character a
// token.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ibid {

class SpelledTokens final : public Tokenizer {
 public:
  explicit SpelledTokens(std::vector<std::string> tokens, std::vector<TokenId> end_of_generation = {}) {
    vocabulary_.tokens = std::move(tokens);
    vocabulary_.end_of_generation = std::move(end_of_generation);
  }
  SpelledTokens(std::vector<std::string> tokens, int32_t first, char character) : SpelledTokens(std::move(tokens)) {
    encodes_ = true, offset_ = first - character;
  }
  void encode(std::string_view text, const EncodeOptions&, std::vector<TokenId>& out) const override {
    if (!encodes_) return;
    for (const char c : text) out.push_back(TokenId{c + offset_});
  }
  std::string_view token_bytes(TokenId id, bool) const override {
    const auto i = static_cast<size_t>(raw(id));
    return i < vocabulary_.tokens.size() ? std::string_view(vocabulary_.tokens[i]) : "";
  }
  bool strips_leading_space() const override { return false; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  bool encodes_ = false;
  int32_t offset_ = 0;  // an id minus its character
};

}  // namespace ibid
