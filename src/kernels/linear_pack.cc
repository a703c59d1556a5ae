// From the formats of files to the layouts of cpu/linear_table.h.
#include <cstring>

#include "base/check.h"
#include "kernels/linear.h"
#include "tensor/block_formats.h"
#include "tensor/half.h"

namespace ibid {
namespace {

using cpu::kTileOutputs;
using cpu::PackedFormat;

struct FormatTraits {
  int code_bits;  // 0: not a block format
  int group_len;
  int scale_bytes;  // 2: f16, 4: f32
  bool has_min;
};

FormatTraits format_traits(PackedFormat format) {
  switch (format) {
    case PackedFormat::kNibble:
      return {4, 32, 2, false};
    case PackedFormat::kNibbleMin:
      return {4, 32, 2, true};
    case PackedFormat::kNibbleMinWide:
      return {4, 32, 4, true};
    case PackedFormat::kNibbleTable:
      return {4, 32, 4, false};
    case PackedFormat::kByte:
      return {8, 32, 2, false};
    case PackedFormat::kByteMin:
      return {8, 32, 2, true};
    case PackedFormat::kByteMinWide:
      return {8, 32, 4, true};
    case PackedFormat::kByte16Wide:
      return {8, 16, 4, false};
    case PackedFormat::kByteMin16Wide:
      return {8, 16, 4, true};
    default:
      return {0, 1, 0, false};
  }
}

// One row's block of 32 weights, spread out: codes as they are packed, and two groups' scales and mins (one group:
// [0]).
struct Spread {
  uint8_t codes[32];
  float scale[2] = {0, 0};
  float min[2] = {0, 0};
};

template <typename Block>
const Block* block_at(const std::byte* row, int64_t i) {
  return reinterpret_cast<const Block*>(row) + i;
}

void spread_q5(const uint8_t* low, const uint8_t* high, uint8_t offset, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, high, 4);
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t half = i < 16 ? low[i] & 15u : low[i - 16] >> 4;
    codes[i] = static_cast<uint8_t>((half | ((bits >> i & 1) << 4)) + offset);
  }
}

// Codes [32 s, 32 s + 32) of a super-block that keeps two bits of each in BlockQ2_K's order.
void spread_two_bits(const uint8_t* codes, int s, uint8_t* to) {
  for (int i = 0; i < 32; ++i) to[i] = (codes[32 * (s / 4) + i] >> (2 * (s % 4))) & 3;
}

Spread spread_block(DType dtype, const std::byte* row, int64_t b) {
  Spread r;
  const int64_t super = b / 8;
  const int s = static_cast<int>(b % 8);
  switch (dtype) {
    case DType::kQ5_0: {
      const auto* q = block_at<BlockQ5_0>(row, b);
      spread_q5(q->codes, q->high, 128 - 16, r.codes);
      r.scale[0] = half_to_float(q->scale);
      break;
    }
    case DType::kQ5_1: {
      const auto* q = block_at<BlockQ5_1>(row, b);
      spread_q5(q->codes, q->high, 0, r.codes);
      r.scale[0] = half_to_float(q->scale);
      r.min[0] = half_to_float(q->min);
      break;
    }
    case DType::kQ2_K: {
      const auto* q = block_at<BlockQ2_K>(row, super);
      spread_two_bits(q->codes, s, r.codes);
      for (int g = 0; g < 2; ++g) {
        r.scale[g] = half_to_float(q->scale) * static_cast<float>(q->scales[2 * s + g] & 15);
        r.min[g] = -(half_to_float(q->min) * static_cast<float>(q->scales[2 * s + g] >> 4));
      }
      break;
    }
    case DType::kQ3_K: {
      const auto* q = block_at<BlockQ3_K>(row, super);
      spread_two_bits(q->codes, s, r.codes);
      for (int i = 0; i < 32; ++i) {
        r.codes[i] = static_cast<uint8_t>(r.codes[i] + ((q->high[i] >> s & 1) ? 128 : 128 - 4));
      }
      for (int g = 0; g < 2; ++g) {
        r.scale[g] = half_to_float(q->scale) * static_cast<float>(unpack_q3_scale(q->scales, 2 * s + g));
      }
      break;
    }
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const bool five = dtype == DType::kQ5_K;
      const auto* q4 = block_at<BlockQ4_K>(row, super);
      const auto* q5 = block_at<BlockQ5_K>(row, super);
      const uint8_t* codes = (five ? q5->codes : q4->codes) + 32 * (s / 2);
      for (int i = 0; i < 32; ++i) {
        const int high = five ? (q5->high[i] >> s & 1) << 4 : 0;
        r.codes[i] = static_cast<uint8_t>(((codes[i] >> (4 * (s % 2))) & 15) | high);
      }
      uint8_t scale, min;
      unpack_k_scales(five ? q5->scales : q4->scales, s, scale, min);
      r.scale[0] = half_to_float(five ? q5->scale : q4->scale) * static_cast<float>(scale);
      r.min[0] = -(half_to_float(five ? q5->min : q4->min) * static_cast<float>(min));
      break;
    }
    case DType::kQ6_K: {
      const auto* q = block_at<BlockQ6_K>(row, super);
      const int h = s / 4, quarter = s % 4;
      for (int i = 0; i < 32; ++i) {
        const int low = (q->low[64 * h + 32 * (quarter % 2) + i] >> (4 * (quarter / 2))) & 15;
        const int high = (q->high[32 * h + i] >> (2 * quarter)) & 3;
        r.codes[i] = static_cast<uint8_t>((low | high << 4) + 128 - 32);
      }
      for (int g = 0; g < 2; ++g) r.scale[g] = half_to_float(q->scale) * static_cast<float>(q->scales[2 * s + g]);
      break;
    }
    case DType::kIQ4_XS: {
      const auto* q = block_at<BlockIQ4_XS>(row, super);
      for (int i = 0; i < 32; ++i) r.codes[i] = (q->codes[16 * s + i % 16] >> (4 * (i / 16))) & 15;
      r.scale[0] = half_to_float(q->scale) * static_cast<float>(unpack_iq4_scale(*q, s));
      break;
    }
    default:
      CHECK(false, "this dtype has a packer of its own");
  }
  return r;
}

