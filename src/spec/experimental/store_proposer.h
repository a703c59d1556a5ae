// StoreProposer: proposes the tokens that followed the sequence's longest suffix elsewhere: in a store of texts
// (spec/experimental/text_store.h), or in earlier answers to the same tenant (spec/experimental/own_answers.h). A
// draft's probability depends on the match length, on how many of the matching places agree, and on how often such
// drafts were right in this sequence (spec/acceptance.h). It keeps earlier proposers' drafts unless it expects more
// tokens from its own.
//
// One thread, the engine's. Each sequence costs one look-up in the store (TextStore::find) and one step of each of a
// few automata per step, whatever the store's size; a new sequence costs kMaxMatch automaton steps.
#pragma once

#include <memory>
#include <vector>

#include "spec/acceptance.h"
#include "spec/experimental/own_answers.h"
#include "spec/experimental/text_store.h"
#include "spec/proposer.h"

namespace ibid {

struct StoreProposerOptions {
  int32_t max_sequences = 16;              // at a time; further sequences get no drafts from it
  std::vector<TokenId> end_of_generation;  // drafts end with one
};

class StoreProposer final : public Proposer, public ProposerExtras {
 public:
  // Either may be null.
  StoreProposer(std::shared_ptr<const TextStore> store, std::unique_ptr<OwnAnswers> own, StoreProposerOptions options);

  void begin_step(const StepPrices&) override;
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput& input, Drafts& drafts) override;
  void propose_all(std::span<const Proposal> proposals) override;
  bool keeps_answers() const override { return own_ != nullptr; }
  void ended(const EndedSequence& seq) override { own_->add(seq.scope, seq.prompt, seq.answer); }
  void forget(int64_t sequence) override;

 private:
  struct Source {  // per-sequence state of a source
    Acceptance acceptance;
    StoreDraft draft;  // for the tokens after the first sequence_len
    int64_t sequence_len = 0;
    void observe(const ProposalInput& input);
    int32_t believed(size_t i) const;
  };
  struct Seq {
    int64_t sequence = -1;  // -1: none
    Source of_store, of_own;
    OwnAnswers::Reader reader;
  };
  Seq* seq_of(const ProposalInput& input);
  void take_better(const Source& source, const ProposalInput& input, Drafts& drafts);

  std::shared_ptr<const TextStore> store_;
  std::unique_ptr<OwnAnswers> own_;
  StoreProposerOptions options_;
  std::vector<Seq> seqs_;
  std::vector<float> likely_;
};

}  // namespace ibid
