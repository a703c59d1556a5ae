// One tile of keys and values against one strip of rows: scores, online softmax, weighted values. Part of
// attention.inl; attention_table.h states the arithmetic.
#pragma once

#include "kernels/cpu/attention_table.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/math.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

// Rows that share one load of keys or values, and one widening of F16 and BF16 (two of AVX-512's two ports, where a
// row's multiply-add is one): as many as registers have sums for, each of 16 lanes. Fewer rows have more vectors: one
// row's multiply-adds of one vector would each wait for the one before.
#if defined(__AVX512F__)
constexpr int kStripRows = 24;
constexpr int vectors_of(int rows) { return rows <= 6 ? 4 : rows <= 12 ? 2 : 1; }  // 24 of 32 registers
#elif defined(__AVX2__) || defined(IBID_NEON)
constexpr int kStripRows = 6;
constexpr int vectors_of(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }  // 12 of 16, 24 of NEON's 32
#else
constexpr int kStripRows = 6;
constexpr int vectors_of(int) { return 1; }
#endif
constexpr int kMaxLen = 576;
constexpr int kMaxRows = 96;  // a multiple of kStripRows
constexpr float kMinusInfinity = -__builtin_inff();

struct F32 {
  using Element = float;
  static constexpr bool kFetchAhead = true, kHasScales = false;
  IBID_INLINE f32x16 load16(const Element* p) { return load(p); }
};
struct F16 {
  using Element = uint16_t;
  static constexpr bool kFetchAhead = true, kHasScales = false;
  IBID_INLINE f32x16 load16(const Element* p) { return load_f16(p); }
};
struct BF16 {
  using Element = uint16_t;
  static constexpr bool kFetchAhead = true, kHasScales = false;
  IBID_INLINE f32x16 load16(const Element* p) { return load_bf16(p); }
};
struct I8 {  // codes, which their scales multiply
  using Element = int8_t;
  static constexpr bool kFetchAhead = true, kHasScales = true;
  IBID_INLINE f32x16 load16(const Element* p) { return from_int(load_i8(p)); }
};
struct InCache : F32 {  // a widened tile
  static constexpr bool kFetchAhead = false;
};

#define IBID_UNROLL _Pragma("GCC unroll 24")  // compilers stop at 16

// Sixteen numbers of the cache: of one dimension and 16 positions from `at` of the tile on, or of one position.
template <typename Tile, typename Format>
IBID_INLINE f32x16 key_of(const Tile& tile, const typename Format::Element* key, int at) {
  if constexpr (Format::kHasScales) return mul(Format::load16(key), load(tile.key_scale + at));
  return Format::load16(key);
}
template <typename Tile, typename Format>
IBID_INLINE f32x16 value_of(const Tile& tile, const typename Format::Element* value, int at) {
  if constexpr (Format::kHasScales) return mul(Format::load16(value), broadcast(tile.value_scale[at]));
  return Format::load16(value);
}

struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
};
IBID_INLINE int least(int a, int b) { return a < b ? a : b; }
IBID_INLINE int most(int a, int b) { return a > b ? a : b; }

// The scales of a tile's positions, where a format has some.
template <bool kHasScales>
struct TileScales {};
template <>
struct TileScales<true> {
  alignas(64) float key_scale[kTileLen];
  alignas(64) float value_scale[kTileLen];
};

// Where the keys of 16 positions and the values of 16 positions lie: the tile's blocks, or its widened copy.
template <typename Format>
struct Tile : TileScales<Format::kHasScales> {
  const typename Format::Element* key[kTileLen / 16];
  const typename Format::Element* value[kTileLen / 16];
  int64_t key_stride;    // from one d to the next
  int64_t value_stride;  // from one position to the next
  // The tile after this one, to be fetched while this one is used. Its keys' lines, and its values', are dealt to four
  // parts of equal length: the lines of a block in turn to the parts that begin in it, next_step elements apart.
  const typename Format::Element* next_key[kTileLen / 16];
  const typename Format::Element* next_value[kTileLen / 16];
  int64_t next_step;
  int next_run;  // lines of a block's keys and values, which lie one after the other
  bool fetches_into_second;
};

