// Products of block-quantised weights with int8 activations, as specified in kernels/linear.h. Few rows read their
// weights straight from the packed form (linear_int8_rows.inl), many rows from panels that are unpacked once.
#pragma once

#include "kernels/cpu/linear_int8_rows.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

// The packed form of the panel after the one that rows pass over: fetched line by line meanwhile. Unpacking it waited
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
  // Call it `n_fetches` times: in each block of a pass over the panel, or in each pass.
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

// The same of a panel where there are 32 registers: four rows at a time, so that their float sums stay in registers as
// well. With eight rows' in memory a block takes 24 loads and 24 stores for 192 dots.
inline constexpr bool kPanelSumsInRegisters = kTiles == 3;
inline constexpr int kPanelRowsAtOnce = kPanelSumsInRegisters ? 4 : kRowsInt8;
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
    SideBySide<F, kTiles> tiles = SideBySide<F, kTiles>::from_block(f, at, part.block);
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
        for (int i = 0; i < kSteps; i += D::kRun) {
          typename D::Step w[kTiles][D::kRun];
          for (int t = 0; t < kTiles; ++t) take_steps<F, D>(w[t], tiles.first, tiles.to_tile[t], g * kSteps + i);
#pragma GCC unroll 8
          for (int n = 0; n < N; ++n) {
            X4 x4[D::kRun];
            take_inputs(x4, x[n].codes + g * F::kGroup + 4 * i);
            for (int t = 0; t < kTiles; ++t) dot[n][t] = D::dot(dot[n][t], w[t], x4);
          }
        }
#pragma GCC unroll 8
        for (int t = 0; t < kTiles; ++t) {
          const Factor factor = F::factor(tiles.first, tiles.to_tile[t], g);
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
      F::next_block(tiles.first, b);
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
    F tile = F::from_block(f, at.of[t], block);
    Fetcher<F> fetcher = Fetcher<F>::beside(f, at.of[t], ahead, block);
    for (int64_t b = block; b < block_end; ++b, codes += 512, factors += factor_bytes(P::kOf) / 4) {
      if (ahead.n_blocks != 0) {
        Fetcher<F>::fetch(fetcher, 0);
        Fetcher<F>::next_block(fetcher);
      }
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) store_codes(codes + i * 64, F::step(tile, 0, i));
#pragma GCC unroll 2
      for (int g = 0; g < F::kGroups; ++g) {
        const Factor factor = F::factor(tile, 0, g);
        store(factors + g * kTileOutputs, factor.scale);
        if constexpr (F::kMin) store(factors + (F::kGroups + g) * kTileOutputs, factor.min);
      }
      F::next_block(tile, b);
    }
  }
}

// The shortest equal panels, of whole blocks, in which so many inputs pass.
IBID_INLINE int64_t even_panels(int64_t n_inputs) {
  const int64_t n_panels = (n_inputs + kPanelInputs - 1) / kPanelInputs;
  return ((n_inputs + n_panels - 1) / n_panels + 31) / 32 * 32;
}

// Few rows, up to kMaxRows at a time, and T tiles. Those of one register tile pass all pieces in one call, those of two
// take turns piece by piece, so that the second finds its weights in the first-level cache.
template <BlockLayout kLayout, int T, int kMaxRows>
void product_direct(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  typedef Packed<kLayout> F;
  constexpr int kBits = kLayout.low_bits + kLayout.high_bits;
  const Ahead ahead = ahead_of<F>(task, T);
  Part parts[kMaxPieces];
  for (int piece = 0, n_waiting = 0; piece < task.n_pieces; ++piece) {
    const int64_t begin = task.edges[piece], end = task.edges[piece + 1];
    parts[piece] = {begin / 32, end / 32, n_waiting, adds_after(piece), true, end == task.n_inputs};
    n_waiting += 1 - parts[piece].n_adds;
  }
  const int parts_at_once = row_end - row <= kRowsInt8 ? task.n_pieces : 1;
  SumsOf<T> sums;
  for (; tile < tile_end; tile += T) {
    const int64_t n_tiles = tile_end - tile < T ? tile_end - tile : T;
    const F f = F::first_tile(task.packed + tile * task.tile_bytes, task.n_inputs, task.table);
    const OffsetsOf<T> at = tile_offsets<T>(n_tiles, task.tile_bytes);
    for (const Part* part = parts; part < parts + task.n_pieces; part += parts_at_once) {
      for (int64_t r = row; r < row_end; r += kRowsInt8) {
        int64_t step;
        const XGroup* x = x_groups(task.x_int8, r, step) + part->block * step;
        with_rows<Rows<F, kBits, T>, kMaxRows>(row_end - r, f, at, ahead, Parts{part, part + parts_at_once}, x, sums,
                                               r - row, out_tile(task, r, tile, static_cast<int>(n_tiles)));
      }
    }
  }
}

