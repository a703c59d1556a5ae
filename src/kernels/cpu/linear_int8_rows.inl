// Packed block-quantised weights, and products of few rows with them: each block is unpacked into registers and used by
// all rows. Results are specified in kernels/linear.h; linear_int8.inl has many rows.
#pragma once

#include "kernels/cpu/dot_pairs.h"
#include "kernels/cpu/linear_rows.inl"
#include "kernels/cpu/linear_tile.h"

namespace ibid::cpu::IBID_ISA {
namespace {

// How the codes of a group of kLen inputs enter the integer dot: those with an offset of 128 as full bytes, the others,
// of kBits, as they are, with -offset * sum(x) to start from. A sum begins with first(start) and ends with
// last(sum, start). A dot is of kRun steps: sets without VNNI keep sums in 16 bits where they fit and widen them once,
// a third fewer instructions, or those of two steps (codes of 5 and 6 bits), a sixth fewer.
template <int kOffset, int kBits, int kLen>
struct Dot {
  static constexpr int kMostOfStep = 2 * ((1 << kBits) - 1) * 127;  // in 16 bits
  static constexpr bool kIn16 = kHasDots16 && kLen / 4 * kMostOfStep <= 32767;
  // Two steps' codes of three tiles would take registers that sums need.
  static constexpr int kRun = kHasDots16 && kTiles == 1 && !kIn16 && 2 * kMostOfStep <= 32767 ? 2 : 1;
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
  IBID_INLINE Sum dot(Sum acc, const Step (&w)[kRun], const X4 (&x)[kRun]) {
    if constexpr (kRun == 2) {
      return kept_here(add(acc, widen(dot_small(dot_small(Dots16{}, w[0], x[0]), w[1], x[1]))));
    } else {
      return kept_here(dot_small(acc, w[0], x[0]));
    }
  }
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
  static constexpr int kRun = 1;
  typedef FullCodes8 Step;
  typedef i32x16 Sum;
  IBID_INLINE Step step(Codes8 c) { return full_codes(c); }
  IBID_INLINE i32x16 start(int32_t neg_sum) { return start_full(neg_sum); }
  IBID_INLINE Sum first(i32x16 start) { return start; }
  IBID_INLINE Sum dot(Sum acc, const Step (&w)[1], const X4 (&x)[1]) { return kept_here(dot_full(acc, w[0], x[0])); }
  IBID_INLINE i32x16 last(Sum sum, i32x16) { return sum; }
};

struct Factor {
  f32x16 scale, min;
};

// Tiles of weights in a layout of kBlockLayouts, with a block of the first of them as the one that is read. `at`: bytes
// from there to the same block of the tile that is meant.
template <BlockLayout kLayout>
struct Packed {
  static constexpr int kGroup = kLayout.group_len, kGroups = 32 / kGroup, kOffset = kLayout.offset;
  static constexpr bool kMin = kLayout.has_min;
  static constexpr bool kHasHalves = kLayout.low_bits == 4 && kLayout.high_bits == 0;
  static constexpr bool kIsPanel = kLayout.factors == Factors::kFloat;  // unpacked
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
  // The codes of inputs [4 i, 4 i + 4).
  IBID_INLINE Codes8 step(const Packed& f, int64_t at, int i) {
    constexpr int kLow = kLayout.low_bits, kHigh = kLayout.high_bits;
    const uint8_t* p = f.codes + at;
    if constexpr (kLow == 8) return load_codes(p + i * 64);
    Codes8 c = take_bits<kLow, 0>(load_codes(p + i % kLow * 64), i / kLow * kLow);
    if constexpr (kHigh != 0) {
      constexpr int kVectors = kHigh == 0 ? 1 : kHigh;
      c = either(c, take_bits<kHigh, kLow>(load_codes(p + (kLow + i % kVectors) * 64), i / kVectors * kHigh));
    }
    if constexpr (kLayout.has_table) c = look_up(f.table, c);
    return c;
  }
  // Of group g.
  IBID_INLINE Factor factor(const Packed& f, int64_t at, int g) {
    const uint8_t* p = f.factors + at;
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
      const auto* super = reinterpret_cast<const uint16_t*>(f.supers + at);
      const i32x16 low = load_i8(p + g * kTileOutputs);
      constexpr bool kNibble = kLayout.factors == Factors::kNibble;
      r.scale = mul(load_f16(super), from_int(kNibble ? and_(low, broadcast_i(15)) : low));
      if constexpr (kLayout.divisor != 1) r.scale = mul(r.scale, broadcast(1.0f / kLayout.divisor));  // exact
      if constexpr (kMin) {
        const i32x16 high =
            kNibble ? and_(shift_right<4>(low), broadcast_i(15)) : load_i8(p + (kGroups + g) * kTileOutputs);
        r.min = mul(neg(load_f16(super + kTileOutputs)), from_int(high));
      }
    }
    return r;
  }
  // From the first block to block b of the tile at `at`; and from block b to the one after.
  IBID_INLINE Packed from_block(const Packed& f, int64_t at, int64_t b) {
    Packed p = f;
    p.codes += at + b * kCodeBytes;
    p.factors += at + b * kFactorBytes;
    p.supers += at + (b >> 3) * kSuperBytes;
    return p;
  }
  IBID_INLINE void next_block(Packed& p, int64_t b) {
    p.codes += kCodeBytes;
    p.factors += kFactorBytes;
    if constexpr (kSuperBytes != 0) {
      if ((b & 7) == 7) p.supers += kSuperBytes;
    }
  }
};

// The float sums of a call's rows for one register tile: those of whole pieces of K in their order, and after them the
// one that is being added to.
template <int T>
struct SumsOf {
  alignas(64) float of[kMaxWaiting + 1][kMaxProductRows][T][kTileOutputs];
};
typedef SumsOf<kTiles> Sums;
// A run of blocks inside one piece of K.
struct Part {
  int64_t block, block_end;  // of the weights that are read: counted from their own first
  int n_waiting;             // sums of whole pieces before it
  int n_adds;                // of these, to be added after this part: none unless a piece ends here
  bool begins_piece, ends_k;
};

// A tile's codes and factors are streams of a few KiB, too short for the processor's own prefetching to get going. What
// is fetched: the block `distance` ahead, past the end of a tile one of the next tile. (Blocks 16 ahead into the
// second-level cache beside blocks 4 ahead into the first were twice the fetches: 8 rows took 1 to 6 % longer.)
struct Ahead {
  int64_t n_blocks = 0;      // of a tile; 0: nothing is fetched ahead
  int64_t next_tile = 0;     // bytes
  int64_t distance = 0;      // blocks, at most those of a tile
  bool into_second = false;  // into the second-level cache only
  bool in_order = false;     // lines as they lie in memory, of one tile; else codes and factors are two streams
};
// One tile that is read alone and is no longer than this is followed by the next one's lines in the order of memory, as
// one stream (Zen 3, K 576 from memory, two threads: Q4_0 1.1 to 1.2 as fast as by two streams, Q8_0 1.0 to 1.05; as
// two to nine streams within the tile 0.80 to 0.97 of that). Two tiles of 2,048 inputs so: 0.74 to 0.92 of two streams.
inline constexpr int64_t kBytesInOrder = 12 * 1024;
// `n_tiles` of F that are read side by side. One alone has to be as far ahead as three, in bytes, where the
// second-level cache takes so many lines (Zen 4, AVX2, from memory on two threads: one row of Q4_K made 24.1 GB/s 8
// blocks ahead, 27.0 at 16 and 28.7 at 24; Q8_0 28.5, 27.9 and 27.6, but 29.2 at 12). Three take 12 (AVX-512, two rows
// of 4-bit codes 0.88 to 1.0 of the time of 8, 16 and 24 blocks as 12, 8-bit codes all the same). Into the first it is
// 8 as measured with three tiles.
template <class F>
IBID_INLINE Ahead ahead_of(const LinearTask& task, int n_tiles) {
  const int64_t n_blocks = task.n_inputs / 32;
  const bool is_far = task.fetches_into_second && n_tiles == 1, in_order = is_far && task.tile_bytes <= kBytesInOrder;
  const int64_t distance = is_far                                     ? 7 * 1024 / (F::kCodeBytes + F::kFactorBytes)
                           : task.fetches_into_second && n_tiles == 3 ? 12
                                                                      : 8;
  return {n_blocks, n_tiles * task.tile_bytes, in_order || distance > n_blocks ? n_blocks : distance,
          task.fetches_into_second, in_order};
}

// What is fetched while tiles of F are read, block by block: `block`, whose supers are those that it lies in. Pointers
// that walk: with every place computed again from a block's number, addresses were a quarter of the instructions of one
// row.
template <class F>
struct Fetcher {
  F block;                                        // in the first of the tiles
  int64_t codes_step, factors_step;               // bytes to the block after
  int64_t n_left;                                 // blocks of the tile that is fetched
  int64_t next_codes, next_factors, next_supers;  // bytes from its end to the begin of the next one's
  bool into_second;

