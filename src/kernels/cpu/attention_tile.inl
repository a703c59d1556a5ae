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

// What an element of a cache is. Addresses are of bytes: of four bits two elements share one.
struct F32 {
  static constexpr KvFormat kFormat = KvFormat::kF32;
  static constexpr int kBits = 32;
  IBID_INLINE f32x16 load16(const char* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr KvFormat kFormat = KvFormat::kF16;
  static constexpr int kBits = 16;
  IBID_INLINE f32x16 load16(const char* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }
};
struct BF16 {
  static constexpr KvFormat kFormat = KvFormat::kBF16;
  static constexpr int kBits = 16;
  IBID_INLINE f32x16 load16(const char* p) { return load_bf16(reinterpret_cast<const uint16_t*>(p)); }
};
// Codes, which their scales multiply, kUnit times.
struct I8 {
  static constexpr KvFormat kFormat = KvFormat::kI8;
  static constexpr int kBits = 8;
  static constexpr float kUnit = 1;
  IBID_INLINE f32x16 load16(const char* p) { return from_int(load_i8(p)); }
};
struct F8 {
  static constexpr KvFormat kFormat = KvFormat::kF8;
  static constexpr int kBits = 8;
  static constexpr float kUnit = 256;
  IBID_INLINE f32x16 load16(const char* p) { return load_e4m3(p); }
};
template <typename Format>
constexpr bool kHasOneScale = Format::kFormat == KvFormat::kI8 || Format::kFormat == KvFormat::kF8;
struct I4 {  // codes of half a byte, widened with their steps and zeros
  static constexpr KvFormat kFormat = KvFormat::kI4;
  static constexpr int kBits = 4;
};
struct InCache : F32 {  // a widened tile
  static constexpr KvFormat kFormat = KvFormat::kWidened;
};
// call(Format()) of the format.
template <typename Call>
IBID_INLINE void with_format(KvFormat format, const Call& call) {
  switch (format) {
    case KvFormat::kF32:
      return call(F32());
    case KvFormat::kF16:
      return call(F16());
    case KvFormat::kBF16:
      return call(BF16());
    case KvFormat::kI8:
      return call(I8());
    case KvFormat::kI4:
      return call(I4());
    case KvFormat::kF8:
      return call(F8());
    case KvFormat::kWidened:
      return call(InCache());
  }
}

// Sixteen codes of four bits, the lower or upper halves of bytes: code by + plus, where `by` is 16 steps of a lower
// half, and a step of an upper one, whose code is 16 times itself as it lies; plus is -step zero. Exact: the number has
// 20 bits.
IBID_INLINE f32x16 four_bits(const char* bytes, bool upper, f32x16 by, f32x16 plus) {
  return fma(from_int(and_(load_i8(bytes), broadcast_i(upper ? 0xf0 : 0x0f))), by, plus);
}
// What widens codes of four bits, of sixteen scales: [0] of lower halves, [1] of upper ones.
struct Widening {
  f32x16 by[2];
  f32x16 plus;
};
IBID_INLINE Widening widening_of(f32x16 step, f32x16 zero) {
  return {{mul(step, broadcast(16.0f)), step}, neg(mul(step, zero))};
}
IBID_INLINE f32x16 load_u8(const void* p) { return from_int(and_(load_i8(p), broadcast_i(255))); }

#define IBID_UNROLL _Pragma("GCC unroll 24")  // compilers stop at 16

struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
};
IBID_INLINE int least(int a, int b) { return a < b ? a : b; }
IBID_INLINE int most(int a, int b) { return a > b ? a : b; }

// Scales of a tile. Of eight bits: by[0][position], kUnit times. Of four: as Widening, of keys at [group][position], of
// values at [position][group].
struct TileScales {
  alignas(64) float by[2][kTileGroups * kTileLen];
  alignas(64) float plus[kTileGroups * kTileLen];
};

