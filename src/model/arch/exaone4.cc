// exaone 4: norms of q's and k's heads; the larger model has windows in three of four layers and does not rotate in the
// fourth.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr int64_t kPeriod = 4, kLayersWithWindows = 64, kWindow = 4096;  // of the larger model

// Where some layers have windows, those that see everything do not rotate.
void set_nope(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) layer.rope = layer.window != 0 ? 0 : kNoRope;
}

// "LLLG": a letter for each layer, again and again; the last layer sees everything.
Status windows_from_letters(const std::string& letters, int64_t window, ModelConfig& config) {
  if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos) {
    return invalid("config.json's sliding_window_pattern is " + in_quotes(letters) + "; expected letters L and G",
                   "sliding_window_pattern");
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool slides = letters[i % letters.size()] == 'L' && i + 1 < config.layers.size();
    config.layers[i].window = slides ? static_cast<int32_t>(window) : 0;
  }
  return {};
}

Status windows_from_pattern(const ModelFile& file, int64_t window, ModelConfig& config) {
  const std::string key = "sliding_window_pattern";
  if (const Result<std::string> letters = file.meta_string(key, ""); letters.ok() && !letters->empty())
    return windows_from_letters(*letters, window, config);
  ASSIGN_OR_RETURN(const int64_t period, file.meta_int(key, kPeriod));
  return windows_by_period(period, window, config);
}

}  // namespace

Result<ModelConfig> exaone4_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kPostNorm, /*interleaved=*/false));
  config.qk_norm = true;
  if (file.has_meta("exaone4.attention.sliding_window")) {
    TRY(windows_from_gguf(file, kPeriod, config));
  } else if (config.n_layers == kLayersWithWindows) {
    TRY(windows_by_period(kPeriod, kWindow, config));
  } else {
    return config;
  }
  set_nope(config);
  return config;
}

Result<ModelConfig> exaone4_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kPostNorm, "", {.norm_eps = 1e-5}));
  TRY(must_be(file, "hidden_act", "silu"));
  config.qk_norm = true;
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(const int64_t window, read_window(file, "sliding_window"));
  if (window == 0) return config;
  if (file.has_meta("layer_types")) {
    TRY(windows_from_layer_types(file, "", window, config));
  } else {
    TRY(windows_from_pattern(file, window, config));
  }
  set_nope(config);
  return config;
}

}  // namespace ibid::arch
