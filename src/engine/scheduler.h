// Scheduler: who runs, how many tokens, on which blocks. Pure host code over sequences and the block cache; it never
// hears of models, text or clocks.
//
// Policy. Sequences run in the order of RunsBefore. Each step hands out at most max_tokens tokens and max_rows rows:
// first one token to each running sequence that needs just one (decodes never wait for a long prompt), then the rest to
// running sequences in order (prompts go in pieces of what is left), then to waiting ones, then to drafts. A sequence
// is admitted with blocks for all its tokens and one more, so it can make progress without taking anything from anyone;
// the answer then grows block by block. Without room for that, in this order: waiting sequences lose blocks they hold,
// the last running one that may be preempted is (its blocks go, its tokens stay: recompute; a share that it had in the
// same plan goes too), or the sequence itself is. For drafts nobody gives anything up.
#pragma once

#include <cstdint>
#include <vector>

#include "base/grow.h"
#include "cache/block_cache.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

namespace ibid {

struct SchedulerOptions {
  int32_t max_tokens = 512;    // T of a step; at least max_sequences, so that every decode has a share
  int32_t max_rows = 64;       // R of a step; at least max_sequences
  int32_t max_sequences = 64;  // running at once
  int32_t context_len = 0;     // no sequence has more positions; the cache holds at least so many
};

class Scheduler {
 public:
  Scheduler(BlockCache& cache, const SchedulerOptions& options);

  // Room for so many sequences in all. Only this, at submission, may throw for want of memory: a request that finds
  // none while a step is planned is named in the plan.
  void make_room(size_t n_sequences) { grow(waiting_, n_sequences); }
  // Into the queue. The sequence is not owned; it may hold blocks (a fork does) with n_computed to match.
  void enqueue(Sequence& sequence);
  // The next step's work; empty when nothing can run. Valid until the next call.
  const StepPlan& plan();
  // Takes a sequence out, wherever it is, and frees its blocks.
  void remove(Sequence& sequence);
  // Back into the queue without its blocks; it goes on as if nothing had happened. It must be running.
  void preempt(Sequence& sequence);

  const std::vector<Sequence*>& running() const { return running_; }
  int64_t n_preemptions() const { return n_preemptions_; }

 private:
  void grant(Sequence& sequence, int32_t n_wanted);
  void grant_drafts(Share& share);
  void withdraw_share(const Sequence& sequence);
  std::vector<Sequence*>::iterator place_of(Sequence& sequence);  // in waiting_: where it is, or belongs
  bool make_writable(Sequence& sequence, int32_t n_tokens);
  bool reclaim_for(const Sequence& sequence);
  bool strip_waiting(const Sequence* keep);
  Sequence* admit_next();
  bool is_known_not_to_fit(const Sequence& sequence) const;
  bool place(Sequence& sequence);
  bool admit_blocks(Sequence& sequence);
  void drop_blocks(Sequence& sequence);

  BlockCache& cache_;
  SchedulerOptions options_;
  std::vector<Sequence*> running_;  // in the order of RunsBefore
  std::vector<Sequence*> waiting_;  // the other way round: who runs first stands last
  int32_t n_waiting_holders_ = 0;   // of waiting_, those with blocks
  // The first of the queue that did not fit, and how things were then: looking up a long prompt costs something.
  struct Refusal {
    SeqId sequence = SeqId::kNone;
    int32_t n_available = 0;
    size_t n_running = 0;
  };
  Refusal refusal_;
  StepPlan plan_;
  std::vector<Sequence*> turn_;  // running_ as it was when the plan began; preempted ones are skipped
  int64_t n_preemptions_ = 0;
};

}  // namespace ibid
