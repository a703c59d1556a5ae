#include "tensor/quantise_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/block_formats.h"
#include "tensor/half.h"

namespace ibid {
namespace {

constexpr int kSuperLen = 256;

// What errors of a block's elements count by; null without an importance.
struct Weights {
  Weights(const float* x, const float* importance, int n) : has(importance != nullptr) {
    if (!has) return;
    float squares = 0.0f;
    for (int i = 0; i < n; ++i) squares += x[i] * x[i];
    const float twice_mean = 2.0f * squares / static_cast<float>(n);
    for (int i = 0; i < n; ++i) w[i] = importance[i] * std::sqrt(twice_mean + x[i] * x[i]);
  }
  const float* at(int i) const { return has ? w + i : nullptr; }
  bool has;
  float w[kSuperLen];
};

// The nearest whole number of [low, high], whatever the value (a conversion out of range is undefined).
int nearest(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  if (value >= static_cast<float>(high)) return high;
  return low + static_cast<int>(value - static_cast<float>(low) + 0.5f);
}
float reciprocal(float x) { return x == 0.0f ? 0.0f : 1.0f / x; }
float half_of(float x, uint16_t& half) {
  half = float_to_half(x);
  return half_to_float(half);
}

// scale * code - min, code in [0, max_code], scale and min not negative.
struct Affine {
  float scale = 0, min = 0;
};
// Least squares by turns: codes for a scale near (largest - least) / max_code, then the scale and min that fit these
// codes best; of 21 scales the one with the least error. Large weights count more: they carry the product.
// `weights` of each in the place of that; null: none.
Affine fit_affine(const float* x, int n, int max_code, const float* weights) {
  float low = 0.0f, high = x[0], squares = 0.0f;
  for (int i = 0; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    squares += x[i] * x[i];
  }
  if (high <= low) return {0.0f, -low};
  const float mean = std::sqrt(squares / static_cast<float>(n));
  Affine best = {(high - low) / static_cast<float>(max_code), -low};
  float best_error = INFINITY;
  for (int step = 0; step <= 20; ++step) {
    const float factor = (static_cast<float>(max_code) - 1.0f + 0.1f * static_cast<float>(step)) / (high - low);
    float code[32], w[32];
    float sum_w = 0, sum_x = 0, sum_c = 0, sum_cc = 0, sum_xc = 0;
    for (int i = 0; i < n; ++i) {
      w[i] = weights != nullptr ? weights[i] : mean + std::fabs(x[i]);
      code[i] = std::min((x[i] - low) * factor + 12582912.0f - 12582912.0f, static_cast<float>(max_code));  // rounded
      sum_w += w[i];
      sum_x += w[i] * x[i];
      sum_c += w[i] * code[i];
      sum_cc += w[i] * code[i] * code[i];
      sum_xc += w[i] * x[i] * code[i];
    }
    const float determinant = sum_w * sum_cc - sum_c * sum_c;
    if (!(determinant > 0.0f)) continue;
    Affine fit = {(sum_w * sum_xc - sum_x * sum_c) / determinant, (sum_c * sum_xc - sum_cc * sum_x) / determinant};
    if (fit.min < 0.0f) fit = {sum_xc / sum_cc, 0.0f};
    float error = 0;
    for (int i = 0; i < n; ++i) {
      const float d = fit.scale * code[i] - fit.min - x[i];
      error += w[i] * d * d;
    }
    if (fit.scale > 0.0f && error < best_error) {
      best = fit;
      best_error = error;
    }
  }
  return best;
}

// The scale (of any sign) with which scale * value(code) is nearest to x: the largest magnitude goes to one of 19
// places near the end of the codes' range, and least squares fit the scale to the codes that follow. value_of(x /
// scale) is the nearest value that has a code.
// Squares count by `weights`; null: by those of x.
template <typename ValueOf>
float fit_scale(const float* x, int n, float end, const float* weights, ValueOf value_of) {
  float largest = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  if (largest == 0.0f) return 0.0f;
  float best = largest / end, best_gain = -INFINITY;
  for (int step = -9; step <= 9; ++step) {
    const float factor = end * (1.0f + 0.1f * static_cast<float>(step) / std::fabs(end)) / largest;
    float sum_xv = 0, sum_vv = 0;
    for (int i = 0; i < n; ++i) {
      const float v = value_of(x[i] * factor), w = weights != nullptr ? weights[i] : x[i] * x[i];
      sum_xv += w * x[i] * v;
      sum_vv += w * v * v;
    }
    if (!(sum_vv > 0.0f)) continue;
    const float gain = sum_xv * sum_xv / sum_vv;  // by how much the error is less than that of zeros
    if (gain > best_gain) {
      best = sum_xv / sum_vv;
      best_gain = gain;
    }
  }
  return best;
}
float fit_symmetric(const float* x, int n, int half_range, const float* weights) {
  return fit_scale(x, n, static_cast<float>(-half_range), weights,
                   [half_range](float v) { return static_cast<float>(nearest(v, -half_range, half_range - 1)); });
}

int nearest_iq4(float value) {  // without a branch: its place among the middles between neighbours
  int code = 0;
  for (int i = 0; i < 15; ++i) code += 2.0f * value > static_cast<float>(kIQ4Values[i] + kIQ4Values[i + 1]) ? 1 : 0;
  return code;
}
float fit_iq4(const float* x, const float* weights) {
  return fit_scale(x, kBlockLen, -127.0f, weights,
                   [](float v) { return static_cast<float>(kIQ4Values[nearest_iq4(v)]); });
}

// The sub-blocks' scales as whole numbers of [-most, most) times one half: the largest magnitude becomes -most.
template <int kScales>
float whole_scales(const float (&scales)[kScales], int most, int (&whole)[kScales], uint16_t& half) {
  float largest = 0.0f;
  for (float s : scales) {
    if (std::fabs(s) > std::fabs(largest)) largest = s;
  }
  const float d = half_of(largest / static_cast<float>(-most), half);
  for (int s = 0; s < kScales; ++s) whole[s] = nearest(scales[s] * reciprocal(d), -most, most - 1);
  return d;
}

// Scales and mins of sub-blocks as whole numbers of [0, most] times two halves, and the codes that follow from these.
template <int kLen, typename Block>
void affine_super(const float* x, const float* importance, int max_code, int most, Block& b,
                  uint8_t (&scales)[kSuperLen / kLen], uint8_t (&mins)[kSuperLen / kLen], uint8_t (&codes)[kSuperLen]) {
  constexpr int kSubs = kSuperLen / kLen;
  const Weights weights(x, importance, kSuperLen);
  Affine fits[kSubs];
  float scale = 0, min = 0;
  for (int s = 0; s < kSubs; ++s) {
    fits[s] = fit_affine(x + s * kLen, kLen, max_code, weights.at(s * kLen));
    scale = std::max(scale, fits[s].scale);
    min = std::max(min, fits[s].min);
  }
  const float d = half_of(scale / static_cast<float>(most), b.scale);
  const float m = half_of(min / static_cast<float>(most), b.min);
  for (int s = 0; s < kSubs; ++s) {
    scales[s] = static_cast<uint8_t>(nearest(fits[s].scale * reciprocal(d), 0, most));
    mins[s] = static_cast<uint8_t>(nearest(fits[s].min * reciprocal(m), 0, most));
    const float factor = reciprocal(d * scales[s]), low = m * mins[s];
    for (int i = s * kLen; i < (s + 1) * kLen; ++i) {
      codes[i] = static_cast<uint8_t>(nearest((x[i] + low) * factor, 0, max_code));
    }
  }
}

// As unpack_k_scales reads them.
void pack_k_scales(const uint8_t (&scales)[8], const uint8_t (&mins)[8], uint8_t (&to)[12]) {
  for (int s = 0; s < 4; ++s) {
    to[s] = static_cast<uint8_t>(scales[s] | (scales[s + 4] >> 4) << 6);
    to[s + 4] = static_cast<uint8_t>(mins[s] | (mins[s + 4] >> 4) << 6);
    to[s + 8] = static_cast<uint8_t>((scales[s + 4] & 15) | (mins[s + 4] & 15) << 4);
  }
}
void pack_nibbles(const uint8_t* codes, uint8_t (&to)[128]) {
  for (int g = 0; g < 4; ++g) {
    for (int i = 0; i < 32; ++i) {
      to[32 * g + i] = static_cast<uint8_t>((codes[64 * g + i] & 15) | (codes[64 * g + 32 + i] & 15) << 4);
    }
  }
}
void pack_pairs(const uint8_t* codes, uint8_t (&to)[64]) {  // the low two bits
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 32; ++i) {
      int byte = 0;
      for (int j = 0; j < 4; ++j) byte |= (codes[128 * h + 32 * j + i] & 3) << (2 * j);
      to[32 * h + i] = static_cast<uint8_t>(byte);
    }
  }
}
void pack_bits(const uint8_t* codes, int bit, uint8_t (&to)[32]) {
  for (int i = 0; i < 32; ++i) {
    int byte = 0;
    for (int j = 0; j < 8; ++j) byte |= ((codes[32 * j + i] >> bit) & 1) << j;
    to[i] = static_cast<uint8_t>(byte);
  }
}
void pack_halves(const uint8_t* codes, uint8_t* to) {  // low half, high half of 32
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(codes[i] | codes[i + 16] << 4);
}