// Many rows.
template <BlockLayout kLayout>
void product_panels(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  typedef PanelLayout<kLayout> P;
  typedef Packed<kLayout> F;
  typedef Packed<P::kOf> Unpacked;
  constexpr int kBits = kLayout.low_bits + kLayout.high_bits;
  alignas(64) uint8_t panel[kTiles * P::kTileBytes];
  const Unpacked unpacked = Unpacked::first_tile(panel, kPanelInputs, nullptr);
  const TileOffsets unpacked_at = tile_offsets(kTiles, P::kTileBytes);
  const Ahead ahead = ahead_of<F>(task, kTiles);
  Sums sums;
  Upcoming upcoming;
  bool is_fetched = false;  // the panel that is unpacked next
  const int64_t n_passes = (row_end - row + kPanelRowsAtOnce - 1) / kPanelRowsAtOnce;
  for (; tile < tile_end; tile += kTiles) {
    const int64_t n_tiles = tile_end - tile < kTiles ? tile_end - tile : kTiles;
    const F f = F::first_tile(task.packed + tile * task.tile_bytes, task.n_inputs, task.table);
    const TileOffsets at = tile_offsets(n_tiles, task.tile_bytes);
    int n_waiting = 0;
    for (int piece = 0; piece < task.n_pieces; ++piece) {
      const int64_t begin = task.edges[piece], end = task.edges[piece + 1];
      const int64_t part_len = even_panels(end - begin);
      int n_adds = 0;
      for (int64_t k = begin; k < end; k += part_len) {
        const bool ends_piece = end - k <= part_len;
        const int64_t block = k / 32, block_end = (ends_piece ? end : k + part_len) / 32;
        n_adds = ends_piece ? adds_after(piece) : 0;
        const Part part = {0, block_end - block, n_waiting, n_adds, k == begin, ends_piece && end == task.n_inputs};
        unpack<kLayout>(f, at, is_fetched ? Ahead{} : ahead, block, block_end, panel);
        is_fetched = true;
        const int64_t n_fetches = kPanelSumsInRegisters ? n_passes * part.block_end : n_passes;
        if (!part.ends_k) {
          const int64_t next_end = ends_piece ? task.edges[piece + 2] : end;
          const int64_t next_len =
              ends_piece ? even_panels(next_end - end) : (end - k < 2 * part_len ? end - k - part_len : part_len);
          upcoming.begin(f, at, block_end, next_len / 32, n_fetches);
        } else if (tile + kTiles < tile_end) {
          const TileOffsets next = tile_offsets(tile_end - tile - kTiles, task.tile_bytes);
          upcoming.begin(F::first_tile(task.packed + (tile + kTiles) * task.tile_bytes, task.n_inputs, task.table),
                         next, 0, even_panels(task.edges[1]) / 32, n_fetches);
        } else {
          upcoming.none();
        }
        for (int64_t r = row; r < row_end; r += kRowsInt8) {
          int64_t step;
          const XGroup* x = x_groups(task.x_int8, r, step) + block * step;
          const OutTile out = out_tile(task, r, tile, static_cast<int>(n_tiles));
          if constexpr (kPanelSumsInRegisters) {
            with_rows<PanelRows<Unpacked, kBits>, kRowsInt8>(row_end - r, unpacked, unpacked_at, upcoming, part, x,
                                                             sums, r - row, out);
          } else {
            Upcoming::fetch(upcoming);
            with_rows<Rows<Unpacked, kBits>, kRowsInt8>(row_end - r, unpacked, unpacked_at, Ahead{},
                                                        Parts{&part, &part + 1}, x, sums, r - row, out);
          }
        }
      }
      n_waiting += 1 - n_adds;
    }
  }
}

// Of shorter tiles two side by side take as long as one after the other, or 5 % longer.
inline constexpr int64_t kInputsOfSideBySide = 1024;

// Where dots begin one a cycle eight chains hide their latency, so that eight rows need one tile, and float sums stay
// in registers (Zen 4, of the time without: 5 to 16 rows 0.84 to 1.0, 17 to 32, which need no panel, 0.85 to 1.0; but
// fewer than eight rows and short tiles 1.0 to 1.15, 96 rows 0.98 to 1.07, and MXFP4 1.02 to 1.14:
// docs/decisions/0049-a-core-with-one-dot-a-cycle.md).
#if defined(__AVX512VNNI__)
template <BlockLayout kLayout>
inline constexpr bool kHasNarrowRows = kLayout.factors != Factors::kExponent;
#else
template <BlockLayout kLayout>
inline constexpr bool kHasNarrowRows = false;
#endif
inline constexpr int64_t kInputsOfNarrow = 1024;  // such tiles pay from fewer rows on
inline constexpr int64_t kLeastNarrow = 5, kLeastNarrowOfShort = 8, kMostNarrow = 32;
IBID_INLINE bool is_narrow(const LinearTask& task, int64_t n_rows) {
  return task.has_dot_a_cycle && n_rows <= kMostNarrow &&
         n_rows >= (task.n_inputs < kInputsOfNarrow ? kLeastNarrowOfShort : kLeastNarrow);
}

template <BlockLayout kLayout>
void product_blocks(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  typedef Packed<kLayout> F;
  const int64_t n_rows = row_end - row;
  if constexpr (kHasNarrowRows<kLayout>) {
    if (is_narrow(task, n_rows)) return product_direct<kLayout, 1, kRowsInt8>(task, row, row_end, tile, tile_end);
  }
  if (n_rows > F::kDirectRows) return product_panels<kLayout>(task, row, row_end, tile, tile_end);
  if constexpr (kTilesOfOneRowInt8 != kTiles && F::kIsPlain) {
    if (n_rows == 1 && task.n_inputs >= kInputsOfSideBySide) {
      const int64_t whole = (tile_end - tile) / kTilesOfOneRowInt8 * kTilesOfOneRowInt8;
      product_direct<kLayout, kTilesOfOneRowInt8, 1>(task, row, row_end, tile, tile + whole);
      tile += whole;
    }
  }
  product_direct<kLayout, kTiles, kRowsInt8>(task, row, row_end, tile, tile_end);
}

// Formats of one layout share their code.
template <DType kDType>
IBID_INLINE void product_int8(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  product_blocks<kBlockLayouts[static_cast<int>(kDType)]>(task, row, row_end, tile, tile_end);
}

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