// Fetches a line of each part at a time: a block is too short to be read at the memory's rate by itself, and a tile's
// blocks side by side are not (docs/decisions/0046-blocks-side-by-side.md). Of processors with AVX-512 those that fetch
// into the second-level cache read block after block faster, four lines at a time, keys and then values: half of the
// blocks while scores are made, half while values are weighed (docs/decisions/0048-runs-of-memory.md).
#if defined(__AVX512F__)
constexpr bool kFetchesRuns = true;
#else
constexpr bool kFetchesRuns = false;
#endif
template <typename Format>
struct Ahead {
  static constexpr int kLine = 64 / static_cast<int>(sizeof(typename Format::Element));
  // Steps of a loop over `vectors` of 16 numbers, from one fetch to the next, that bring as much as they use.
  static constexpr int steps(int vectors) { return Format::kFetchAhead ? kLine / (4 * vectors) : 1; }

  const typename Format::Element* part[kTileLen / 16];  // of runs: the next line, and the next run
  int64_t step;
  int left;  // of the run, in fetches
  bool into_second;
};

template <typename Format>
IBID_INLINE void fetch(Ahead<Format>& ahead) {
  if (!Format::kFetchAhead) return;
  if (ahead.into_second) {  // one branch for all, which is always taken alike
    if (kFetchesRuns) {
      for (int i = 0; i < 4; ++i) __builtin_prefetch(ahead.part[0] + i * Ahead<Format>::kLine, 0, 2);
      ahead.part[0] = --ahead.left == 0 ? ahead.part[1] : ahead.part[0] + 4 * Ahead<Format>::kLine;
      return;
    }
    for (const auto* part : ahead.part) __builtin_prefetch(part, 0, 2);
  } else {
    for (const auto* part : ahead.part) __builtin_prefetch(part, 0, 3);
  }
  for (auto& part : ahead.part) part += ahead.step;
}

// What is fetched of the next tile while scores are made, or while values are weighed, without the first `n` lines of
// each part.
enum class Phase { kScore, kWeigh };
template <typename Format>
IBID_INLINE Ahead<Format> ahead_of(const Tile<Format>& tile, Phase phase, int n) {
  Ahead<Format> ahead = {};
  if (!Format::kFetchAhead) return ahead;
  if (kFetchesRuns && tile.fetches_into_second) {
    const auto* const* run = tile.next_key + (phase == Phase::kScore ? 0 : kTileLen / 32);
    // The two of a phase, or of a block of 32 one.
    const bool first = 4 * n < tile.next_run;
    const int n_done = first ? 4 * n : 4 * n - tile.next_run;
    ahead.part[0] = run[first ? 0 : 1] + n_done * Ahead<Format>::kLine;
    ahead.part[1] = run[1];
    ahead.left = (tile.next_run - n_done) / 4;
    ahead.into_second = true;
    return ahead;
  }
  const auto* const* part = phase == Phase::kScore ? tile.next_key : tile.next_value;
  for (int i = 0; i < kTileLen / 16; ++i) ahead.part[i] = part[i] + n * tile.next_step;
  ahead.step = tile.next_step;
  ahead.into_second = tile.fetches_into_second;
  return ahead;
}

// sum[r][i] += x(r) * k(i). With 16 registers, of which sums take 12, one vector after the other, each with all rows'
// numbers again: a sum that did not stay in its register would wait for memory at every turn.
template <int ROWS, int VECTORS, typename X, typename K>
IBID_INLINE void add_products(f32x16 (&sum)[ROWS][VECTORS], const X& x, const K& k) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  for (int i = 0; i < VECTORS; ++i) {
    const f32x16 vector = k(i);
    IBID_UNROLL
    for (int r = 0; r < ROWS; ++r) sum[r][i] = fma(broadcast(x(r)), vector, sum[r][i]);
    if (i + 1 < VECTORS) asm volatile("" ::: "memory");  // or the numbers are kept for the next
  }
#else
  f32x16 vector[VECTORS];
  for (int i = 0; i < VECTORS; ++i) vector[i] = k(i);
  IBID_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    const f32x16 number = broadcast(x(r));
    for (int i = 0; i < VECTORS; ++i) sum[r][i] = fma(number, vector[i], sum[r][i]);
  }
#endif
}