void quantise_block(const float* x, const float* importance, BlockQ2_K& b) {
  uint8_t scales[16], mins[16], codes[kSuperLen];
  affine_super<16>(x, importance, 3, 15, b, scales, mins, codes);
  for (int s = 0; s < 16; ++s) b.scales[s] = static_cast<uint8_t>(scales[s] | mins[s] << 4);
  pack_pairs(codes, b.codes);
}
void quantise_block(const float* x, const float* importance, BlockQ4_K& b) {
  uint8_t scales[8], mins[8], codes[kSuperLen];
  affine_super<32>(x, importance, 15, 63, b, scales, mins, codes);
  pack_k_scales(scales, mins, b.scales);
  pack_nibbles(codes, b.codes);
}
void quantise_block(const float* x, const float* importance, BlockQ5_K& b) {
  uint8_t scales[8], mins[8], codes[kSuperLen];
  affine_super<32>(x, importance, 31, 63, b, scales, mins, codes);
  pack_k_scales(scales, mins, b.scales);
  pack_nibbles(codes, b.codes);
  pack_bits(codes, 4, b.high);
}

// Codes of sub-blocks of 16 around `half_range`, by the whole scales that a format keeps.
void symmetric_super(const float* x, const float* importance, int half_range, int most, int (&whole)[16],
                     uint16_t& half, uint8_t (&codes)[kSuperLen]) {
  const Weights weights(x, importance, kSuperLen);
  float scales[16];
  for (int s = 0; s < 16; ++s) scales[s] = fit_symmetric(x + 16 * s, 16, half_range, weights.at(16 * s));
  const float d = whole_scales(scales, most, whole, half);
  for (int i = 0; i < kSuperLen; ++i) {
    const float factor = reciprocal(d * static_cast<float>(whole[i / 16]));
    codes[i] = static_cast<uint8_t>(nearest(x[i] * factor, -half_range, half_range - 1) + half_range);
  }
}
void quantise_block(const float* x, const float* importance, BlockQ3_K& b) {
  int whole[16];
  uint8_t codes[kSuperLen];
  symmetric_super(x, importance, 4, 32, whole, b.scale, codes);
  std::memset(b.scales, 0, sizeof b.scales);
  for (int s = 0; s < 16; ++s) {  // as unpack_q3_scale reads them
    const int bits = whole[s] + 32;
    b.scales[s % 8] = static_cast<uint8_t>(b.scales[s % 8] | (bits & 15) << (s < 8 ? 0 : 4));
    b.scales[8 + s % 4] = static_cast<uint8_t>(b.scales[8 + s % 4] | (bits >> 4) << (2 * (s / 4)));
  }
  pack_pairs(codes, b.codes);
  pack_bits(codes, 2, b.high);
}
void quantise_block(const float* x, const float* importance, BlockQ6_K& b) {
  int whole[16];
  uint8_t codes[kSuperLen];
  symmetric_super(x, importance, 32, 128, whole, b.scale, codes);
  for (int s = 0; s < 16; ++s) b.scales[s] = static_cast<int8_t>(whole[s]);
  uint8_t high[kSuperLen];
  for (int i = 0; i < kSuperLen; ++i) high[i] = static_cast<uint8_t>(codes[i] >> 4);
  pack_pairs(high, b.high);
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 64; ++i) {
      b.low[64 * h + i] = static_cast<uint8_t>((codes[128 * h + i] & 15) | (codes[128 * h + 64 + i] & 15) << 4);
    }
  }
}

