// Codes of the formats that keep them otherwise than in bits of their own: IQ1, IQ2 and IQ3 by grids, TQ1_0 as digits
// of base 3, and the short ones beside them. Each code is a place in a table of whole numbers below, so that a weight
// is an exact f32 factor times an int8 value; dequantisation and the packing for products both read them here.
//
// unpack_group(block, s, codes, scale): group s of a block, 32 elements, as bytes of codes[4], the first one lowest,
// and the whole numbers that its factor is the block's scale times: scale[0], and of formats with one for 16 scale[1]
// of the second half. (Of formats without such, scale is left alone.) s < block length / 32. Little-endian machines.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "tensor/block_formats.h"

namespace ibid {

// Generated (tools/make_grids.py): places of values, two bits each of eight (IQ3: four bits each of four).
extern const uint16_t kGridIQ1[2048], kGridIQ2_XXS[256], kGridIQ2_XS[512], kGridIQ2_S[1024];
extern const uint16_t kGridIQ3_XXS[256], kGridIQ3_S[512];

// By code. Bit 2 (IQ3: bit 3) is the sign, of IQ1 the shift by an eighth: down, else up. Zeros belong to no code.
inline constexpr int8_t kIQ1Values[16] = {-7, 1, 9, 0, -9, -1, 7};  // eighths
inline constexpr int8_t kIQ2Values[16] = {8, 25, 43, 0, -8, -25, -43};
inline constexpr int8_t kIQ3XXSValues[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr int8_t kIQ3SValues[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
inline constexpr int8_t kTernaryValues[4] = {-1, 0, 1, 2};

inline constexpr uint64_t in_each_byte(uint64_t byte) { return byte * 0x0101010101010101u; }
inline uint64_t eight_bytes(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}
// Bits 0 to 7, each as the lowest of a byte.
inline uint64_t spread_bits(uint64_t bits) {
  return (((bits * in_each_byte(1)) & 0x8040201008040201u) + in_each_byte(127)) >> 7 & in_each_byte(1);
}
// Eight times two bits, or four times four, each as a byte.
inline uint64_t spread_pairs(uint64_t x) {
  x = (x | x << 24) & 0x000000ff000000ffu;
  x = (x | x << 12) & 0x000f000f000f000fu;
  return (x | x << 6) & in_each_byte(3);
}
inline uint64_t spread_nibbles(uint64_t x) {
  x = (x | x << 8) & 0x00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0fu;
}
// Seven signs and their parity as the eighth.
inline uint64_t with_parity(uint32_t signs) { return signs | (static_cast<uint32_t>(std::popcount(signs)) & 1) << 7; }
inline uint32_t four_bytes(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

inline void unpack_group(const BlockIQ1_S& q, int s, uint64_t codes[4], int scale[2]) {
  const uint32_t high = q.high[s];
  const uint64_t shift = in_each_byte(high >> 15 << 2);
  for (int i = 0; i < 4; ++i) {
    codes[i] = spread_pairs(kGridIQ1[q.indices[4 * s + i] | (high >> (3 * i) & 7) << 8]) | shift;
  }
  scale[0] = static_cast<int>(2 * (high >> 12 & 7) + 1);
}
inline uint16_t scale_of(const BlockIQ1_M& q) {
  uint32_t scale = 0;
  for (int i = 0; i < 4; ++i) scale |= (q.scales[i] >> 12 & 15u) << (4 * i);
  return static_cast<uint16_t>(scale);
}
inline void unpack_group(const BlockIQ1_M& q, int s, uint64_t codes[4], int scale[2]) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t high = q.high[2 * s + i / 2] >> (4 * (i % 2)) & 15u;
    codes[i] = spread_pairs(kGridIQ1[q.indices[4 * s + i] | (high & 7) << 8]) | in_each_byte(high >> 3 << 2);
  }
  for (int g = 0; g < 2; ++g) scale[g] = 2 * (q.scales[s / 2] >> (6 * (s % 2) + 3 * g) & 7) + 1;
}
inline void unpack_group(const BlockIQ2_XXS& q, int s, uint64_t codes[4], int scale[2]) {
  const uint32_t signs = four_bytes(q.groups[s] + 4);
  for (int i = 0; i < 4; ++i) {
    codes[i] = spread_pairs(kGridIQ2_XXS[q.groups[s][i]]) | spread_bits(with_parity(signs >> (7 * i) & 127)) << 2;
  }
  scale[0] = static_cast<int>(2 * (signs >> 28) + 1);
}
inline void unpack_group(const BlockIQ2_XS& q, int s, uint64_t codes[4], int scale[2]) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t index = q.indices[4 * s + i];
    codes[i] = spread_pairs(kGridIQ2_XS[index & 511]) | spread_bits(with_parity(index >> 9)) << 2;
  }
  for (int g = 0; g < 2; ++g) scale[g] = 2 * (q.scales[s] >> (4 * g) & 15) + 1;
}
inline void unpack_group(const BlockIQ2_S& q, int s, uint64_t codes[4], int scale[2]) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t index = q.indices[4 * s + i] | (q.high[s] >> (2 * i) & 3u) << 8;
    codes[i] = spread_pairs(kGridIQ2_S[index]) | spread_bits(q.signs[4 * s + i]) << 2;
  }
  for (int g = 0; g < 2; ++g) scale[g] = 2 * (q.scales[s] >> (4 * g) & 15) + 1;
}
inline void unpack_group(const BlockIQ3_XXS& q, int s, uint64_t codes[4], int scale[2]) {
  const uint32_t signs = four_bytes(q.signs[s]);
  const uint8_t* index = q.indices + 8 * s;
  for (int i = 0; i < 4; ++i, index += 2) {
    codes[i] = (spread_nibbles(kGridIQ3_XXS[index[0]]) | spread_nibbles(kGridIQ3_XXS[index[1]]) << 32) |
               spread_bits(with_parity(signs >> (7 * i) & 127)) << 3;
  }
  scale[0] = static_cast<int>(2 * (signs >> 28) + 1);
}
inline void unpack_group(const BlockIQ3_S& q, int s, uint64_t codes[4], int scale[2]) {
  const auto four = [&](int i) {
    return spread_nibbles(kGridIQ3_S[q.indices[8 * s + i] | (q.high[s] >> i & 1u) << 8]);
  };
  for (int i = 0; i < 4; ++i) {
    codes[i] = four(2 * i) | four(2 * i + 1) << 32 | spread_bits(q.signs[4 * s + i]) << 3;
  }
  scale[0] = 2 * (q.scales[s / 2] >> (4 * (s % 2)) & 15) + 1;
}

