#include "engine/step/step_notes.h"

#include "engine/state/sequence.h"

namespace ibid {

void StepNotes::planned(const StepPlan& plan) {
  n_copies_ = static_cast<int32_t>(plan.copies.size());
  shares_.clear();
  for (const Share& share : plan.shares)
    shares_.push_back({share.sequence->request->id, share.sequence->choice, share.n_tokens});
  if (!plan.empty()) plan_ = clock_.now() - mark_;
}

void StepNotes::ran(const StepResult& result) {
  forward_ = result.forward_seconds;
  sample_ = result.sample_seconds;
  mark_ = clock_.now();
}

void StepNotes::settled() {
  settle_ = clock_.now() - mark_;
  ++n_steps_;
}

void StepNotes::tell(EngineStats& stats) const {
  stats.n_steps = n_steps_;
  stats.step_sequences = static_cast<int32_t>(shares_.size());
  stats.step_plan = plan_;
  stats.step_forward = forward_;
  stats.step_sample = sample_;
  stats.step_settle = settle_;
}

}  // namespace ibid