// Where the keys of 16 positions and the values of 16 positions lie: the tile's blocks, or its widened copy.
struct Tile {
  KvFormat key_format;
  KvFormat value_format;
  const char* key[kTileLen / 16];
  const char* value[kTileLen / 16];
  int64_t key_stride;    // bytes from one d to the next; of four bits from one pair to the next
  int64_t value_stride;  // from one position to the next
  int n_value_groups;    // of four bits
  TileScales key_scales;
  TileScales value_scales;
  // The tile after this one, to be fetched while this one is used. Its keys' lines, and its values', are dealt to four
  // parts of equal length: the lines of a block in turn to the parts that begin in it, next_step bytes apart.
  const char* next_key[kTileLen / 16];
  const char* next_value[kTileLen / 16];
  int64_t next_step;
  // Or runs: a block's keys and values, which lie one after the other. The last one twice.
  const char* next_run[kTileLen / 16 + 1];
  int run_lines;
  int key_lines;  // of a tile
  bool fetches_into_second;
};

// Sixteen numbers of the cache: of one dimension and 16 positions from `at` of the tile on. `d`: of a pair the first or
// second.
template <typename Format>
IBID_INLINE f32x16 key_of(const Tile& tile, const char* key, int at, int group, int d) {
  if constexpr (Format::kFormat == KvFormat::kI4) {
    const int scale = group * kTileLen + at;
    return four_bits(key, d != 0, load(tile.key_scales.by[d] + scale), load(tile.key_scales.plus + scale));
  } else if constexpr (kHasOneScale<Format>) {
    return mul(Format::load16(key), load(tile.key_scales.by[0] + at));
  } else {
    return Format::load16(key);
  }
}
// Of one position: the i-th vector of 16 dimensions from `value` on. Of four bits `value` is a group's, its `group`,
// and i counts from that on.
template <typename Format>
IBID_INLINE f32x16 value_of(const Tile& tile, const char* value, int at, int group, int i) {
  if constexpr (Format::kFormat == KvFormat::kI4) {
    const int scale = at * tile.n_value_groups + group + i / 2;
    const bool upper = i % 2 != 0;
    return four_bits(value + i / 2 * 16, upper, broadcast(tile.value_scales.by[upper ? 1 : 0][scale]),
                     broadcast(tile.value_scales.plus[scale]));
  } else if constexpr (kHasOneScale<Format>) {
    return mul(Format::load16(value + 16 * i), broadcast(tile.value_scales.by[0][at]));
  } else {
    return Format::load16(value + i * 2 * Format::kBits);
  }
}

// Fetches a line of each part at a time: a block is too short to be read at the memory's rate by itself, and a tile's
// blocks side by side are not (docs/decisions/0046-blocks-side-by-side.md). Of processors with AVX-512 those that fetch
// into the second-level cache read block after block faster, four lines at a time
// (docs/decisions/0048-runs-of-memory.md). Scores fetch as many lines as they read of keys, and weighing those of
// values.
#if defined(__AVX512F__)
constexpr bool kFetchesRuns = true;
#else
constexpr bool kFetchesRuns = false;
#endif
constexpr int kLine = 64;
struct Ahead {
  const char* part[kTileLen / 16];
  int64_t step;
  int turn;                // of parts: the first of those that come next
  const char* const* run;  // of runs: part[0] is in this one, which has `left` lines more
  int left;
  int run_lines;
  bool into_second;
};

// How a loop over VECTORS of 16 numbers fetches: a line of kParts parts every kSteps steps are as much as it uses.
template <typename Format, int VECTORS, int MOST>
struct Pace {
  static constexpr bool kFetches = Format::kFormat != KvFormat::kWidened;
  static constexpr int kExact = kFetches ? 4 * kLine * 8 / (16 * Format::kBits * VECTORS) : 1;
  static constexpr int kSteps = kExact < MOST ? kExact : MOST;
  static constexpr int kParts = 4 * kSteps / kExact;
};

template <typename Pace>
IBID_INLINE void fetch(Ahead& ahead) {
  if constexpr (Pace::kFetches) {
    if (ahead.into_second) {  // one branch for all, which is always taken alike
      if (kFetchesRuns) {
        for (int i = 0; i < Pace::kParts; ++i) __builtin_prefetch(ahead.part[0] + i * kLine, 0, 2);
        ahead.part[0] += Pace::kParts * kLine;
        ahead.left -= Pace::kParts;
        if (ahead.left <= 0) {
          ahead.part[0] = *++ahead.run;
          ahead.left = ahead.run_lines;
        }
        return;
      }
      for (int i = 0; i < Pace::kParts; ++i) __builtin_prefetch(ahead.part[ahead.turn + i], 0, 2);
    } else {
      for (int i = 0; i < Pace::kParts; ++i) __builtin_prefetch(ahead.part[ahead.turn + i], 0, 3);
    }
    for (int i = 0; i < Pace::kParts; ++i) ahead.part[ahead.turn + i] += ahead.step;
    if (Pace::kParts < 4) ahead.turn ^= 2;
  }
}

