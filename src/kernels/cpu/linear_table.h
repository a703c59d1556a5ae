// The functions of ops::linear that exist once per instruction set, and the layouts that they read. Plain pointers and
// sizes only: see cpu/table.h. What they compute, to the bit, is written in kernels/linear.h.
//
// Packed weights: tiles of 16 outputs, one after the other, each `tile_bytes` long (a multiple of 64). A vector lane is
// an output, so that each output is one accumulator and no sum crosses lanes. Inside a tile:
//   F32, F16   [K][16 outputs]
//   BF16       [(K + 1) / 2][16 outputs][2 inputs]
//   the others, by BlockLayout below: the codes of each block of 32 inputs, then its factors, then those of each super-
//   block of 256:
//     codes    [K / 32][low plane, high plane]. A plane holds `bits` of each code in vectors [16 outputs][4 bytes]: of
//              the 8 steps of four inputs in a block, step i is at bit (i / n) * bits of vector i % n, n = bits vectors
//     factors  [K / 32][scales [32 / group][16], mins [32 / group][16]]
//     supers   [K / 256][scales [16], mins [16]], f16
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace ibid::cpu {

inline constexpr int kTileOutputs = 16;
inline constexpr int kMaxPieces = 8;            // of K
inline constexpr int64_t kMaxProductRows = 96;  // of one call; a multiple of every register tile's rows

enum class Factors : uint8_t {
  kHalf,      // f16
  kByte,      // signed bytes, times the super-block's
  kNibble,    // scale in the low half of a byte, min in the high one, times the super-block's
  kExponent,  // a byte e: 2^(e - 128)
  kFloat,     // f32: what kernels unpack to
};

// Weights as the file's own bits, within 4 % (scales of six bits take a byte). Grids and ternary formats take more: a
// code for each weight (docs/decisions/0055-grids-as-codes.md).
struct BlockLayout {
  int low_bits, high_bits;  // of a code: planes
  int group_len;            // inputs of one scale
  Factors factors;
  bool has_min;
  int offset;       // of a code; 128: codes of up to eight bits, or a table's values + 128
  bool has_table;   // a code is a place in a table of 16
  int divisor = 1;  // a power of two: factors are divided by it (kByte)
};
// Of the types that are multiplied, by DType.
inline constexpr BlockLayout kBlockLayouts[] = {
    {0, 0, 32, Factors::kHalf, false, 0, false},       // F32: not blocks
    {0, 0, 32, Factors::kHalf, false, 0, false},       // F16: not blocks
    {0, 0, 32, Factors::kHalf, false, 0, false},       // BF16: not blocks
    {4, 0, 32, Factors::kHalf, false, 8, false},       // Q4_0
    {4, 0, 32, Factors::kHalf, true, 0, false},        // Q4_1
    {4, 1, 32, Factors::kHalf, false, 16, false},      // Q5_0
    {4, 1, 32, Factors::kHalf, true, 0, false},        // Q5_1
    {8, 0, 32, Factors::kHalf, false, 128, false},     // Q8_0
    {2, 0, 16, Factors::kNibble, true, 0, false},      // Q2_K
    {2, 1, 16, Factors::kByte, false, 4, false},       // Q3_K
    {4, 0, 32, Factors::kByte, true, 0, false},        // Q4_K
    {4, 1, 32, Factors::kByte, true, 0, false},        // Q5_K
    {4, 2, 16, Factors::kByte, false, 32, false},      // Q6_K
    {4, 0, 32, Factors::kHalf, false, 128, true},      // IQ4_NL
    {4, 0, 32, Factors::kByte, false, 128, true},      // IQ4_XS
    {4, 0, 32, Factors::kExponent, false, 128, true},  // MXFP4
    {2, 1, 32, Factors::kByte, false, 128, true, 8},   // IQ1_S: six values
    {2, 1, 16, Factors::kByte, false, 128, true, 8},   // IQ1_M
    {2, 1, 32, Factors::kByte, false, 128, true, 8},   // IQ2_XXS: six values
    {2, 1, 16, Factors::kByte, false, 128, true, 8},   // IQ2_XS
    {2, 1, 16, Factors::kByte, false, 128, true, 8},   // IQ2_S
    {4, 0, 32, Factors::kByte, false, 128, true, 4},   // IQ3_XXS: sixteen
    {4, 0, 32, Factors::kByte, false, 128, true},      // IQ3_S
    {2, 0, 32, Factors::kHalf, false, 1, false},       // TQ1_0
    {2, 0, 32, Factors::kHalf, false, 1, false},       // TQ2_0
    {4, 0, 16, Factors::kHalf, false, 128, true},      // NVFP4
    {2, 0, 32, Factors::kHalf, false, 1, false},       // Q1_0
    {2, 0, 32, Factors::kHalf, false, 1, false},       // Q2_0
};
static_assert(sizeof kBlockLayouts / sizeof kBlockLayouts[0] == static_cast<size_t>(DType::kQ2_0) + 1);
// Of 16 outputs: the codes and the factors of a block of 32 inputs, the factors of 256.
static constexpr int64_t code_bytes(const BlockLayout& l) { return (l.low_bits + l.high_bits) * 64; }
static constexpr int64_t factor_bytes(const BlockLayout& l) {
  const int64_t n = 32 / l.group_len * kTileOutputs * (l.has_min && l.factors != Factors::kNibble ? 2 : 1);
  return n * (l.factors == Factors::kHalf ? 2 : l.factors == Factors::kFloat ? 4 : 1);
}
static constexpr int64_t super_bytes(const BlockLayout& l) {
  return l.factors == Factors::kByte || l.factors == Factors::kNibble ? kTileOutputs * 2 * (l.has_min ? 2 : 1) : 0;
}

// 32 inputs of a row of activations, quantised, in a cache line of their own: a kernel follows one pointer.
struct alignas(64) XGroup {
  int8_t codes[32];
  float scale;
  float scaled_sum;  // scale * sum of the codes
  int32_t neg_sum;   // minus the sum of the codes
  int32_t unused;
  float scaled_sum16[2];  // the same of halves; only where asked for
  int32_t neg_sum16[2];
};
// Rows lie together in chunks of `chunk_rows`, as many as a register tile has, the last one shorter: [T / chunk rows]
// [K / 32][rows of the chunk].
struct QuantisedRows {
  int64_t n_rows = 0, n_groups = 0;  // T, K / 32
  XGroup* groups = nullptr;
  bool has_halves = false;
};

struct LinearTask {
  DType dtype = DType::kF32;
  const uint8_t* table = nullptr;  // 16 values + 128, where the format has one
  const std::byte* packed = nullptr;
  int64_t tile_bytes = 0;
  int64_t n_outputs = 0;  // N
  int64_t n_inputs = 0;   // K
  int n_pieces = 1;       // of K (kernels/k_pieces.h); edges[n_pieces + 1], in inputs
  const int64_t* edges = nullptr;
  float out_scale = 1.0f;            // a factor of all outputs that the caller of product applies
  bool fetches_into_second = false;  // weights ahead: into the second-level cache, not the first
  bool has_dot_a_cycle = false;      // and not two (cpu/table.h)
  // x[T, K] in the form that the format reads.
  const float* x = nullptr;  // F32, F16
  int64_t x_stride = 0;
  const uint16_t* x_bf16 = nullptr;  // [T, K rounded up to even]
  QuantisedRows x_int8;
  float* out = nullptr;  // [T, N]
  int64_t out_stride = 0;
};

struct LinearTable {
  // Rows [row, row_end) of x[T, K].
  void (*quantise_rows)(const QuantisedRows& to, const float* x, int64_t x_stride, int64_t row, int64_t row_end);
  void (*round_rows)(uint16_t* to, int64_t n_inputs, const float* x, int64_t x_stride, int64_t row, int64_t row_end);
  // out[row.., 16 * tile..], at most kMaxProductRows. Calls with disjoint outputs may run at the same time.
  void (*product)(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end);
};

}  // namespace ibid::cpu
