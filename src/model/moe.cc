#include "model/moe.h"

#include <array>

#include "kernels/ops.h"
#include "model/adapters.h"

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

// out[j] = product j of each row's expert, as model/linear_layer.h has it of a Linear.
void products(const Pass& p, std::span<const TensorView> out, const TensorView& x, ops::ExpertInput input,
              const ExpertRows& rows, std::span<const ExpertLinear* const> linears) {
  std::array<std::span<const Weight>, ops::kMaxExpertWeights> weights;
  std::array<int32_t, ops::kMaxExpertWeights> seats;
  CHECK(linears.size() <= weights.size());
  for (size_t j = 0; j < linears.size(); ++j) {
    weights[j] = linears[j]->weights;
    seats[j] = linears[j]->seat;
  }
  ops::linear_experts(p.s, out, x, input, rows, std::span(weights).first(linears.size()));
  for (size_t j = 0; j < linears.size(); ++j) {
    if (linears[j]->bias.rank != 0) ops::add_expert_bias(p.s, out[j], linears[j]->bias, rows);
  }
  if (p.rows.adapters != nullptr)
    p.rows.adapters->add_experts(p.s, p.rows, out, x, input, rows, std::span(seats).first(linears.size()));
}

void product(const Pass& p, const TensorView& out, const TensorView& x, ops::ExpertInput input, const ExpertRows& rows,
             const ExpertLinear& w) {
  const ExpertLinear* one = &w;
  products(p, {&out, 1}, x, input, rows, {&one, 1});
}

// What an expert's products read, and which rows are whose: for taps.
void show_inputs(const Pass& p, const ExpertRows& rows, const TensorView& x, int l) {
  if (!p.tap) return;
  const auto integers = [](int32_t* values, int64_t n) {
    return TensorView(reinterpret_cast<std::byte*>(values), DType::kI32, {n});
  };
  p.seen("expert_first_row", l, integers(rows.first_row, rows.n_experts + 1));
  p.seen("expert_token", l, integers(rows.token, rows.n_rows()));
  p.seen("expert_in", l, x);
}

// The same as each_expert of experts without a gate.
void each_ungated_expert(const Pass& p, const MoeWeights& w, int l, const ExpertRows& rows, const TensorView& x,
                         const TensorView& y) {
  const LayerConfig& layer = p.layer(l);
  const TensorView up = rows_of(p.t.experts.gate_up, rows.n_rows(), layer.expert_len);
  product(p, up, x, ops::ExpertInput::kOfToken, rows, w.up);
  ungated_activation_of(p.config)(p.s, up, up);
  p.seen("expert_gated", l, up);
  product(p, y, up, ops::ExpertInput::kOfRow, rows, w.down);
}

// Each row's expert of x -> y[T k, C].
void each_expert(const Pass& p, const MoeWeights& w, int l, const ExpertRows& rows, const TensorView& x,
                 const TensorView& y) {
  const LayerConfig& layer = p.layer(l);
  const int64_t R = rows.n_rows(), F = layer.expert_len;
  const TensorView both = rows_of(p.t.experts.gate_up, R, 2 * F);
  TensorView gate = both.columns(0, F), up = both.columns(F, F);
  if (!w.gate_up.weights.empty()) {
    product(p, both, x, ops::ExpertInput::kOfToken, rows, w.gate_up);
  } else {
    products(p, std::array{gate, up}, x, ops::ExpertInput::kOfToken, rows, std::array{&w.gate, &w.up});
  }
  if (p.config.expert_clamp != 0) {
    ops::clamped_silu_mul(p.s, gate, gate, up, p.config.expert_clamp);
  } else {
    activation_of(p.config)(p.s, gate, gate, up);
  }
  p.seen("expert_gated", l, gate);
  product(p, y, gate, ops::ExpertInput::kOfRow, rows, w.down);
}

