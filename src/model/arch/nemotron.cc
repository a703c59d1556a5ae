// nemotron (minitron): half of a head turns, and the feed-forward squares what is positive.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 14> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output_norm.bias", "norm.bias"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.attn_norm.bias", "layers.{}.input_layernorm.bias"},
    {"blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_norm.bias", "layers.{}.post_attention_layernorm.bias"},
    {"blk.{}.ffn_up.weight", "layers.{}.mlp.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"},
}};

}  // namespace

constinit const std::span<const WeightName> kNemotronNames = kNames;

namespace arch {

Result<ModelConfig> nemotron_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGpt, /*interleaved=*/false));
  config.activation = FfnActivation::kRelu2;
  return config;
}

Result<ModelConfig> nemotron_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kGpt, "", {.norm_eps = 1e-5, .norm_eps_key = "norm_eps"}));
  TRY(must_be(file, "hidden_act", "relu2"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(flag_must_be(file, "mlp_bias", false));
  config.activation = FfnActivation::kRelu2;
  config.norm_offset = 1.0f;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  if (!file.has_meta("partial_rotary_factor") && !file.has_meta("rope_parameters.partial_rotary_factor"))
    rope.n_pairs = static_cast<int>(config.layers.front().key_len / 4);  // the architecture's own default
  config.ropes.push_back(std::move(rope));
  return config;
}

}  // namespace arch
}  // namespace ibid
