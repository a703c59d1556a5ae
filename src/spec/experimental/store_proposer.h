// StoreProposer: proposes what followed the longest end of a text elsewhere: in a store of texts
// (spec/experimental/text_store.h), or in what the same tenant was answered before (spec/experimental/own_answers.h).
// How likely a draft is depends on how long the match is, how much of the places that match agree, and how often such
// drafts were right in this very text (spec/acceptance.h). It leaves what was proposed before it, unless it expects
// more tokens of its own.
//
// One thread, the engine's. A text and step costs it one look-up in the store (TextStore::find) and one step of each of
// a few automata, whatever the store's size; a text that it has not seen yet kMaxMatch of those.
#pragma once

#include <memory>
#include <vector>

#include "spec/acceptance.h"
#include "spec/experimental/own_answers.h"
#include "spec/experimental/text_store.h"
#include "spec/proposer.h"

namespace ibid {

struct StoreProposerOptions {
  int32_t max_texts = 16;                  // at a time; others have no drafts of it
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
  void ended(const EndedText& text) override { own_->add(text.scope, text.prompt, text.answer); }
  void forget(int64_t sequence) override;

 private:
  struct Source {  // as a text sees it
    Acceptance acceptance;
    StoreDraft draft;  // for what follows n_text tokens
    int64_t n_text = 0;
    void observe(const ProposalInput& input);
    int32_t believed(size_t i) const;
  };
  struct Text {
    int64_t sequence = -1;  // -1: none
    Source of_store, of_own;
    OwnAnswers::Reader reader;
  };
  Text* text_of(const ProposalInput& input);
  void take_better(const Source& source, const ProposalInput& input, Drafts& drafts);

  std::shared_ptr<const TextStore> store_;
  std::unique_ptr<OwnAnswers> own_;
  StoreProposerOptions options_;
  std::vector<Text> texts_;
  std::vector<float> likely_;
};

}  // namespace ibid
