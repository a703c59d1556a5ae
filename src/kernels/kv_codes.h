// Keys and values as codes: numbers that are exact in F32, so that a cache of codes is one of those F32 numbers, and
// attention over it is bit for bit what it is over an F32 cache that holds them. What a slot holds is a function of its
// token's F32 key and value alone. Both kernels and references store by these functions. Any thread; the same bits on
// every machine.
//
// Eight bits (KvType::kI8): a scale, an F16, for each token and head.
//   number = code * scale;  |x - number| <= scale / 2 (1 + 2^-15)
//   scale  = the least F16 that is max|x| / 127 or more (0 for zeros; NaN where an element is)
//   code   = x * (1 / scale), nearest, ties to even, in [-127, 127]
//
// E4M3 (KvType::kF8): likewise a scale, an F16, for each token and head (vLLM's fp8_per_token_head).
//   number = E4M3 * scale;  |x - number| <= max(|x| / 16, scale / 1024) (1 + 2^-15)
//   scale  = the least F16 that is max|x| / 448 or more (0 for zeros; NaN where an element is)
//   code   = E4M3 of x * (1 / scale), nearest, ties to even, at most 448
//
// Four bits (KvType::kI4): of each 32 elements of a head a step, an F16, and a zero, a byte. What is coded is not the
// head but turn_in() of it, which spreads an element that is far from the others over 64 of them; attention turns
// queries and outputs (as QuaRot does, Ashkboos et al., 2024).
//   number = step * (16 code - zero);  |x - number| <= 8 step (1 + 2^-15)
//   step   = the least F16 that is (max(x, 0) - min(x, 0)) / 240 or more (NaN where an element is not finite)
//   zero   = -min(x, 0) * (1 / step), nearest, in [0, 240];  code = (x * (1 / step) + zero) / 16, nearest, in [0, 15]
#pragma once

#include <cstdint>

#include "kernels/kv_types.h"
#include "tensor/float8.h"

namespace ibid {

inline constexpr int kMostCode = 127;
// n floats to n codes. Returns the scale.
uint16_t quantise_head(const float* x, int32_t n, int8_t* codes);
uint16_t quantise_head_e4m3(const float* x, int32_t n, uint8_t* codes);
// Either, as `type` has it: kI8, whose codes are bytes here, or kF8. And the number of a code, before its scale.
uint16_t quantise_head(KvType type, const float* x, int32_t n, uint8_t* codes);
inline float eight_bit_number(KvType type, uint8_t code) {
  return to_float(type == KvType::kF8 ? EightBits::kE4M3 : EightBits::kInteger, code);
}

inline constexpr int32_t kCodeGroup = 32;
inline constexpr int32_t n_code_groups(int32_t head_len) { return (head_len + kCodeGroup - 1) / kCodeGroup; }
struct FourBits {
  uint16_t step;
  uint8_t zero;
};
// n <= 32 floats to n codes.
FourBits quantise_group(const float* x, int32_t n, uint8_t* codes);
// The number of a code. `step` is widened.
inline float four_bit_number(uint8_t code, float step, uint8_t zero) {
  return step * static_cast<float>(16 * code - zero);
}

// A Hadamard transform of each run of 2^b elements, the largest power of two up to 64 that divides n (n: a multiple of
// 8): stages of pairs at distances 1, 2, .. 2^(b-1), (x, y) to (x + y, x - y), then times 2^-floor(b / 2) by turn_in(),
// 2^-ceil(b / 2) by turn_out(). Each undoes the other up to rounding, and <turn_out(q), turn_in(k)> is <q, k>.
void turn_in(float* x, int32_t n);
void turn_out(float* x, int32_t n);
void turn_out(double* x, int32_t n);

}  // namespace ibid
