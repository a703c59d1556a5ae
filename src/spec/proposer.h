// Proposer: guesses how texts go on. Whatever it says changes speed alone, never an answer. Called on the engine's
// thread before each step, so its cost is the step's.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "spec/drafts.h"

namespace ibid {

// A text that waits for its next token. Spans are valid during the call.
struct ProposalInput {
  int64_t sequence = 0;  // the same number for the same text from step to step, never used again
  std::span<const TokenId> prompt;
  std::span<const TokenId> answer;
  int32_t max_drafts = 0;               // at least 1; more are cut off
  std::span<const TokenId> prediction;  // how the answer may go, by its client; may be empty
  float temperature = 0;                // that it is drawn at
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Before the first propose() of each step.
  virtual void begin_step() {}
  // Fills the empty `drafts`. Ids of the model's vocabulary alone, parents before children.
  virtual void propose(const ProposalInput& input, Drafts& drafts) = 0;
  // The text has ended; nothing more comes of it.
  virtual void forget(int64_t sequence) { static_cast<void>(sequence); }
};

}  // namespace ibid
