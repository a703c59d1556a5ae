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
  TRY(load_vocabulary(w, c, vocabulary_));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    TRY(w.vector(layer.attn_norm, "blk.{}.attn_norm.weight", l, c.width, c.norm_offset));
    TRY(w.vector(layer.ffn_norm, "blk.{}.ffn_norm.weight", l, c.width, c.norm_offset));
    TRY(load_mixer(w, l, layer));
    if (c.layers[static_cast<size_t>(l)].n_experts > 0) {
      TRY(load_moe(w, c, l, layer.experts));
    } else {
      TRY(load_ffn(w, c, l, layer.ffn));
    }
  }
  link_norms();
  return {};
}

Status LlamaModel::load_mixer(WeightLoader& w, int64_t l, Layer& out) const {
  const LayerConfig& layer = config_.layers[static_cast<size_t>(l)];
  switch (layer.recurrence) {
    case Recurrence::kShortConv:
      return load_short_conv(w, config_, l, out.short_conv);
    case Recurrence::kDeltaNet:
      return load_delta_net(w, config_, l, out.delta_net);
    case Recurrence::kNone:
      break;
  }
  if (layer.mixer == Mixer::kLatent) return load_latent(w, config_, l, out.latent);
  return load_attention(w, config_, l, out.attention);
}

void LlamaModel::link_norms() {
  for (size_t l = 0; l + 1 < layers_.size(); ++l) layers_[l].next_norm = layers_[l + 1].attn_norm;
  layers_.back().next_norm = vocabulary_.output_norm;
}

std::unique_ptr<Model> LlamaModel::part(Parts parts, std::span<const int32_t> kept) const {
  std::unique_ptr<LlamaModel> model(new LlamaModel(std::move(parts)));
  model->vocabulary_ = vocabulary_;
  for (const int32_t l : kept) model->layers_.push_back(layers_[static_cast<size_t>(l)]);
  model->link_norms();
  return model;
}

const Linear& LlamaModel::run_mixer(Pass& p, const Layer& w, int l) {
  switch (p.layer(l).recurrence) {
    case Recurrence::kShortConv:
      short_conv_block(p, w.short_conv, p.t.h, l);
      return w.short_conv.output;
    case Recurrence::kDeltaNet:
      delta_net_block(p, w.delta_net, p.t.h, l);
      return w.delta_net.output;
    case Recurrence::kNone:
      break;
  }
  if (p.layer(l).mixer == Mixer::kLatent) {
    latent_block(p, w.latent, p.t.h, l);
    return w.latent.output;
  }
  attention_block(p, w.attention, p.t.h, l);
  return w.attention.output;
}

void LlamaModel::run(Pass& p) {
  const Scratch& t = p.t;
  const float eps = p.config.norm_eps;
  embed_tokens(p, vocabulary_, t.x);
  ops::rms_norm(p.s, t.h, t.x, layers_[0].attn_norm, eps);
  for (int l = 0; l < p.n_layers(); ++l) {
    const Layer& w = layers_[static_cast<size_t>(l)];
    begin_layer(p, l);
    p.seen("attn_norm", l, t.h);
    const Linear& output = run_mixer(p, w, l);
    if (!keep_wanted_rows(p, l)) return;
    if (p.layer(l).mixer == Mixer::kLatent) {
      latent_output(p, w.latent, l);
    } else {
      mixer_output(p, output, l);
    }
    if (p.config.residual_scale != 1) ops::scale(p.s, t.out, p.config.residual_scale);
    ops::add_rms_norm(p.s, t.h, t.x, t.out, w.ffn_norm, eps);
    p.seen("ffn_norm", l, t.h);
    if (p.layer(l).n_experts > 0) {
      moe_ffn(p, w.experts, l);
    } else {
      gated_ffn(p, w.ffn, ops::silu_mul, l);
    }
    if (p.config.residual_scale != 1) ops::scale(p.s, t.out, p.config.residual_scale);
    ops::add_rms_norm(p.s, t.h, t.x, t.out, w.next_norm, eps);
    layer_done(p, l);
  }
  logits_head(p, vocabulary_);
}

}  // namespace ibid
