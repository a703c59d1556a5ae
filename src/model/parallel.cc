#include "model/parallel.h"

#include "kernels/ops.h"

namespace ibid {

Result<std::unique_ptr<Model>> ParallelModel::load(Parts parts, WeightLoader& loader) {
  std::unique_ptr<ParallelModel> model(new ParallelModel(std::move(parts)));
  TRY(model->load_weights(loader));
  return std::unique_ptr<Model>(std::move(model));
}

Status ParallelModel::load_weights(WeightLoader& w) {
  const ModelConfig& c = config_;
  TRY(load_vocabulary(w, c, vocabulary_));
  w.constant(no_bias_, std::vector<float>(static_cast<size_t>(c.width)));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    TRY(w.vector(layer.norm, "blk.{}.attn_norm.weight", l, c.width));
    TRY(load_attention(w, c, l, layer.attention));
    TRY(load_ffn(w, c, l, layer.ffn));
  }
  return {};
}

std::unique_ptr<Model> ParallelModel::part(Parts parts, std::span<const int32_t> kept) const {
  std::unique_ptr<ParallelModel> model(new ParallelModel(std::move(parts)));
  model->vocabulary_ = vocabulary_;
  model->no_bias_ = no_bias_;
  for (const int32_t l : kept) model->layers_.push_back(layers_[static_cast<size_t>(l)]);
  return model;
}

void ParallelModel::run(Pass& p) {
  const Scratch& t = p.t;
  const float eps = p.config.norm_eps;
  embed_tokens(p, vocabulary_, t.x);
  for (int l = 0; l < p.n_layers(); ++l) {
    const Layer& w = layers_[static_cast<size_t>(l)];
    begin_layer(p, l);
    ops::layer_norm(p.s, t.h, t.x, w.norm, no_bias_, eps);
    p.seen("attn_norm", l, t.h);
    attention_block(p, w.attention, t.h, l);
    if (!keep_wanted_rows(p, l)) return;
    if (p.only_wanted_rows) ops::layer_norm(p.s, t.h, t.x, w.norm, no_bias_, eps);  // t.h is of other rows now
    attention_output(p, w.attention, l);
    ops::add(p.s, t.x, t.out);
    gated_ffn(p, w.ffn, activation_of(p.config), l);
    ops::add(p.s, t.x, t.out);
    layer_done(p, l);
  }
  ops::layer_norm(p.s, t.h, t.x, vocabulary_.output_norm, no_bias_, eps);
  logits_head(p, vocabulary_);
}

}  // namespace ibid
