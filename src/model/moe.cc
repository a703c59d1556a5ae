#include "model/moe.h"

#include <array>

#include "kernels/ops.h"

namespace ibid {
namespace {

TensorView rows_of(const TensorView& memory, int64_t rows, int64_t columns) {
  CHECK(rows * columns <= memory.n_elements(), "intermediates of the largest step");
  return TensorView(memory.data, DType::kF32, {rows, columns});
}
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

// Each row's expert of h -> y[T k, C].
void run_experts(const Pass& p, const MoeWeights& w, const LayerConfig& layer, const ExpertRows& rows,
                 const TensorView& y) {
  const int64_t R = rows.n_rows(), F = layer.expert_len;
  const TensorView both = rows_of(p.t.experts.gate_up, R, 2 * F);
  TensorView gate = both.columns(0, F), up = both.columns(F, F);
  if (!w.gate_up.empty()) {
    const std::array<std::span<const Weight>, 1> fused = {w.gate_up};
    ops::linear_experts(p.s, {&both, 1}, p.t.h, ops::ExpertInput::kOfToken, rows, fused);
  } else {
    const std::array<std::span<const Weight>, 2> apart = {w.gate, w.up};
    const std::array<TensorView, 2> out = {gate, up};
    ops::linear_experts(p.s, out, p.t.h, ops::ExpertInput::kOfToken, rows, apart);
  }
  ops::silu_mul(p.s, gate, gate, up);
  const std::array<std::span<const Weight>, 1> down = {w.down};
  ops::linear_experts(p.s, {&y, 1}, gate, ops::ExpertInput::kOfRow, rows, down);
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

}  // namespace

Status load_moe(WeightLoader& w, const ModelConfig& c, int64_t l, MoeWeights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const int64_t E = layer.n_experts, F = layer.expert_len, C = c.width;
  TRY(w.float_matrix(out.router, "blk.{}.ffn_gate_inp.weight", l, E, C));
  if (c.router_bias) TRY(w.vector(out.bias, "blk.{}.exp_probs_b.bias", l, E));
  const auto into = [&](std::vector<Weight>& to, std::string_view name, int64_t n_outputs) {
    return w.experts(to, {.name = name, .n_outputs = n_outputs, .n_inputs = C, .cut = Cut::kOutputs}, l, E);
  };
  if (w.has("blk.{}.ffn_gate_up_exps.weight", l)) {
    TRY(into(out.gate_up, "blk.{}.ffn_gate_up_exps", 2 * F));
  } else {
    TRY(into(out.gate, "blk.{}.ffn_gate_exps", F));
    TRY(into(out.up, "blk.{}.ffn_up_exps", F));
  }
  TRY(w.experts(out.down, {.name = "blk.{}.ffn_down_exps", .n_outputs = C, .n_inputs = F, .cut = Cut::kInputs}, l, E));
  if (layer.ffn_len == 0) return {};
  TRY(load_ffn(w, c, l, layer.ffn_len, "blk.{}.ffn_gate_shexp", "blk.{}.ffn_up_shexp", "blk.{}.ffn_down_shexp",
               out.shared));
  return c.shared_gate ? w.float_matrix(out.shared_gate, "blk.{}.ffn_gate_inp_shexp.weight", l, 1, C) : Status{};
}

void moe_ffn(Pass& p, const MoeWeights& w, int l) {
  const Scratch& t = p.t;
  const LayerConfig& layer = p.layer(l);
  const int64_t n_tokens = t.h.dim[0];
  const ExpertRows rows = rows_of_step(t.experts, layer, n_tokens);
  const TensorView logits = rows_of(t.experts.logits, n_tokens, layer.n_experts);
  project(p, w.router, logits, t.h);
  p.seen("router", l, logits);
  Router router = p.config.router;
  if (w.bias.rank != 0) router.bias = w.bias.row_as<const float>(0);
  ops::route(p.s, rows, logits, router);
  const TensorView y = rows_of(t.experts.down, rows.n_rows(), p.config.width);
  run_experts(p, w, layer, rows, y);
  if (layer.ffn_len == 0) {
    ops::add_experts(p.s, t.out, y, rows);
  } else {
    const TensorView sum = rows_of(t.experts.sum, n_tokens, p.config.width);
    ops::add_experts(p.s, sum, y, rows);
    run_shared(p, w, l);
    ops::add(p.s, t.out, sum);
  }
  p.seen("ffn_out", l, t.out);
}

}  // namespace ibid