// t.h -> t.out.
void run_shared(const Pass& p, const MoeWeights& w, int l) {
  const Scratch& t = p.t;
  project(p, w.shared.gate_up, t.h);
  if (p.config.ffn_has_gate()) {
    ops::silu_mul(p.s, t.gate, t.gate, t.up);
    p.seen("shared_gated", l, t.gate);
    project(p, w.shared.down, t.out, t.gate);
  } else {
    ungated_activation_of(p.config)(p.s, t.up, t.up);
    p.seen("shared_gated", l, t.up);
    project(p, w.shared.down, t.out, t.up);
  }
  if (p.config.shared_gate) {
    const TensorView gate = rows_of(t.experts.shared_gate, t.h.dim[0], 1);
    project(p, w.shared_gate, gate, t.h);
    ops::gate_rows(p.s, t.out, gate);
  }
  p.seen("shared_out", l, t.out);
}

Status load_products(WeightLoader& w, const ModelConfig& c, int64_t l, MoeWeights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const int64_t E = layer.n_experts, F = layer.expert_len, C = c.expert_width();
  const LinearSpec gate_up = {
      .name = "blk.{}.ffn_gate_up_exps", .n_outputs = 2 * F, .n_inputs = C, .cut = Cut::kOutputs};
  const LinearSpec down = {.name = "blk.{}.ffn_down_exps", .n_outputs = C, .n_inputs = F, .cut = Cut::kInputs};
  if (w.has_turned_experts(gate_up, l)) {
    TRY(w.turned_experts(out.gate_up.weights, gate_up, l, E, RowOrder::kPairs));
    TRY(w.turned_experts(out.down.weights, down, l, E, RowOrder::kAsTheyAre));
    if (!c.expert_bias) return {};
    TRY(w.expert_bias(out.gate_up.bias, gate_up, l, E, RowOrder::kPairs));
    return w.expert_bias(out.down.bias, down, l, E, RowOrder::kAsTheyAre);
  }
  const auto into = [&](ExpertLinear& to, const LinearSpec& spec) -> Status {
    TRY(w.experts(to.weights, to.seat, spec, l, E));
    return c.expert_bias ? w.expert_bias(to.bias, spec, l, E, RowOrder::kAsTheyAre) : Status{};
  };
  if (w.has("blk.{}.ffn_gate_up_exps.weight", l)) {
    TRY(into(out.gate_up, gate_up));
  } else {
    LinearSpec one = gate_up;
    one.n_outputs = F;
    one.name = "blk.{}.ffn_gate_exps";
    if (c.ffn_has_gate()) TRY(into(out.gate, one));
    one.name = "blk.{}.ffn_up_exps";
    TRY(into(out.up, one));
  }
  return into(out.down, down);
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
  if (const int64_t latent = c.expert_latent_len; latent > 0) {
    TRY(w.linear(out.to_latent,
                 {.name = "blk.{}.ffn_latent_down", .n_outputs = latent, .n_inputs = c.width, .cut = Cut::kOutputs},
                 l));
    TRY(w.linear(out.of_latent,
                 {.name = "blk.{}.ffn_latent_up", .n_outputs = c.width, .n_inputs = latent, .cut = Cut::kInputs}, l));
  }
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
  const TensorView y = rows_of(p.t.experts.down, rows.n_rows(), p.config.expert_width());
  show_inputs(p, rows, x, l);
  (p.config.ffn_has_gate() ? each_expert : each_ungated_expert)(p, w, l, rows, x, y);
  ops::add_experts(p.s, out, y, rows);
}

void moe_ffn(Pass& p, const MoeWeights& w, int l) {
  const Scratch& t = p.t;
  const ExpertRows rows = choose_experts(p, w, t.h, l);
  const bool has_shared = p.layer(l).ffn_len > 0;
  const TensorView sum = has_shared ? sum_of_experts(p) : t.out;
  if (const int64_t latent = p.config.expert_latent_len; latent > 0) {
    const TensorView in = rows_of(t.experts.latent_in, t.h.dim[0], latent),
                     out = rows_of(t.experts.latent_out, t.h.dim[0], latent);
    project(p, w.to_latent, in, t.h);
    run_experts(p, w, rows, in, out, l);
    project(p, w.of_latent, sum, out);
  } else {
    run_experts(p, w, rows, t.h, sum, l);
  }
  if (has_shared) {
    run_shared(p, w, l);
    ops::add(p.s, t.out, sum);
  }
  p.seen("ffn_out", l, t.out);
}

}  // namespace ibid
