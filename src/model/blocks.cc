#include "model/blocks.h"

#include <array>
#include <utility>

#include "kernels/ops.h"
#include "model/alibi.h"

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
    w.give_seat(out.output, "output", 0);
  } else {
    TRY(w.linear(out.output, {.name = "output", .n_outputs = c.vocab_size, .n_inputs = c.width}, 0));
  }
  if (c.embedding_norm_is_plain) w.constant(out.embedding_norm, std::vector<float>(static_cast<size_t>(c.width), 1.0f));
  return w.vector(out.output_norm, "output_norm.weight", 0, c.width, c.output_norm_is_plain ? 0 : c.norm_offset);
}

void embed_tokens(Pass& p, const VocabularyWeights& w, const TensorView& out) {
  const auto n_tokens = static_cast<size_t>(p.batch.n_tokens);
  ops::embed(p.s, out, w.embedding, {p.batch.tokens, n_tokens}, p.config.embedding_scale);
  if (w.embedding_norm.rank != 0) ops::rms_norm(p.s, out, out, w.embedding_norm, p.config.norm_eps);
  if (p.batch.inputs != nullptr) ops::put_rows(p.s, out, {p.batch.inputs, n_tokens}, 0);
  p.seen("embed", -1, out);
  turn_angles(p);
}

void turn_angles(Pass& p) {
  const auto n_tokens = static_cast<size_t>(p.batch.n_tokens);
  for (size_t i = 0; i < p.ropes.size(); ++i) {
    if (p.batch.axes != nullptr) {
      ops::rope_angles(p.s, p.t.cos_sin[i], p.ropes[i].op(), {p.batch.axes, 3 * n_tokens});
    } else {
      ops::rope_angles(p.s, p.t.cos_sin[i], p.ropes[i].op(), {p.batch.positions, n_tokens});
    }
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
    float scale = 1.0f;
  };
  const Multipliers& by = c.multipliers;
  const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
  const bool owns_cache = layer.kv_owner == kOwnCache;
  const std::array<Part, 3> apart = {{{&Scratch::q, "blk.{}.attn_q", layer.q_len(), by.query},
                                      {&Scratch::k, "blk.{}.attn_k", layer.k_len(), by.key},
                                      {&Scratch::v, "blk.{}.attn_v", layer.v_len(), by.value}}};
  const std::array<Part, 1> fused = {
      {{&Scratch::qkv, "blk.{}.attn_qkv", layer.q_len() + layer.k_len() + layer.v_len()}}};
  const std::span<const Part> parts = c.fused_qkv ? std::span<const Part>(fused) : std::span<const Part>(apart);
  const size_t n_parts = !owns_cache ? 1 : layer.value_is_key ? 2 : parts.size();
  // A file may have them in one, where norms or other sizes of layers keep them apart here.
  const bool in_one = !c.fused_qkv && !c.attention_gate && w.has("blk.{}.attn_qkv.weight", l);
  int64_t first_row = 0;
  for (const Part& part : parts.first(n_parts)) {
    Projections::Projection& to = out.qkv.all.emplace_back();
    to.linear.scale = part.scale;
    const bool is_gated = c.attention_gate && part.out == &Scratch::q;
    to.out = is_gated ? &Scratch::q_gate : part.out;
    TRY(w.linear(to.linear,
                 {.name = in_one ? fused[0].name : part.name,
                  .n_outputs = is_gated ? 2 * part.n_outputs : part.n_outputs,
                  .n_inputs = c.width,
                  .cut = Cut::kOutputs,
                  .has_bias = c.qkv_bias,
                  .n_rows = in_one ? fused[0].n_outputs : 0,
                  .first_row = std::exchange(first_row, first_row + part.n_outputs)},
                 l));
  }
  if (c.attention_gate_apart) {
    Projections::Projection& gate = out.qkv.all.emplace_back();
    gate.out = &Scratch::head_gate;
    TRY(w.linear(gate.linear,
                 {.name = "blk.{}.attn_gate", .n_outputs = layer.q_len(), .n_inputs = c.width, .cut = Cut::kOutputs},
                 l));
  }
  if (c.query_norm != 0) {
    w.constant(out.q_norm, std::vector<float>(static_cast<size_t>(layer.key_len), c.query_norm));
    w.constant(out.k_norm, std::vector<float>(static_cast<size_t>(layer.key_len), 1.0f));
  } else if (c.qk_norm) {
    const int64_t q_len = c.qk_norm_whole ? layer.q_len() : layer.key_len;
    const int64_t k_len = c.qk_norm_whole ? layer.k_len() : layer.key_len;
    TRY(w.vector(out.q_norm, "blk.{}.attn_q_norm.weight", l, q_len, c.norm_offset));
    if (owns_cache) TRY(w.vector(out.k_norm, "blk.{}.attn_k_norm.weight", l, k_len, c.norm_offset));
  }
  if (c.value_norm && owns_cache)
    w.constant(out.v_norm, std::vector<float>(static_cast<size_t>(layer.value_len), 1.0f));
  out.output.scale = by.attention;
  if (c.sinks) TRY(w.vector(out.sinks, "blk.{}.attn_sinks.weight", l, layer.n_heads));
  if (c.alibi_bias_max != 0) w.constant(out.slopes, alibi_slopes(layer.n_heads, c.alibi_bias_max));
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
  const bool attends = goes_on(p, l), owns_cache = layer.kv_owner == kOwnCache;
  const bool keeps_rows = owns_cache && p.batch.n_kept > 0, has_queries = attends || keeps_rows;
  if (!has_queries && !owns_cache) return;
  const std::span<const Projections::Projection> all = w.qkv.all,
                                                 qkv = has_queries || all.size() == 1 ? all : all.subspan(1);
  project_each(p, qkv, x);
  for (size_t i = 0; p.config.qkv_clip != 0 && i < qkv.size(); ++i) ops::clamp(p.s, t.*qkv[i].out, p.config.qkv_clip);
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
  if (keeps_rows) ops::keep_rows(p.s, t.q, kv, p.batch, layer.attention_scale);
  if (!attends) return;
  ForwardBatch batch = p.batch;
  if (!layer.sees_whole_pictures) batch.ends = nullptr;
  ops::paged_attention(p.s, t.attention, t.q, kv, batch,
                       {.scale = layer.attention_scale,
                        .soft_cap = p.config.attention_soft_cap,
                        .window = layer.window,
                        .sinks = w.sinks.rank == 0 ? nullptr : w.sinks.row_as<const float>(0),
                        .slopes = w.slopes.rank == 0 ? nullptr : w.slopes.row_as<const float>(0)});
  p.seen("attention", l, t.attention);
  if (p.config.attention_gate || p.config.attention_gate_apart)
    ops::sigmoid_mul(p.s, t.attention, t.attention, t.head_gate);
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
  if (to == &Scratch::gate) projection.linear.scale = c.multipliers.gate;
  return w.linear(
      projection.linear,
      {.name = name, .n_outputs = n_outputs, .n_inputs = c.width, .cut = Cut::kOutputs, .has_bias = c.ffn_bias}, l);
}

}  // namespace

