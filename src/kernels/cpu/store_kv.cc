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

// One head of one token: its values side by side, its keys B elements apart.
template <typename Element>
void place(const PagedKv& kv, std::byte* keys, std::byte* values, const Element* k, const Element* v) {
  auto* to = reinterpret_cast<Element*>(keys);
  for (int32_t d = 0; d < kv.key_len; ++d) to[int64_t{d} * kv.block_len] = k[d];
  std::memcpy(values, v, static_cast<size_t>(kv.value_len) * sizeof(Element));
}

void store_codes(const PagedKv& kv, std::byte* block, int32_t offset, int32_t head, const float* key,
                 const float* value) {
  int8_t key_codes[kMaxHeadLen], value_codes[kMaxHeadLen];
  const uint16_t key_scale = quantise_head(key, kv.key_len, key_codes);
  const uint16_t value_scale = quantise_head(value, kv.value_len, value_codes);
  place(kv, block + kv_element_offset(kv, KvPart::kKey, offset, head, 0),
        block + kv_element_offset(kv, KvPart::kValue, offset, head, 0), key_codes, value_codes);
  std::memcpy(block + kv_scale_offset(kv, KvPart::kKey, offset, head), &key_scale, sizeof key_scale);
  std::memcpy(block + kv_scale_offset(kv, KvPart::kValue, offset, head), &value_scale, sizeof value_scale);
}

template <typename Element>
void move_head(const PagedKv& kv, int32_t from, int32_t to, int32_t head) {
  if (has_scales(kv)) {
    for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
      const auto scale = [&](int32_t slot) {
        return kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes +
               kv_scale_offset(kv, part, slot % kv.block_len, head);
      };
      std::memmove(scale(to), scale(from), sizeof(uint16_t));
    }
  }
  const auto at = [&](KvPart part, int32_t slot) {
    return reinterpret_cast<Element*>(kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes +
                                      kv_element_offset(kv, part, slot % kv.block_len, head, 0));
  };
  const Element* key = at(KvPart::kKey, from);
  Element* new_key = at(KvPart::kKey, to);
  if (kv.kind == KvKind::kLatent) {
    std::memmove(new_key, key, static_cast<size_t>(kv.key_len) * sizeof(Element));
    return;
  }
  for (int32_t d = 0; d < kv.key_len; ++d) new_key[int64_t{d} * kv.block_len] = key[int64_t{d} * kv.block_len];
  std::memmove(at(KvPart::kValue, to), at(KvPart::kValue, from), static_cast<size_t>(kv.value_len) * sizeof(Element));
}

// Fetches the lines of a slot, all heads: each line of its keys holds a dimension or two, so one token of three heads
// writes a hundred lines, and a processor that meets them one by one waits for each.
void fetch_slot(const PagedKv& kv, int32_t slot) {
  std::byte* block = kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes;
  const auto size = static_cast<int64_t>(traits(kv.dtype).block_bytes);
  const int64_t key_step = std::max<int64_t>(64, kv.block_len * size);
  for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
    std::byte* keys = block + kv_element_offset(kv, KvPart::kKey, slot % kv.block_len, head, 0);
    for (int64_t at = 0; at < kv.key_len * kv.block_len * size; at += key_step) __builtin_prefetch(keys + at, 1);
    std::byte* values = block + kv_element_offset(kv, KvPart::kValue, slot % kv.block_len, head, 0);
    for (int64_t at = 0; at < kv.value_len * size; at += 64) __builtin_prefetch(values + at, 1);
  }
}

}  // namespace

void store_kv(Stream& s, const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch) {
  const RowTable& row = *table().row;
  const auto narrow = kv.dtype == DType::kF16 ? row.to_f16 : row.to_bf16;
  for_rows(s, k.n_rows(), k.row_len(), kStoreWeight, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t slot = batch.slots[t];
      // The next token's, of another sequence; one of the same has most of its lines here.
      if (t + 1 < end && batch.slots[t + 1] / kv.block_len != slot / kv.block_len) fetch_slot(kv, batch.slots[t + 1]);
      CHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
      std::byte* block = kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes;
      const int32_t offset = slot % kv.block_len;
      for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
        const float* key = k.row_as<float>(t) + int64_t{head} * kv.key_len;
        const float* value = v.row_as<float>(t) + int64_t{head} * kv.value_len;
        std::byte* keys = block + kv_element_offset(kv, KvPart::kKey, offset, head, 0);
        std::byte* values = block + kv_element_offset(kv, KvPart::kValue, offset, head, 0);
        if (kv.dtype == DType::kF32) {
          place(kv, keys, values, key, value);
          continue;
        }
        if (has_scales(kv)) {
          store_codes(kv, block, offset, head, key, value);
          continue;
        }
        uint16_t narrow_key[kMaxHeadLen];
        uint16_t narrow_value[kMaxHeadLen];
        narrow(narrow_key, key, kv.key_len);
        narrow(narrow_value, value, kv.value_len);
        place(kv, keys, values, narrow_key, narrow_value);
      }
    }
  });
}

void store_latent(Stream& s, const PagedKv& kv, const TensorView& rows, const ForwardBatch& batch) {
  const RowTable& row = *table().row;
  const auto narrow = kv.dtype == DType::kF16 ? row.to_f16 : row.to_bf16;
  for_rows(s, rows.n_rows(), rows.row_len(), kStoreWeight, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t slot = batch.slots[t];
      CHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
      std::byte* to = kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes +
                      kv_element_offset(kv, KvPart::kKey, slot % kv.block_len, 0, 0);
      if (kv.dtype == DType::kF32) {
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
        if (kv.dtype == DType::kF32) {
          move_head<uint32_t>(kv, from[i], to[i], head);
        } else if (has_scales(kv)) {
          move_head<uint8_t>(kv, from[i], to[i], head);
        } else {
          move_head<uint16_t>(kv, from[i], to[i], head);
        }
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
