#include "model/kv_arithmetic.h"

#include <array>
#include <cstdio>
#include <vector>

namespace ibid {

KvGeometry kv_geometry(const ModelConfig& config, int layer) {
  const LayerConfig& l = config.layers[static_cast<size_t>(layer)];
  if (l.mixer == Mixer::kState || l.mixer == Mixer::kNone) return {.kind = KvKind::kNothing};
  return {.kind = l.mixer == Mixer::kLatent ? KvKind::kLatent : KvKind::kHeads,
          .n_kv_heads = static_cast<int32_t>(l.n_kv_heads),
          .key_len = static_cast<int32_t>(l.key_len),
          .value_len = static_cast<int32_t>(l.value_len),
          .window = l.window,
          .owner = l.kv_owner};
}

StateGeometry state_geometry(const ModelConfig& config, int layer) {
  const LayerConfig& l = config.layers[static_cast<size_t>(layer)];
  return {.n_values = l.state_len};
}

StateLayout state_layout(const ModelConfig& config) {
  std::vector<StateGeometry> layers;
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer)
    layers.push_back(state_geometry(config, layer));
  return StateLayout(layers);
}

int64_t KvShape::scale_bytes(int64_t n_tokens, int64_t n_sequences) const {
  if (group_len == 0) return 0;
  const int64_t groups = (elements_per_token_layer() + group_len - 1) / group_len;
  return n_sequences * n_tokens * n_layers * groups * group_bytes;
}

int64_t KvShape::paged_bytes(int64_t n_tokens, int64_t n_sequences, int64_t block_len) const {
  const int64_t blocks = (n_tokens + block_len - 1) / block_len;
  return bytes(blocks * block_len, n_sequences);
}

std::string format_gib_and_gb(int64_t bytes) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f GiB (%.2f GB)", static_cast<double>(bytes) / 1073741824.0,
                static_cast<double>(bytes) / 1e9);
  return text.data();
}

}  // namespace ibid
