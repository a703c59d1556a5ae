// Experts: a feed-forward of which each token uses some of many, chosen by a router, and beside them shared experts
// that all tokens use.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/blocks.h"

namespace ibid {

struct MoeWeights {
  Linear router;                 // [E, C], F32
  TensorView bias;               // [E] of the choice; rank 0: none
  TensorView scale;              // [E] of an expert's weight; rank 0: none
  std::vector<Weight> gate_up;   // [2 F, C] of each expert, gate first; empty: they are apart
  std::vector<Weight> gate, up;  // [F, C] of each expert
  std::vector<Weight> down;      // [C, F] of each expert
  // [E, 2 F], [E, F] twice and [E, C] F32, of those above; rank 0: none
  TensorView gate_up_bias, gate_bias, up_bias, down_bias;
  FfnWeights shared;   // of width ffn_len, where that is not 0
  Linear shared_gate;  // [1, C], where the model has it
};
Status load_moe(WeightLoader& loader, const ModelConfig& config, int64_t layer, MoeWeights& out);
// Without shared experts, whatever the layer's ffn_len.
Status load_experts(WeightLoader& loader, const ModelConfig& config, int64_t layer, MoeWeights& out);

// The experts that the router chooses for each row of x[., C]; their outputs for x, added -> out[., C], which may be
// sum_of_experts(): t.experts.sum, of as many rows as t.h.
ExpertRows choose_experts(Pass& p, const MoeWeights& w, const TensorView& x, int layer);
void run_experts(Pass& p, const MoeWeights& w, const ExpertRows& rows, const TensorView& x, const TensorView& out,
                 int layer);
TensorView sum_of_experts(const Pass& p);

// t.h -> t.out, of a layer with experts; writes t.experts, t.gate and t.up.
//   expert_e(h) = down_e(silu(gate_e h) up_e h), with biases and ops::clamped_silu_mul where the model has them
//   y = sum over the used experts of weight_e expert_e(h)                     (kernels/expert_rows.h, expert_groups.h)
//     + [sigmoid(shared_gate h)] shared(h), where there are shared experts
void moe_ffn(Pass& p, const MoeWeights& w, int layer);

}  // namespace ibid