// scores[r][16 v ...] of ROWS rows and VECTORS vectors; q is [key_len][kStripRows].
template <int ROWS, int VECTORS, typename Format>
IBID_INLINE void score_block(float* scores, const float* q, int key_len, const Tile<Format>& tile, int v) {
  f32x16 sum[ROWS][VECTORS];
  IBID_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < VECTORS; ++i) sum[r][i] = zero();
  }
  const typename Format::Element* key[VECTORS];
  for (int i = 0; i < VECTORS; ++i) key[i] = tile.key[v + i];
  const int64_t stride = tile.key_stride;
  Ahead<Format> ahead = ahead_of(tile, Phase::kScore, 4 * v * key_len / Ahead<Format>::kLine);
  constexpr int kSteps = Ahead<Format>::steps(VECTORS);
  for (int d = 0; d < key_len; d += kSteps) {
    for (int step = 0; step < kSteps; ++step, q += kStripRows) {
      add_products(
          sum, [&](int r) __attribute__((always_inline)) { return q[r]; },
          [&](int i)
              __attribute__((always_inline)) { return key_of<Tile<Format>, Format>(tile, key[i], 16 * (v + i)); });
      for (int i = 0; i < VECTORS; ++i) key[i] += stride;
    }
    fetch(ahead);
  }
  IBID_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < VECTORS; ++i) store(scores + r * kTileLen + 16 * (v + i), sum[r][i]);
  }
}

// What a strip's rows see of a tile: visible[r] is relative to it, all of [0, 64] or outside of it where nothing is
// seen. From one row to the next neither end goes back.
struct Seen {
  const Range* visible;
  int n_rows;
  Range all;     // what any row sees
  Range common;  // what every row sees
};

// sum[r] += p[r][j] * value[j] for the j that row r sees, ascending, where o[r][first ... + 16 VECTORS) * by[r] is what
// sum[r] begins with.
template <int ROWS, int VECTORS, typename Format>
IBID_INLINE void value_block(float* o, int row_len, const float* p, const float* by, const Tile<Format>& tile,
                             int first, const Seen& seen) {
  f32x16 sum[ROWS][VECTORS];
  IBID_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    const f32x16 factor = broadcast(by[r]);
    for (int i = 0; i < VECTORS; ++i) {
      sum[r][i] = r < seen.n_rows ? mul(load(o + r * row_len + first + 16 * i), factor) : zero();
    }
  }
  // Where rows see different positions, those that see one lie side by side.
  Range rows = {0, 0};
  const auto ragged = [&](int begin, int end) __attribute__((always_inline)) {
    for (int at = begin; at < end; ++at) {
      while (rows.begin < seen.n_rows && seen.visible[rows.begin].end <= at) ++rows.begin;
      while (rows.end < seen.n_rows && seen.visible[rows.end].begin <= at) ++rows.end;
      const typename Format::Element* value = tile.value[at / 16] + (at % 16) * tile.value_stride + first;
      f32x16 x[VECTORS];
      for (int i = 0; i < VECTORS; ++i) x[i] = value_of<Tile<Format>, Format>(tile, value + 16 * i, at);
      IBID_UNROLL
      for (int r = 0; r < ROWS; ++r) {
        if (r < rows.begin || r >= rows.end) continue;
        const f32x16 weight = broadcast(p[r * kTileLen + at]);
        for (int i = 0; i < VECTORS; ++i) sum[r][i] = fma(weight, x[i], sum[r][i]);
      }
    }
  };
  ragged(seen.all.begin, seen.common.begin);
  const int64_t stride = tile.value_stride;
  const auto add_value = [&](int at, const typename Format::Element* value) __attribute__((always_inline)) {
    add_products(
        sum, [&](int r) __attribute__((always_inline)) { return p[r * kTileLen + at]; },
        [&](int i) __attribute__((always_inline)) { return value_of<Tile<Format>, Format>(tile, value + 16 * i, at); });
  };
  Ahead<Format> ahead = ahead_of(tile, Phase::kWeigh, 16 * first / Ahead<Format>::kLine);
  constexpr int kSteps = Ahead<Format>::steps(VECTORS);
  for (int at = seen.common.begin; at < seen.common.end;) {
    const typename Format::Element* value = tile.value[at / 16] + (at % 16) * stride + first;
    const int end = least(seen.common.end, (at / 16 + 1) * 16);
    for (; at + kSteps <= end; at += kSteps) {
      for (int step = 0; step < kSteps; ++step, value += stride) add_value(at + step, value);
      fetch(ahead);
    }
    for (; at < end; ++at, value += stride) add_value(at, value);
  }
  ragged(seen.common.end, seen.all.end);
  IBID_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < VECTORS; ++i) {
      if (r < seen.n_rows) store(o + r * row_len + first + 16 * i, sum[r][i]);
    }
  }
}

