#include "model/eviction.h"

namespace ibid {

const char* what_forbids_eviction(const ModelConfig& config) {
  if (config.is_encoder()) return "no keys and values that outlive a step";
  if (config.first_recurrent() != nullptr) return "recurrent layers, whose states no token can be taken out of";
  if (config.first_with(Mixer::kLatent) != nullptr) return "latent attention";
  if (config.first_with(Mixer::kAttention) == nullptr) return "no attention";
  if (config.sinks) return "attention sinks";
  if (config.alibi_bias_max != 0) return "ALiBi, whose distances count rows";
  if (config.attention_soft_cap != 0) return "capped scores";
  for (const LayerConfig& layer : config.layers) {
    if (layer.window > 0) return "layers with a sliding window";
    if (layer.kv_owner != kOwnCache) return "layers that read other layers' keys and values";
  }
  return nullptr;
}

}  // namespace ibid
