#include "kernels/paged_kv.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/kv_codes.h"
#include "tensor/half.h"

namespace ibid {
namespace {

constexpr int64_t kScaleBytes = 2;

int64_t elements_bytes(const PagedKv& kv, KvPart part) {
  return kv_elements_bytes(type_of(kv, part), len_of(kv, part), kv.block_len);
}
int64_t scales_bytes(const PagedKv& kv, KvPart part) {
  return kv_scales_bytes(type_of(kv, part), len_of(kv, part), kv.block_len);
}

// From a block's start to a head's part of it, and in that to the scales of its keys or values.
int64_t head_offset(const PagedKv& kv, int32_t head) {
  int64_t bytes = 0;
  for (const KvPart part : {KvPart::kKey, KvPart::kValue}) bytes += elements_bytes(kv, part) + scales_bytes(kv, part);
  return head * bytes;
}
int64_t scales_offset(const PagedKv& kv, KvPart part) {
  return elements_bytes(kv, KvPart::kKey) + elements_bytes(kv, KvPart::kValue) +
         (part == KvPart::kValue ? scales_bytes(kv, KvPart::kKey) : 0);
}

// Of a group and position among a head's steps, or zeros.
int64_t scale_index(const PagedKv& kv, KvPart part, int32_t offset, int32_t group) {
  DCHECK(is_code(type_of(kv, part)));
  if (has_one_scale(type_of(kv, part))) return offset;
  return part == KvPart::kKey ? int64_t{group} * kv.block_len + offset
                              : int64_t{offset} * n_code_groups(kv.value_len) + group;
}

// Elements of a group of a head.
int32_t group_len(int32_t len, int32_t group) { return std::min(kCodeGroup, len - group * kCodeGroup); }

// Of four bits: whether an element is in the upper half of its byte.
bool is_upper(KvPart part, int32_t len, int32_t d) {
  return part == KvPart::kKey ? d % 2 != 0 : d % kCodeGroup >= group_len(len, d / kCodeGroup) / 2;
}

std::byte* block_of(const PagedKv& kv, int32_t slot) {
  DCHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
  return kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes;
}
std::byte* scale(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t group) {
  return block_of(kv, slot) + kv_scale_offset(kv, part, slot % kv.block_len, head, group);
}
std::byte* zero(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t group) {
  return block_of(kv, slot) + kv_zero_offset(kv, part, slot % kv.block_len, head, group);
}
std::byte* element(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d) {
  return block_of(kv, slot) + kv_element_offset(kv, part, slot % kv.block_len, head, d);
}

void write_eight_bits(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, const float* values) {
  const int32_t len = len_of(kv, part);
  uint8_t codes[kMaxHeadLen];
  const uint16_t half = quantise_head(type_of(kv, part), values, len, codes);
  for (int32_t d = 0; d < len; ++d) *element(kv, part, slot, head, d) = std::byte{codes[d]};
  std::memcpy(scale(kv, part, slot, head, 0), &half, sizeof(half));
}

void write_four_bits(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, const float* values) {
  const int32_t len = len_of(kv, part);
  float turned[kMaxHeadLen];
  std::copy_n(values, len, turned);
  turn_in(turned, len);
  for (int32_t group = 0; group < n_code_groups(len); ++group) {
    const int32_t first = group * kCodeGroup;
    uint8_t codes[kCodeGroup];
    const FourBits scales = quantise_group(turned + first, group_len(len, group), codes);
    for (int32_t i = 0; i < group_len(len, group); ++i) {
      std::byte& byte = *element(kv, part, slot, head, first + i);
      const bool upper = is_upper(part, len, first + i);
      const auto other = byte & std::byte{static_cast<uint8_t>(upper ? 0x0f : 0xf0)};
      byte = other | std::byte{static_cast<uint8_t>(upper ? codes[i] << 4 : codes[i])};
    }
    std::memcpy(scale(kv, part, slot, head, group), &scales.step, sizeof(scales.step));
    *zero(kv, part, slot, head, group) = std::byte{scales.zero};
  }
}

std::byte* block_at(const PagedKv& kv, BlockId block, size_t n_bytes) {
  CHECK(raw(block) >= 0 && raw(block) < kv.n_blocks);
  CHECK(static_cast<int64_t>(n_bytes) == kv.layer_bytes, "a block is exchanged whole");
  return kv.blocks + int64_t{raw(block)} * kv.block_bytes;
}

}  // namespace

int64_t kv_elements_bytes(KvType type, int32_t len, int32_t block_len) {
  return int64_t{len} * block_len * kv_type_bits(type) / 8;
}

int64_t kv_scales_bytes(KvType type, int32_t len, int32_t block_len) {
  if (has_one_scale(type)) return kScaleBytes * block_len;
  return type == KvType::kI4 ? (kScaleBytes + 1) * n_code_groups(len) * block_len : 0;
}

int64_t kv_element_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head, int32_t d) {
  const int64_t B = kv.block_len;
  const KvType type = type_of(kv, part);
  if (kv.kind == KvKind::kLatent) return (int64_t{offset} * kv.key_len + d) * kv_type_bits(type) / 8;
  const int64_t first = head_offset(kv, head) + (part == KvPart::kKey ? 0 : elements_bytes(kv, KvPart::kKey));
  if (type != KvType::kI4) {
    const int64_t index = part == KvPart::kKey ? d * B + offset : int64_t{offset} * kv.value_len + d;
    return first + index * kv_type_bits(type) / 8;
  }
  if (part == KvPart::kKey) return first + d / 2 * B + offset;
  const int32_t group = d / kCodeGroup, half = group_len(kv.value_len, group) / 2;
  return first + int64_t{offset} * kv.value_len / 2 + group * kCodeGroup / 2 + d % kCodeGroup % half;
}

