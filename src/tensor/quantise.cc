#include "tensor/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/block_formats.h"
#include "tensor/half.h"
#include "tensor/quantise_grid.h"
#include "tensor/quantise_k.h"
#include "tensor/quantise_short.h"

namespace ibid {
namespace {

float inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// Truncation into 0..max, whatever the value (a conversion out of range is undefined).
uint8_t truncate(float value, int max) {
  if (!(value >= 0.0f)) return 0;
  return value >= static_cast<float>(max) ? static_cast<uint8_t>(max) : static_cast<uint8_t>(value);
}

void pack(const uint8_t q[32], uint8_t codes[16]) {
  for (int i = 0; i < 16; ++i) codes[i] = static_cast<uint8_t>((q[i] & 15) | (q[i + 16] << 4));
}

void pack_high(const uint8_t q[32], uint8_t high[4]) {
  for (int i = 0; i < 4; ++i) high[i] = 0;
  for (int i = 0; i < 32; ++i) high[i / 8] = static_cast<uint8_t>(high[i / 8] | ((q[i] >> 4) << (i % 8)));
}

// Signed formats: the largest magnitude becomes the code 0. Returns the scale.
uint16_t symmetric(const float* x, int half_range, uint8_t q[32]) {
  float largest = x[0];
  for (int i = 1; i < 32; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  float scale = largest / static_cast<float>(-half_range);
  float factor = inverse(scale);
  for (int i = 0; i < 32; ++i) {
    q[i] = truncate(x[i] * factor + (static_cast<float>(half_range) + 0.5f), 2 * half_range - 1);
  }
  return float_to_half(scale);
}

// Formats with a minimum. Returns scale and minimum.
void asymmetric(const float* x, int max_code, uint8_t q[32], uint16_t& scale_half, uint16_t& min_half) {
  float min = *std::min_element(x, x + 32);
  float max = *std::max_element(x, x + 32);
  float scale = (max - min) / static_cast<float>(max_code);
  float factor = inverse(scale);
  for (int i = 0; i < 32; ++i) q[i] = truncate((x[i] - min) * factor + 0.5f, max_code);
  scale_half = float_to_half(scale);
  min_half = float_to_half(min);
}

void quantise_block(const float* x, BlockQ4_0& b) {
  uint8_t q[32];
  b.scale = symmetric(x, 8, q);
  pack(q, b.codes);
}

void quantise_block(const float* x, BlockQ4_1& b) {
  uint8_t q[32];
  asymmetric(x, 15, q, b.scale, b.min);
  pack(q, b.codes);
}

void quantise_block(const float* x, BlockQ5_0& b) {
  uint8_t q[32];
  b.scale = symmetric(x, 16, q);
  pack(q, b.codes);
  pack_high(q, b.high);
}

void quantise_block(const float* x, BlockQ5_1& b) {
  uint8_t q[32];
  asymmetric(x, 31, q, b.scale, b.min);
  pack(q, b.codes);
  pack_high(q, b.high);
}

void quantise_block(const float* x, BlockQ8_0& b) {
  float largest = 0.0f;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
  float scale = largest / 127.0f;
  float factor = inverse(scale);
  for (int i = 0; i < 32; ++i) {
    float value = x[i] * factor;
    float magnitude = std::fabs(value);
    float down = std::floor(magnitude);
    int code = truncate(down + std::floor(2.0f * (magnitude - down)), 127);
    b.codes[i] = static_cast<int8_t>(value < 0.0f ? -code : code);
  }
  b.scale = float_to_half(scale);
}

template <typename Block>
void quantise_blocks(const float* src, void* dst, int64_t n) {
  DCHECK(n % kBlockLen == 0, "a row is a whole number of blocks");
  auto* bytes = static_cast<std::byte*>(dst);
  for (int64_t i = 0; i < n; i += kBlockLen) {
    Block block;
    quantise_block(src + i, block);
    std::memcpy(bytes, &block, sizeof(Block));
    bytes += sizeof(Block);
  }
}

template <uint16_t (*from_float)(float)>
void convert(const float* src, void* dst, int64_t n) {
  auto* bytes = static_cast<std::byte*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    uint16_t value = from_float(src[i]);
    std::memcpy(bytes + 2 * i, &value, 2);
  }
}

}  // namespace

bool can_quantise(DType dtype) { return dtype <= DType::kMXFP4 || has_grid_search(dtype) || is_short(dtype); }

void quantise_row(DType dtype, const float* src, void* dst, int64_t n, const float* importance) {
  const bool is_of_32 =
      dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ5_0 || dtype == DType::kQ5_1;
  if (has_grid_search(dtype)) return quantise_by_grid(dtype, src, dst, n, importance);
  if (is_short(dtype)) return quantise_short(dtype, src, dst, n);
  if (importance != nullptr && is_of_32) return quantise_searched(dtype, src, dst, n, importance);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return convert<float_to_half>(src, dst, n);
    case DType::kBF16:
      return convert<float_to_bf16>(src, dst, n);
    case DType::kQ4_0:
      return quantise_blocks<BlockQ4_0>(src, dst, n);
    case DType::kQ4_1:
      return quantise_blocks<BlockQ4_1>(src, dst, n);
    case DType::kQ5_0:
      return quantise_blocks<BlockQ5_0>(src, dst, n);
    case DType::kQ5_1:
      return quantise_blocks<BlockQ5_1>(src, dst, n);
    case DType::kQ8_0:
      return quantise_blocks<BlockQ8_0>(src, dst, n);
    default:
      return quantise_searched(dtype, src, dst, n, importance);
  }
}

}  // namespace ibid