Status load_ffn(WeightLoader& w, const ModelConfig& c, int64_t l, FfnWeights& out) {
  const int64_t F = c.layers[static_cast<size_t>(l)].ffn_len;
  return load_ffn(w, c, l, F, "blk.{}.ffn_gate", "blk.{}.ffn_up", "blk.{}.ffn_down", out);
}

Status load_ffn(WeightLoader& w, const ModelConfig& c, int64_t l, int64_t ffn_len, std::string_view gate,
                std::string_view up, std::string_view down, FfnWeights& out) {
  if (c.fused_gate_up) {
    TRY(load_projection(w, c, l, &Scratch::gate_up, up, 2 * ffn_len, out.gate_up));
  } else {
    if (c.ffn_has_gate()) TRY(load_projection(w, c, l, &Scratch::gate, gate, ffn_len, out.gate_up));
    TRY(load_projection(w, c, l, &Scratch::up, up, ffn_len, out.gate_up));
  }
  out.down.scale = c.multipliers.down;
  return w.linear(
      out.down, {.name = down, .n_outputs = c.width, .n_inputs = ffn_len, .cut = Cut::kInputs, .has_bias = c.ffn_bias},
      l);
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

Unary ungated_activation_of(const ModelConfig& config) {
  if (config.activation == FfnActivation::kRelu2) return ops::relu_squared;
  return config.activation == FfnActivation::kGelu ? ops::gelu : ops::gelu_tanh;
}

void ungated_ffn(Pass& p, const FfnWeights& w, int l) {
  const Scratch& t = p.t;
  project(p, w.gate_up, t.h);
  p.seen("up", l, t.up);
  ungated_activation_of(p.config)(p.s, t.up, t.up);
  p.seen("gated", l, t.up);
  project(p, w.down, t.out, t.up);
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
