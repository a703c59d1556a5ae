#include "model/gemma4.h"

#include <cmath>

#include "kernels/ops.h"

namespace ibid {

Result<std::unique_ptr<Model>> Gemma4Model::load(Parts parts, WeightLoader& loader) {
  std::unique_ptr<Gemma4Model> model(new Gemma4Model(std::move(parts)));
  TRY(model->load_weights(loader));
  return std::unique_ptr<Model>(std::move(model));
}

Status Gemma4Model::load_weights(WeightLoader& w) {
  const ModelConfig& c = config_;
  TRY(load_vocabulary(w, c, vocabulary_));
  if (c.layer_embedding_len > 0) {
    const int64_t n = c.layer_embeddings_len;
    TRY(w.matrix(table_, "per_layer_token_embd.weight", 0, c.vocab_size, n, /*use_packed=*/false));
    TRY(w.linear(projection_, {.name = "per_layer_model_proj", .n_outputs = n, .n_inputs = c.width}, 0));
    TRY(w.vector(embedding_norm_, "per_layer_proj_norm.weight", 0, c.layer_embedding_len));
  }
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    TRY(w.vector(layer.attn_norm, "blk.{}.attn_norm.weight", l, c.width));
    TRY(w.vector(layer.post_attn_norm, "blk.{}.post_attention_norm.weight", l, c.width));
    TRY(w.vector(layer.ffn_norm, "blk.{}.ffn_norm.weight", l, c.width));
    TRY(w.vector(layer.post_ffn_norm, "blk.{}.post_ffw_norm.weight", l, c.width));
    TRY(load_attention(w, c, l, layer.attention));
    TRY(load_ffn(w, c, l, layer.ffn));
    if (c.layers[static_cast<size_t>(l)].n_experts > 0) {
      TRY(load_experts(w, c, l, layer.experts));
      TRY(w.vector(layer.experts.scale, "blk.{}.ffn_down_exps.scale", l, c.layers[static_cast<size_t>(l)].n_experts));
      const float by = 1.0f / std::sqrt(static_cast<float>(c.width));
      TRY(w.vector(layer.norms.router_norm, "blk.{}.ffn_gate_inp.scale", l, c.width, 0.0f, by));
      TRY(w.vector(layer.norms.post_norm_1, "blk.{}.post_ffw_norm_1.weight", l, c.width));
      TRY(w.vector(layer.norms.pre_norm_2, "blk.{}.pre_ffw_norm_2.weight", l, c.width));
      TRY(w.vector(layer.norms.post_norm_2, "blk.{}.post_ffw_norm_2.weight", l, c.width));
    }
    if (c.layer_embedding_len > 0) TRY(load_layer_embedding(w, l, layer.embedding));
    if (!w.has("blk.{}.layer_output_scale.weight", l)) continue;
    TensorView scale;
    TRY(w.vector(scale, "blk.{}.layer_output_scale.weight", l, 1));
    layer.output_scale = scale.row_as<const float>(0)[0];
  }
  return {};
}

Status Gemma4Model::load_layer_embedding(WeightLoader& w, int64_t l, LayerEmbedding& out) {
  const int64_t C = config_.width, P = config_.layer_embedding_len;
  out.first_column = l * P;
  TRY(w.linear(out.gate, {.name = "blk.{}.inp_gate", .n_outputs = P, .n_inputs = C}, l));
  TRY(w.linear(out.projection, {.name = "blk.{}.proj", .n_outputs = C, .n_inputs = P}, l));
  return w.vector(out.post_norm, "blk.{}.post_norm.weight", l, C);
}

std::unique_ptr<Model> Gemma4Model::part(Parts parts, std::span<const int32_t> kept) const {
  std::unique_ptr<Gemma4Model> model(new Gemma4Model(std::move(parts)));
  model->vocabulary_ = vocabulary_;
  model->table_ = table_;
  model->projection_ = projection_;
  model->embedding_norm_ = embedding_norm_;
  for (const int32_t l : kept) model->layers_.push_back(layers_[static_cast<size_t>(l)]);
  return model;
}

