// glm-4: norms on both sides, gate and up in one matrix, biases of q, k and v, and neighbours that turn in the first
// half of a head, in either container.
#include <array>

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
    {"blk.{}.attn_q.bias", "layers.{}.self_attn.q_proj.bias"},
    {"blk.{}.attn_k.bias", "layers.{}.self_attn.k_proj.bias"},
    {"blk.{}.attn_v.bias", "layers.{}.self_attn.v_proj.bias"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.post_attention_norm.weight", "layers.{}.post_self_attn_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.mlp.gate_up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"},
    {"blk.{}.post_ffw_norm.weight", "layers.{}.post_mlp_layernorm.weight"},
}};

}  // namespace

constinit const std::span<const WeightName> kGlm4Names = kNames;

namespace arch {

Result<ModelConfig> glm4_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kGemma, /*interleaved=*/true));
  config.fused_gate_up = true;
  return config;
}

Result<ModelConfig> glm4_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kGemma, "",
                                                          {.n_kv_heads = 2, .head_len = 128, .norm_eps = 1.5625e-7}));
  TRY(must_be(file, "hidden_act", "silu"));
  ASSIGN_OR_RETURN(config.qkv_bias, file.meta_bool("attention_bias", true));
  config.fused_gate_up = true;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  rope.interleaved = true;
  if (!file.has_meta("partial_rotary_factor") && !file.has_meta("rope_parameters.partial_rotary_factor"))
    rope.n_pairs = static_cast<int>(config.layers.front().key_len / 4);  // the architecture's own default
  config.ropes.push_back(std::move(rope));
  return config;
}

}  // namespace arch
}  // namespace ibid
