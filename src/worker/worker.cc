#include "worker/worker.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ops.h"

namespace ibid {

Result<std::unique_ptr<Worker>> Worker::create(std::unique_ptr<ForwardPass> model, Stream& stream,
                                               const WorkerOptions& options) {
  const std::vector<KvLayout> layouts = kv_layouts(model->facts().layers, options.kv_dtype, options.block_len);
  ASSIGN_OR_RETURN(KvStore kv, KvStore::create(layouts, options.n_blocks, stream.memory(), options.n_host_blocks));
  std::unique_ptr<Worker> worker(new Worker(std::move(model), stream, options, std::move(kv)));
  TRY(worker->allocate());
  return worker;
}

Worker::Worker(std::unique_ptr<ForwardPass> model, Stream& stream, const WorkerOptions& options, KvStore kv)
    : model_(std::move(model)), stream_(stream), options_(options), kv_(std::move(kv)) {}

Status Worker::allocate() {
  const auto row_bytes = sizeof(float) * static_cast<size_t>(facts().vocab_size);
  ASSIGN_OR_RETURN(logits_, Buffer::allocate(stream_.memory(), static_cast<size_t>(options_.max_rows) * row_bytes,
                                             "the rows of logits of a step"));
  ASSIGN_OR_RETURN(hidden_, Buffer::allocate(stream_.memory(), options_.hidden_layers.size() * hidden_bytes(),
                                             "the hidden states of a step"));
  hidden_views_.resize(options_.hidden_layers.size());
  return {};
}

size_t Worker::hidden_bytes() const {
  return sizeof(float) * static_cast<size_t>(facts().width) * static_cast<size_t>(options_.step_tokens);
}

Inflight Worker::launch(const StepWork& work) {
  CHECK(n_waited_ == n_launched_, "a step is launched before the last one was waited for");
  output_ = {};
  kv_.copy(stream_, work.copies);
  if (work.batch != nullptr) {
    const ForwardBatch& batch = *work.batch;
    CHECK(batch.n_tokens <= options_.step_tokens && batch.n_rows <= options_.max_rows);
    const TensorView logits(logits_.data(), DType::kF32, {batch.n_rows, facts().vocab_size});
    HiddenStates hidden;
    if (work.wants_hidden) {
      for (size_t i = 0; i < hidden_views_.size(); ++i)
        hidden_views_[i] =
            TensorView(hidden_.data() + i * hidden_bytes(), DType::kF32, {batch.n_tokens, facts().width});
      hidden = {.layers = options_.hidden_layers, .out = hidden_views_};
    }
    output_.hidden = hidden.out;
    if (work.taps != nullptr) hidden = with_taps(*work.taps, hidden, batch.n_tokens);
    if (work.wants_rows_hidden) hidden.of_rows = &output_.rows_hidden;
    model_->run(batch, kv_.layers(), logits, hidden);
    output_.logits = {reinterpret_cast<const float*>(logits_.data()),
                      static_cast<size_t>(batch.n_rows) * static_cast<size_t>(facts().vocab_size)};
  }
  return {++n_launched_};
}

// Both ascend; our own are of the last "layer", which taps may have too.
HiddenStates Worker::with_taps(const HiddenStates& taps, const HiddenStates& own, int32_t n_tokens) {
  asked_layers_.assign(taps.layers.begin(), taps.layers.end());
  asked_layers_.insert(asked_layers_.end(), own.layers.begin(), own.layers.end());
  CHECK(std::ranges::is_sorted(asked_layers_), "layers of hidden states ascend");
  asked_views_.clear();
  for (const TensorView& tap : taps.out) asked_views_.push_back(tap.first_rows(n_tokens));
  asked_views_.insert(asked_views_.end(), own.out.begin(), own.out.end());
  return {.layers = asked_layers_, .out = asked_views_};
}

StepOutput Worker::wait(const Inflight& step) {
  CHECK(step.step == n_launched_, "only the last step can be waited for");
  n_waited_ = n_launched_;
  return output_;
}

void Worker::copy_slots(std::span<const int32_t> from, std::span<const int32_t> to) {
  for (const PagedKv& kv : kv_.owned()) ops::copy_slots(stream_, kv, from, to);
}

}  // namespace ibid
