#include "model/llama.h"

#include "kernels/ops.h"

namespace ibid {

Result<std::unique_ptr<Model>> LlamaModel::load(Parts parts, WeightLoader& loader) {
  std::unique_ptr<LlamaModel> model(new LlamaModel(std::move(parts)));
  TRY(load_vocabulary(loader, model->config_, model->vocabulary_));
  TRY(model->load_layers(loader));
  return std::unique_ptr<Model>(std::move(model));
}

Result<std::unique_ptr<Model>> LlamaModel::load_layer(Parts parts, WeightLoader& loader,
                                                      const VocabularyWeights& ends) {
  std::unique_ptr<LlamaModel> model(new LlamaModel(std::move(parts)));
  model->vocabulary_ = ends;
  TRY(model->load_layers(loader));
  return std::unique_ptr<Model>(std::move(model));
}

Status LlamaModel::load_layers(WeightLoader& w) {
  const ModelConfig& c = config_;
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    TRY(w.vector(layer.attn_norm, "blk.{}.attn_norm.weight", l, c.width, c.norm_offset));
    if (!c.one_part_layers) TRY(w.vector(layer.ffn_norm, "blk.{}.ffn_norm.weight", l, c.width, c.norm_offset));
    TRY(load_mixer(w, l, layer));
    const LayerConfig& of = c.layers[static_cast<size_t>(l)];
    if (of.n_experts > 0) {
      TRY(load_moe(w, c, l, layer.experts));
    } else if (of.has_ffn()) {
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
    case Recurrence::kMamba2:
      TRY(load_mamba2(w, config_, l, out.mamba2));
      break;
    case Recurrence::kNone:
      break;
  }
  if (layer.mixer == Mixer::kLatent) return load_latent(w, config_, l, out.latent);
  return layer.mixer == Mixer::kAttention ? load_attention(w, config_, l, out.attention) : Status{};
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
    case Recurrence::kMamba2:
      if (p.layer(l).mixer == Mixer::kAttention) break;  // beside it
      mamba2_block(p, w.mamba2, p.t.h, p.t.attention, l);
      return w.mamba2.output;
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

void LlamaModel::add_beside(Pass& p, const Layer& w, int l) {
  const TensorView out = rows_of(p.t.recurrent.out, p.t.h.dim[0], p.layer(l).recurrent_len());
  mamba2_block(p, w.mamba2, p.t.h, out, l);
  if (!goes_on(p, l)) return;
  project(p, w.mamba2.output, p.t.out, out);
  p.seen("ssm_out", l, p.t.out);
  if (p.config.residual_scale != 1) ops::scale(p.s, p.t.out, p.config.residual_scale);
  ops::add(p.s, p.t.x, p.t.out);
}

bool LlamaModel::mix(Pass& p, const Layer& w, int l) {
  const Scratch& t = p.t;
  const LayerConfig& layer = p.layer(l);
  p.seen("attn_norm", l, t.h);
  if (layer.mixer == Mixer::kAttention && layer.is_recurrent()) add_beside(p, w, l);
  const Linear& output = run_mixer(p, w, l);
  if (!keep_wanted_rows(p, l)) return false;
  if (layer.mixer == Mixer::kLatent) {
    latent_output(p, w.latent, l);
  } else {
    mixer_output(p, output, l);
  }
  if (p.config.residual_scale != 1) ops::scale(p.s, t.out, p.config.residual_scale);
  ops::add_rms_norm(p.s, t.h, t.x, t.out, layer.has_ffn() ? w.ffn_norm : w.next_norm, p.config.norm_eps);
  return true;
}

void LlamaModel::feed_forward(Pass& p, const Layer& w, int l) {
  const Scratch& t = p.t;
  p.seen("ffn_norm", l, t.h);
  if (p.layer(l).n_experts > 0) {
    moe_ffn(p, w.experts, l);
  } else if (p.config.ffn_has_gate()) {
    gated_ffn(p, w.ffn, ops::silu_mul, l);
  } else {
    ungated_ffn(p, w.ffn, l);
  }
  if (p.config.residual_scale != 1) ops::scale(p.s, t.out, p.config.residual_scale);
  ops::add_rms_norm(p.s, t.h, t.x, t.out, w.next_norm, p.config.norm_eps);
}

// What the tower gives for the layer's end; the norm that follows is of the sum.
void LlamaModel::add_picture_rows(const Pass& p, const Layer& w, int l) {
  if (p.only_wanted_rows) return;  // of the first layers alone, run to measure them
  ops::add_rows(p.s, p.t.x, {p.batch.inputs, static_cast<size_t>(p.batch.n_tokens)}, (l + 1) * p.config.width);
  ops::rms_norm(p.s, p.t.h, p.t.x, w.next_norm, p.config.norm_eps);
}

void LlamaModel::run(Pass& p) {
  const Scratch& t = p.t;
  if (p.inputs.rank != 0) {
    ops::gather_rows(p.s, t.x, p.inputs, p.rows.tokens);
    turn_angles(p);
  } else {
    embed_tokens(p, vocabulary_, t.x);
  }
  ops::rms_norm(p.s, t.h, t.x, layers_[0].attn_norm, p.config.norm_eps);
  for (int l = 0; l < p.n_layers(); ++l) {
    const Layer& w = layers_[static_cast<size_t>(l)];
    begin_layer(p, l);
    if (p.layer(l).mixer != Mixer::kNone) {
      if (!mix(p, w, l)) return;
    } else {
      if (!keep_wanted_rows(p, l)) return;
      if (p.only_wanted_rows) ops::rms_norm(p.s, t.h, t.x, w.attn_norm, p.config.norm_eps);
    }
    if (p.layer(l).has_ffn()) feed_forward(p, w, l);
    if (p.batch.inputs != nullptr && l < p.config.n_picture_layers) add_picture_rows(p, w, l);
    layer_done(p, l);
  }
  logits_head(p, vocabulary_);
}

}  // namespace ibid
