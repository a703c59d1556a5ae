#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/kv_layout.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {
namespace {

void expect_path(const PagedKv& kv, const ForwardBatch& batch, int32_t t) {
  const int32_t n = batch.path_start[t + 1] - batch.path_start[t];
  CHECK(n >= 0 && n <= batch.read_by()[t] + 1, "a path has a slot for each of its positions");
  CHECK(n == 0 || batch.path(t).back() == batch.slots[t], "a path ends in the token's own slot");
  for (const int32_t slot : batch.path(t)) CHECK(slot >= 0 && slot / kv.block_len < kv.n_blocks);
}

// Each visible pair of a query and a key is a product for its score and one for its value, in each head.
OpWork work_of(int64_t q_len, int64_t out_len, const PagedKv& kv, const ForwardBatch& batch, int32_t window) {
  OpWork work;
  int64_t pairs = 0;
  for (int32_t s = 0; s < batch.n_sequences; ++s) {
    int32_t first = batch.kv_len[s];  // of the positions that are read
    for (int32_t t = batch.query_start[s]; t < batch.query_start[s + 1]; ++t) {
      const int32_t end = batch.end_read(t), begin = batch.first_read(t, window);
      pairs += end - begin;
      first = std::min(first, begin);
    }
    work.bytes += int64_t{batch.kv_len[s] - first} * kv.layer_bytes / kv.block_len;
  }
  work.macs[static_cast<size_t>(MacUnit::kFp32)] = pairs * (q_len + out_len);
  return work;
}

}  // namespace

size_t paged_attention_workspace_bytes(int32_t n_tokens, int32_t n_heads, int32_t value_len, int32_t max_positions) {
  return cpu::paged_attention_workspace_bytes(n_tokens, n_heads, value_len, max_positions);
}

void paged_attention(Stream& s, const TensorView& out, const TensorView& q, const PagedKv& kv,
                     const ForwardBatch& batch, const AttentionParams& params) {
  Dim T, N, M;
  expect(out, {&T, &M});
  expect(q, {&T, &N});
  CHECK(out.dtype == DType::kF32 && q.dtype == DType::kF32 && T.value == batch.n_tokens);
  CHECK(kv.block_len == 8 || kv.block_len == 16 || kv.block_len == 32, "a block holds 8, 16 or 32 tokens");
  CHECK(kv.block_len == batch.block_len);
  for (const int32_t len : {kv.key_len, kv.value_len})
    CHECK(len % 8 == 0 && len >= 8 && len <= kMaxHeadLen, "a head is a multiple of 8, up to 576");
  CHECK(kv.kind == KvKind::kHeads || (kv.kind == KvKind::kLatent && kv.n_kv_heads == 1 && kv.value_len <= kv.key_len));
  CHECK(N.value % (int64_t{kv.n_kv_heads} * kv.key_len) == 0, "each KV head serves as many query heads");
  CHECK(M.value == N.value / kv.key_len * kv.value_len, "each query head has an output");
  for (int32_t t = 0; batch.path_start != nullptr && t < batch.n_tokens; ++t) expect_path(kv, batch, t);
  on_device(
      s, "paged_attention", [&] { cpu::paged_attention(s, out, q, kv, batch, params); },
      [&] { reference::paged_attention(out, q, kv, batch, params); }, kNoBody,
      [&] { return work_of(N.value, M.value, kv, batch, params.window); });
}

}  // namespace ibid::ops
