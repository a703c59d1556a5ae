// gpt-2: a learned row for each position, q, k and v in one matrix, biases everywhere; folders have matrices the other
// way around.
#include <algorithm>
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 17> kNames = {{
    {"token_embd.weight", "wte.weight"},
    {"position_embd.weight", "wpe.weight"},
    {"output_norm.weight", "ln_f.weight"},
    {"output_norm.bias", "ln_f.bias"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "h.{}.ln_1.weight"},
    {"blk.{}.attn_norm.bias", "h.{}.ln_1.bias"},
    {"blk.{}.attn_qkv.weight", "h.{}.attn.c_attn.weight", true},
    {"blk.{}.attn_qkv.bias", "h.{}.attn.c_attn.bias"},
    {"blk.{}.attn_output.weight", "h.{}.attn.c_proj.weight", true},
    {"blk.{}.attn_output.bias", "h.{}.attn.c_proj.bias"},
    {"blk.{}.ffn_norm.weight", "h.{}.ln_2.weight"},
    {"blk.{}.ffn_norm.bias", "h.{}.ln_2.bias"},
    {"blk.{}.ffn_up.weight", "h.{}.mlp.c_fc.weight", true},
    {"blk.{}.ffn_up.bias", "h.{}.mlp.c_fc.bias"},
    {"blk.{}.ffn_down.weight", "h.{}.mlp.c_proj.weight", true},
    {"blk.{}.ffn_down.bias", "h.{}.mlp.c_proj.bias"},
}};

void finish(ModelConfig& config) {
  config.fused_qkv = config.qkv_bias = config.attention_output_bias = config.ffn_bias = true;
  config.learned_positions = true;
  config.activation = FfnActivation::kGeluTanh;
  arch::set_no_rope(config);
}

}  // namespace

constinit const std::span<const WeightName> kGpt2Names = kNames;

namespace arch {

Result<ModelConfig> gpt2_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGpt, /*interleaved=*/false));
  finish(config);
  return config;
}

Result<ModelConfig> gpt2_from_folder(const ModelFile& file) {
  ModelConfig config;
  LayerConfig layer;
  config.shape = Shape::kGpt;
  config.architecture = "gpt2";
  ASSIGN_OR_RETURN(config.n_layers, file.meta_int("n_layer"));
  ASSIGN_OR_RETURN(config.width, file.meta_int("n_embd"));
  ASSIGN_OR_RETURN(layer.n_heads, file.meta_int("n_head"));
  ASSIGN_OR_RETURN(config.vocab_size, file.meta_int("vocab_size"));
  ASSIGN_OR_RETURN(config.trained_context_len, file.meta_int("n_positions"));
  ASSIGN_OR_RETURN(const double eps, file.meta_float("layer_norm_epsilon", 1e-5));
  ASSIGN_OR_RETURN(config.tied_embedding, file.meta_bool("tie_word_embeddings", true));
  TRY(must_be(file, "activation_function", "gelu_new"));
  TRY(flag_must_be(file, "scale_attn_weights", true));
  TRY(flag_must_be(file, "scale_attn_by_inverse_layer_idx", false));
  TRY(flag_must_be(file, "add_cross_attention", false));
  config.norm_eps = static_cast<float>(eps);
  const int64_t width = std::clamp<int64_t>(config.width, 0, 65536);
  ASSIGN_OR_RETURN(layer.ffn_len, file.meta_int("n_inner", 4 * width));
  TRY(set_gpt_layers(layer, config));
  finish(config);
  return config;
}

}  // namespace arch
}  // namespace ibid
