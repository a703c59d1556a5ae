// Worker: a model on a device, with its keys and values, its stream and its buffers. It knows blocks, slots and a batch
// of arrays, and no sequence or request. It is the seat of whatever runs a model: the engine's own, a draft model, a
// rank of several, a GPU.
//
// A step is launched and waited for. On the CPU launch() does the work; on a device it enqueues it, so that the host
// may do something else in between. Up to WorkerOptions::n_inflight steps are in flight, and are waited for in the
// order in which they were launched; what one has computed is valid until launch() needs its place again, n_inflight
// steps later (StepOutput::rows_hidden: until the next launch). All memory is allocated by create(); a step allocates
// nothing. One thread, but for last_beat().
//
// All that reads or writes keys and values goes through it, so that a worker of several ranks hears of it.
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
#include "worker/state_store.h"

namespace ibid {

struct WorkerOptions {
  KvTypes kv_dtype;
  int32_t block_len = 16;  // B
  int32_t n_blocks = 0;
  int32_t n_host_blocks = 0;  // of the tier below
  int32_t n_states = 0;       // of a model with recurrent layers
  int32_t n_host_states = 0;
  int32_t step_tokens = 0;  // T and R of the largest step
  int32_t max_rows = 0;
  std::vector<int32_t> hidden_layers;  // layers whose hidden states a step may ask for; ascending
  int32_t n_inflight = 1;              // steps; each has its own outputs
};

// One step, as plain arrays: worker/step_bytes.h writes it as bytes. The arrays must stay until it is
// waited for.
struct StepWork {
  std::span<const BlockCopy> copies;        // done first, in their order
  std::span<const StateCopy> state_copies;  // these too
  const ForwardBatch* batch = nullptr;      // null: nothing but copies
  bool wants_hidden = false;
  bool wants_rows_hidden = false;
  bool wants_taps = false;  // set_taps()
};
// Names a step that was launched.
struct Inflight {
  int64_t step = 0;
};
// Rows of floats that the host may read.
struct HostRows {
  std::span<const float> values;  // [n, row_len]
  size_t row_len = 0;
  size_t n() const { return row_len == 0 ? 0 : values.size() / row_len; }
  bool empty() const { return values.empty(); }
  std::span<const float> row(size_t i) const { return values.subspan(i * row_len, row_len); }
};
// All in memory of the host.
struct StepOutput {
  std::span<const float> logits;     // [R, V]
  std::span<const HostRows> hidden;  // [T, C] for each of hidden_layers; empty if not wanted
  HostRows rows_hidden;              // [R, C] after the final norm, of the rows of logits; empty if not wanted
};

class Worker {
 public:
  // `stream` outlives the worker.
  static Result<std::unique_ptr<Worker>> create(std::unique_ptr<ForwardPass> model, Stream& stream,
                                                const WorkerOptions& options);

  const ModelFacts& facts() const { return model_->facts(); }
  // Layers whose hidden states steps with `wants_taps` write to buffers of the caller's, on the stream's device,
  // [step_tokens, C] each or longer; null: none. Must outlive the steps.
  void set_taps(const HiddenStates* taps) { taps_ = taps; }
  Inflight launch(const StepWork& work);
  // Of the oldest step in flight.
  StepOutput wait(const Inflight& step);
  // Moves keys and values in all layers, slot by slot in this order, after what was launched.
  void copy_slots(std::span<const int32_t> from, std::span<const int32_t> to);
  // A block in its exchange form (KvStore), after what was launched.
  void export_block(BlockId block, std::span<std::byte> bytes) const { kv_.export_block(block, bytes); }
  void import_block(BlockId block, std::span<const std::byte> bytes) const { kv_.import_block(block, bytes); }
  // A state as it lies, after what was launched.
  void export_state(Tier tier, StateId state, std::span<std::byte> bytes) const {
    states_.export_state(tier, state, bytes);
  }
  void import_state(StateId state, std::span<const std::byte> bytes) const { states_.import_state(state, bytes); }
  // Lets the system give the block's memory now, so that no step waits for it.
  void bring(BlockId block) const { kv_.bring(block); }

  // A piece of what the largest step writes, in idle times. Whether there was one left.
  bool take_next();

  Stream& stream() const { return stream_; }
  const KvStore& kv() const { return kv_; }  // its layouts and sizes; tests read its bytes
  const StateStore& states() const { return states_; }
  // When a step under way last got on, on steady_clock(); from any thread.
  double last_beat() const { return stream_.host().last_beat(); }

 private:
  Worker(std::unique_ptr<ForwardPass> model, Stream& stream, const WorkerOptions& options, KvStore kv,
         StateStore states);
  Status allocate();
  // What one step in flight has computed.
  struct Place {
    Buffer logits;  // [R, V] of the largest step
    Buffer hidden;  // [hidden_layers, T, C] of it
    Buffer host;    // copies of both and of rows_hidden, where the host does not read them itself
    std::vector<TensorView> hidden_views;  // of this step
    TensorView rows_hidden;
    std::vector<HostRows> hidden_rows;
    int32_t n_tokens = 0, n_rows = 0;
    bool has_hidden = false;
  };
  Place& place_of(int64_t step) { return places_[static_cast<size_t>(step) % places_.size()]; }
  size_t n_logits() const;  // floats of the largest step
  size_t n_hidden() const;  // of one layer
  HiddenStates with_taps(const HiddenStates& own, int32_t n_tokens);

  std::unique_ptr<ForwardPass> model_;
  Stream& stream_;
  WorkerOptions options_;
  KvStore kv_;
  StateStore states_;
  std::vector<Place> places_;           // [n_inflight]
  const HiddenStates* taps_ = nullptr;  // may be null
  std::vector<int32_t> asked_layers_;   // of a step with taps: theirs, then hidden_layers
  std::vector<TensorView> asked_views_;
  int64_t n_launched_ = 0, n_waited_ = 0;
};

}  // namespace ibid
