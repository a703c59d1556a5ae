// BpeModel: byte-pair encoding of words, over bytes (GPT-2 and its kin) or over characters (SentencePiece and its kin).
//
// A character model also cuts a word wherever the two characters at a place stand together in no token: no merge can
// cross it, and a whole text without pre-tokenizer becomes words that the cache can hold.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <unordered_map>

#include "base/result.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/token_map.h"
#include "text/tokenizer/word_model.h"

namespace ibid {

struct BpeOptions {
  bool byte_level = true;              // words are bytes, tokens spell them in the byte alphabet
  bool byte_fallback = false;          // characters without a token become <0xXX> tokens, where all of them exist
  bool fuse_unknown = false;           // neighbouring unknown characters give one unknown token
  bool ignore_merges = false;          // a word that is a token is that token
  int32_t unknown = -1;                // -1: unknown characters vanish
  std::string continuing_prefix = {};  // spelled before every character but the first
  std::string word_suffix = {};        // spelled after the last one
};

class BpeModel final : public WordModel {
 public:
  // tokens and map must outlive the model.
  static Result<std::unique_ptr<BpeModel>> build(const std::vector<std::string>& tokens, const TokenMap& map,
                                                 std::span<const Merge> merges, const BpeOptions& options);
  // SentencePiece's rule: any two neighbours that together spell a usable token merge, best score first. Characters
  // that are no token themselves still take part.
  static Result<std::unique_ptr<BpeModel>> build_from_scores(const std::vector<std::string>& tokens,
                                                             const TokenMap& map, std::span<const float> scores,
                                                             const std::vector<bool>& usable,
                                                             const BpeOptions& options);

  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const override;

 private:
  static constexpr size_t kMaxMergedBytes = 1024;  // longer tokens are never merged to
  BpeModel(const std::vector<std::string>& tokens, const TokenMap& map, BpeOptions options)
      : tokens_(&tokens), map_(&map), options_(std::move(options)) {}
  void find_bytes();
  void find_characters();
  void allow_join(std::string_view spelling);
  int32_t symbol_of(char32_t character, std::string_view bytes) const;
  bool may_join(char32_t left, char32_t right) const;
  void encode_uncut(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const;
  void begin_with_bytes(std::string_view word, std::vector<int32_t>& symbols) const;
  void begin_with_characters(std::string_view word, std::vector<int32_t>& symbols) const;
  void begin_with_affixes(std::string_view word, EncodeScratch& scratch) const;
  void append_unknown(std::string_view character, std::vector<int32_t>& symbols) const;

  const std::vector<std::string>* tokens_;
  const TokenMap* map_;
  BpeOptions options_;
  BpeMerger merger_;
  std::array<int32_t, 256> byte_ids_ = {};  // byte level: of each byte; else of <0xXX>
  std::vector<int32_t> basic_plane_;        // symbol of each code point below U+10000, or -1
  // Characters of tokens that are no token: symbols from tokens.size() on, in this order.
  std::vector<char32_t> extra_characters_;
  std::unordered_map<char32_t, int32_t> extra_astral_;  // of those past the basic plane
  std::vector<uint64_t> joins_;                         // Bloom filter with one hash; empty: no cuts
};

}  // namespace ibid
