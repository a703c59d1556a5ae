// BreakerSet: texts across which DRY counts no repeat ("\n", ":" ...), compiled for one tokenizer. Immutable; shared by
// the sequences of a request and by threads.
//
// A breaker counts wherever the text has it, however it is cut into tokens: what may be repeated begins behind the
// token in which the breaker ends that begins last. Control tokens have no text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace ibid {

class Tokenizer;

class BreakerSet {
 public:
  static constexpr size_t kMaxTextBytes = 40;

  // Refuses an empty text and one of more than kMaxTextBytes.
  static Result<std::shared_ptr<const BreakerSet>> compile(std::vector<std::string> texts,
                                                           std::shared_ptr<const Tokenizer> tokenizer);

  const std::vector<std::string>& texts() const { return texts_; }
  // Of the last n tokens of older + newer, how many stand behind the last breaker among them; n where there is none.
  size_t n_behind_last(std::span<const TokenId> older, std::span<const TokenId> newer, size_t n) const;

 private:
  BreakerSet(std::vector<std::string> texts, std::shared_ptr<const Tokenizer> tokenizer);

  std::vector<std::string> texts_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<bool> may_begin_;  // per token: some text lies in it, or begins at its end
};

}  // namespace ibid
