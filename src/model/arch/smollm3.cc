// smollm3: llama whose every fourth layer does not rotate (NoPE).
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {

constexpr int64_t kDefaultInterval = 4;

Status set_nope(ModelConfig& config, int64_t interval) {
  if (interval < 1) return invalid("no_rope_layer_interval is " + std::to_string(interval) + "; expected 1 or more");
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].rope = (static_cast<int64_t>(i) + 1) % interval == 0 ? kNoRope : 0;
  }
  return {};
}

}  // namespace

Result<ModelConfig> smollm3_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/true));
  TRY(set_nope(config, kDefaultInterval));  // the format has no key for it
  return config;
}

Result<ModelConfig> smollm3_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, "", {.tied_embedding = true}));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "attention_bias", false));
  TRY(flag_must_be(file, "mlp_bias", false));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 2000000.0));
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(int64_t interval, file.meta_int("no_rope_layer_interval", kDefaultInterval));
  TRY(set_nope(config, interval));
  if (file.has_meta("no_rope_layers")) {  // despite its name: 1 where a layer rotates
    ASSIGN_OR_RETURN(std::vector<int64_t> rotates, file.meta_ints("no_rope_layers"));
    if (rotates.size() < config.layers.size()) {
      return invalid("config.json's no_rope_layers has " + std::to_string(rotates.size()) + " entries for " +
                         std::to_string(config.layers.size()) + " layers",
                     "no_rope_layers");
    }
    for (size_t i = 0; i < config.layers.size(); ++i) config.layers[i].rope = rotates[i] != 0 ? 0 : kNoRope;
  }
  ASSIGN_OR_RETURN(bool slides, file.meta_bool("use_sliding_window", false));
  if (!slides) return config;
  ASSIGN_OR_RETURN(int64_t window, read_window(file, "sliding_window"));
  TRY(windows_from_layer_types(file, "", window, config));
  return config;
}

}  // namespace ibid::arch
