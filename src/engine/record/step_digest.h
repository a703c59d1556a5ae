// What a step did, in four words of 32 bits (StepDigest), the same way for a record and for its replay: an observer
// that gathers a Step.
#pragma once

#include <vector>

#include "engine/engine_observer.h"
#include "engine/record/event.h"

namespace ibid::record {

uint32_t tokens_digest(const Step& step);  // of its shares and tokens

class StepGatherer final : public EngineObserver {
 public:
  void planned(const StepPlan& plan) noexcept override;
  void ran(const StepPlan& plan, const StepResult& result) noexcept override;
  void settled(const StepPlan& plan) noexcept override;
  void stepped(const Engine& engine) noexcept override;
  // Of the step that has just ended. Taking it leaves the gatherer with nothing.
  Step take() { return std::move(step_); }
  const Step& step() const { return step_; }
  bool ran_out_of_memory() const { return no_memory_; }

 private:
  Step step_;
  std::vector<const Sequence*> sequences_;  // of each outcome
  std::vector<int32_t> n_tokens_before_;    // of them
  std::vector<int64_t> n_turns_before_;     // of its search
  std::vector<int64_t> words_;
  bool no_memory_ = false;
};

}  // namespace ibid::record
