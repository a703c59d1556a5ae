// EngineObserver: hears all that enters an engine and all that a step does, on the engine's thread, in order. What it
// is given is valid during the call. It must change nothing, must not throw and must not block: a step waits for it.
#pragma once

#include "engine/admission.h"
#include "engine/state/step_plan.h"
#include "engine/step/runner.h"

namespace ibid {

class Engine;

class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void submitted(const AdmittedRequest& request, const Status& taken) noexcept {
    static_cast<void>(request), static_cast<void>(taken);
  }
  virtual void cancelled(RequestId id) noexcept { static_cast<void>(id); }
  virtual void cancelled_all() noexcept {}
  virtual void preempted(RequestId id, int32_t choice) noexcept { static_cast<void>(id), static_cast<void>(choice); }
  // A step: its plan, which may be empty; if it is not, its tokens when they are drawn, and when they are facts. No
  // sequence of the plan is forgotten before that.
  virtual void planned(const StepPlan& plan) noexcept { static_cast<void>(plan); }
  virtual void ran(const StepPlan& plan, const StepResult& result) noexcept {
    static_cast<void>(plan), static_cast<void>(result);
  }
  virtual void settled(const StepPlan& plan) noexcept { static_cast<void>(plan); }
  // The end of each step(), also of one that had nothing to run.
  virtual void stepped(const Engine& engine) noexcept { static_cast<void>(engine); }
};

}  // namespace ibid
