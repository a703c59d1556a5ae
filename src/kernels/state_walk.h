// How a recurrent layer goes through a step: token after token in the order of each sequence, from the state before
// each to the state after it (forward_batch.h, "States"). What a token's state is does not depend on which slot holds
// it, on the step that computes it, or on drafts beside it.
#pragma once

#include <span>

#include "kernels/forward_batch.h"
#include "kernels/state_layout.h"
#include "kernels/state_slots.h"

namespace ibid {

// The states of one layer.
struct LayerStates {
  StateSlots slots;
  int64_t begin = 0;     // of its part in a slot, bytes
  int64_t n_values = 0;  // of its part

  LayerStates(const StateSlots& all, const StateLayout& layout, int layer)
      : slots(all), begin(layout.begin(layer)), n_values(layout.n_values(layer)) {}
  // Values [first, first + n) of them.
  LayerStates part(int64_t first, int64_t n) const {
    LayerStates out = *this;
    out.begin += first * static_cast<int64_t>(sizeof(float));
    out.n_values = n;
    return out;
  }
  std::span<float> of(int32_t slot) const {
    return {reinterpret_cast<float*>(slots.slot(slot) + begin), static_cast<size_t>(n_values)};
  }
};

// Calls advance(t, from, to) for each token t of sequence s: `from` is the state before it, empty at a sequence's
// begin; it fills `to`, all of it. The two may be one span: what is read is read before it is written over. `running`,
// of the layer's length, holds states that are not kept. Sequences may be walked on several threads, each with a
// `running` of its own.
template <typename Advance>
void walk_states(const ForwardBatch& b, int32_t s, const LayerStates& states, std::span<float> running,
                 Advance advance) {
  for (int32_t t = b.query_start[s]; t < b.query_start[s + 1]; ++t) {
    const int32_t before = b.before(s, t);
    const int32_t slot = before < 0 ? b.state_in[s] : b.state_out[before];
    std::span<float> from;
    if (slot >= 0) {
      from = states.of(slot);
    } else if (before >= 0) {
      from = running;  // a plain token's, of which no other token but the next goes on
    }
    const std::span<float> to = b.state_out[t] >= 0 ? states.of(b.state_out[t]) : running;
    advance(t, std::span<const float>(from), to);
  }
}

}  // namespace ibid
