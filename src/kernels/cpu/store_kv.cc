#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "kernels/kv_codes.h"

namespace ibid::cpu {
namespace {

// Of an element, in those of plain arithmetic (cpu/for_rows.h): a token writes as many lines as it has elements, or
// half.
constexpr int kStoreWeight = 32;

// Bytes of `part` of one head of one token lie side by side, or, of a key's, B bytes apart.
template <typename Element>
void place(const PagedKv& kv, KvPart part, std::byte* at, const Element* x, int32_t n) {
  if (part == KvPart::kValue) {
    std::memcpy(at, x, static_cast<size_t>(n) * sizeof(Element));
    return;
  }
  auto* to = reinterpret_cast<Element*>(at);
  for (int32_t i = 0; i < n; ++i) to[int64_t{i} * kv.block_len] = x[i];
}

// Where a head's part of a token lies.
struct Where {
  std::byte* block;
  int32_t offset;  // in the block
  int32_t head;
};
std::byte* element_at(const PagedKv& kv, KvPart part, Where where) {
  return where.block + kv_element_offset(kv, part, where.offset, where.head, 0);
}
std::byte* scale_at(const PagedKv& kv, KvPart part, Where where, int32_t group) {
  return where.block + kv_scale_offset(kv, part, where.offset, where.head, group);
}
std::byte* zero_at(const PagedKv& kv, KvPart part, Where where, int32_t group) {
  return where.block + kv_zero_offset(kv, part, where.offset, where.head, group);
}

void store_eight_bits(const PagedKv& kv, KvPart part, Where where, const float* x) {
  const int32_t len = len_of(kv, part);
  uint8_t codes[kMaxHeadLen];
  const uint16_t scale = quantise_head(type_of(kv, part), x, len, codes);
  place(kv, part, element_at(kv, part, where), codes, len);
  std::memcpy(scale_at(kv, part, where, 0), &scale, sizeof scale);
}

void store_four_bits(const PagedKv& kv, KvPart part, Where where, const float* x) {
  const int32_t len = len_of(kv, part);
  float turned[kMaxHeadLen];
  std::copy_n(x, len, turned);
  turn_in(turned, len);
  uint8_t bytes[kMaxHeadLen / 2];
  for (int32_t group = 0; group < n_code_groups(len); ++group) {
    const int32_t first = group * kCodeGroup, n = std::min(kCodeGroup, len - first);
    uint8_t codes[kCodeGroup];
    const FourBits scales = quantise_group(turned + first, n, codes);
    for (int32_t i = 0; i < n / 2; ++i) {
      const int32_t low = part == KvPart::kKey ? 2 * i : i, high = part == KvPart::kKey ? 2 * i + 1 : i + n / 2;
      bytes[first / 2 + i] = static_cast<uint8_t>(codes[low] | codes[high] << 4);
    }
    std::memcpy(scale_at(kv, part, where, group), &scales.step, sizeof scales.step);
    *zero_at(kv, part, where, group) = std::byte{scales.zero};
  }
  place(kv, part, element_at(kv, part, where), bytes, len / 2);
}

void store_part(const PagedKv& kv, KvPart part, Where where, const float* x, const RowTable& row) {
  switch (type_of(kv, part)) {
    case KvType::kF32:
      return place(kv, part, element_at(kv, part, where), x, len_of(kv, part));
    case KvType::kF16:
    case KvType::kBF16: {
      uint16_t narrow[kMaxHeadLen];
      (type_of(kv, part) == KvType::kF16 ? row.to_f16 : row.to_bf16)(narrow, x, len_of(kv, part));
      return place(kv, part, element_at(kv, part, where), narrow, len_of(kv, part));
    }
    case KvType::kI8:
    case KvType::kF8:
      return store_eight_bits(kv, part, where, x);
    case KvType::kI4:
      return store_four_bits(kv, part, where, x);
  }
}

template <typename Element>
void move_elements(const PagedKv& kv, KvPart part, std::byte* to, const std::byte* from, int32_t n) {
  if (part == KvPart::kValue || kv.kind == KvKind::kLatent) {
    std::memmove(to, from, static_cast<size_t>(n) * sizeof(Element));
    return;
  }
  auto* new_key = reinterpret_cast<Element*>(to);
  const auto* key = reinterpret_cast<const Element*>(from);
  for (int32_t i = 0; i < n; ++i) new_key[int64_t{i} * kv.block_len] = key[int64_t{i} * kv.block_len];
}

void move_part(const PagedKv& kv, KvPart part, Where from, Where to) {
  const KvType type = type_of(kv, part);
  const int32_t n_groups = type == KvType::kI4 ? n_code_groups(len_of(kv, part)) : is_code(type) ? 1 : 0;
  for (int32_t group = 0; group < n_groups; ++group) {
    std::memmove(scale_at(kv, part, to, group), scale_at(kv, part, from, group), sizeof(uint16_t));
    if (type == KvType::kI4) *zero_at(kv, part, to, group) = *zero_at(kv, part, from, group);
  }
  const auto move = type == KvType::kF32 ? move_elements<uint32_t>
                    : is_code(type)      ? move_elements<uint8_t>
                                         : move_elements<uint16_t>;
  const int32_t n = type == KvType::kI4 ? len_of(kv, part) / 2 : len_of(kv, part);
  move(kv, part, element_at(kv, part, to), element_at(kv, part, from), n);
}

// Fetches the lines of a slot, all heads: each line of its keys holds a dimension or two, so one token of three heads
// writes a hundred lines, and a processor that meets them one by one waits for each.
void fetch_slot(const PagedKv& kv, int32_t slot) {
  std::byte* block = kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes;
  const int64_t key_bytes = kv_elements_bytes(kv.dtype.key, kv.key_len, kv.block_len);
  const int64_t value_bytes = kv_elements_bytes(kv.dtype.value, kv.value_len, 1);
  const int64_t key_step = std::max<int64_t>(64, key_bytes / kv.key_len);
  for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
    std::byte* keys = block + kv_element_offset(kv, KvPart::kKey, slot % kv.block_len, head, 0);
    for (int64_t at = 0; at < key_bytes; at += key_step) __builtin_prefetch(keys + at, 1);
    std::byte* values = block + kv_element_offset(kv, KvPart::kValue, slot % kv.block_len, head, 0);
    for (int64_t at = 0; at < value_bytes; at += 64) __builtin_prefetch(values + at, 1);
  }
}

}  // namespace

