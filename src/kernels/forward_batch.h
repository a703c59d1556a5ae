// ForwardBatch: one step's work as flat arrays, the only thing a model reads about requests. Views into arrays that the
// engine sized at start-up; nothing here is owned. T tokens, S sequences, R logit rows, B tokens per block.
//
// A sequence's tokens are contiguous: sequence s owns tokens [query_start[s], query_start[s + 1]). Its keys and values
// live at positions [0, kv_len[s]) of the cache, this step's included (store_kv runs before attention reads).
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace ibid {

struct ForwardBatch {
  int32_t n_tokens = 0;     // T
  int32_t n_sequences = 0;  // S
  int32_t n_rows = 0;       // R
  int32_t max_blocks = 0;   // columns of block_table
  int32_t block_len = 0;    // B

  const TokenId* tokens = nullptr;       // [T]
  const int32_t* positions = nullptr;    // [T] absolute position of the token in its sequence, 0-based
  const int32_t* slots = nullptr;        // [T] block * B + offset: where the token's key and value go
  const int32_t* query_start = nullptr;  // [S + 1]
  const int32_t* kv_len = nullptr;       // [S]
  const BlockId* block_table = nullptr;  // [S, max_blocks]; kNone behind a sliding window: never read
  const int32_t* logit_rows = nullptr;   // [R] indices of tokens whose logits are wanted, ascending

  // Null: causal. Else, per sequence, a lower-triangular bit matrix over its query tokens: query i sees query j of the
  // same step iff bit j of row i is set (speculation's token trees). Unused for now.
  const uint64_t* tree_mask = nullptr;
};

}  // namespace ibid
