// muse glimmer: norms on both sides, those after with an epsilon of their own, embeddings under a norm without a
// weight, norms of heads without weights (queries times a number), attention under a gate of its own product, windows
// with RoPE in three of four layers and no positions in the fourth. Its vision tower stays unread.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 15> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_gate.weight", "layers.{}.self_attn.gate_proj.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.pre_feedforward_layernorm.weight"},
    {"blk.{}.ffn_gate.weight", "layers.{}.mlp.gate_proj.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.mlp.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"},
    {"blk.{}.post_ffw_norm.weight", "layers.{}.post_feedforward_layernorm.weight"},
}};

constexpr int64_t kPeriod = 4;
constexpr double kPostNormEps = 1e-8;  // a GGUF has no key for it

void finish(double logit_scale, double logit_cap, double post_norm_eps, ModelConfig& config) {
  config.qk_norm = config.attention_gate_apart = config.embedding_norm_is_plain = config.output_norm_is_plain = true;
  config.logit_scale = static_cast<float>(logit_scale);
  config.logit_soft_cap = static_cast<float>(logit_cap);
  config.post_norm_eps = static_cast<float>(post_norm_eps);
}

}  // namespace

constinit const std::span<const WeightName> kMuseGlimmerNames = kNames;

namespace arch {

Result<ModelConfig> muse_glimmer_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGemma, /*interleaved=*/true));
  TRY(windows_from_gguf(file, kPeriod, config));
  for (LayerConfig& layer : config.layers) layer.rope = layer.window != 0 ? 0 : kNoRope;
  ASSIGN_OR_RETURN(const double scale, file.meta_float("muse-glimmer.logit_scale"));
  ASSIGN_OR_RETURN(const double cap, file.meta_float("muse-glimmer.final_logit_softcapping", 0.0));
  ASSIGN_OR_RETURN(config.ropes[0].base, file.meta_float("muse-glimmer.rope.freq_base_swa", config.ropes[0].base));
  finish(scale, cap, kPostNormEps, config);
  return config;
}

Result<ModelConfig> muse_glimmer_from_folder(const ModelFile& file) {
  const std::string prefix = file.has_meta("text_config.hidden_size") ? "text_config." : "";
  ASSIGN_OR_RETURN(
      ModelConfig config,
      common_from_folder(file, Shape::kGemma, prefix,
                         {.head_len = 128, .vocab_size = 202048, .trained_context_len = 131072, .norm_eps = 1e-5}));
  TRY(must_be(file, prefix + "hidden_activation", "silu"));
  TRY(flag_must_be(file, prefix + "attention_bias", false));
  config.norm_offset = 1.0f;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, prefix, prefix + "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(const int64_t window, file.has_meta(prefix + "sliding_window")
                                             ? read_window(file, prefix + "sliding_window")
                                             : Result<int64_t>(2048));
  TRY(windows_by_period(kPeriod, window, config));
  TRY(windows_from_layer_types(file, prefix, window, config));
  for (LayerConfig& layer : config.layers) layer.rope = layer.window != 0 ? 0 : kNoRope;
  // Which layers turn is a list of its own: of each its base, or 0.
  if (const std::string key = prefix + "layer_rope_theta"; file.has_meta(key)) {
    ASSIGN_OR_RETURN(const std::vector<double> bases, file.meta_floats(key));
    TRY(check_layer_types(bases.size(), config.n_layers, key));
    for (size_t l = 0; l < config.layers.size(); ++l) config.layers[l].rope = bases[l] != 0 ? 0 : kNoRope;
  }
  ASSIGN_OR_RETURN(const double query_norm, file.meta_float(prefix + "qk_scale_factor", 3.87));
  if (!(query_norm > 0)) return invalid("qk_scale_factor is not positive", prefix + "qk_scale_factor");
  config.query_norm = static_cast<float>(query_norm);
  ASSIGN_OR_RETURN(const double scale, file.meta_float(prefix + "output_multiplier", 0.19611613513818404));
  ASSIGN_OR_RETURN(const double cap, file.meta_float(prefix + "final_logit_softcapping", 20.0));
  ASSIGN_OR_RETURN(const double post_norm_eps, file.meta_float(prefix + "post_norm_eps", kPostNormEps));
  finish(scale, cap, post_norm_eps, config);
  return config;
}

}  // namespace arch
}  // namespace ibid
