// One tile of keys and values against one strip of rows: scores, online softmax, weighted values. Part of
// attention.inl; attention_table.h states the arithmetic.
#pragma once

#include "kernels/cpu/attention_table.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/math.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

// Rows that share one load of keys or values, and vectors of 16 that a product keeps in registers for each: 24 of 32
// registers with AVX-512, 12 of 16 with AVX2.
constexpr int kStripRows = 6;
#if defined(__AVX512F__)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 1;
#endif
constexpr int kMaxLen = 256;
constexpr int kMaxRows = 96;
constexpr float kMinusInfinity = -__builtin_inff();

struct F32 {
  using Element = float;
  static constexpr bool kFetchAhead = true;
  IBID_INLINE f32x16 load16(const Element* p) { return load(p); }
};
struct F16 {
  using Element = uint16_t;
  static constexpr bool kFetchAhead = true;
  IBID_INLINE f32x16 load16(const Element* p) { return load_f16(p); }
};
struct BF16 {
  using Element = uint16_t;
  static constexpr bool kFetchAhead = true;
  IBID_INLINE f32x16 load16(const Element* p) { return load_bf16(p); }
};
struct InCache : F32 {  // a widened tile
  static constexpr bool kFetchAhead = false;
};

struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
};
IBID_INLINE int least(int a, int b) { return a < b ? a : b; }
IBID_INLINE int most(int a, int b) { return a > b ? a : b; }

// Where the keys of 16 positions and the values of 16 positions lie: the tile's blocks, or its widened copy.
template <typename Format>
struct Tile {
  const typename Format::Element* key[kTileLen / 16];
  const typename Format::Element* value[kTileLen / 16];
  int64_t key_stride;    // from one d to the next
  int64_t value_stride;  // from one position to the next
  // The tile after this one, to be fetched while this one is used.
  const typename Format::Element* next_key[kTileLen / 16];
  const typename Format::Element* next_value[kTileLen / 16];
};

// scores[r][16 v ...] of ROWS rows and VECTORS vectors.
template <int ROWS, int VECTORS, typename Format>
IBID_INLINE void score_block(float* scores, const float* q, int row_len, int head_len, const Tile<Format>& tile,
                             int v) {
  f32x16 sum[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < VECTORS; ++i) sum[r][i] = zero();
  }
  const typename Format::Element* key[VECTORS];
  for (int i = 0; i < VECTORS; ++i) key[i] = tile.key[v + i];
  for (int d = 0; d < head_len; ++d) {
    f32x16 k[VECTORS];
    for (int i = 0; i < VECTORS; ++i) {
      k[i] = Format::load16(key[i]);
      if (Format::kFetchAhead) __builtin_prefetch(tile.next_key[v + i] + d * tile.key_stride);
      key[i] += tile.key_stride;
    }
    for (int r = 0; r < ROWS; ++r) {
      const f32x16 x = broadcast(q[r * row_len + d]);
      for (int i = 0; i < VECTORS; ++i) sum[r][i] = fma(x, k[i], sum[r][i]);
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < VECTORS; ++i) store(scores + r * kTileLen + 16 * (v + i), sum[r][i]);
  }
}

// o[r][first ... + 16 VECTORS) += p[r][j] * value[j] for j in [j.begin, j.end), ascending.
template <int ROWS, int VECTORS, typename Format>
IBID_INLINE void value_block(float* o, int row_len, const float* p, const Tile<Format>& tile, int first, Range j) {
  f32x16 sum[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < VECTORS; ++i) sum[r][i] = load(o + r * row_len + first + 16 * i);
  }
  int at = j.begin;
  while (at < j.end) {
    const int end = least(j.end, (at / 16 + 1) * 16);
    const typename Format::Element* begin = tile.value[at / 16];
    const typename Format::Element* next = Format::kFetchAhead ? tile.next_value[at / 16] : begin;
    const typename Format::Element* value = begin + (at % 16) * tile.value_stride + first;
    for (; at < end; ++at, value += tile.value_stride) {
      f32x16 x[VECTORS];
      for (int i = 0; i < VECTORS; ++i) {
        x[i] = Format::load16(value + 16 * i);
        if (Format::kFetchAhead) __builtin_prefetch(next + (value - begin) + 16 * i);
      }
      for (int r = 0; r < ROWS; ++r) {
        const f32x16 weight = broadcast(p[r * kTileLen + at]);
        for (int i = 0; i < VECTORS; ++i) sum[r][i] = fma(weight, x[i], sum[r][i]);
      }
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < VECTORS; ++i) store(o + r * row_len + first + 16 * i, sum[r][i]);
  }
}

