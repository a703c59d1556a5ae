// Products of block-quantised weights with int8 activations; kernels/linear.h says what they compute.
#pragma once

#include "kernels/cpu/dot_pairs.h"
#include "kernels/cpu/linear_rows.inl"
#include "kernels/cpu/linear_tile.h"

namespace ibid::cpu::IBID_ISA {
namespace {

// How the codes of a group of kLen inputs enter the integer dot: those with an offset of 128 as full bytes, the others,
// of kBits, as they are, with -offset * sum(x) to start from. A sum begins with first(start) and ends with
// last(sum, start): sets without VNNI keep sums in 16 bits where they fit and widen them once, a third fewer
// instructions.
template <int kOffset, int kBits, int kLen>
struct Dot {
  static constexpr bool kIn16 = kHasDots16 && kLen / 2 * ((1 << kBits) - 1) * 127 <= 32767;
  typedef Codes8 Step;
  typedef typename SumOf<kIn16>::Type Sum;
  IBID_INLINE Step step(Codes8 c) { return c; }
  IBID_INLINE i32x16 start(int32_t neg_sum) {
    return shift_left<__builtin_ctz(kOffset == 0 ? 1 : kOffset)>(broadcast_i(kOffset == 0 ? 0 : neg_sum));
  }
  IBID_INLINE Sum first(i32x16 start) {
    if constexpr (kIn16) {
      return Sum{};
    } else {
      return start;
    }
  }
  IBID_INLINE Sum dot(Sum acc, Step w, X4 x) { return dot_small(acc, w, x); }
  IBID_INLINE i32x16 last(Sum sum, i32x16 start) {
    if constexpr (kIn16) {
      return add(widen(sum), start);
    } else {
      return sum;
    }
  }
};
template <int kBits, int kLen>
struct Dot<128, kBits, kLen> {
  typedef FullCodes8 Step;
  typedef i32x16 Sum;
  IBID_INLINE Step step(Codes8 c) { return full_codes(c); }
  IBID_INLINE i32x16 start(int32_t neg_sum) { return start_full(neg_sum); }
  IBID_INLINE Sum first(i32x16 start) { return start; }
  IBID_INLINE Sum dot(Sum acc, Step w, X4 x) { return dot_full(acc, w, x); }
  IBID_INLINE i32x16 last(Sum sum, i32x16) { return sum; }
};

struct Factor {
  f32x16 scale, min;
};

// Tiles of weights in a layout of kBlockLayouts. `at`: bytes from the first tile to the one that is meant.
template <BlockLayout kLayout>
struct Packed {
  static constexpr int kGroup = kLayout.group_len, kGroups = 32 / kGroup, kOffset = kLayout.offset;
  static constexpr bool kMin = kLayout.has_min;
  static constexpr bool kHasHalves = kLayout.low_bits == 4 && kLayout.high_bits == 0;
  static constexpr bool kIsPlain = kLayout.low_bits >= 4 && kLayout.high_bits == 0 && kGroup == 32;
  // Up to so many rows take their weights straight from the packed form; more unpack it once for all.
  static constexpr int kDirectRows = kIsPlain ? 2 * kRowsInt8 : kRowsInt8;
  static constexpr int64_t kCodeBytes = code_bytes(kLayout), kFactorBytes = factor_bytes(kLayout);
  static constexpr int64_t kSuperBytes = super_bytes(kLayout);

  const uint8_t* codes;
  const uint8_t* factors;
  const uint8_t* supers;
  CodeTable table;

