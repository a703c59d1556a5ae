// The body of every instruction set's attention.cc: a task's rows over its tiles and pieces.
#include "kernels/cpu/attention_rows.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

// Up to so many rows read keys and values as they lie; more rows share a tile widened to F32.
#if defined(__AVX512F__)
constexpr int kDirectRows = 96;
#elif defined(__AVX2__)
constexpr int kDirectRows = 48;
#else
constexpr int kDirectRows = 96;
#endif
static_assert(2 * kDirectRows >= kMaxRows, "each of several groups reads them as they lie");

// What the row of each place carries through a piece, and through all of them.
struct State {
  float m[kAttentionPlaces];
  alignas(64) float l[kAttentionPlaces * 16];
  alignas(64) float o[kPlaceFloats];
};

// Rows [which.begin, which.end) of a group.
void strips(const AttentionTask& task, const Rows& rows, int group, Range which, int tile_begin, const Tile& tile,
            State& state) {
  for (int row = which.begin; row < which.end;) {
    const int n = least(which.end, (row / rows.strip_len + 1) * rows.strip_len) - row;
    const int first = rows.place[row];
    Range visible[kStripRows];
    for (int r = 0; r < n; ++r) {
      visible[r] = {most(rows.begin[first + r] - tile_begin, 0), least(rows.end[first + r] - tile_begin, kTileLen)};
    }
    Bias biases[kStripRows];
    for (int r = 0; r < n && task.slopes != nullptr; ++r) {
      const int head = group * task.n_heads + (row + r) % task.n_heads;
      biases[r] = {task.slopes[head], rows.end[first + r] - 1 - tile_begin};
    }
    const int place = group * rows.group_places + first;
    const float* q = rows.q + place / kStripRows * kStripRows * rows.q_len + place % kStripRows;
    strip_tile(task, n, q, visible, task.slopes != nullptr ? biases : nullptr, tile, state.m + place,
               state.l + 16 * place, state.o + place * rows.row_len);
    row += n;
  }
}

// The tile's keys and values as F32: keys[d][64], values[64][row_len]. Only positions in `used` are read.
struct Widened {
  alignas(64) float keys[kMaxLen * kTileLen];
  alignas(64) float values[kMaxLen * kTileLen];
};

// Where a position lies: its block, in bytes after the first of all, and its place in it.
struct Place {
  int64_t block;
  int offset;
};
IBID_INLINE Place place_of(const AttentionTask& task, int position, int group = 0) {
  const int index = position / task.block_len;
  return {task.blocks[index] * task.block_bytes + group * task.group_bytes, position - index * task.block_len};
}
IBID_INLINE const char* byte_at(const void* blocks, Place place, int64_t byte) {
  return static_cast<const char*>(blocks) + place.block + byte;
}

IBID_INLINE constexpr int groups_of(int len) { return (len + kGroupLen - 1) / kGroupLen; }

// The F16 scales of `len` positions (or groups) from `from` on, or the zeros: 16 at a time, and of a block of eight its
// own twice. Nothing after them is read.
IBID_INLINE f32x16 scales_at(const char* from, int len) {
  if (len >= 16) return load_f16(reinterpret_cast<const uint16_t*>(from));
  alignas(64) uint16_t some[16] = {};
  __builtin_memcpy(some, from, 2 * static_cast<size_t>(len));
  if (len == 8) __builtin_memcpy(some + 8, from, 16);
  return load_f16(some);
}
template <typename Format>
IBID_INLINE f32x16 one_scales(const char* from, int len) {
  return Format::kUnit == 1 ? scales_at(from, len) : mul(scales_at(from, len), broadcast(Format::kUnit));
}
IBID_INLINE f32x16 zeros_at(const char* from, int len) {
  if (len >= 16) return load_u8(from);
  alignas(16) char some[16] = {};
  __builtin_memcpy(some, from, static_cast<size_t>(len));
  if (len == 8) __builtin_memcpy(some + 8, from, 8);
  return load_u8(some);
}
IBID_INLINE float first_of(f32x16 x) {
  alignas(64) float lane[16];
  store(lane, x);
  return lane[0];
}

