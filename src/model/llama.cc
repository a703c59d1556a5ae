#include "model/llama.h"

#include "kernels/ops.h"

namespace ibid {

Result<std::unique_ptr<Model>> LlamaModel::load(Parts parts, WeightLoader& loader) {
  std::unique_ptr<LlamaModel> model(new LlamaModel(std::move(parts)));
  TRY(model->load_weights(loader));
  return std::unique_ptr<Model>(std::move(model));
}

Status LlamaModel::load_weights(WeightLoader& w) {
  const ModelConfig& c = config_;
  t_.cut_to(scratch_, 1, 1);
  TRY(w.matrix(embedding_, "token_embd.weight", 0, c.vocab_size, c.width, c.tied_embedding));
  if (!c.tied_embedding) TRY(w.matrix(output_, "output.weight", 0, c.vocab_size, c.width));
  TRY(w.vector(output_norm_, "output_norm.weight", 0, c.width));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) TRY(load_layer(w, l, layers_[static_cast<size_t>(l)]));
  return {};
}

Status LlamaModel::load_layer(WeightLoader& w, int64_t l, Layer& layer) {
  const ModelConfig& c = config_;
  TRY(w.vector(layer.attn_norm, "blk.{}.attn_norm.weight", l, c.width));
  TRY(w.vector(layer.ffn_norm, "blk.{}.ffn_norm.weight", l, c.width));
  if (c.fused_qkv) {
    TRY(w.matrix(layer.wqkv, "blk.{}.attn_qkv.weight", l, c.q_len() + 2 * c.kv_len(), c.width));
  } else {
    TRY(w.matrix(layer.wq, "blk.{}.attn_q.weight", l, c.q_len(), c.width));
    TRY(w.matrix(layer.wk, "blk.{}.attn_k.weight", l, c.kv_len(), c.width));
    TRY(w.matrix(layer.wv, "blk.{}.attn_v.weight", l, c.kv_len(), c.width));
  }
  if (c.qkv_bias) {
    TRY(w.vector(layer.q_bias, "blk.{}.attn_q.bias", l, c.q_len()));
    TRY(w.vector(layer.k_bias, "blk.{}.attn_k.bias", l, c.kv_len()));
    TRY(w.vector(layer.v_bias, "blk.{}.attn_v.bias", l, c.kv_len()));
  }
  if (c.qk_norm) {
    TRY(w.vector(layer.q_norm, "blk.{}.attn_q_norm.weight", l, c.head_len));
    TRY(w.vector(layer.k_norm, "blk.{}.attn_k_norm.weight", l, c.head_len));
  }
  TRY(w.row_parallel_matrix(layer.wo, "blk.{}.attn_output.weight", l, c.width, c.q_len(), c.kv_group_len()));
  if (c.fused_gate_up) {
    TRY(w.matrix(layer.w_gate_up, "blk.{}.ffn_up.weight", l, 2 * c.ffn_len, c.width));
  } else {
    TRY(w.matrix(layer.w_gate, "blk.{}.ffn_gate.weight", l, c.ffn_len, c.width));
    TRY(w.matrix(layer.w_up, "blk.{}.ffn_up.weight", l, c.ffn_len, c.width));
  }
  return w.row_parallel_matrix(layer.w_down, "blk.{}.ffn_down.weight", l, c.width, c.ffn_len);
}

// h -> attention
void LlamaModel::attend(Stream& s, const ForwardBatch& b, const PagedKv& kv, int l) {
  const ModelConfig& c = config_;
  const Layer& w = layers_[static_cast<size_t>(l)];
  const LayerConfig& kind = c.layers[static_cast<size_t>(l)];
  const int D = static_cast<int>(c.head_len);
  if (c.fused_qkv) {
    linear(s, {t_.qkv}, t_.h, {&w.wqkv});
  } else {
    linear(s, {t_.q, t_.k, t_.v}, t_.h, {&w.wq, &w.wk, &w.wv});
  }
  if (c.qkv_bias) {
    ops::add_bias(s, t_.q, w.q_bias);
    ops::add_bias(s, t_.k, w.k_bias);
    ops::add_bias(s, t_.v, w.v_bias);
  }
  if (c.qk_norm) {
    norm_heads(s, t_.q, w.q_norm);
    norm_heads(s, t_.k, w.k_norm);
  }
  if (kind.rope != kNoRope) {
    const auto r = static_cast<size_t>(kind.rope);
    ops::rope(s, t_.q, D, rope_tables_[r].op(), t_.cos_sin[r]);
    ops::rope(s, t_.k, D, rope_tables_[r].op(), t_.cos_sin[r]);
  }
  seen("q", l, t_.q);
  seen("k", l, t_.k);
  seen("v", l, t_.v);
  ops::store_kv(s, kv, t_.k, t_.v, b);
  ops::paged_attention(s, t_.attention, t_.q, kv, b, {.scale = c.attention_scale, .window = kind.window});
  seen("attention", l, t_.attention);
}

void LlamaModel::run(Stream& s, const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits) {
  const ModelConfig& c = config_;
  t_.cut_to(scratch_, b.n_tokens, b.n_rows);
  ops::embed(s, t_.x, embedding_, {b.tokens, static_cast<size_t>(b.n_tokens)}, c.embedding_scale);
  seen("embed", -1, t_.x);
  turn(s, b, t_);
  for (int l = 0; l < static_cast<int>(c.n_layers); ++l) {
    const Layer& w = layers_[static_cast<size_t>(l)];
    if (l == 0) {
      ops::rms_norm(s, t_.h, t_.x, w.attn_norm, c.norm_eps);
    } else {
      ops::add_rms_norm(s, t_.h, t_.x, t_.out, w.attn_norm, c.norm_eps);
      seen("output", l - 1, t_.x);
    }
    seen("attn_norm", l, t_.h);
    attend(s, b, kv[static_cast<size_t>(l)], l);
    if (l + 1 == static_cast<int>(c.n_layers) && !keep_wanted_rows(s, b, t_)) return;
    linear(s, {t_.out}, t_.attention, {&w.wo});
    seen("attn_out", l, t_.out);
    ops::add_rms_norm(s, t_.h, t_.x, t_.out, w.ffn_norm, c.norm_eps);
    seen("ffn_norm", l, t_.h);
    if (c.fused_gate_up) {
      linear(s, {t_.gate_up}, t_.h, {&w.w_gate_up});
    } else {
      linear(s, {t_.gate, t_.up}, t_.h, {&w.w_gate, &w.w_up});
    }
    seen("gate", l, t_.gate);
    seen("up", l, t_.up);
    ops::silu_mul(s, t_.gate, t_.gate, t_.up);
    seen("gated", l, t_.gate);
    linear(s, {t_.out}, t_.gate, {&w.w_down});
    seen("ffn_out", l, t_.out);
  }
  ops::add_rms_norm(s, t_.h, t_.x, t_.out, output_norm_, c.norm_eps);
  seen("output", static_cast<int>(c.n_layers) - 1, t_.x);
  seen("final_norm", -1, t_.h);
  linear(s, {logits}, t_.h, {c.tied_embedding ? &embedding_ : &output_});
  if (c.logit_soft_cap != 0) ops::soft_cap(s, logits, c.logit_soft_cap);
  seen("logits", -1, logits);
}

}  // namespace ibid