  IBID_INLINE Packed first_tile(const void* tiles, int64_t n_inputs, const uint8_t* table) {
    Packed f;
    f.codes = static_cast<const uint8_t*>(tiles);
    f.factors = f.codes + n_inputs / 32 * kCodeBytes;
    f.supers = f.factors + n_inputs / 32 * kFactorBytes;
    if constexpr (kLayout.has_table) f.table = load_table(table);
    return f;
  }
  // The codes of inputs [4 i, 4 i + 4) of block b.
  IBID_INLINE Codes8 step(const Packed& f, int64_t at, int64_t b, int i) {
    constexpr int kLow = kLayout.low_bits, kHigh = kLayout.high_bits;
    const uint8_t* p = f.codes + at + b * kCodeBytes;
    if constexpr (kLow == 8) return load_codes(p + i * 64);
    Codes8 c = take_bits<kLow, 0>(load_codes(p + i % kLow * 64), i / kLow * kLow);
    if constexpr (kHigh != 0) {
      constexpr int kVectors = kHigh == 0 ? 1 : kHigh;
      c = either(c, take_bits<kHigh, kLow>(load_codes(p + (kLow + i % kVectors) * 64), i / kVectors * kHigh));
    }
    if constexpr (kLayout.has_table) c = look_up(f.table, c);
    return c;
  }
  // Of group g of block b.
  IBID_INLINE Factor factor(const Packed& f, int64_t at, int64_t b, int g) {
    const uint8_t* p = f.factors + at + b * kFactorBytes;
    Factor r = {zero(), zero()};
    if constexpr (kLayout.factors == Factors::kHalf) {
      r.scale = load_f16(reinterpret_cast<const uint16_t*>(p) + g * kTileOutputs);
      if constexpr (kMin) r.min = load_f16(reinterpret_cast<const uint16_t*>(p) + (kGroups + g) * kTileOutputs);
    } else if constexpr (kLayout.factors == Factors::kFloat) {
      r.scale = load(reinterpret_cast<const float*>(p) + g * kTileOutputs);
      if constexpr (kMin) r.min = load(reinterpret_cast<const float*>(p) + (kGroups + g) * kTileOutputs);
    } else if constexpr (kLayout.factors == Factors::kExponent) {
      const i32x16 e = and_(load_i8(p), broadcast_i(255));  // 2^-128 and 2^-127 are subnormal
      r.scale = from_bits(select(less(e, broadcast_i(2)), shift_left<21>(add(e, broadcast_i(1))),
                                 shift_left<23>(sub(e, broadcast_i(1)))));
    } else {
      const auto* super = reinterpret_cast<const uint16_t*>(f.supers + at + (b >> 3) * kSuperBytes);
      const i32x16 low = load_i8(p + g * kTileOutputs);
      constexpr bool kNibble = kLayout.factors == Factors::kNibble;
      r.scale = mul(load_f16(super), from_int(kNibble ? and_(low, broadcast_i(15)) : low));
      if constexpr (kMin) {
        const i32x16 high =
            kNibble ? and_(shift_right<4>(low), broadcast_i(15)) : load_i8(p + (kGroups + g) * kTileOutputs);
        r.min = mul(neg(load_f16(super + kTileOutputs)), from_int(high));
      }
    }
    return r;
  }
  template <int kLocality>
  IBID_INLINE void prefetch(const Packed& f, int64_t at, int64_t b) {
    for (int64_t i = 0; i < kCodeBytes; i += 64) __builtin_prefetch(f.codes + at + b * kCodeBytes + i, 0, kLocality);
    for (int64_t i = 0; i < kFactorBytes; i += 64) {
      __builtin_prefetch(f.factors + at + b * kFactorBytes + i, 0, kLocality);
    }
    if constexpr (kSuperBytes != 0) __builtin_prefetch(f.supers + at + (b >> 3) * kSuperBytes, 0, kLocality);
  }
};

// The float sums of a call's rows for one register tile: those of whole pieces of K in their order, and behind them the
// one that is being added to.
struct Sums {
  alignas(64) float of[kMaxWaiting + 1][kMaxProductRows][kTiles][kTileOutputs];
};
// A run of blocks inside one piece of K.
struct Part {
  int64_t block, block_end;  // of the weights that are read: counted from their own first
  int n_waiting;             // sums of whole pieces before it
  int n_adds;                // of these, to be added behind this part: none unless a piece ends here
  bool begins_piece, ends_k;
};

// A tile's codes and factors are streams of a few KiB, too short for the processor's own prefetching to get going. What
// is fetched: the block kBlocksAhead ahead, past the end of a tile one of the next tile. (Blocks 16 ahead into the
// second-level cache beside blocks 4 ahead into the first were twice the fetches: 8 rows took 1 to 6 % longer.)
struct Ahead {
  int64_t n_blocks;   // of a tile; 0: nothing is fetched ahead
  int64_t next_tile;  // bytes
  bool into_second;   // into the second-level cache only
};
inline constexpr int64_t kBlocksAhead = 8;
template <class F>
IBID_INLINE void fetch(const F& f, int64_t at, const Ahead& ahead, int64_t b) {
  const int64_t block = b + kBlocksAhead;
  const bool is_here = block < ahead.n_blocks;
  const int64_t tile = is_here ? at : at + ahead.next_tile, of_tile = is_here ? block : block - ahead.n_blocks;
  if (ahead.into_second) {
    F::template prefetch<2>(f, tile, of_tile);
  } else {
    F::template prefetch<3>(f, tile, of_tile);
  }
}

// The packed form of the panel behind the one that rows pass over: fetched line by line meanwhile. Unpacking it waited
// for memory without an end otherwise, a quarter of a product of 32 rows: what a processor has in flight at once is
// soon used up by fetching alone, so that a fetch in time has to be spread.
class Upcoming {
 public:
  template <BlockLayout kLayout>
  void begin(const Packed<kLayout>& f, const TileOffsets& at, int64_t block, int64_t n_blocks, int64_t n_fetches) {
    n_ranges_ = range_ = 0;
    int64_t n_lines = 0;
    for (int t = 0; t < kTiles; ++t) {
      n_lines += append(f.codes + at.of[t], block, n_blocks, Packed<kLayout>::kCodeBytes);
      n_lines += append(f.factors + at.of[t], block, n_blocks, Packed<kLayout>::kFactorBytes);
    }
    lines_a_fetch_ = (n_lines + n_fetches - 1) / n_fetches;
  }
  void none() { n_ranges_ = range_ = 0; }
  // As many times as `n_fetches` says.
  IBID_INLINE void fetch(Upcoming& u) {
    if (u.range_ == u.n_ranges_) return;
    Range* r = u.ranges_ + u.range_;
    for (int64_t i = 0; i < u.lines_a_fetch_; ++i) {
      __builtin_prefetch(r->at, 0, 2);
      r->at += 64;
      if (r->at < r->end) continue;
      if (++u.range_ == u.n_ranges_) return;
      ++r;
    }
  }

