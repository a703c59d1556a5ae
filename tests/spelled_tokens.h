// SpelledTokens: a tokenizer that knows how its tokens are spelled and nothing else; an id beyond them has no text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ibid {

class SpelledTokens final : public Tokenizer {
 public:
  explicit SpelledTokens(std::vector<std::string> tokens) { vocabulary_.tokens = std::move(tokens); }
  void encode(std::string_view, const EncodeOptions&, std::vector<TokenId>&) const override {}
  std::string_view token_bytes(TokenId id, bool) const override {
    const auto i = static_cast<size_t>(raw(id));
    return i < vocabulary_.tokens.size() ? std::string_view(vocabulary_.tokens[i]) : "";
  }
  bool strips_leading_space() const override { return false; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

}  // namespace ibid
