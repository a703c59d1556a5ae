// Products of block-quantised weights with int8 activations; kernels/linear.h says what they compute.
#pragma once

#include "kernels/cpu/dot.h"
#include "kernels/cpu/linear_tile.h"

namespace ibid::cpu::IBID_ISA {
namespace {

enum class Codes { kSmall, kSmallMinus8, kFull };

// How the codes of a format enter the integer dot.
template <Codes kCodes>
struct Dot {
  typedef Codes8 Step;
  IBID_INLINE Step step(Codes8 c) { return c; }
  IBID_INLINE i32x16 start(int32_t neg_sum) { return broadcast_i(kCodes == Codes::kSmallMinus8 ? neg_sum * 8 : 0); }
  IBID_INLINE i32x16 dot(i32x16 acc, Step w, X4 x) { return dot_small(acc, w, x); }
};
template <>
struct Dot<Codes::kFull> {
  typedef FullCodes8 Step;
  IBID_INLINE Step step(Codes8 c) { return full_codes(c); }
  IBID_INLINE i32x16 start(int32_t neg_sum) { return start_full(neg_sum); }
  IBID_INLINE i32x16 dot(i32x16 acc, Step w, X4 x) { return dot_full(acc, w, x); }
};

// A tile of packed weights, read block by block. kBits 4 or 8; kGroupLen 32 or 16; kWide: scales are f32, else f16.
template <int kBits, int kGroupLen, bool kWide, bool kHasMin, Codes kCodes, bool kTable = false>
struct Format {
  static constexpr int kGroup = kGroupLen;
  static constexpr bool kMin = kHasMin;
  static constexpr Codes kRange = kCodes;

  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* mins;
  CodeTable table;

