// Engine: many requests over one model, one step at a time (docs/design.md section 3). All state belongs to the thread
// that calls step(); EngineThread (engine_thread.h) is that thread for servers and terminals.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/admission.h"
#include "engine/policy.h"
#include "engine/request.h"
#include "tensor/dtype.h"

namespace ibid {

class Model;
class Stream;
class Tokenizer;

struct EngineOptions {
  int32_t block_len = 16;  // B: 8, 16 or 32
  int64_t kv_bytes = 0;    // memory for KV blocks; 0: enough for max_sequences / 4 full contexts, bounded by RAM
  DType kv_dtype = DType::kF16;
  int32_t max_tokens = 512;    // T: token budget of a step
  int32_t max_sequences = 64;  // S: sequences running at once
  int32_t max_waiting = 4096;  // sequences queued beyond those before submit() refuses
  int32_t max_rows = 0;        // R: rows of logits of a step, which bound its memory; 0: max_sequences
  bool prefix_cache = true;
  PolicyKind policy = PolicyKind::kPriority;
  std::string model_digest;                // of the weights; needed where cached blocks outlive the process
  std::vector<TokenId> end_of_generation;  // ids that end an answer; empty: the tokenizer's
};

// A snapshot for /metrics, /health and the page; cheap to take.
struct EngineStats {
  int64_t n_steps = 0;
  int32_t n_running = 0;  // sequences
  int32_t n_waiting = 0;  // sequences
  int32_t blocks_total = 0;
  int32_t blocks_free = 0;    // never used or emptied
  int32_t blocks_cached = 0;  // hold a prefix, evictable
  int32_t blocks_in_use = 0;  // referenced by running sequences
  int32_t blocks_shared = 0;  // of those, referenced more than once
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t n_preemptions = 0;
  int64_t n_finished = 0;
  int64_t n_cancelled = 0;
  int64_t n_failed = 0;
  // The last step: what was in it and where its time went, in seconds.
  int32_t step_prefill_tokens = 0;
  int32_t step_decode_tokens = 0;
  double step_plan = 0;
  double step_forward = 0;
  double step_sample = 0;
  double step_settle = 0;
};

// One sequence's part of a step.
struct StepShare {
  RequestId request{};
  int32_t choice = 0;
  int32_t n_tokens = 0;
};

class Engine {
 public:
  // `model`, `stream`, `clock` outlive the engine. Allocates everything it will ever need for a step. The KV cache must
  // hold at least one full context, so that any request that is taken can end.
  static Result<std::unique_ptr<Engine>> create(Model& model, std::shared_ptr<const Tokenizer> tokenizer,
                                                Stream& stream, const EngineOptions& options,
                                                const Clock& clock = steady_clock());
  virtual ~Engine() = default;

  // Checks a request wholly; an error is kInvalid or kUnsupported and names the field, or kNoMemory. From any thread.
  virtual Result<AdmittedRequest> admit(Request request) const = 0;
  // An error means that it was not taken: kExhausted that the queue is full, kNoMemory that an allocation failed,
  // kInvalid that a request with its id runs.
  virtual Status submit(AdmittedRequest request) = 0;
  // Ends a request at the next step boundary; its blocks are free after that step(). Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
  virtual void cancel_all() = 0;
  // One turn. Appends what became known to `out`. False when there was nothing to do, or no memory to tell of it: then
  // nothing was done either. A request that an allocation fails for ends with ErrorKind::kNoMemory, and it alone.
  virtual bool step(std::vector<Output>& out) = 0;
  virtual EngineStats stats() const = 0;
  // When a step that is under way last got on, on steady_clock(); between steps, when the last one did. From any
  // thread.
  virtual double last_beat() const = 0;
  // Who was in the last step, in the order of the batch; valid until the next one.
  virtual const std::vector<StepShare>& last_step() const = 0;
  // As completed at start-up: kv_bytes and max_rows are what they became.
  virtual const EngineOptions& options() const = 0;
};

}  // namespace ibid
