#include "model/gemma.h"

#include "kernels/ops.h"

namespace ibid {

Result<std::unique_ptr<Model>> GemmaModel::load(Parts parts, WeightLoader& loader) {
  std::unique_ptr<GemmaModel> model(new GemmaModel(std::move(parts)));
  TRY(model->load_weights(loader));
  return std::unique_ptr<Model>(std::move(model));
}

Status GemmaModel::load_weights(WeightLoader& w) {
  const ModelConfig& c = config_;
  t_.cut_to(scratch_, 1, 1);
  TRY(w.matrix(embedding_, "token_embd.weight", 0, c.vocab_size, c.width, c.tied_embedding));
  if (!c.tied_embedding) TRY(w.matrix(output_, "output.weight", 0, c.vocab_size, c.width));
  TRY(w.vector(output_norm_, "output_norm.weight", 0, c.width, c.norm_offset));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    TRY(w.vector(layer.attn_norm, "blk.{}.attn_norm.weight", l, c.width, c.norm_offset));
    TRY(w.vector(layer.post_attn_norm, "blk.{}.post_attention_norm.weight", l, c.width, c.norm_offset));
    TRY(w.vector(layer.ffn_norm, "blk.{}.ffn_norm.weight", l, c.width, c.norm_offset));
    TRY(w.vector(layer.post_ffn_norm, "blk.{}.post_ffw_norm.weight", l, c.width, c.norm_offset));
    TRY(w.vector(layer.q_norm, "blk.{}.attn_q_norm.weight", l, c.head_len, c.norm_offset));
    TRY(w.vector(layer.k_norm, "blk.{}.attn_k_norm.weight", l, c.head_len, c.norm_offset));
    TRY(w.matrix(layer.wq, "blk.{}.attn_q.weight", l, c.q_len(), c.width));
    TRY(w.matrix(layer.wk, "blk.{}.attn_k.weight", l, c.kv_len(), c.width));
    TRY(w.matrix(layer.wv, "blk.{}.attn_v.weight", l, c.kv_len(), c.width));
    TRY(w.row_parallel_matrix(layer.wo, "blk.{}.attn_output.weight", l, c.width, c.q_len(), c.kv_group_len()));
    TRY(w.matrix(layer.w_gate, "blk.{}.ffn_gate.weight", l, c.ffn_len, c.width));
    TRY(w.matrix(layer.w_up, "blk.{}.ffn_up.weight", l, c.ffn_len, c.width));
    TRY(w.row_parallel_matrix(layer.w_down, "blk.{}.ffn_down.weight", l, c.width, c.ffn_len));
  }
  return {};
}

// h -> attention
void GemmaModel::attend(Stream& s, const ForwardBatch& b, const PagedKv& kv, int l) {
  const ModelConfig& c = config_;
  const Layer& w = layers_[static_cast<size_t>(l)];
  const LayerConfig& kind = c.layers[static_cast<size_t>(l)];
  const auto r = static_cast<size_t>(kind.rope);
  const int D = static_cast<int>(c.head_len);
  linear(s, {t_.q, t_.k, t_.v}, t_.h, {&w.wq, &w.wk, &w.wv});
  norm_heads(s, t_.q, w.q_norm);
  norm_heads(s, t_.k, w.k_norm);
  ops::rope(s, t_.q, D, rope_tables_[r].op(), t_.cos_sin[r]);
  ops::rope(s, t_.k, D, rope_tables_[r].op(), t_.cos_sin[r]);
  seen("q", l, t_.q);
  seen("k", l, t_.k);
  seen("v", l, t_.v);
  ops::store_kv(s, kv, t_.k, t_.v, b);
  ops::paged_attention(s, t_.attention, t_.q, kv, b,
                       {.scale = c.attention_scale, .soft_cap = c.attention_soft_cap, .window = kind.window});
  seen("attention", l, t_.attention);
}

void GemmaModel::run(Stream& s, const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits) {
  const ModelConfig& c = config_;
  t_.cut_to(scratch_, b.n_tokens, b.n_rows);
  ops::embed(s, t_.x, embedding_, {b.tokens, static_cast<size_t>(b.n_tokens)}, c.embedding_scale);
  seen("embed", -1, t_.x);
  turn(s, b, t_);
  for (int l = 0; l < static_cast<int>(c.n_layers); ++l) {
    const Layer& w = layers_[static_cast<size_t>(l)];
    ops::rms_norm(s, t_.h, t_.x, w.attn_norm, c.norm_eps);
    seen("attn_norm", l, t_.h);
    attend(s, b, kv[static_cast<size_t>(l)], l);
    if (l + 1 == static_cast<int>(c.n_layers) && !keep_wanted_rows(s, b, t_)) return;
    linear(s, {t_.out}, t_.attention, {&w.wo});
    seen("attn_out", l, t_.out);
    ops::rms_norm(s, t_.out, t_.out, w.post_attn_norm, c.norm_eps);
    seen("post_attn_norm", l, t_.out);
    ops::add_rms_norm(s, t_.h, t_.x, t_.out, w.ffn_norm, c.norm_eps);
    seen("ffn_norm", l, t_.h);
    linear(s, {t_.gate, t_.up}, t_.h, {&w.w_gate, &w.w_up});
    seen("gate", l, t_.gate);
    seen("up", l, t_.up);
    ops::gelu_mul(s, t_.gate, t_.gate, t_.up);
    seen("gated", l, t_.gate);
    linear(s, {t_.out}, t_.gate, {&w.w_down});
    seen("ffn_out", l, t_.out);
    ops::rms_norm(s, t_.out, t_.out, w.post_ffn_norm, c.norm_eps);
    seen("post_ffn_norm", l, t_.out);
    ops::add(s, t_.x, t_.out);
    seen("output", l, t_.x);
  }
  ops::rms_norm(s, t_.h, t_.x, output_norm_, c.norm_eps);
  seen("final_norm", -1, t_.h);
  linear(s, {logits}, t_.h, {c.tied_embedding ? &embedding_ : &output_});
  if (c.logit_soft_cap != 0) ops::soft_cap(s, logits, c.logit_soft_cap);
  seen("logits", -1, logits);
}

}  // namespace ibid
