// Experts: a feed-forward of which each token uses some of many, chosen by a router, and beside them shared experts
// that all tokens use.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/blocks.h"

namespace ibid {

// One product of each expert.
struct ExpertLinear {
  std::vector<Weight> weights;  // [N, K] E times; empty: the layer has no such product
  TensorView bias;              // [E, N] F32; rank 0: none
  int32_t seat = kNoSeat;       // of adapters
};

struct MoeWeights {
  Linear router;                // [E, C], F32
  TensorView bias;              // [E] of the choice; rank 0: none
  TensorView scale;             // [E] of an expert's weight; rank 0: none
  ExpertLinear gate_up;         // [2 F, C], gate first; empty: they are apart
  ExpertLinear gate, up;        // [F, C]; up alone where there is no gate
  ExpertLinear down;            // [C, F]
  Linear to_latent, of_latent;  // [latent, C], [C, latent], where experts read and give that in the place of C
  FfnWeights shared;            // of width ffn_len, where that is not 0
  Linear shared_gate;           // [1, C], where the model has it
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
//   expert_e(h) = down_e(silu(gate_e h) up_e h), with biases and ops::clamped_silu_mul where the model has them, or
//                 down_e(relu(up_e h)^2)
//   y = sum over the used experts of weight_e expert_e(h)                     (kernels/expert_rows.h, expert_groups.h)
//     + [sigmoid(shared_gate h)] shared(h), where there are shared experts
// With a latent width the sum is of_latent(sum of weight_e expert_e(to_latent h)).
void moe_ffn(Pass& p, const MoeWeights& w, int layer);

}  // namespace ibid
