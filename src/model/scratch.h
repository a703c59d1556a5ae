// Scratch: every intermediate of a step by name, views into one allocation sized at load for the largest step and, of
// each intermediate, for the largest layer. Sizes below are those of the layer at hand (LayerConfig).
// A block that needs more than these keeps a struct of views of its own, allocated the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace ibid {

// Hands out the pieces of one allocation.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* start) : start_(start) {}
  // [rows, columns] F32, aligned to 64 bytes. Rows are those of the largest step: TensorView::first_rows cuts.
  TensorView take(int64_t rows, int64_t columns);
  size_t bytes() const { return at_; }

 private:
  std::byte* start_;
  size_t at_ = 0;
};

// The bytes of all that `place` takes. What it was given is not to be read or written.
size_t scratch_bytes(const std::function<void(ScratchLayout&)>& place);
// Memory for all that `place` takes. It is called twice, first to count, and takes the same both times. `what` is for
// the sentence where there is no room (tensor/buffer.h).
Result<Buffer> allocate_scratch(const DeviceMemory& memory, const std::function<void(ScratchLayout&)>& place,
                                std::string_view what);

// Of layers with experts, for T tokens that use k of E. Rows are one after the other; a layer takes as many, of its own
// length, as it needs (model/moe.cc).
struct ExpertScratch {
  TensorView logits;                 // [T, E] the router's, then scores
  TensorView expert, weight, row;    // [T, k]; expert and row hold int32
  TensorView token, first_row;       // [T k, 1], [E + 1, 1] of int32
  TensorView gate_up;                // [T k, 2 F]
  TensorView down;                   // [T k, C]
  TensorView shared_gate, sum;       // [T, 1], [T, C]; where there are shared experts
  TensorView latent_in, latent_out;  // [T, latent] what experts read and give, where that is not C
};

// Of models with a row of an embedding for each layer (model/gemma4.h), of the largest step; P: its length.
struct LayerEmbeddingScratch {
  TensorView all, rows;  // [T, L P]: what the layers read; the table's rows
  TensorView gate;       // [T, P]
  TensorView wanted;     // [R, P]: a layer's of `all`, of the rows whose logits are wanted
};

// Of recurrent layers, for T tokens; each layer takes as many columns as it needs, rows one after the other.
struct RecurrentScratch {
  TensorView in;       // LayerConfig::recurrent_in_len: b, c and x of a short convolution; q, k and v of a delta net;
                       // z, x, B, C and dt of a state space
  TensorView z;        // [T, Hv Dv] the gate of a delta net's outputs
  TensorView a, b;     // [T, Hv] what its decay and its writing follow from
  TensorView grouped;  // [T, ...] several of these in one, part by part of each key head
  TensorView out;      // [T, H P] what a state space beside attention gives
};

// Of layers with latent attention (model/latent_attention.cc), whose H, plain, turn, Q and V those are. Their rows are
// in k, their absorbed queries in q.
struct LatentScratch {
  TensorView q_a;  // [T, Q]
  TensorView q;    // [T, H (plain + turn)]
  TensorView out;  // [T, H V]
};

struct Scratch {
  TensorView x;                           // [T, C] the residual stream
  TensorView h;                           // [T, C] x after a norm
  TensorView q, k, v;                     // [T, H Dk], [T, K Dk], [T, K Dv]; columns of qkv where the weights are fused
  TensorView qkv;                         // [T, H Dk + K Dk + K Dv]
  TensorView q_gate, head_gate;           // [T, 2 H Dk] q and gate of each head; [T, H Dk]; where attention is gated
  TensorView attention;                   // [T, H Dv], or what a recurrent layer gives
  TensorView out;                         // [T, C] what attention or feed-forward adds to x
  TensorView gate, up;                    // [T, F]; columns of gate_up where the weights are fused
  TensorView gate_up;                     // [T, 2 F]
  TensorView x_rows, attention_rows;      // [R, C], [R, H Dv]: those of x and attention whose logits are wanted
  std::vector<TensorView> cos_sin;        // of each RoPE, [T, 2 n_pairs]
  RecurrentScratch recurrent;             // of the largest step whatever the step; empty where no layer is recurrent
  LayerEmbeddingScratch layer_embedding;  // likewise
  ExpertScratch experts;                  // of the largest step whatever the step; empty where no layer has experts
  LatentScratch latent;                   // likewise

  static Result<Scratch> allocate(const ModelConfig& config, int64_t step_tokens, int64_t max_rows,
                                  const DeviceMemory& memory = cpu_memory());
  // Takes all of the above from a layout that others take from too.
  void lay_out(ScratchLayout& layout, const ModelConfig& config, int64_t step_tokens, int64_t max_rows);
  // The same cut to a step of n_tokens and n_rows. Views only; for a step's own copy. fit() comes before a layer's use.
  void cut_to(const Scratch& whole, int64_t n_tokens, int64_t n_rows);
  // From here on all are as wide as the layer's, rows one after the other. Views only.
  void fit(const LayerConfig& layer);
  // From here on x and attention are x_rows and attention_rows, and all else has n_rows rows.
  void go_on_with_rows(int64_t n_rows);

  Buffer memory;
};

}  // namespace ibid