  IBID_INLINE Format tile_of(const LinearTask& task, int64_t tile) {
    Format f;
    f.codes = reinterpret_cast<const uint8_t*>(task.packed) + tile * task.tile_bytes;
    f.scales = f.codes + task.n_inputs * kTileOutputs * kBits / 8;
    f.mins = f.scales + task.n_inputs / kGroupLen * kTileOutputs * (kWide ? 4 : 2);
    if constexpr (kTable) f.table = load_table(task.table);
    return f;
  }
  // The codes of block b, four inputs a step.
  IBID_INLINE void load_steps(const Format& f, int64_t b, Codes8 (&c)[8]) {
    if constexpr (kBits == 8) {
      for (int i = 0; i < 8; ++i) c[i] = load_codes(f.codes + (b * 8 + i) * 64);
    } else {
      for (int i = 0; i < 4; ++i) {
        const Codes8 both = load_codes(f.codes + (b * 4 + i) * 64);
        c[i] = low_halves(both);
        c[i + 4] = high_halves(both);
        if constexpr (kTable) {
          c[i] = look_up(f.table, c[i]);
          c[i + 4] = look_up(f.table, c[i + 4]);
        }
      }
    }
  }
  // What block b is in the next tile: a tile's codes, scales and mins are streams of a few KiB, too short for the
  // processor's own prefetching to get going.
  IBID_INLINE void prefetch(const Format& f, int64_t b, int64_t tile_bytes) {
    for (int i = 0; i < kBits; ++i) __builtin_prefetch(f.codes + tile_bytes + (b * kBits + i) * 64);
    constexpr int kFactorBytes = 32 / kGroupLen * kTileOutputs * (kWide ? 4 : 2);
    for (int i = 0; i < kFactorBytes; i += 64) {
      __builtin_prefetch(f.scales + tile_bytes + b * kFactorBytes + i);
      if (kHasMin) __builtin_prefetch(f.mins + tile_bytes + b * kFactorBytes + i);
    }
  }
  IBID_INLINE f32x16 load_factor(const uint8_t* from, int64_t group) {
    if constexpr (kWide) return load(reinterpret_cast<const float*>(from) + group * kTileOutputs);
    return load_f16(reinterpret_cast<const uint16_t*>(from) + group * kTileOutputs);
  }
};

// Row 0 of a register tile's activations, at the first input of a piece of K.
struct XRows {
  const int8_t* codes;
  const float* scales;
  const int32_t* neg_sums;  // per group of the format
  const float* scaled_sums;
  int64_t codes_stride, scales_stride, sums_stride;
};
template <int kGroup>
IBID_INLINE XRows x_rows(const QuantisedRows& x, int64_t row, int64_t k) {
  const int64_t n = x.n_inputs;
  const int64_t sums_at = row * (n / kGroup) + k / kGroup;
  return {x.codes + row * n + k,
          x.scales + row * (n / 32) + k / 32,
          (kGroup == 16 ? x.neg_sums16 : x.neg_sums) + sums_at,
          (kGroup == 16 ? x.scaled_sums16 : x.scaled_sums) + sums_at,
          n,
          n / 32,
          n / kGroup};
}

// acc += one group's share, in the order of the contract.
template <bool kMin>
IBID_INLINE f32x16 add_group(f32x16 acc, i32x16 sum, f32x16 scale, f32x16 min, float x_scale, float x_scaled_sum) {
  acc = fma(from_int(sum), mul(scale, broadcast(x_scale)), acc);
  if constexpr (kMin) acc = fma(min, broadcast(x_scaled_sum), acc);
  return acc;
}

// Few rows: every block is unpacked into registers and used by all of them.
template <class F>
struct Direct {
  template <int M>
  static void run(const LinearTask& task, int64_t row, int64_t tile) {
    typedef Dot<F::kRange> D;
    const F f = F::tile_of(task, tile);
    const XRows x = x_rows<F::kGroup>(task.x_int8, row, 0);
    constexpr int kGroups = 32 / F::kGroup, kSteps = F::kGroup / 4;
    alignas(64) float waiting[kMaxWaiting][M][kTileOutputs];
    int n_waiting = 0;
    int64_t b = 0;
    for (int piece = 0;; ++piece) {
      f32x16 acc[M];
      for (int m = 0; m < M; ++m) acc[m] = zero();
      for (const int64_t end = task.edges[piece + 1] / 32; b < end; ++b) {
        F::prefetch(f, b, task.tile_bytes);
        Codes8 c[8];
        F::load_steps(f, b, c);
        typename D::Step w[8];
        for (int i = 0; i < 8; ++i) w[i] = D::step(c[i]);
        for (int g = 0; g < kGroups; ++g) {
          const int64_t group = b * kGroups + g;
          const f32x16 scale = F::load_factor(f.scales, group);
          const f32x16 min = F::kMin ? F::load_factor(f.mins, group) : zero();
          for (int m = 0; m < M; ++m) {
            const int8_t* codes = x.codes + m * x.codes_stride + group * F::kGroup;
            i32x16 sum = D::start(x.neg_sums[m * x.sums_stride + group]), more = broadcast_i(0);
            for (int i = 0; i < kSteps; i += 2) {  // two chains hide the latency of the dot; integers add exactly
              sum = D::dot(sum, w[g * kSteps + i], load_x4(codes + 4 * i));
              more = D::dot(more, w[g * kSteps + i + 1], load_x4(codes + 4 * i + 4));
            }
            acc[m] = add_group<F::kMin>(acc[m], add(sum, more), scale, min, x.scales[m * x.scales_stride + b],
                                        x.scaled_sums[m * x.sums_stride + group]);
          }
        }
      }
      for (int n_adds = adds_behind(piece); n_adds > 0; --n_adds) {
        --n_waiting;
        for (int m = 0; m < M; ++m) acc[m] = add(load(waiting[n_waiting][m]), acc[m]);
      }
      if (piece + 1 == task.n_pieces) {
        const OutTile out = out_tile(task, row, tile, 1);
        for (int m = 0; m < M; ++m) store_out(out, m, 0, acc[m]);
        return;
      }
      for (int m = 0; m < M; ++m) store(waiting[n_waiting][m], acc[m]);
      ++n_waiting;
    }
  }
};

// Many rows: a panel of kTiles tiles is unpacked to bytes and f32 once, 31 KiB at most, and stays in the first-level
// cache while all rows pass. It ends where a piece of K ends. The float sums of a row wait in `Sums` between panels:
// those of whole pieces in their order, and behind them the one that is being added to.
inline constexpr int64_t kPanelInputs = 576;
template <int kGroup>
struct Panel {
  alignas(64) uint8_t codes[kTiles][kPanelInputs / 4][64];
  alignas(64) float scales[kTiles][kPanelInputs / kGroup][kTileOutputs];
  alignas(64) float mins[kTiles][kPanelInputs / kGroup][kTileOutputs];
};

template <class F>
void unpack(const LinearTask& task, int64_t tile, int n_tiles, int64_t k, int64_t k_len, Panel<F::kGroup>& panel) {
  for (int t = 0; t < kTiles; ++t) {  // an absent tile is the first again, and is not stored
    const F f = F::tile_of(task, t < n_tiles ? tile + t : tile);
    for (int64_t b = 0; b < k_len / 32; ++b) {
      F::prefetch(f, k / 32 + b, kTiles * task.tile_bytes);
      Codes8 c[8];
      F::load_steps(f, k / 32 + b, c);
      for (int i = 0; i < 8; ++i) store_codes(panel.codes[t][b * 8 + i], c[i]);
    }
    for (int64_t g = 0; g < k_len / F::kGroup; ++g) {
      store(panel.scales[t][g], F::load_factor(f.scales, k / F::kGroup + g));
      if constexpr (F::kMin) store(panel.mins[t][g], F::load_factor(f.mins, k / F::kGroup + g));
    }
  }
}

struct Sums {
  alignas(64) float of[kMaxWaiting + 1][kMaxProductRows][kTiles][kTileOutputs];
};
// What a panel is of its piece.
struct Part {
  int64_t k, k_len;
  int n_waiting;  // sums of whole pieces before it
  int n_adds;     // of these, to be added behind this panel: none unless a piece ends here
  bool begins_piece, ends_k;
};

// The shortest equal panels, of whole blocks, in which so many inputs pass.
IBID_INLINE int64_t even_panels(int64_t n_inputs) {
  const int64_t n_panels = (n_inputs + kPanelInputs - 1) / kPanelInputs;
  return ((n_inputs + n_panels - 1) / n_panels + 31) / 32 * 32;
}

template <int kGroup, bool kMin, Codes kCodes>
struct PanelRows {
  // `row` counts within the call, for `sums`.
  template <int M>
  static void run(const Panel<kGroup>& panel, const Part& part, const XRows& x, Sums& sums, const int64_t& row,
                  const OutTile& out) {
    typedef Dot<kCodes> D;
    int level = part.n_waiting;
    f32x16 acc[M][kTiles];
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < kTiles; ++t) acc[m][t] = part.begins_piece ? zero() : load(sums.of[level][row + m][t]);
    }
    for (int64_t g = 0; g < part.k_len / kGroup; ++g) {
      i32x16 sum[M][kTiles];
      for (int m = 0; m < M; ++m) {
        const i32x16 start = D::start(x.neg_sums[m * x.sums_stride + g]);
        for (int t = 0; t < kTiles; ++t) sum[m][t] = start;
      }
#pragma GCC unroll 8
      for (int i = 0; i < kGroup / 4; ++i) {
        typename D::Step w[kTiles];
        for (int t = 0; t < kTiles; ++t) w[t] = D::step(load_codes(panel.codes[t][g * (kGroup / 4) + i]));
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          const X4 x4 = load_x4(x.codes + m * x.codes_stride + g * kGroup + 4 * i);
          for (int t = 0; t < kTiles; ++t) sum[m][t] = D::dot(sum[m][t], w[t], x4);
        }
      }
      for (int t = 0; t < kTiles; ++t) {
        const f32x16 scale = load(panel.scales[t][g]);
        const f32x16 min = kMin ? load(panel.mins[t][g]) : zero();
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          acc[m][t] = add_group<kMin>(acc[m][t], sum[m][t], scale, min, x.scales[m * x.scales_stride + g * kGroup / 32],
                                      x.scaled_sums[m * x.sums_stride + g]);
        }
      }
    }
    for (int n_adds = part.n_adds; n_adds > 0; --n_adds) {
      --level;
      for (int m = 0; m < M; ++m) {
        for (int t = 0; t < kTiles; ++t) acc[m][t] = add(load(sums.of[level][row + m][t]), acc[m][t]);
      }
    }
    if (part.ends_k) {
      for (int m = 0; m < M; ++m) {
        for (int t = 0; t < kTiles; ++t) store_out(out, m, t, acc[m][t]);
      }
    } else {
      for (int m = 0; m < M; ++m) {
        for (int t = 0; t < kTiles; ++t) store(sums.of[level][row + m][t], acc[m][t]);
      }
    }
  }
};