void store_kv(Stream& s, const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch) {
  const RowTable& row = *table().row;
  for_rows(s, k.n_rows(), k.row_len(), kStoreWeight, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t slot = batch.slots[t];
      // The next token's, of another sequence; one of the same has most of its lines here.
      if (t + 1 < end && batch.slots[t + 1] / kv.block_len != slot / kv.block_len) fetch_slot(kv, batch.slots[t + 1]);
      CHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
      std::byte* block = kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes;
      for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
        const Where where = {block, slot % kv.block_len, head};
        store_part(kv, KvPart::kKey, where, k.row_as<float>(t) + int64_t{head} * kv.key_len, row);
        store_part(kv, KvPart::kValue, where, v.row_as<float>(t) + int64_t{head} * kv.value_len, row);
      }
    }
  });
}

void store_latent(Stream& s, const PagedKv& kv, const TensorView& rows, const ForwardBatch& batch) {
  const RowTable& row = *table().row;
  const auto narrow = kv.dtype.key == KvType::kF16 ? row.to_f16 : row.to_bf16;
  for_rows(s, rows.n_rows(), rows.row_len(), kStoreWeight, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t slot = batch.slots[t];
      CHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
      std::byte* to = kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes +
                      kv_element_offset(kv, KvPart::kKey, slot % kv.block_len, 0, 0);
      if (kv.dtype.key == KvType::kF32) {
        std::memcpy(to, rows.row_as<float>(t), static_cast<size_t>(kv.key_len) * sizeof(float));
      } else {
        narrow(reinterpret_cast<uint16_t*>(to), rows.row_as<float>(t), kv.key_len);
      }
    }
  });
}

void copy_slots(Stream& s, const PagedKv& kv, std::span<const int32_t> from, std::span<const int32_t> to) {
  // Heads are apart from each other, so the order of copies is kept within each.
  const auto n_elements = static_cast<int64_t>(from.size()) * kv.key_len;
  for_rows(s, kv.n_kv_heads, n_elements, 4, [&](int64_t begin, int64_t end) {
    for (auto head = static_cast<int32_t>(begin); head < end; ++head) {
      for (size_t i = 0; i < from.size(); ++i) {
        const auto where = [&](int32_t slot) {
          return Where{kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes, slot % kv.block_len, head};
        };
        move_part(kv, KvPart::kKey, where(from[i]), where(to[i]));
        if (kv.kind == KvKind::kHeads) move_part(kv, KvPart::kValue, where(from[i]), where(to[i]));
      }
    }
  });
}

void copy_block(const PagedKv& kv, BlockId from, BlockId to) {
  if (from == to) return;
  std::memcpy(kv.blocks + raw(to) * kv.block_bytes, kv.blocks + raw(from) * kv.block_bytes,
              static_cast<size_t>(kv.layer_bytes));
}

}  // namespace ibid::cpu
