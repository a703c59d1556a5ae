#include "model/draft_layer.h"

#include <string>
#include <utility>

#include "model/arch/common.h"

namespace ibid {

Result<ModelConfig> read_draft_layer(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   arch::common_from_folder(file, Shape::kLlama, "", {.trained_context_len = 2048, .norm_eps = 1e-6}));
  if (config.n_layers != 1) {
    return unsupported(
        file.path() + ": a draft head of " + std::to_string(config.n_layers) + " layers; ibid runs those of one",
        "num_hidden_layers");
  }
  TRY(arch::must_be(file, "hidden_act", "silu"));
  TRY(arch::flag_must_be(file, "mlp_bias", false));
  TRY(arch::flag_must_be(file, "rope_interleaved", false));
  ASSIGN_OR_RETURN(RopeConfig rope, arch::rope_from_folder(file, config, "", "rope_parameters", 10000.0));
  config.ropes.push_back(std::move(rope));
  TRY(validate(config));
  return config;
}

}  // namespace ibid