// Apart, so that registers are spent on their loops alone.
template <int ROWS, typename Format>
__attribute__((noinline)) void score(float* scores, const float* q, int key_len, const Tile<Format>& tile,
                                     Range vectors) {
  constexpr int kVectors = vectors_of(ROWS);
  int v = vectors.begin;
  for (; v + kVectors <= vectors.end; v += kVectors) score_block<ROWS, kVectors>(scores, q, key_len, tile, v);
  if (kVectors > 2 && v + 2 <= vectors.end) {
    score_block<ROWS, 2>(scores, q, key_len, tile, v);
    v += 2;
  }
  if (kVectors > 1) {
    for (; v < vectors.end; ++v) score_block<ROWS, 1>(scores, q, key_len, tile, v);
  }
}
template <int ROWS, typename Format>
__attribute__((noinline)) void weigh(float* o, int row_len, const float* p, const float* by, const Tile<Format>& tile,
                                     const Seen& seen) {
  constexpr int kVectors = vectors_of(ROWS);
  int first = 0;
  for (; first + 16 * kVectors <= row_len; first += 16 * kVectors) {
    value_block<ROWS, kVectors>(o, row_len, p, by, tile, first, seen);
  }
  if (kVectors > 1) {
    for (; first < row_len; first += 16) value_block<ROWS, 1>(o, row_len, p, by, tile, first, seen);
  }
}

// call(ROWS) with the least ROWS of the list that holds n_rows. The surplus rows compute results that are not read.
#define IBID_UP_TO(ROWS, n_rows, call) \
  if (n_rows <= ROWS) {                \
    call(ROWS);                        \
    break;                             \
  }
#define IBID_UP_TO_6(n_rows, call) \
  IBID_UP_TO(1, n_rows, call)      \
  IBID_UP_TO(2, n_rows, call)      \
  IBID_UP_TO(3, n_rows, call)      \
  IBID_UP_TO(4, n_rows, call)      \
  IBID_UP_TO(5, n_rows, call)      \
  IBID_UP_TO(6, n_rows, call)
#if defined(__AVX512F__)
#define IBID_ABOVE_6(n_rows, call) \
  IBID_UP_TO(8, n_rows, call)      \
  IBID_UP_TO(10, n_rows, call)     \
  IBID_UP_TO(12, n_rows, call)     \
  IBID_UP_TO(16, n_rows, call)     \
  IBID_UP_TO(20, n_rows, call)     \
  IBID_UP_TO(24, n_rows, call)
#else
#define IBID_ABOVE_6(n_rows, call)
#endif
#define IBID_BY_ROWS(n_rows, call)                        \
  do {                                                    \
    IBID_UP_TO_6(n_rows, call) IBID_ABOVE_6(n_rows, call) \
  } while (false)

// The maximum of a row's scores and `m`; NaN is no maximum.
IBID_INLINE float maximum(const float* row, Range vectors, float m) {
  f32x16 highest = broadcast(m);
  for (int v = vectors.begin; v < vectors.end; ++v) highest = max(load(row + 16 * v), highest);
  return hmax(highest);
}

// The row's scores become weights, and sum adds them up by lanes.
IBID_INLINE f32x16 weights(float* row, Range vectors, float m, f32x16 sum) {
  const f32x16 highest = broadcast(m);
  for (int v = vectors.begin; v < vectors.end; ++v) {
    const f32x16 weight = exp_below_one(sub(load(row + 16 * v), highest));
    store(row + 16 * v, weight);
    sum = add(sum, weight);
  }
  return sum;
}

// Scores of positions that the row does not see become -inf.
IBID_INLINE void hide(float* row, Range vectors, Range visible) {
  alignas(64) static constexpr int32_t kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const i32x16 lane = load_i(kLane);
  const f32x16 hidden = broadcast(kMinusInfinity);
  for (int v = vectors.begin; v < vectors.end; ++v) {
    if (visible.begin <= 16 * v && visible.end >= 16 * v + 16) continue;
    f32x16 x = select(less(lane, broadcast_i(visible.begin - 16 * v)), hidden, load(row + 16 * v));
    x = select(less(lane, broadcast_i(visible.end - 16 * v)), x, hidden);
    store(row + 16 * v, x);
  }
}