  // Beside block b of the tile at `at` and those after.
  IBID_INLINE Fetcher beside(const F& f, int64_t at, const Ahead& ahead, int64_t b) {
    const int64_t n = ahead.n_blocks, first = b + ahead.distance;
    const bool is_here = first < n;
    const int64_t of_tile = is_here ? first : first - n, tile = is_here ? at : at + ahead.next_tile;
    Fetcher r = {F::from_block(f, tile, of_tile),
                 F::kCodeBytes,
                 F::kFactorBytes,
                 n - of_tile,
                 ahead.next_tile - n * F::kCodeBytes,
                 ahead.next_tile - n * F::kFactorBytes,
                 ahead.next_tile - n / 8 * F::kSuperBytes,
                 ahead.into_second};
    if (ahead.in_order) {
      r.codes_step = r.factors_step = ahead.next_tile / n;
      r.block.codes = r.block.supers = f.codes + tile + of_tile * r.codes_step;
      r.block.factors = r.block.codes + F::kCodeBytes;
    }
    return r;
  }
  // Fetches the lines that a step of a block of bytes reads, always into the second-level cache: a choice by
  // into_second at each step would cost as much as it saves.
  IBID_INLINE void fetch_step(const Fetcher& r, int64_t at, int step) {
    __builtin_prefetch(r.block.codes + at + step * 64, 0, 2);
    if (step == 0) __builtin_prefetch(r.block.factors + at, 0, 2);
  }
  // `at`: bytes from the first of the tiles.
  IBID_INLINE void fetch(const Fetcher& r, int64_t at) {
    if (r.into_second) {
      fetch_into<2>(r.block, at);
    } else {
      fetch_into<3>(r.block, at);
    }
  }
  IBID_INLINE void next_block(Fetcher& r) {
    --r.n_left;
    r.block.codes += r.codes_step;
    r.block.factors += r.factors_step;
    if constexpr (F::kSuperBytes != 0) {
      if ((r.n_left & 7) == 0) r.block.supers += F::kSuperBytes;
    }
    if (r.n_left == 0) {
      r.block.codes += r.next_codes;
      r.block.factors += r.next_factors;
      r.block.supers += r.next_supers;
    }
  }

