#include "model/short_conv.h"

#include "kernels/ops.h"
#include "model/blocks.h"

namespace ibid {

Status load_short_conv(WeightLoader& w, const ModelConfig& c, int64_t l, ShortConvWeights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  TRY(w.linear(out.in,
               {.name = "blk.{}.shortconv.in_proj",
                .n_outputs = 3 * layer.conv_channels,
                .n_inputs = c.width,
                .cut = Cut::kOutputs},
               l));
  TRY(w.taps(out.taps, "blk.{}.shortconv.conv.weight", l, layer.conv_len, layer.conv_channels));
  return w.linear(
      out.output,
      {.name = "blk.{}.shortconv.out_proj", .n_outputs = c.width, .n_inputs = layer.conv_channels, .cut = Cut::kInputs},
      l);
}

void short_conv_block(Pass& p, const ShortConvWeights& w, const TensorView& x, int l) {
  const Scratch& t = p.t;
  const TensorView in(t.recurrent.in.data, DType::kF32, {x.dim[0], 3 * p.layer(l).conv_channels});
  project(p, w.in, in, x);
  p.seen("conv_in", l, in);
  ops::short_conv(p.s, t.attention, in, w.taps, p.batch, p.states_of(l));
  p.seen("mixed", l, t.attention);
}

}  // namespace ibid
