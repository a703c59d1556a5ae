// Settle: turns a step's results into facts. Appends tokens, scores prompts, publishes full blocks, lets further
// choices go, ends sequences. What is sent to a client collects in each sequence's Answer.
#pragma once

#include <array>
#include <vector>

#include "base/clock.h"
#include "cache/block_cache.h"
#include "engine/schedule/scheduler.h"
#include "engine/state/engine_options.h"
#include "engine/step/runner.h"

namespace ibid {

struct SettleCounts {
  int64_t prompt_tokens = 0;            // of requests whose prompt has been computed
  int64_t cached_tokens = 0;            // of those, found in the prefix tree
  int64_t n_snapshot_hits = 0;          // of those requests, of a model with recurrent layers, that found any
  int64_t tokens_without_snapshot = 0;  // of theirs: cached, and computed again as no snapshot was nearer
  int64_t generated_tokens = 0;
  int64_t n_drafts = 0;         // times that a sequence had any in a step
  int64_t drafted_tokens = 0;   // that were verified
  int64_t accepted_tokens = 0;  // of those, tokens of answers
  std::array<int64_t, kDraftPlaces> accepted_at = {};
  int64_t n_evictions = 0;     // times that a sequence went on with fewer rows
  int64_t evicted_tokens = 0;  // that had a row and have none
  int64_t n_finished = 0;      // choices
  int64_t n_cancelled = 0;
  int64_t n_failed = 0;
  int32_t step_prefill_tokens = 0;
  int32_t step_decode_tokens = 0;
  int32_t step_drafted = 0;
  int32_t step_accepted = 0;
  int32_t step_finished = 0;  // choices
};

// Requests that are to end because of this step.
struct StepFailures {
  std::vector<RequestId> starved;  // an allocation failed for them
  std::vector<RequestId> unsound;  // their prompt has a row that is none
  void reserve(size_t n) { starved.reserve(2 * n + 1), unsound.reserve(n); }
  // Those of the plan, and no more.
  void take(const std::vector<RequestId>& planned) {
    starved.assign(planned.begin(), planned.end());
    unsound.clear();
  }
};

class DiskTier;

class Settler {
 public:
  // All outlive the settler. `disk`: what is published is saved there; may be null.
  Settler(BlockCache& cache, Scheduler& scheduler, DiskTier* disk, const Clock& clock, const ModelFacts& facts);
  // Of a step that began then. Takes the records out of `result`. Adds to `failures`; the sequences of those requests
  // are whole, but have lost something. Appends what each client hears to `out`, which has room, but for searches.
  void settle(const StepPlan& plan, double begun_at, StepResult& result, StepFailures& failures,
              std::vector<Output>& out);
  // Ends a sequence in any state, at `now` on the clock; its blocks are free when this returns. Nothing if it has
  // ended.
  void end(Sequence& sequence, FinishReason reason, double now);
  void fail(Sequence& sequence, Error error, double now);  // allocates nothing
  const SettleCounts& counts() const { return counts_; }

 private:
  struct StepTimes;
  void settle(const Share& share, ShareResult& result, const StepTimes& times);
  void account(const Share& share, const StepTimes& times);
  void admit(Sequence& sequence, double begun_at);
  void advance(const Share& share);
  void evict(const Share& share);
  void leave_snapshots(Sequence& sequence);
  void score(Sequence& sequence, std::vector<TokenRecord>& scored);
  void publish(Sequence& sequence);
  void save(Sequence& sequence);
  void append(const Share& share, ShareResult& result, double now);
  void count_drafts(Sequence& sequence, int32_t n_drafts);
  void count_accepted(Sequence& sequence, size_t place);
  // `after`: why the answer ends after it, where the answer itself does not see it: its grammar allows nothing more, or
  // a record has it so.
  void append(Sequence& sequence, TokenRecord&& drawn, double now, FinishReason following);
  void forget_before_window(Sequence& sequence);
  void let_followers_go(Sequence& sequence, ShareResult& result, const StepTimes& times);
  void begin_answer(Sequence& follower, FirstDraw& first, double now);
  void take_followers(Sequence& sequence, std::vector<Output>& out);
  // settle_search.cc
  void add_context(const Share& share, const ShareResult& result);
  void take_row(const Share& share, ShareResult& result, double now);
  void seat_children(SearchGroup& group);
  void fork(const Sequence& parent, Sequence& child);
  void end_search(Sequence& last, double now);
  void end_recorded_search(SearchGroup& group, std::span<const FinishReason> ends, double now);
  void fail_search(Sequence& sequence, const Error& error, double now);
  void close(Sequence& sequence, FinishReason reason, double now);

  BlockCache& cache_;
  Scheduler& scheduler_;
  const Clock& clock_;
  int32_t context_len_;
  int32_t window_;
  DiskTier* disk_;  // null: there is none
  SettleCounts counts_;
};

}  // namespace ibid
