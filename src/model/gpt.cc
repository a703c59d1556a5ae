#include "model/gpt.h"

#include "kernels/ops.h"

namespace ibid {

Result<std::unique_ptr<Model>> GptModel::load(Parts parts, WeightLoader& loader) {
  std::unique_ptr<GptModel> model(new GptModel(std::move(parts)));
  TRY(model->load_weights(loader));
  return std::unique_ptr<Model>(std::move(model));
}

Status GptModel::load_norm(WeightLoader& w, const std::string& name, int64_t l, Norm& out) {
  TRY(w.vector(out.weight, name + ".weight", l, config_.width, config_.norm_offset));
  return load_bias(w, name + ".bias", l, out.bias);
}

Status GptModel::load_bias(WeightLoader& w, const std::string& name, int64_t l, TensorView& out) {
  if (config_.norm_bias) return w.vector(out, name, l, config_.width);
  w.constant(out, std::vector<float>(static_cast<size_t>(config_.width)));
  return {};
}

Status GptModel::load_weights(WeightLoader& w) {
  const ModelConfig& c = config_;
  TRY(load_vocabulary(w, c, vocabulary_));
  TRY(load_bias(w, "output_norm.bias", 0, output_norm_bias_));
  if (c.embedding_norm) TRY(load_norm(w, "token_embd_norm", 0, embedding_norm_));
  if (c.learned_positions)
    TRY(w.matrix(positions_, "position_embd.weight", 0, c.trained_context_len, c.width, /*use_packed=*/false));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    TRY(load_norm(w, "blk.{}.attn_norm", l, layer.attn_norm));
    TRY(load_norm(w, "blk.{}.ffn_norm", l, layer.ffn_norm));
    TRY(load_attention(w, c, l, layer.attention));
    TRY(load_ffn(w, c, l, layer.ffn));
  }
  return {};
}

std::unique_ptr<Model> GptModel::part(Parts parts, std::span<const int32_t> kept) const {
  std::unique_ptr<GptModel> model(new GptModel(std::move(parts)));
  model->vocabulary_ = vocabulary_;
  model->output_norm_bias_ = output_norm_bias_;
  model->embedding_norm_ = embedding_norm_;
  model->positions_ = positions_;
  for (const int32_t l : kept) model->layers_.push_back(layers_[static_cast<size_t>(l)]);
  return model;
}

void GptModel::run(Pass& p) {
  const Scratch& t = p.t;
  embed_tokens(p, vocabulary_, t.x);
  if (p.config.learned_positions) add_positions(p);
  if (p.config.embedding_norm)
    ops::layer_norm(p.s, t.x, t.x, embedding_norm_.weight, embedding_norm_.bias, p.config.norm_eps);
  for (int l = 0; l < p.n_layers(); ++l) {
    const Layer& w = layers_[static_cast<size_t>(l)];
    begin_layer(p, l);
    norm(p, w.attn_norm);
    p.seen("attn_norm", l, t.h);
    attention_block(p, w.attention, t.h, l);
    if (!keep_wanted_rows(p, l)) return;
    attention_output(p, w.attention, l);
    ops::add(p.s, t.x, t.out);
    norm(p, w.ffn_norm);
    p.seen("ffn_norm", l, t.h);
    ungated_ffn(p, w.ffn, l);
    ops::add(p.s, t.x, t.out);
    layer_done(p, l);
  }
  norm(p, {vocabulary_.output_norm, output_norm_bias_});
  logits_head(p, vocabulary_);
}

void GptModel::norm(const Pass& p, const Norm& w) const {
  ops::layer_norm(p.s, p.t.h, p.t.x, w.weight, w.bias, p.config.norm_eps);
}

void GptModel::add_positions(const Pass& p) {
  position_rows_.clear();
  for (int32_t i = 0; i < p.batch.n_tokens; ++i) position_rows_.push_back(TokenId{p.batch.positions[i]});
  ops::embed(p.s, p.t.h, positions_, position_rows_);
  ops::add(p.s, p.t.x, p.t.h);
}

}  // namespace ibid
