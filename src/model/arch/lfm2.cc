// LFM2 and LFM2.5, dense and with experts: most layers are short convolutions, the others attention with norms of q's
// and k's heads. Beside a vision tower (lfm2_vl) the text model is the same.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 23> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "embedding_norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{}.attn_norm.weight", "layers.{}.operator_norm.weight"},
    {"blk.{}.ffn_norm.weight", "layers.{}.ffn_norm.weight"},
    {"blk.{}.shortconv.in_proj.weight", "layers.{}.conv.in_proj.weight"},
    {"blk.{}.shortconv.conv.weight", "layers.{}.conv.conv.weight"},
    {"blk.{}.shortconv.out_proj.weight", "layers.{}.conv.out_proj.weight"},
    {"blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"},
    {"blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"},
    {"blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"},
    {"blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_layernorm.weight"},
    {"blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_layernorm.weight"},
    {"blk.{}.attn_output.weight", "layers.{}.self_attn.out_proj.weight"},
    {"blk.{}.ffn_gate.weight", "layers.{}.feed_forward.w1.weight"},
    {"blk.{}.ffn_up.weight", "layers.{}.feed_forward.w3.weight"},
    {"blk.{}.ffn_down.weight", "layers.{}.feed_forward.w2.weight"},
    {"blk.{}.ffn_gate_inp.weight", "layers.{}.feed_forward.gate.weight"},
    {"blk.{}.exp_probs_b.bias", "layers.{}.feed_forward.expert_bias"},
    {"blk.{}.ffn_gate_exps.weight", "layers.{}.feed_forward.experts.{}.w1.weight"},
    {"blk.{}.ffn_up_exps.weight", "layers.{}.feed_forward.experts.{}.w3.weight"},
    {"blk.{}.ffn_down_exps.weight", "layers.{}.feed_forward.experts.{}.w2.weight"},
    {"blk.{}.ffn_gate_up_exps.weight", "layers.{}.feed_forward.experts.gate_up_proj"},
}};

constexpr Router kRouter = {.score = RouterScore::kSigmoid, .normalises = true, .sum_epsilon = 1e-6f};

}  // namespace

constinit const std::span<const WeightName> kLfm2Names = kNames;

namespace arch {

void set_short_conv(const ModelConfig& config, int64_t conv_len, LayerConfig& layer) {
  set_no_attention(Mixer::kState, layer);
  layer.recurrence = Recurrence::kShortConv;
  layer.conv_len = conv_len;
  layer.conv_channels = config.width;
  // Bounded here, as validate() reads what was multiplied.
  layer.state_len = conv_len > 0 && conv_len < 65536 && config.width < int64_t{1} << 32 ? layer.conv_state_len() : 0;
}

Result<ModelConfig> lfm2_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/false, Experts::kRead));
  const std::string arch = config.architecture + ".";
  ASSIGN_OR_RETURN(const bool is_causal, file.meta_bool(arch + "attention.causal", true));
  if (!is_causal) {
    return unsupported("the model reads a text in both directions; ibid runs LFM2 models that make tokens",
                       arch + "attention.causal");
  }
  ASSIGN_OR_RETURN(const int64_t conv_len, file.meta_int(arch + "shortconv.l_cache"));
  ASSIGN_OR_RETURN(const int64_t window, read_window(file, arch + "attention.sliding_window"));
  set_all_windows(config, window);
  config.qk_norm = true;
  for (LayerConfig& layer : config.layers) {
    if (layer.n_kv_heads == 0) set_short_conv(config, conv_len, layer);
  }
  ASSIGN_OR_RETURN(const int64_t n_experts, file.meta_int(arch + "expert_count", 0));
  if (n_experts != 0) TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

namespace {

// Whether each layer is a short convolution, by either of two keys; without them none is.
Result<std::vector<bool>> convolutions(const ModelFile& file, const std::string& prefix, size_t n_layers) {
  std::vector<bool> out(n_layers, false);
  if (const std::string key = prefix + "layer_types"; file.has_meta(key)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> types, file.meta_strings(key));
    TRY(check_layer_types(types.size(), static_cast<int64_t>(n_layers), key));
    for (size_t l = 0; l < n_layers; ++l) {
      out[l] = types[l] == "conv";
      if (out[l] || types[l] == "full_attention") continue;
      return unsupported(
          "layer " + std::to_string(l) + " is of type " + in_quotes(types[l]) + "; ibid runs full_attention and conv",
          key);
    }
  } else if (const std::string attention = prefix + "full_attn_idxs"; file.has_meta(attention)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> layers, file.meta_ints(attention));
    out.assign(n_layers, true);
    for (const int64_t l : layers) {
      if (l < 0 || l >= static_cast<int64_t>(n_layers)) {
        return invalid("config.json gives layer " + std::to_string(l) + " attention; the model has layers 0 to " +
                           std::to_string(n_layers - 1),
                       attention);
      }
      out[static_cast<size_t>(l)] = false;
    }
  }
  return out;
}

// The keys leave open how wide a feed-forward is (block_auto_adjust_ff_dim and those beside it); its tensors do not.
int64_t ffn_len_of(const ModelFile& file, int64_t otherwise) {
  for (const char* before : {"model.", "model.language_model.", "language_model.model."}) {
    const TensorInfo* gate = file.find(std::string(before) + "layers.0.feed_forward.w1.weight");
    if (gate != nullptr && gate->view.rank == 2) return gate->view.dim[0];
  }
  return otherwise;
}

}  // namespace

Result<ModelConfig> lfm2_from_folder(const ModelFile& file) {
  const std::string prefix = file.has_meta("text_config.hidden_size") ? "text_config." : "";
  const bool has_experts = file.has_meta(prefix + "num_experts");
  ASSIGN_OR_RETURN(
      ModelConfig config,
      common_from_folder(file, Shape::kLlama, prefix,
                         {.trained_context_len = 128000,
                          .norm_eps = 1e-5,
                          .tied_embedding = true,
                          .ffn_len_key = file.has_meta(prefix + "block_ff_dim") ? "block_ff_dim" : "intermediate_size",
                          .experts = Experts::kRead}));
  ASSIGN_OR_RETURN(const double eps, file.meta_float(prefix + "norm_eps", 1e-5));
  config.norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(config.tied_embedding, file.meta_bool(prefix + "tie_embedding", config.tied_embedding));
  TRY(flag_must_be(file, prefix + "conv_bias", false));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, prefix, prefix + "rope_parameters", 1e6));
  config.ropes.push_back(std::move(rope));
  config.qk_norm = true;
  const int64_t ffn_len = ffn_len_of(file, config.layers.front().ffn_len);
  ASSIGN_OR_RETURN(const int64_t conv_len, file.meta_int(prefix + "conv_L_cache", 3));
  ASSIGN_OR_RETURN(const std::vector<bool> is_convolution, convolutions(file, prefix, config.layers.size()));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    config.layers[l].ffn_len = ffn_len;
    if (is_convolution[l]) set_short_conv(config, conv_len, config.layers[l]);
  }
  if (!has_experts) return config;
  FolderExperts kind = {.router = kRouter};
  ASSIGN_OR_RETURN(kind.has_bias, file.meta_bool(prefix + "use_expert_bias", true));
  TRY(experts_from_folder(file, prefix, kind, config));
  return config;
}

}  // namespace arch
}  // namespace ibid
