// From the formats of files to the layouts of cpu/linear_table.h.
#include <cstring>

#include "base/check.h"
#include "kernels/linear.h"
#include "tensor/block_formats.h"
#include "tensor/half.h"

namespace ibid {
namespace {

using cpu::BlockLayout;
using cpu::kTileOutputs;

// One row's block of 32 weights, spread out: codes before their offset is taken away, and two groups' factors (one
// group: [0]) as bytes.
struct Spread {
  uint8_t codes[32];
  int scale[2] = {0, 0};
  int min[2] = {0, 0};
};

template <typename Block>
const Block* block_at(const std::byte* row, int64_t i) {
  return reinterpret_cast<const Block*>(row) + i;
}

void spread_q5(const uint8_t* low, const uint8_t* high, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, high, 4);
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t half = i < 16 ? low[i] & 15u : low[i - 16] >> 4;
    codes[i] = static_cast<uint8_t>(half | (bits >> i & 1) << 4);
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
    case DType::kQ5_0:
      spread_q5(block_at<BlockQ5_0>(row, b)->codes, block_at<BlockQ5_0>(row, b)->high, r.codes);
      break;
    case DType::kQ5_1:
      spread_q5(block_at<BlockQ5_1>(row, b)->codes, block_at<BlockQ5_1>(row, b)->high, r.codes);
      break;
    case DType::kQ2_K: {
      const auto* q = block_at<BlockQ2_K>(row, super);
      spread_two_bits(q->codes, s, r.codes);
      for (int g = 0; g < 2; ++g) {
        r.scale[g] = q->scales[2 * s + g];  // and the min in its high half
      }
      break;
    }
    case DType::kQ3_K: {
      const auto* q = block_at<BlockQ3_K>(row, super);
      spread_two_bits(q->codes, s, r.codes);
      for (int i = 0; i < 32; ++i) {
        r.codes[i] = static_cast<uint8_t>(r.codes[i] | (q->high[i] >> s & 1) << 2);
      }
      for (int g = 0; g < 2; ++g) r.scale[g] = unpack_q3_scale(q->scales, 2 * s + g);
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
      r.scale[0] = scale;
      r.min[0] = min;
      break;
    }
    case DType::kQ6_K: {
      const auto* q = block_at<BlockQ6_K>(row, super);
      const int h = s / 4, quarter = s % 4;
      for (int i = 0; i < 32; ++i) {
        const int low = (q->low[64 * h + 32 * (quarter % 2) + i] >> (4 * (quarter / 2))) & 15;
        const int high = (q->high[32 * h + i] >> (2 * quarter)) & 3;
        r.codes[i] = static_cast<uint8_t>(low | high << 4);
      }
      for (int g = 0; g < 2; ++g) r.scale[g] = q->scales[2 * s + g];
      break;
    }
    case DType::kIQ4_XS: {
      const auto* q = block_at<BlockIQ4_XS>(row, super);
      for (int i = 0; i < 32; ++i) r.codes[i] = (q->codes[16 * s + i % 16] >> (4 * (i / 16))) & 15;
      r.scale[0] = unpack_iq4_scale(*q, s);
      break;
    }
    default:
      CHECK(false, "this dtype has a packer of its own");
  }
  return r;
}

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

// `to`: the first block's of all scales or mins, which are f16.
template <typename Block, typename Get>
void pack_halves(const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_blocks, int64_t stride_bytes,
                 std::byte* to, Get get) {
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (int o = 0; o < n; ++o) {
      const uint16_t half = get(*block_at<Block>(raw + o * raw_row_bytes, b));
      std::memcpy(to + b * stride_bytes + o * 2, &half, 2);
    }
  }
}
// Scales, and mins behind them, of formats that have f16 for every block of 32.
template <typename Block>
void pack_factors(const BlockLayout& l, const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_blocks,
                  std::byte* factors) {
  pack_halves<Block>(raw, raw_row_bytes, n, n_blocks, factor_bytes(l), factors, [](const auto& q) { return q.scale; });
  if constexpr (requires(Block q) { q.min; }) {
    pack_halves<Block>(raw, raw_row_bytes, n, n_blocks, factor_bytes(l), factors + kTileOutputs * 2,
                       [](const auto& q) { return q.min; });
  }
}
template <typename Block>
void pack_supers(const BlockLayout& l, const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_supers,
                 std::byte* supers) {
  pack_halves<Block>(raw, raw_row_bytes, n, n_supers, super_bytes(l), supers, [](const auto& q) { return q.scale; });
  if constexpr (requires(Block q) { q.min; }) {
    pack_halves<Block>(raw, raw_row_bytes, n, n_supers, super_bytes(l), supers + kTileOutputs * 2,
                       [](const auto& q) { return q.min; });
  }
}

// Bits [from, from + bits) of one output's 32 codes into a plane (cpu/linear_table.h).
void pack_plane(const uint8_t* codes, int from, int bits, int o, std::byte* plane) {
  uint32_t words[4] = {};
  for (int i = 0; i < 8; ++i) {
    uint32_t four;
    std::memcpy(&four, codes + 4 * i, 4);
    words[i % bits] |= (four >> from & ((1u << bits) - 1) * 0x01010101u) << (i / bits * bits);
  }
  for (int v = 0; v < bits; ++v) std::memcpy(plane + (v * kTileOutputs + o) * 4, &words[v], 4);
}