// Eight or sixteen positions' keys at once, from `place` on and whole: those that are not used lie in lanes that are
// never looked at. What the next tile needs of the same place is fetched ahead (`next`; 0 where nothing follows).
template <typename Format>
IBID_INLINE void widen_keys(Format, const AttentionTask& task, Place place, float* to, int64_t next) {
  const int block_len = task.block_len, n = least(16, block_len);
  const char* keys = byte_at(task.keys, place, place.offset * Format::kBits / 8);
  const int64_t line = block_len * Format::kBits / 8;  // of a dimension
  f32x16 scales = zero();
  if constexpr (kHasOneScale<Format>) scales = one_scales<Format>(byte_at(task.key_scales, place, 2 * place.offset), n);
  const auto wide = [&](const char* from) __attribute__((always_inline)) {
    if constexpr (kHasOneScale<Format>) return mul(Format::load16(from), scales);
    return Format::load16(from);
  };
  if (block_len >= 16) {
    for (int d = 0; d < task.key_len; ++d) {
      store(to + d * kTileLen, wide(keys + d * line));
      __builtin_prefetch(keys + d * line + next);
    }
    return;
  }
  for (int d = 0; d < task.key_len; d += 2) {  // two dimensions of 8 positions
    alignas(64) float both[16];
    store(both, wide(keys + d * line));
    __builtin_prefetch(keys + d * line + next);
    __builtin_memcpy(to + d * kTileLen, both, 32);
    __builtin_memcpy(to + (d + 1) * kTileLen, both + 8, 32);
  }
}

IBID_INLINE Widening key_widening(const AttentionTask& task, Place place, int group) {
  const int n = least(16, task.block_len), first = group * task.block_len + place.offset;
  return widening_of(scales_at(byte_at(task.key_scales, place, 2 * first), n),
                     zeros_at(byte_at(task.key_zeros, place, first), n));
}
// A byte has a pair of dimensions; sixteen bytes of a block of eight are of two pairs.
IBID_INLINE void widen_keys(I4, const AttentionTask& task, Place place, float* to, int64_t next) {
  const int block_len = task.block_len;
  const char* keys = byte_at(task.keys, place, place.offset);
  for (int group = 0; group < groups_of(task.key_len); ++group) {
    const Widening by = key_widening(task, place, group);
    const int end = least(task.key_len, (group + 1) * kGroupLen);
    for (int d = group * kGroupLen; d < end; d += block_len >= 16 ? 2 : 4) {
      const char* from = keys + d / 2 * block_len;
      __builtin_prefetch(from + next);
      for (int upper = 0; upper < 2; ++upper) {
        const f32x16 x = four_bits(from, upper != 0, by.by[upper], by.plus);
        float* at = to + (d + upper) * kTileLen;
        if (block_len >= 16) {
          store(at, x);
          continue;
        }
        alignas(64) float both[16];
        store(both, x);
        __builtin_memcpy(at, both, 32);
        __builtin_memcpy(at + 2 * kTileLen, both + 8, 32);
      }
    }
  }
}

// The n elements from `from` on, of a value or a latent row.
template <typename Format>
IBID_INLINE void widen_row(float* to, const char* from, float scale, int64_t next, int n) {
  const auto wide = [&](const char* at) __attribute__((always_inline)) {
    if constexpr (kHasOneScale<Format>) return mul(Format::load16(at), broadcast(scale));
    return Format::load16(at);
  };
  int d = 0;
  for (; d + 16 <= n; d += 16) {
    store(to + d, wide(from + d * Format::kBits / 8));
    __builtin_prefetch(from + d * Format::kBits / 8 + next);
  }
  if (d < n) {
    alignas(64) char half[16 * Format::kBits / 8] = {};
    __builtin_memcpy(half, from + d * Format::kBits / 8, Format::kBits);  // of 8 elements
    store(to + d, wide(half));
  }
}

