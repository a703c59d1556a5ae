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

std::byte* block_at(const PagedKv& kv, BlockId block, size_t n_bytes) {
  CHECK(raw(block) >= 0 && raw(block) < kv.n_blocks);
  CHECK(static_cast<int64_t>(n_bytes) == kv.layer_bytes, "a block is exchanged whole");
  return kv.blocks + int64_t{raw(block)} * kv.block_bytes;
}

}  // namespace

int64_t kv_element_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head, int32_t d) {
  const int64_t element = traits(kv.dtype).block_bytes, B = kv.block_len;
  if (kv.kind == KvKind::kLatent) return (int64_t{offset} * kv.key_len + d) * element;
  const int64_t index = part == KvPart::kKey ? d * B + offset : B * kv.key_len + int64_t{offset} * kv.value_len + d;
  return (B * (kv.key_len + kv.value_len) * head + index) * element;
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

void kv_export(const PagedKv& kv, BlockId block, std::span<std::byte> bytes) {
  std::memcpy(bytes.data(), block_at(kv, block, bytes.size()), bytes.size());
}

void kv_import(const PagedKv& kv, BlockId block, std::span<const std::byte> bytes) {
  std::memcpy(block_at(kv, block, bytes.size()), bytes.data(), bytes.size());
}

}  // namespace ibid