void pack_spread(DType dtype, const BlockLayout& l, const std::byte* raw, int64_t raw_row_bytes, int n,
                 int64_t n_blocks, std::byte* codes, std::byte* factors) {
  const int n_groups = 32 / l.group_len;
  const bool has_bytes = l.factors == cpu::Factors::kByte || l.factors == cpu::Factors::kNibble;
  for (int64_t b = 0; b < n_blocks; ++b, codes += code_bytes(l), factors += factor_bytes(l)) {
    for (int o = 0; o < n; ++o) {
      const Spread s = spread_block(dtype, raw + o * raw_row_bytes, b);
      pack_plane(s.codes, 0, l.low_bits, o, codes);
      if (l.high_bits != 0) pack_plane(s.codes, l.low_bits, l.high_bits, o, codes + l.low_bits * 64);
      for (int g = 0; has_bytes && g < n_groups; ++g) {
        factors[g * kTileOutputs + o] = static_cast<std::byte>(s.scale[g]);
        if (l.factors == cpu::Factors::kByte && l.has_min) {
          factors[(n_groups + g) * kTileOutputs + o] = static_cast<std::byte>(s.min[g]);
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

const BlockLayout& block_layout(DType dtype) {
  CHECK(dtype <= DType::kMXFP4, "matrices of integers and of doubles are not multiplied");
  return cpu::kBlockLayouts[static_cast<size_t>(dtype)];
}

int64_t packed_tile_bytes(DType dtype, int64_t n_inputs) {
  int64_t bytes = 0;
  switch (dtype) {
    case DType::kF32:
      bytes = n_inputs * kTileOutputs * 4;
      break;
    case DType::kF16:
      bytes = n_inputs * kTileOutputs * 2;
      break;
    case DType::kBF16:
      bytes = (n_inputs + 1) / 2 * kTileOutputs * 4;
      break;
    default: {
      const BlockLayout& l = block_layout(dtype);
      bytes = n_inputs / 32 * (code_bytes(l) + factor_bytes(l)) + n_inputs / 256 * super_bytes(l);
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
  const int64_t first = tile * kTileOutputs;
  const int n = static_cast<int>(n_outputs - first < kTileOutputs ? n_outputs - first : kTileOutputs);
  std::memset(to, 0, static_cast<size_t>(packed_tile_bytes(dtype, n_inputs)));
  raw += first * raw_row_bytes;
  const BlockLayout& l = block_layout(dtype);
  const int64_t n_blocks = n_inputs / 32, n_supers = n_inputs / 256;
  std::byte* factors = to + n_blocks * code_bytes(l);
  std::byte* supers = factors + n_blocks * factor_bytes(l);
  switch (dtype) {
    case DType::kF32:
      return pack_plain<uint32_t>(raw, raw_row_bytes, n, n_inputs, 1, to);
    case DType::kF16:
      return pack_plain<uint16_t>(raw, raw_row_bytes, n, n_inputs, 1, to);
    case DType::kBF16:
      return pack_plain<uint16_t>(raw, raw_row_bytes, n, n_inputs, 2, to);
    case DType::kQ4_0:
      pack_words<BlockQ4_0>(raw, raw_row_bytes, n, n_blocks, 0, to);
      return pack_factors<BlockQ4_0>(l, raw, raw_row_bytes, n, n_blocks, factors);
    case DType::kQ4_1:
      pack_words<BlockQ4_1>(raw, raw_row_bytes, n, n_blocks, 0, to);
      return pack_factors<BlockQ4_1>(l, raw, raw_row_bytes, n, n_blocks, factors);
    case DType::kQ8_0:
      pack_words<BlockQ8_0>(raw, raw_row_bytes, n, n_blocks, 0x80808080, to);
      return pack_factors<BlockQ8_0>(l, raw, raw_row_bytes, n, n_blocks, factors);
    case DType::kIQ4_NL:
      pack_words<BlockIQ4_NL>(raw, raw_row_bytes, n, n_blocks, 0, to);
      return pack_factors<BlockIQ4_NL>(l, raw, raw_row_bytes, n, n_blocks, factors);
    case DType::kMXFP4:
      for (int64_t b = 0; b < n_blocks; ++b) {
        for (int o = 0; o < n; ++o) {
          const auto* q = block_at<BlockMXFP4>(raw + o * raw_row_bytes, b);
          factors[b * kTileOutputs + o] = static_cast<std::byte>(q->exponent);
        }
      }
      return pack_words<BlockMXFP4>(raw, raw_row_bytes, n, n_blocks, 0, to);
    default:
      break;
  }
  pack_spread(dtype, l, raw, raw_row_bytes, n, n_blocks, to, factors);
  switch (dtype) {
    case DType::kQ5_0:
      return pack_factors<BlockQ5_0>(l, raw, raw_row_bytes, n, n_blocks, factors);
    case DType::kQ5_1:
      return pack_factors<BlockQ5_1>(l, raw, raw_row_bytes, n, n_blocks, factors);
    case DType::kQ2_K:
      return pack_supers<BlockQ2_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kQ3_K:
      return pack_supers<BlockQ3_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kQ4_K:
      return pack_supers<BlockQ4_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kQ5_K:
      return pack_supers<BlockQ5_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kQ6_K:
      return pack_supers<BlockQ6_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    default:
      return pack_supers<BlockIQ4_XS>(l, raw, raw_row_bytes, n, n_supers, supers);
  }
}

}  // namespace ibid