template <typename Format>
IBID_INLINE void widen_value(Format, const AttentionTask& task, Place place, float* to, int64_t next) {
  float scale = 1;
  if constexpr (kHasOneScale<Format>)
    scale = first_of(one_scales<Format>(byte_at(task.value_scales, place, 2 * place.offset), 1));
  const char* from = byte_at(task.values, place, int64_t{place.offset} * task.value_len * Format::kBits / 8);
  widen_row<Format>(to, from, scale, next, task.value_len);
}
IBID_INLINE void widen_value(I4, const AttentionTask& task, Place place, float* to, int64_t next) {
  const int n_groups = groups_of(task.value_len);
  const char* from = byte_at(task.values, place, place.offset * task.value_len / 2);
  for (int group = 0; group < n_groups; ++group) {
    const int scale = place.offset * n_groups + group, first = group * kGroupLen;
    const int half = least(kGroupLen, task.value_len - first) / 2;
    const Widening by = widening_of(broadcast(first_of(scales_at(byte_at(task.value_scales, place, 2 * scale), 1))),
                                    broadcast(first_of(zeros_at(byte_at(task.value_zeros, place, scale), 1))));
    alignas(16) char bytes[16] = {};
    __builtin_memcpy(bytes, from + first / 2, static_cast<size_t>(half));
    __builtin_prefetch(from + first / 2 + next);
    for (int upper = 0; upper < 2; ++upper)
      store_n(to + first + upper * half, four_bits(bytes, upper != 0, by.by[upper], by.plus), half);
  }
}

// The latent rows of n positions, one after the other, as positions [j, j + n) of the tile: 16 dimensions at a time,
// whose lines of the tile's keys stay near.
template <typename Format>
IBID_INLINE void widen_latent(const AttentionTask& task, Place place, int n, int j, Widened& wide) {
  const int row_len = attention_row_len(task.value_len);
  const int64_t row_bytes = int64_t{task.key_len} * Format::kBits / 8;
  const char* rows = byte_at(task.keys, place, place.offset * row_bytes);
  for (int d = 0; d < task.key_len; d += 16) {
    const int n_d = least(16, task.key_len - d);
    for (int i = 0; i < n; ++i) {
      alignas(64) float f32[16];
      widen_row<Format>(f32, rows + i * row_bytes + d * Format::kBits / 8, 1, 0, n_d);
      for (int k = 0; k < n_d; ++k) wide.keys[(d + k) * kTileLen + j + i] = f32[k];
      if (d < row_len) store(wide.values + (j + i) * row_len + d, load(f32));
    }
  }
}

void widen(const AttentionTask& task, int tile_begin, Range used, int table_end, Widened& wide) {
  const int row_len = attention_row_len(task.value_len);
  const int block_len = task.block_len;
  for (int j = used.begin; j < used.end;) {
    const int position = tile_begin + j;
    const Place place = place_of(task, position);
    const int offset = place.offset, n = least(block_len - offset, used.end - j);
    if (task.latent) {
      with_format(task.key_format, [&](auto format) {
        if constexpr (decltype(format)::kBits >= 16) widen_latent<decltype(format)>(task, place, n, j, wide);
      });
      j += n;
      continue;
    }
    const bool follows = position - offset + kTileLen < table_end;
    const int64_t next = follows ? place_of(task, position + kTileLen).block - place.block : int64_t{0};
    with_format(task.key_format, [&](auto format) {
      for (int i = block_len >= 16 ? offset / 16 * 16 : 0; i < offset + n; i += 16)
        widen_keys(format, task, {place.block, i}, wide.keys + (j - offset) + i, next);
    });
    with_format(task.value_format, [&](auto format) {
      for (int i = 0; i < n; ++i)
        widen_value(format, task, {place.block, offset + i}, wide.values + (j + i) * row_len, next);
    });
    j += n;
  }
}

