// The block-quantised formats of the ggml family, bit for bit as they lie in GGUF files (little-endian).
//
// Each struct is one block: kBlockLen (32) or 256 consecutive elements of a row (NVFP4 and Q2_0 64, Q1_0 128).
// Half-precision fields are uint16_t; tensor/half.h converts them. The formulas define an element's value;
// dequantise_row (tensor/dequantise.h) is their executable form and the order of its roundings.
//
// "Low half, high half": of 16 bytes that hold 32 codes of four bits, byte i holds code i in its low four bits and
// code i + 16 in its high four bits.
#pragma once

#include <cstdint>

namespace ibid {

inline constexpr int kBlockLen = 32;

struct BlockQ4_0 {  // scale * (code - 8)
  uint16_t scale;
  uint8_t codes[16];  // low half, high half
};
struct BlockQ4_1 {  // scale * code + min
  uint16_t scale;
  uint16_t min;
  uint8_t codes[16];  // low half, high half
};
struct BlockQ5_0 {  // scale * (code - 16)
  uint16_t scale;
  uint8_t high[4];    // bit i (counted from the first byte's lowest) is bit 4 of code i
  uint8_t codes[16];  // bits 0-3: low half, high half
};
struct BlockQ5_1 {  // scale * code + min
  uint16_t scale;
  uint16_t min;
  uint8_t high[4];
  uint8_t codes[16];
};
struct BlockQ8_0 {  // scale * code
  uint16_t scale;
  int8_t codes[32];
};

// Super-blocks. Sub-block s covers elements [16 s, 16 s + 16) or [32 s, 32 s + 32) as stated.

struct BlockQ2_K {  // scale * (scales[s] & 15) * code - min * (scales[s] >> 4), sub-blocks of 16
  uint8_t scales[16];
  uint8_t codes[64];  // element 128 h + 32 j + i: bits 2j, 2j+1 of codes[32 h + i]
  uint16_t scale;
  uint16_t min;
};
struct BlockQ3_K {     // scale * (scales(s) - 32) * (code - (high bit ? 0 : 4)), sub-blocks of 16
  uint8_t high[32];    // element 32 j + i: bit j of high[i]
  uint8_t codes[64];   // as in Q2_K
  uint8_t scales[12];  // low four bits: bytes 0-7 (low halves are s = 0-7, high halves 8-15); high two: bytes 8-11
  uint16_t scale;
};
struct BlockQ4_K {  // scale * scales(s) * code - min * mins(s), sub-blocks of 32
  uint16_t scale;
  uint16_t min;
  uint8_t scales[12];  // 8 scales and 8 mins of six bits, see unpack_k_scales
  uint8_t codes[128];  // element 64 g + i: low half of codes[32 g + i]; 64 g + 32 + i: its high half
};
struct BlockQ5_K {  // as Q4_K, codes of five bits
  uint16_t scale;
  uint16_t min;
  uint8_t scales[12];
  uint8_t high[32];  // element 32 j + i: bit j of high[i] is bit 4 of the code
  uint8_t codes[128];
};
struct BlockQ6_K {   // scale * scales[s] * (code - 32), sub-blocks of 16
  uint8_t low[128];  // element 128 h + 64 n + i (i < 64): half n of low[64 h + i] is bits 0-3
  uint8_t high[64];  // element 128 h + 32 j + i: bits 2j, 2j+1 of high[32 h + i] are bits 4-5
  int8_t scales[16];
  uint16_t scale;
};
struct BlockIQ4_NL {  // scale * kIQ4Values[code]
  uint16_t scale;
  uint8_t codes[16];  // low half, high half
};
struct BlockIQ4_XS {  // scale * (scales(s) - 32) * kIQ4Values[code], sub-blocks of 32
  uint16_t scale;
  uint16_t scales_high;   // bits 2s, 2s+1 are bits 4-5 of scale s
  uint8_t scales_low[4];  // half s % 2 of byte s / 2 is bits 0-3
  uint8_t codes[128];     // each 16 bytes one sub-block: low half, high half
};
struct BlockMXFP4 {  // 2^(exponent - 128) * kMXFP4Values[code]; see mxfp4_scale
  uint8_t exponent;
  uint8_t codes[16];  // low half, high half
};

// Grids: an index names eight values of a lattice (IQ3: four), which signs or a shift make the codes of (grid_formats.h
// unpacks them). Group s covers elements [32 s, 32 s + 32), and has one scale, or one for each half. Sign bit i of a
// byte is that of element i of eight; seven bits of signs have their parity as the eighth.

struct BlockIQ1_S {  // scale * (2 s3 + 1) / 8 * kIQ1Values[code]
  uint16_t scale;
  uint8_t indices[32];  // low eight bits of each eight elements' index
  uint16_t high[8];     // of group s: bits 3i to 3i + 2 of index 4 s + i; bits 12-14: s3; bit 15: all shifted down
};
struct BlockIQ1_M {  // as IQ1_S, a scale for 16
  uint8_t indices[32];
  uint8_t high[16];  // half i % 2 of byte i / 2: three high bits of index i, and whether its eight are shifted down
  uint16_t
      scales[4];  // of groups 2 i and 2 i + 1, bits 3j to 3j + 2: s3 of half j; bits 12-15: bits 4 i on of the scale
};
struct BlockIQ2_XXS {  // scale * (2 s4 + 1) / 8 * kIQ2Values[code]
  uint16_t scale;
  uint8_t groups[8][8];  // four indices; 32 bits: four of seven signs, then s4
};
struct BlockIQ2_XS {  // the same, a scale for 16
  uint16_t scale;
  uint16_t indices[32];  // of eight elements: nine bits, then seven signs
  uint8_t scales[8];     // of group s: s4 of its first half in the low half
};
struct BlockIQ2_S {  // the same
  uint16_t scale;
  uint8_t indices[32];
  uint8_t signs[32];
  uint8_t high[8];  // of group s: bits 2i, 2i + 1 are bits 8-9 of index 4 s + i
  uint8_t scales[8];
};
struct BlockIQ3_XXS {  // scale * (2 s4 + 1) / 4 * kIQ3XXSValues[code]
  uint16_t scale;
  uint8_t indices[64];
  uint8_t signs[8][4];  // of group s, 32 bits: four of seven signs, then s4
};
struct BlockIQ3_S {  // scale * (2 s4 + 1) * kIQ3SValues[code]
  uint16_t scale;
  uint8_t indices[64];
  uint8_t high[8];  // of group s: bit i is bit 8 of index 8 s + i
  uint8_t signs[32];
  uint8_t scales[4];  // half s % 2 of byte s / 2: s4 of group s
};

// Ternary and the like: scale * (code - 1).

struct BlockTQ1_0 {       // digits of base 3: digit n of a byte is (byte * 3^n mod 256) * 3 / 256
  uint8_t codes[48];      // elements 32 n + i: digit n of byte i < 32; 160 + 16 n + i: of byte 32 + i
  uint8_t last_codes[4];  // element 240 + 4 n + i: digit n of byte i
  uint16_t scale;
};
struct BlockTQ2_0 {
  uint8_t codes[64];  // as in Q2_K
  uint16_t scale;
};
struct BlockQ1_0 {  // bit i % 8 of byte i / 8: code 2 or 0
  uint16_t scale;
  uint8_t bits[16];
};
struct BlockQ2_0 {  // bits 2 (i % 4) of byte i / 4
  uint16_t scale;
  uint8_t codes[16];
};
struct BlockNVFP4 {  // nvfp4_scale(scales[s]) * kMXFP4Values[code], sub-blocks of 16
  uint8_t scales[4];
  uint8_t codes[4][8];  // of a sub-block: byte i has element i in its low half, i + 8 in its high half
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56 && sizeof(BlockIQ2_XXS) == 66);
static_assert(sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ2_S) == 82 && sizeof(BlockIQ3_XXS) == 98);
static_assert(sizeof(BlockIQ3_S) == 110 && sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66);
static_assert(sizeof(BlockQ1_0) == 18 && sizeof(BlockQ2_0) == 18 && sizeof(BlockNVFP4) == 36);
static_assert(sizeof(BlockMXFP4) == 17 && alignof(BlockQ6_K) == 2 && alignof(BlockMXFP4) == 1);

