// llama and mistral (and what copies them: smollm, smollm2, tinyllama, yi ...), and mixtral, which is mistral with
// experts and which GGUF calls llama.
//
// GGUF stores the rows of q and k so that rotated pairs are neighbours; folders keep halves apart. The scores are the
// same sums in another order.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 65> kNames = {{
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
    {"blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_norm.weight"},
    {"blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_norm.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_gate.weight", "layers.{}.mlp.gate_proj.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.mlp.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"},
    // Experts: qwen, deepseek and those after them; mixtral, minimax; granite; hunyuan; ernie.
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.mlp.gate.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.gate.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.router.layer.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.mlp.router.gate.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.mlp.gate.wg.weight"},
    {"blk.{}.attn_q_norm.weight", "layers.{}.self_attn.query_layernorm.weight"},
    {"blk.{}.attn_k_norm.weight", "layers.{}.self_attn.key_layernorm.weight"},
    {"blk.{}.exp_probs_b.bias", "layers.{}.mlp.gate.e_score_correction_bias"},
    {"blk.{}.exp_probs_b.bias", "layers.{}.mlp.expert_bias"},
    {"blk.{}.exp_probs_b.bias", "layers.{}.mlp.moe_statics.e_score_correction_bias"},
    {"blk.{}.exp_probs_b.bias", "layers.{}.block_sparse_moe.e_score_correction_bias"},
    {"blk.{}.ffn_gate_up_exps.weight", "layers.{}.mlp.experts.gate_up_proj"},
    {"blk.{}.ffn_gate_up_exps.weight", "layers.{}.block_sparse_moe.input_linear.weight"},
    {"blk.{}.ffn_gate_exps.weight", "layers.{}.mlp.experts.{}.gate_proj.weight"},
    {"blk.{}.ffn_gate_exps.weight", "layers.{}.block_sparse_moe.experts.{}.w1.weight"},
    {"blk.{}.ffn_up_exps.weight", "layers.{}.mlp.experts.{}.up_proj.weight"},
    {"blk.{}.ffn_up_exps.weight", "layers.{}.block_sparse_moe.experts.{}.w3.weight"},
    {"blk.{}.ffn_down_exps.weight", "layers.{}.mlp.experts.{}.down_proj.weight"},
    {"blk.{}.ffn_down_exps.weight", "layers.{}.block_sparse_moe.experts.{}.w2.weight"},
    {"blk.{}.ffn_down_exps.weight", "layers.{}.mlp.experts.down_proj"},
    {"blk.{}.ffn_down_exps.weight", "layers.{}.block_sparse_moe.output_linear.weight"},
    {"blk.{}.ffn_gate_inp_shexp.weight", "layers.{}.mlp.shared_expert_gate.weight"},
    {"blk.{}.ffn_gate_shexp.weight", "layers.{}.mlp.shared_expert.gate_proj.weight"},
    {"blk.{}.ffn_gate_shexp.weight", "layers.{}.mlp.shared_experts.gate_proj.weight"},
    {"blk.{}.ffn_gate_shexp.weight", "layers.{}.mlp.shared_mlp.gate_proj.weight"},
    {"blk.{}.ffn_up_shexp.weight", "layers.{}.mlp.shared_expert.up_proj.weight"},
    {"blk.{}.ffn_up_shexp.weight", "layers.{}.mlp.shared_experts.up_proj.weight"},
    {"blk.{}.ffn_up_shexp.weight", "layers.{}.mlp.shared_mlp.up_proj.weight"},
    {"blk.{}.ffn_down_shexp.weight", "layers.{}.mlp.shared_expert.down_proj.weight"},
    {"blk.{}.ffn_down_shexp.weight", "layers.{}.mlp.shared_experts.down_proj.weight"},
    {"blk.{}.ffn_down_shexp.weight", "layers.{}.mlp.shared_mlp.down_proj.weight"},
    // Gated delta nets: qwen3-next, whose parts of a key head are together, and qwen3.5.
    {"blk.{}.ssm_in.weight", "layers.{}.linear_attn.in_proj_qkvz.weight"},
    {"blk.{}.ssm_ba.weight", "layers.{}.linear_attn.in_proj_ba.weight"},
    {"blk.{}.attn_qkv.weight", "layers.{}.linear_attn.in_proj_qkv.weight"},
    {"blk.{}.attn_gate.weight", "layers.{}.linear_attn.in_proj_z.weight"},
    {"blk.{}.ssm_beta.weight", "layers.{}.linear_attn.in_proj_b.weight"},
    {"blk.{}.ssm_alpha.weight", "layers.{}.linear_attn.in_proj_a.weight"},
    {"blk.{}.ssm_conv1d.weight", "layers.{}.linear_attn.conv1d.weight"},
    {"blk.{}.ssm_a", "layers.{}.linear_attn.A_log"},
    {"blk.{}.ssm_dt.bias", "layers.{}.linear_attn.dt_bias"},
    {"blk.{}.ssm_norm.weight", "layers.{}.linear_attn.norm.weight"},
    {"blk.{}.ssm_out.weight", "layers.{}.linear_attn.out_proj.weight"},
    // Latent attention.
    {"blk.{}.attn_q_a.weight", "layers.{}.self_attn.q_a_proj.weight"},
    {"blk.{}.attn_q_a_norm.weight", "layers.{}.self_attn.q_a_layernorm.weight"},
    {"blk.{}.attn_q_b.weight", "layers.{}.self_attn.q_b_proj.weight"},
    {"blk.{}.attn_kv_a_mqa.weight", "layers.{}.self_attn.kv_a_proj_with_mqa.weight"},
    {"blk.{}.attn_kv_a_norm.weight", "layers.{}.self_attn.kv_a_layernorm.weight"},
    {"blk.{}.attn_kv_b.weight", "layers.{}.self_attn.kv_b_proj.weight"},
}};

}  // namespace

constinit const std::span<const WeightName> kLlamaNames = kNames;

namespace arch {
namespace {
constexpr Router kMixtralRouter = {.normalises = true};
}

Result<ModelConfig> llama_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/true, Experts::kRead));
  ASSIGN_OR_RETURN(int64_t window, read_window(file, "llama.attention.sliding_window"));
  set_all_windows(config, window);
  ASSIGN_OR_RETURN(const int64_t n_experts, file.meta_int("llama.expert_count", 0));
  if (n_experts != 0) TRY(experts_from_gguf(file, kMixtralRouter, config));
  return config;
}

namespace {
Result<ModelConfig> plain_from_folder(const ModelFile& file, const FolderDefaults& defaults = {}) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, "", defaults));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(flag_must_be(file, "mlp_bias", false));
  TRY(flag_must_be(file, "rope_interleaved", false));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  return config;
}
}  // namespace

Result<ModelConfig> llama_from_folder(const ModelFile& file) { return plain_from_folder(file); }

Result<ModelConfig> mistral_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, plain_from_folder(file));
  ASSIGN_OR_RETURN(int64_t window, read_window(file, "sliding_window"));
  set_all_windows(config, window);
  TRY(windows_from_layer_types(file, "", window, config));
  return config;
}

Result<ModelConfig> mixtral_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, plain_from_folder(file, {.experts = Experts::kRead}));
  ASSIGN_OR_RETURN(int64_t window, read_window(file, "sliding_window"));
  set_all_windows(config, window);
  TRY(experts_from_folder(file, "", {.router = kMixtralRouter, .reads_norm = false}, config));
  return config;
}

}  // namespace arch
}  // namespace ibid