// The key of one position, whose dimensions lie apart, as position j of the tile.
template <typename Format>
IBID_INLINE void widen_key(Format, const AttentionTask& task, Place place, int j, Widened& wide) {
  const char* key = byte_at(task.keys, place, place.offset * Format::kBits / 8);
  const int64_t line = task.block_len * Format::kBits / 8;
  float scale = 1;
  if constexpr (kHasOneScale<Format>)
    scale = first_of(one_scales<Format>(byte_at(task.key_scales, place, 2 * place.offset), 1));
  for (int d = 0; d < task.key_len; d += 16) {
    const int n = least(16, task.key_len - d);
    alignas(64) char narrow[16 * Format::kBits / 8] = {};
    alignas(64) float f32[16];
    for (int i = 0; i < n; ++i)
      __builtin_memcpy(narrow + i * Format::kBits / 8, key + (d + i) * line, Format::kBits / 8);
    store(f32, Format::load16(narrow));
    for (int i = 0; i < n; ++i) wide.keys[(d + i) * kTileLen + j] = kHasOneScale<Format> ? f32[i] * scale : f32[i];
  }
}
IBID_INLINE void widen_key(I4, const AttentionTask& task, Place place, int j, Widened& wide) {
  for (int group = 0; group < groups_of(task.key_len); ++group) {
    const int scale = group * task.block_len + place.offset, first = group * kGroupLen;
    const int n = least(kGroupLen, task.key_len - first) / 2;
    const Widening by = widening_of(broadcast(first_of(scales_at(byte_at(task.key_scales, place, 2 * scale), 1))),
                                    broadcast(first_of(zeros_at(byte_at(task.key_zeros, place, scale), 1))));
    alignas(16) char bytes[16] = {};
    for (int i = 0; i < n; ++i) bytes[i] = *byte_at(task.keys, place, (first / 2 + i) * task.block_len + place.offset);
    for (int upper = 0; upper < 2; ++upper) {
      alignas(64) float f32[16];
      store(f32, four_bits(bytes, upper != 0, by.by[upper], by.plus));
      for (int i = 0; i < n; ++i) wide.keys[(first + 2 * i + upper) * kTileLen + j] = f32[i];
    }
  }
}

// The key and value of one position, from a slot anywhere.
void widen_slot(const AttentionTask& task, int slot, int j, Widened& wide) {
  const Place place = {slot / task.block_len * task.block_bytes, slot % task.block_len};
  with_format(task.key_format, [&](auto format) {
    using Format = decltype(format);
    if (!task.latent) return widen_key(format, task, place, j, wide);
    if constexpr (Format::kBits >= 16) widen_latent<Format>(task, place, 1, j, wide);
  });
  if (task.latent) return;
  with_format(task.value_format, [&](auto format) {
    widen_value(format, task, place, wide.values + j * attention_row_len(task.value_len), 0);
  });
}

IBID_INLINE int bits_of(KvFormat format) {
  int bits = 32;
  with_format(format, [&](auto f) { bits = decltype(f)::kBits; });
  return bits;
}

// Widenings of n scales from `scales` and `zeros` on, as places [at, at + n) of a tile's; n: a multiple of 16.
IBID_INLINE void read_widenings(const char* scales, const char* zeros, int n, int at, TileScales& to) {
  for (int i = 0; i < n; i += 16) {
    const Widening by = widening_of(scales_at(scales + 2 * i, 16), zeros_at(zeros + i, 16));
    store(to.by[0] + at + i, by.by[0]);
    store(to.by[1] + at + i, by.by[1]);
    store(to.plus + at + i, by.plus);
  }
}

