#include "worker/worker.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ops.h"

namespace ibid {

Result<std::unique_ptr<Worker>> Worker::create(std::unique_ptr<ForwardPass> model, Stream& stream,
                                               const WorkerOptions& options) {
  const std::vector<KvLayout> layouts = kv_layouts(model->facts().layers, options.kv_dtype, options.block_len);
  ASSIGN_OR_RETURN(KvStore kv, KvStore::create(layouts, options.n_blocks, stream.memory(), options.n_host_blocks));
  ASSIGN_OR_RETURN(StateStore states, StateStore::create(model->facts().state_bytes, options.n_states,
                                                         options.n_host_states, stream.memory()));
  std::unique_ptr<Worker> worker(new Worker(std::move(model), stream, options, std::move(kv), std::move(states)));
  if (options.n_states > 0) worker->model_->use_states(worker->states_.slots());
  TRY(worker->allocate());
  return worker;
}

Worker::Worker(std::unique_ptr<ForwardPass> model, Stream& stream, const WorkerOptions& options, KvStore kv,
               StateStore states)
    : model_(std::move(model)), stream_(stream), options_(options), kv_(std::move(kv)), states_(std::move(states)) {}

size_t Worker::n_logits() const {
  return static_cast<size_t>(facts().vocab_size) * static_cast<size_t>(options_.max_rows);
}

size_t Worker::n_hidden() const {
  return static_cast<size_t>(facts().width) * static_cast<size_t>(options_.step_tokens);
}

Status Worker::allocate() {
  CHECK(options_.n_inflight >= 1);
  const size_t n_layers = options_.hidden_layers.size();
  for (int32_t i = 0; i < options_.n_inflight; ++i) {
    Place place;
    ASSIGN_OR_RETURN(place.logits,
                     Buffer::allocate(stream_.memory(), n_logits() * sizeof(float), "the rows of logits of a step"));
    ASSIGN_OR_RETURN(place.hidden, Buffer::allocate(stream_.memory(), n_layers * n_hidden() * sizeof(float),
                                                    "the hidden states of a step"));
    const size_t n_copied = n_logits() + n_layers * n_hidden() +
                            static_cast<size_t>(facts().width) * static_cast<size_t>(options_.max_rows);
    ASSIGN_OR_RETURN(place.host, Buffer::allocate(cpu_memory(), stream_.copies_to_host() ? n_copied * sizeof(float) : 0,
                                                  "what the host reads of a step"));
    place.hidden_views.resize(n_layers);
    place.hidden_rows.resize(n_layers);
    places_.push_back(std::move(place));
  }
  return {};
}

bool Worker::take_next() {
  return std::ranges::any_of(places_, [](Place& p) { return p.logits.take_next() || p.hidden.take_next(); });
}

Inflight Worker::launch(const StepWork& work) {
  CHECK(n_launched_ - n_waited_ < std::ssize(places_), "a step is launched before an earlier one was waited for");
  Place& place = place_of(n_launched_);
  place.n_tokens = place.n_rows = 0;
  place.has_hidden = false;
  place.rows_hidden = {};
  kv_.copy(stream_, work.copies);
  states_.copy(work.state_copies);
  if (work.batch != nullptr) {
    const ForwardBatch& batch = *work.batch;
    CHECK(batch.n_tokens <= options_.step_tokens && batch.n_rows <= options_.max_rows);
    place.n_tokens = batch.n_tokens, place.n_rows = batch.n_rows, place.has_hidden = work.wants_hidden;
    const TensorView logits(place.logits.data(), DType::kF32, {batch.n_rows, facts().vocab_size});
    HiddenStates hidden;
    if (work.wants_hidden) {
      for (size_t i = 0; i < place.hidden_views.size(); ++i)
        place.hidden_views[i] = TensorView(place.hidden.data() + i * n_hidden() * sizeof(float), DType::kF32,
                                           {batch.n_tokens, facts().width});
      hidden = {.layers = options_.hidden_layers, .out = place.hidden_views};
    }
    if (work.wants_taps && taps_ != nullptr) hidden = with_taps(hidden, batch.n_tokens);
    if (work.wants_rows_hidden) hidden.of_rows = &place.rows_hidden;
    model_->run(batch, kv_.layers(), logits, hidden);
  }
  return {++n_launched_};
}

// Both ascend; our own are of the last "layer", which taps may have too.
HiddenStates Worker::with_taps(const HiddenStates& own, int32_t n_tokens) {
  asked_layers_.assign(taps_->layers.begin(), taps_->layers.end());
  asked_layers_.insert(asked_layers_.end(), own.layers.begin(), own.layers.end());
  CHECK(std::ranges::is_sorted(asked_layers_), "layers of hidden states ascend");
  asked_views_.clear();
  for (const TensorView& tap : taps_->out) asked_views_.push_back(tap.first_rows(n_tokens));
  asked_views_.insert(asked_views_.end(), own.out.begin(), own.out.end());
  return {.layers = asked_layers_, .out = asked_views_};
}

StepOutput Worker::wait(const Inflight& step) {
  CHECK(step.step == n_waited_ + 1 && step.step <= n_launched_, "steps are waited for in their order");
  Place& place = place_of(n_waited_++);
  const auto width = static_cast<size_t>(facts().width);
  std::span<float> room(reinterpret_cast<float*>(place.host.data()), place.host.bytes() / sizeof(float));
  const auto on_host = [&](const std::byte* data, size_t n) {
    const std::span<float> part = room.first(std::min(n, room.size()));
    room = room.subspan(part.size());
    return stream_.on_host(DeviceSpan<const float>(reinterpret_cast<const float*>(data), n), part);
  };
  StepOutput out;
  out.logits =
      on_host(place.logits.data(), static_cast<size_t>(place.n_rows) * static_cast<size_t>(facts().vocab_size));
  if (place.has_hidden) {
    for (size_t i = 0; i < place.hidden_rows.size(); ++i) {
      const std::byte* data = place.hidden.data() + i * n_hidden() * sizeof(float);
      place.hidden_rows[i] = {.values = on_host(data, static_cast<size_t>(place.n_tokens) * width), .row_len = width};
    }
    out.hidden = place.hidden_rows;
  }
  if (place.rows_hidden.rank > 0) {
    const auto n = static_cast<size_t>(place.rows_hidden.n_elements());
    out.rows_hidden = {.values = on_host(place.rows_hidden.data, n), .row_len = width};
  }
  return out;
}

void Worker::copy_slots(std::span<const int32_t> from, std::span<const int32_t> to) {
  for (const PagedKv& kv : kv_.owned()) ops::copy_slots(stream_, kv, from, to);
}

}  // namespace ibid
