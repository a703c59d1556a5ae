// Proposer: drafts how sequences go on. Its drafts change speed alone, never an answer. Called on the engine's thread
// before each step, so its cost is the step's.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "cache/block_cache.h"
#include "sample/sampler.h"
#include "spec/drafts.h"
#include "spec/verifier.h"

namespace ibid {

struct HiddenStates;  // model/pass.h

namespace grammar {
class Matcher;  // sample/grammar/matcher.h
}

// A sequence that waits for its next token. Spans and pointers are valid during the call.
struct ProposalInput {
  int64_t sequence = 0;  // the same number for the same sequence from step to step, never used again
  std::span<const TokenId> prompt;
  std::span<const TokenId> answer;
  int32_t max_drafts = 0;               // at least 1; more are cut off
  std::span<const TokenId> prediction;  // how the answer may go, by its client; may be empty
  float temperature = 0;                // that it is drawn at
  // How the target will draw, for those who draw alike: the sampler and its state, the answer's grammar (null: none)
  // and its choice of the request, and how many tokens the answer may still have.
  const Sampler* sampler = nullptr;
  SamplerState state = {};
  grammar::Matcher* grammar = nullptr;
  int32_t choice = 0;
  // Where drafts are pinned, how many there are depends on nothing that was drawn for this step. Those that are drawn
  // for rejection have noise of their own and tell what they were drawn from.
  Verifier verifier = Verifier::kCoupled;
  int32_t n_left = std::numeric_limits<int32_t>::max();
  // Sequences of equal scopes alone may share what is kept of them; empty: none may.
  std::string_view scope = {};
  // Its request wants drafts from those alone who take next to no time (spec/free_proposers.h).
  bool free_alone = false;
  // Of its drafts (spec/draft_account.h). Without any, drafts that are to pay are not verified, and not worth the time
  // of those who take time.
  bool has_credit = true;
  // Where the target keeps its keys and values: of all tokens but the last one. Null: nowhere that may be lent
  // (spec/target_seat.h).
  BlockTable* blocks = nullptr;
};

struct Proposal {
  ProposalInput input;
  Drafts* drafts = nullptr;
};

// What the next step takes, for those whose drafts take time too. In seconds.
struct StepPrices {
  int32_t n_decodes = 1;                                   // sequences that have a token of it anyway
  double step = 0;                                         // of the step without drafts; 0: nothing is known yet
  double row = 0;                                          // of each draft that is verified in it
  double limit = std::numeric_limits<double>::infinity();  // of step and drafting together
};

// A sequence whose answer has come to its end. Spans are valid during the call.
struct EndedText {
  std::span<const TokenId> prompt;
  std::span<const TokenId> answer;
  std::string_view scope;  // as ProposalInput has it
};

// Tokens of a sequence that the last step computed: those at the positions from `first` on. Spans are valid during the
// call.
struct ReadTokens {
  int64_t sequence = 0;  // as ProposalInput has it
  int32_t first = 0;
  std::span<const int32_t> rows;  // of the proposer's taps, one for each; drafts that were wrong have none
  std::span<const TokenId> text;  // all of it, with what was drawn since
  int32_t n_running = 1;          // sequences that run, it among them
  bool is_pinned = false;         // its drafts are, by its verifier
};

// A draft that was not taken over, and what the target said after it, drawn as if it had been.
struct RefusedDraft {
  TokenId token = {};
  TokenId following = {};
};

// A sequence between two steps. The span is valid during the call.
struct HeldText {
  int64_t sequence = 0;    // as ProposalInput has it
  int32_t n_computed = 0;  // of its tokens, by the target
  std::span<const TokenId> tokens;
};

// What some proposers read beside the sequences: what the target computes on its way, and how answers ended. Each kind
// is off by default and costs nothing then. Called between two steps, on the engine's thread.
class ProposerExtras {
 public:
  virtual ~ProposerExtras() = default;
  // Whether it reads what the target's final norm makes of a sequence. Then saw() follows each step: the sequence has
  // n_tokens now, and its last one was drawn from the row with this hidden state, [C].
  virtual bool reads_hidden() const { return false; }
  virtual void saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) {
    static_cast<void>(sequence), static_cast<void>(n_tokens), static_cast<void>(hidden);
  }
  // What it reads of the target's layers, for each token of sequences that may have drafts: the layers, and where each
  // step with such sequences writes them, [the target's step_tokens, C] each. Null: nothing. Then read() follows each
  // step, before saw(), but not for tokens that came from the prefix cache.
  virtual const HiddenStates* taps() const { return nullptr; }
  virtual void read(const ReadTokens& tokens) { static_cast<void>(tokens); }
  // Whether it reads what the target draws after refused drafts, which costs a draw each. Then refused() follows each
  // step that had some: those along the first way after the accepted ones, in order. The sequence has n_tokens now,
  // and the first draft stood at the place of its last one.
  virtual bool reads_refused() const { return false; }
  virtual void refused(int64_t sequence, int32_t n_tokens, std::span<const RefusedDraft> drafts) {
    static_cast<void>(sequence), static_cast<void>(n_tokens), static_cast<void>(drafts);
  }
  // Whether it keeps answers for later sequences. Then ended() follows each answer that ended by itself, before
  // Proposer::forget(), but not those of requests without drafts. May throw std::bad_alloc.
  virtual bool keeps_answers() const { return false; }
  virtual void ended(const EndedText& text) { static_cast<void>(text); }
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Before the first propose() of each step.
  virtual void begin_step(const StepPrices&) {}
  // Seconds that drafting for this step took, for proposers whose drafts take time.
  virtual double spent() const { return 0; }
  // Fills the empty `drafts`. Ids of the model's vocabulary alone, parents before children.
  virtual void propose(const ProposalInput& input, Drafts& drafts) = 0;
  // The same for all sequences of a step together. Where drafts of another proposer are there already, likelier ones
  // may take their place.
  virtual void propose_all(std::span<const Proposal> proposals) {
    for (const Proposal& p : proposals) {
      if (p.drafts->empty()) propose(p.input, *p.drafts);
    }
  }
  // What else it reads; null: nothing. Owned by the proposer, the same from its construction on.
  virtual ProposerExtras* extras() { return nullptr; }
  // The sequence has ended; nothing more comes of it.
  virtual void forget(int64_t sequence) { static_cast<void>(sequence); }
  // A piece of the memory that its largest step writes, in idle times. Whether there was one left.
  virtual bool take_next() { return false; }
  // CHECKs that what it keeps for a sequence that runs, keys and values above all, is of that sequence and of its last
  // drafts (row S9). For tests and debug builds, between steps.
  virtual void self_check(const HeldText& text) const { static_cast<void>(text); }
};

}  // namespace ibid
