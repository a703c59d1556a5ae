#include "kernels/paged_kv.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace ibid {
namespace {

std::byte* element(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d) {
  DCHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
  return kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes +
         kv_element_offset(kv, part, slot % kv.block_len, head, d);
}

template <typename Copy>
void for_each_element(const PagedKv& kv, KvPart part, BlockId block, Copy&& copy) {
  const int size = traits(kv.dtype).block_bytes;
  int64_t row_offset = 0;
  for (int32_t i = 0; i < kv.block_len; ++i) {
    for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
      for (int32_t d = 0; d < kv.head_len; ++d) {
        copy(element(kv, part, raw(block) * kv.block_len + i, head, d), row_offset, static_cast<size_t>(size));
        row_offset += size;
      }
    }
  }
}

}  // namespace

int64_t kv_block_bytes(DType dtype, int32_t block_len, int32_t n_kv_heads, int32_t head_len) {
  return int64_t{2} * block_len * n_kv_heads * head_len * traits(dtype).block_bytes;
}

int64_t kv_element_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head, int32_t d) {
  const int64_t part_len = int64_t{kv.block_len} * kv.head_len;
  const int64_t index =
      part == KvPart::kKey ? int64_t{d} * kv.block_len + offset : part_len + int64_t{offset} * kv.head_len + d;
  return (2 * part_len * head + index) * traits(kv.dtype).block_bytes;
}

float kv_read(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d) {
  const std::byte* p = element(kv, part, slot, head, d);
  if (kv.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return kv.dtype == DType::kF16 ? half_to_float(bits) : bf16_to_float(bits);
}

void kv_write(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d, float value) {
  std::byte* p = element(kv, part, slot, head, d);
  if (kv.dtype == DType::kF32) {
    std::memcpy(p, &value, sizeof(value));
    return;
  }
  const uint16_t bits = kv.dtype == DType::kF16 ? float_to_half(value) : float_to_bf16(value);
  std::memcpy(p, &bits, sizeof(bits));
}

void kv_export(const PagedKv& kv, KvPart part, BlockId block, std::byte* rows) {
  for_each_element(kv, part, block,
                   [&](const std::byte* p, int64_t at, size_t size) { std::memcpy(rows + at, p, size); });
}

void kv_import(const PagedKv& kv, KvPart part, BlockId block, const std::byte* rows) {
  for_each_element(kv, part, block, [&](std::byte* p, int64_t at, size_t size) { std::memcpy(p, rows + at, size); });
}

}  // namespace ibid
