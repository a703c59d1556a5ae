#include "model/mamba2.h"

#include <array>

#include "kernels/ops.h"
#include "model/blocks.h"

namespace ibid {
namespace {

// Each group of neighbours by itself.
void norm_groups(const Pass& p, const TensorView& x, const TensorView& weight, int64_t n_groups) {
  const int64_t len = x.row_len() / n_groups;
  for (int64_t g = 0; g < n_groups; ++g) {
    const TensorView group = x.columns(g * len, len);
    const TensorView of_group(weight.data + g * len * static_cast<int64_t>(sizeof(float)), DType::kF32, {len});
    ops::rms_norm(p.s, group, group, of_group, p.config.norm_eps);
  }
}

}  // namespace

Status load_mamba2(WeightLoader& w, const ModelConfig& c, int64_t l, Mamba2Weights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const SsmHeads& heads = layer.ssm;
  TRY(w.linear(
      out.in,
      {.name = "blk.{}.ssm_in", .n_outputs = layer.recurrent_in_len(), .n_inputs = c.width, .cut = Cut::kOutputs}, l));
  TRY(w.taps(out.taps, "blk.{}.ssm_conv1d.weight", l, layer.conv_len, layer.conv_channels));
  if (c.conv_bias) TRY(w.vector(out.conv_bias, "blk.{}.ssm_conv1d.bias", l, layer.conv_channels));
  TRY(w.decay(out.decay, "blk.{}.ssm_a", l, heads.n_heads));
  TRY(w.vector(out.dt_bias, "blk.{}.ssm_dt.bias", l, heads.n_heads));
  TRY(w.flat(out.skip, "blk.{}.ssm_d", l, heads.n_heads, 1));
  if (c.ssm_norm != SsmNorm::kNone)
    TRY(w.flat(out.norm, "blk.{}.ssm_norm.weight", l, heads.n_groups, heads.x_len() / heads.n_groups));
  out.output.scale = c.multipliers.ssm;
  return w.linear(out.output,
                  {.name = "blk.{}.ssm_out",
                   .n_outputs = c.width,
                   .n_inputs = heads.x_len(),
                   .cut = Cut::kInputs,
                   .group_len = heads.head_len},
                  l);
}

void mamba2_block(Pass& p, const Mamba2Weights& w, const TensorView& x, const TensorView& out, int l) {
  const LayerConfig& layer = p.layer(l);
  const SsmHeads& heads = layer.ssm;
  const int64_t X = heads.x_len(), of_groups = heads.n_groups * heads.state_len;
  const TensorView in = rows_of(p.t.recurrent.in, x.dim[0], layer.recurrent_in_len());
  project(p, w.in, in, x);
  const Multipliers& m = p.config.multipliers;
  const std::array<std::pair<int64_t, float>, 5> parts = {
      {{X, m.z}, {X, m.x}, {of_groups, m.b}, {of_groups, m.c}, {heads.n_heads, m.dt}}};
  int64_t at = 0;
  for (const auto& [len, by] : parts) {
    if (by != 1) ops::scale(p.s, in.columns(at, len), by);
    at += len;
  }
  const TensorView z = in.columns(0, X), xbc = in.columns(X, heads.xbc_len()),
                   dt = in.columns(X + heads.xbc_len(), heads.n_heads);
  const LayerStates states = p.states_of(l);
  ops::conv_silu(p.s, xbc, xbc, w.taps, w.conv_bias, p.batch, states.part(0, layer.conv_state_len()));
  ops::ssm_scan(p.s, out, {xbc, dt, w.decay, w.dt_bias, w.skip}, heads, p.batch,
                states.part(layer.conv_state_len(), heads.n_values()));
  const SsmNorm norm = p.config.ssm_norm;
  if (norm == SsmNorm::kBeforeGate) norm_groups(p, out, w.norm, heads.n_groups);
  ops::silu_mul(p.s, out, z, out);
  if (norm == SsmNorm::kAfterGate) norm_groups(p, out, w.norm, heads.n_groups);
  p.seen("mixed", l, out);
}

}  // namespace ibid
