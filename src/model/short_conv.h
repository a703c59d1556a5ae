// A short convolution in the place of attention (LFM2): y = out_proj(c * conv(b * x)) with b, c and x from one product
// of the layer's input, each channel of the stream by itself. What it keeps of a sequence are the last values of b * x.
#pragma once

#include "base/result.h"
#include "model/linear_layer.h"
#include "model/pass.h"
#include "model/weights.h"

namespace ibid {

struct ShortConvWeights {
  Linear in;        // [3 C, C]: b, c, x
  TensorView taps;  // [L, C], the oldest token's first
  Linear output;    // [C, C]
};
Status load_short_conv(WeightLoader& loader, const ModelConfig& config, int64_t layer, ShortConvWeights& out);
// x[T, C] -> t.attention, and the layer's states of this step; writes t.recurrent.in. Also where nothing of the layer
// is wanted but its states.
void short_conv_block(Pass& p, const ShortConvWeights& w, const TensorView& x, int layer);

}  // namespace ibid
