#include "kernels/cpu/cpu_ops.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {

void store_kv(Stream& s, const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch) {
  Dim T, N;
  expect(k, {&T, &N});
  expect(v, {&T, &N});
  CHECK(k.dtype == DType::kF32 && v.dtype == DType::kF32 && T.value == batch.n_tokens);
  CHECK(N.value == int64_t{kv.n_kv_heads} * kv.head_len && kv.head_len <= kMaxHeadLen &&
        kv.block_len == batch.block_len);
  on_device(
      s, "store_kv", [&] { cpu::store_kv(s, kv, k, v, batch); }, [&] { reference::store_kv(kv, k, v, batch); },
      kNoBody);
}

void copy_slots(Stream& s, const PagedKv& kv, std::span<const int32_t> from, std::span<const int32_t> to) {
  CHECK(from.size() == to.size(), "each slot goes somewhere");
  for (const std::span<const int32_t> slots : {from, to}) {
    for (const int32_t slot : slots) CHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
  }
  on_device(
      s, "copy_slots", [&] { cpu::copy_slots(s, kv, from, to); }, [&] { reference::copy_slots(kv, from, to); },
      kNoBody);
}

void copy_block(Stream& s, const PagedKv& kv, BlockId from, BlockId to) {
  for (const BlockId block : {from, to}) CHECK(raw(block) >= 0 && raw(block) < kv.n_blocks);
  on_device(
      s, "copy_block", [&] { cpu::copy_block(kv, from, to); }, kSameAsCpu, kNoBody);
}

}  // namespace ibid::ops
