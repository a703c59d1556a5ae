// gpt-oss: every other layer slides, each head has a sink, and every product but that of the vocabulary has a bias. A
// folder keeps the rows of an expert's gate and up in turn, as columns or in blocks of MXFP4; GGUF keeps them apart.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 24> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.attn_q.bias", "layers.{}.self_attn.q_proj.bias"},
    {"blk.{}.attn_k.bias", "layers.{}.self_attn.k_proj.bias"},
    {"blk.{}.attn_v.bias", "layers.{}.self_attn.v_proj.bias"},
    {"blk.{}.attn_output.bias", "layers.{}.self_attn.o_proj.bias"},
    {"blk.{}.attn_sinks.weight", "layers.{}.self_attn.sinks"},
    {"blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.mlp.router.weight"},
    {"blk.{}.ffn_gate_inp.bias", "layers.{}.mlp.router.bias"},
    // WeightLoader::turned_experts.
    {"blk.{}.ffn_gate_up_exps.turned", "layers.{}.mlp.experts.gate_up_proj"},
    {"blk.{}.ffn_gate_up_exps.blocks", "layers.{}.mlp.experts.gate_up_proj_blocks"},
    {"blk.{}.ffn_gate_up_exps.exponents", "layers.{}.mlp.experts.gate_up_proj_scales"},
    {"blk.{}.ffn_gate_up_exps.bias", "layers.{}.mlp.experts.gate_up_proj_bias"},
    {"blk.{}.ffn_down_exps.turned", "layers.{}.mlp.experts.down_proj"},
    {"blk.{}.ffn_down_exps.blocks", "layers.{}.mlp.experts.down_proj_blocks"},
    {"blk.{}.ffn_down_exps.exponents", "layers.{}.mlp.experts.down_proj_scales"},
    {"blk.{}.ffn_down_exps.bias", "layers.{}.mlp.experts.down_proj_bias"},
}};

constexpr Router kRouter = {.score = RouterScore::kChosenSoftmax};
constexpr float kClamp = 7.0f;
constexpr int64_t kPeriod = 2;

void set_switches(ModelConfig& config) {
  config.qkv_bias = config.attention_output_bias = config.sinks = true;
  config.router_logit_bias = config.expert_bias = true;
  config.expert_clamp = kClamp;
}

}  // namespace

constinit const std::span<const WeightName> kGptOssNames = kNames;

namespace arch {

Result<ModelConfig> gpt_oss_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false, Experts::kRead));
  set_switches(config);
  config.ropes.front().truncate = false;  // what its yarn always does, for which GGUF has no key
  TRY(windows_from_gguf(file, kPeriod, config));
  TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

Result<ModelConfig> gpt_oss_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(
      ModelConfig config,
      common_from_folder(file, Shape::kLlama, "",
                         {.head_len = 64, .norm_eps = 1e-5, .experts = Experts::kRead, .reads_mxfp4 = true}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", true));
  set_switches(config);
  ASSIGN_OR_RETURN(const double alpha, file.meta_float("swiglu_alpha", 1.702));
  if (alpha != 1.702) return unsupported("gates with a slope other than 1.702", "swiglu_alpha");
  ASSIGN_OR_RETURN(const double limit, file.meta_float("swiglu_limit", double{kClamp}));
  if (!(limit > 0 && limit <= 1e6)) {
    return invalid("the model limits its experts' gates to " + std::to_string(limit) + "; expected a positive number",
                   "swiglu_limit");
  }
  config.expert_clamp = static_cast<float>(limit);
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 150000.0));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(const int64_t window, read_window(file, "sliding_window"));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    if (l % kPeriod == 0) config.layers[l].window = static_cast<int32_t>(window);
  }
  TRY(windows_from_layer_types(file, "", window, config));
  TRY(experts_from_folder(file, "", {.router = kRouter, .reads_norm = false}, config));
  return config;
}

}  // namespace arch
}  // namespace ibid
