#include "text/output/detokenizer.h"

namespace ibid {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, DetokenizerOptions options)
    : tokenizer_(std::move(tokenizer)),
      show_special_(options.show_special),
      strip_space_(!options.continues_text && tokenizer_->strips_leading_space()) {}

void Detokenizer::push(TokenId id, std::string& out) {
  std::string_view bytes = tokenizer_->token_bytes(id, show_special_);
  if (bytes.empty()) return;
  if (strip_space_) {
    strip_space_ = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  mender_.push(bytes, out);
}

void Detokenizer::push(std::span<const TokenId> ids, std::string& out) {
  for (TokenId id : ids) push(id, out);
}

void Detokenizer::finish(std::string& out) { mender_.finish(out); }

}  // namespace ibid
