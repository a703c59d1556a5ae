#include <algorithm>
#include <cmath>
#include <utility>

#include "format/quant_recipe.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

// A key that may be left out where the architecture has a default.
Result<int64_t> number(const ModelFile& file, const std::string& key, int64_t otherwise) {
  return otherwise == 0 ? file.meta_int(key) : file.meta_int(key, otherwise);
}

}  // namespace

Result<ModelConfig> common_from_folder(const ModelFile& file, Shape shape, const std::string& prefix,
                                       const FolderDefaults& defaults) {
  ModelConfig config;
  LayerConfig layer;  // they are all alike
  config.shape = shape;
  ASSIGN_OR_RETURN(config.architecture,
                   file.meta_string(file.has_meta("model_type") ? "model_type" : prefix + "model_type"));
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (defaults.experts == Experts::kRefused && file.has_meta(prefix + key)) {
      return unsupported("the model is a mixture of experts (" + std::string(key) + "), which ibid does not run for " +
                             config.architecture,
                         key);
    }
  }
  ASSIGN_OR_RETURN(const QuantRecipe recipe, read_quant_recipe(file));
  if (recipe.method != QuantMethod::kNone && (recipe.method == QuantMethod::kMxfp4) != defaults.reads_mxfp4) {
    return unsupported("the folder's weights are quantised in a way that ibid does not read for " +
                           config.architecture + ": mxfp4 is gpt-oss's, and gpt-oss has no other",
                       "quantization_config");
  }
  ASSIGN_OR_RETURN(config.n_layers, number(file, prefix + "num_hidden_layers", defaults.n_layers));
  const std::string mtp_key =
      prefix + (file.has_meta(prefix + "mtp_num_hidden_layers") ? "mtp_num_hidden_layers" : "num_nextn_predict_layers");
  ASSIGN_OR_RETURN(config.n_mtp_layers, file.meta_int(mtp_key, 0));
  TRY(check_mtp_layers(config, mtp_key, kMostMtpLayers));
  ASSIGN_OR_RETURN(config.width, file.meta_int(prefix + "hidden_size"));
  ASSIGN_OR_RETURN(layer.ffn_len, file.meta_int(prefix + std::string(defaults.ffn_len_key)));
  ASSIGN_OR_RETURN(layer.n_heads, number(file, prefix + "num_attention_heads", defaults.n_heads));
  const int64_t n_kv_heads = defaults.n_kv_heads != 0 ? defaults.n_kv_heads : layer.n_heads;
  ASSIGN_OR_RETURN(layer.n_kv_heads, file.meta_int(prefix + "num_key_value_heads", n_kv_heads));
  ASSIGN_OR_RETURN(config.vocab_size, number(file, prefix + "vocab_size", defaults.vocab_size));
  ASSIGN_OR_RETURN(config.trained_context_len,
                   number(file, prefix + "max_position_embeddings", defaults.trained_context_len));
  const std::string eps_key = prefix + std::string(defaults.norm_eps_key);
  ASSIGN_OR_RETURN(double eps,
                   defaults.norm_eps != 0 ? file.meta_float(eps_key, defaults.norm_eps) : file.meta_float(eps_key));
  config.norm_eps = static_cast<float>(eps);
  if (layer.n_heads < 1) return invalid("the model has no query heads", prefix + "num_attention_heads");
  int64_t head_len = defaults.head_len;
  if (head_len == 0 && !file.has_meta(prefix + "head_dim")) {
    if (config.width % layer.n_heads != 0) {
      return invalid("the model's width " + std::to_string(config.width) + " is not a multiple of its " +
                         std::to_string(layer.n_heads) + " heads and it gives no head_dim",
                     prefix + "head_dim");
    }
    head_len = config.width / layer.n_heads;
  }
  ASSIGN_OR_RETURN(head_len, file.meta_int(prefix + "head_dim", head_len));
  layer.set_head_len(head_len);
  ASSIGN_OR_RETURN(bool tied, file.meta_bool("tie_word_embeddings", defaults.tied_embedding));
  ASSIGN_OR_RETURN(config.tied_embedding, file.meta_bool(prefix + "tie_word_embeddings", tied));
  if (config.n_layers < 1 || config.n_layers > 65536) TRY(validate(config));
  layer.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(layer.key_len)));
  config.layers.assign(static_cast<size_t>(config.n_layers), layer);
  if (layer.key_len < 1) TRY(validate(config));
  return config;
}