void iq4_codes(const float* x, float scale, uint8_t* to) {
  const float factor = reciprocal(scale);
  uint8_t codes[kBlockLen];
  for (int i = 0; i < kBlockLen; ++i) codes[i] = static_cast<uint8_t>(nearest_iq4(x[i] * factor));
  pack_halves(codes, to);
}
void quantise_block(const float* x, const float* importance, BlockIQ4_NL& b) {
  const Weights weights(x, importance, kBlockLen);
  iq4_codes(x, half_of(fit_iq4(x, weights.at(0)), b.scale), b.codes);
}
void quantise_block(const float* x, const float* importance, BlockIQ4_XS& b) {
  const Weights weights(x, importance, kSuperLen);
  float scales[8];
  int whole[8];
  for (int s = 0; s < 8; ++s) scales[s] = fit_iq4(x + kBlockLen * s, weights.at(kBlockLen * s));
  const float d = whole_scales(scales, 32, whole, b.scale);
  b.scales_high = 0;
  std::memset(b.scales_low, 0, sizeof b.scales_low);
  for (int s = 0; s < 8; ++s) {  // as unpack_iq4_scale reads them
    const int bits = whole[s] + 32;
    b.scales_low[s / 2] = static_cast<uint8_t>(b.scales_low[s / 2] | (bits & 15) << (4 * (s % 2)));
    b.scales_high = static_cast<uint16_t>(b.scales_high | (bits >> 4) << (2 * s));
    iq4_codes(x + kBlockLen * s, d * static_cast<float>(whole[s]), b.codes + 16 * s);
  }
}

