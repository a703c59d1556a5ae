#include "model/moe.h"

#include <array>

#include "kernels/ops.h"

namespace ibid {
namespace {

int32_t* integers(const TensorView& memory) { return reinterpret_cast<int32_t*>(memory.data); }

ExpertRows rows_of_step(const ExpertScratch& t, const LayerConfig& layer, int64_t n_tokens) {
  return {.n_tokens = static_cast<int32_t>(n_tokens),
          .n_used = static_cast<int32_t>(layer.n_experts_used),
          .n_experts = static_cast<int32_t>(layer.n_experts),
          .expert = integers(t.expert),
          .weight = t.weight.row_as<float>(0),
          .row = integers(t.row),
          .token = integers(t.token),
          .first_row = integers(t.first_row)};
}

void add_bias(const Pass& p, const TensorView& x, const TensorView& bias, const ExpertRows& rows) {
  if (bias.rank != 0) ops::add_expert_bias(p.s, x, bias, rows);
}

// Each row's expert of x -> y[T k, C].
void each_expert(const Pass& p, const MoeWeights& w, const LayerConfig& layer, const ExpertRows& rows,
                 const TensorView& x, const TensorView& y) {
  const int64_t R = rows.n_rows(), F = layer.expert_len;
  const TensorView both = rows_of(p.t.experts.gate_up, R, 2 * F);
  TensorView gate = both.columns(0, F), up = both.columns(F, F);
  if (!w.gate_up.empty()) {
    const std::array<std::span<const Weight>, 1> fused = {w.gate_up};
    ops::linear_experts(p.s, {&both, 1}, x, ops::ExpertInput::kOfToken, rows, fused);
    add_bias(p, both, w.gate_up_bias, rows);
  } else {
    const std::array<std::span<const Weight>, 2> apart = {w.gate, w.up};
    const std::array<TensorView, 2> out = {gate, up};
    ops::linear_experts(p.s, out, x, ops::ExpertInput::kOfToken, rows, apart);
    add_bias(p, gate, w.gate_bias, rows);
    add_bias(p, up, w.up_bias, rows);
  }
  if (p.config.expert_clamp != 0) {
    ops::clamped_silu_mul(p.s, gate, gate, up, p.config.expert_clamp);
  } else {
    activation_of(p.config)(p.s, gate, gate, up);
  }
  const std::array<std::span<const Weight>, 1> down = {w.down};
  ops::linear_experts(p.s, {&y, 1}, gate, ops::ExpertInput::kOfRow, rows, down);
  add_bias(p, y, w.down_bias, rows);
}

// t.h -> t.out.
void run_shared(const Pass& p, const MoeWeights& w, int l) {
  const Scratch& t = p.t;
  project(p, w.shared.gate_up, t.h);
  ops::silu_mul(p.s, t.gate, t.gate, t.up);
  project(p, w.shared.down, t.out, t.gate);
  if (p.config.shared_gate) {
    const TensorView gate = rows_of(t.experts.shared_gate, t.h.dim[0], 1);
    project(p, w.shared_gate, gate, t.h);
    ops::gate_rows(p.s, t.out, gate);
  }
  p.seen("shared_out", l, t.out);
}

Status load_products(WeightLoader& w, const ModelConfig& c, int64_t l, MoeWeights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const int64_t E = layer.n_experts, F = layer.expert_len, C = c.width;
  const LinearSpec gate_up = {
      .name = "blk.{}.ffn_gate_up_exps", .n_outputs = 2 * F, .n_inputs = C, .cut = Cut::kOutputs};
  const LinearSpec down = {.name = "blk.{}.ffn_down_exps", .n_outputs = C, .n_inputs = F, .cut = Cut::kInputs};
  if (w.has_turned_experts(gate_up, l)) {
    TRY(w.turned_experts(out.gate_up, gate_up, l, E, RowOrder::kPairs));
    TRY(w.turned_experts(out.down, down, l, E, RowOrder::kAsTheyAre));
    if (!c.expert_bias) return {};
    TRY(w.expert_bias(out.gate_up_bias, gate_up, l, E, RowOrder::kPairs));
    return w.expert_bias(out.down_bias, down, l, E, RowOrder::kAsTheyAre);
  }
  const auto into = [&](std::vector<Weight>& to, TensorView& bias, const LinearSpec& spec) -> Status {
    TRY(w.experts(to, spec, l, E));
    return c.expert_bias ? w.expert_bias(bias, spec, l, E, RowOrder::kAsTheyAre) : Status{};
  };
  if (w.has("blk.{}.ffn_gate_up_exps.weight", l)) {
    TRY(into(out.gate_up, out.gate_up_bias, gate_up));
  } else {
    LinearSpec one = gate_up;
    one.n_outputs = F;
    one.name = "blk.{}.ffn_gate_exps";
    TRY(into(out.gate, out.gate_bias, one));
    one.name = "blk.{}.ffn_up_exps";
    TRY(into(out.up, out.up_bias, one));
  }
  return into(out.down, out.down_bias, down);
}

}  // namespace

Status load_experts(WeightLoader& w, const ModelConfig& c, int64_t l, MoeWeights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const int64_t E = layer.n_experts;
  TRY(w.float_matrix(out.router, "blk.{}.ffn_gate_inp.weight", l, E, c.width));
  if (c.router_bias) TRY(w.vector(out.bias, "blk.{}.exp_probs_b.bias", l, E));
  if (c.router_logit_bias) TRY(w.vector(out.router.bias, "blk.{}.ffn_gate_inp.bias", l, E));
  return load_products(w, c, l, out);
}

Status load_moe(WeightLoader& w, const ModelConfig& c, int64_t l, MoeWeights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  TRY(load_experts(w, c, l, out));
  if (layer.ffn_len == 0) return {};
  TRY(load_ffn(w, c, l, layer.ffn_len, "blk.{}.ffn_gate_shexp", "blk.{}.ffn_up_shexp", "blk.{}.ffn_down_shexp",
               out.shared));
  return c.shared_gate ? w.float_matrix(out.shared_gate, "blk.{}.ffn_gate_inp_shexp.weight", l, 1, c.width) : Status{};
}

ExpertRows choose_experts(Pass& p, const MoeWeights& w, const TensorView& x, int l) {
  const LayerConfig& layer = p.layer(l);
  const ExpertRows rows = rows_of_step(p.t.experts, layer, x.dim[0]);
  const TensorView logits = rows_of(p.t.experts.logits, x.dim[0], layer.n_experts);
  project(p, w.router, logits, x);
  p.seen("router", l, logits);
  Router router = p.config.router;
  if (w.bias.rank != 0) router.bias = w.bias.row_as<const float>(0);
  if (w.scale.rank != 0) router.expert_scale = w.scale.row_as<const float>(0);
  ops::route(p.s, rows, logits, router);
  return rows;
}

TensorView sum_of_experts(const Pass& p) { return rows_of(p.t.experts.sum, p.t.h.dim[0], p.config.width); }

void run_experts(Pass& p, const MoeWeights& w, const ExpertRows& rows, const TensorView& x, const TensorView& out,
                 int l) {
  const TensorView y = rows_of(p.t.experts.down, rows.n_rows(), p.config.width);
  each_expert(p, w, p.layer(l), rows, x, y);
  ops::add_experts(p.s, out, y, rows);
}

void moe_ffn(Pass& p, const MoeWeights& w, int l) {
  const Scratch& t = p.t;
  const ExpertRows rows = choose_experts(p, w, t.h, l);
  if (p.layer(l).ffn_len == 0) {
    run_experts(p, w, rows, t.h, t.out, l);
  } else {
    const TensorView sum = sum_of_experts(p);
    run_experts(p, w, rows, t.h, sum, l);
    run_shared(p, w, l);
    ops::add(p.s, t.out, sum);
  }
  p.seen("ffn_out", l, t.out);
}

}  // namespace ibid