Status set_gpt_layers(const LayerConfig& of, ModelConfig& config) {
  const bool fits = config.width >= 1 && config.width <= 65536 && of.n_heads >= 1 && config.n_layers >= 1 &&
                    config.n_layers <= 65536 && config.width % of.n_heads == 0;
  if (!fits) {
    return invalid("the model has " + std::to_string(config.n_layers) + " layers, a width of " +
                   std::to_string(config.width) + " and " + std::to_string(of.n_heads) +
                   " heads; expected at least one of each, and a width that is a multiple of the heads");
  }
  LayerConfig layer = of;
  layer.n_kv_heads = layer.n_heads;
  layer.rope = kNoRope;
  layer.set_head_len(config.width / layer.n_heads);
  layer.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(layer.key_len)));
  config.layers.assign(static_cast<size_t>(config.n_layers), layer);
  return {};
}

Status check_mtp_layers(const ModelConfig& config, const std::string& key, int64_t most) {
  if (config.n_mtp_layers >= 0 && config.n_mtp_layers <= std::max<int64_t>(0, most)) return {};
  return invalid("the model states that " + std::to_string(config.n_mtp_layers) +
                     " of its layers draft further tokens; expected 0 to " + std::to_string(most),
                 key);
}

void set_no_rope(ModelConfig& config) {
  config.ropes.clear();
  for (LayerConfig& layer : config.layers) layer.rope = kNoRope;
}

Status check_layer_types(size_t n_types, int64_t n_layers, const std::string& key) {
  if (std::cmp_equal(n_types, n_layers)) return {};
  return invalid(
      "config.json gives " + std::to_string(n_types) + " layer types for " + std::to_string(n_layers) + " layers", key);
}

Status windows_from_layer_types(const ModelFile& file, const std::string& prefix, int64_t window, ModelConfig& config) {
  const std::string key = prefix + "layer_types";
  if (!file.has_meta(key)) return {};
  ASSIGN_OR_RETURN(std::vector<std::string> types, file.meta_strings(key));
  TRY(check_layer_types(types.size(), std::ssize(config.layers), key));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention") {
      config.layers[i].window = 0;
    } else if (types[i] != "sliding_attention") {
      return unsupported("layer " + std::to_string(i) + " is of type " + in_quotes(types[i]) +
                             "; ibid runs full_attention and sliding_attention",
                         key);
    } else if (window == 0) {
      return invalid("layer " + std::to_string(i) + " slides but config.json gives no sliding_window", key);
    } else {
      config.layers[i].window = static_cast<int32_t>(window);
    }
  }
  return {};
}

Status flag_must_be(const ModelFile& file, const std::string& key, bool value) {
  ASSIGN_OR_RETURN(bool found, file.meta_bool(key, value));
  if (found == value) return {};
  return unsupported("config.json sets " + in_quotes(key) + " to " + (found ? "true" : "false") +
                         ", which ibid does not run for this architecture",
                     key);
}

Status must_be(const ModelFile& file, const std::string& key, std::string_view value) {
  ASSIGN_OR_RETURN(std::string found, file.meta_string(key, std::string(value)));
  if (found == value) return {};
  return unsupported("config.json sets " + in_quotes(key) + " to " + in_quotes(found) +
                         "; ibid runs this architecture with " + in_quotes(value) + " only",
                     key);
}

}  // namespace ibid::arch
