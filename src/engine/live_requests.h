// LiveRequests: the requests that have not ended, with a sequence for each of their choices. Makes them, collects their
// outputs, ends those that are cancelled or that something failed for, and forgets them.
#pragma once

#include <memory>
#include <memory_resource>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/admission.h"
#include "engine/state/engine_options.h"
#include "engine/state/picture_names.h"
#include "engine/state/search_group.h"
#include "engine/state/sequence.h"
#include "engine/step/settle.h"
#include "engine/step/speculation.h"

namespace ibid {

class LiveRequests {
 public:
  // All outlive this. `tokenizer` may be null.
  LiveRequests(const ModelFacts& facts, const EngineOptions& options, std::shared_ptr<const Tokenizer> tokenizer,
               PrefixTree& tree, Settler& settler, Speculation& speculation, const Clock& clock);

  bool contains(RequestId id) const { return requests_.contains(id); }
  // Throws std::bad_alloc with nothing changed. Returns the first choice; the others follow it (Sequence::followers).
  Sequence& add(const AdmittedRequest& request);
  void cancel(RequestId id);
  void cancel_all();
  Sequence* find(RequestId id, int32_t choice) const;  // null: there is none
  int32_t n_unfinished() const;                        // sequences

  // Room for all outputs that a step may produce. False: there is none.
  bool make_room(std::vector<Output>& out) const;
  // Publishes the results of the plan's searches that ended in it, and forgets the sequences that have ended, by what
  // stands in `out` from n_before on.
  void publish_ended(const StepPlan& plan, size_t n_before, std::vector<Output>& out);
  void end_cancelled(std::vector<Output>& out);
  // Those whose answer was over when it was resumed.
  void end_over(std::vector<Output>& out);
  // Those that have not had their first step when they were due.
  void end_overdue(double now, std::vector<Output>& out);
  // It may come to be overdue.
  void watch(const Sequence& sequence) { next_due_ = std::min(next_due_, sequence.account.due); }
  int64_t n_overdue() const { return n_overdue_; }
  void end_failed(const StepFailures& failures, std::vector<Output>& out);

  template <typename Visit>
  void each_sequence(Visit visit) const {
    for (const auto& [id, live] : requests_) {
      for (const auto& s : live.sequences) visit(*s);
    }
  }

 private:
  struct Return {  // to the memory that it is from
    std::pmr::memory_resource* memory;
    void operator()(Sequence* s) const { std::pmr::polymorphic_allocator<>(memory).delete_object(s); }
  };
  struct Live {
    std::vector<std::unique_ptr<Sequence, Return>> sequences;  // one per choice
    std::unique_ptr<SearchGroup> group;                        // of a search
    bool is_cancelled = false;
  };
  void name_pictures(Live& live);
  Live make(const AdmittedRequest& request);
  void resume(Sequence& sequence, FinishReason over) const;
  void make_group(Live& live) const;
  void hold_scopes(Live& live);
  template <typename End>
  void end(const std::vector<RequestId>& ids, std::vector<Output>& out, End end_one);
  void publish(Sequence& sequence, std::vector<Output>& out);
  void forget_finished(RequestId id);

  const ModelFacts& facts_;
  const EngineOptions& options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  PrefixTree& tree_;
  Settler& settler_;
  Speculation& speculation_;
  const Clock& clock_;
  // Of all sequences, side by side: a step goes through them.
  std::pmr::unsynchronized_pool_resource memory_;
  std::unordered_map<RequestId, Live> requests_;
  std::vector<RequestId> cancelled_;  // room for all of requests_
  std::vector<RequestId> overdue_;    // the same
  std::vector<RequestId> over_;       // the same
  double next_due_ = std::numeric_limits<double>::infinity();
  int64_t n_overdue_ = 0;
  PictureNames picture_names_;
  int64_t next_sequence_ = 0;
  int64_t n_made_ = 0;  // sequences
};

}  // namespace ibid