// The scales of the 16 positions from `place` on, the v-th of a tile.
IBID_INLINE void read_scales(const AttentionTask& task, Place place, int v, Tile& tile) {
  const auto read_one = [&](auto format, const void* from, TileScales& to) __attribute__((always_inline)) {
    using Format = decltype(format);
    if constexpr (kHasOneScale<Format>)
      store(to.by[0] + 16 * v, one_scales<Format>(byte_at(from, place, 2 * place.offset), 16));
  };
  with_format(task.key_format, [&](auto format) { read_one(format, task.key_scales, tile.key_scales); });
  with_format(task.value_format, [&](auto format) { read_one(format, task.value_scales, tile.value_scales); });
  if (task.key_format == KvFormat::kI4) {
    for (int group = 0; group < groups_of(task.key_len); ++group) {
      const int first = group * task.block_len + place.offset;
      read_widenings(byte_at(task.key_scales, place, 2 * first), byte_at(task.key_zeros, place, first), 16,
                     group * kTileLen + 16 * v, tile.key_scales);
    }
  }
  if (task.value_format == KvFormat::kI4) {
    const int n_groups = groups_of(task.value_len), first = place.offset * n_groups;
    read_widenings(byte_at(task.value_scales, place, 2 * first), byte_at(task.value_zeros, place, first), 16 * n_groups,
                   16 * v * n_groups, tile.value_scales);
  }
}

void tile_of_blocks(const AttentionTask& task, int group, int tile_begin, Range used, int table_end, Tile& tile) {
  const int key_bits = bits_of(task.key_format), value_bits = bits_of(task.value_format);
  tile.key_format = task.key_format;
  tile.value_format = task.value_format;
  tile.key_stride = task.key_format == KvFormat::kI4 ? task.block_len : task.block_len * key_bits / 8;
  tile.value_stride = task.value_len * value_bits / 8;
  tile.n_value_groups = groups_of(task.value_len);
  tile.fetches_into_second = task.fetches_into_second;
  const int offset_bits = task.key_format == KvFormat::kI4 ? 8 : key_bits;  // from a position to the next
  for (int v = used.begin / 16; v < (used.end + 15) / 16; ++v) {
    const Place place = place_of(task, tile_begin + 16 * v, group);
    tile.key[v] = byte_at(task.keys, place, place.offset * offset_bits / 8);
    tile.value[v] = byte_at(task.values, place, place.offset * tile.value_stride);
    read_scales(task, place, v, tile);
  }
  tile.next_step = task.block_len / 16 * kLine;
  tile.run_lines = task.run_bytes / kLine;
  tile.key_lines = kTileLen * task.key_len * key_bits / 8 / kLine;
  // The next group's, or after the last one the next tile's first.
  const int next_group = group + 1 < task.n_groups ? group + 1 : 0;
  const int next_begin = next_group > 0 ? tile_begin : tile_begin + kTileLen;
  for (int v = 0; v < kTileLen / 16; ++v) {
    // Where nothing follows, this tile is fetched again, which costs next to nothing.
    const int position = next_begin + 16 * v;
    const Place place = place_of(task, position < table_end ? position : tile_begin + used.begin / 16 * 16, next_group);
    tile.next_key[v] = byte_at(task.keys, place, place.offset / 16 * kLine);
    tile.next_value[v] = byte_at(task.values, place, place.offset / 16 * kLine);
    if (place.offset == 0) tile.next_run[v * 16 / task.block_len] = tile.next_key[v];
    if (place.offset == 0 || v == 0) {
      for (int byte = 0; byte < task.scales_bytes; byte += kLine)
        __builtin_prefetch(byte_at(task.keys, place, task.run_bytes + byte));
    }
  }
  for (int run = kTileLen / task.block_len; run <= kTileLen / 16; ++run)
    tile.next_run[run] = tile.next_run[kTileLen / task.block_len - 1];
}

void begin_piece(const Rows& rows, int n_groups, State& state) {
  for (int r = 0; r < rows.n; ++r) {
    for (int group = 0; group < n_groups; ++group) {
      const int place = group * rows.group_places + rows.place[r];
      state.m[place] = kMinusInfinity;
      store(state.l + 16 * place, zero());
      for (int d = 0; d < rows.row_len; d += 16) store(state.o + place * rows.row_len + d, zero());
    }
  }
}

