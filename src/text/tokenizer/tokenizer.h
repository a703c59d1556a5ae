// Tokenizer: text to ids and ids to bytes, for one model's vocabulary. Immutable after construction; all const members
// may be called from any thread at once.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer/vocabulary.h"

namespace ibid {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

struct EncodeOptions {
  bool add_special = false;    // add the model's tokens around a text (BOS, EOS, [CLS] ...)
  bool parse_special = false;  // read special tokens spelled in the text as such
  // With parse_special: a special token that overlaps one of these ranges (sorted, disjoint) is plain text. Chat
  // templates use it for what users wrote.
  std::span<const TextRange> plain_ranges = {};
  bool strict_bytes = false;  // keep invalid UTF-8 as bytes instead of reading it as U+FFFD
};

class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> from_vocabulary(Vocabulary vocabulary);
  // From the bytes of a Hugging Face tokenizer.json, and of tokenizer_config.json where there is one.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json,
                                                            std::string_view tokenizer_config_json = {});
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `out`.
  virtual void encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const = 0;
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The bytes that a token adds to a text, without the rules that look at neighbours (see Detokenizer). Empty for ids
  // outside the vocabulary and for control tokens unless `special`.
  virtual std::string_view token_bytes(TokenId id, bool special = false) const = 0;
  // True where the decoder removes one space at the very start of a text (SentencePiece dummy prefix).
  virtual bool strips_leading_space() const = 0;
  // The text of ids, as the reference's decode(skip_special_tokens = !special) gives it: the bytes of all tokens, less
  // one leading space where strips_leading_space(), with U+FFFD once for every maximal part that is no UTF-8.
  virtual std::string decode(std::span<const TokenId> ids, bool special = false) const;

  virtual const Vocabulary& vocabulary() const = 0;
  int vocab_size() const { return static_cast<int>(vocabulary().tokens.size()); }
};

}  // namespace ibid
