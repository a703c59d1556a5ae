// WordPieceModel: the longest known prefix of a word, then of its rest, and so on; a word that cannot be spelled to its
// end is one unknown token (Wu et al. 2016, as BERT's tokenization.py does it).
#pragma once

#include <string>

#include "text/tokenizer/token_map.h"
#include "text/tokenizer/word_model.h"

namespace ibid {

struct WordPieceOptions {
  std::string first_prefix = {};         // spelled before a word's first piece (GGUF: U+2581)
  std::string continuing_prefix = "##";  // and before the others (GGUF: nothing)
  int32_t unknown = -1;
  size_t max_characters = 100;  // longer words are unknown
};

class WordPieceModel final : public WordModel {
 public:
  static constexpr size_t kMaxTokenBytes = 512;  // longer tokens are never found: the time per piece is bounded
  WordPieceModel(const std::vector<std::string>& tokens, const TokenMap& map, WordPieceOptions options);
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const override;

 private:
  const TokenMap* map_;
  WordPieceOptions options_;
  size_t longest_ = 0;  // bytes of the longest token that is looked for
};

// WordLevelModel: a word is a token or unknown.
class WordLevelModel final : public WordModel {
 public:
  WordLevelModel(const TokenMap& map, int32_t unknown) : map_(&map), unknown_(unknown) {}
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const override;

 private:
  const TokenMap* map_;
  int32_t unknown_;
};

}  // namespace ibid