// What the earlier and the later of two states are scaled by when they merge; meaningless where one of them saw
// nothing.
struct Scales {
  float highest, left_by, right_by;
};

IBID_INLINE void copy_row(float* to, const float* from, int row_len) {
  for (int d = 0; d < row_len; d += 16) store(to + d, load(from + d));
}

// The state m, l, o of a row (the left, of earlier positions) becomes that of itself and the right.
IBID_INLINE void merge_state(float& left_m, float& left_l, float* left_o, float m, float l, const float* o, int row_len,
                             Scales scales) {
  if (m == kMinusInfinity) return;
  if (left_m == kMinusInfinity) {
    left_m = m;
    left_l = l;
    return copy_row(left_o, o, row_len);
  }
  const f32x16 left_by = broadcast(scales.left_by);
  const f32x16 right_by = broadcast(scales.right_by);
  left_m = scales.highest;
  left_l = left_l * scales.left_by + l * scales.right_by;
  for (int d = 0; d < row_len; d += 16) {
    store(left_o + d, fma(load(o + d), right_by, mul(load(left_o + d), left_by)));
  }
}

// Up to 16 rows' scales at once.
IBID_INLINE void scales_of(const float* left_m, const float* m, int n, Scales* scales) {
  alignas(64) float highest[16] = {}, left_by[16] = {}, right_by[16] = {};
  for (int r = 0; r < n; ++r) {
    highest[r] = left_m[r] > m[r] ? left_m[r] : m[r];
    left_by[r] = left_m[r] - highest[r];
    right_by[r] = m[r] - highest[r];
  }
  store(left_by, exp_below_one(load(left_by)));
  store(right_by, exp_below_one(load(right_by)));
  for (int r = 0; r < n; ++r) scales[r] = {highest[r], left_by[r], right_by[r]};
}

// The output of a row's whole state. `sink`: null, or its head's.
IBID_INLINE void finish(float* out, float m, float l, const float* o, const float* sink, int value_len) {
  float o_by = 1.0f;
  if (sink != nullptr) {
    Scales scales;
    scales_of(&m, sink, 1, &scales);
    o_by = scales.left_by;
    l = l * scales.left_by + scales.right_by;
  }
  const f32x16 by = broadcast(o_by), sum = broadcast(l);
  for (int d = 0; d < value_len; d += 16) {
    const f32x16 x = div(mul(load(o + d), by), sum);
    if (d + 16 <= value_len) {
      store(out + d, x);
    } else {
      store_n(out + d, x, value_len - d);
    }
  }
}

// The pieces' anchored tree as a counter carries: a stack of nodes whose levels fall from the bottom to the top. A node
// of level j stands for 2^j pieces from a multiple of 2^j on; a piece comes in at level 0, and while bit j of its
// number is set its node is a right one: the left one, if any piece of it was seen, is the stack's top, of level j.
constexpr int kMaxNodes = 24;  // positions are below 2^31
class Carry {
 public:
  // The piece's node goes on top. How many nodes below it are merged with it, one after another.
  int push(int64_t piece) {
    int level = 0, n_merged = 0;
    for (; (piece >> level & 1) != 0; ++level) {
      if (n_ > n_merged && level_[n_ - 1 - n_merged] == level) ++n_merged;
    }
    n_ += 1 - n_merged;
    level_[n_ - 1] = level;
    return n_merged;
  }
  int n() const { return n_; }

 private:
  int level_[kMaxNodes];
  int n_ = 0;
};

// The rows of a piece, whose state lies by place; rows of all groups, one group after the other.
struct PieceRows {
  const Rows& rows;
  const State& state;
  int place(int r) const { return r / rows.n * rows.group_places + rows.place[r % rows.n]; }
  float m(int r) const { return state.m[place(r)]; }
  float l(int r) const { return hsum(load(state.l + 16 * place(r))); }
  const float* o(int r) const { return state.o + place(r) * rows.row_len; }
};