 private:
  struct Range {
    const uint8_t *at, *end;
  };
  int64_t append(const uint8_t* first, int64_t block, int64_t n_blocks, int64_t block_bytes) {
    Range& r = ranges_[n_ranges_++];
    r = {first + block * block_bytes, first + (block + n_blocks) * block_bytes};
    return (n_blocks * block_bytes + 63) / 64;
  }
  Range ranges_[2 * kTiles];
  int n_ranges_ = 0, range_ = 0;
  int64_t lines_a_fetch_ = 0;
};

// What lies in memory would be taken into registers that are not there, and spilled one by one.
IBID_INLINE void stay_in_memory() { asm volatile("" ::: "memory"); }

// Behind the last block of a part: whole pieces of K are added, and behind the last piece sums become outputs.
template <int M>
IBID_INLINE void end_part(const Part& part, Sums& sums, int64_t row, const OutTile& out) {
  int level = part.n_waiting;
  for (int n_adds = part.n_adds; n_adds > 0; --n_adds, --level) {
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < kTiles; ++t) {
        store(sums.of[level - 1][row + m][t],
              add(load(sums.of[level - 1][row + m][t]), load(sums.of[level][row + m][t])));
      }
    }
  }
  if (part.ends_k) {
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < kTiles; ++t) store_out(out, m, t, load(sums.of[level][row + m][t]));
    }
  }
}

