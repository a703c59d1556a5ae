// Matrix products that keep no order of sums, for the set of instructions that a file is compiled for.
#pragma once

#include "bench/exactness/any_order.h"
#include "kernels/cpu/linear.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

// Where a register tile's float sums are: in registers, or in memory as ibid's own few rows have them.
enum class Keep { kRegisters, kMemory };

template <class F, int kBits, int M, int T, Keep kKeep>
__attribute__((noinline)) void int8_tile(const F& f, const OffsetsOf<T>& at, const Ahead& ahead, int64_t block,
                                         int64_t block_end, const XGroup* x, int64_t step, bool adds,
                                         const OutTile& out) {
  typedef Dot<F::kOffset, kBits, F::kGroup> D;
  constexpr int kSteps = F::kGroup / 4;
  f32x16 acc[M][T];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    for (int t = 0; t < T; ++t)
      acc[m][t] = adds && lanes_of(out, t) == 16 ? load(out.out + m * out.stride + 16 * t) : zero();
  }
  SideBySide<F, T> tiles = SideBySide<F, T>::from_block(f, at, block);
  Fetcher<F> fetcher;
  if constexpr (!F::kIsPanel) fetcher = Fetcher<F>::beside(f, at.of[0], ahead, block);
  for (int64_t b = block; b < block_end; ++b, x += step) {
    if constexpr (!F::kIsPanel) {
      for (int t = 0; t < T; ++t) Fetcher<F>::fetch(fetcher, tiles.to_tile[t]);
      Fetcher<F>::next_block(fetcher);
    }
#pragma GCC unroll 2
    for (int g = 0; g < F::kGroups; ++g) {
      const auto start = [&](int m) { return D::start(F::kGroups == 1 ? x[m].neg_sum : x[m].neg_sum16[g]); };
      typename D::Sum sum[M][T];
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        for (int t = 0; t < T; ++t) sum[m][t] = D::first(start(m));
      }
#pragma GCC unroll 8
      for (int i = 0; i < kSteps; i += D::kRun) {
        typename D::Step w[T][D::kRun];
        for (int t = 0; t < T; ++t) take_steps<F, D>(w[t], tiles.first, tiles.to_tile[t], g * kSteps + i);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          X4 x4[D::kRun];
          take_inputs(x4, x[m].codes + g * F::kGroup + 4 * i);
          for (int t = 0; t < T; ++t) sum[m][t] = D::dot(sum[m][t], w[t], x4);
        }
        if constexpr (kKeep == Keep::kMemory && F::kHasHalves) {
          if (i + D::kRun == kSteps / 2) stay_in_memory();
        }
      }
      if constexpr (kKeep == Keep::kMemory) stay_in_memory();
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const Factor factor = F::factor(tiles.first, tiles.to_tile[t], g);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          const i32x16 dot = D::last(sum[m][t], start(m));
          acc[m][t] = add(acc[m][t], mul(mul(from_int(dot), broadcast(x[m].scale)), factor.scale));
          if constexpr (F::kMin) {
            acc[m][t] =
                add(acc[m][t], mul(factor.min, broadcast(F::kGroups == 1 ? x[m].scaled_sum : x[m].scaled_sum16[g])));
          }
        }
      }
    }
    F::next_block(tiles.first, b);
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    for (int t = 0; t < T; ++t) store_out(out, m, t, acc[m][t]);
  }
}

// Weights as stored, unpacked once for each M rows.
template <DType kDType, int M, int T, Keep kKeep = Keep::kRegisters>
void direct(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end, int64_t k,
            int64_t k_end) {
  constexpr BlockLayout kLayout = kBlockLayouts[static_cast<int>(kDType)];
  typedef Packed<kLayout> F;
  for (; tile < tile_end; tile += T) {
    const int64_t n_tiles = tile_end - tile < T ? tile_end - tile : T;
    const F f = F::first_tile(task.packed + tile * task.tile_bytes, task.n_inputs, task.table);
    for (int64_t r = row; r < row_end; r += M) {
      int64_t step;
      const XGroup* x = x_groups(task.x_int8, r, step) + k / 32 * step;
      int8_tile<F, kLayout.low_bits + kLayout.high_bits, M, T, kKeep>(
          f, tile_offsets<T>(n_tiles, task.tile_bytes), ahead_of<F>(task, T), k / 32, k_end / 32, x, step, false,
          out_tile(task, r, tile, static_cast<int>(n_tiles)));
    }
  }
}

