// Worker: a model on a device, with its keys and values, its stream and its buffers. It knows blocks, slots and a batch
// of arrays, and no sequence or request. It is the seat of whatever runs a model: the engine's own, a draft model, a
// rank of several, a GPU.
//
// A step is launched and waited for. On the CPU launch() does the work; on a device it enqueues it, so that the host
// may do something else in between. One step is in flight at a time; what it has computed is valid until the next
// launch(). All memory is allocated by create(); a step allocates nothing. One thread, but for last_beat().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/tier.h"
#include "kernels/forward_batch.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"
#include "worker/forward_pass.h"
#include "worker/kv_store.h"

namespace ibid {

struct WorkerOptions {
  DType kv_dtype = DType::kF16;
  int32_t block_len = 16;  // B
  int32_t n_blocks = 0;
  int32_t n_host_blocks = 0;  // of the tier below
  int32_t step_tokens = 0;    // T and R of the largest step
  int32_t max_rows = 0;
  std::vector<int32_t> hidden_layers;  // layers whose hidden states a step may ask for; ascending
};

// One step. What the spans refer to must stay until it is waited for.
struct StepWork {
  std::span<const BlockCopy> copies;    // done first, in their order
  const ForwardBatch* batch = nullptr;  // null: nothing but copies
  bool wants_hidden = false;
  bool wants_rows_hidden = false;
  // Layers whose hidden states go to buffers of the caller's, [step_tokens, C] each or longer; null: none.
  const HiddenStates* taps = nullptr;
};
struct Inflight {
  int64_t step = 0;
};
struct StepOutput {
  std::span<const float> logits;       // [R, V], where the sampler may read them
  std::span<const TensorView> hidden;  // [T, C] for each of hidden_layers, on the device; empty if not wanted
  TensorView rows_hidden;  // [R, C] after the final norm, of the rows of logits, on the device; rank 0: not wanted
};

class Worker {
 public:
  // `stream` outlives the worker.
  static Result<std::unique_ptr<Worker>> create(std::unique_ptr<ForwardPass> model, Stream& stream,
                                                const WorkerOptions& options);

  const ModelFacts& facts() const { return model_->facts(); }
  Inflight launch(const StepWork& work);
  StepOutput wait(const Inflight& step);
  // Moves keys and values in all layers, slot by slot in this order, after what was launched.
  void copy_slots(std::span<const int32_t> from, std::span<const int32_t> to);

  // A piece of what the largest step writes, in idle times. Whether there was one left.
  bool take_next() { return logits_.take_next() || hidden_.take_next(); }

  Stream& stream() const { return stream_; }
  const KvStore& kv() const { return kv_; }
  // When a step under way last got on, on steady_clock(); from any thread.
  double last_beat() const { return stream_.team().last_beat(); }

 private:
  Worker(std::unique_ptr<ForwardPass> model, Stream& stream, const WorkerOptions& options, KvStore kv);
  Status allocate();
  size_t hidden_bytes() const;  // of one layer, in the largest step
  HiddenStates with_taps(const HiddenStates& taps, const HiddenStates& own, int32_t n_tokens);

  std::unique_ptr<ForwardPass> model_;
  Stream& stream_;
  WorkerOptions options_;
  KvStore kv_;
  Buffer logits_;                         // [R, V] of the largest step
  Buffer hidden_;                         // [hidden_layers, T, C] of it
  std::vector<TensorView> hidden_views_;  // of the last step
  std::vector<int32_t> asked_layers_;     // of a step with taps: theirs, then hidden_layers
  std::vector<TensorView> asked_views_;
  int64_t n_launched_ = 0, n_waited_ = 0;
  StepOutput output_;
};

}  // namespace ibid