// As the Python package: the exponent is that of the largest magnitude, and each code the first of the nearest.
void quantise_block(const float* x, const float*, BlockMXFP4& b) {
  float largest = 0.0f;
  for (int i = 0; i < kBlockLen; ++i) largest = std::max(largest, std::fabs(x[i]));
  const auto exponent = largest > 0.0f ? std::floor(static_cast<float>(std::log2(static_cast<double>(largest)))) : -125;
  b.exponent = static_cast<uint8_t>(nearest(exponent + 125.0f, 0, 254));
  const float d = std::ldexp(1.0f, b.exponent - 128);
  uint8_t codes[kBlockLen];
  for (int i = 0; i < kBlockLen; ++i) {
    int best = 0;
    for (int c = 1; c < 16; ++c) {
      if (std::fabs(d * kMXFP4Values[c] - x[i]) < std::fabs(d * kMXFP4Values[best] - x[i])) best = c;
    }
    codes[i] = static_cast<uint8_t>(best);
  }
  pack_halves(codes, b.codes);
}

// Blocks of 32 with an importance.
void pack_fifth_bits(const uint8_t* codes, uint8_t (&to)[4]) {
  for (int i = 0; i < 4; ++i) to[i] = 0;
  for (int i = 0; i < kBlockLen; ++i) to[i / 8] = static_cast<uint8_t>(to[i / 8] | (codes[i] >> 4) << (i % 8));
}
void symmetric_codes(const float* x, const float* importance, int half_range, uint16_t& scale,
                     uint8_t (&codes)[kBlockLen]) {
  const Weights weights(x, importance, kBlockLen);
  const float factor = reciprocal(half_of(fit_symmetric(x, kBlockLen, half_range, weights.at(0)), scale));
  for (int i = 0; i < kBlockLen; ++i) {
    codes[i] = static_cast<uint8_t>(nearest(x[i] * factor, -half_range, half_range - 1) + half_range);
  }
}
void affine_codes(const float* x, const float* importance, int max_code, uint16_t& scale, uint16_t& min,
                  uint8_t (&codes)[kBlockLen]) {
  const Weights weights(x, importance, kBlockLen);
  const Affine fit = fit_affine(x, kBlockLen, max_code, weights.at(0));
  const float factor = reciprocal(half_of(fit.scale, scale)), low = half_of(-fit.min, min);
  for (int i = 0; i < kBlockLen; ++i) codes[i] = static_cast<uint8_t>(nearest((x[i] - low) * factor, 0, max_code));
}
template <typename Block>
void pack_low_bits(const uint8_t* codes, Block& b) {
  uint8_t low[kBlockLen];
  for (int i = 0; i < kBlockLen; ++i) low[i] = codes[i] & 15;
  pack_halves(low, b.codes);
}
void quantise_block(const float* x, const float* importance, BlockQ4_0& b) {
  uint8_t codes[kBlockLen];
  symmetric_codes(x, importance, 8, b.scale, codes);
  pack_low_bits(codes, b);
}
void quantise_block(const float* x, const float* importance, BlockQ5_0& b) {
  uint8_t codes[kBlockLen];
  symmetric_codes(x, importance, 16, b.scale, codes);
  pack_low_bits(codes, b);
  pack_fifth_bits(codes, b.high);
}
void quantise_block(const float* x, const float* importance, BlockQ4_1& b) {
  uint8_t codes[kBlockLen];
  affine_codes(x, importance, 15, b.scale, b.min, codes);
  pack_low_bits(codes, b);
}
void quantise_block(const float* x, const float* importance, BlockQ5_1& b) {
  uint8_t codes[kBlockLen];
  affine_codes(x, importance, 31, b.scale, b.min, codes);
  pack_low_bits(codes, b);
  pack_fifth_bits(codes, b.high);
}

