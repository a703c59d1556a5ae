// Engine: many requests over one model, one step at a time (docs/design.md section 3). Connects its parts:
//   scheduler (who runs) -> runner (batch, worker, draw) -> settler (facts) -> live requests (outputs to clients).
// Speculation stands beside the scheduler and fills in draft tokens.
// All state belongs to the thread that calls step(); EngineThread (engine_thread.h) is that thread for servers and
// terminals.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/admission.h"
#include "engine/engine_observer.h"
#include "engine/live_requests.h"
#include "engine/schedule/disk_tier.h"
#include "engine/schedule/queue_forecast.h"
#include "engine/schedule/scheduler.h"
#include "engine/state/engine_options.h"
#include "engine/step/runner.h"
#include "engine/step/settle.h"
#include "engine/step/speculation.h"
#include "engine/step/step_notes.h"
#include "spec/target_seat.h"
#include "worker/worker.h"

namespace ibid {

class Model;

class Engine {
 public:
  // `model`, `stream`, `clock` outlive the engine. Allocates everything it will ever need for a step. The KV cache must
  // hold at least one full context, so that any request that is taken can end. `tokenizer` may be null: then outputs
  // have no sequence, and stop strings are refused.
  static Result<std::unique_ptr<Engine>> create(Model& model, std::shared_ptr<const Tokenizer> tokenizer,
                                                Stream& stream, const EngineOptions& options,
                                                const Clock& clock = steady_clock(),
                                                std::unique_ptr<DurableStore> store = nullptr);
  // The same over any forward pass; what it refers to outlives the engine. `store`: of the disk tier, instead of a real
  // one in options.disk_folder.
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<ForwardPass> model,
                                                std::shared_ptr<const Tokenizer> tokenizer, Stream& stream,
                                                const EngineOptions& options, const Clock& clock,
                                                PrefixHash hash = PrefixHash(),
                                                std::unique_ptr<DurableStore> store = nullptr);
  // What a disk tier in options.disk_folder lies in, for who stands before it.
  static Result<std::unique_ptr<DurableStore>> open_store(const Model& model, const EngineOptions& options);
  ~Engine();

  // Checks a request wholly; an error is kInvalid or kUnsupported and names the field, or kNoMemory. From any thread.
  Result<AdmittedRequest> admit(Request request) const;
  // An error means that it was not taken: kExhausted that the queue is full, kNoMemory that an allocation failed,
  // kInvalid that a request with its id runs.
  Status submit(AdmittedRequest request);
  Status submit(Request request);  // both
  // Ends a request at the next step boundary; its blocks are free after that step(). Unknown ids are ignored.
  void cancel(RequestId id);
  void cancel_all();
  // One turn. Appends the outputs to `out`. False when there was nothing to do, or no memory for outputs: then nothing
  // was done either. A request that an allocation fails for ends with ErrorKind::kNoMemory, and it alone.
  bool step(std::vector<Output>& out);
  // From the next step on, at most max_drafts tokens a sequence and step (kMaxDrafts bound them) are proposed by this
  // one.
  void speculate(std::unique_ptr<Proposer> proposer, int32_t max_drafts);

  // Of its model, for a proposer of speculate() that drafts with it. The engine outlives it.
  TargetSeat seat() {
    return TargetSeat(*worker_, cache_, std::min(options_.max_sequences, options_.step_tokens),
                      std::min(options_.max_rows, options_.step_tokens));
  }

  // Before any request and any record: what steps cost is measured on this machine instead of estimated, and stands in
  // options(). The model computes for some 50 ms.
  void measure_steps(const Clock& clock = steady_clock());

  // Hears from now on all that enters and all that steps do; outlives the engine.
  void observe(EngineObserver& observer) { observer_ = &observer; }
  // Hears from now on of the whole blocks of the prefix tree, and the end of each step; outlives the engine's steps.
  void observe_cache(PrefixObserver& observer) {
    cache_observer_ = &observer;
    cache_.tree().observe(&observer);
  }
  // From the next step on, tokens come from `draws`, which outlives the engine. For replays without a model.
  void draw_from(RecordedDraws& draws) { runner_.draw_from(&draws); }

  EngineStats stats() const;
  // What stands before a request that came now, and how long it would wait (schedule/queue_forecast.h); one with
  // n_prompt tokens to compute, or < 0: with as many as the last ones had. Takes some milliseconds where thousands
  // wait. Throws std::bad_alloc.
  struct Forecast {
    int64_t queue_tokens = 0;
    double first_token_seconds = 0;
  };
  Forecast forecast(int32_t n_prompt = -1) const;
  // When a step that is under way last got on, on steady_clock(); between steps, when the last one did. From any
  // thread.
  double last_beat() const { return worker_->last_beat(); }
  // A step without requests has work for later ones.
  bool has_idle_work() const { return n_brought_ < n_to_bring_ || has_memory_to_take_; }
  // Who was in the last step, in the order of the batch; valid until the next one.
  const std::vector<StepShare>& last_step() const { return notes_.shares(); }
  // As completed at start-up: kv_bytes and max_rows are what they became.
  const EngineOptions& options() const { return options_; }

  // For tests and debuggers.
  int64_t n_accepted_drafts() const { return settler_.counts().accepted_tokens; }
  const BlockCache& cache() const { return cache_; }
  const KvStore& kv() const { return worker_->kv(); }
  const StateSlots& state_slots() const { return worker_->states().slots(); }
  int32_t n_last_copies() const { return notes_.n_copies(); }  // blocks copied by the last step
  // Takes its blocks from a running sequence, as if there were no room. False if it does not run.
  bool preempt(RequestId id, int32_t choice = 0);
  // Null where there is none, or none any more; valid until the next call that changes anything.
  const Sequence* find(RequestId id, int32_t choice) const { return live_.find(id, choice); }
  const ModelFacts& facts() const { return worker_->facts(); }  // of its model
  bool has_text() const { return has_text_; }
  // Every reference of the pool is an entry of a table; free + cached + in use == total; of each sequence that draws,
  // all but the last token is computed, and its proposer keeps no other. CHECKs. Debug builds do this after every step.
  void self_check() const;

 private:
  struct Parts;  // of which it is made
  explicit Engine(Parts parts);
  void begin(std::vector<Output>& out);
  const StepPlan& plan();
  StepResult& run(const StepPlan& plan);
  void settle(const StepPlan& plan, StepResult& result, std::vector<Output>& out);
  bool finish(const StepPlan& plan);
  void settle_disk();
  void weigh_host_tier();
  void bring_memory();
  Status take(AdmittedRequest& request);
  Status fits_eviction(const Request& request) const;

  std::unique_ptr<Worker> worker_;
  EngineOptions options_;
  bool has_text_;
  BlockCache cache_;
  StepCost cost_;                   // of steps on this machine, as far as it has been seen
  std::unique_ptr<DiskTier> disk_;  // may be null
  Scheduler scheduler_;
  Speculation speculation_;
  Runner runner_;
  Settler settler_;
  LiveRequests live_;
  StepFailures failures_;
  StepNotes notes_;
  TypicalRequest typical_;
  EngineObserver* observer_;  // one that does nothing if none is set
  PrefixObserver* cache_observer_ = nullptr;
  const int32_t n_to_bring_;  // blocks, from the pool's first one on
  int32_t n_brought_ = 0;
  bool has_memory_to_take_ = true;
};

}  // namespace ibid
