#include "engine/model_pass.h"

#include <algorithm>

namespace ibid {

namespace {

int32_t window_of(const Model& model) {
  int32_t widest = 0;
  for (int layer = 0; layer < model.config().n_layers; ++layer) {
    const int32_t window = model.kv_geometry(layer).window;
    if (window == 0) return 0;
    widest = std::max(widest, window);
  }
  return widest;
}

}  // namespace

ModelPass::ModelPass(Model& model, Stream& stream, std::span<const TokenId> end_of_generation, std::string digest)
    : model_(model), stream_(stream) {
  const ModelConfig& config = model.config();
  const KvGeometry geometry = model.kv_geometry(0);
  facts_ = {.n_layers = static_cast<int32_t>(config.n_layers),
            .n_kv_heads = geometry.n_kv_heads,
            .head_len = geometry.head_len,
            .vocab_size = static_cast<int32_t>(config.vocab_size),
            .window = window_of(model),
            .context_len = static_cast<int32_t>(model.max_context()),
            .digest = std::move(digest),
            .rope = model.rope_signature(),
            .end_of_generation = {end_of_generation.begin(), end_of_generation.end()}};
}

}  // namespace ibid
