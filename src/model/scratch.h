// Scratch: every intermediate of a step by name, views into one allocation sized at load for the largest step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace ibid {

struct Scratch {
  TensorView x;                       // [T, C] the residual stream
  TensorView h;                       // [T, C] x after a norm
  TensorView q, k, v;                 // [T, H D], [T, K D], [T, K D]; columns of qkv where the weights are fused
  TensorView qkv;                     // [T, (H + 2 K) D]
  TensorView attention;               // [T, H D]
  TensorView out;                     // [T, C] what attention or feed-forward adds to x
  TensorView gate, up;                // [T, F]; columns of gate_up where the weights are fused
  TensorView gate_up;                 // [T, 2 F]
  TensorView x_rows, attention_rows;  // [R, C], [R, H D]: those of x and attention whose logits are wanted
  std::vector<TensorView> cos_sin;    // of each RoPE, [T, 2 n_pairs]

  static Result<Scratch> allocate(const ModelConfig& config, int64_t max_tokens, int64_t max_rows);
  // The same cut to a step of n_tokens and n_rows. Views only; for a step's own copy.
  void cut_to(const Scratch& whole, int64_t n_tokens, int64_t n_rows);
  // From here on x and attention are x_rows and attention_rows, and all else has n_rows rows.
  void go_on_with_rows(int64_t n_rows);

  int64_t bytes = 0;
  std::shared_ptr<std::byte> memory;
};

}  // namespace ibid
