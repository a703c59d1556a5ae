// Runner: carries a plan out. Copies blocks, builds the batch, runs the model, draws tokens. Decides nothing and
// changes no sequence but its sampler's state.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/batch_builder.h"
#include "engine/forward_pass.h"
#include "engine/kv_store.h"
#include "engine/step_plan.h"
#include "sample/sampler.h"

namespace ibid {

struct ShareResult {
  std::vector<Sample> scored;           // the prompt's next tokens, one for each of the share's rows that has one
  std::optional<Result<Sample>> drawn;  // the token after the last one, where the share reaches it
  bool out_of_memory = false;           // the above is not whole
  bool is_unsound = false;              // nor here: the model computed no numbers (unsound_row())
};

struct StepResult {
  std::vector<ShareResult> shares;  // as in the plan
  double forward_seconds = 0;
  double sample_seconds = 0;
};

class Runner {
 public:
  // All outlive the runner. Allocates logits[R, V] and all else that does not depend on what requests ask.
  Runner(ForwardPass& model, const KvStore& kv, Stream& stream, const BatchLimits& limits, const Clock& clock);
  // Valid until the next call.
  StepResult& run(const StepPlan& plan);
  // When run() last got on, on steady_clock(); from any thread.
  double last_beat() const { return stream_.team().last_beat(); }

 private:
  struct RowTask {  // what to do with one row of logits
    size_t share;
    int32_t row;
    TokenId next;   // kNone: draw
    size_t scored;  // index into ShareResult::scored
    bool out_of_memory = false;
    bool is_unsound = false;
  };
  void list_tasks(const StepPlan& plan);
  void do_task(const StepPlan& plan, RowTask& task, SamplerScratch& scratch);
  void do_row(const StepPlan& plan, RowTask& task, SamplerScratch& scratch);

  ForwardPass& model_;
  const KvStore& kv_;
  Stream& stream_;
  const Clock& clock_;
  BatchBuilder builder_;
  std::vector<float> logits_;  // [R, V]
  std::vector<RowTask> tasks_;
  std::vector<SamplerScratch> scratch_;  // one per thread
  StepResult result_;
};

}  // namespace ibid
