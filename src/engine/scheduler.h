// Scheduler: hands out a step. Mechanism over sequences; who goes first, how much and at whose cost is the policy's
// (policy.h), and blocks are the room's (room.h). It never hears of models, text or clocks.
//
// A step goes to, in this order: the next token of each running sequence that needs just one (decodes never wait for a
// long prompt); the rest of running sequences (prompts go in pieces of what is left); waiting ones, the first in the
// queue alone, with blocks for all its tokens and one more; drafts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/block_cache.h"
#include "engine/policy.h"
#include "engine/room.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "engine/waiting_queue.h"

namespace ibid {

struct SchedulerOptions {
  StepBudget budget;           // the most of any step
  int32_t max_sequences = 64;  // running at once
  int32_t context_len = 0;     // no sequence has more positions; the cache holds at least so many
  PolicyKind policy = PolicyKind::kPriority;
};

class Scheduler {
 public:
  Scheduler(BlockCache& cache, const SchedulerOptions& options);

  // Room for so many sequences in all. Only this, at submission, may throw for want of memory: a request that finds
  // none while a step is planned is named in the plan.
  void make_room(size_t n_sequences) { queue_.make_room(n_sequences); }
  // Into the queue. The sequence is not owned; it may hold blocks (a fork does) with n_computed to match.
  void enqueue(Sequence& sequence);
  // The next step's work; empty when nothing can run. Valid until the next call.
  const StepPlan& plan();
  // Takes a sequence out, wherever it is, and frees its blocks.
  void remove(Sequence& sequence);
  // As Room::preempt(), between steps.
  void preempt(Sequence& sequence) { room_.preempt(sequence, plan_); }

  // Prefixes may come from there.
  void use_disk(DiskTier& disk);
  // Back into the queue, with the blocks that it has: its fetch is over.
  void fetched(Sequence& sequence) { queue_.push(sequence); }

  const std::vector<Sequence*>& running() const { return running_; }
  int64_t n_preemptions() const { return room_.n_preemptions(); }

 private:
  void grant(Sequence& sequence, int32_t n_tokens);
  void grant_drafts(Share& share);
  Sequence* admit_next();
  bool fetches(Sequence& sequence);
  bool is_full() const { return plan_.n_tokens >= budget_.n_tokens || plan_.n_rows >= budget_.n_rows; }
  bool is_known_not_to_fit(const Sequence& sequence) const;

  BlockCache& cache_;
  int32_t max_sequences_;
  std::unique_ptr<Policy> policy_;
  std::vector<Sequence*> running_;  // in the order of their keys
  WaitingQueue queue_;
  Room room_;
  DiskTier* disk_ = nullptr;  // null: there is none
  // The first of the queue that did not fit, and how things were then: looking up a long prompt costs something.
  struct Refusal {
    SeqId sequence = SeqId::kNone;
    int32_t n_available = 0;
    size_t n_running = 0;
  };
  Refusal refusal_;
  StepBudget budget_;  // of the plan that is made
  StepPlan plan_;
  std::vector<Sequence*> turn_;  // running_ as it was when the plan began; preempted ones are skipped
};

}  // namespace ibid
