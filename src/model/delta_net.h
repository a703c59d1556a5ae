// A gated delta net in the place of attention (Qwen3-Next, Qwen3.5; kernels/delta_heads.h): queries, keys and values of
// a token go through a convolution over time, write to and read from a matrix of each head, and what is read is
// normalised and gated. What it keeps of a sequence: the convolution's last inputs and these matrices.
#pragma once

#include "base/result.h"
#include "model/linear_layer.h"
#include "model/pass.h"
#include "model/weights.h"

namespace ibid {

struct DeltaNetWeights {
  // A file has these apart, or several in one, which then gives the parts of each key head one after another: q, k, v
  // and z; b and a. Those without outputs are not there.
  Linear qkv, z, b, a;        // [2 Hk Dk + Hv Dv, C], [Hv Dv, C], [Hv, C] twice
  Linear qkvz, ba;            // [2 Hk Dk + 2 Hv Dv, C], [2 Hv, C]
  TensorView taps;            // [L, 2 Hk Dk + Hv Dv], the oldest token's first
  TensorView decay, dt_bias;  // [Hv]; decay is below 0
  TensorView norm;            // [Dv] of each head's output
  Linear output;              // [C, Hv Dv]
};
Status load_delta_net(WeightLoader& loader, const ModelConfig& config, int64_t layer, DeltaNetWeights& out);
// x[T, C] -> t.attention, and the layer's states of this step; writes all of t.recurrent. Also where nothing of the
// layer is wanted but its states.
void delta_net_block(Pass& p, const DeltaNetWeights& w, const TensorView& x, int layer);

}  // namespace ibid
