// bloom: slopes of heads in the place of positions (ALiBi), a norm of embeddings, biases everywhere; folders have a
// query, a key and a value of each head together.
#include <algorithm>
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 18> kNames = {{
    {"token_embd.weight", "word_embeddings.weight"},
    {"token_embd_norm.weight", "word_embeddings_layernorm.weight"},
    {"token_embd_norm.bias", "word_embeddings_layernorm.bias"},
    {"output_norm.weight", "ln_f.weight"},
    {"output_norm.bias", "ln_f.bias"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "h.{}.input_layernorm.weight"},
    {"blk.{}.attn_norm.bias", "h.{}.input_layernorm.bias"},
    {.canonical = "blk.{}.attn_qkv.weight", .folder = "h.{}.self_attention.query_key_value.weight", .by_head = true},
    {.canonical = "blk.{}.attn_qkv.bias", .folder = "h.{}.self_attention.query_key_value.bias", .by_head = true},
    {"blk.{}.attn_output.weight", "h.{}.self_attention.dense.weight"},
    {"blk.{}.attn_output.bias", "h.{}.self_attention.dense.bias"},
    {"blk.{}.ffn_norm.weight", "h.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_norm.bias", "h.{}.post_attention_layernorm.bias"},
    {"blk.{}.ffn_up.weight", "h.{}.mlp.dense_h_to_4h.weight"},
    {"blk.{}.ffn_up.bias", "h.{}.mlp.dense_h_to_4h.bias"},
    {"blk.{}.ffn_down.weight", "h.{}.mlp.dense_4h_to_h.weight"},
    {"blk.{}.ffn_down.bias", "h.{}.mlp.dense_4h_to_h.bias"},
}};

void finish(ModelConfig& config) {
  config.fused_qkv = config.qkv_bias = config.attention_output_bias = config.ffn_bias = true;
  config.embedding_norm = true;
  config.alibi_bias_max = 8.0f;  // neither container has a key for it
  config.activation = FfnActivation::kGeluTanh;
  arch::set_no_rope(config);
}

}  // namespace

constinit const std::span<const WeightName> kBloomNames = kNames;

namespace arch {

Result<ModelConfig> bloom_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGpt, /*interleaved=*/false));
  finish(config);
  return config;
}

Result<ModelConfig> bloom_from_folder(const ModelFile& file) {
  ModelConfig config;
  LayerConfig layer;
  config.shape = Shape::kGpt;
  config.architecture = "bloom";
  ASSIGN_OR_RETURN(config.n_layers, file.meta_int(file.has_meta("n_layer") ? "n_layer" : "num_hidden_layers"));
  ASSIGN_OR_RETURN(config.width, file.meta_int(file.has_meta("n_embed") ? "n_embed" : "hidden_size"));
  ASSIGN_OR_RETURN(layer.n_heads, file.meta_int(file.has_meta("n_head") ? "n_head" : "num_attention_heads"));
  ASSIGN_OR_RETURN(config.vocab_size, file.meta_int("vocab_size"));
  ASSIGN_OR_RETURN(config.trained_context_len, file.meta_int("seq_length", 2048));
  ASSIGN_OR_RETURN(const double eps, file.meta_float("layer_norm_epsilon", 1e-5));
  ASSIGN_OR_RETURN(config.tied_embedding, file.meta_bool("tie_word_embeddings", true));
  TRY(flag_must_be(file, "apply_residual_connection_post_layernorm", false));
  config.norm_eps = static_cast<float>(eps);
  layer.ffn_len = 4 * std::clamp<int64_t>(config.width, 0, 65536);
  TRY(set_gpt_layers(layer, config));
  finish(config);
  return config;
}

}  // namespace arch
}  // namespace ibid
