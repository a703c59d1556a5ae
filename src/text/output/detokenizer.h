// Detokenizer: ids of one growing answer to text, as they come. Never half a code point; bytes that are no UTF-8 become
// U+FFFD, once per maximal ill-formed part, and end nothing. For every slicing of the ids the pieces add up to
// Tokenizer::decode of the whole. One per sequence; copyable (a fork goes on from where its parent was); not for two
// threads at once.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/ids.h"
#include "text/output/utf8_mender.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {

struct DetokenizerOptions {
  bool show_special = false;  // control tokens as they are spelled, instead of nothing
  // The answer goes on from text that is there already (a prompt): a leading space that SentencePiece's dummy prefix
  // would explain belongs to the text and stays.
  bool continues_text = false;
};

class Detokenizer {
 public:
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, DetokenizerOptions options = {});

  // Appends the text that is now certain to `out`: what `id` adds, less an unfinished code point at its end.
  void push(TokenId id, std::string& out);
  void push(std::span<const TokenId> ids, std::string& out);
  // The answer is over: what was held back, as U+FFFD.
  void finish(std::string& out);
  // True where bytes of an unfinished code point are held back.
  bool pending() const { return mender_.pending(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Utf8Mender mender_;
  bool show_special_;
  bool strip_space_;  // the next byte is the first of the text, and a space there is dropped
};

}  // namespace ibid