// Weights unpacked once for all rows, in panels of several tiles.
constexpr int kPanelTiles = kTiles == 1 ? 2 : kTiles;
template <DType kDType, int M, int T, Keep kKeep = Keep::kRegisters>
void panels(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end, int64_t k,
            int64_t k_end) {
  constexpr BlockLayout kLayout = kBlockLayouts[static_cast<int>(kDType)];
  typedef PanelLayout<kLayout> P;
  typedef Packed<P::kOf> Unpacked;
  alignas(64) uint8_t panel[kPanelTiles * P::kTileBytes];
  const Unpacked unpacked = Unpacked::first_tile(panel, kPanelInputs, nullptr);
  const Ahead ahead = ahead_of<Packed<kLayout>>(task, kTiles);
  for (; tile < tile_end; tile += kPanelTiles) {
    const int64_t n_tiles = tile_end - tile < kPanelTiles ? tile_end - tile : kPanelTiles;
    const auto f = Packed<kLayout>::first_tile(task.packed + tile * task.tile_bytes, task.n_inputs, task.table);
    const int64_t part_len = even_panels(k_end - k);
    for (int64_t from = k; from < k_end; from += part_len) {
      const int64_t end = k_end - from < part_len ? k_end : from + part_len;
      for (int64_t t = 0; t < n_tiles; t += kTiles) {
        TileOffsets at = tile_offsets(n_tiles - t, task.tile_bytes);
        for (int64_t& offset : at.of) offset += t * task.tile_bytes;
        unpack<kLayout>(f, at, ahead, from / 32, end / 32, panel + t * P::kTileBytes);
      }
      for (int64_t r = row; r < row_end; r += M) {
        int64_t step;
        const XGroup* x = x_groups(task.x_int8, r, step) + from / 32 * step;
        for (int64_t t = 0; t < n_tiles; t += T) {
          OffsetsOf<T> at = tile_offsets<T>(n_tiles - t, P::kTileBytes);
          for (int64_t& offset : at.of) offset += t * P::kTileBytes;
          int8_tile<Unpacked, kLayout.low_bits + kLayout.high_bits, M, T, kKeep>(
              unpacked, at, Ahead{}, 0, (end - from) / 32, x, step, from != k,
              out_tile(task, r, tile + t, static_cast<int>(n_tiles - t < T ? n_tiles - t : T)));
        }
      }
    }
  }
}

// F32, F16 and BF16: M rows by T tiles, in C sums each.
template <class S, int M, int T, int C, int kBytesAhead, int kLocality>
void floats_ahead(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end, int64_t k,
                  int64_t k_end) {
  constexpr int kAhead = kBytesAhead / static_cast<int>(sizeof(typename S::Weight));
  constexpr int kLen = S::kWeightsPerStep;
  const int64_t tile_len = task.tile_bytes / static_cast<int64_t>(sizeof(typename S::Weight));
  const typename S::X* all_x;
  int64_t x_stride;
  if constexpr (kLen == 1) {
    all_x = task.x;
    x_stride = task.x_stride;
  } else {
    all_x = task.x_bf16;
    x_stride = task.n_inputs;
  }
  for (; tile < tile_end; tile += T) {
    const int n_tiles = static_cast<int>(tile_end - tile < T ? tile_end - tile : T);
    const auto* w = reinterpret_cast<const typename S::Weight*>(task.packed + tile * task.tile_bytes);
    int64_t at[T];
    for (int t = 0; t < T; ++t) at[t] = (t < n_tiles ? t : n_tiles - 1) * tile_len;
    for (int64_t r = row; r < row_end; r += M) {
      const typename S::X* x = all_x + r * x_stride;
      f32x16 acc[C][M][T];
      for (int c = 0; c < C; ++c) {
#pragma GCC unroll 24
        for (int m = 0; m < M; ++m) {
          for (int t = 0; t < T; ++t) acc[c][m][t] = zero();
        }
      }
      for (int64_t i = k / kLen; i < k_end / kLen; i += C) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          decltype(S::load_w(w)) weight[T];
          for (int t = 0; t < T; ++t) {
            const typename S::Weight* p = w + at[t] + (i + c) * kTileOutputs * kLen;
            weight[t] = S::load_w(p);
            __builtin_prefetch(p + kAhead, 0, kLocality);
          }
#pragma GCC unroll 24
          for (int m = 0; m < M; ++m) {
            const auto xm = S::load_x(x + m * x_stride + (i + c) * kLen);
            for (int t = 0; t < T; ++t) acc[c][m][t] = S::step(acc[c][m][t], weight[t], xm);
          }
        }
      }
      const OutTile out = out_tile(task, r, tile, n_tiles);
#pragma GCC unroll 24
      for (int m = 0; m < M; ++m) {
        for (int t = 0; t < T; ++t) {
          f32x16 sum = acc[0][m][t];
          for (int c = 1; c < C; ++c) sum = add(sum, acc[c][m][t]);
          store_out(out, m, t, sum);
        }
      }
    }
  }
}

