// Products of F32, F16 and BF16 weights, as specified in kernels/linear.h. K is walked in steps: one input (F32, F16)
// or one pair of inputs (BF16).
#pragma once

#include "kernels/cpu/dot_bf16.h"
#include "kernels/cpu/linear_tile.h"

namespace ibid::cpu::IBID_ISA {
namespace {

struct StepF32 {
  typedef float Weight;
  typedef float X;
  struct Mode {};
  static constexpr int kWeightsPerStep = 1, kRows = kRowsFloat;
  static constexpr int kNearRows = 4;  // so few rows fetch near ahead (kNearBytes)
  IBID_INLINE f32x16 load_w(const Weight* w) { return load(w); }
  IBID_INLINE f32x16 load_x(const X* x) { return broadcast(*x); }
  IBID_INLINE f32x16 step(f32x16 acc, f32x16 w, f32x16 x) { return fma(x, w, acc); }
};
struct StepF16 : StepF32 {
  typedef uint16_t Weight;
  static constexpr int kNearRows = 1;
  IBID_INLINE f32x16 load_w(const Weight* w) { return load_f16(w); }
};
struct StepBf16 {
  typedef uint16_t Weight;
  typedef uint16_t X;
  typedef Bf16Mode Mode;
  static constexpr int kWeightsPerStep = 2, kRows = kRowsBf16, kNearRows = 4;
  IBID_INLINE Bf16Pairs load_w(const Weight* w) { return load_pairs(w); }
  IBID_INLINE Bf16Pairs load_x(const X* x) { return broadcast_pair(x); }
  IBID_INLINE f32x16 step(f32x16 acc, Bf16Pairs w, Bf16Pairs x) { return dot_bf16(acc, w, x); }
};

// How far weights are fetched ahead, in bytes of each tile. Into the first-level cache a memory page, where the
// processor's own fetching stops (measured: 512 bytes to 8 KiB; +15 to +30 %). Into the second, which has more misses
// in flight (cpu/table.h), few rows take as long as reading takes, and the processor's own fetching goes on best where
// lines are asked for shortly before it would (Zen 4: docs/decisions/0049-a-core-with-one-dot-a-cycle.md).
inline constexpr int kPageBytes = 4096, kFarBytes = 3072, kNearBytes = 1024;

// T tiles of weights, at `at` from w.
template <class S, int T>
struct FloatRows {
  template <int M>
  using Sums = float[M][T][kTileOutputs];

  template <int M>
  static void run(const LinearTask& task, const typename S::Weight* w, const OffsetsOf<T>& at, const typename S::X* x,
                  int64_t x_stride, const OutTile& out) {
    alignas(64) Sums<M> waiting[kMaxWaiting + 1];  // and after them the sum of the latest piece
    constexpr int kIntoSecond = M <= S::kNearRows ? kNearBytes : kFarBytes;
    const auto sum = task.fetches_into_second ? sum_piece<M, kIntoSecond, 2> : sum_piece<M, kPageBytes, 3>;
    int n_waiting = 0;
    int64_t i = 0;
    for (int piece = 0; piece < task.n_pieces; ++piece) {
      const int64_t end = (task.edges[piece + 1] + S::kWeightsPerStep - 1) / S::kWeightsPerStep;
      {
        [[maybe_unused]] const typename S::Mode mode;
        sum(w + i * kTileOutputs * S::kWeightsPerStep, at, end - i, x + i * S::kWeightsPerStep, x_stride,
            waiting[n_waiting]);
      }
      i = end;
      for (int n_adds = adds_after(piece); n_adds > 0; --n_adds) {
        --n_waiting;
        add_pieces<M>(waiting[n_waiting], waiting[n_waiting + 1]);
      }
      ++n_waiting;
    }
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < T; ++t) store_out(out, m, t, load(waiting[0][m][t]));
    }
  }

 private:
  // Apart, so that registers are spent on this loop alone, and no arithmetic of one mode is moved into the other. By
  // reference: with values g++ 12 keeps a pointer for each row and spills some in the loop (8 % slower).
  template <int M, int kBytesAhead, int kLocality>
  __attribute__((noinline)) static void sum_piece(const typename S::Weight* const& w, const OffsetsOf<T>& at,
                                                  const int64_t& n_steps, const typename S::X* const& x,
                                                  const int64_t& x_stride, Sums<M>& to) {
    f32x16 acc[M][T];
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < T; ++t) acc[m][t] = zero();
    }
    constexpr int kAhead = kBytesAhead / static_cast<int>(sizeof(typename S::Weight));
    for (int64_t i = 0; i < n_steps; ++i) {
      decltype(S::load_w(w)) weight[T];
      for (int t = 0; t < T; ++t) {
        const auto* from =
            reinterpret_cast<const typename S::Weight*>(reinterpret_cast<const std::byte*>(w) + at.of[t]) +
            i * kTileOutputs * S::kWeightsPerStep;
        weight[t] = S::load_w(from);
        __builtin_prefetch(from + kAhead, 0, kLocality);
      }
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const auto xm = S::load_x(x + m * x_stride + i * S::kWeightsPerStep);
        for (int t = 0; t < T; ++t) acc[m][t] = S::step(acc[m][t], weight[t], xm);
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < T; ++t) store(to[m][t], acc[m][t]);
    }
  }
  template <int M>
  __attribute__((noinline)) static void add_pieces(Sums<M>& to, const Sums<M>& more) {
    for (int m = 0; m < M; ++m) {
      for (int t = 0; t < T; ++t) store(to[m][t], add(load(to[m][t]), load(more[m][t])));
    }
  }
};

// T tiles by up to kRows rows at a time.
template <class S, int T, int kRows>
void product_tiles(const LinearTask& task, const typename S::X* x, int64_t x_stride, int64_t row, int64_t row_end,
                   int64_t tile, int64_t tile_end) {
  for (; tile < tile_end; tile += T) {
    const int n_tiles = static_cast<int>(tile_end - tile < T ? tile_end - tile : T);
    const auto* w = reinterpret_cast<const typename S::Weight*>(task.packed + tile * task.tile_bytes);
    const auto at = tile_offsets<T>(n_tiles, task.tile_bytes);
    for (int64_t r = row; r < row_end; r += kRows) {
      with_rows<FloatRows<S, T>, kRows>(row_end - r, task, w, at, x + r * x_stride, x_stride,
                                        out_tile(task, r, tile, n_tiles));
    }
  }
}

template <class S>
void product_packed(const LinearTask& task, const typename S::X* x, int64_t x_stride, int64_t row, int64_t row_end,
                    int64_t tile, int64_t tile_end) {
  const int64_t n = row_end - row;
  if (kTilesOfOneRow != kTiles && n == 1) {
    product_tiles<S, kTilesOfOneRow, 1>(task, x, x_stride, row, row_end, tile, tile_end);
  } else if (kTilesOfThreeRows != kTiles && n <= 3) {
    product_tiles<S, kTilesOfThreeRows, 3>(task, x, x_stride, row, row_end, tile, tile_end);
  } else {
    product_tiles<S, kTiles, S::kRows>(task, x, x_stride, row, row_end, tile, tile_end);
  }
}

void product_bf16(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  product_packed<StepBf16>(task, task.x_bf16, task.n_inputs + task.n_inputs % 2, row, row_end, tile, tile_end);
}

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
