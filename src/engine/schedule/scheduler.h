// Scheduler: hands out a step. Mechanism over sequences; who goes first, how much and at whose cost is the policy's
// (policy.h), and blocks are the room's (room.h). It never hears of models, sequence or clocks.
//
// A step goes to, in this order: the next token of each running sequence that needs just one (decodes never wait for a
// long prompt), but for those that the policy has sit out for the sake of other tenants; prompts, of sequences that run
// and of waiting ones for which there is a place, in pieces of what the budget leaves; drafts. Who waits comes in with
// blocks for all its tokens and one more, in the step that first computes some of them, so that it finds what others
// have published until then.
//
// Prompts share: whose turn it is by the policy, and of those who has the least to compute. The first in order has a
// quarter of what each step does for prompts, or all it needs. So no stream of short prompts starves a long one: once
// those before it in order have their first token, later ones have at most three times the time that it has.
// An encoder's prompts go whole into a step. No decode could be delayed by them, so that time bounds none of them, and
// what is kept for the first in order is all it needs.
//
// Blocks go by order alone: while the first in order of those who wait does not fit, none of the others comes in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/block_cache.h"
#include "engine/schedule/new_blocks.h"
#include "engine/schedule/prompt_turns.h"
#include "engine/schedule/room.h"
#include "engine/state/policy.h"
#include "engine/state/sequence.h"
#include "engine/state/step_plan.h"
#include "engine/state/waiting_queue.h"
#include "spec/proposer.h"

namespace ibid {

struct SchedulerOptions {
  StepBudget budget;           // the most of any step
  double max_itl = 0;          // PolicyOptions::max_itl
  int32_t max_sequences = 64;  // running at once
  int32_t context_len = 0;     // no sequence has more positions; the cache holds at least so many
  PolicyKind policy = PolicyKind::kFair;
  bool sees_whole_pictures = false;  // no step ends within a picture (ModelFacts)
  bool reads_whole = false;          // an encoder: a step has all of a prompt or nothing of it
};

class Scheduler {
 public:
  // All outlive the scheduler. `cost` learns from took(). `disk`: prefixes may come from there; may be null.
  Scheduler(BlockCache& cache, StepCost& cost, DiskTier* disk, const SchedulerOptions& options);

  // Room for this request, with which there are so many sequences in all. Only this, at submission, may throw for want
  // of memory: a request that finds none while a step is planned is named in the plan.
  void make_room(const Request& request, size_t n_sequences);
  // Into the queue. The sequence is not owned; it may hold blocks (a fork does) with n_computed to match.
  void enqueue(Sequence& sequence);
  // Chooses whose next token the next step computes (Sequence::sits_out). Before prices() and plan(); without it all
  // that decode have theirs.
  void choose_decodes();
  // What the next step takes, as far as its decodes alone.
  StepPrices prices() const;
  // The next step's work; empty when nothing can run. Valid until the next call. `spent`: seconds that went into
  // drafts already, and count as the step's.
  const StepPlan& plan(double spent = 0);
  // How long the step took that was planned last.
  void took(double seconds);
  // So did one that was not planned, before any was.
  void took(const MeasuredStep& step);
  // A beam has its row: it runs no more, keeps its blocks until others need them, and waits for the others.
  void park(Sequence& sequence);
  // It goes on: at once where it has its blocks and there is a place, else from its old place in the queue.
  void resume(Sequence& sequence);
  // A seat without a beam: it holds nothing.
  void rest(Sequence& sequence);
  // Takes a sequence out, wherever it is, and frees its blocks.
  void remove(Sequence& sequence);
  // As Room::preempt(), between steps.
  void preempt(Sequence& sequence) { room_.preempt(sequence, plan_); }

  // Back into the queue, with the blocks that it has: its fetch is over.
  void fetched(Sequence& sequence) { queue_.push(sequence); }

  NewBlocks& new_blocks() { return new_blocks_; }
  const std::vector<Sequence*>& running() const { return running_; }
  const Policy& policy() const { return *policy_; }
  SeqId refused() const { return refusal_.sequence; }  // who found no blocks last
  int64_t n_preemptions() const { return room_.n_preemptions(); }

 private:
  void grant_work();
  StepBudget budget_for(const StepLoad& decodes, double tpot) const;
  bool comes_to_new_memory(const Sequence& sequence) const;
  StepLoad with_prompt(StepLoad load, const Sequence& sequence, int32_t n_before) const;
  void grant_decodes();
  void list_prompts();
  void grant_prompts();
  void drop_after_the_owed();
  bool is_spent(const StepBudget& limit) const;
  int32_t n_least(const StepBudget& limit) const;
  StepBudget without_part_of(const Sequence* oldest) const;
  void grant_prompt(Sequence& sequence, bool waits, const StepBudget& limit);
  int32_t n_within(const StepBudget& limit, const Sequence& sequence, int32_t n_computed) const;
  // Of a share of n tokens after n_computed: as many as end neither within a picture that is seen whole, nor among the
  // last tokens before a point where rows are evicted, nor after it; up to n_most; 0: it has no room.
  int32_t without_part(const Sequence& sequence, int32_t n_computed, int32_t n, int32_t n_most) const;
  int32_t without_part_of_picture(const Sequence& sequence, int32_t n_computed, int32_t n, int32_t n_most) const;
  void grant(Sequence& sequence, int32_t n_tokens);
  bool admit(Sequence& sequence);
  void start(Sequence& sequence);
  double tpot_of(const Sequence& sequence) const;
  bool keeps_targets_with(const Sequence& sequence) const;
  bool fetches(Sequence& sequence);
  bool is_full() const { return plan_.n_tokens >= budget_.n_tokens || plan_.n_rows >= budget_.n_rows; }
  bool is_known_not_to_fit(const Sequence& sequence) const;
  int32_t n_available() const;

  BlockCache& cache_;
  int32_t max_sequences_;
  StepCost& cost_;
  NewBlocks new_blocks_;
  std::unique_ptr<Policy> policy_;
  const bool reads_whole_, sees_whole_pictures_;
  const bool shares_;               // Policy::shortest_first()
  std::vector<Sequence*> running_;  // in the order of their keys
  WaitingQueue queue_;
  PromptTurns turns_;  // of the plan that is made
  Room room_;
  DiskTier* disk_;  // null: there is none
  // Who did not fit last, and how things were then: looking up a long prompt costs something.
  struct Refusal {
    SeqId sequence = SeqId::kNone;
    int32_t n_available = 0;
    size_t n_running = 0;
  };
  Refusal refusal_;
  double fair_limit_;        // seconds of the next step, by Policy::choose_decodes()
  StepBudget budget_;        // of the plan that is made
  double running_tpot_ = 0;  // the most urgent target of those that run, or did when the plan began
  StepPlan plan_;
  std::vector<Sequence*> turn_;  // running_ as it was when the plan began; preempted ones are skipped
  std::vector<Sequence*> window_;
};

}  // namespace ibid