template <class S, int M, int T, int C>
void floats(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end, int64_t k,
            int64_t k_end) {
  constexpr int kIntoSecond = M <= S::kNearRows ? kNearBytes : kFarBytes;
  const auto run =
      task.fetches_into_second ? floats_ahead<S, M, T, C, kIntoSecond, 2> : floats_ahead<S, M, T, C, kPageBytes, 3>;
  run(task, row, row_end, tile, tile_end, k, k_end);
}

using bench::AnyLinear;

// A register tile's rows divide those of a chunk of inputs.
#if defined(__AVX512F__)
template <DType kDType>
constexpr AnyLinear kInt8[] = {
    {"as stored, 1 x 16", 1, direct<kDType, 1, 1>},
    {"as stored, 1 x 32", 1, direct<kDType, 1, 2>},
    {"as stored, 1 x 48", 1, direct<kDType, 1, 3>},
    {"as stored, 4 x 32", 4, direct<kDType, 4, 2>},
    {"as stored, 4 x 48", 4, direct<kDType, 4, 3>},
    {"as stored, 8 x 16", 8, direct<kDType, 8, 1>},
    {"as stored, 8 x 48 in memory", 8, direct<kDType, 8, 3, Keep::kMemory>},
    {"panels, 4 x 48", 4, panels<kDType, 4, 3>},
    {"panels, 8 x 16", 8, panels<kDType, 8, 1>},
    {"panels, 8 x 48 in memory", 8, panels<kDType, 8, 3, Keep::kMemory>},
};
template <class S>
constexpr AnyLinear kFloats[] = {
    {"1 x 32", 1, floats<S, 1, 2, 1>},         {"1 x 32, 4 sums", 1, floats<S, 1, 2, 4>},
    {"1 x 64, 2 sums", 1, floats<S, 1, 4, 2>}, {"4 x 32", 4, floats<S, 4, 2, 1>},
    {"4 x 32, 2 sums", 4, floats<S, 4, 2, 2>}, {"4 x 64", 4, floats<S, 4, 4, 1>},
    {"8 x 32", 8, floats<S, 8, 2, 1>},         {"8 x 48", 8, floats<S, 8, 3, 1>},
    {"6 x 64", 6, floats<S, 6, 4, 1>},         {"12 x 32", 12, floats<S, 12, 2, 1>},
    {"24 x 16", 24, floats<S, 24, 1, 1>},
};
#else
template <DType kDType>
constexpr AnyLinear kInt8[] = {
    {"as stored, 1 x 16", 1, direct<kDType, 1, 1>},
    {"as stored, 1 x 32", 1, direct<kDType, 1, 2>},
    {"as stored, 1 x 48", 1, direct<kDType, 1, 3>},
    {"as stored, 2 x 16", 2, direct<kDType, 2, 1>},
    {"as stored, 2 x 32", 2, direct<kDType, 2, 2>},
    {"as stored, 4 x 16", 4, direct<kDType, 4, 1>},
    {"as stored, 4 x 16 in memory", 4, direct<kDType, 4, 1, Keep::kMemory>},
    {"as stored, 4 x 32 in memory", 4, direct<kDType, 4, 2, Keep::kMemory>},
    {"panels, 2 x 16", 2, panels<kDType, 2, 1>},
    {"panels, 2 x 32 in memory", 2, panels<kDType, 2, 2, Keep::kMemory>},
    {"panels, 4 x 16", 4, panels<kDType, 4, 1>},
    {"panels, 4 x 16 in memory", 4, panels<kDType, 4, 1, Keep::kMemory>},
};
template <class S>
constexpr AnyLinear kFloats[] = {
    {"1 x 32", 1, floats<S, 1, 2, 1>},         {"1 x 32, 2 sums", 1, floats<S, 1, 2, 2>},
    {"1 x 48, 2 sums", 1, floats<S, 1, 3, 2>}, {"1 x 64", 1, floats<S, 1, 4, 1>},
    {"2 x 32", 2, floats<S, 2, 2, 1>},         {"2 x 48", 2, floats<S, 2, 3, 1>},
    {"2 x 32, 2 sums", 2, floats<S, 2, 2, 2>}, {"3 x 32", 3, floats<S, 3, 2, 1>},
    {"4 x 16", 4, floats<S, 4, 1, 1>},         {"6 x 16", 6, floats<S, 6, 1, 1>},
};
#endif

std::span<const AnyLinear> linears(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return kInt8<DType::kQ4_0>;
    case DType::kQ4_1:
      return kInt8<DType::kQ4_1>;
    case DType::kQ4_K:
      return kInt8<DType::kQ4_K>;
    case DType::kQ8_0:
      return kInt8<DType::kQ8_0>;
    case DType::kF32:
      return kFloats<StepF32>;
    case DType::kF16:
      return kFloats<StepF16>;
    case DType::kBF16:
      return kFloats<StepBf16>;
    default:
      return {};
  }
}

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
