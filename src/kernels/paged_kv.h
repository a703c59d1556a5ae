// PagedKv: one layer's keys and values in blocks of B tokens, as plain pointers. The cache owns the memory; a model sees
// only this. The bytes of a block depend on its tokens and positions alone (DESIGN section 5, law 2).
//
// Keys and values of a block lie as the KV dtype wants them (paged_kv.cc documents each layout).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace ibid {

struct PagedKv {
  std::byte* blocks = nullptr;  // [n_blocks, block_bytes]
  int64_t block_bytes = 0;      // bytes from one block to the next
  DType dtype = DType::kF16;    // F32, F16 or BF16
  int32_t n_blocks = 0;
  int32_t block_len = 0;   // B: 8, 16 or 32
  int32_t n_kv_heads = 0;  // K
  int32_t head_len = 0;    // D
};

// Bytes of one layer's part of one block.
int64_t kv_block_bytes(DType dtype, int32_t block_len, int32_t n_kv_heads, int32_t head_len);

}  // namespace ibid
