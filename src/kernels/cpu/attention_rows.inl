// The rows of a task: what they see, and their queries as strips read them. Part of attention.inl.
#pragma once

#include "kernels/cpu/attention_tile.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

// A group's rows lie in strips of equal length (the last may be shorter), each with place for kStripRows; a group's
// strips after those of the one before.
constexpr int kPlaceFloats = kAttentionPlaceFloats;
static_assert(kPlaceFloats >= kStripRows * kMaxLen && kPlaceFloats >= 2 * kAttentionRowFloats);

// Rows of one task and what they see, which is the same for each group.
struct Rows {
  int n;  // of a group
  int n_strips;
  int strip_len;
  int q_len;            // from a query to the next, where it is not transposed
  int row_len;          // from an output to the next
  int lowest, highest;  // positions that any row sees
  int table_end;        // after the last position that any row reads through the block table
  int path_begin;       // the first position that any row reads from a path
  int place[kMaxRows];  // of a row of the first group
  int group_places;     // from one group's to the next's
  int begin[kMaxRows];  // by place, as q
  int end[kMaxRows];
  // [group][strip][Dk][kStripRows]; a path's rows may begin within a strip, and stores of 16 floats end after one.
  alignas(64) float q[kPlaceFloats + kStripRows];
};

IBID_INLINE int path_len(const AttentionTask& task, int query) {
  return task.path_start == nullptr ? 0 : task.path_start[query + 1] - task.path_start[query];
}

IBID_INLINE const float* query_row(const AttentionTask& task, int group, int row) {
  return task.q + (row / task.n_heads) * task.q_stride + (group * task.n_heads + row % task.n_heads) * task.key_len;
}

// The queries of a strip's rows, scaled and transposed: to[d][kStripRows]. Rows that are not there are 0 as far as any
// kernel looks.
IBID_INLINE void transpose_queries(const AttentionTask& task, int group, Range strip, float* to) {
  const float* row[kStripRows];
  const int n = strip.end - strip.begin;
  for (int r = 0; r < n; ++r) row[r] = query_row(task, group, strip.begin + r);
#if defined(__AVX512F__)
  const f32x16 scale = broadcast(task.scale);
  for (int d = 0; d < task.key_len; d += 16) {
    const int n_d = least(16, task.key_len - d);
    // From the last rows to the first: what a store of 16 writes too much belongs to the next d's first rows.
    for (int first = (n - 1) / 16 * 16; first >= 0; first -= 16) {
      f32x16 x[16];
      IBID_UNROLL
      for (int r = 0; r < 16; ++r) {
        x[r] = zero();
        if (first + r >= n) continue;
        x[r] = mul(n_d == 16 ? load(row[first + r] + d) : load_n(row[first + r] + d, n_d), scale);
      }
      transpose(x);
      for (int i = 0; i < n_d; ++i) store(to + (d + i) * kStripRows + first, x[i]);
    }
  }
#else
  for (int d = 0; d < task.key_len; ++d) {
    for (int r = 0; r < kStripRows; ++r) to[d * kStripRows + r] = r < n ? row[r][d] * task.scale : 0.0f;
  }
#endif
}

int end_seen(const AttentionTask& task, int query) {
  return task.ends != nullptr ? task.ends[query] : task.positions[query] + 1;
}

void read_rows(const AttentionTask& task, Rows& rows) {
  rows.n = task.n_queries * task.n_heads;
  rows.n_strips = (rows.n + kStripRows - 1) / kStripRows;
  rows.strip_len = (rows.n + rows.n_strips - 1) / rows.n_strips;
  rows.group_places = rows.n_strips * kStripRows;
  rows.q_len = attention_row_len(task.key_len);
  rows.row_len = attention_row_len(task.value_len);
  rows.lowest = 0x7fffffff;
  rows.highest = 0;
  rows.table_end = 0;
  rows.path_begin = 0x7fffffff;
  for (int i = 0; i < task.n_queries; ++i) {
    const int end = end_seen(task, i) - path_len(task, i);
    rows.table_end = most(rows.table_end, end);
    if (path_len(task, i) > 0) rows.path_begin = least(rows.path_begin, end);
  }
  for (int strip = 0; strip < rows.n_strips; ++strip) {
    const Range of = {strip * rows.strip_len, least(rows.n, (strip + 1) * rows.strip_len)};
    for (int r = of.begin; r < of.end; ++r) {
      const int query = r / task.n_heads;
      const int place = strip * kStripRows + r - of.begin;
      rows.place[r] = place;
      rows.end[place] = end_seen(task, query);
      rows.begin[place] = task.window > 0 ? most(0, task.positions[query] + 1 - task.window) : 0;
      rows.lowest = least(rows.lowest, rows.begin[place]);
      rows.highest = most(rows.highest, rows.end[place]);
    }
    for (int group = 0; group < task.n_groups; ++group) {
      const int place = group * rows.group_places + strip * kStripRows;
      transpose_queries(task, group, of, rows.q + place * rows.q_len);
    }
  }
}

#undef IBID_UNROLL

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
