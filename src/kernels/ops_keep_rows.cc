#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/kept_rows.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {
namespace {

void expect_kept(const KeptRows& rows, const TensorView& q, const PagedKv& kv, const ForwardBatch& batch) {
  CHECK(rows.sequence >= 0 && rows.sequence < batch.n_sequences);
  const int32_t n_all = batch.kv_len[rows.sequence];
  CHECK(rows.n_first >= 0 && rows.n_last >= 0 && rows.n_first + rows.n_last <= rows.n && rows.n < n_all,
        "what is kept is a part of what is there");
  for (int32_t i = 0; i * batch.block_len < rows.n; ++i) {
    const int32_t block = raw(batch.kept_blocks[rows.block_start + i]);
    CHECK(block >= 0 && block < kv.n_blocks);
  }
  if (rows.n_first + rows.n_last == rows.n) return;
  const int32_t n_tokens = batch.query_start[rows.sequence + 1] - batch.query_start[rows.sequence];
  CHECK(rows.n_queries >= 1 && rows.n_queries <= std::min(n_tokens, kMaxScoringQueries),
        "the queries that score are tokens of the step");
  CHECK(rows.pool >= 1 && rows.pool % 2 == 1 && batch.path_start == nullptr);
  Dim T{batch.n_tokens}, N;
  expect(q, {&T, &N});
  CHECK(q.dtype == DType::kF32 && N.value % (int64_t{kv.n_kv_heads} * kv.key_len) == 0);
}

}  // namespace

size_t keep_rows_workspace_bytes(const Stream& s, int32_t group, int32_t key_len, int32_t max_positions) {
  return cpu::keep_rows_workspace_bytes(s, group, key_len, max_positions);
}

void keep_rows(Stream& s, const TensorView& q, const PagedKv& kv, const ForwardBatch& batch, float scale) {
  CHECK(kv.kind == KvKind::kHeads && kv.block_len == batch.block_len && kv.key_len <= kMaxHeadLen);
  for (int32_t i = 0; i < batch.n_kept; ++i) expect_kept(batch.kept[i], q, kv, batch);
  on_device(
      s, "keep_rows", [&] { cpu::keep_rows(s, q, kv, batch, scale); },
      [&] { reference::keep_rows(q, kv, batch, scale); }, kNoBody);
}

}  // namespace ibid::ops