template <class F>
void product_int8(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  if (row_end - row <= kDirectRows) {
    for (; tile < tile_end; ++tile) {
      for (int64_t r = row; r < row_end; r += kRowsDirect) {
        with_rows<Direct<F>, kRowsDirect>(row_end - r, task, r, tile);
      }
    }
    return;
  }
  Panel<F::kGroup> panel;
  Sums sums;
  for (; tile < tile_end; tile += kTiles) {
    const int n_tiles = static_cast<int>(tile_end - tile < kTiles ? tile_end - tile : kTiles);
    int n_waiting = 0;
    for (int piece = 0; piece < task.n_pieces; ++piece) {
      const int64_t begin = task.edges[piece], end = task.edges[piece + 1], panel_len = even_panels(end - begin);
      int n_adds = 0;
      for (int64_t k = begin; k < end; k += panel_len) {
        const bool ends_piece = end - k <= panel_len;
        n_adds = ends_piece ? adds_behind(piece) : 0;
        const Part part = {k,          ends_piece ? end - k : panel_len,  n_waiting, n_adds,
                           k == begin, ends_piece && end == task.n_inputs};
        unpack<F>(task, tile, n_tiles, k, part.k_len, panel);
        for (int64_t r = row; r < row_end; r += kRowsInt8) {
          with_rows<PanelRows<F::kGroup, F::kMin, F::kRange>, kRowsInt8>(row_end - r, panel, part,
                                                                         x_rows<F::kGroup>(task.x_int8, r, k), sums,
                                                                         r - row, out_tile(task, r, tile, n_tiles));
        }
      }
      n_waiting += 1 - n_adds;
    }
  }
}

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
