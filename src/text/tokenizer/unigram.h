// UnigramModel: of all ways to spell a word with tokens the one with the best sum of scores (Kudo 2018, section 3),
// found by Viterbi's algorithm. Unknown characters cost ten more than the worst token; neighbours among them are one
// piece.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/word_model.h"

namespace ibid {

struct UnigramOptions {
  int32_t unknown = -1;
  bool byte_fallback = false;    // unknown pieces become <0xXX> tokens, where all of them exist
  bool single_precision = true;  // sums in float, as SentencePiece has them; double as `tokenizers`
};

class UnigramModel final : public WordModel {
 public:
  static constexpr size_t kMaxTokenBytes = 512;  // longer tokens are never found
  // usable: which tokens a text may be spelled with.
  static Result<std::unique_ptr<UnigramModel>> build(const std::vector<std::string>& tokens,
                                                     std::span<const double> scores, const std::vector<bool>& usable,
                                                     const UnigramOptions& options);
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const override;

 private:
  void encode_uncached(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const;
  void append_unknown(std::string_view piece, std::vector<TokenId>& out) const;
  ByteTrie trie_;
  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_ = 0;
  std::string unknown_spelling_;
  std::array<int32_t, 256> byte_ids_ = {};
};

}  // namespace ibid
