#include "model/latent_attention.h"

#include <array>

#include "kernels/ops.h"

namespace ibid {
namespace {

// The last values of each head of x turn.
void turn_last(const Pass& p, const TensorView& x, const LayerConfig& layer) {
  if (layer.rope == kNoRope) return;
  const auto r = static_cast<size_t>(layer.rope);
  ops::Rope rope = p.ropes[r].op();
  rope.first = static_cast<int>(layer.value_len);
  ops::rope(p.s, x, static_cast<int>(layer.key_len), rope, p.t.cos_sin[r]);
}

// x -> the layer's rows in t.k, and with queries what they are made of: t.latent.q.
void project_down(const Pass& p, const LatentWeights& w, const TensorView& x, const LayerConfig& layer,
                  bool has_queries) {
  const Scratch& t = p.t;
  const int64_t T = x.dim[0];
  const TensorView q = rows_of(t.latent.q, T, layer.latent_q_len());
  if (!has_queries) return project(p, w.kv_a, t.k, x);
  const bool has_rank = p.config.q_rank > 0;
  const TensorView q_a = has_rank ? rows_of(t.latent.q_a, T, p.config.q_rank) : q;
  const std::array<TensorView, 2> out = {t.k, q_a};
  const std::array<const Linear*, 2> linears = {&w.kv_a, has_rank ? &w.q_a : &w.q};
  linear(p.s, p.rows, out, x, linears);
  if (!has_rank) return;
  ops::rms_norm(p.s, q_a, q_a, w.q_norm, p.config.norm_eps);
  project(p, w.q_b, q, q_a);
}

}  // namespace

Status load_latent(WeightLoader& w, const ModelConfig& c, int64_t l, LatentWeights& out) {
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const auto linear = [&](Linear& to, std::string_view name, int64_t n_outputs, int64_t n_inputs, Cut cut) {
    return w.linear(to, {.name = name, .n_outputs = n_outputs, .n_inputs = n_inputs, .cut = cut}, l);
  };
  if (c.q_rank > 0) {
    TRY(linear(out.q_a, "blk.{}.attn_q_a", c.q_rank, c.width, Cut::kNone));
    TRY(w.vector(out.q_norm, "blk.{}.attn_q_a_norm.weight", l, c.q_rank));
    TRY(linear(out.q_b, "blk.{}.attn_q_b", layer.latent_q_len(), c.q_rank, Cut::kOutputs));
  } else {
    TRY(linear(out.q, "blk.{}.attn_q", layer.latent_q_len(), c.width, Cut::kOutputs));
  }
  TRY(linear(out.kv_a, "blk.{}.attn_kv_a_mqa", layer.key_len, c.width, Cut::kNone));
  TRY(w.vector(out.kv_norm, "blk.{}.attn_kv_a_norm.weight", l, layer.value_len));
  const LinearSpec k_b = {.name = "blk.{}.attn_k_b", .n_outputs = layer.value_len, .n_inputs = layer.plain_len};
  const LinearSpec v_b = {.name = "blk.{}.attn_v_b", .n_outputs = layer.out_len, .n_inputs = layer.value_len};
  if (w.has("blk.{}.attn_kv_b.weight", l)) {
    TRY(w.split_heads(out.k_b, out.v_b, "blk.{}.attn_kv_b.weight", k_b, v_b, l, layer.n_heads));
  } else {
    TRY(w.heads(out.k_b, k_b, l, layer.n_heads));
    TRY(w.heads(out.v_b, v_b, l, layer.n_heads));
  }
  return w.linear(out.output,
                  {.name = "blk.{}.attn_output",
                   .n_outputs = c.width,
                   .n_inputs = layer.n_heads * layer.out_len,
                   .cut = Cut::kInputs,
                   .group_len = layer.out_len},
                  l);
}

void latent_block(Pass& p, const LatentWeights& w, const TensorView& x, int l) {
  const Scratch& t = p.t;
  const LayerConfig& layer = p.layer(l);
  const PagedKv& kv = p.kv[static_cast<size_t>(l)];
  const bool has_queries = goes_on(p, l);
  project_down(p, w, x, layer, has_queries);
  const TensorView c = t.k.columns(0, layer.value_len);
  ops::rms_norm(p.s, c, c, w.kv_norm, p.config.norm_eps);
  turn_last(p, t.k, layer);
  p.seen("latent", l, t.k);
  ops::store_latent(p.s, kv, t.k, p.batch);
  if (!has_queries) return;
  const TensorView q = rows_of(t.latent.q, x.dim[0], layer.latent_q_len());
  ops::linear_heads(p.s, t.q, q, w.k_b);
  ops::copy_heads(p.s, t.q, q, layer.n_heads,
                  {.to = layer.value_len, .from = layer.plain_len, .len = layer.key_len - layer.value_len});
  turn_last(p, t.q, layer);
  if (p.config.query_scale != 0) {
    const std::span<const int32_t> positions(p.batch.positions, static_cast<size_t>(p.batch.n_tokens));
    ops::scale_by_position(p.s, t.q, positions, p.config.query_scale, p.config.query_scale_len);
  }
  p.seen("q", l, t.q);
  ops::paged_attention(p.s, t.attention, t.q, kv, p.batch, {.scale = layer.attention_scale, .window = layer.window});
}

void latent_output(Pass& p, const LatentWeights& w, int l) {
  const LayerConfig& layer = p.layer(l);
  const TensorView out = rows_of(p.t.latent.out, p.t.attention.dim[0], layer.n_heads * layer.out_len);
  ops::linear_heads(p.s, out, p.t.attention, w.v_b);
  p.seen("attention", l, out);
  project(p, w.output, p.t.out, out);
  p.seen("attn_out", l, p.t.out);
}

}  // namespace ibid