void put_f32(std::byte* to, float value) { std::memcpy(to, &value, 4); }

// Formats whose blocks of 32 already hold their codes in an order that words of four bytes can be taken from.
template <typename Block>
void pack_words(const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_blocks, uint32_t flip, std::byte* codes) {
  constexpr int kWords = sizeof(Block{}.codes) / 4;
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (int o = 0; o < n; ++o) {
      uint32_t words[kWords];
      std::memcpy(words, block_at<Block>(raw + o * raw_row_bytes, b)->codes, sizeof words);
      for (int v = 0; v < kWords; ++v) {
        words[v] ^= flip;
        std::memcpy(codes + ((b * kWords + v) * kTileOutputs + o) * 4, &words[v], 4);
      }
    }
  }
}

template <typename Block, typename Get>
void pack_halves(const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_blocks, std::byte* to, Get get) {
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (int o = 0; o < n; ++o) {
      const uint16_t half = get(*block_at<Block>(raw + o * raw_row_bytes, b));
      std::memcpy(to + (b * kTileOutputs + o) * 2, &half, 2);
    }
  }
}

void pack_spread(DType dtype, const FormatTraits& f, const std::byte* raw, int64_t raw_row_bytes, int n,
                 int64_t n_blocks, std::byte* codes, std::byte* scales, std::byte* mins) {
  const int n_groups = 32 / f.group_len;
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (int o = 0; o < n; ++o) {
      Spread s = spread_block(dtype, raw + o * raw_row_bytes, b);
      if (f.code_bits == 4) {
        for (int i = 0; i < 16; ++i) s.codes[i] = static_cast<uint8_t>(s.codes[i] | s.codes[i + 16] << 4);
      }
      const int n_words = f.code_bits;
      for (int v = 0; v < n_words; ++v) {
        std::memcpy(codes + ((b * n_words + v) * kTileOutputs + o) * 4, s.codes + 4 * v, 4);
      }
      for (int g = 0; g < n_groups; ++g) {
        const int64_t at = ((b * n_groups + g) * kTileOutputs + o) * f.scale_bytes;
        if (f.scale_bytes == 4) {
          put_f32(scales + at, s.scale[g]);
          if (f.has_min) put_f32(mins + at, s.min[g]);
        } else {
          const uint16_t scale = float_to_half(s.scale[g]), min = float_to_half(s.min[g]);
          std::memcpy(scales + at, &scale, 2);
          if (f.has_min) std::memcpy(mins + at, &min, 2);
        }
      }
    }
  }
}

template <typename Element>
void pack_plain(const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_inputs, int per_lane, std::byte* to) {
  for (int o = 0; o < n; ++o) {
    const std::byte* row = raw + o * raw_row_bytes;
    for (int64_t k = 0; k < n_inputs; ++k) {
      const int64_t at = (k / per_lane * kTileOutputs + o) * per_lane + k % per_lane;
      std::memcpy(to + at * static_cast<int64_t>(sizeof(Element)), row + k * static_cast<int64_t>(sizeof(Element)),
                  sizeof(Element));
    }
  }
}

constexpr uint8_t biased(int value) { return static_cast<uint8_t>(value + 128); }

}  // namespace

PackedFormat packed_format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return PackedFormat::kF32;
    case DType::kF16:
      return PackedFormat::kF16;
    case DType::kBF16:
      return PackedFormat::kBF16;
    case DType::kQ4_0:
      return PackedFormat::kNibble;
    case DType::kQ4_1:
      return PackedFormat::kNibbleMin;
    case DType::kQ4_K:
      return PackedFormat::kNibbleMinWide;
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
      return PackedFormat::kNibbleTable;
    case DType::kQ5_0:
    case DType::kQ8_0:
      return PackedFormat::kByte;
    case DType::kQ5_1:
      return PackedFormat::kByteMin;
    case DType::kQ5_K:
      return PackedFormat::kByteMinWide;
    case DType::kQ3_K:
    case DType::kQ6_K:
      return PackedFormat::kByte16Wide;
    case DType::kQ2_K:
      return PackedFormat::kByteMin16Wide;
    default:
      CHECK(false, "matrices of integers and of doubles are not multiplied");
  }
}