// Up to kRowsInt8 rows, which are a chunk of x: every block is unpacked into registers and used by all of them.
template <class F, int kBits>
struct Rows {
  template <int M>
  __attribute__((noinline)) static void run(const F& f, const TileOffsets& at, const Ahead& ahead, const Part& part,
                                            const XGroup* x, Sums& sums, const int64_t& row, const OutTile& out) {
    typedef Dot<F::kOffset, kBits, F::kGroup> D;
    constexpr int kSteps = F::kGroup / 4;
    constexpr int kChains = 2 * M <= kRowsInt8 ? 2 : 1;  // where there are registers: integers add exactly
    constexpr bool kByPairs = kHasPairs && M > 1;
    static_assert(!kByPairs || kTiles == 1);
    float(*acc)[kTiles][kTileOutputs] = sums.of[part.n_waiting] + row;
    if (part.begins_piece) {
      for (int m = 0; m < M; ++m) {
        for (int t = 0; t < kTiles; ++t) store(acc[m][t], zero());
      }
    }
    for (int64_t b = part.block; b < part.block_end; ++b, x += M) {
      if (ahead.n_blocks != 0) {
        for (int t = 0; t < kTiles; ++t) fetch(f, at.of[t], ahead, b);
      }
#pragma GCC unroll 2
      for (int g = 0; g < F::kGroups; ++g) {
        auto start = [&](int m) { return D::start(F::kGroups == 1 ? x[m].neg_sum : x[m].neg_sum16[g]); };
        typename D::Sum sum[kChains][M][kTiles];
        [[maybe_unused]] PairSums<M> pairs;
        if constexpr (kByPairs) {
          clear(pairs);
#pragma GCC unroll 4
          for (int i = 0; i < kSteps; i += 2) {
            const int step = g * kSteps + i;
            add_steps(pairs, D::step(F::step(f, at.of[0], b, step)), D::step(F::step(f, at.of[0], b, step + 1)), x,
                      4 * step);
          }
        }
#pragma GCC unroll 8
        for (int m = 0; m < M && !kByPairs; ++m) {
          for (int t = 0; t < kTiles; ++t) {
            sum[0][m][t] = D::first(start(m));
            if constexpr (kChains == 2) sum[1][m][t] = D::first(broadcast_i(0));
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kSteps && !kByPairs; ++i) {
          typename D::Step w[kTiles];
          for (int t = 0; t < kTiles; ++t) w[t] = D::step(F::step(f, at.of[t], b, g * kSteps + i));
          typename D::Sum(&s)[M][kTiles] = sum[i % kChains];
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) {
            const X4 x4 = load_x4(x[m].codes + g * F::kGroup + 4 * i);
            for (int t = 0; t < kTiles; ++t) s[m][t] = D::dot(s[m][t], w[t], x4);
          }
          // The second half's codes lie in the same words: kept until then, they would push sums out of registers.
          if constexpr (kChains == 1 && F::kHasHalves) {
            if (i + 1 == kSteps / 2) stay_in_memory();
          }
        }
        stay_in_memory();
#pragma GCC unroll 8
        for (int t = 0; t < kTiles; ++t) {
          const Factor factor = F::factor(f, at.of[t], b, g);
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) {
            i32x16 dot;
            if constexpr (kByPairs) {
              dot = add(sums_of_row(pairs, m), start(m));
            } else {
              dot = D::last(sum[0][m][t], start(m));
              if constexpr (kChains == 2) dot = add(dot, D::last(sum[1][m][t], broadcast_i(0)));
            }
            f32x16 a = fma(from_int(dot), mul(factor.scale, broadcast(x[m].scale)), load(acc[m][t]));
            if constexpr (F::kMin) {
              a = fma(factor.min, broadcast(F::kGroups == 1 ? x[m].scaled_sum : x[m].scaled_sum16[g]), a);
            }
            store(acc[m][t], a);
          }
        }
      }
    }
    end_part<M>(part, sums, row, out);
  }
};

// The same of a panel where there are 32 registers: four rows at a time, so that their float sums stay in registers as
// well. With eight rows' in memory a block takes 24 loads and 24 stores for 192 dots.
inline constexpr bool kPanelSumsInRegisters = kTiles == 3;
inline constexpr int kPanelRowsAtOnce = 4;
template <class F, int kBits>
struct PanelRows {
  static constexpr int kAtOnce = kPanelRowsAtOnce;

  template <int M>
  __attribute__((noinline)) static void run(const F& f, const TileOffsets& at, Upcoming& upcoming, const Part& part,
                                            const XGroup* x, Sums& sums, const int64_t& row, const OutTile& out) {
    float(*acc)[kTiles][kTileOutputs] = sums.of[part.n_waiting] + row;
    for (int first = 0; first + kAtOnce <= M; first += kAtOnce) {
      add_blocks<kAtOnce>(f, at, upcoming, part, x + first, M, acc + first);
    }
    if constexpr (M % kAtOnce != 0) {
      add_blocks<M % kAtOnce>(f, at, upcoming, part, x + M / kAtOnce * kAtOnce, M, acc + M / kAtOnce * kAtOnce);
    }
    end_part<M>(part, sums, row, out);
  }