// The rows of a node of the tree, by row.
struct Node {
  float m_of[kMaxRows];
  float l_of[kMaxRows];
  alignas(64) float o_of[kAttentionRowFloats];
  int row_len;
  float m(int r) const { return m_of[r]; }
  float l(int r) const { return l_of[r]; }
  const float* o(int r) const { return o_of + r * row_len; }
};

// `right`: a piece's rows or a node's.
template <typename Right>
IBID_INLINE void merge_rows(Node& left, const Right& right, int n_rows) {
  for (int first = 0; first < n_rows; first += 16) {
    const int n = least(n_rows - first, 16);
    float m[16];
    for (int i = 0; i < n; ++i) m[i] = right.m(first + i);
    Scales scales[16];
    scales_of(left.m_of + first, m, n, scales);
    for (int r = first; r < first + n; ++r) {
      merge_state(left.m_of[r], left.l_of[r], left.o_of + r * left.row_len, m[r - first], right.l(r), right.o(r),
                  left.row_len, scales[r - first]);
    }
  }
}

IBID_INLINE void tile_of(const Widened& wide, int row_len, Tile& tile) {
  tile.key_format = tile.value_format = KvFormat::kWidened;
  tile.key_stride = static_cast<int64_t>(kTileLen * sizeof(float));
  tile.value_stride = row_len * static_cast<int64_t>(sizeof(float));
  tile.fetches_into_second = false;
  for (int v = 0; v < kTileLen / 16; ++v) {
    tile.key[v] = reinterpret_cast<const char*>(wide.keys + 16 * v);
    tile.value[v] = reinterpret_cast<const char*>(wide.values + 16 * v * row_len);
  }
}

// A tile that a path reaches: each token's keys are others, so each has the tile to itself. Out of line, or the loop
// over plain tiles would be compiled less well (1 % of a decode over blocks of 8).
__attribute__((noinline)) void path_tile(const AttentionTask& task, const Rows& rows, int tile_begin, State& state) {
  for (int i = 0; i < task.n_queries; ++i) {
    const Range which = {i * task.n_heads, (i + 1) * task.n_heads};
    const int place = rows.place[which.begin];
    const Range used = {most(rows.begin[place] - tile_begin, 0), least(rows.end[place] - tile_begin, kTileLen)};
    if (used.empty()) continue;
    const int n = path_len(task, i);
    const int base = rows.end[place] - n;  // the path's first position
    Widened wide;
    const Range in_table = {used.begin, least(used.end, base - tile_begin)};
    if (!in_table.empty()) widen(task, tile_begin, in_table, 0, wide);
    for (int j = most(used.begin, base - tile_begin); j < used.end; ++j) {
      widen_slot(task, task.path_slots[task.path_start[i] + tile_begin + j - base], j, wide);
    }
    Tile tile;
    tile_of(wide, rows.row_len, tile);
    strips(task, rows, 0, which, tile_begin, tile, state);
  }
}

void run_piece(const AttentionTask& task, const Rows& rows, int piece, State& state) {
  begin_piece(rows, task.n_groups, state);
  const bool direct = rows.n <= kDirectRows && attention_reads_blocks(task.block_len, task.key_len, task.key_format,
                                                                      task.value_len, task.value_format, task.latent);
  for (int t = 0; t < kPieceTiles; ++t) {
    const int tile_begin = (piece * kPieceTiles + t) * kTileLen;
    const Range used = {most(rows.lowest - tile_begin, 0), least(rows.highest - tile_begin, kTileLen)};
    if (used.empty()) continue;
    if (rows.path_begin < tile_begin + kTileLen) {
      path_tile(task, rows, tile_begin, state);
      continue;
    }
    if (direct) {
      for (int group = 0; group < task.n_groups; ++group) {
        Tile tile;
        tile_of_blocks(task, group, tile_begin, used, rows.table_end, tile);
        strips(task, rows, group, {0, rows.n}, tile_begin, tile, state);
      }
      continue;
    }
    Widened wide;
    widen(task, tile_begin, used, rows.table_end, wide);
    Tile tile;
    tile_of(wide, rows.row_len, tile);
    strips(task, rows, 0, {0, rows.n}, tile_begin, tile, state);
  }
}