int64_t packed_tile_bytes(PackedFormat format, int64_t n_inputs) {
  int64_t bytes = 0;
  switch (format) {
    case PackedFormat::kF32:
      bytes = n_inputs * kTileOutputs * 4;
      break;
    case PackedFormat::kF16:
      bytes = n_inputs * kTileOutputs * 2;
      break;
    case PackedFormat::kBF16:
      bytes = (n_inputs + 1) / 2 * kTileOutputs * 4;
      break;
    default: {
      const FormatTraits f = format_traits(format);
      const int64_t scales = n_inputs / f.group_len * kTileOutputs * f.scale_bytes;
      bytes = n_inputs * kTileOutputs * f.code_bits / 8 + scales * (f.has_min ? 2 : 1);
    }
  }
  return (bytes + 63) / 64 * 64;
}

const uint8_t* code_table(DType dtype) {
  static constexpr auto kTables = [] {
    struct {
      uint8_t iq4[16], mxfp4[16];
    } t{};
    for (int i = 0; i < 16; ++i) {
      t.iq4[i] = biased(kIQ4Values[i]);
      t.mxfp4[i] = biased(kMXFP4Values[i]);
    }
    return t;
  }();
  if (dtype == DType::kMXFP4) return kTables.mxfp4;
  return dtype == DType::kIQ4_NL || dtype == DType::kIQ4_XS ? kTables.iq4 : nullptr;
}

void pack_tile(DType dtype, const std::byte* raw, int64_t raw_row_bytes, int64_t n_outputs, int64_t n_inputs,
               int64_t tile, std::byte* to) {
  const PackedFormat format = packed_format(dtype);
  const int64_t first = tile * kTileOutputs;
  const int n = static_cast<int>(n_outputs - first < kTileOutputs ? n_outputs - first : kTileOutputs);
  std::memset(to, 0, static_cast<size_t>(packed_tile_bytes(format, n_inputs)));
  raw += first * raw_row_bytes;
  const FormatTraits f = format_traits(format);
  const int64_t n_blocks = n_inputs / 32;
  std::byte* scales = to + n_inputs * kTileOutputs * f.code_bits / 8;
  std::byte* mins = scales + n_inputs / f.group_len * kTileOutputs * f.scale_bytes;
  switch (dtype) {
    case DType::kF32:
      return pack_plain<uint32_t>(raw, raw_row_bytes, n, n_inputs, 1, to);
    case DType::kF16:
      return pack_plain<uint16_t>(raw, raw_row_bytes, n, n_inputs, 1, to);
    case DType::kBF16:
      return pack_plain<uint16_t>(raw, raw_row_bytes, n, n_inputs, 2, to);
    case DType::kQ4_0:
      pack_words<BlockQ4_0>(raw, raw_row_bytes, n, n_blocks, 0, to);
      return pack_halves<BlockQ4_0>(raw, raw_row_bytes, n, n_blocks, scales, [](const auto& q) { return q.scale; });
    case DType::kQ4_1:
      pack_words<BlockQ4_1>(raw, raw_row_bytes, n, n_blocks, 0, to);
      pack_halves<BlockQ4_1>(raw, raw_row_bytes, n, n_blocks, scales, [](const auto& q) { return q.scale; });
      return pack_halves<BlockQ4_1>(raw, raw_row_bytes, n, n_blocks, mins, [](const auto& q) { return q.min; });
    case DType::kQ8_0:
      pack_words<BlockQ8_0>(raw, raw_row_bytes, n, n_blocks, 0x80808080, to);
      return pack_halves<BlockQ8_0>(raw, raw_row_bytes, n, n_blocks, scales, [](const auto& q) { return q.scale; });
    case DType::kIQ4_NL:
    case DType::kMXFP4:
      for (int64_t b = 0; b < n_blocks; ++b) {
        for (int o = 0; o < n; ++o) {
          const std::byte* row = raw + o * raw_row_bytes;
          put_f32(scales + (b * kTileOutputs + o) * 4, dtype == DType::kMXFP4
                                                           ? mxfp4_scale(block_at<BlockMXFP4>(row, b)->exponent)
                                                           : half_to_float(block_at<BlockIQ4_NL>(row, b)->scale));
        }
      }
      return dtype == DType::kMXFP4 ? pack_words<BlockMXFP4>(raw, raw_row_bytes, n, n_blocks, 0, to)
                                    : pack_words<BlockIQ4_NL>(raw, raw_row_bytes, n, n_blocks, 0, to);
    default:
      return pack_spread(dtype, f, raw, raw_row_bytes, n, n_blocks, to, scales, mins);
  }
}

}  // namespace ibid
