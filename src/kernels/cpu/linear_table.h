// The functions of ops::linear that exist once per instruction set, and the layouts that they read. Plain pointers and
// sizes only: see cpu/table.h. What they compute, to the bit, is written in kernels/linear.h.
//
// Packed weights: tiles of 16 outputs, one after the other, each `tile_bytes` long (a multiple of 64). A vector lane is
// an output, so that each output is one accumulator and no sum crosses lanes. Inside a tile, k4 = 4 inputs:
//   F32, F16   [K][16 outputs]
//   BF16       [(K + 1) / 2][16 outputs][2 inputs]
//   bytes      [K / 4][16 outputs][4 inputs], unsigned; then scales [K / group][16], then mins [K / group][16]
//   nibbles    [K / 32][4][16 outputs][4]: vector v of a block holds k4 = v in its low halves, k4 = v + 4 in its high
//   ones
#pragma once

#include <cstddef>
#include <cstdint>

namespace ibid::cpu {

inline constexpr int kTileOutputs = 16;
inline constexpr int64_t kMaxProductRows = 96;  // of one call; a multiple of every register tile's rows

enum class PackedFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kNibble,         // f16 scale, code - 8                    Q4_0
  kNibbleMin,      // f16 scale, f16 min                     Q4_1
  kNibbleMinWide,  // f32 scale, f32 min                     Q4_K
  kNibbleTable,    // f32 scale, table of 16 values          IQ4_NL, IQ4_XS, MXFP4
  kByte,           // f16 scale, code - 128                  Q5_0, Q8_0
  kByteMin,        // f16 scale, f16 min, codes below 32     Q5_1
  kByteMinWide,    // f32 scale, f32 min, codes below 32     Q5_K
  kByte16Wide,     // f32 scale per 16, code - 128           Q3_K, Q6_K
  kByteMin16Wide,  // f32 scale, f32 min per 16              Q2_K
};

// Rows of activations quantised in groups of 32 inputs. Sums are of the codes.
struct QuantisedRows {
  int64_t n_inputs = 0;            // K, a multiple of 32
  int8_t* codes = nullptr;         // [T, K]
  float* scales = nullptr;         // [T, K / 32]
  int32_t* neg_sums = nullptr;     // [T, K / 32]: minus the sum of a group's codes
  float* scaled_sums = nullptr;    // [T, K / 32]: scale * sum
  int32_t* neg_sums16 = nullptr;   // [T, K / 16]; these two may be null
  float* scaled_sums16 = nullptr;  // [T, K / 16]
};

struct LinearTask {
  PackedFormat format = PackedFormat::kF32;
  const uint8_t* table = nullptr;  // kNibbleTable: 16 values + 128
  const std::byte* packed = nullptr;
  int64_t tile_bytes = 0;
  int64_t n_outputs = 0;  // N
  int64_t n_inputs = 0;   // K
  int n_pieces = 1;       // of K (kernels/k_pieces.h); edges[n_pieces + 1], in inputs
  const int64_t* edges = nullptr;
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