template <typename Block>
void quantise_blocks(DType dtype, const float* src, void* dst, int64_t n, const float* importance) {
  const int len = traits(dtype).block_len;
  DCHECK(n % len == 0, "a row is a whole number of blocks");
  auto* bytes = static_cast<std::byte*>(dst);
  for (int64_t i = 0; i < n; i += len, bytes += sizeof(Block)) {
    Block block;
    quantise_block(src + i, importance != nullptr ? importance + i : nullptr, block);
    std::memcpy(bytes, &block, sizeof(Block));
  }
}

}  // namespace

void quantise_searched(DType dtype, const float* src, void* dst, int64_t n, const float* importance) {
  switch (dtype) {
    case DType::kQ4_0:
      return quantise_blocks<BlockQ4_0>(dtype, src, dst, n, importance);
    case DType::kQ4_1:
      return quantise_blocks<BlockQ4_1>(dtype, src, dst, n, importance);
    case DType::kQ5_0:
      return quantise_blocks<BlockQ5_0>(dtype, src, dst, n, importance);
    case DType::kQ5_1:
      return quantise_blocks<BlockQ5_1>(dtype, src, dst, n, importance);
    case DType::kQ2_K:
      return quantise_blocks<BlockQ2_K>(dtype, src, dst, n, importance);
    case DType::kQ3_K:
      return quantise_blocks<BlockQ3_K>(dtype, src, dst, n, importance);
    case DType::kQ4_K:
      return quantise_blocks<BlockQ4_K>(dtype, src, dst, n, importance);
    case DType::kQ5_K:
      return quantise_blocks<BlockQ5_K>(dtype, src, dst, n, importance);
    case DType::kQ6_K:
      return quantise_blocks<BlockQ6_K>(dtype, src, dst, n, importance);
    case DType::kIQ4_NL:
      return quantise_blocks<BlockIQ4_NL>(dtype, src, dst, n, importance);
    case DType::kIQ4_XS:
      return quantise_blocks<BlockIQ4_XS>(dtype, src, dst, n, importance);
    case DType::kMXFP4:
      return quantise_blocks<BlockMXFP4>(dtype, src, dst, n, importance);
    default:
      CHECK(false, "this format cannot be made from floats; ask can_quantise first");
  }
}

}  // namespace ibid
