// The heads of a selective state space (Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms
// Through Structured State Space Duality", ICML 2024: Mamba 2): each has a matrix [N, P], and groups of neighbours
// share what is written by (B) and read by (C).
#pragma once

#include <cstdint>

namespace ibid {

struct SsmHeads {
  int64_t n_heads = 0;    // H
  int64_t n_groups = 0;   // G, divides H
  int64_t head_len = 0;   // P, of a head's inputs and outputs
  int64_t state_len = 0;  // N, of a group's B and C

  int64_t x_len() const { return n_heads * head_len; }
  int64_t xbc_len() const { return x_len() + 2 * n_groups * state_len; }
  int64_t n_values() const { return n_heads * head_len * state_len; }  // of the state
  int64_t group(int64_t head) const { return head / (n_heads / n_groups); }
  bool operator==(const SsmHeads&) const = default;
};

}  // namespace ibid
