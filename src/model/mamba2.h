// A selective state space (Mamba 2; kernels/ssm_heads.h) in the place of attention or beside it: one product gives of a
// token a gate z, the inputs x, B and C, which go through a convolution over time, and the step dt; what the heads read
// from their matrices is gated and normalised in groups. What it keeps of a sequence: the convolution's last inputs and
// these matrices.
#pragma once

#include "base/result.h"
#include "model/linear_layer.h"
#include "model/pass.h"
#include "model/weights.h"

namespace ibid {

struct Mamba2Weights {
  Linear in;                        // [2 H P + 2 G N + H, C]: z, x, B, C and dt
  TensorView taps;                  // [L, H P + 2 G N], the oldest token's first
  TensorView conv_bias;             // [H P + 2 G N]; rank 0: none
  TensorView decay, dt_bias, skip;  // [H]; decay is below 0
  TensorView norm;                  // [H P], of groups of H P / G; rank 0: none
  Linear output;                    // [C, H P]
};
Status load_mamba2(WeightLoader& loader, const ModelConfig& config, int64_t layer, Mamba2Weights& out);
// x[T, C] -> out[T, H P], which is to go through w.output, and the layer's states of this step; writes
// t.recurrent.in. Also where nothing of the layer is wanted but its states.
void mamba2_block(Pass& p, const Mamba2Weights& w, const TensorView& x, const TensorView& out, int layer);

}  // namespace ibid
