// phi-3 and phi-4-mini: q, k, v in one matrix, gate and up in another, longrope, windows in some.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 11> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"rope_factors_short.weight", ""},
    {"rope_factors_long.weight", ""},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.attn_qkv.weight", "layers.{}.self_attn.qkv_proj.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.mlp.gate_up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"},
}};

}  // namespace

constinit const std::span<const WeightName> kPhi3Names = kNames;

namespace arch {

Result<ModelConfig> phi3_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false));
  config.fused_qkv = config.fused_gate_up = true;
  ASSIGN_OR_RETURN(int64_t window, read_window(file, "phi3.attention.sliding_window"));
  set_all_windows(config, window);
  return config;
}

Result<ModelConfig> phi3_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, ""));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  config.fused_qkv = config.fused_gate_up = true;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(int64_t window, read_window(file, "sliding_window"));
  set_all_windows(config, window);
  return config;
}

}  // namespace arch
}  // namespace ibid