void Gemma4Model::run(Pass& p) {
  const Scratch& t = p.t;
  const float eps = p.config.norm_eps;
  embed_tokens(p, vocabulary_, t.x);
  if (p.config.layer_embedding_len > 0) embed_for_layers(p);
  for (int l = 0; l < p.n_layers(); ++l) {
    const Layer& w = layers_[static_cast<size_t>(l)];
    begin_layer(p, l);
    ops::rms_norm(p.s, t.h, t.x, w.attn_norm, eps);
    p.seen("attn_norm", l, t.h);
    attention_block(p, w.attention, t.h, l);
    if (!keep_wanted_rows(p, l)) return;
    attention_output(p, w.attention, l);
    ops::rms_norm(p.s, t.out, t.out, w.post_attn_norm, eps);
    p.seen("post_attn_norm", l, t.out);
    ops::add_rms_norm(p.s, t.h, t.x, t.out, w.ffn_norm, eps);
    p.seen("ffn_norm", l, t.h);
    gated_ffn(p, w.ffn, activation_of(p.config), l);
    if (p.layer(l).n_experts > 0) add_experts(p, w, l);
    ops::rms_norm(p.s, t.out, t.out, w.post_ffn_norm, eps);
    p.seen("post_ffn_norm", l, t.out);
    ops::add(p.s, t.x, t.out);
    if (p.config.layer_embedding_len > 0) add_layer_embedding(p, w.embedding, l);
    if (w.output_scale != 1) ops::scale(p.s, t.x, w.output_scale);
    layer_done(p, l);
  }
  ops::rms_norm(p.s, t.h, t.x, vocabulary_.output_norm, eps);
  logits_head(p, vocabulary_);
}

void Gemma4Model::embed_for_layers(Pass& p) {
  const auto T = static_cast<int64_t>(p.batch.n_tokens);
  const int64_t P = p.config.layer_embedding_len;
  const TensorView all = p.t.layer_embedding.all.first_rows(T), rows = p.t.layer_embedding.rows.first_rows(T);
  project(p, projection_, all, p.t.x);
  ops::scale(p.s, all, 1.0f / std::sqrt(static_cast<float>(p.config.width)));
  const TensorView each(all.data, DType::kF32, {T * (all.row_len() / P), P});
  ops::rms_norm(p.s, each, each, embedding_norm_, p.config.norm_eps);
  std::span<const TokenId> tokens(p.batch.tokens, static_cast<size_t>(T));
  std::vector<TokenId> without_pictures;
  if (p.batch.inputs != nullptr) {
    without_pictures.assign(tokens.begin(), tokens.end());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (p.batch.inputs[i] != nullptr) without_pictures[i] = p.config.picture_row;
    }
    tokens = without_pictures;
  }
  ops::embed(p.s, rows, table_, tokens, std::sqrt(static_cast<float>(P)));
  ops::add(p.s, all, rows);
  ops::scale(p.s, all, 1.0f / std::sqrt(2.0f));
}

void Gemma4Model::add_experts(Pass& p, const Layer& w, int l) {
  const Scratch& t = p.t;
  const float eps = p.config.norm_eps;
  ops::rms_norm(p.s, t.out, t.out, w.norms.post_norm_1, eps);
  ops::rms_norm(p.s, t.h, t.x, w.norms.router_norm, eps);
  const ExpertRows rows = choose_experts(p, w.experts, t.h, l);
  ops::rms_norm(p.s, t.h, t.x, w.norms.pre_norm_2, eps);
  const TensorView sum = sum_of_experts(p);
  run_experts(p, w.experts, rows, t.h, sum, l);
  ops::rms_norm(p.s, sum, sum, w.norms.post_norm_2, eps);
  p.seen("experts_out", l, sum);
  ops::add(p.s, t.out, sum);
}

void Gemma4Model::add_layer_embedding(Pass& p, const LayerEmbedding& w, int l) {
  const Scratch& t = p.t;
  const int64_t n = t.x.dim[0];
  const TensorView gate = t.layer_embedding.gate.first_rows(n);
  TensorView of_layer = t.layer_embedding.all.first_rows(p.batch.n_tokens).columns(w.first_column, gate.row_len());
  if (p.only_wanted_rows) {
    ops::gather_rows(p.s, t.layer_embedding.wanted.first_rows(n), of_layer, p.rows.tokens);
    of_layer = t.layer_embedding.wanted.first_rows(n);
  }
  project(p, w.gate, gate, t.x);
  ops::gelu_mul(p.s, gate, gate, of_layer);
  project(p, w.projection, t.out, gate);
  ops::rms_norm(p.s, t.out, t.out, w.post_norm, p.config.norm_eps);
  p.seen("layer_embedding", l, t.out);
  ops::add(p.s, t.x, t.out);
}

}  // namespace ibid
