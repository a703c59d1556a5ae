#include "model/delta_net.h"

#include <array>
#include <cmath>

#include "kernels/ops.h"
#include "model/blocks.h"

namespace ibid {
namespace {

constexpr float kL2Epsilon = 1e-6f;

bool is_there(const Linear& w) { return w.weight.n_outputs > 0; }

// What the projections give of q, k, v, z, b and a.
void project_delta(const Pass& p, const DeltaNetWeights& w, const TensorView& x, const DeltaHeads& heads,
                   const RecurrentScratch& t) {
  const TensorView qkvz(t.grouped.data, DType::kF32, {x.dim[0], heads.qkv_len() + heads.v_len()});
  const TensorView ba(t.grouped.data, DType::kF32, {x.dim[0], 2 * heads.n_value_heads});
  if (is_there(w.qkvz)) {
    project(p, w.qkvz, qkvz, x);
    const std::array parts = {t.in.columns(0, heads.k_len()), t.in.columns(heads.k_len(), heads.k_len()),
                              t.in.columns(2 * heads.k_len(), heads.v_len()), t.z};
    ops::part_groups(p.s, parts, qkvz, heads.n_key_heads);
  } else {
    const std::array<const Linear*, 2> linears = {&w.qkv, &w.z};
    const std::array out = {t.in, t.z};
    linear(p.s, p.rows, out, x, linears);
  }
  if (is_there(w.ba)) {
    project(p, w.ba, ba, x);
    ops::part_groups(p.s, std::array{t.b, t.a}, ba, heads.n_key_heads);
  } else {
    const std::array<const Linear*, 2> linears = {&w.b, &w.a};
    const std::array out = {t.b, t.a};
    linear(p.s, p.rows, out, x, linears);
  }
}

}  // namespace

Status load_delta_net(WeightLoader& w, const ModelConfig& c, int64_t l, DeltaNetWeights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const DeltaHeads& heads = layer.delta;
  const auto load = [&](Linear& to, std::string_view name, int64_t n_outputs) {
    return w.linear(to, {.name = name, .n_outputs = n_outputs, .n_inputs = c.width, .cut = Cut::kOutputs}, l);
  };
  if (w.has("blk.{}.ssm_in.weight", l)) {
    TRY(load(out.qkvz, "blk.{}.ssm_in", heads.qkv_len() + heads.v_len()));
  } else {
    TRY(load(out.qkv, "blk.{}.attn_qkv", heads.qkv_len()));
    TRY(load(out.z, "blk.{}.attn_gate", heads.v_len()));
  }
  if (w.has("blk.{}.ssm_ba.weight", l)) {
    TRY(load(out.ba, "blk.{}.ssm_ba", 2 * heads.n_value_heads));
  } else {
    TRY(load(out.b, "blk.{}.ssm_beta", heads.n_value_heads));
    TRY(load(out.a, "blk.{}.ssm_alpha", heads.n_value_heads));
  }
  TRY(w.taps(out.taps, "blk.{}.ssm_conv1d.weight", l, layer.conv_len, layer.conv_channels));
  TRY(w.decay(out.decay, "blk.{}.ssm_a", l, heads.n_value_heads));
  TRY(w.vector(out.dt_bias, "blk.{}.ssm_dt.bias", l, heads.n_value_heads));
  TRY(w.vector(out.norm, "blk.{}.ssm_norm.weight", l, heads.value_len));  // never with norm_offset
  return w.linear(out.output,
                  {.name = "blk.{}.ssm_out",
                   .n_outputs = c.width,
                   .n_inputs = heads.v_len(),
                   .cut = Cut::kInputs,
                   .group_len = heads.value_len},
                  l);
}

void delta_net_block(Pass& p, const DeltaNetWeights& w, const TensorView& x, int l) {
  const LayerConfig& layer = p.layer(l);
  const DeltaHeads& heads = layer.delta;
  const int64_t T = x.dim[0];
  const auto cut = [T](const TensorView& whole, int64_t columns) {
    return TensorView(whole.data, DType::kF32, {T, columns});
  };
  RecurrentScratch t = p.t.recurrent;
  t.in = cut(t.in, heads.qkv_len());
  t.z = cut(t.z, heads.v_len());
  t.a = cut(t.a, heads.n_value_heads);
  t.b = cut(t.b, heads.n_value_heads);
  project_delta(p, w, x, heads, t);
  const LayerStates states = p.states_of(l);
  ops::conv_silu(p.s, t.in, t.in, w.taps, {}, p.batch, states.part(0, layer.conv_state_len()));
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.key_len)));
  ops::l2_norm(p.s, t.in.columns(0, heads.k_len()), heads.key_len, kL2Epsilon, scale);
  ops::l2_norm(p.s, t.in.columns(heads.k_len(), heads.k_len()), heads.key_len, kL2Epsilon, 1.0f);
  ops::delta_net(p.s, p.t.attention, {t.in, t.a, t.b, w.decay, w.dt_bias}, heads, p.batch,
                 states.part(layer.conv_state_len(), heads.state_len()));
  const TensorView outputs(p.t.attention.data, DType::kF32, {T * heads.n_value_heads, heads.value_len});
  ops::rms_norm(p.s, outputs, outputs, w.norm, p.config.norm_eps);
  ops::silu_mul(p.s, p.t.attention, t.z, p.t.attention);
  p.seen("mixed", l, p.t.attention);
}

}  // namespace ibid
