// Speculation: the draft tokens of a step, beside the scheduler. Owns the proposer. A step asks it three times:
//   propose()   before the plan: drafts for the sequences that wait for their next token (Sequence::drafts)
//   `wants()`   what the step computes for the proposer besides
//   settled()   after the step: what it computed for the proposer
// Drafts change when tokens are computed, never which (docs/design.md section 5, law 4). One thread, the engine's.
#pragma once

#include <memory>
#include <vector>

#include "cache/block_cache.h"
#include "engine/schedule/scheduler.h"
#include "engine/state/engine_options.h"
#include "engine/step/runner.h"
#include "spec/proposer.h"

namespace ibid {

class Speculation {
 public:
  // All outlive this. Nothing is proposed before use().
  Speculation(const ModelFacts& facts, const EngineOptions& options, const BlockCache& cache, Scheduler& scheduler);

  // From the next step on this one proposes, at most max_drafts tokens a sequence and step (kMaxDrafts bound them). May
  // be null.
  void use(std::unique_ptr<Proposer> proposer, int32_t max_drafts);
  // Whether it reads the target's hidden states of prompts: then prompts whose drafts are pinned are computed whole.
  bool reads_prompts() const { return taps() != nullptr; }
  // The target's hidden states that it reads; may be null.
  const HiddenStates* taps() const { return extras_ ? extras_->taps() : nullptr; }

  void propose();
  StepWants wants() const;
  void settled(const StepPlan& plan, const StepResult& result);
  // The sequence has ended: the proposer keeps its answer if it keeps any, and forgets the rest. Once per sequence.
  void ended(Sequence& sequence);

  // A piece of the memory that the proposer's largest step writes, in idle times. Whether there was one left.
  bool take_next() { return proposer_ != nullptr && proposer_->take_next(); }
  // CHECKs what the proposer keeps of a running sequence.
  void self_check(const Sequence& sequence) const;

 private:
  void list(Sequence& sequence);
  void cut_to_pay(const StepPrices& prices);
  void charge();
  void show_taps(const Share& share, const ShareResult& result);
  void keep_answer(const Sequence& sequence) const;

  const ModelFacts& facts_;
  const EngineOptions& options_;
  const BlockCache& cache_;
  Scheduler& scheduler_;
  std::unique_ptr<Proposer> proposer_;  // may be null
  ProposerExtras* extras_ = nullptr;    // the proposer's; may be null
  int32_t max_drafts_ = 0;
  std::vector<Proposal> proposals_;     // of a step
  std::vector<Sequence*> proposed_to_;  // the sequence of each
  std::vector<int32_t> tap_rows_;       // of a share
};

}  // namespace ibid
