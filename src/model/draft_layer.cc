#include "model/draft_layer.h"

#include <array>
#include <utility>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::string_view kEagle3 = "eagle3";

// Those that no llama has. The second norm before the attention went by two names.
constexpr std::array<WeightName, 3> kNames = {{{"blk.0.attn_norm_2", "layers.0.hidden_norm"},
                                               {"blk.0.hidden_norm", "layers.0.hidden_norm"},
                                               {"enc.output_norm", "input_norm"}}};

Result<ModelConfig> from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, arch::layers_from_gguf(file, Shape::kLlama, /*interleaved=*/true));
  ASSIGN_OR_RETURN(const int64_t window, arch::read_window(file, "eagle3.attention.sliding_window"));
  arch::set_all_windows(config, window);
  return config;
}

Result<ModelConfig> from_folder(const ModelFile& file) {
  const std::string inner(kSpeculatorsLayer);
  const std::string prefix = file.has_meta(inner + "hidden_size") ? inner : "";
  ASSIGN_OR_RETURN(ModelConfig config, arch::common_from_folder(file, Shape::kLlama, prefix,
                                                                {.trained_context_len = 2048, .norm_eps = 1e-6}));
  TRY(arch::must_be(file, prefix + "hidden_act", "silu"));
  TRY(arch::flag_must_be(file, prefix + "mlp_bias", false));
  TRY(arch::flag_must_be(file, prefix + "rope_interleaved", false));
  // Configurations that were copied from a target's list all of its layers; the head's is the first.
  if (file.has_meta(prefix + "layer_types")) {
    ASSIGN_OR_RETURN(const std::vector<std::string> types, file.meta_strings(prefix + "layer_types"));
    if (!types.empty() && types.front() == "sliding_attention") arch::set_all_windows(config, 1);
  }
  ASSIGN_OR_RETURN(RopeConfig rope, arch::rope_from_folder(file, config, prefix, prefix + "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  return config;
}

}  // namespace

bool is_eagle3_gguf(const ModelFile& file) {
  const auto architecture = file.meta_string("general.architecture", "");
  return architecture && *architecture == kEagle3;
}

std::string eagle3_folder_name(std::string_view gguf_name) {
  for (const WeightName& name : kNames) {
    if (name.canonical == gguf_name) return std::string(name.folder);
  }
  for (const WeightName& name : kLlamaNames) {
    const auto of_first = [](std::string_view pattern) {
      std::string out(pattern.substr(0, pattern.rfind('.')));  // without .weight
      if (const size_t at = out.find("{}"); at != std::string::npos) out.replace(at, 2, "0");
      return out;
    };
    if (of_first(name.canonical) == gguf_name) return of_first(name.folder);
  }
  return std::string(gguf_name);
}

Result<ModelConfig> read_draft_layer(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, is_eagle3_gguf(file) ? from_gguf(file) : from_folder(file));
  if (config.n_layers != 1) {
    return unsupported(
        file.path() + ": a draft head of " + std::to_string(config.n_layers) + " layers; ibid runs those of one",
        "num_hidden_layers");
  }
  if (config.layers.front().window != 0)
    return unsupported(file.path() + ": a draft head of a sliding window; ibid's read all of a text", "layer_types");
  config.vocab_size = 1;  // the model's; the head need not state it
  TRY(validate(config));
  return config;
}

}  // namespace ibid
