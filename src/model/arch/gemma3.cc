// gemma 3: two RoPEs, one for layers with a window (base 10,000) and one for the full ones (scaled), norms on both
// sides of attention and feed-forward.
#include <array>
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 16> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_norm.weight"},
    {"blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_norm.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.pre_feedforward_layernorm.weight"},
    {"blk.{}.ffn_gate.weight", "layers.{}.mlp.gate_proj.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.mlp.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"},
    {"blk.{}.post_ffw_norm.weight", "layers.{}.post_feedforward_layernorm.weight"},
}};

constexpr int64_t kDefaultPattern = 6;  // every sixth layer sees everything
constexpr int kGlobal = 0, kLocal = 1;  // indices of ropes

void finish(ModelConfig& config) {
  config.qk_norm = true;
  config.activation = FfnActivation::kGeluTanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  for (LayerConfig& layer : config.layers) {
    layer.rope = layer.window != 0 ? kLocal : kGlobal;
    layer.sees_whole_pictures = true;
  }
}

}  // namespace

constinit const std::span<const WeightName> kGemma3Names = kNames;

namespace arch {

Result<ModelConfig> gemma3_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGemma, /*interleaved=*/false));
  config.norm_offset = 0.0f;  // converters add the 1
  RopeConfig local;
  local.n_pairs = config.ropes[0].n_pairs;
  ASSIGN_OR_RETURN(local.base, file.meta_float("gemma3.rope.freq_base_swa", 10000.0));
  if (!file.has_meta("gemma3.rope.freq_base")) config.ropes[kGlobal].base = 1e6;
  config.ropes.push_back(local);
  TRY(windows_from_gguf(file, kDefaultPattern, config));
  // The 27B model divides by its width per head instead of its head size; newer files state it.
  if (config.n_layers == 62) {
    for (LayerConfig& layer : config.layers)
      layer.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.width) / static_cast<float>(layer.n_heads));
  }
  for (LayerConfig& layer : config.layers) {
    ASSIGN_OR_RETURN(double scale, file.meta_float("gemma3.attention.scale", layer.attention_scale));
    layer.attention_scale = static_cast<float>(scale);
  }
  ASSIGN_OR_RETURN(double scores, file.meta_float("gemma3.attn_logit_softcapping", 0.0));
  ASSIGN_OR_RETURN(double logits, file.meta_float("gemma3.final_logit_softcapping", 0.0));
  config.attention_soft_cap = static_cast<float>(scores);
  config.logit_soft_cap = static_cast<float>(logits);
  finish(config);
  return config;
}

Result<ModelConfig> gemma3_from_folder(const ModelFile& file) {
  const std::string prefix = file.has_meta("text_config.hidden_size") ? "text_config." : "";
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kGemma, prefix,
                                                          {.n_heads = 8,
                                                           .n_kv_heads = 4,
                                                           .head_len = 256,
                                                           .vocab_size = 262208,
                                                           .trained_context_len = 131072,
                                                           .norm_eps = 1e-6,
                                                           .tied_embedding = true}));
  TRY(must_be(file, prefix + "hidden_activation", "gelu_pytorch_tanh"));
  TRY(flag_must_be(file, prefix + "attention_bias", false));
  TRY(flag_must_be(file, prefix + "use_bidirectional_attention", false));
  config.norm_offset = 1.0f;
  const std::string parameters = prefix + "rope_parameters";
  ASSIGN_OR_RETURN(RopeConfig global, rope_from_folder(file, config, prefix, parameters + ".full_attention", 1e6));
  config.ropes.push_back(std::move(global));
  RopeConfig local;
  local.n_pairs = static_cast<int>(config.layers.front().key_len / 2);
  ASSIGN_OR_RETURN(double old_base, file.meta_float(prefix + "rope_local_base_freq", 10000.0));
  ASSIGN_OR_RETURN(local.base, file.meta_float(parameters + ".sliding_attention.rope_theta", old_base));
  TRY(must_be(file, parameters + ".sliding_attention.rope_type", "default"));
  config.ropes.push_back(local);
  ASSIGN_OR_RETURN(int64_t window, file.has_meta(prefix + "sliding_window")
                                       ? read_window(file, prefix + "sliding_window")
                                       : Result<int64_t>(4096));
  ASSIGN_OR_RETURN(int64_t pattern, file.meta_int(prefix + "sliding_window_pattern", kDefaultPattern));
  TRY(windows_by_period(pattern, window, config));
  TRY(windows_from_layer_types(file, prefix, window, config));
  ASSIGN_OR_RETURN(double scalar, file.meta_float(prefix + "query_pre_attn_scalar", 256.0));
  if (!(scalar > 0)) return invalid("query_pre_attn_scalar is not positive", prefix + "query_pre_attn_scalar");
  for (LayerConfig& layer : config.layers) layer.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  ASSIGN_OR_RETURN(double scores, file.meta_float(prefix + "attn_logit_softcapping", 0.0));
  ASSIGN_OR_RETURN(double logits, file.meta_float(prefix + "final_logit_softcapping", 0.0));
  config.attention_soft_cap = static_cast<float>(scores);
  config.logit_soft_cap = static_cast<float>(logits);
  finish(config);
  return config;
}

}  // namespace arch
}  // namespace ibid
