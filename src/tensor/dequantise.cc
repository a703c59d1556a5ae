#include "tensor/dequantise.h"

#include <cstring>

#include "base/check.h"
#include "tensor/block_formats.h"
#include "tensor/grid_formats.h"
#include "tensor/half.h"

namespace ibid {
namespace {

void dequantise_block(const BlockQ4_0& b, float* y) {
  float scale = half_to_float(b.scale);
  for (int i = 0; i < 16; ++i) {
    y[i] = scale * static_cast<float>((b.codes[i] & 15) - 8);
    y[i + 16] = scale * static_cast<float>((b.codes[i] >> 4) - 8);
  }
}

void dequantise_block(const BlockQ4_1& b, float* y) {
  float scale = half_to_float(b.scale);
  float min = half_to_float(b.min);
  for (int i = 0; i < 16; ++i) {
    y[i] = scale * static_cast<float>(b.codes[i] & 15) + min;
    y[i + 16] = scale * static_cast<float>(b.codes[i] >> 4) + min;
  }
}

int five_bits(const uint8_t codes[16], const uint8_t high[4], int i) {
  int low = i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
  return low | (((high[i / 8] >> (i % 8)) & 1) << 4);
}

void dequantise_block(const BlockQ5_0& b, float* y) {
  float scale = half_to_float(b.scale);
  for (int i = 0; i < 32; ++i) y[i] = scale * static_cast<float>(five_bits(b.codes, b.high, i) - 16);
}

void dequantise_block(const BlockQ5_1& b, float* y) {
  float scale = half_to_float(b.scale);
  float min = half_to_float(b.min);
  for (int i = 0; i < 32; ++i) y[i] = scale * static_cast<float>(five_bits(b.codes, b.high, i)) + min;
}

void dequantise_block(const BlockQ8_0& b, float* y) {
  float scale = half_to_float(b.scale);
  for (int i = 0; i < 32; ++i) y[i] = scale * static_cast<float>(b.codes[i]);
}

// The two-bit code of element i in Q2_K and Q3_K.
int two_bits(const uint8_t codes[64], int i) { return (codes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3; }

void dequantise_block(const BlockQ2_K& b, float* y) {
  float scale = half_to_float(b.scale);
  float min = half_to_float(b.min);
  for (int s = 0; s < 16; ++s) {
    float sub_scale = scale * static_cast<float>(b.scales[s] & 15);
    float sub_min = min * static_cast<float>(b.scales[s] >> 4);
    for (int i = 16 * s; i < 16 * s + 16; ++i) y[i] = sub_scale * static_cast<float>(two_bits(b.codes, i)) - sub_min;
  }
}

void dequantise_block(const BlockQ3_K& b, float* y) {
  float scale = half_to_float(b.scale);
  for (int s = 0; s < 16; ++s) {
    float sub_scale = scale * static_cast<float>(unpack_q3_scale(b.scales, s));
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      bool high = (b.high[i % 32] >> (i / 32)) & 1;
      y[i] = sub_scale * static_cast<float>(two_bits(b.codes, i) - (high ? 0 : 4));
    }
  }
}

// The four-bit code of element i in Q4_K and Q5_K.
int four_bits(const uint8_t codes[128], int i) { return (codes[i / 64 * 32 + i % 32] >> (4 * (i % 64 / 32))) & 15; }

void dequantise_block(const BlockQ4_K& b, float* y) {
  float scale = half_to_float(b.scale);
  float min = half_to_float(b.min);
  for (int s = 0; s < 8; ++s) {
    uint8_t s6 = 0;
    uint8_t m6 = 0;
    unpack_k_scales(b.scales, s, s6, m6);
    float sub_scale = scale * static_cast<float>(s6);
    float sub_min = min * static_cast<float>(m6);
    for (int i = 32 * s; i < 32 * s + 32; ++i) y[i] = sub_scale * static_cast<float>(four_bits(b.codes, i)) - sub_min;
  }
}

void dequantise_block(const BlockQ5_K& b, float* y) {
  float scale = half_to_float(b.scale);
  float min = half_to_float(b.min);
  for (int s = 0; s < 8; ++s) {
    uint8_t s6 = 0;
    uint8_t m6 = 0;
    unpack_k_scales(b.scales, s, s6, m6);
    float sub_scale = scale * static_cast<float>(s6);
    float sub_min = min * static_cast<float>(m6);
    for (int i = 32 * s; i < 32 * s + 32; ++i) {
      int code = four_bits(b.codes, i) | (((b.high[i % 32] >> s) & 1) << 4);
      y[i] = sub_scale * static_cast<float>(code) - sub_min;
    }
  }
}

void dequantise_block(const BlockQ6_K& b, float* y) {
  float scale = half_to_float(b.scale);
  for (int s = 0; s < 16; ++s) {
    float sub_scale = scale * static_cast<float>(b.scales[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      int low = (b.low[i / 128 * 64 + i % 64] >> (4 * (i % 128 / 64))) & 15;
      int high = (b.high[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3;
      y[i] = sub_scale * static_cast<float>((low | (high << 4)) - 32);
    }
  }
}

void dequantise_values(const uint8_t codes[16], const int8_t values[16], float scale, float* y) {
  for (int i = 0; i < 16; ++i) {
    y[i] = scale * static_cast<float>(values[codes[i] & 15]);
    y[i + 16] = scale * static_cast<float>(values[codes[i] >> 4]);
  }
}

void dequantise_block(const BlockIQ4_NL& b, float* y) {
  dequantise_values(b.codes, kIQ4Values, half_to_float(b.scale), y);
}

void dequantise_block(const BlockIQ4_XS& b, float* y) {
  float scale = half_to_float(b.scale);
  for (int s = 0; s < 8; ++s) {
    float sub_scale = scale * static_cast<float>(unpack_iq4_scale(b, s));
    dequantise_values(b.codes + 16 * s, kIQ4Values, sub_scale, y + 32 * s);
  }
}

void dequantise_block(const BlockMXFP4& b, float* y) {
  dequantise_values(b.codes, kMXFP4Values, mxfp4_scale(b.exponent), y);
}

// Of kLen elements, whose whole numbers' unit is `scale`.
template <int kLen, int kGroup, typename Block>
void dequantise_groups(const Block& b, const int8_t* values, float scale, float* y) {
  for (int s = 0; s < kLen / 32; ++s, y += 32) {
    uint64_t codes[4];
    int scales[2] = {1, 1};
    unpack_group(b, s, codes, scales);
    for (int i = 0; i < 32; ++i) {
      const uint64_t code = codes[i / 8] >> (8 * (i % 8)) & 255;
      y[i] = scale * static_cast<float>(scales[i / kGroup]) * static_cast<float>(values[code]);
    }
  }
}

void dequantise_block(const BlockIQ1_S& b, float* y) {
  dequantise_groups<256, 32>(b, kIQ1Values, half_to_float(b.scale) / 8, y);
}
void dequantise_block(const BlockIQ1_M& b, float* y) {
  dequantise_groups<256, 16>(b, kIQ1Values, half_to_float(scale_of(b)) / 8, y);
}
void dequantise_block(const BlockIQ2_XXS& b, float* y) {
  dequantise_groups<256, 32>(b, kIQ2Values, half_to_float(b.scale) / 8, y);
}
void dequantise_block(const BlockIQ2_XS& b, float* y) {
  dequantise_groups<256, 16>(b, kIQ2Values, half_to_float(b.scale) / 8, y);
}
void dequantise_block(const BlockIQ2_S& b, float* y) {
  dequantise_groups<256, 16>(b, kIQ2Values, half_to_float(b.scale) / 8, y);
}
void dequantise_block(const BlockIQ3_XXS& b, float* y) {
  dequantise_groups<256, 32>(b, kIQ3XXSValues, half_to_float(b.scale) / 4, y);
}
void dequantise_block(const BlockIQ3_S& b, float* y) {
  dequantise_groups<256, 32>(b, kIQ3SValues, half_to_float(b.scale), y);
}
void dequantise_block(const BlockTQ1_0& b, float* y) {
  dequantise_groups<256, 32>(b, kTernaryValues, half_to_float(b.scale), y);
}
void dequantise_block(const BlockTQ2_0& b, float* y) {
  dequantise_groups<256, 32>(b, kTernaryValues, half_to_float(b.scale), y);
}
void dequantise_block(const BlockQ1_0& b, float* y) {
  dequantise_groups<128, 32>(b, kTernaryValues, half_to_float(b.scale), y);
}
void dequantise_block(const BlockQ2_0& b, float* y) {
  dequantise_groups<64, 32>(b, kTernaryValues, half_to_float(b.scale), y);
}
void dequantise_block(const BlockNVFP4& b, float* y) {
  for (int s = 0; s < 4; ++s, y += 16) {
    const float scale = nvfp4_scale(b.scales[s]);
    for (int i = 0; i < 8; ++i) {
      y[i] = scale * static_cast<float>(kMXFP4Values[b.codes[s][i] & 15]);
      y[i + 8] = scale * static_cast<float>(kMXFP4Values[b.codes[s][i] >> 4]);
    }
  }
}

template <typename Block, int kLen>
void dequantise_blocks(const void* src, float* dst, int64_t n) {
  DCHECK(n % kLen == 0, "a row is a whole number of blocks");
  const auto* bytes = static_cast<const std::byte*>(src);
  for (int64_t i = 0; i < n; i += kLen) {
    Block block;
    std::memcpy(&block, bytes, sizeof(Block));
    dequantise_block(block, dst + i);
    bytes += sizeof(Block);
  }
}

template <typename T, float (*to_float)(T)>
void convert(const void* src, float* dst, int64_t n) {
  const auto* bytes = static_cast<const std::byte*>(src);
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    dst[i] = to_float(value);
  }
}

float double_to_float(double value) { return static_cast<float>(value); }

}  // namespace

void dequantise_row(DType dtype, const void* src, float* dst, int64_t n) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return convert<uint16_t, half_to_float>(src, dst, n);
    case DType::kBF16:
      return convert<uint16_t, bf16_to_float>(src, dst, n);
    case DType::kF64:
      return convert<double, double_to_float>(src, dst, n);
    case DType::kQ4_0:
      return dequantise_blocks<BlockQ4_0, 32>(src, dst, n);
    case DType::kQ4_1:
      return dequantise_blocks<BlockQ4_1, 32>(src, dst, n);
    case DType::kQ5_0:
      return dequantise_blocks<BlockQ5_0, 32>(src, dst, n);
    case DType::kQ5_1:
      return dequantise_blocks<BlockQ5_1, 32>(src, dst, n);
    case DType::kQ8_0:
      return dequantise_blocks<BlockQ8_0, 32>(src, dst, n);
    case DType::kQ2_K:
      return dequantise_blocks<BlockQ2_K, 256>(src, dst, n);
    case DType::kQ3_K:
      return dequantise_blocks<BlockQ3_K, 256>(src, dst, n);
    case DType::kQ4_K:
      return dequantise_blocks<BlockQ4_K, 256>(src, dst, n);
    case DType::kQ5_K:
      return dequantise_blocks<BlockQ5_K, 256>(src, dst, n);
    case DType::kQ6_K:
      return dequantise_blocks<BlockQ6_K, 256>(src, dst, n);
    case DType::kIQ4_NL:
      return dequantise_blocks<BlockIQ4_NL, 32>(src, dst, n);
    case DType::kIQ1_S:
      return dequantise_blocks<BlockIQ1_S, 256>(src, dst, n);
    case DType::kIQ1_M:
      return dequantise_blocks<BlockIQ1_M, 256>(src, dst, n);
    case DType::kIQ2_XXS:
      return dequantise_blocks<BlockIQ2_XXS, 256>(src, dst, n);
    case DType::kIQ2_XS:
      return dequantise_blocks<BlockIQ2_XS, 256>(src, dst, n);
    case DType::kIQ2_S:
      return dequantise_blocks<BlockIQ2_S, 256>(src, dst, n);
    case DType::kIQ3_XXS:
      return dequantise_blocks<BlockIQ3_XXS, 256>(src, dst, n);
    case DType::kIQ3_S:
      return dequantise_blocks<BlockIQ3_S, 256>(src, dst, n);
    case DType::kTQ1_0:
      return dequantise_blocks<BlockTQ1_0, 256>(src, dst, n);
    case DType::kTQ2_0:
      return dequantise_blocks<BlockTQ2_0, 256>(src, dst, n);
    case DType::kNVFP4:
      return dequantise_blocks<BlockNVFP4, 64>(src, dst, n);
    case DType::kQ1_0:
      return dequantise_blocks<BlockQ1_0, 128>(src, dst, n);
    case DType::kQ2_0:
      return dequantise_blocks<BlockQ2_0, 64>(src, dst, n);
    case DType::kIQ4_XS:
      return dequantise_blocks<BlockIQ4_XS, 256>(src, dst, n);
    case DType::kMXFP4:
      return dequantise_blocks<BlockMXFP4, 32>(src, dst, n);
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  CHECK(false, "integers are not weights");
}

void dequantise(const TensorView& x, float* dst) {
  for (int64_t r = 0; r < x.n_rows(); ++r) dequantise_row(x.dtype, x.row(r), dst + r * x.row_len(), x.row_len());
}

}  // namespace ibid