 private:
  template <int kLocality>
  IBID_INLINE void fetch_into(const F& f, int64_t at) {
    for (int64_t i = 0; i < F::kCodeBytes; i += 64) __builtin_prefetch(f.codes + at + i, 0, kLocality);
    for (int64_t i = 0; i < F::kFactorBytes; i += 64) __builtin_prefetch(f.factors + at + i, 0, kLocality);
    if constexpr (F::kSuperBytes != 0) __builtin_prefetch(f.supers + at, 0, kLocality);
  }
};

struct Parts {  // one after the other
  const Part *first, *last;
  const Part* begin() const { return first; }
  const Part* end() const { return last; }
};

// What lies in memory would be taken into registers that are not there, and spilled one by one.
IBID_INLINE void stay_in_memory() { asm volatile("" ::: "memory"); }

// After the last block of a part: whole pieces of K are added, and after the last piece sums become outputs.
template <int M, int T>
IBID_INLINE void end_part(const Part& part, SumsOf<T>& sums, int64_t row, const OutTile& out) {
  int level = part.n_waiting;
  for (int n_adds = part.n_adds; n_adds > 0; --n_adds, --level) {
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < T; ++t) {
        store(sums.of[level - 1][row + m][t],
              add(load(sums.of[level - 1][row + m][t]), load(sums.of[level][row + m][t])));
      }
    }
  }
  if (part.ends_k) {
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < T; ++t) store_out(out, m, t, load(sums.of[level][row + m][t]));
    }
  }
}

