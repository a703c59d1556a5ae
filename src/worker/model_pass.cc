#include "worker/model_pass.h"

#include <algorithm>

#include "model/eviction.h"

namespace ibid {

namespace {

int32_t widest_window(std::span<const KvGeometry> layers) {
  int32_t widest = 0;
  for (const KvGeometry& layer : layers) {
    if (layer.kind == KvKind::kNothing) continue;
    if (layer.window == 0) return 0;
    widest = std::max(widest, layer.window);
  }
  return widest;
}

}  // namespace

ModelPass::ModelPass(Model& model, Stream& stream, std::span<const TokenId> end_of_generation, std::string digest)
    : model_(model), stream_(stream) {
  const ModelConfig& config = model.config();
  facts_ = {.layers = model.kv_geometries(),
            .state_bytes = model.state_layout().slot_bytes(),
            .state_layout = model.state_layout().name(),
            .vocab_size = static_cast<int32_t>(config.vocab_size),
            .width = static_cast<int32_t>(config.width),
            .window = widest_window(model.kv_geometries()),
            .no_eviction = what_forbids_eviction(config) == nullptr ? "" : what_forbids_eviction(config),
            .context_len = static_cast<int32_t>(model.context_len()),
            .digest = std::move(digest),
            .rope = model.rope_signature(),
            .end_of_generation = {end_of_generation.begin(), end_of_generation.end()}};
  if (const LayerConfig* layer = config.first_with_experts(); layer != nullptr) {
    facts_.n_experts = static_cast<int32_t>(layer->n_experts);
    facts_.n_experts_used = static_cast<int32_t>(layer->n_experts_used);
  }
  if (config.takes_pictures()) {
    facts_.picture_row_len = static_cast<int32_t>(config.width * (1 + config.n_picture_layers));
    facts_.turns_by_axes = !config.ropes.empty() && !config.ropes.front().axes.empty();
    facts_.sees_whole_pictures = config.sees_whole_pictures();
  }
  if (config.is_encoder()) {
    facts_.encoder = {.n_layers = static_cast<int32_t>(config.n_layers),
                      .n_labels = static_cast<int32_t>(config.n_labels)};
  }
}

}  // namespace ibid
