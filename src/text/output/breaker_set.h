// BreakerSet: texts across which DRY counts no repeat ("\n", ":" ...), compiled for one tokenizer. Immutable; shared by
// the sequences of a request and by threads.
//
// A breaker counts wherever it occurs in the text, however that is cut into tokens: a repeat may begin after the token
// in which the breaker that begins last ends. Control tokens have no text.
#pragma once

#include <array>
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
  static constexpr size_t kMaxTextBytes = 40, kMaxBytes = 4096;

  // Refuses an empty text, one of more than kMaxTextBytes, and more than kMaxBytes in all.
  static Result<std::shared_ptr<const BreakerSet>> compile(std::vector<std::string> texts,
                                                           std::shared_ptr<const Tokenizer> tokenizer);

  const std::vector<std::string>& texts() const { return texts_; }
  // How many of the last n tokens of older + newer follow the last breaker among them; n if there is none. Reads each
  // of their bytes once, for any set of texts.
  size_t n_after_last(std::span<const TokenId> older, std::span<const TokenId> newer, size_t n) const;

 private:
  BreakerSet(std::vector<std::string> texts, std::shared_ptr<const Tokenizer> tokenizer);
  void add_texts();
  void add_failures();
  uint16_t after(uint16_t node, char byte) const {
    return next_[node * n_kinds_ + kind_[static_cast<unsigned char>(byte)]];
  }

  std::vector<std::string> texts_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  // Aho and Corasick's automaton of the texts read backwards: a text is complete at the byte where it begins, so that
  // the first one found from the end is the one that begins last.
  std::array<uint16_t, 256> kind_ = {};  // of each byte; 0: in no text
  size_t n_kinds_ = 1;
  std::vector<uint16_t> next_;      // [nodes, n_kinds_]; node 0 has read nothing of any text
  std::vector<uint16_t> text_len_;  // per node: of the longest text that is complete there; 0: none
  std::vector<bool> matters_;       // per token: read from node 0, it does not just lead back there
};

}  // namespace ibid
