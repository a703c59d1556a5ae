// Granite 4: state spaces in most layers and attention in the others, or attention in all, mostly without positions;
// experts beside shared ones, or those shared ones alone; scales as all of granite's.
#include <array>
#include <string>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 25> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.ssm_in.weight", "layers.{}.mamba.in_proj.weight"},
    {"blk.{}.ssm_conv1d.weight", "layers.{}.mamba.conv1d.weight"},
    {"blk.{}.ssm_conv1d.bias", "layers.{}.mamba.conv1d.bias"},
    {"blk.{}.ssm_a", "layers.{}.mamba.A_log"},
    {"blk.{}.ssm_d", "layers.{}.mamba.D"},
    {"blk.{}.ssm_dt.bias", "layers.{}.mamba.dt_bias"},
    {"blk.{}.ssm_norm.weight", "layers.{}.mamba.norm.weight"},
    {"blk.{}.ssm_out.weight", "layers.{}.mamba.out_proj.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.shared_mlp.input_linear.weight"},  // gate above up
    {"blk.{}.ffn_down.weight", "layers.{}.shared_mlp.output_linear.weight"},
    {"blk.{}.ffn_up_shexp.weight", "layers.{}.shared_mlp.input_linear.weight"},
    {"blk.{}.ffn_down_shexp.weight", "layers.{}.shared_mlp.output_linear.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.router.layer.weight"},
    {"blk.{}.ffn_gate_up_exps.weight", "layers.{}.block_sparse_moe.input_linear.weight"},
    {"blk.{}.ffn_down_exps.weight", "layers.{}.block_sparse_moe.output_linear.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.router.weight"},
}};

constexpr Router kRouter = {.score = RouterScore::kChosenSoftmax};

}  // namespace

constinit const std::span<const WeightName> kGraniteHybridNames = kNames;

namespace arch {

Result<ModelConfig> granitehybrid_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/true, Experts::kRead));
  const std::string arch = config.architecture + ".";
  TRY(granite_scales_from_gguf(file, config));
  ASSIGN_OR_RETURN(const Mamba2Sizes sizes, mamba2_from_gguf(file, config));
  ASSIGN_OR_RETURN(const bool rotates, file.meta_bool(arch + "rope.scaling.finetuned", true));
  config.ssm_norm = SsmNorm::kAfterGate;
  for (LayerConfig& layer : config.layers) {
    layer.rope = rotates ? 0 : kNoRope;
    if (layer.n_kv_heads != 0) continue;
    set_no_attention(Mixer::kState, layer);
    TRY(sizes.put(layer));
  }
  if (!rotates) config.ropes.clear();
  ASSIGN_OR_RETURN(const int64_t n_experts, file.meta_int(arch + "expert_count", 0));
  if (n_experts != 0) TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

Result<ModelConfig> granitehybrid_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(
      ModelConfig config,
      common_from_folder(file, Shape::kLlama, "",
                         {.norm_eps = 1e-6, .ffn_len_key = "shared_intermediate_size", .experts = Experts::kRead}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(granite_scales_from_folder(file, config));
  config.fused_gate_up = true;
  config.ssm_norm = SsmNorm::kAfterGate;
  ASSIGN_OR_RETURN(const std::string positions, file.meta_string("position_embedding_type", "nope"));
  if (positions == "rope") {
    ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
    config.ropes.push_back(std::move(rope));
  } else {
    set_no_rope(config);
  }
  ASSIGN_OR_RETURN(const Mamba2Sizes sizes, mamba2_from_folder(file,
                                                               {.n_heads = "mamba_n_heads",
                                                                .n_groups = "mamba_n_groups",
                                                                .state_len = "mamba_d_state",
                                                                .conv_len = "mamba_d_conv",
                                                                .expand = "mamba_expand",
                                                                .conv_bias = "mamba_conv_bias",
                                                                .proj_bias = "mamba_proj_bias",
                                                                .usual_groups = 1,
                                                                .usual_state_len = 256},
                                                               config));
  const std::string key = file.has_meta("layer_types") ? "layer_types" : "layers_block_type";
  ASSIGN_OR_RETURN(const std::vector<std::string> types, file.meta_strings(key));
  TRY(check_layer_types(types.size(), config.n_layers, key));
  for (size_t l = 0; l < types.size(); ++l) {
    if (types[l] == "attention" || types[l] == "full_attention") continue;
    if (types[l] != "mamba" && types[l] != "linear_attention") {
      return unsupported("layer " + std::to_string(l) + " is of type " + in_quotes(types[l]) +
                             "; ibid runs mamba (linear_attention) and attention (full_attention)",
                         key);
    }
    set_no_attention(Mixer::kState, config.layers[l]);
    TRY(sizes.put(config.layers[l]));
  }
  ASSIGN_OR_RETURN(const int64_t n_experts, file.meta_int("num_local_experts", 0));
  if (n_experts == 0) return config;
  TRY(experts_from_folder(file, "", {.router = kRouter, .reads_norm = false, .shared_len = "shared_intermediate_size"},
                          config));
  return config;
}

}  // namespace arch
}  // namespace ibid
