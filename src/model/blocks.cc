#include "model/blocks.h"

#include <array>

#include "kernels/ops.h"

namespace ibid {
namespace {

std::span<const int32_t> wanted_rows(const ForwardBatch& b) { return {b.logit_rows, static_cast<size_t>(b.n_rows)}; }

// Heads of x, normed -> out.
void norm_heads(const Pass& p, const TensorView& out, const TensorView& x, const TensorView& weight) {
  const int64_t D = weight.row_len();
  const auto heads = [D](const TensorView& of) { return TensorView(of.data, DType::kF32, {of.n_elements() / D, D}); };
  ops::rms_norm(p.s, heads(out), heads(x), weight, p.config.norm_eps);
}

void norm_heads(const Pass& p, const TensorView& x, const TensorView& weight) {
  if (weight.rank != 0) norm_heads(p, x, x, weight);
}

void rotate_heads(const Pass& p, const TensorView& x, const LayerConfig& layer) {
  if (layer.rope == kNoRope) return;
  const auto r = static_cast<size_t>(layer.rope);
  ops::rope(p.s, x, static_cast<int>(layer.key_len), p.ropes[r].op(), p.t.cos_sin[r]);
}

// Norms of heads and rotation, in the model's order.
void turn_heads(const Pass& p, const TensorView& x, const TensorView& norm, const LayerConfig& layer) {
  if (!p.config.qk_norm_after_rope) norm_heads(p, x, norm);
  rotate_heads(p, x, layer);
  if (p.config.qk_norm_after_rope) norm_heads(p, x, norm);
}

void project_each(const Pass& p, std::span<const Projections::Projection> all, const TensorView& x) {
  std::array<TensorView, kMaxLinears> out;
  std::array<const Linear*, kMaxLinears> linears;
  CHECK(all.size() <= kMaxLinears);
  for (size_t i = 0; i < all.size(); ++i) {
    out[i] = p.t.*all[i].out;
    linears[i] = &all[i].linear;
  }
  linear(p.s, p.rows, {out.data(), all.size()}, x, {linears.data(), all.size()});
}

}  // namespace

TensorView rows_of(const TensorView& memory, int64_t rows, int64_t columns) {
  CHECK(rows * columns <= memory.n_elements(), "intermediates of the largest step");
  return TensorView(memory.data, DType::kF32, {rows, columns});
}

bool goes_on(const Pass& p, int l) {
  return p.batch.n_rows > 0 || !p.is_last(l) || p.hidden.has(l) || p.hidden.has(l + 1);
}

void give_hidden(const Pass& p, int layer, const TensorView& x) {
  for (size_t i = 0; i < p.hidden.layers.size(); ++i) {
    if (p.hidden.layers[i] == layer) ops::gather_rows(p.s, p.hidden.out[i], x, p.rows.tokens);
  }
}

void project(const Pass& p, const Projections& w, const TensorView& x) { project_each(p, w.all, x); }

void project(const Pass& p, const Linear& w, const TensorView& out, const TensorView& x) {
  const Linear* one = &w;
  linear(p.s, p.rows, {&out, 1}, x, {&one, 1});
}

Status load_vocabulary(WeightLoader& w, const ModelConfig& c, VocabularyWeights& out) {
  TRY(w.matrix(out.embedding, "token_embd.weight", 0, c.vocab_size, c.width, c.tied_embedding));
  if (c.tied_embedding) {
    out.output.weight = out.embedding;
  } else {
    TRY(w.linear(out.output, {.name = "output", .n_outputs = c.vocab_size, .n_inputs = c.width}, 0));
  }
  return w.vector(out.output_norm, "output_norm.weight", 0, c.width, c.norm_offset);
}

void embed_tokens(Pass& p, const VocabularyWeights& w, const TensorView& out) {
  const auto n_tokens = static_cast<size_t>(p.batch.n_tokens);
  ops::embed(p.s, out, w.embedding, {p.batch.tokens, n_tokens}, p.config.embedding_scale);
  p.seen("embed", -1, out);
  for (size_t i = 0; i < p.ropes.size(); ++i) {
    ops::rope_angles(p.s, p.t.cos_sin[i], p.ropes[i].op(), {p.batch.positions, n_tokens});
  }
}

void logits_head(Pass& p, const VocabularyWeights& w) {
  give_hidden(p, p.n_layers(), p.t.h);
  if (p.batch.n_rows == 0) return;
  if (!p.only_wanted_rows) {  // all rows came this far, for their hidden states
    ops::gather_rows(p.s, p.t.x_rows, p.t.h, wanted_rows(p.batch));
    p.t.h = p.t.x_rows;
    p.rows.tokens = wanted_rows(p.batch);
    p.only_wanted_rows = true;
  }
  if (p.hidden.of_rows != nullptr) *p.hidden.of_rows = p.t.h;
  p.seen("final_norm", -1, p.t.h);
  project(p, w.output, p.logits, p.t.h);
  if (p.config.logit_scale != 1) ops::scale(p.s, p.logits, p.config.logit_scale);
  if (p.config.logit_soft_cap != 0) ops::soft_cap(p.s, p.logits, p.config.logit_soft_cap);
  p.seen("logits", -1, p.logits);
}

Status load_attention(WeightLoader& w, const ModelConfig& c, int64_t l, AttentionWeights& out) {
  struct Part {
    TensorView Scratch::*out;
    std::string_view name;
    int64_t n_outputs;
  };
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const bool owns_cache = layer.kv_owner == kOwnCache;
  const std::array<Part, 3> apart = {{{&Scratch::q, "blk.{}.attn_q", layer.q_len()},
                                      {&Scratch::k, "blk.{}.attn_k", layer.k_len()},
                                      {&Scratch::v, "blk.{}.attn_v", layer.v_len()}}};
  const std::array<Part, 1> fused = {
      {{&Scratch::qkv, "blk.{}.attn_qkv", layer.q_len() + layer.k_len() + layer.v_len()}}};
  const std::span<const Part> parts = c.fused_qkv ? std::span<const Part>(fused) : std::span<const Part>(apart);
  const size_t n_parts = !owns_cache ? 1 : layer.value_is_key ? 2 : parts.size();
  for (const Part& part : parts.first(n_parts)) {
    Projections::Projection& to = out.qkv.all.emplace_back();
    const bool is_gated = c.attention_gate && part.out == &Scratch::q;
    to.out = is_gated ? &Scratch::q_gate : part.out;
    TRY(w.linear(to.linear,
                 {.name = part.name,
                  .n_outputs = is_gated ? 2 * part.n_outputs : part.n_outputs,
                  .n_inputs = c.width,
                  .cut = Cut::kOutputs,
                  .has_bias = c.qkv_bias},
                 l));
  }
  if (c.qk_norm) {
    const int64_t q_len = c.qk_norm_whole ? layer.q_len() : layer.key_len;
    const int64_t k_len = c.qk_norm_whole ? layer.k_len() : layer.key_len;
    TRY(w.vector(out.q_norm, "blk.{}.attn_q_norm.weight", l, q_len, c.norm_offset));
    if (owns_cache) TRY(w.vector(out.k_norm, "blk.{}.attn_k_norm.weight", l, k_len, c.norm_offset));
  }
  if (c.value_norm && owns_cache) w.constant(out.v_norm, layer.value_len, 1.0f);
  if (c.sinks) TRY(w.vector(out.sinks, "blk.{}.attn_sinks.weight", l, layer.n_heads));
  return w.linear(out.output,
                  {.name = "blk.{}.attn_output",
                   .n_outputs = c.width,
                   .n_inputs = layer.attention_len(),
                   .cut = Cut::kInputs,
                   .group_len = layer.kv_group_len(),
                   .has_bias = c.attention_output_bias},
                  l);
}

void attention_block(Pass& p, const AttentionWeights& w, const TensorView& x, int l) {
  const Scratch& t = p.t;
  const LayerConfig& layer = p.layer(l);
  const PagedKv& kv = p.kv[static_cast<size_t>(l)];
  const bool has_queries = goes_on(p, l), owns_cache = layer.kv_owner == kOwnCache;
  if (!has_queries && !owns_cache) return;
  const std::span<const Projections::Projection> qkv = w.qkv.all;
  project_each(p, has_queries || qkv.size() == 1 ? qkv : qkv.subspan(1), x);
  if (has_queries) {
    if (p.config.attention_gate) ops::part_groups(p.s, std::array{t.q, t.head_gate}, t.q_gate, layer.n_heads);
    turn_heads(p, t.q, w.q_norm, layer);
    if (p.config.query_scale != 0) {
      const std::span<const int32_t> positions(p.batch.positions, static_cast<size_t>(p.batch.n_tokens));
      ops::scale_by_position(p.s, t.q, positions, p.config.query_scale, p.config.query_scale_len);
    }
    p.seen("q", l, t.q);
  }
  if (owns_cache) {
    if (w.v_norm.rank != 0) norm_heads(p, t.v, layer.value_is_key ? t.k : t.v, w.v_norm);
    turn_heads(p, t.k, w.k_norm, layer);
    p.seen("k", l, t.k);
    p.seen("v", l, t.v);
    ops::store_kv(p.s, kv, t.k, t.v, p.batch);
  }
  if (!has_queries) return;
  ops::paged_attention(p.s, t.attention, t.q, kv, p.batch,
                       {.scale = layer.attention_scale,
                        .soft_cap = p.config.attention_soft_cap,
                        .window = layer.window,
                        .sinks = w.sinks.rank == 0 ? nullptr : w.sinks.row_as<const float>(0)});
  p.seen("attention", l, t.attention);
  if (p.config.attention_gate) ops::sigmoid_mul(p.s, t.attention, t.attention, t.head_gate);
}

void mixer_output(Pass& p, const Linear& w, int l) {
  project(p, w, p.t.out, p.t.attention);
  p.seen("attn_out", l, p.t.out);
}

void attention_output(Pass& p, const AttentionWeights& w, int l) { mixer_output(p, w.output, l); }

bool keep_wanted_rows(Pass& p, int l) {
  if (!goes_on(p, l)) return false;
  if (!p.is_last(l) || p.hidden.has(l) || p.hidden.has(l + 1)) return true;
  const std::span<const int32_t> rows = wanted_rows(p.batch);
  ops::gather_rows(p.s, p.t.x_rows, p.t.x, rows);
  ops::gather_rows(p.s, p.t.attention_rows, p.t.attention, rows);
  p.t.go_on_with_rows(p.batch.n_rows);
  p.rows.tokens = rows;
  p.only_wanted_rows = true;
  return true;
}

namespace {

Status load_projection(WeightLoader& w, const ModelConfig& c, int64_t l, TensorView Scratch::*to, std::string_view name,
                       int64_t n_outputs, Projections& out) {
  Projections::Projection& projection = out.all.emplace_back();
  projection.out = to;
  return w.linear(projection.linear, {.name = name, .n_outputs = n_outputs, .n_inputs = c.width, .cut = Cut::kOutputs},
                  l);
}

}  // namespace

Status load_ffn(WeightLoader& w, const ModelConfig& c, int64_t l, FfnWeights& out) {
  const int64_t F = c.layers[static_cast<size_t>(l)].ffn_len;
  if (!c.fused_gate_up) return load_ffn(w, c, l, F, "blk.{}.ffn_gate", "blk.{}.ffn_up", "blk.{}.ffn_down", out);
  TRY(load_projection(w, c, l, &Scratch::gate_up, "blk.{}.ffn_up", 2 * F, out.gate_up));
  return w.linear(out.down, {.name = "blk.{}.ffn_down", .n_outputs = c.width, .n_inputs = F, .cut = Cut::kInputs}, l);
}

Status load_ffn(WeightLoader& w, const ModelConfig& c, int64_t l, int64_t ffn_len, std::string_view gate,
                std::string_view up, std::string_view down, FfnWeights& out) {
  TRY(load_projection(w, c, l, &Scratch::gate, gate, ffn_len, out.gate_up));
  TRY(load_projection(w, c, l, &Scratch::up, up, ffn_len, out.gate_up));
  return w.linear(out.down, {.name = down, .n_outputs = c.width, .n_inputs = ffn_len, .cut = Cut::kInputs}, l);
}

void gated_ffn(Pass& p, const FfnWeights& w, Activation activation, int l) {
  const Scratch& t = p.t;
  project(p, w.gate_up, t.h);
  p.seen("gate", l, t.gate);
  p.seen("up", l, t.up);
  activation(p.s, t.gate, t.gate, t.up);
  p.seen("gated", l, t.gate);
  project(p, w.down, t.out, t.gate);
  p.seen("ffn_out", l, t.out);
}

Activation activation_of(const ModelConfig& config) {
  return config.activation == FfnActivation::kSilu ? ops::silu_mul : ops::gelu_mul;
}

void layer_done(const Pass& p, int l) {
  p.seen("output", l, p.t.x);
  give_hidden(p, l, p.t.x);
}

}  // namespace ibid