inline void unpack_group(const BlockTQ1_0& q, int s, uint64_t codes[4], int*) {
  constexpr uint32_t kPowers[5] = {1, 3, 9, 27, 81};
  uint8_t digits[32];
  for (int i = 0; i < 32; ++i) {
    const int at = 32 * s + i;
    const uint32_t byte = at < 160 ? q.codes[at % 32] : at < 240 ? q.codes[32 + at % 16] : q.last_codes[at % 4];
    const int n = at < 160 ? at / 32 : at < 240 ? (at - 160) / 16 : (at - 240) / 4;
    digits[i] = static_cast<uint8_t>((byte * kPowers[n] & 255) * 3 >> 8);
  }
  std::memcpy(codes, digits, 32);
}
inline void unpack_group(const BlockTQ2_0& q, int s, uint64_t codes[4], int*) {
  for (int w = 0; w < 4; ++w) {
    codes[w] = eight_bytes(q.codes + 32 * (s / 4) + 8 * w) >> (2 * (s % 4)) & in_each_byte(3);
  }
}
inline void unpack_group(const BlockQ1_0& q, int s, uint64_t codes[4], int*) {
  for (int w = 0; w < 4; ++w) codes[w] = spread_bits(q.bits[4 * s + w]) << 1;
}
inline void unpack_group(const BlockQ2_0& q, int s, uint64_t codes[4], int*) {
  for (int w = 0; w < 4; ++w) {
    codes[w] = spread_pairs(q.codes[8 * s + 2 * w] | static_cast<uint32_t>(q.codes[8 * s + 2 * w + 1]) << 8);
  }
}
inline void unpack_group(const BlockNVFP4& q, int s, uint64_t codes[4], int*) {
  for (int w = 0; w < 4; ++w) codes[w] = eight_bytes(q.codes[2 * s + w / 2]) >> (4 * (w % 2)) & in_each_byte(15);
}

}  // namespace ibid
