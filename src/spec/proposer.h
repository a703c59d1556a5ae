// Proposer: proposes draft tokens for sequences. Drafts change speed only, never an answer. Called on the engine's
// thread before each step; its cost is part of the step.
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

// A sequence that needs its next token. Spans and pointers are valid during the call.
struct ProposalInput {
  int64_t sequence = 0;  // stable across steps, never reused
  std::span<const TokenId> prompt;
  std::span<const TokenId> answer;
  int32_t max_drafts = 0;               // at least 1; further drafts are cut off
  std::span<const TokenId> prediction;  // the client's predicted answer; may be empty
  float temperature = 0;                // of the request's sampling
  // How the target will sample, for proposers that sample the same way: the sampler and its state, the answer's grammar
  // (null: none), the index of the choice within its request, and how many tokens the answer may still have.
  const Sampler* sampler = nullptr;
  SamplerState state = {};
  grammar::Matcher* grammar = nullptr;
  int32_t choice = 0;
  // With pinned drafts, the number of drafts does not depend on anything that was drawn for this step. Drafts for
  // rejection are drawn with noise of their own, and carry the distribution that they were drawn from.
  Verifier verifier = Verifier::kCoupled;
  int32_t n_left = std::numeric_limits<int32_t>::max();
  // Data kept of a sequence may be shared only between sequences with equal scopes; empty: never shared.
  std::string_view scope = {};
  // The request allows only proposers that take almost no time (spec/lookup/free_proposers.h).
  bool free_alone = false;
  // The sequence's draft account has credit (spec/draft_account.h). Without credit, drafts that must pay off are not
  // verified, so proposers that take time should skip the sequence.
  bool has_credit = true;
  // The target's blocks with the keys and values of all tokens but the last one. Null: the blocks cannot be lent
  // (spec/target_seat.h).
  BlockTable* blocks = nullptr;
};

struct Proposal {
  ProposalInput input;
  Drafts* drafts = nullptr;
};

// Predicted cost of the next step in seconds, for proposers whose drafts take time too.
struct StepPrices {
  int32_t n_decodes = 1;                                   // sequences that get a token from the step anyway
  double step = 0;                                         // the step without drafts; 0: not known yet
  double row = 0;                                          // each draft that the step verifies
  double limit = std::numeric_limits<double>::infinity();  // for the step and drafting together
};

// A sequence whose answer has ended. Spans are valid during the call.
struct EndedSequence {
  std::span<const TokenId> prompt;
  std::span<const TokenId> answer;
  std::string_view scope;  // as ProposalInput has it
};

// Tokens of a sequence that the last step computed: those at the positions from `first` on. Spans are valid during the
// call.
struct ReadTokens {
  int64_t sequence = 0;  // as ProposalInput has it
  int32_t first = 0;
  std::span<const int32_t> rows;    // rows of the proposer's taps, one per token; wrong drafts have none
  std::span<const TokenId> tokens;  // the whole sequence, including tokens drawn since
  int32_t n_running = 1;            // running sequences, this one included
  bool is_pinned = false;           // the sequence's verifier pins its drafts
};

// A rejected draft, and the token that the target drew after it, as if the draft had been accepted.
struct RefusedDraft {
  TokenId token = {};
  TokenId following = {};
};

// A sequence between two steps. The span is valid during the call.
struct HeldSequence {
  int64_t sequence = 0;    // as ProposalInput has it
  int32_t n_computed = 0;  // tokens that the target has computed
  std::span<const TokenId> tokens;
};

// Optional inputs of a proposer beyond the sequences: values that the target computes, and answers that ended. Each
// kind is off by default and then costs nothing. Called between two steps, on the engine's thread.
class ProposerExtras {
 public:
  virtual ~ProposerExtras() = default;
  // Whether the proposer reads the output of the target's final norm. If so, saw() follows each step: the sequence now
  // has n_tokens tokens, and its last one was drawn from the row with this hidden state, [C].
  virtual bool reads_hidden() const { return false; }
  virtual void saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) {
    static_cast<void>(sequence), static_cast<void>(n_tokens), static_cast<void>(hidden);
  }
  // The target's layers that the proposer reads, for each token of sequences that may have drafts, and the buffers that
  // each step with such sequences writes, [the target's step_tokens, C] each. Null: none. If set, read() follows each
  // step, before saw(), but not for tokens that came from the prefix cache.
  virtual const HiddenStates* taps() const { return nullptr; }
  virtual void read(const ReadTokens& tokens) { static_cast<void>(tokens); }
  // Whether the proposer reads the tokens that the target draws after rejected drafts, which costs one draw each. If
  // so, refused() follows each step that rejected drafts, with the rejected drafts of the first path after the accepted
  // ones, in order. The sequence now has n_tokens tokens; the first of these drafts was proposed for the position of
  // its last token.
  virtual bool reads_refused() const { return false; }
  virtual void refused(int64_t sequence, int32_t n_tokens, std::span<const RefusedDraft> drafts) {
    static_cast<void>(sequence), static_cast<void>(n_tokens), static_cast<void>(drafts);
  }
  // Whether the proposer keeps answers for later sequences. If so, ended() follows each answer that ended by itself,
  // before Proposer::forget(), except for requests without drafts. May throw std::bad_alloc.
  virtual bool keeps_answers() const { return false; }
  virtual void ended(const EndedSequence& seq) { static_cast<void>(seq); }
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Called before the first propose() of each step.
  virtual void begin_step(const StepPrices&) {}
  // Seconds spent on drafting for this step, for proposers whose drafts take time.
  virtual double spent() const { return 0; }
  // Fills `drafts`, which is empty, with ids of the model's vocabulary, parents before children.
  virtual void propose(const ProposalInput& input, Drafts& drafts) = 0;
  // Proposes for all sequences of a step together. Drafts of an earlier proposer may be replaced by likelier ones.
  virtual void propose_all(std::span<const Proposal> proposals) {
    for (const Proposal& p : proposals) {
      if (p.drafts->empty()) propose(p.input, *p.drafts);
    }
  }
  // The proposer's optional inputs; null: none. Owned by the proposer; constant from its construction on.
  virtual ProposerExtras* extras() { return nullptr; }
  // Called when a sequence has ended; it does not occur again.
  virtual void forget(int64_t sequence) { static_cast<void>(sequence); }
  // Touches a piece of the memory that the largest step writes; called when idle. Returns whether there was one left.
  virtual bool take_next() { return false; }
  // CHECKs that all state kept for a running sequence, keys and values in particular, belongs to that sequence and its
  // last drafts (row S9). For tests and debug builds, between steps.
  virtual void self_check(const HeldSequence& seq) const { static_cast<void>(seq); }
};

}  // namespace ibid
