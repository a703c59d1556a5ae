// How many bytes a cache of keys and values takes. What a model of ours takes is the sum over its layers' layouts
// (kernels/kv_layout.h): the pool, the sizing of an engine, the commands and reports all add those. KvShape is the
// arithmetic of published shapes, those that are not served here too, for planning; a test holds the two to each other.
// Exact integers; nothing here rounds.
//
// Attention over heads (MHA, GQA, MQA differ in K alone) stores K and V: 2 * batch * T * L * K * D elements. K counts
// key/value heads, never query heads. Latent attention (DeepSeek-V2, section 2.1) stores one compressed vector and one
// rotary key shared by all heads: batch * T * L * (d_c + d_r), without the factor 2.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/kv_layout.h"
#include "kernels/state_layout.h"
#include "model/config.h"

namespace ibid {

// What layer `layer` of a model of this configuration keeps.
KvGeometry kv_geometry(const ModelConfig& config, int layer);
// And of a sequence, whatever its length; zero values of a layer without a recurrent state.
StateGeometry state_geometry(const ModelConfig& config, int layer);
StateLayout state_layout(const ModelConfig& config);

struct KvShape {
  int64_t n_layers = 0;     // L
  int64_t n_kv_heads = 0;   // K
  int64_t head_len = 0;     // D
  int64_t latent_len = 0;   // d_c + d_r; then K and D are not used
  int64_t bits = 16;        // of one element, before scales
  int64_t group_len = 0;    // quantised: elements that share a scale (and a zero point); 0: none
  int64_t group_bytes = 0;  // bytes of a group's scale and zero point

  int64_t elements_per_token_layer() const { return latent_len != 0 ? latent_len : 2 * n_kv_heads * head_len; }
  int64_t bytes_per_token_layer() const { return elements_per_token_layer() * bits / 8; }
  int64_t bytes_per_token() const { return n_layers * bytes_per_token_layer(); }
  int64_t bytes(int64_t n_tokens, int64_t n_sequences = 1) const { return n_sequences * n_tokens * bytes_per_token(); }
  // What the scales of a quantised cache add.
  int64_t scale_bytes(int64_t n_tokens, int64_t n_sequences = 1) const;
  // What a pool of blocks accounts for: whole blocks of every sequence.
  int64_t paged_bytes(int64_t n_tokens, int64_t n_sequences, int64_t block_len) const;
};

// "1.25 GiB (1.34 GB)": both units, since texts mix them.
std::string format_gib_and_gb(int64_t bytes);

}  // namespace ibid