int64_t kv_scale_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head, int32_t group) {
  return head_offset(kv, head) + scales_offset(kv, part) + scale_index(kv, part, offset, group) * kScaleBytes;
}

int64_t kv_zero_offset(const PagedKv& kv, KvPart part, int32_t offset, int32_t head, int32_t group) {
  DCHECK(type_of(kv, part) == KvType::kI4);
  const int64_t steps = kScaleBytes * n_code_groups(len_of(kv, part)) * kv.block_len;
  return head_offset(kv, head) + scales_offset(kv, part) + steps + scale_index(kv, part, offset, group);
}

float kv_read(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d) {
  const std::byte* p = element(kv, part, slot, head, d);
  const KvType type = type_of(kv, part);
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
  uint16_t bits;
  if (is_code(type)) {
    const int32_t group = type == KvType::kI4 ? d / kCodeGroup : 0;
    std::memcpy(&bits, scale(kv, part, slot, head, group), sizeof(bits));
    if (has_one_scale(type)) return eight_bit_number(type, std::to_integer<uint8_t>(*p)) * half_to_float(bits);
    const auto code = static_cast<uint8_t>(is_upper(part, len_of(kv, part), d) ? *p >> 4 : *p & std::byte{15});
    return four_bit_number(code, half_to_float(bits), static_cast<uint8_t>(*zero(kv, part, slot, head, group)));
  }
  std::memcpy(&bits, p, sizeof(bits));
  return type == KvType::kF16 ? half_to_float(bits) : bf16_to_float(bits);
}

void kv_write(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, int32_t d, float value) {
  const KvType type = type_of(kv, part);
  CHECK(!is_code(type), "codes are made of all elements of a head");
  std::byte* p = element(kv, part, slot, head, d);
  if (type == KvType::kF32) {
    std::memcpy(p, &value, sizeof(value));
    return;
  }
  const uint16_t bits = type == KvType::kF16 ? float_to_half(value) : float_to_bf16(value);
  std::memcpy(p, &bits, sizeof(bits));
}

void kv_write_row(const PagedKv& kv, KvPart part, int32_t slot, int32_t head, const float* values) {
  const KvType type = type_of(kv, part);
  if (has_one_scale(type)) return write_eight_bits(kv, part, slot, head, values);
  if (type == KvType::kI4) return write_four_bits(kv, part, slot, head, values);
  for (int32_t d = 0; d < len_of(kv, part); ++d) kv_write(kv, part, slot, head, d, values[d]);
}

void kv_copy_row(const PagedKv& kv, KvPart part, int32_t from, int32_t to, int32_t head) {
  const KvType type = type_of(kv, part);
  const auto bytes = static_cast<size_t>(std::max(8, kv_type_bits(type)) / 8);
  for (int32_t d = 0; d < len_of(kv, part); ++d)
    std::memmove(element(kv, part, to, head, d), element(kv, part, from, head, d), bytes);
  for (int32_t group = 0; is_code(type) && group < (type == KvType::kI4 ? n_code_groups(len_of(kv, part)) : 1);
       ++group) {
    std::memmove(scale(kv, part, to, head, group), scale(kv, part, from, head, group), kScaleBytes);
    if (type == KvType::kI4) *zero(kv, part, to, head, group) = *zero(kv, part, from, head, group);
  }
}

void kv_export(const PagedKv& kv, BlockId block, std::span<std::byte> bytes) {
  std::memcpy(bytes.data(), block_at(kv, block, bytes.size()), bytes.size());
}

void kv_import(const PagedKv& kv, BlockId block, std::span<const std::byte> bytes) {
  std::memcpy(block_at(kv, block, bytes.size()), bytes.data(), bytes.size());
}

}  // namespace ibid
