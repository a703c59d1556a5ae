// PagedKv: one layer's keys and values in blocks of B tokens, as plain pointers. The cache owns the memory; a model
// sees only this. The bytes of a slot depend on its token, its position and what comes before it alone (docs/design.md
// section 5, law 2).
//
// Layout of a block, for all types (kernels/kv_layout.h has its sizes). Dk: the length of a key, Dv: of a value.
//
//   kHeads (kKvLayout)         for each KV head: keys[Dk][B], then values[B][Dv], then the scales of codes
//   kLatent (kKvLatentLayout)  rows[B][Dk]; a row is the key, and its first Dv elements are the value; no codes
//
// Codes (kernels/kv_codes.h), with G groups of 32 elements a head, the last one perhaps shorter:
//   I8, F8 keys and values     as floats lie; scales F16 [B]
//   I4 keys[Dk/2][B]           a byte has elements 2i (its low half) and 2i + 1; scales: steps F16 [G][B], zeros [G][B]
//   I4 values[B][Dv/2]         of a group of n the byte i has elements i (its low half) and i + n/2; scales: steps
//                              F16 [B][G], zeros [B][G]
// The scales of keys come before those of values.
//
// A score's lanes are positions, so that 16 scores grow by one multiply-add per head dimension without a sum across
// lanes: keys lie transposed. A value's lanes are head dimensions: values lie as rows. All of one head's part of a
// block is one run of elements (and scales), which is what a decode of one head group streams through.
// Latent rows serve many query heads at once, so attention transposes them as it widens them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "kernels/kv_types.h"

namespace ibid {

// What a layer keeps of each token.
enum class KvKind : uint8_t {
  kHeads,    // a key and a value for each KV head
  kLatent,   // one row for keys and values of all query heads: K = 1, Dv <= Dk (DeepSeek-V2, section 2.1)
  kNothing,  // nothing: the layer has no attention, or its memory is not of tokens
};

struct PagedKv {
  std::byte* blocks = nullptr;  // [n_blocks, block_bytes], 64-byte aligned
  int64_t block_bytes = 0;      // bytes from one block to the next, a multiple of 64
  int64_t layer_bytes = 0;      // of these, this layer's own, from the first on
  KvTypes dtype;                // one of floats where kind is kLatent
  int32_t n_blocks = 0;
  int32_t block_len = 0;   // B: 8, 16 or 32
  int32_t n_kv_heads = 0;  // K
  int32_t key_len = 0;     // Dk: a multiple of 8, at most kMaxHeadLen
  int32_t value_len = 0;   // Dv: likewise
  KvKind kind = KvKind::kHeads;
};

inline constexpr int32_t kMaxHeadLen = 576;
inline constexpr std::string_view kKvLayout = "K:D.B,B.D";
inline constexpr std::string_view kKvLatentLayout = "B.D";

enum class KvPart : uint8_t { kKey, kValue };
inline KvType type_of(const PagedKv& kv, KvPart part) { return part == KvPart::kKey ? kv.dtype.key : kv.dtype.value; }
inline int32_t len_of(const PagedKv& kv, KvPart part) { return part == KvPart::kKey ? kv.key_len : kv.value_len; }

// Bytes of a head's B keys or values of a type: of their elements, and of the scales of codes.
int64_t kv_elements_bytes(KvType type, int32_t len, int32_t block_len);
int64_t kv_scales_bytes(KvType type, int32_t len, int32_t block_len);

// Bytes from a block's start to element d of `head` at `offset` (0..B-1) within the block: of four bits to the byte
// that has it.
int64_t kv_element_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head, int32_t d);

// Bytes from a block's start to the scale (of four bits: the step, and the zero) of `group` of `head` at `offset`. Of
// codes.
int64_t kv_scale_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head, int32_t group = 0);
int64_t kv_zero_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head, int32_t group = 0);

// By slot (block * B + offset): one element, as attention reads it: of four bits one of a turned head. kv_write(): not
// of codes.
float kv_read(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d);
void kv_write(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d, float value);
// All elements of a key or value, and its scales: from floats, or from another slot as they are. Neither these nor the
// above are fast: references, tests and tools use them, the kernels read whole tiles.
void kv_write_row(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, const float* values);
void kv_copy_row(const PagedKv& kv, KvPart part, int32_t from, int32_t to, int32_t head);

// The exchange form of a block, for another tier, a file or another engine: its own bytes, layer_bytes of them. They
// are stored together with their layout: KvLayout::name (kernels/kv_layout.h).
void kv_export(const PagedKv& kv, BlockId block, std::span<std::byte> bytes);
void kv_import(const PagedKv& kv, BlockId block, std::span<const std::byte> bytes);

}  // namespace ibid