// What is fetched of the next tile while scores are made, or while values are weighed, without the first n_bytes of the
// keys or values.
enum class Phase { kScore, kWeigh };
template <typename Pace>
IBID_INLINE Ahead ahead_of(const Tile& tile, Phase phase, int n_bytes) {
  Ahead ahead = {};
  if (!Pace::kFetches) return ahead;
  ahead.into_second = tile.fetches_into_second;
  if (kFetchesRuns && tile.fetches_into_second) {
    int line = (phase == Phase::kScore ? 0 : tile.key_lines) + n_bytes / kLine;
    ahead.run = tile.next_run;
    for (; line >= tile.run_lines; line -= tile.run_lines) ++ahead.run;
    ahead.part[0] = *ahead.run + line * kLine;
    ahead.left = tile.run_lines - line;
    ahead.run_lines = tile.run_lines;
    return ahead;
  }
  const char* const* part = phase == Phase::kScore ? tile.next_key : tile.next_value;
  for (int i = 0; i < kTileLen / 16; ++i) ahead.part[i] = part[i] + n_bytes / (4 * kLine) * tile.next_step;
  ahead.step = tile.next_step;
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
IBID_INLINE void score_block(float* scores, const float* q, int key_len, const Tile& tile, int v) {
  f32x16 sum[ROWS][VECTORS];
  IBID_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < VECTORS; ++i) sum[r][i] = zero();
  }
  const char* key[VECTORS];
  for (int i = 0; i < VECTORS; ++i) key[i] = tile.key[v + i];
  const int64_t stride = tile.key_stride;
  using KeyPace = Pace<Format, VECTORS, 32>;
  constexpr int kDims = Format::kBits == 4 ? 2 : 1;  // that lie side by side
  Ahead ahead = ahead_of<KeyPace>(tile, Phase::kScore, 16 * v * key_len * Format::kBits / 8);
  for (int d = 0; d < key_len; d += KeyPace::kSteps) {
    const int group = d / kGroupLen;
    for (int step = 0; step < KeyPace::kSteps; step += kDims) {
      IBID_UNROLL
      for (int dim = 0; dim < kDims; ++dim, q += kStripRows) {
        add_products(
            sum, [&](int r) __attribute__((always_inline)) { return q[r]; },
            [&](int i)
                __attribute__((always_inline)) { return key_of<Format>(tile, key[i], 16 * (v + i), group, dim); });
      }
      for (int i = 0; i < VECTORS; ++i) key[i] += stride;
    }
    fetch<KeyPace>(ahead);
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
IBID_INLINE void value_block(float* o, int row_len, const float* p, const float* by, const Tile& tile, int first,
                             const Seen& seen) {
  f32x16 sum[ROWS][VECTORS];
  IBID_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    const f32x16 factor = broadcast(by[r]);
    for (int i = 0; i < VECTORS; ++i) {
      sum[r][i] = r < seen.n_rows ? mul(load(o + r * row_len + first + 16 * i), factor) : zero();
    }
  }
  // Of four bits a group's 32 dimensions share bytes, so a vector alone may be the second of one.
  constexpr bool kInGroups = Format::kBits == 4;
  const int group = first / kGroupLen, skipped = kInGroups && VECTORS % 2 != 0 ? first / 16 % 2 : 0;
  const int64_t first_byte = kInGroups ? group * (kGroupLen / 2) : first * Format::kBits / 8;
  const auto value_at = [&](int at) __attribute__((always_inline)) {
    return tile.value[at / 16] + (at % 16) * tile.value_stride + first_byte;
  };
  // Where rows see different positions, those that see one lie side by side.
  Range rows = {0, 0};
  const auto ragged = [&](int begin, int end) __attribute__((always_inline)) {
    for (int at = begin; at < end; ++at) {
      while (rows.begin < seen.n_rows && seen.visible[rows.begin].end <= at) ++rows.begin;
      while (rows.end < seen.n_rows && seen.visible[rows.end].begin <= at) ++rows.end;
      const char* value = value_at(at);
      f32x16 x[VECTORS];
      for (int i = 0; i < VECTORS; ++i) x[i] = value_of<Format>(tile, value, at, group, i + skipped);
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
  const auto add_value = [&](int at, const char* value) __attribute__((always_inline)) {
    add_products(
        sum, [&](int r) __attribute__((always_inline)) { return p[r * kTileLen + at]; },
        [&](int i) __attribute__((always_inline)) { return value_of<Format>(tile, value, at, group, i + skipped); });
  };
  using ValuePace = Pace<Format, VECTORS, 16>;
  constexpr int kSteps = ValuePace::kSteps;
  Ahead ahead = ahead_of<ValuePace>(tile, Phase::kWeigh, kTileLen * first * Format::kBits / 8);
  for (int at = seen.common.begin; at < seen.common.end;) {
    const char* value = value_at(at);
    const int end = least(seen.common.end, (at / 16 + 1) * 16);
    for (; at + kSteps <= end; at += kSteps) {
      for (int step = 0; step < kSteps; ++step, value += stride) add_value(at + step, value);
      fetch<ValuePace>(ahead);
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
__attribute__((noinline)) void score(float* scores, const float* q, int key_len, const Tile& tile, Range vectors) {
  constexpr int kVectors = vectors_of(ROWS);
  int v = vectors.begin;
  for (; v + kVectors <= vectors.end; v += kVectors) score_block<ROWS, kVectors, Format>(scores, q, key_len, tile, v);
  if (kVectors > 2 && v + 2 <= vectors.end) {
    score_block<ROWS, 2, Format>(scores, q, key_len, tile, v);
    v += 2;
  }
  if (kVectors > 1) {
    for (; v < vectors.end; ++v) score_block<ROWS, 1, Format>(scores, q, key_len, tile, v);
  }
}
template <int ROWS, typename Format>
__attribute__((noinline)) void weigh(float* o, int row_len, const float* p, const float* by, const Tile& tile,
                                     const Seen& seen) {
  constexpr int kVectors = vectors_of(ROWS);
  int first = 0;
  for (; first + 16 * kVectors <= row_len; first += 16 * kVectors) {
    value_block<ROWS, kVectors, Format>(o, row_len, p, by, tile, first, seen);
  }
  if (kVectors > 1) {
    for (; first < row_len; first += 16) value_block<ROWS, 1, Format>(o, row_len, p, by, tile, first, seen);
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

template <typename Format>
IBID_INLINE void score_rows(int n_rows, float* scores, const float* q, int key_len, const Tile& tile, Range vectors) {
#define IBID_CALL(ROWS) score<ROWS, Format>(scores, q, key_len, tile, vectors)
  IBID_BY_ROWS(n_rows, IBID_CALL);
#undef IBID_CALL
}
template <typename Format>
IBID_INLINE void weigh_rows(int n_rows, float* o, int row_len, const float* p, const float* by, const Tile& tile,
                            const Seen& seen) {
#define IBID_CALL(ROWS) weigh<ROWS, Format>(o, row_len, p, by, tile, seen)
  IBID_BY_ROWS(n_rows, IBID_CALL);
#undef IBID_CALL
}

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
void strip_tile(const AttentionTask& task, int n_rows, const float* q, const Range* visible, const Bias* biases,
                const Tile& tile, float* m, float* l, float* o) {
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
  with_format(tile.key_format,
              [&](auto format) { score_rows<decltype(format)>(n_rows, p, q, task.key_len, tile, vectors); });

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

  with_format(tile.value_format, [&](auto format) {
    using Format = decltype(format);
    if (ordered) return weigh_rows<Format>(n_rows, o, row_len, p, shrink, tile, seen);
    for (int r = 0; r < n_rows; ++r) {  // drafts of a tree in a window
      if (visible[r].empty()) continue;
      weigh<1, Format>(o + r * row_len, row_len, p + r * kTileLen, shrink + r, tile,
                       {visible + r, 1, visible[r], visible[r]});
    }
  });
}

#undef IBID_BY_ROWS
#undef IBID_ABOVE_6
#undef IBID_UP_TO_6
#undef IBID_UP_TO

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
