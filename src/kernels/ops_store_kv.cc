#include <cstring>

#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "kernels/for_rows.h"
#include "kernels/ops.h"
#include "kernels/reference/reference.h"

namespace ibid::ops {
namespace {

// One head of one token: D values side by side, D keys B elements apart.
template <typename Cell>
void place(std::byte* keys, std::byte* values, const Cell* k, const Cell* v, int32_t head_len, int32_t block_len) {
  auto* to = reinterpret_cast<Cell*>(keys);
  for (int32_t d = 0; d < head_len; ++d) to[int64_t{d} * block_len] = k[d];
  std::memcpy(values, v, static_cast<size_t>(head_len) * sizeof(Cell));
}

}  // namespace

void store_kv(Stream& s, const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch) {
  Dim T, N;
  expect(k, {&T, &N});
  expect(v, {&T, &N});
  CHECK(k.dtype == DType::kF32 && v.dtype == DType::kF32 && T.value == batch.n_tokens);
  CHECK(N.value == int64_t{kv.n_kv_heads} * kv.head_len && kv.head_len <= kMaxHeadLen &&
        kv.block_len == batch.block_len);
  if (reference::selected()) return reference::store_kv(kv, k, v, batch);
  const cpu::RowTable& row = *cpu::table().row;
  const auto narrow = kv.dtype == DType::kF16 ? row.to_f16 : row.to_bf16;
  for_rows(s, T.value, N.value, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t slot = batch.slots[t];
      CHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
      std::byte* block = kv.blocks + int64_t{slot / kv.block_len} * kv.block_bytes;
      const int32_t offset = slot % kv.block_len;
      for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
        const float* key = k.row_as<float>(t) + int64_t{head} * kv.head_len;
        const float* value = v.row_as<float>(t) + int64_t{head} * kv.head_len;
        std::byte* keys = block + kv_element_offset(kv, KvPart::kKey, offset, head, 0);
        std::byte* values = block + kv_element_offset(kv, KvPart::kValue, offset, head, 0);
        if (kv.dtype == DType::kF32) {
          place(keys, values, key, value, kv.head_len, kv.block_len);
          continue;
        }
        uint16_t narrow_key[kMaxHeadLen];
        uint16_t narrow_value[kMaxHeadLen];
        narrow(narrow_key, key, kv.head_len);
        narrow(narrow_value, value, kv.head_len);
        place(keys, values, narrow_key, narrow_value, kv.head_len, kv.block_len);
      }
    }
  });
}

}  // namespace ibid::ops