inline constexpr int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// The values of E2M1, doubled; mxfp4_scale is halved in return. Code 8 is +0, not -0.
inline constexpr int8_t kMXFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Scale and min of sub-block s (0-7) of Q4_K and Q5_K.
inline void unpack_k_scales(const uint8_t scales[12], int s, uint8_t& scale, uint8_t& min) {
  if (s < 4) {
    scale = scales[s] & 63;
    min = scales[s + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((scales[s + 4] & 15) | ((scales[s - 4] >> 2) & 0x30));
    min = static_cast<uint8_t>((scales[s + 4] >> 4) | ((scales[s] >> 2) & 0x30));
  }
}

// Scale of sub-block s (0-15) of Q3_K, -32 to 31.
inline int unpack_q3_scale(const uint8_t scales[12], int s) {
  int low = (scales[s % 8] >> (s < 8 ? 0 : 4)) & 15;
  int high = (scales[8 + s % 4] >> (2 * (s / 4))) & 3;
  return (low | (high << 4)) - 32;
}

// Scale of sub-block s (0-7) of IQ4_XS, -32 to 31.
inline int unpack_iq4_scale(const BlockIQ4_XS& block, int s) {
  int low = (block.scales_low[s / 2] >> (4 * (s % 2))) & 15;
  int high = (block.scales_high >> (2 * s)) & 3;
  return (low | (high << 4)) - 32;
}

}  // namespace ibid
