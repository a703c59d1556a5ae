// LookupProposer: proposes the tokens that followed an earlier occurrence of the sequence's longest suffix that occurs
// in it ("prompt look-up" over prompt and answer, by a suffix automaton), or the tokens that a client predicted
// (OpenAI's `prediction`): a prediction is followed from its start, and after a difference is found again by a match.
// Each draft carries its probability.
//
// Costs only host time, about 0.2 us per token of a sequence, bounded per step. Sequences of other requests are never
// read: neither answers nor timing reveal anything about them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "spec/acceptance.h"
#include "spec/lookup/suffix_automaton.h"
#include "spec/proposer.h"

namespace ibid {

class LookupProposer final : public Proposer {
 public:
  static constexpr int32_t kMaxSequences = 8;      // at a time; further sequences get no drafts
  static constexpr int32_t kMaxTokens = 32 << 10;  // maximum tokens indexed per sequence; then the last three quarters
  static constexpr int32_t kReadEachStep = 4096;   // tokens, over all sequences

  // Sequences have at most context_len tokens. Drafts end with an id of `end_of_generation`.
  LookupProposer(int32_t context_len, int32_t max_sequences, std::vector<TokenId> end_of_generation);
  // Maximum memory in bytes.
  static int64_t bytes_of(int32_t context_len, int32_t max_sequences);

  void begin_step(const StepPrices&) override { n_readable_ = kReadEachStep; }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void forget(int64_t sequence) override;

 private:
  struct Seq {
    explicit Seq(int32_t max_tokens) : automaton(max_tokens) {}
    int64_t sequence = -1;  // -1: none
    SuffixAutomaton automaton;
    Acceptance acceptance;
    int32_t n_predicted = 0;  // tokens of the prediction, which are the automaton's first
    size_t n_read = 0;        // tokens of prompt and answer read so far
    // Where the next token is looked up: the automaton's sequence from `at` on, as if found by a match of `len` tokens.
    int32_t at = 0, len = 0;
    bool in_prediction = false;
  };
  size_t kept() const { return static_cast<size_t>(max_tokens_) / 4 * 3; }
  Seq* seq_of(int64_t sequence);
  bool read(const ProposalInput& input, Seq& seq);
  void look_up(Seq& seq, TokenId last, bool is_answer) const;

  int32_t max_tokens_;
  std::vector<TokenId> end_of_generation_;
  std::vector<std::unique_ptr<Seq>> seqs_;  // created on first use
  int32_t n_readable_ = kReadEachStep;
};

}  // namespace ibid
