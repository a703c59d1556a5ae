// Nemotron-H and Nemotron 3 (Nano, Super, Ultra): each layer is a state space, attention without positions, a
// feed-forward that squares what is positive, or experts of that kind, which may read and give a narrower row.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 26> kNames = {{
    {"token_embd.weight", "embeddings.weight"},
    {"output_norm.weight", "norm_f.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.norm.weight"},
    {"blk.{}.attn_q.weight", "layers.{}.mixer.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.mixer.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.mixer.v_proj.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.mixer.o_proj.weight"},
    {"blk.{}.ssm_in.weight", "layers.{}.mixer.in_proj.weight"},
    {"blk.{}.ssm_conv1d.weight", "layers.{}.mixer.conv1d.weight"},
    {"blk.{}.ssm_conv1d.bias", "layers.{}.mixer.conv1d.bias"},
    {"blk.{}.ssm_a", "layers.{}.mixer.A_log"},
    {"blk.{}.ssm_d", "layers.{}.mixer.D"},
    {"blk.{}.ssm_dt.bias", "layers.{}.mixer.dt_bias"},
    {"blk.{}.ssm_norm.weight", "layers.{}.mixer.norm.weight"},
    {"blk.{}.ssm_out.weight", "layers.{}.mixer.out_proj.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.mixer.up_proj.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.mixer.down_proj.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.mixer.gate.weight"},
    {"blk.{}.exp_probs_b.bias", "layers.{}.mixer.gate.e_score_correction_bias"},
    {"blk.{}.ffn_up_exps.weight", "layers.{}.mixer.experts.{}.up_proj.weight"},
    {"blk.{}.ffn_down_exps.weight", "layers.{}.mixer.experts.{}.down_proj.weight"},
    {"blk.{}.ffn_up_shexp.weight", "layers.{}.mixer.shared_experts.up_proj.weight"},
    {"blk.{}.ffn_down_shexp.weight", "layers.{}.mixer.shared_experts.down_proj.weight"},
    {"blk.{}.ffn_latent_down.weight", "layers.{}.mixer.fc1_latent_proj.weight"},
    {"blk.{}.ffn_latent_up.weight", "layers.{}.mixer.fc2_latent_proj.weight"},
}};

constexpr Router kRouter = {.score = RouterScore::kSigmoid, .normalises = true, .sum_epsilon = 1e-20f};

enum class Part : uint8_t { kStateSpace, kAttention, kFfn, kExperts };

void set_for_all(ModelConfig& config) {
  config.one_part_layers = true;
  config.activation = FfnActivation::kRelu2;
  config.ssm_norm = SsmNorm::kAfterGate;
  arch::set_no_rope(config);
}

Status latent_len_from(const ModelFile& file, const std::string& key, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.expert_latent_len, file.meta_int(key, 0));
  if (config.expert_latent_len >= 0) return {};
  return invalid(
      "the model's experts read rows of " + std::to_string(config.expert_latent_len) + "; expected 1 or more", key);
}

// The folder's parts, by a pattern of letters or by a list of words; the key that gave them.
Result<std::vector<Part>> parts_of(const ModelFile& file, std::string& key) {
  std::vector<std::string> words;
  for (const char* of : {"layers_block_type", "layer_types"}) {
    if (!file.has_meta(of)) continue;
    key = of;
    ASSIGN_OR_RETURN(words, file.meta_strings(key));
    break;
  }
  if (words.empty()) {
    key = "hybrid_override_pattern";
    ASSIGN_OR_RETURN(const std::string pattern, file.meta_string(key));
    for (const char letter : pattern) words.emplace_back(1, letter);
  }
  struct Word {
    std::string_view text;
    Part part;
  };
  constexpr std::array<Word, 11> kWords = {{{"M", Part::kStateSpace},
                                            {"mamba", Part::kStateSpace},
                                            {"linear_attention", Part::kStateSpace},
                                            {"*", Part::kAttention},
                                            {"attention", Part::kAttention},
                                            {"full_attention", Part::kAttention},
                                            {"-", Part::kFfn},
                                            {"mlp", Part::kFfn},
                                            {"E", Part::kExperts},
                                            {"moe", Part::kExperts},
                                            {"expert", Part::kExperts}}};
  std::vector<Part> out;
  for (const std::string& word : words) {
    const auto* known = std::ranges::find(kWords, word, &Word::text);
    if (known == kWords.end()) {
      return unsupported("layer " + std::to_string(out.size()) + " is of type " + in_quotes(word) +
                             "; ibid runs mamba (M), attention (*), mlp (-) and moe (E)",
                         key);
    }
    out.push_back(known->part);
  }
  return out;
}

}  // namespace

