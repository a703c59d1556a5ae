// EngineCore: the step loop over its parts. Each part has its own page; this one only connects them:
//   scheduler (who runs) -> runner (batch, forward, draw) -> settler (facts) -> answers (what clients hear).
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/forward_pass.h"
#include "engine/kv_store.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/settle.h"
#include "spec/proposer.h"

namespace ibid {

class EngineCore final : public Engine {
 public:
  // `stream` and `clock` outlive the engine; so does what `model` refers to. `tokenizer` may be null: then outputs have
  // no text, and stop strings are refused.
  static Result<std::unique_ptr<EngineCore>> create(std::unique_ptr<ForwardPass> model,
                                                    std::shared_ptr<const Tokenizer> tokenizer, Stream& stream,
                                                    const EngineOptions& options, const Clock& clock,
                                                    PrefixHash hash = PrefixHash());
  ~EngineCore() override;

  Result<AdmittedRequest> admit(Request request) const override;
  Status submit(AdmittedRequest request) override;
  // Both, for those who are on the engine's thread.
  Status submit(Request request);
  void cancel(RequestId id) override;
  void cancel_all() override;
  bool step(std::vector<Output>& out) override;
  EngineStats stats() const override;
  double last_beat() const override { return runner_.last_beat(); }
  const std::vector<StepShare>& last_step() const override { return last_step_; }
  const EngineOptions& options() const override { return options_; }

  // From the next step on, at most max_drafts tokens a sequence and step (kMaxDrafts bound them) are proposed by this
  // one.
  void speculate(std::unique_ptr<Proposer> proposer, int32_t max_drafts);

  // For tests and debuggers.
  int64_t n_accepted_drafts() const { return settler_.counts().accepted_tokens; }
  const BlockCache& cache() const { return cache_; }
  const KvStore& kv() const { return kv_; }
  int32_t n_last_copies() const { return n_last_copies_; }  // blocks copied by the last step
  // Takes its blocks from a running sequence, as if there were no room. False if it does not run.
  bool preempt(RequestId id, int32_t choice = 0);
  // Every reference of the pool is an entry of a table; free + cached + in use == total. CHECKs. Debug builds do this
  // after every step.
  void self_check() const;

 private:
  struct Live {                                        // a request that has not ended
    std::vector<std::unique_ptr<Sequence>> sequences;  // one per choice
    bool is_cancelled = false;
  };

  EngineCore(std::unique_ptr<ForwardPass> model, std::shared_ptr<const Tokenizer> tokenizer, Stream& stream,
             const EngineOptions& options, const Clock& clock, KvStore kv, PrefixHash hash);
  Live make_sequences(const AdmittedRequest& request);
  void hold_scopes(Live& live);
  bool make_room(std::vector<Output>& out) const;
  void propose();
  void run(const StepPlan& plan, std::vector<Output>& out);
  void note(const StepPlan& plan);
  template <typename End>
  void end_requests(const std::vector<RequestId>& ids, std::vector<Output>& out, End end);
  void end_cancelled(std::vector<Output>& out);
  void end_starved(std::vector<Output>& out);
  void end_unsound(std::vector<Output>& out);
  void publish(Sequence& sequence, std::vector<Output>& out);
  void forget_if_finished(RequestId id);
  int32_t n_unfinished() const;  // sequences

  std::unique_ptr<ForwardPass> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  EngineOptions options_;
  const Clock& clock_;
  KvStore kv_;
  BlockCache cache_;
  Scheduler scheduler_;
  Runner runner_;
  Settler settler_;
  std::unique_ptr<Proposer> proposer_;  // may be null
  int32_t max_drafts_ = 0;

  std::unordered_map<RequestId, Live> requests_;
  std::vector<RequestId> cancelled_;  // room for all of requests_
  std::vector<RequestId> starved_;    // of this step
  std::vector<RequestId> unsound_;    // of this step
  int64_t next_sequence_ = 0;
  int64_t n_submitted_ = 0;  // sequences
  std::vector<StepShare> last_step_;
  int32_t n_last_copies_ = 0;
  EngineStats timing_;  // the parts of stats() that this class measures
};

}  // namespace ibid
