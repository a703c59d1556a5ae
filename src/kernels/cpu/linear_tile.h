// What the int8 and the float kernels share: sizes of register tiles, and one row's piece of a tile of outputs.
#pragma once

#include "kernels/cpu/linear_table.h"
#include "kernels/cpu/simd.h"

namespace ibid::cpu::IBID_ISA {
namespace {

// A register tile is kTiles x 16 outputs by up to kRowsFloat or kRowsInt8 rows. Of floats, with 32 registers: 3 x 8
// sums, three for weights and one for x; with 16 and two per vector 6. (2 x 12 sums are as many, but rows of 2,048
// floats lie at one place of a first-level cache, and that has eight ways: up to a fifth more time.) Of int8 only the
// integer sums of a block live in registers: 3 x 8, so that 24 chains of dots hide a latency of six at two a cycle (2 x
// 6 hid it just so and lost a third). Their float sums are added to in memory once a block. AVX2: 4 sums of two
// registers; of pairs of bf16, whose weights and inputs take six registers, 4 as well (6 took 1.12 to 1.21 of the time,
// Zen 3). NEON: of floats 6 sums of four registers, and 4 for weights; of int8 4 sums, and as many for the codes of
// two steps (not measured on a machine of its own).
#if defined(__AVX512F__)
inline constexpr int kTiles = 3, kRowsInt8 = 8, kRowsFloat = 8, kRowsBf16 = 8;
#elif defined(__AVX2__)
inline constexpr int kTiles = 1, kRowsInt8 = 4, kRowsFloat = 6, kRowsBf16 = 4;
#elif defined(IBID_NEON)
inline constexpr int kTiles = 1, kRowsInt8 = 4, kRowsFloat = 6, kRowsBf16 = 6;
#else
inline constexpr int kTiles = 1, kRowsInt8 = 2, kRowsFloat = 2, kRowsBf16 = 2;
#endif

// Few rows of AVX2. Of floats each sum waits for the one before: as many chains as two units with a latency of four
// take, or near that; one row of one tile has two (Zen 3, from memory: F16, BF16 and F32 with three tiles 0.80 to 0.89
// of the time, 2 and 3 rows with two tiles 0.89 to 0.95; a task's tiles are a multiple of both). Of int8 one row reads
// two long tiles as two streams at once (docs/decisions/0046-blocks-side-by-side.md). NEON was not timed.
#if defined(__AVX2__) && !defined(__AVX512F__)
inline constexpr int kTilesOfOneRow = 3, kTilesOfThreeRows = 2, kTilesOfOneRowInt8 = 2;
#else
inline constexpr int kTilesOfOneRow = kTiles, kTilesOfThreeRows = kTiles, kTilesOfOneRowInt8 = kTiles;
#endif

// The T tiles of a register tile, in bytes from the first; one that is absent is the last again, and is not stored.
template <int T>
struct OffsetsOf {
  int64_t of[T];
};
typedef OffsetsOf<kTiles> TileOffsets;
template <int T = kTiles>
IBID_INLINE OffsetsOf<T> tile_offsets(int64_t n_tiles, int64_t tile_bytes) {
  OffsetsOf<T> at;
  for (int t = 0; t < T; ++t) at.of[t] = (t < n_tiles ? t : n_tiles - 1) * tile_bytes;
  return at;
}

// Outputs of one register tile: where they go, and how many of each 16 exist.
struct OutTile {
  float* out;
  int64_t stride;
  int n_outputs;  // 1 or more
};

IBID_INLINE int lanes_of(const OutTile& o, int tile) {
  const int n = o.n_outputs - tile * kTileOutputs;
  return n < 0 ? 0 : n < kTileOutputs ? n : kTileOutputs;
}
IBID_INLINE void store_out(const OutTile& o, int row, int tile, f32x16 x) {
  const int n = lanes_of(o, tile);
  float* p = o.out + row * o.stride + tile * kTileOutputs;
  if (n == kTileOutputs) {
    store(p, x);
  } else {
    store_n(p, x, n);
  }
}
IBID_INLINE OutTile out_tile(const LinearTask& task, int64_t row, int64_t tile, int n_tiles) {
  const int64_t first = tile * kTileOutputs;
  const int64_t n = task.n_outputs - first;
  return {task.out + row * task.out_stride + first, task.out_stride,
          static_cast<int>(n < n_tiles * kTileOutputs ? n : n_tiles * kTileOutputs)};
}

// Pieces of K are added as a balanced tree while they come: after piece i as many waiting sums as i + 1 has zeros at
// its end go before it, the latest first (a binary counter). So at most three wait.
inline constexpr int kMaxWaiting = 3;
IBID_INLINE int adds_after(int piece) { return __builtin_ctz(static_cast<unsigned>(piece) + 1); }

// Calls F::template run<M>(args...) for M = min(n, Max), n >= 1.
template <class F, int Max, class... Args>
IBID_INLINE void with_rows(int64_t n, Args&&... args) {
  if constexpr (Max == 1) {
    F::template run<1>(args...);
  } else {
    if (n >= Max) {
      F::template run<Max>(args...);
    } else {
      with_rows<F, Max - 1>(n, args...);
    }
  }
}

}  // namespace
}  // namespace ibid::cpu::IBID_ISA