 private:
  template <int N>
  IBID_INLINE void add_blocks(const F& f, const TileOffsets& at, Upcoming& upcoming, const Part& part, const XGroup* x,
                              int64_t x_step, float (*acc)[kTiles][kTileOutputs]) {
    typedef Dot<F::kOffset, kBits, F::kGroup> D;
    constexpr int kSteps = F::kGroup / 4;
    f32x16 sums[N][kTiles];
    for (int n = 0; n < N; ++n) {
      for (int t = 0; t < kTiles; ++t) sums[n][t] = part.begins_piece ? zero() : load(acc[n][t]);
    }
    for (int64_t b = part.block; b < part.block_end; ++b, x += x_step) {
      Upcoming::fetch(upcoming);
#pragma GCC unroll 2
      for (int g = 0; g < F::kGroups; ++g) {
        auto start = [&](int n) { return D::start(F::kGroups == 1 ? x[n].neg_sum : x[n].neg_sum16[g]); };
        typename D::Sum dot[N][kTiles];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
          for (int t = 0; t < kTiles; ++t) dot[n][t] = D::first(start(n));
        }
#pragma GCC unroll 8
        for (int i = 0; i < kSteps; ++i) {
          typename D::Step w[kTiles];
          for (int t = 0; t < kTiles; ++t) w[t] = D::step(F::step(f, at.of[t], b, g * kSteps + i));
#pragma GCC unroll 8
          for (int n = 0; n < N; ++n) {
            const X4 x4 = load_x4(x[n].codes + g * F::kGroup + 4 * i);
            for (int t = 0; t < kTiles; ++t) dot[n][t] = D::dot(dot[n][t], w[t], x4);
          }
        }
#pragma GCC unroll 8
        for (int t = 0; t < kTiles; ++t) {
          const Factor factor = F::factor(f, at.of[t], b, g);
#pragma GCC unroll 8
          for (int n = 0; n < N; ++n) {
            const i32x16 whole = D::last(dot[n][t], start(n));
            sums[n][t] = fma(from_int(whole), mul(factor.scale, broadcast(x[n].scale)), sums[n][t]);
            if constexpr (F::kMin) {
              const float x_sum = F::kGroups == 1 ? x[n].scaled_sum : x[n].scaled_sum16[g];
              sums[n][t] = fma(factor.min, broadcast(x_sum), sums[n][t]);
            }
          }
        }
      }
    }
    for (int n = 0; n < N; ++n) {
      for (int t = 0; t < kTiles; ++t) store(acc[n][t], sums[n][t]);
    }
  }
};

// Many rows: a panel of kTiles tiles is unpacked to bytes and f32 once, 28 KiB at most, and stays in the
// first-level cache while all rows pass. It ends where a piece of K ends.
inline constexpr int64_t kPanelInputs = kTiles == 1 ? 576 : 384;
template <BlockLayout kLayout>
struct PanelLayout {
  static constexpr BlockLayout kOf = {8, 0, kLayout.group_len, Factors::kFloat, kLayout.has_min, kLayout.offset, false};
  static constexpr int64_t kTileBytes = kPanelInputs / 32 * (code_bytes(kOf) + factor_bytes(kOf));
};

template <BlockLayout kLayout>
void unpack(const Packed<kLayout>& f, const TileOffsets& at, const Ahead& ahead, int64_t block, int64_t block_end,
            uint8_t* panel) {
  typedef PanelLayout<kLayout> P;
  typedef Packed<kLayout> F;
  constexpr int64_t kFactorsAt = kPanelInputs / 32 * code_bytes(P::kOf);
  for (int t = 0; t < kTiles; ++t, panel += P::kTileBytes) {
    uint8_t* codes = panel;
    auto* factors = reinterpret_cast<float*>(panel + kFactorsAt);
    for (int64_t b = block; b < block_end; ++b, codes += 512, factors += factor_bytes(P::kOf) / 4) {
      if (ahead.n_blocks != 0) fetch(f, at.of[t], ahead, b);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) store_codes(codes + i * 64, F::step(f, at.of[t], b, i));
#pragma GCC unroll 2
      for (int g = 0; g < F::kGroups; ++g) {
        const Factor factor = F::factor(f, at.of[t], b, g);
        store(factors + g * kTileOutputs, factor.scale);
        if constexpr (F::kMin) store(factors + (F::kGroups + g) * kTileOutputs, factor.min);
      }
    }
  }
}

