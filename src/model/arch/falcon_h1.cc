// Falcon-H1: in each layer attention and a state space read one norm, and their outputs are added. Folders have factors
// of what products read and give; the weights of GGUF files hold them.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 20> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "final_layernorm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.pre_ff_layernorm.weight"},
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
    {"blk.{}.ffn_gate.weight", "layers.{}.feed_forward.gate_proj.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.feed_forward.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.feed_forward.down_proj.weight"},
}};

Result<float> factor_of(const ModelFile& file, const std::string& key) {
  ASSIGN_OR_RETURN(const double value, file.meta_float(key, 1.0));
  return static_cast<float>(value);
}

Result<std::vector<double>> factors_of(const ModelFile& file, const std::string& key, size_t n) {
  std::vector<double> out(n, 1.0);
  if (!file.has_meta(key)) return out;
  ASSIGN_OR_RETURN(out, file.meta_floats(key));
  if (out.size() == n) return out;
  return invalid(
      "key " + in_quotes(key) + " has " + std::to_string(out.size()) + " numbers; expected " + std::to_string(n), key);
}

Result<Multipliers> multipliers_of(const ModelFile& file) {
  Multipliers m;
  ASSIGN_OR_RETURN(m.query, factor_of(file, "attention_in_multiplier"));
  ASSIGN_OR_RETURN(const float of_key, factor_of(file, "key_multiplier"));
  m.value = m.query;
  m.key = m.query * of_key;
  ASSIGN_OR_RETURN(m.attention, factor_of(file, "attention_out_multiplier"));
  ASSIGN_OR_RETURN(m.ssm, factor_of(file, "ssm_out_multiplier"));
  ASSIGN_OR_RETURN(const double into, file.meta_float("ssm_in_multiplier", 1.0));
  ASSIGN_OR_RETURN(const std::vector<double> of_parts, factors_of(file, "ssm_multipliers", 5));
  float* const parts[] = {&m.z, &m.x, &m.b, &m.c, &m.dt};
  for (size_t i = 0; i < of_parts.size(); ++i) *parts[i] = static_cast<float>(into * of_parts[i]);
  ASSIGN_OR_RETURN(const std::vector<double> of_ffn, factors_of(file, "mlp_multipliers", 2));
  m.gate = static_cast<float>(of_ffn[0]);
  m.down = static_cast<float>(of_ffn[1]);
  return m;
}

}  // namespace

constinit const std::span<const WeightName> kFalconH1Names = kNames;

namespace arch {

Result<ModelConfig> falcon_h1_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false));
  ASSIGN_OR_RETURN(const Mamba2Sizes sizes, mamba2_from_gguf(file, config));
  const bool has_norm =
      std::ranges::any_of(file.tensors(), [](const TensorInfo& t) { return t.name.ends_with(".ssm_norm.weight"); });
  config.ssm_norm = has_norm ? SsmNorm::kAfterGate : SsmNorm::kNone;  // a file has no key for the order
  for (LayerConfig& layer : config.layers) TRY(sizes.put(layer));
  return config;
}

Result<ModelConfig> falcon_h1_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, "", {.norm_eps = 1e-5}));
  TRY(must_be(file, "hidden_act", "silu"));
  for (const char* bias : {"attention_bias", "mlp_bias", "projectors_bias"}) TRY(flag_must_be(file, bias, false));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 1e11));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(config.embedding_scale, factor_of(file, "embedding_multiplier"));
  ASSIGN_OR_RETURN(config.logit_scale, factor_of(file, "lm_head_multiplier"));
  ASSIGN_OR_RETURN(config.multipliers, multipliers_of(file));
  ASSIGN_OR_RETURN(const bool has_norm, file.meta_bool("mamba_rms_norm", false));
  ASSIGN_OR_RETURN(const bool norms_first, file.meta_bool("mamba_norm_before_gate", true));
  config.ssm_norm = !has_norm ? SsmNorm::kNone : norms_first ? SsmNorm::kBeforeGate : SsmNorm::kAfterGate;
  ASSIGN_OR_RETURN(const Mamba2Sizes sizes, mamba2_from_folder(file,
                                                               {.n_heads = "mamba_n_heads",
                                                                .n_groups = "mamba_n_groups",
                                                                .state_len = "mamba_d_state",
                                                                .conv_len = "mamba_d_conv",
                                                                .inner = "mamba_d_ssm",
                                                                .expand = "mamba_expand",
                                                                .conv_bias = "mamba_conv_bias",
                                                                .proj_bias = "mamba_proj_bias",
                                                                .usual_groups = 1,
                                                                .usual_state_len = 256},
                                                               config));
  for (LayerConfig& layer : config.layers) TRY(sizes.put(layer));
  return config;
}

}  // namespace arch
}  // namespace ibid
