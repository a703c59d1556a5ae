// The heads of a gated delta net (Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule", ICLR 2025):
// queries and keys of fewer heads than values, each of them read by as many value heads.
#pragma once

#include <cstdint>

namespace ibid {

struct DeltaHeads {
  int64_t n_key_heads = 0;    // Hk, of queries and keys
  int64_t n_value_heads = 0;  // Hv, a multiple of Hk
  int64_t key_len = 0;        // Dk
  int64_t value_len = 0;      // Dv
  // Which key head value head h reads: h mod Hk, as GGUF files of qwen35 have it; else h / (Hv / Hk).
  bool tiled = false;

  int64_t k_len() const { return n_key_heads * key_len; }
  int64_t v_len() const { return n_value_heads * value_len; }
  int64_t qkv_len() const { return 2 * k_len() + v_len(); }
  int64_t state_len() const { return n_value_heads * key_len * value_len; }
  int64_t key_head(int64_t value_head) const {
    return tiled ? value_head % n_key_heads : value_head / (n_value_heads / n_key_heads);
  }
  bool operator==(const DeltaHeads&) const = default;
};

}  // namespace ibid