template <int ROWS, typename Format>
void score(float* scores, const float* q, int row_len, int head_len, const Tile<Format>& tile, Range vectors) {
  int v = vectors.begin;
  for (; v + kVectors <= vectors.end; v += kVectors) {
    score_block<ROWS, kVectors>(scores, q, row_len, head_len, tile, v);
  }
  if (kVectors >= 4 && v + 2 <= vectors.end) {
    score_block<ROWS, 2>(scores, q, row_len, head_len, tile, v);
    v += 2;
  }
  for (; v < vectors.end; ++v) score_block<ROWS, 1>(scores, q, row_len, head_len, tile, v);
}
template <int ROWS, typename Format>
void weigh(float* o, int row_len, const float* p, const Tile<Format>& tile, Range j) {
  int first = 0;
  for (; first + 16 * kVectors <= row_len; first += 16 * kVectors) {
    value_block<ROWS, kVectors>(o, row_len, p, tile, first, j);
  }
  for (; first < row_len; first += 16) value_block<ROWS, 1>(o, row_len, p, tile, first, j);
}

#define IBID_BY_ROWS(n_rows, call) \
  switch (n_rows) {                \
    case 1:                        \
      call(1);                     \
      break;                       \
    case 2:                        \
      call(2);                     \
      break;                       \
    case 3:                        \
      call(3);                     \
      break;                       \
    case 4:                        \
      call(4);                     \
      break;                       \
    case 5:                        \
      call(5);                     \
      break;                       \
    default:                       \
      call(6);                     \
      break;                       \
  }

// One tile for rows [0, n_rows) of a strip; visible[r] is relative to the tile.
template <typename Format>
void strip_tile(const AttentionTask& task, int n_rows, const float* q, const Range* visible, const Tile<Format>& tile,
                float* m, float* l, float* o) {
  const int row_len = attention_row_len(task.head_len);
  alignas(64) float p[kStripRows * kTileLen];
  alignas(64) float old_m[16] = {};
  alignas(64) float new_m[16] = {};
  Range all = {kTileLen, 0};
  Range common = {0, kTileLen};
  bool gap = false;
  for (int r = 0; r < n_rows; ++r) {
    if (visible[r].empty()) {
      gap = true;
      continue;
    }
    all = {least(all.begin, visible[r].begin), most(all.end, visible[r].end)};
    common = {most(common.begin, visible[r].begin), least(common.end, visible[r].end)};
  }
  if (all.empty()) return;
  if (gap || common.empty()) common = {all.end, all.end};
  const Range vectors = {all.begin / 16, (all.end + 15) / 16};
#define IBID_CALL(ROWS) score<ROWS>(p, q, row_len, task.head_len, tile, vectors)
  IBID_BY_ROWS(n_rows, IBID_CALL)
#undef IBID_CALL

  for (int r = 0; r < n_rows; ++r) {
    old_m[r] = new_m[r] = m[r];
    if (visible[r].empty()) {
      old_m[r] = new_m[r] = 0.0f;
      continue;
    }
    float* row = p + r * kTileLen;
    if (task.soft_cap > 0.0f) {
      const f32x16 cap = broadcast(task.soft_cap);
      for (int v = vectors.begin; v < vectors.end; ++v) {
        store(row + 16 * v, mul(cap, tanh(div(load(row + 16 * v), cap))));
      }
    }
    for (int j = 16 * vectors.begin; j < visible[r].begin; ++j) row[j] = kMinusInfinity;
    for (int j = visible[r].end; j < 16 * vectors.end; ++j) row[j] = kMinusInfinity;
    f32x16 highest = broadcast(m[r]);
    for (int v = vectors.begin; v < vectors.end; ++v) highest = max(load(row + 16 * v), highest);
    m[r] = new_m[r] = hmax(highest);
  }
  alignas(64) float shrink[16];
  store(shrink, exp(sub(load(old_m), load(new_m))));
  for (int r = 0; r < n_rows; ++r) {
    if (visible[r].empty()) continue;
    float* row = p + r * kTileLen;
    const f32x16 by = broadcast(shrink[r]);
    const f32x16 highest = broadcast(m[r]);
    f32x16 sum = mul(load(l + 16 * r), by);
    for (int v = vectors.begin; v < vectors.end; ++v) {
      const f32x16 weight = exp(sub(load(row + 16 * v), highest));
      store(row + 16 * v, weight);
      sum = add(sum, weight);
    }
    store(l + 16 * r, sum);
    if (shrink[r] != 1.0f) {
      for (int d = 0; d < row_len; d += 16) store(o + r * row_len + d, mul(load(o + r * row_len + d), by));
    }
  }

  // Where a strip's rows see different positions, each row takes its own ends alone.
  for (int r = 0; r < n_rows; ++r) {
    const Range head = {visible[r].begin, least(visible[r].end, common.begin)};
    if (!head.empty()) weigh<1>(o + r * row_len, row_len, p + r * kTileLen, tile, head);
  }
  if (!common.empty()) {
#define IBID_CALL(ROWS) weigh<ROWS>(o, row_len, p, tile, common)
    IBID_BY_ROWS(n_rows, IBID_CALL)
#undef IBID_CALL
  }
  for (int r = 0; r < n_rows; ++r) {
    const Range tail = {most(visible[r].begin, common.end), visible[r].end};
    if (!tail.empty()) weigh<1>(o + r * row_len, row_len, p + r * kTileLen, tile, tail);
  }
}

#undef IBID_BY_ROWS

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
