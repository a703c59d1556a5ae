// Pass: one forward pass over one step, as its blocks see it (model/blocks.h): where the work goes, what it is about,
// and the step's intermediates by name. Model::forward makes one for each call; it owns nothing and allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "kernels/forward_batch.h"
#include "kernels/paged_kv.h"
#include "kernels/state_walk.h"
#include "model/config.h"
#include "model/linear_layer.h"
#include "model/rope.h"
#include "model/scratch.h"
#include "tensor/stream.h"

namespace ibid {

// Hidden states that a caller needs besides logits: the residual stream after a layer, or for "layer" L the output of
// the final norm, of every token of the step however few rows of logits are needed. Proposers that read hidden states
// are fed with them, and contrastive search compares them.
struct HiddenStates {
  std::span<const int32_t> layers;  // ascending, from 0 to L; one may come twice
  std::span<const TensorView> out;  // [T, C] F32 for each of `layers`; the caller's
  // Set to what the final norm makes of the rows whose logits are wanted, [R, C] F32, where it lies until the next
  // pass; no copy, and no row more is computed. Null: not wanted.
  TensorView* of_rows = nullptr;

  bool has(int layer) const {
    for (int32_t l : layers) {
      if (l == layer) return true;
    }
    return false;
  }
};

// Called after each intermediate: its name (docs/developers/adding_a_model.md lists them), its layer (-1 outside
// layers), and the rows of this step. The tensor may be read during the call only.
using Tap = std::function<void(std::string_view name, int layer, const TensorView& x)>;

struct Pass {
  Stream& s;
  const ModelConfig& config;
  const ForwardBatch& batch;
  std::span<const PagedKv> kv;  // [L]
  const StateSlots& states;     // that batch.state_in and batch.state_out name; none without recurrent layers
  const StateLayout& state_layout;
  std::span<const RopeTable> ropes;  // as config.ropes
  HiddenStates hidden;
  TensorView logits;  // [R, V]
  TensorView inputs;  // [T, C] in the place of the tokens' embeddings; rank 0: those are read
  const Tap& tap;
  Scratch& t;                     // of this step; each block lists what it reads and writes
  StepRows rows;                  // what the rows of t.x, t.h and all that is computed of them stand for
  bool only_wanted_rows = false;  // rows are those whose logits are wanted; else all T

  int n_layers() const { return static_cast<int>(config.n_layers); }
  const LayerConfig& layer(int l) const { return config.layers[static_cast<size_t>(l)]; }
  bool is_last(int layer) const { return layer + 1 == n_layers(); }
  LayerStates states_of(int layer) const { return {states, state_layout, layer}; }
  void seen(std::string_view name, int layer, const TensorView& x) const {
    if (tap) tap(name, layer, x);
  }
};

}  // namespace ibid