constinit const std::span<const WeightName> kNemotronHNames = kNames;

namespace arch {

Result<ModelConfig> nemotron_h_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false, Experts::kRead));
  const std::string arch = config.architecture + ".";
  set_for_all(config);
  ASSIGN_OR_RETURN(const Mamba2Sizes sizes, mamba2_from_gguf(file, config));
  for (LayerConfig& layer : config.layers) {
    if (layer.ffn_len != 0) {
      set_no_attention(Mixer::kNone, layer);
    } else if (layer.n_kv_heads == 0) {
      set_no_attention(Mixer::kState, layer);
      TRY(sizes.put(layer));
    }
  }
  ASSIGN_OR_RETURN(const int64_t n_experts, file.meta_int(arch + "expert_count", 0));
  if (n_experts == 0) return config;
  TRY(latent_len_from(file, arch + "moe_latent_size", config));
  TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

Result<ModelConfig> nemotron_h_from_folder(const ModelFile& file) {
  std::string key;
  ASSIGN_OR_RETURN(const std::vector<Part> parts, parts_of(file, key));
  ASSIGN_OR_RETURN(const int64_t head_len, file.meta_int("attention_head_dim", 128));
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, "",
                                                          {.n_layers = std::ssize(parts),
                                                           .n_heads = 32,
                                                           .n_kv_heads = 8,
                                                           .head_len = head_len,
                                                           .norm_eps = 1e-5,
                                                           .norm_eps_key = "layer_norm_epsilon",
                                                           .experts = Experts::kRead}));
  TRY(check_layer_types(parts.size(), config.n_layers, key));
  TRY(must_be(file, "mlp_hidden_act", "relu2"));
  TRY(must_be(file, "mamba_hidden_act", "silu"));
  for (const char* bias : {"attention_bias", "mlp_bias", "use_bias"}) TRY(flag_must_be(file, bias, false));
  set_for_all(config);
  ASSIGN_OR_RETURN(const Mamba2Sizes sizes, mamba2_from_folder(file,
                                                               {.n_heads = "mamba_num_heads",
                                                                .n_groups = "n_groups",
                                                                .state_len = "ssm_state_size",
                                                                .conv_len = "conv_kernel",
                                                                .head_len = "mamba_head_dim",
                                                                .conv_bias = "use_conv_bias",
                                                                .proj_bias = "mamba_proj_bias",
                                                                .usual_groups = 8},
                                                               config));
  const std::vector<LayerConfig> plain = config.layers;
  const bool has_experts = std::ranges::find(parts, Part::kExperts) != parts.end();
  if (has_experts) {
    TRY(latent_len_from(file, "moe_latent_size", config));
    TRY(experts_from_folder(
        file, "", {.router = kRouter, .has_bias = true, .shared_len = "moe_shared_expert_intermediate_size"}, config));
  }
  for (size_t l = 0; l < parts.size(); ++l) {
    LayerConfig& layer = config.layers[l];
    if (parts[l] != Part::kExperts) layer = plain[l];
    if (parts[l] == Part::kStateSpace || parts[l] == Part::kAttention) layer.ffn_len = 0;
    if (parts[l] == Part::kAttention) continue;
    set_no_attention(parts[l] == Part::kStateSpace ? Mixer::kState : Mixer::kNone, layer);
    if (parts[l] == Part::kStateSpace) TRY(sizes.put(layer));
  }
  return config;
}

}  // namespace arch
}  // namespace ibid
