#include <algorithm>
#include <array>
#include <cmath>

#include "model/arch/common.h"

namespace ibid::arch {
namespace {

// Sets a size of each layer to the key's number, or to each layer's where the key has one for each of `n_blocks`, the
// layers and what comes after them.
Status read_for_layers(const ModelFile& file, const std::string& key, int64_t n_blocks, ModelConfig& config,
                       int64_t LayerConfig::*size) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, file.meta_ints(key));
  if (values.size() != 1 && static_cast<int64_t>(values.size()) != n_blocks) {
    return invalid("key " + in_quotes(key) + " has " + std::to_string(values.size()) + " numbers for " +
                       std::to_string(n_blocks) + " layers; expected one, or one for each",
                   key);
  }
  for (size_t l = 0; l < config.layers.size(); ++l) config.layers[l].*size = values[values.size() == 1 ? 0 : l];
  return {};
}

// Heads as the file gives them, or as wide as the model together. A layer without any has the lengths of the first that
// has some; its mapping gives it another mixer, or validate() refuses it.
Status read_head_lens(const ModelFile& file, const std::string& arch, ModelConfig& config) {
  const std::string key_len = arch + "attention.key_length", value_len = arch + "attention.value_length";
  const auto first = std::ranges::find_if(config.layers, [](const LayerConfig& l) { return l.n_heads > 0; });
  const int64_t of_others = first == config.layers.end() ? 0 : first->n_heads;
  for (LayerConfig& layer : config.layers) {
    if (layer.n_heads == 0 && layer.n_kv_heads == 0 && file.has_meta(key_len)) {  // a recurrent one
      ASSIGN_OR_RETURN(layer.key_len, file.meta_int(key_len));
      continue;
    }
    const int64_t n_heads = layer.n_heads == 0 && layer.n_kv_heads == 0 ? of_others : layer.n_heads;
    if (n_heads < 1) return invalid("the model has no query heads", arch + "attention.head_count");
    if (!file.has_meta(key_len) && config.width % n_heads != 0) {
      return invalid("the model's width " + std::to_string(config.width) + " is not a multiple of its " +
                         std::to_string(n_heads) + " heads and it gives no head size",
                     key_len);
    }
    ASSIGN_OR_RETURN(layer.key_len, file.meta_int(key_len, config.width / n_heads));
    ASSIGN_OR_RETURN(layer.value_len, file.meta_int(value_len, layer.key_len));
    if (layer.key_len < 1) {
      return invalid("the model's head size is " + std::to_string(layer.key_len) + "; expected a multiple of 8",
                     key_len);
    }
    layer.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(layer.key_len)));
  }
  return {};
}

}  // namespace

// By llama.cpp's numbers; 0 is none, which specifies nothing.
Result<std::optional<Pooling>> pooling_from_gguf(const ModelFile& file, const std::string& key) {
  constexpr std::array<std::optional<Pooling>, 5> kKinds = {std::nullopt, Pooling::kMean, Pooling::kFirst,
                                                            Pooling::kLast, Pooling::kRank};
  ASSIGN_OR_RETURN(const int64_t kind, file.meta_int(key, 0));
  constexpr int64_t kNotSpecified = UINT32_MAX;  // as llama.cpp writes a model that it saves
  if (kind == kNotSpecified) return std::optional<Pooling>();
  if (kind < 0 || kind >= std::ssize(kKinds))
    return unsupported("the model pools its texts by kind " + std::to_string(kind) +
                           "; ibid knows 0 (none), 1 (mean), 2 (first), 3 (last) and 4 (rank)",
                       key);
  return kKinds[static_cast<size_t>(kind)];
}

Result<int64_t> bounded_size(const ModelFile& file, const std::string& key, int64_t most) {
  ASSIGN_OR_RETURN(const int64_t value, file.meta_int(key));
  if (value >= 1 && value <= most) return value;
  return invalid("key " + in_quotes(key) + " is " + std::to_string(value) + "; expected 1 to " + std::to_string(most),
                 key);
}

