#include "kernels/paged_kv.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/kv_codes.h"
#include "tensor/half.h"

namespace ibid {
namespace {

constexpr int64_t kScaleBytes = 2;

// Of one KV head's part of a block.
int64_t head_bytes(const PagedKv& kv) {
  const int64_t B = kv.block_len;
  return B * (kv.key_len + kv.value_len) * traits(kv.dtype).block_bytes + (has_scales(kv) ? 2 * B * kScaleBytes : 0);
}

std::byte* scale(const PagedKv& kv, KvPart part, int32_t slot, int32_t head) {
  return kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes +
         kv_scale_offset(kv, part, slot % kv.block_len, head);
}

int32_t len_of(const PagedKv& kv, KvPart part) { return part == KvPart::kKey ? kv.key_len : kv.value_len; }

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
  return head_bytes(kv) * head + index * element;
}

int64_t kv_scale_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head) {
  const int64_t B = kv.block_len, index = (part == KvPart::kKey ? 0 : B) + offset;
  return head_bytes(kv) * head + B * (kv.key_len + kv.value_len) + index * kScaleBytes;
}

float kv_read(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d) {
  const std::byte* p = element(kv, part, slot, head, d);
  if (kv.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
  uint16_t bits;
  if (has_scales(kv)) {
    std::memcpy(&bits, scale(kv, part, slot, head), sizeof(bits));
    return static_cast<float>(std::bit_cast<int8_t>(*p)) * half_to_float(bits);
  }
  std::memcpy(&bits, p, sizeof(bits));
  return kv.dtype == DType::kF16 ? half_to_float(bits) : bf16_to_float(bits);
}

void kv_write(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d, float value) {
  CHECK(!has_scales(kv), "codes are made of all elements of a head");
  std::byte* p = element(kv, part, slot, head, d);
  if (kv.dtype == DType::kF32) {
    std::memcpy(p, &value, sizeof(value));
    return;
  }
  const uint16_t bits = kv.dtype == DType::kF16 ? float_to_half(value) : float_to_bf16(value);
  std::memcpy(p, &bits, sizeof(bits));
}

void kv_write_row(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, const float* values) {
  const int32_t n = len_of(kv, part);
  if (!has_scales(kv)) {
    for (int32_t d = 0; d < n; ++d) kv_write(kv, part, slot, head, d, values[d]);
    return;
  }
  int8_t codes[kMaxHeadLen];
  const uint16_t half = quantise_head(values, n, codes);
  for (int32_t d = 0; d < n; ++d) *element(kv, part, slot, head, d) = std::bit_cast<std::byte>(codes[d]);
  std::memcpy(scale(kv, part, slot, head), &half, sizeof(half));
}

void kv_copy_row(const PagedKv& kv, KvPart part, int32_t from, int32_t to, int32_t head) {
  const auto bytes = static_cast<size_t>(traits(kv.dtype).block_bytes);
  for (int32_t d = 0; d < len_of(kv, part); ++d)
    std::memmove(element(kv, part, to, head, d), element(kv, part, from, head, d), bytes);
  if (has_scales(kv)) std::memmove(scale(kv, part, to, head), scale(kv, part, from, head), kScaleBytes);
}

void kv_export(const PagedKv& kv, BlockId block, std::span<std::byte> bytes) {
  std::memcpy(bytes.data(), block_at(kv, block, bytes.size()), bytes.size());
}

void kv_import(const PagedKv& kv, BlockId block, std::span<const std::byte> bytes) {
  std::memcpy(block_at(kv, block, bytes.size()), bytes.data(), bytes.size());
}

}  // namespace ibid
