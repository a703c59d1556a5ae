#include "kernels/cpu/cpu_ops.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {

void store_kv(Stream& s, const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch) {
  Dim T, N, M;
  expect(k, {&T, &N});
  expect(v, {&T, &M});
  CHECK(k.dtype == DType::kF32 && v.dtype == DType::kF32 && T.value == batch.n_tokens);
  CHECK(kv.kind == KvKind::kHeads && kv.block_len == batch.block_len);
  CHECK(N.value == int64_t{kv.n_kv_heads} * kv.key_len && kv.key_len <= kMaxHeadLen);
  CHECK(M.value == int64_t{kv.n_kv_heads} * kv.value_len && kv.value_len <= kMaxHeadLen);
  on_device(
      s, "store_kv", [&] { cpu::store_kv(s, kv, k, v, batch); }, [&] { reference::store_kv(kv, k, v, batch); },
      kNoBody);
}

void store_latent(Stream& s, const PagedKv& kv, const TensorView& rows, const ForwardBatch& batch) {
  Dim T{batch.n_tokens}, N{kv.key_len};
  expect(rows, {&T, &N});
  CHECK(rows.dtype == DType::kF32 && kv.kind == KvKind::kLatent && kv.key_len <= kMaxHeadLen);
  CHECK(kv.block_len == batch.block_len);
  on_device(
      s, "store_latent", [&] { cpu::store_latent(s, kv, rows, batch); },
      [&] { reference::store_latent(kv, rows, batch); }, kNoBody);
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
