// LookupProposer: proposes what followed, earlier in the same text, the longest end of it that occurs there ("prompt
// look-up" over prompt and answer, by a suffix automaton), or what a client predicted (OpenAI's `prediction`): that is
// followed from its begin, and found again by a match after a difference. Each draft comes with how likely it is.
//
// Costs nothing but host time, some 0.2 us a token of each text, and has a bound in each step. A text of another
// request is never looked at: neither answers nor times tell of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "spec/acceptance.h"
#include "spec/proposer.h"
#include "spec/suffix_automaton.h"

namespace ibid {

class LookupProposer final : public Proposer {
 public:
  static constexpr int32_t kMaxTexts = 8;          // at a time; others have no drafts
  static constexpr int32_t kMaxTokens = 32 << 10;  // of a text that are looked at; then the last three quarters
  static constexpr int32_t kReadEachStep = 4096;   // tokens, of all texts

  // Texts have at most context_len tokens. Drafts end with an id of `end_of_generation`.
  LookupProposer(int32_t context_len, int32_t max_texts, std::vector<TokenId> end_of_generation);
  // What one holds at most.
  static int64_t bytes_of(int32_t context_len, int32_t max_texts);

  void begin_step(const StepPrices&) override { n_readable_ = kReadEachStep; }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void forget(int64_t sequence) override;

 private:
  struct Text {
    explicit Text(int32_t max_tokens) : automaton(max_tokens) {}
    int64_t sequence = -1;  // -1: none
    SuffixAutomaton automaton;
    Acceptance acceptance;
    int32_t n_predicted = 0;  // tokens of the prediction, the automaton's first
    size_t n_read = 0;        // tokens of prompt and answer
    // Where the next token is looked up: the automaton's text from `at` on, found as if by a match of `len` tokens.
    int32_t at = 0, len = 0;
    bool in_prediction = false;
  };
  size_t kept() const { return static_cast<size_t>(max_tokens_) / 4 * 3; }
  Text* text_of(int64_t sequence);
  bool read(const ProposalInput& input, Text& text);
  void look_up(Text& text, TokenId last, bool is_answer) const;

  int32_t max_tokens_;
  std::vector<TokenId> end_of_generation_;
  std::vector<std::unique_ptr<Text>> texts_;  // made when they are first needed
  int32_t n_readable_ = kReadEachStep;
};

}  // namespace ibid