// The shortest equal panels, of whole blocks, in which so many inputs pass.
IBID_INLINE int64_t even_panels(int64_t n_inputs) {
  const int64_t n_panels = (n_inputs + kPanelInputs - 1) / kPanelInputs;
  return ((n_inputs + n_panels - 1) / n_panels + 31) / 32 * 32;
}

template <DType kDType>
void product_int8(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  constexpr BlockLayout kLayout = kBlockLayouts[static_cast<int>(kDType)];
  typedef PanelLayout<kLayout> P;
  typedef Packed<kLayout> F;
  typedef Packed<P::kOf> Unpacked;
  constexpr int kBits = kLayout.low_bits + kLayout.high_bits;
  const bool is_direct = row_end - row <= F::kDirectRows;
  alignas(64) uint8_t panel[kTiles * P::kTileBytes];
  const Unpacked unpacked = Unpacked::first_tile(panel, kPanelInputs, nullptr);
  const TileOffsets unpacked_at = tile_offsets(kTiles, P::kTileBytes);
  Sums sums;
  Upcoming upcoming;
  bool is_fetched = false;  // the panel that is unpacked next
  const int64_t n_passes = (row_end - row + kPanelRowsAtOnce - 1) / kPanelRowsAtOnce;
  for (; tile < tile_end; tile += kTiles) {
    const int64_t n_tiles = tile_end - tile < kTiles ? tile_end - tile : kTiles;
    const F f = F::first_tile(task.packed + tile * task.tile_bytes, task.n_inputs, task.table);
    const TileOffsets at = tile_offsets(n_tiles, task.tile_bytes);
    const Ahead ahead = {task.n_inputs / 32, kTiles * task.tile_bytes, task.fetches_into_second};
    int n_waiting = 0;
    for (int piece = 0; piece < task.n_pieces; ++piece) {
      const int64_t begin = task.edges[piece], end = task.edges[piece + 1];
      const int64_t part_len = is_direct ? end - begin : even_panels(end - begin);
      int n_adds = 0;
      for (int64_t k = begin; k < end; k += part_len) {
        const bool ends_piece = end - k <= part_len;
        const int64_t block = k / 32, block_end = (ends_piece ? end : k + part_len) / 32;
        n_adds = ends_piece ? adds_behind(piece) : 0;
        Part part = {block, block_end, n_waiting, n_adds, k == begin, ends_piece && end == task.n_inputs};
        if (!is_direct) {
          unpack<kLayout>(f, at, is_fetched ? Ahead{} : ahead, block, block_end, panel);
          part.block = 0;
          part.block_end = block_end - block;
        }
        if (!is_direct && kPanelSumsInRegisters) {
          is_fetched = true;
          if (!part.ends_k) {
            const int64_t next_end = ends_piece ? task.edges[piece + 2] : end;
            const int64_t next_len =
                ends_piece ? even_panels(next_end - end) : (end - k < 2 * part_len ? end - k - part_len : part_len);
            upcoming.begin(f, at, block_end, next_len / 32, n_passes * part.block_end);
          } else if (tile + kTiles < tile_end) {
            const TileOffsets next = tile_offsets(tile_end - tile - kTiles, task.tile_bytes);
            upcoming.begin(F::first_tile(task.packed + (tile + kTiles) * task.tile_bytes, task.n_inputs, task.table),
                           next, 0, even_panels(task.edges[1]) / 32, n_passes * part.block_end);
          } else {
            upcoming.none();
          }
        }
        for (int64_t r = row; r < row_end; r += kRowsInt8) {
          int64_t step;
          const XGroup* x = x_groups(task.x_int8, r, step) + block * step;
          const OutTile out = out_tile(task, r, tile, static_cast<int>(n_tiles));
          if (is_direct) {
            with_rows<Rows<F, kBits>, kRowsInt8>(row_end - r, f, at, ahead, part, x, sums, r - row, out);
          } else if constexpr (kPanelSumsInRegisters) {
            with_rows<PanelRows<Unpacked, kBits>, kRowsInt8>(row_end - r, unpacked, unpacked_at, upcoming, part, x,
                                                             sums, r - row, out);
          } else {
            with_rows<Rows<Unpacked, kBits>, kRowsInt8>(row_end - r, unpacked, unpacked_at, Ahead{}, part, x, sums,
                                                        r - row, out);
          }
        }
      }
      n_waiting += 1 - n_adds;
    }
  }
}

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
