// Room: blocks for sequences, and states of a model that has them, taken from others where the pool has none left. The
// order in which others give way:
//   1. sequences that fetch blocks from a disk lose those that have come, youngest first, and compute them instead;
//   2. parked beams lose theirs, last first, and after them waiting sequences;
//   3. the policy's victim among the running ones is preempted: its blocks go, its tokens stay (recompute), and a share
//      that it had in the same plan is withdrawn;
//   4. the asker itself is.
// None loses blocks to one that is only being admitted except the waiting and the parked after it and the parked of its
// own search, and none to drafts.
#pragma once

#include <cstdint>
#include <vector>

#include "base/grow.h"
#include "cache/block_cache.h"
#include "engine/state/policy.h"
#include "engine/state/step_plan.h"
#include "engine/state/waiting_queue.h"

namespace ibid {

class DiskTier;

class Room {
 public:
  // All outlive the room. `running` is in order; preempting takes out of it. `disk` may be null.
  Room(BlockCache& cache, Policy& policy, WaitingQueue& queue, std::vector<Sequence*>& running, DiskTier* disk,
       int32_t context_len);

  // Makes positions [n_computed, n_tokens) of a running sequence writable. False: it was preempted itself.
  bool reserve(Sequence& sequence, int32_t n_tokens, StepPlan& plan);
  // Blocks for the rows that a share leaves. False: it was preempted itself.
  bool reserve_kept(Sequence& sequence, int32_t n_rows, StepPlan& plan);
  // As reserve(), as far as there are free blocks, for a sequence that has its share; returns how many positions there
  // are.
  int32_t reserve_spare(Sequence& sequence, int32_t n_tokens, StepPlan& plan);
  // Finds what is cached of a waiting sequence, and makes all its tokens and one more writable, or those up to where
  // rows are evicted, for what remains of which there is room. False: it does not fit.
  bool admit(Sequence& sequence, StepPlan& plan);
  // Back into the queue without its blocks; it goes on as if nothing had happened. It must be running.
  void preempt(Sequence& sequence, StepPlan& plan);
  // Room for so many that are parked; only this may throw, for want of memory.
  void make_room(size_t n_sequences) { grow(parked_, n_sequences); }
  void park(Sequence& sequence);  // into state kParked
  void unpark(Sequence& sequence);

  int64_t n_preemptions() const { return n_preemptions_; }

 private:
  bool reserve_states(Sequence& sequence, int32_t n_tokens);
  bool reclaim_for(const Sequence& sequence, StepPlan& plan);
  bool strip(Sequence* holder);
  // Of the parked that hold blocks the last one that gives way to `asker`; null: there is none.
  Sequence* parked_holder(const Sequence& asker, bool is_admitted) const;
  bool admit_blocks(Sequence& sequence, StepPlan& plan);

  BlockCache& cache_;
  Policy& policy_;
  WaitingQueue& queue_;
  std::vector<Sequence*>& running_;
  std::vector<Sequence*> parked_;
  DiskTier* disk_;  // null: there is none
  int32_t context_len_;
  int64_t n_preemptions_ = 0;
};

}  // namespace ibid
