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
  TRY(load_vocabulary(w, c, vocabulary_));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    TRY(w.vector(layer.attn_norm, "blk.{}.attn_norm.weight", l, c.width, c.norm_offset));
    TRY(w.vector(layer.post_attn_norm, "blk.{}.post_attention_norm.weight", l, c.width, c.norm_offset));
    TRY(w.vector(layer.ffn_norm, "blk.{}.ffn_norm.weight", l, c.width, c.norm_offset));
    TRY(w.vector(layer.post_ffn_norm, "blk.{}.post_ffw_norm.weight", l, c.width, c.norm_offset));
    TRY(load_attention(w, c, l, layer.attention));
    TRY(load_ffn(w, c, l, layer.ffn));
  }
  return {};
}

std::unique_ptr<Model> GemmaModel::part(Parts parts, std::span<const int32_t> kept) const {
  std::unique_ptr<GemmaModel> model(new GemmaModel(std::move(parts)));
  model->vocabulary_ = vocabulary_;
  for (const int32_t l : kept) model->layers_.push_back(layers_[static_cast<size_t>(l)]);
  return model;
}

void GemmaModel::run(Pass& p) {
  const Scratch& t = p.t;
  const float eps = p.config.norm_eps, post_eps = p.config.post_norm_eps != 0 ? p.config.post_norm_eps : eps;
  embed_tokens(p, vocabulary_, t.x);
  for (int l = 0; l < p.n_layers(); ++l) {
    const Layer& w = layers_[static_cast<size_t>(l)];
    begin_layer(p, l);
    ops::rms_norm(p.s, t.h, t.x, w.attn_norm, eps);
    p.seen("attn_norm", l, t.h);
    attention_block(p, w.attention, t.h, l);
    if (!keep_wanted_rows(p, l)) return;
    attention_output(p, w.attention, l);
    ops::rms_norm(p.s, t.out, t.out, w.post_attn_norm, post_eps);
    p.seen("post_attn_norm", l, t.out);
    ops::add_rms_norm(p.s, t.h, t.x, t.out, w.ffn_norm, eps);
    p.seen("ffn_norm", l, t.h);
    gated_ffn(p, w.ffn, activation_of(p.config), l);
    ops::rms_norm(p.s, t.out, t.out, w.post_ffn_norm, post_eps);
    p.seen("post_ffn_norm", l, t.out);
    ops::add(p.s, t.x, t.out);
    layer_done(p, l);
  }
  ops::rms_norm(p.s, t.h, t.x, vocabulary_.output_norm, eps);
  logits_head(p, vocabulary_);
}

}  // namespace ibid
