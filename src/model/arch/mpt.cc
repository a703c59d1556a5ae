// mpt: slopes of heads in the place of positions (ALiBi), norms and products without biases; some models clip queries,
// keys and values.
#include <algorithm>
#include <array>
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 9> kNames = {{
    {"token_embd.weight", "wte.weight"},
    {"output_norm.weight", "norm_f.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "blocks.{}.norm_1.weight"},
    {"blk.{}.attn_qkv.weight", "blocks.{}.attn.Wqkv.weight"},
    {"blk.{}.attn_output.weight", "blocks.{}.attn.out_proj.weight"},
    {"blk.{}.ffn_norm.weight", "blocks.{}.norm_2.weight"},
    {"blk.{}.ffn_up.weight", "blocks.{}.ffn.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "blocks.{}.ffn.down_proj.weight"},
}};

void finish(ModelConfig& config) {
  config.fused_qkv = true;
  config.activation = FfnActivation::kGelu;
  arch::set_no_rope(config);
}

Status read_number(const ModelFile& file, const std::string& key, double otherwise, float& out) {
  ASSIGN_OR_RETURN(const double value, file.meta_float(key, otherwise));
  out = static_cast<float>(value);
  return {};
}

}  // namespace

constinit const std::span<const WeightName> kMptNames = kNames;

namespace arch {

// Some files have biases, and rows for positions.
Result<ModelConfig> mpt_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGpt, /*interleaved=*/false));
  finish(config);
  TRY(read_number(file, "mpt.attention.max_alibi_bias", 0.0, config.alibi_bias_max));
  TRY(read_number(file, "mpt.attention.clamp_kqv", 0.0, config.qkv_clip));
  const auto has = [&file](const char* name) { return file.find(name) != nullptr; };
  config.norm_bias = has("output_norm.bias");
  config.qkv_bias = has("blk.0.attn_qkv.bias");
  config.attention_output_bias = has("blk.0.attn_output.bias");
  config.ffn_bias = has("blk.0.ffn_up.bias");
  config.learned_positions = has("position_embd.weight");
  return config;
}

Result<ModelConfig> mpt_from_folder(const ModelFile& file) {
  ModelConfig config;
  LayerConfig layer;
  config.shape = Shape::kGpt;
  config.architecture = "mpt";
  ASSIGN_OR_RETURN(config.n_layers, file.meta_int("n_layers"));
  ASSIGN_OR_RETURN(config.width, file.meta_int("d_model"));
  ASSIGN_OR_RETURN(layer.n_heads, file.meta_int("n_heads"));
  ASSIGN_OR_RETURN(config.vocab_size, file.meta_int("vocab_size"));
  ASSIGN_OR_RETURN(config.trained_context_len, file.meta_int("max_seq_len"));
  ASSIGN_OR_RETURN(config.tied_embedding, file.meta_bool("tie_word_embeddings", true));
  TRY(read_number(file, "layer_norm_epsilon", 1e-5, config.norm_eps));
  TRY(read_number(file, "attn_config.alibi_bias_max", 8.0, config.alibi_bias_max));
  if (file.has_meta("attn_config.clip_qkv")) TRY(read_number(file, "attn_config.clip_qkv", 0.0, config.qkv_clip));
  TRY(flag_must_be(file, "no_bias", true));
  TRY(flag_must_be(file, "attn_config.alibi", true));
  TRY(flag_must_be(file, "attn_config.qk_ln", false));
  TRY(flag_must_be(file, "attn_config.prefix_lm", false));
  TRY(must_be(file, "attn_config.attn_type", "multihead_attention"));
  if (file.has_meta("logit_scale"))
    return unsupported("the model scales its logits (logit_scale), which ibid does not run for mpt", "logit_scale");
  ASSIGN_OR_RETURN(const int64_t ratio, file.meta_int("expansion_ratio", 4));
  layer.ffn_len = std::clamp<int64_t>(config.width, 0, 65536) * std::clamp<int64_t>(ratio, 0, 65536);
  TRY(set_gpt_layers(layer, config));
  const std::string scale = "attn_config.softmax_scale";
  for (LayerConfig& of : config.layers) {
    if (file.has_meta(scale)) TRY(read_number(file, scale, 0.0, of.attention_scale));
  }
  config.norm_bias = false;
  finish(config);
  return config;
}

}  // namespace arch
}  // namespace ibid
