// What ops::linear computes, to the bit: out[t, n] = sum over k of x[t, k] * W[n, k], in one order of sums per weight
// family. Kept by every path (one row, few, many), thread count and instruction set (docs/design.md section 5, laws 1
// and 7). All arithmetic is fp32, round to nearest even, fma = one rounding.
//
// Pieces of K. Weight::pieces is the number of pieces that its inputs are summed in (kernels/k_pieces.h has the rule
// for where they begin): one, or eight where tensor parallelism cuts the inputs and K is 2,048 or more. Each piece is
// summed by itself, from 0, as its family below specifies; out is the balanced tree of the pieces, in plain adds that
// keep subnormals in every family:
//     ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7))
//
// F32 and F16. One accumulator per output and piece, from 0, over ascending k:
//     acc = fma(x[k], W[k], acc)
//   F16 weights become f32 exactly; x is never rounded.
//
// BF16. x is rounded to bf16 (nearest even). One accumulator per output and piece, over ascending pairs i (an odd K has
// a zero at its end); every operand and result that is subnormal is a zero of its sign:
//     acc = fma(x[2i], W[2i], fma(x[2i+1], W[2i+1], acc))
//   This is what the AVX-512 instruction vdpbf16ps computes; the others emulate it.
//
// Block-quantised. x is quantised once per row in groups of 32, whatever the weight's format:
//     scale = amax / 127, code[k] = to_nearest_even(x[k] * (127 / amax))      (amax < 2^-96: zeros; not finite: NaN)
//   A weight is W[n, k] = d * (code - offset) or d * code + m, where d and m are f32 that belong to a block of 32
//   weights (16 in Q2_K, Q3_K, Q6_K) and are exact products of what the file stores. One accumulator per output and
//   piece, from 0, over ascending blocks b:
//     acc = fma(float(sum of (code - offset) * x_code, exact), d * scale, acc)
//     acc = fma(m, scale * float(sum of x_code), acc)                           (only formats with a min)
//
//   family                   d                       m              offset
//   Q4_0, Q5_0, Q8_0         scale                                  8, 16, 0
//   Q4_1, Q5_1               scale                   min
//   Q4_K, Q5_K               scale * scales(s)       -(min * mins(s))
//   Q2_K                     scale * low scale       -(min * high scale)
//   Q3_K, Q6_K               scale * scales(s)                      4, 32
//   IQ4_NL, IQ4_XS, MXFP4    scale (* scales(s))                    0; the table's value is the code
//   NVFP4                    the half value of scales(s)            the same
//   IQ1, IQ2                 scale * (2 s + 1) / 8                  the same (tensor/grid_formats.h)
//   IQ3_XXS, IQ3_S           scale * (2 s + 1) (/ 4)                the same
//   TQ1_0, TQ2_0, Q1_0, Q2_0 scale                                  1
//   d belongs to 16 weights in IQ1_M, IQ2_XS, IQ2_S and NVFP4 as well.
//
// Weight::out_scale: each output is multiplied by it after all sums, one rounding more.
//
// Blocks of 32 and not longer: activations with one scale for 32 keep the error of our Q4_1 at that of the peers (the
// reasons and prices: docs/decisions/0002-linear-layouts.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/linear_table.h"
#include "tensor/dtype.h"

namespace ibid {

// The layout in which the CPU kernels read weights of a dtype, and the bytes of a tile of n_inputs. It is one for all
// instruction sets. kPackedVersion goes up with any change of the bytes that pack_tile writes: files keep them.
inline constexpr uint32_t kPackedVersion = 1;
const cpu::BlockLayout& block_layout(DType dtype);
int64_t packed_tile_bytes(DType dtype, int64_t n_inputs);
// The 16 code values + 128 of a table format; null for others.
const uint8_t* code_table(DType dtype);

// Writes tile `tile` (16 outputs; those past n_outputs are zero weights) of the packed form.
void pack_tile(DType dtype, const std::byte* raw, int64_t raw_row_bytes, int64_t n_outputs, int64_t n_inputs,
               int64_t tile, std::byte* to);

}  // namespace ibid
