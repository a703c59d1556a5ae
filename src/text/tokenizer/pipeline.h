// Pipeline: the only implementation of Tokenizer. Text passes added tokens (raw), normalizer, added tokens
// (normalized), pre-tokenizer and word model, each of which may be empty; the tokens that a model needs around a text
// are added at the end. The builders in vocabulary_tokenizer.cc and json_tokenizer.cc fill the parts.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoding.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_map.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/word_model.h"

namespace ibid {

class Pipeline final : public Tokenizer {
 public:
  Pipeline();
  // Filled by a builder before the tokenizer is shared.
  Vocabulary vocab;
  TokenMap map;  // over vocab.tokens
  AddedTokens raw_added;
  AddedTokens normalized_added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  static constexpr TokenId kText = TokenId::kNone;
  std::vector<TokenId> around;  // the template of one text: ids, and kText where it goes
  Decoding decoding;

  using Tokenizer::encode;
  void encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const override;
  std::string_view token_bytes(TokenId id, bool special) const override { return decoding.token_bytes(id, special); }
  bool strips_leading_space() const override { return decoding.strips_leading_space(); }
  std::string decode(std::span<const TokenId> ids, bool special) const override;
  const Vocabulary& vocabulary() const override { return vocab; }

 private:
  void encode_text(std::string_view text, const EncodeOptions& options, EncodeScratch& scratch,
                   std::vector<TokenId>& out) const;
  void encode_segment(std::string_view segment, bool at_start, bool special, EncodeScratch& scratch,
                      std::vector<TokenId>& out) const;
  uint64_t serial_;  // owner of scratches
};

}  // namespace ibid