// Of a row whose head has a slope: its query's position is relative to the tile.
struct Bias {
  float slope;
  int position;
};

IBID_INLINE void add_bias(float* row, Range vectors, Bias bias) {
  alignas(64) static constexpr float kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const f32x16 lane = load(kLane), slope = broadcast(bias.slope);
  for (int v = vectors.begin; v < vectors.end; ++v) {
    const f32x16 distance = add(lane, broadcast(static_cast<float>(16 * v - bias.position)));
    store(row + 16 * v, fma(slope, distance, load(row + 16 * v)));
  }
}

// One tile for rows [0, n_rows) of a strip; visible[r] is relative to the tile. `biases`: null, or of each row.
template <typename Format>
void strip_tile(const AttentionTask& task, int n_rows, const float* q, const Range* visible, const Bias* biases,
                const Tile<Format>& tile, float* m, float* l, float* o) {
  constexpr Range kWhole = {0, kTileLen / 16};
  const int row_len = attention_row_len(task.value_len);
  alignas(64) float p[kStripRows * kTileLen];
  alignas(64) float shrink[(kStripRows + 15) / 16 * 16] = {};
  Seen seen = {visible, n_rows, {kTileLen, 0}, {0, kTileLen}};
  bool gap = false;
  bool ordered = true;
  for (int r = 0; r < n_rows; ++r) {
    if (r > 0) ordered &= visible[r - 1].begin <= visible[r].begin && visible[r - 1].end <= visible[r].end;
    seen.common = {most(seen.common.begin, visible[r].begin), least(seen.common.end, visible[r].end)};
    if (visible[r].empty()) {
      gap = true;
      continue;
    }
    seen.all = {least(seen.all.begin, visible[r].begin), most(seen.all.end, visible[r].end)};
  }
  if (seen.all.empty()) return;
  if (gap || seen.common.empty()) seen.common = {seen.all.end, seen.all.end};
  const bool whole = seen.common.begin == 0 && seen.common.end == kTileLen;
  const Range vectors = {seen.all.begin / 16, (seen.all.end + 15) / 16};
#define IBID_CALL(ROWS) score<ROWS>(p, q, task.key_len, tile, vectors)
  IBID_BY_ROWS(n_rows, IBID_CALL);
#undef IBID_CALL

  for (int r = 0; r < n_rows; ++r) {
    if (visible[r].empty()) continue;
    float* row = p + r * kTileLen;
    if (task.soft_cap > 0.0f) {
      const f32x16 cap = broadcast(task.soft_cap);
      for (int v = vectors.begin; v < vectors.end; ++v) {
        store(row + 16 * v, mul(cap, tanh(div(load(row + 16 * v), cap))));
      }
    }
    if (biases != nullptr) add_bias(row, vectors, biases[r]);
    const float old_m = m[r];
    if (whole) {
      m[r] = maximum(row, kWhole, old_m);
    } else {
      hide(row, vectors, visible[r]);
      m[r] = maximum(row, vectors, old_m);
    }
    shrink[r] = old_m - m[r];
  }
  // A row that sees nothing here keeps all it has: exp(0) is 1.
  for (int r = 0; r < n_rows; r += 16) store(shrink + r, exp_below_one(load(shrink + r)));
  for (int r = 0; r < n_rows; ++r) {
    if (visible[r].empty()) continue;
    float* row = p + r * kTileLen;
    const f32x16 sum = mul(load(l + 16 * r), broadcast(shrink[r]));
    store(l + 16 * r, whole ? weights(row, kWhole, m[r], sum) : weights(row, vectors, m[r], sum));
  }

  if (!ordered) {  // drafts of a tree in a window
    for (int r = 0; r < n_rows; ++r) {
      if (visible[r].empty()) continue;
      weigh<1>(o + r * row_len, row_len, p + r * kTileLen, shrink + r, tile, {visible + r, 1, visible[r], visible[r]});
    }
    return;
  }
#define IBID_CALL(ROWS) weigh<ROWS>(o, row_len, p, shrink, tile, seen)
  IBID_BY_ROWS(n_rows, IBID_CALL);
#undef IBID_CALL
}

#undef IBID_BY_ROWS
#undef IBID_ABOVE_6
#undef IBID_UP_TO_6
#undef IBID_UP_TO

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