// The codes of a dot: of steps [step, step + D::kRun).
template <class F, class D>
IBID_INLINE void take_steps(typename D::Step (&w)[D::kRun], const F& f, int64_t at, int step) {
  for (int j = 0; j < D::kRun; ++j) w[j] = D::step(F::step(f, at, step + j));
}

// A block of T tiles that are read side by side: pointers that walk, as values of the loop over blocks, after whose
// barriers what lies in memory would be read again.
template <class F, int T>
struct SideBySide {
  F first;
  int64_t to_tile[T];  // bytes from the first to each

  IBID_INLINE SideBySide from_block(const F& f, const OffsetsOf<T>& at, int64_t b) {
    SideBySide r;
    r.first = F::from_block(f, at.of[0], b);
    for (int t = 0; t < T; ++t) r.to_tile[t] = t == 0 ? 0 : at.of[t] - at.of[0];
    return r;
  }
};

// The inputs of a dot, from the first one's code on.
template <int kRun>
IBID_INLINE void take_inputs(X4 (&x4)[kRun], const int8_t* codes) {
  for (int j = 0; j < kRun; ++j) x4[j] = load_x4(codes + 4 * j);
}

// A panel's float sums as values of the loop over its blocks, of which the compiler keeps in registers what there is
// place for, instead of in memory: with AVX2 (Zen 3) 0.87 to 0.95 of the time of 4-bit codes, but of few rows that read
// packed weights up to 1.06.
#if defined(__AVX2__) && !defined(__AVX512F__)
inline constexpr bool kPanelSumsAreValues = true;
#else
inline constexpr bool kPanelSumsAreValues = false;
#endif

// One tile where register tiles are of three: its float sums have place in registers beside those of integers.
template <int T>
inline constexpr bool kIsNarrow = T == 1 && kTiles == 3;

// Up to kRowsInt8 rows, which are a chunk of x: every block is unpacked into registers and used by all of them.
template <class F, int kBits, int T = kTiles>
struct Rows {
  // x: the inputs of the first part.
  template <int M>
  __attribute__((noinline)) static void run(const F& f, const OffsetsOf<T>& at, const Ahead& ahead, const Parts& parts,
                                            const XGroup* x, SumsOf<T>& sums, const int64_t& row, const OutTile& out) {
    for (const Part& part : parts) {
      add_blocks<M>(f, at, ahead, part, x, sums.of[part.n_waiting] + row);
      x += (part.block_end - part.block) * M;
      end_part<M>(part, sums, row, out);
    }
  }

