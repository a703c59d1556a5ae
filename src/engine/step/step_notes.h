// StepNotes: what is known of the last step besides its results. Who was in it, and where its time went.
#pragma once

#include <vector>

#include "base/clock.h"
#include "engine/state/engine_options.h"
#include "engine/state/step_plan.h"
#include "engine/step/runner.h"

namespace ibid {

class StepNotes {
 public:
  StepNotes(const Clock& clock, int32_t max_sequences) : clock_(clock) {
    shares_.reserve(static_cast<size_t>(max_sequences));
  }
  // In this order. A plan that is empty is not run.
  double begin() { return begun_ = mark_ = clock_.now(); }
  double proposed() { return propose_ = clock_.now() - mark_; }
  void planned(const StepPlan& plan);
  double begun_at() const { return begun_; }
  void ran(const StepResult& result);
  void settled();

  // Of the last step, without what came before its plan: what the plan is to be priced by.
  double seconds() const { return plan_ + forward_ + sample_ + settle_ - propose_; }
  const std::vector<StepShare>& shares() const { return shares_; }  // in the order of the batch
  int32_t n_copies() const { return n_copies_; }
  void tell(EngineStats& stats) const;

 private:
  const Clock& clock_;
  double begun_ = 0, mark_ = 0;
  std::vector<StepShare> shares_;
  int32_t n_copies_ = 0;
  int64_t n_steps_ = 0;
  double plan_ = 0, propose_ = 0, forward_ = 0, sample_ = 0, settle_ = 0;  // seconds, of the last step that was run
};

}  // namespace ibid
