// A llama whose layers differ in all that a layer may: heads, lengths of keys and of values, feed-forward, window,
// RoPE, scale, and whose keys and values they read. No file describes such a model, so its configuration is given
// beside one.
#pragma once

#include <cmath>

#include "model/testing/loaded_model.h"

namespace ibid::testing {

struct MixedOptions {
  uint64_t seed = 1;
  DType dtype = DType::kF32;
  bool with_norms = false;  // norms of the heads of q and k, and biases of q, k and v
  int64_t context_len = 256;
};

inline ModelConfig mixed_config(const MixedOptions& options = {}) {
  ModelConfig c = tiny_config({.architecture = "llama", .n_layers = 6, .context_len = options.context_len});
  c.qk_norm = c.qkv_bias = options.with_norms;
  c.norm_eps = 1e-5f;
  c.ropes = {{.interleaved = true, .n_pairs = 8},
             {.scaling = RopeScaling::kLinear, .n_pairs = 4, .base = 500.0, .factor = 3.0},
             {.n_pairs = 16, .base = 1e6}};
  // clang-format off
  c.layers = {
      {.n_heads = 4, .n_kv_heads = 2, .key_len = 16, .value_len = 16, .ffn_len = 160},
      {.n_heads = 6, .n_kv_heads = 1, .key_len = 24, .value_len = 40, .ffn_len = 64, .window = 5, .rope = 1},
      {.n_heads = 3, .n_kv_heads = 3, .key_len = 8, .value_len = 8, .ffn_len = 224, .rope = kNoRope},
      {.n_heads = 2, .n_kv_heads = 1, .key_len = 24, .value_len = 40, .ffn_len = 96, .window = 9, .rope = 1, .kv_owner = 1},
      {.n_heads = 8, .n_kv_heads = 4, .key_len = 32, .value_len = 16, .ffn_len = 128, .rope = 2},
      {.n_heads = 2, .n_kv_heads = 2, .key_len = 16, .value_len = 16, .ffn_len = 72, .kv_owner = 0},
  };
  // clang-format on
  for (LayerConfig& layer : c.layers) layer.attention_scale = 1.0f / std::sqrt(static_cast<float>(layer.key_len));
  c.layers[4].attention_scale = 0.25f;
  return c;
}

inline std::shared_ptr<const ModelFile> mixed_file(const MixedOptions& options = {}) {
  return tiny_file_of(mixed_config(options), {.dtype = options.dtype, .seed = options.seed});
}

// Its norms and biases are in the file iff the configuration has them.
inline std::unique_ptr<Model> mixed_model(Stream& s, const MixedOptions& options = {},
                                          const ModelOptions& limits = {.step_tokens = 128, .max_rows = 128}) {
  Result<std::unique_ptr<Model>> model = load_model(mixed_file(options), mixed_config(options), limits, s);
  CHECK(model.ok(), model ? "" : model.error().message.c_str());
  return std::move(model).value();
}

}  // namespace ibid::testing