 private:
  template <int M>
  IBID_INLINE void add_blocks(const F& f, const OffsetsOf<T>& at, const Ahead& ahead, const Part& part, const XGroup* x,
                              float (*acc)[T][kTileOutputs]) {
    typedef Dot<F::kOffset, kBits, F::kGroup> D;
    constexpr int kSteps = F::kGroup / 4;
    constexpr int kChains = 2 * M <= kRowsInt8 ? 2 : 1;  // where there are registers: integers add exactly
    constexpr bool kByPairs = kHasPairs && M > 1;
    static_assert(!kByPairs || T == 1);
    // Two tiles' blocks of bytes are 18 lines, too many to ask for at once (Zen 3, Q8_0, one row of 2,048 inputs from
    // memory, two threads: by steps 0.80 to 0.94 of the time; 4-bit codes, with ten, 0.97 to 1.13).
    constexpr bool kFetches = !F::kIsPanel, kFetchesBySteps = T > kTiles && F::kCodeBytes == 512;
    constexpr bool kInMemory = !(F::kIsPanel && kPanelSumsAreValues) && !kIsNarrow<T>;
    f32x16 values[M][T];  // unless kInMemory
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < T; ++t) {
        if constexpr (!kInMemory) {
          values[m][t] = part.begins_piece ? zero() : load(acc[m][t]);
        } else if (part.begins_piece) {
          store(acc[m][t], zero());
        }
      }
    }
    SideBySide<F, T> tiles = SideBySide<F, T>::from_block(f, at, part.block);
    Fetcher<F> fetcher;
    if constexpr (kFetches) fetcher = Fetcher<F>::beside(f, at.of[0], ahead, part.block);
    for (int64_t b = part.block; b < part.block_end; ++b, x += M) {
      if constexpr (kFetches && !kFetchesBySteps) {
        for (int t = 0; t < T; ++t) Fetcher<F>::fetch(fetcher, tiles.to_tile[t]);
        Fetcher<F>::next_block(fetcher);
      }
#pragma GCC unroll 2
      for (int g = 0; g < F::kGroups; ++g) {
        auto start = [&](int m) { return D::start(F::kGroups == 1 ? x[m].neg_sum : x[m].neg_sum16[g]); };
        typename D::Sum sum[kChains][M][T];
        [[maybe_unused]] PairSums<M> pairs;
        if constexpr (kByPairs) {
          clear(pairs);
#pragma GCC unroll 4
          for (int i = 0; i < kSteps; i += 2) {
            const int step = g * kSteps + i;
            add_steps(pairs, D::step(F::step(tiles.first, 0, step)), D::step(F::step(tiles.first, 0, step + 1)), x,
                      4 * step);
          }
        }
#pragma GCC unroll 8
        for (int m = 0; m < M && !kByPairs; ++m) {
          for (int t = 0; t < T; ++t) {
            sum[0][m][t] = D::first(start(m));
            if constexpr (kChains == 2) sum[1][m][t] = D::first(broadcast_i(0));
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kSteps && !kByPairs; i += D::kRun) {
          if constexpr (kFetchesBySteps) {
            for (int t = 0; t < T; ++t) Fetcher<F>::fetch_step(fetcher, tiles.to_tile[t], i);
          }
          typename D::Step w[T][D::kRun];
          for (int t = 0; t < T; ++t) take_steps<F, D>(w[t], tiles.first, tiles.to_tile[t], g * kSteps + i);
          typename D::Sum(&s)[M][T] = sum[i / D::kRun % kChains];
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) {
            X4 x4[D::kRun];
            take_inputs(x4, x[m].codes + g * F::kGroup + 4 * i);
            for (int t = 0; t < T; ++t) s[m][t] = D::dot(s[m][t], w[t], x4);
          }
          // The second half's codes lie in the same words: kept until then, they would push sums out of registers.
          if constexpr (kChains == 1 && F::kHasHalves) {
            if (i + D::kRun == kSteps / 2) stay_in_memory();
          }
        }
        if constexpr (kInMemory) stay_in_memory();
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const Factor factor = F::factor(tiles.first, tiles.to_tile[t], g);
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) {
            i32x16 dot;
            if constexpr (kByPairs) {
              dot = add(sums_of_row(pairs, m), start(m));
            } else {
              dot = D::last(sum[0][m][t], start(m));
              if constexpr (kChains == 2) dot = add(dot, D::last(sum[1][m][t], broadcast_i(0)));
            }
            f32x16 a = kInMemory ? load(acc[m][t]) : values[m][t];
            a = fma(from_int(dot), mul(factor.scale, broadcast(x[m].scale)), a);
            if constexpr (F::kMin) {
              a = fma(factor.min, broadcast(F::kGroups == 1 ? x[m].scaled_sum : x[m].scaled_sum16[g]), a);
            }
            if constexpr (kInMemory) {
              store(acc[m][t], a);
            } else {
              values[m][t] = a;
            }
          }
        }
      }
      F::next_block(tiles.first, b);
      if constexpr (kFetchesBySteps) Fetcher<F>::next_block(fetcher);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M && !kInMemory; ++m) {
      for (int t = 0; t < T; ++t) store(acc[m][t], values[m][t]);
    }
  }
};

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