void run(const AttentionTask& task) {
  Rows rows;
  read_rows(task, rows);
  State state;
  const PieceRows piece_rows = {rows, state};
  const int n_rows = task.n_groups * rows.n;
  if (task.partial != nullptr) {
    const int stride = attention_partial_len(task.value_len);
    for (int piece = 0; piece < task.n_pieces; ++piece) {
      run_piece(task, rows, task.first_piece + piece, state);
      for (int r = 0; r < n_rows; ++r) {
        float* to = task.partial + piece * task.partial_stride + r * stride;
        to[0] = piece_rows.m(r);
        to[1] = piece_rows.l(r);
        copy_row(to + 16, piece_rows.o(r), rows.row_len);
      }
    }
    return;
  }
  const auto finish_rows = [&](const auto& of) __attribute__((always_inline)) {
    for (int r = 0; r < n_rows; ++r) {
      const int group = r / rows.n, of_group = r % rows.n, head = group * task.n_heads + of_group % task.n_heads;
      float* out = task.out + (of_group / task.n_heads) * task.out_stride + head * task.value_len;
      finish(out, of.m(r), of.l(r), of.o(r), task.sinks != nullptr ? task.sinks + head : nullptr, task.value_len);
    }
  };
  if (rows.lowest / kPieceLen == (rows.highest - 1) / kPieceLen) {  // nothing to merge
    run_piece(task, rows, rows.lowest / kPieceLen, state);
    return finish_rows(piece_rows);
  }
  Node nodes[kMaxNodes];
  Carry carry;
  for (int piece = rows.lowest / kPieceLen; piece * kPieceLen < rows.highest; ++piece) {
    run_piece(task, rows, piece, state);
    const int n_merged = carry.push(piece);
    const int top = carry.n() - 1 + n_merged;  // of the stack before the merges
    if (n_merged == 0) {
      Node& node = nodes[top];
      node.row_len = rows.row_len;
      for (int r = 0; r < n_rows; ++r) {
        node.m_of[r] = piece_rows.m(r);
        node.l_of[r] = piece_rows.l(r);
        copy_row(node.o_of + r * rows.row_len, piece_rows.o(r), rows.row_len);
      }
      continue;
    }
    merge_rows(nodes[top - 1], piece_rows, n_rows);  // the piece's state is read where it lies
    for (int k = 1; k < n_merged; ++k) merge_rows(nodes[top - k - 1], nodes[top - k], n_rows);
  }
  for (int k = carry.n() - 1; k > 0; --k) merge_rows(nodes[k - 1], nodes[k], n_rows);
  finish_rows(nodes[0]);
}

void merge(float* out, float* partial, int64_t first_piece, int64_t n, int64_t stride, const float* sink,
           int32_t value_len) {
  const int row_len = attention_row_len(value_len);
  float* nodes[kMaxNodes];
  const auto merge_top = [&](int top) __attribute__((always_inline)) {
    float *left = nodes[top - 1], *right = nodes[top];
    Scales scales;
    scales_of(left, right, 1, &scales);
    merge_state(left[0], left[1], left + 16, right[0], right[1], right + 16, row_len, scales);
  };
  Carry carry;
  for (int64_t i = 0; i < n; ++i) {
    const int n_merged = carry.push(first_piece + i);
    const int top = carry.n() - 1 + n_merged;
    nodes[top] = partial + i * stride;
    for (int k = 0; k < n_merged; ++k) merge_top(top - k);
  }
  for (int k = carry.n() - 1; k > 0; --k) merge_top(k);
  if (out != nullptr) finish(out, partial[0], partial[1], partial + 16, sink, value_len);
}

}  // namespace

extern const AttentionTable kAttention;
const AttentionTable kAttention = {run, merge};

}  // namespace ibid::cpu::IBID_ISA
