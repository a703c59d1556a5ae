#include "tensor/quantise_short.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/block_formats.h"
#include "tensor/float8.h"
#include "tensor/half.h"

namespace ibid {
namespace {

float largest_of(const float* x, int n) {
  float largest = 0.0f;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// x / scale + 1 of [0, most], ties away from zero before the 1; whatever the value.
uint32_t ternary(float x, float factor, int most) {
  const float q = std::round(x * factor) + 1.0f;
  if (!(q > 0.0f)) return 0;
  return q >= static_cast<float>(most) ? static_cast<uint32_t>(most) : static_cast<uint32_t>(q);
}

void quantise_block_short(const float* x, BlockTQ1_0& b) {
  const float scale = largest_of(x, 256), factor = scale > 0.0f ? 1.0f / scale : 0.0f;
  b.scale = float_to_half(scale);
  // Digits of base 3, the first the highest, as a fraction of 243 in 256, rounded up; four of them leave the last zero.
  const auto byte_of = [&](int first, int stride, int n) {
    uint32_t q = 0;
    for (int i = 0; i < 5; ++i) q = 3 * q + (i < n ? ternary(x[first + i * stride], factor, 2) : 0);
    return static_cast<uint8_t>((q * 256 + 242) / 243);
  };
  for (int i = 0; i < 32; ++i) b.codes[i] = byte_of(i, 32, 5);
  for (int i = 0; i < 16; ++i) b.codes[32 + i] = byte_of(160 + i, 16, 5);
  for (int i = 0; i < 4; ++i) b.last_codes[i] = byte_of(240 + i, 4, 4);
}

void quantise_block_short(const float* x, BlockTQ2_0& b) {
  const float scale = largest_of(x, 256), factor = scale > 0.0f ? 1.0f / scale : 0.0f;
  b.scale = float_to_half(scale);
  for (int i = 0; i < 64; ++i) {
    uint32_t q = 0;
    for (int n = 0; n < 4; ++n) q |= ternary(x[i / 32 * 128 + 32 * n + i % 32], factor, 2) << (2 * n);
    b.codes[i] = static_cast<uint8_t>(q);
  }
}

void quantise_block_short(const float* x, BlockQ1_0& b) {
  float sum = 0.0f;
  for (int i = 0; i < 128; ++i) sum += std::fabs(x[i]);
  b.scale = float_to_half(sum / 128.0f);
  for (int i = 0; i < 16; ++i) {
    uint32_t bits = 0;
    for (int k = 0; k < 8; ++k) bits |= static_cast<uint32_t>(x[8 * i + k] >= 0.0f) << k;
    b.bits[i] = static_cast<uint8_t>(bits);
  }
}

void quantise_block_short(const float* x, BlockQ2_0& b) {
  const float scale = largest_of(x, 64), factor = scale > 0.0f ? 1.0f / scale : 0.0f;
  b.scale = float_to_half(scale);
  for (int i = 0; i < 16; ++i) {
    uint32_t q = 0;
    for (int n = 0; n < 4; ++n) q |= ternary(x[4 * i + n], factor, 3) << (2 * n);
    b.codes[i] = static_cast<uint8_t>(q);
  }
}

// Half up, where E4M3 rounds ties to even: what ggml does. Below its least number 0.
uint8_t e4m3_of(float x) {
  if (!(x > 0.0f)) return 0;
  const float capped = std::min(x, 448.0f);
  const auto bits = std::bit_cast<uint32_t>(capped);
  const int exponent = static_cast<int>(bits >> 23) - 120;
  if (exponent <= 0) return static_cast<uint8_t>(std::min(7, static_cast<int>(capped * 512.0f + 0.5f)));
  const uint32_t code = (static_cast<uint32_t>(exponent) << 3 | (bits >> 20 & 7)) + (bits >> 19 & 1);
  return static_cast<uint8_t>(std::min(code, 0x7eu));
}

void quantise_block_short(const float* x, BlockNVFP4& b) {
  for (int s = 0; s < 4; ++s) {
    b.scales[s] = e4m3_of(largest_of(x + 16 * s, 16) / 6.0f);
    const float d = 0.5f * e4m3_to_float(b.scales[s]);
    uint8_t codes[16];
    for (int i = 0; i < 16; ++i) {
      int best = 0;
      for (int c = 1; c < 16; ++c) {
        if (std::fabs(d * kMXFP4Values[c] - x[16 * s + i]) < std::fabs(d * kMXFP4Values[best] - x[16 * s + i]))
          best = c;
      }
      codes[i] = static_cast<uint8_t>(best);
    }
    for (int i = 0; i < 8; ++i) b.codes[s][i] = static_cast<uint8_t>(codes[i] | codes[i + 8] << 4);
  }
}

template <typename Block>
void quantise_blocks_short(DType dtype, const float* src, void* dst, int64_t n) {
  const int len = traits(dtype).block_len;
  DCHECK(n % len == 0, "a row is a whole number of blocks");
  auto* bytes = static_cast<std::byte*>(dst);
  for (int64_t i = 0; i < n; i += len, bytes += sizeof(Block)) {
    Block block;
    quantise_block_short(src + i, block);
    std::memcpy(bytes, &block, sizeof(Block));
  }
}

}  // namespace

bool is_short(DType dtype) { return dtype >= DType::kTQ1_0 && dtype <= DType::kQ2_0; }

void quantise_short(DType dtype, const float* src, void* dst, int64_t n) {
  switch (dtype) {
    case DType::kTQ1_0:
      return quantise_blocks_short<BlockTQ1_0>(dtype, src, dst, n);
    case DType::kTQ2_0:
      return quantise_blocks_short<BlockTQ2_0>(dtype, src, dst, n);
    case DType::kQ1_0:
      return quantise_blocks_short<BlockQ1_0>(dtype, src, dst, n);
    case DType::kQ2_0:
      return quantise_blocks_short<BlockQ2_0>(dtype, src, dst, n);
    case DType::kNVFP4:
      return quantise_blocks_short<BlockNVFP4>(dtype, src, dst, n);
    default:
      CHECK(false, "a format that is made otherwise");
  }
}

}  // namespace ibid