Result<ModelConfig> layers_from_gguf(const ModelFile& file, Shape shape, bool interleaved, Experts experts,
                                     Mixer mixer) {
  ModelConfig config;
  config.shape = shape;
  ASSIGN_OR_RETURN(config.architecture, file.meta_string("general.architecture"));
  const std::string arch = config.architecture + ".";
  if (experts == Experts::kRefused && file.has_meta(arch + "expert_count")) {
    ASSIGN_OR_RETURN(int64_t n_experts, file.meta_int(arch + "expert_count"));
    if (n_experts != 0) {
      return unsupported("the model is a mixture of " + std::to_string(n_experts) +
                             " experts, which ibid does not run for " + config.architecture,
                         arch + "expert_count");
    }
  }
  ASSIGN_OR_RETURN(config.n_layers, file.meta_int(arch + "block_count"));
  ASSIGN_OR_RETURN(config.n_mtp_layers, file.meta_int(arch + "nextn_predict_layers", 0));
  const int64_t most = std::clamp<int64_t>(config.n_layers, 1, kMostMtpLayers + 1) - 1;
  TRY(check_mtp_layers(config, arch + "nextn_predict_layers", most));
  const int64_t n_blocks = config.n_layers;
  config.n_layers -= config.n_mtp_layers;  // the last ones of them
  if (config.n_layers < 1 || config.n_layers > 65536) TRY(validate(config));
  config.layers.resize(static_cast<size_t>(config.n_layers), {.mixer = mixer});
  ASSIGN_OR_RETURN(config.width, file.meta_int(arch + "embedding_length"));
  const std::string heads = arch + "attention.head_count", kv_heads = arch + "attention.head_count_kv";
  // A model all of whose layers have experts may give their width alone.
  const std::string ffn = arch + "feed_forward_length", of_expert = arch + "expert_feed_forward_length";
  const bool gives_experts_alone = experts == Experts::kRead && !file.has_meta(ffn) && file.has_meta(of_expert);
  TRY(read_for_layers(file, gives_experts_alone ? of_expert : ffn, n_blocks, config, &LayerConfig::ffn_len));
  TRY(read_for_layers(file, heads, n_blocks, config, &LayerConfig::n_heads));
  TRY(read_for_layers(file, file.has_meta(kv_heads) ? kv_heads : heads, n_blocks, config, &LayerConfig::n_kv_heads));
  ASSIGN_OR_RETURN(config.trained_context_len, file.meta_int(arch + "context_length"));
  const bool has_means = file.has_meta(arch + "attention.layer_norm_epsilon");  // of norms that subtract them
  ASSIGN_OR_RETURN(double eps, file.meta_float(arch + (has_means ? "attention.layer_norm_epsilon"
                                                                 : "attention.layer_norm_rms_epsilon")));
  config.norm_eps = static_cast<float>(eps);
  TRY(read_head_lens(file, arch, config));
  config.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_gguf(file, config, interleaved));
  config.ropes.push_back(std::move(rope));
  return config;
}

Result<ModelConfig> common_from_gguf(const ModelFile& file, Shape shape, bool interleaved, Experts experts,
                                     Mixer mixer) {
  ASSIGN_OR_RETURN(ModelConfig config, layers_from_gguf(file, shape, interleaved, experts, mixer));
  const std::string arch = config.architecture + ".";
  const TensorInfo* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->view.rank != 2) {
    return invalid(file.path() + " has no matrix \"token_embd.weight\"; it is incomplete", "token_embd.weight");
  }
  config.vocab_size = embedding->view.dim[0];
  ASSIGN_OR_RETURN(int64_t said, file.meta_int(arch + "vocab_size", config.vocab_size));
  if (said != config.vocab_size) {
    return invalid("the model states that it has " + std::to_string(said) + " tokens but embeds " +
                       std::to_string(config.vocab_size),
                   arch + "vocab_size");
  }
  config.tied_embedding = file.find("output.weight") == nullptr;
  ASSIGN_OR_RETURN(config.pooling, pooling_from_gguf(file, arch + "pooling_type"));
  if (config.pooling == Pooling::kRank)
    return unsupported("the model ranks texts by a head that ibid runs for encoders alone", arch + "pooling_type");
  return config;
}

Status windows_by_period(int64_t period, int64_t window, ModelConfig& config) {
  if (period < 1)
    return invalid("the model's sliding window pattern is " + std::to_string(period) + "; expected 1 or more");
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].window = (static_cast<int64_t>(i) + 1) % period != 0 ? static_cast<int32_t>(window) : 0;
  }
  return {};
}

Status windows_from_gguf(const ModelFile& file, int64_t period, ModelConfig& config) {
  const std::string keys = config.architecture + ".attention.", pattern_key = keys + "sliding_window_pattern";
  ASSIGN_OR_RETURN(const int64_t window, read_window(file, keys + "sliding_window"));
  if (!file.has_meta(pattern_key)) return windows_by_period(period, window, config);
  ASSIGN_OR_RETURN(const std::vector<int64_t> pattern, file.meta_ints(pattern_key));
  if (pattern.size() == 1 && config.n_layers > 1) return windows_by_period(pattern[0], window, config);
  if (pattern.size() != config.layers.size()) {
    return invalid("the model's sliding window pattern has " + std::to_string(pattern.size()) + " entries for " +
                       std::to_string(config.layers.size()) + " layers",
                   pattern_key);
  }
  for (size_t i = 0; i < pattern.size(); ++i) {
    config.layers[i].window = pattern[i] != 0 ? static_cast<int32_t>(window) : 0;
  }
  return {};
}

void set_all_windows(ModelConfig& config, int64_t window) {
  for (LayerConfig& layer : config.layers) layer.window = static_cast<int32_t>(window);
}

Result<int64_t> read_window(const ModelFile& file, const std::string& key) {
  ASSIGN_OR_RETURN(int64_t window, file.meta_int(key, 0));
  if (window < 0 || window > (int64_t{1} << 30)) {
    return invalid("the model's sliding window is " + std::to_string(window) + "; expected 0 (none) to 2^30", key);
  }
  return window;
}

}  // namespace ibid::arch
