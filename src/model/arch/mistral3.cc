// mistral 3 and ministral 3 (of mistral small 4 see deepseek2.cc): mistral beside a vision tower, which stays unread,
// or alone; ministral's queries grow with their position (ModelConfig::query_scale), as its yarn scaling reaches beyond
// the original context.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {

Result<ModelConfig> mistral3_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/true));
  ASSIGN_OR_RETURN(const int64_t window, read_window(file, "mistral3.attention.sliding_window"));
  set_all_windows(config, window);
  ASSIGN_OR_RETURN(const double scale, file.meta_float("mistral3.attention.temperature_scale", 0.0));
  config.query_scale = static_cast<float>(scale);
  config.query_scale_len = config.ropes.front().original_context;
  return config;
}

Result<ModelConfig> mistral3_from_folder(const ModelFile& file) {
  const std::string prefix = file.has_meta("text_config.hidden_size") ? "text_config." : "";
  ASSIGN_OR_RETURN(const std::string kind, file.meta_string(prefix + "model_type", "mistral"));
  if (kind == "mistral4") return mistral4_from_folder(file);
  if (kind != "mistral" && kind != "ministral3") {
    return unsupported("the model's text part is " + in_quotes(kind) + "; ibid runs mistral, ministral3 and mistral4",
                       prefix + "model_type");
  }
  ASSIGN_OR_RETURN(ModelConfig config,
                   common_from_folder(file, Shape::kLlama, prefix, {.n_kv_heads = 8, .head_len = 128}));
  TRY(must_be(file, prefix + "hidden_act", "silu"));
  const std::string parameters = prefix + "rope_parameters";
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, prefix, parameters, 10000.0));
  ASSIGN_OR_RETURN(const double scale, file.meta_float(parameters + ".llama_4_scaling_beta", 0.0));
  config.query_scale = static_cast<float>(scale);
  config.query_scale_len = rope.original_context;
  config.ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(const int64_t window, read_window(file, prefix + "sliding_window"));
  set_all_windows(config, window);
  TRY(windows_from_layer_types(file, prefix, window, config));
  return config;
}

}  // namespace ibid::arch
