// From the formats of files to the layouts of cpu/linear_table.h.
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "kernels/linear.h"
#include "tensor/block_formats.h"
#include "tensor/grid_formats.h"
#include "tensor/half.h"

namespace ibid {
namespace {

using cpu::BlockLayout;
using cpu::kTileOutputs;

template <typename Block>
const Block* block_at(const std::byte* row, int64_t i) {
  return reinterpret_cast<const Block*>(row) + i;
}

// Codes are taken eight at a time, a byte each, in the words of any processor: a load is bound by these few operations
// on it, and this file is compiled for none in particular.

// One row's block of 32 weights, spread out: codes before their offset is taken away, and two groups' factors (one
// group: [0]) as bytes.
struct Spread {
  uint64_t codes[4];
  int scale[2] = {0, 0};
  int min[2] = {0, 0};
};

void spread_q5(const uint8_t* low, const uint8_t* high, uint64_t* codes) {
  for (int w = 0; w < 4; ++w) {
    codes[w] = (eight_bytes(low + 8 * (w % 2)) >> (w / 2 * 4) & in_each_byte(15)) | spread_bits(high[w]) << 4;
  }
}

// Codes [32 s, 32 s + 32) of a super-block that keeps two bits of each in BlockQ2_K's order.
void spread_two_bits(const uint8_t* codes, int s, uint64_t* to) {
  for (int w = 0; w < 4; ++w) to[w] = eight_bytes(codes + 32 * (s / 4) + 8 * w) >> (2 * (s % 4)) & in_each_byte(3);
}

// The block of a format whose codes grid_formats.h unpacks.
template <DType kType>
struct GridBlockOf;
template <>
struct GridBlockOf<DType::kIQ1_S> {
  typedef BlockIQ1_S Type;
};
template <>
struct GridBlockOf<DType::kIQ1_M> {
  typedef BlockIQ1_M Type;
};
template <>
struct GridBlockOf<DType::kIQ2_XXS> {
  typedef BlockIQ2_XXS Type;
};
template <>
struct GridBlockOf<DType::kIQ2_XS> {
  typedef BlockIQ2_XS Type;
};
template <>
struct GridBlockOf<DType::kIQ2_S> {
  typedef BlockIQ2_S Type;
};
template <>
struct GridBlockOf<DType::kIQ3_XXS> {
  typedef BlockIQ3_XXS Type;
};
template <>
struct GridBlockOf<DType::kIQ3_S> {
  typedef BlockIQ3_S Type;
};
template <>
struct GridBlockOf<DType::kTQ1_0> {
  typedef BlockTQ1_0 Type;
};
template <>
struct GridBlockOf<DType::kTQ2_0> {
  typedef BlockTQ2_0 Type;
};
template <>
struct GridBlockOf<DType::kNVFP4> {
  typedef BlockNVFP4 Type;
};
template <>
struct GridBlockOf<DType::kQ1_0> {
  typedef BlockQ1_0 Type;
};
template <>
struct GridBlockOf<DType::kQ2_0> {
  typedef BlockQ2_0 Type;
};
template <DType kType>
concept HasGroups = requires {
  typename GridBlockOf<kType>::Type;
};

// Block s of a row's super-block; of formats without such, block `super` itself. `s` is known where it is unrolled, and
// with it what is shifted by how much.
template <DType kType>
Spread spread_block(const std::byte* row, int64_t super, int s) {
  Spread r;
  if constexpr (kType == DType::kQ5_0) {
    spread_q5(block_at<BlockQ5_0>(row, super)->codes, block_at<BlockQ5_0>(row, super)->high, r.codes);
  } else if constexpr (kType == DType::kQ5_1) {
    spread_q5(block_at<BlockQ5_1>(row, super)->codes, block_at<BlockQ5_1>(row, super)->high, r.codes);
  } else if constexpr (kType == DType::kQ2_K) {
    const auto* q = block_at<BlockQ2_K>(row, super);
    spread_two_bits(q->codes, s, r.codes);
    for (int g = 0; g < 2; ++g) r.scale[g] = q->scales[2 * s + g];  // and the min in its high half
  } else if constexpr (kType == DType::kQ3_K) {
    const auto* q = block_at<BlockQ3_K>(row, super);
    spread_two_bits(q->codes, s, r.codes);
    for (int w = 0; w < 4; ++w) r.codes[w] |= (eight_bytes(q->high + 8 * w) >> s & in_each_byte(1)) << 2;
    for (int g = 0; g < 2; ++g) r.scale[g] = unpack_q3_scale(q->scales, 2 * s + g);
  } else if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    const auto* q = block_at<std::conditional_t<kType == DType::kQ4_K, BlockQ4_K, BlockQ5_K>>(row, super);
    for (int w = 0; w < 4; ++w)
      r.codes[w] = eight_bytes(q->codes + 32 * (s / 2) + 8 * w) >> (4 * (s % 2)) & in_each_byte(15);
    if constexpr (kType == DType::kQ5_K) {
      for (int w = 0; w < 4; ++w) r.codes[w] |= (eight_bytes(q->high + 8 * w) >> s & in_each_byte(1)) << 4;
    }
    uint8_t scale, min;
    unpack_k_scales(q->scales, s, scale, min);
    r.scale[0] = scale;
    r.min[0] = min;
  } else if constexpr (kType == DType::kQ6_K) {
    const auto* q = block_at<BlockQ6_K>(row, super);
    const int h = s / 4, quarter = s % 4;
    for (int w = 0; w < 4; ++w) {
      const uint64_t low =
          eight_bytes(q->low + 64 * h + 32 * (quarter % 2) + 8 * w) >> (4 * (quarter / 2)) & in_each_byte(15);
      const uint64_t high = eight_bytes(q->high + 32 * h + 8 * w) >> (2 * quarter) & in_each_byte(3);
      r.codes[w] = low | high << 4;
    }
    for (int g = 0; g < 2; ++g) r.scale[g] = q->scales[2 * s + g];
  } else if constexpr (HasGroups<kType>) {
    unpack_group(*block_at<typename GridBlockOf<kType>::Type>(row, super), s, r.codes, r.scale);
  } else {
    static_assert(kType == DType::kIQ4_XS, "other types have packers of their own");
    const auto* q = block_at<BlockIQ4_XS>(row, super);
    for (int w = 0; w < 4; ++w)
      r.codes[w] = eight_bytes(q->codes + 16 * s + 8 * (w % 2)) >> (w / 2 * 4) & in_each_byte(15);
    r.scale[0] = unpack_iq4_scale(*q, s);
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
// Scales, and mins after them, of formats that have f16 for every block of 32.
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

// Scales of formats with f16 for each group where the file has them otherwise: get(block, group of 32, group in it).
template <typename Block, int kTogether, typename Get>
void pack_group_halves(const BlockLayout& l, const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_blocks,
                       std::byte* factors, Get get) {
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (int o = 0; o < n; ++o) {
      const Block& block = *block_at<Block>(raw + o * raw_row_bytes, b / kTogether);
      for (int g = 0; g < 32 / l.group_len; ++g) {
        const uint16_t half = get(block, static_cast<int>(b % kTogether), g);
        std::memcpy(factors + b * factor_bytes(l) + (g * kTileOutputs + o) * 2, &half, 2);
      }
    }
  }
}

// Bits [kFrom, kFrom + kBits) of one output's 32 codes into a plane (cpu/linear_table.h). Steps of four inputs that the
// same vector holds lie 4 kBits codes apart.
template <int kFrom, int kBits>
void pack_plane(const uint64_t* codes, int o, std::byte* plane) {
  constexpr uint64_t kMask = in_each_byte((1u << kBits) - 1);
  const auto bits = [codes](int w) { return codes[w] >> kFrom & kMask; };
  uint32_t words[kBits];
  if constexpr (kBits == 4) {
    const uint64_t both[2] = {bits(0) | bits(2) << 4, bits(1) | bits(3) << 4};
    std::memcpy(words, both, sizeof words);
  } else {
    static_assert(kBits == 1 || kBits == 2);
    const uint64_t sum = bits(0) | bits(1) << 2 | bits(2) << 4 | bits(3) << 6;
    if constexpr (kBits == 2) {
      std::memcpy(words, &sum, sizeof words);
    } else {
      words[0] = static_cast<uint32_t>(sum | sum >> 31);
    }
  }
  for (int v = 0; v < kBits; ++v) std::memcpy(plane + (v * kTileOutputs + o) * 4, &words[v], 4);
}

// Rows of a tile lie one after the other and are packed side by side, a block of each in turn: so many strands come
// from memory a line at a time. Looked through in order first, they come as fast as memory gives them, and stay near.
void bring_near(const std::byte* raw, int64_t bytes) {
  constexpr int64_t kLine = 64;
  unsigned sum = 0;
  for (int64_t at = 0; at < bytes; at += kLine) sum += static_cast<unsigned>(raw[at]);
  asm volatile("" ::"r"(sum));
}

// kTogether: of a row's blocks of 32 those that lie in one of the file's, packed one after the other: it is read while
// it is near.
template <DType kType, int kTogether = super_bytes(cpu::kBlockLayouts[static_cast<size_t>(kType)]) != 0 ? 8 : 1>
void pack_spread(const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_blocks, std::byte* codes,
                 std::byte* factors) {
  constexpr BlockLayout l = cpu::kBlockLayouts[static_cast<size_t>(kType)];
  constexpr int kGroups = 32 / l.group_len;
  constexpr bool kHasBytes = l.factors == cpu::Factors::kByte || l.factors == cpu::Factors::kNibble;
  bring_near(raw, n * raw_row_bytes);
  for (int64_t super = 0; super < n_blocks / kTogether; ++super) {
    for (int o = 0; o < n; ++o) {
#pragma GCC unroll 8
      for (int i = 0; i < kTogether; ++i) {
        const Spread s = spread_block<kType>(raw + o * raw_row_bytes, super, i);
        const int64_t b = super * kTogether + i;
        std::byte* const to = codes + b * code_bytes(l);
        pack_plane<0, l.low_bits>(s.codes, o, to);
        if constexpr (l.high_bits != 0) pack_plane<l.low_bits, l.high_bits>(s.codes, o, to + l.low_bits * 64);
        std::byte* const of_block = factors + b * factor_bytes(l);
        for (int g = 0; kHasBytes && g < kGroups; ++g) {
          of_block[g * kTileOutputs + o] = static_cast<std::byte>(s.scale[g]);
          if (l.factors == cpu::Factors::kByte && l.has_min) {
            of_block[(kGroups + g) * kTileOutputs + o] = static_cast<std::byte>(s.min[g]);
          }
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

// Formats of super-blocks by grids.
template <DType kType>
void pack_grid(const BlockLayout& l, const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_blocks,
               std::byte* codes, std::byte* factors, std::byte* supers) {
  typedef typename GridBlockOf<kType>::Type Block;
  pack_spread<kType>(raw, raw_row_bytes, n, n_blocks, codes, factors);
  pack_halves<Block>(raw, raw_row_bytes, n, n_blocks / 8, super_bytes(l), supers, [](const Block& q) {
    if constexpr (kType == DType::kIQ1_M) {
      return scale_of(q);
    } else {
      return q.scale;
    }
  });
}
// Formats of kTogether * 32 weights with one scale.
template <DType kType, int kTogether>
void pack_ternary(const BlockLayout& l, const std::byte* raw, int64_t raw_row_bytes, int n, int64_t n_blocks,
                  std::byte* codes, std::byte* factors) {
  typedef typename GridBlockOf<kType>::Type Block;
  pack_spread<kType, kTogether>(raw, raw_row_bytes, n, n_blocks, codes, factors);
  pack_group_halves<Block, kTogether>(l, raw, raw_row_bytes, n, n_blocks, factors,
                                      [](const Block& q, int, int) { return q.scale; });
}

constexpr uint8_t biased(int value) { return static_cast<uint8_t>(value + 128); }

}  // namespace

const BlockLayout& block_layout(DType dtype) {
  CHECK(dtype <= DType::kQ2_0, "matrices of integers and of doubles are not multiplied");
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
  struct Table {
    uint8_t of[16];
    constexpr explicit Table(const int8_t (&values)[16]) : of() {
      for (int i = 0; i < 16; ++i) of[i] = biased(values[i]);
    }
  };
  static constexpr Table kIQ4(kIQ4Values), kMXFP4(kMXFP4Values), kIQ1(kIQ1Values), kIQ2(kIQ2Values),
      kIQ3XXS(kIQ3XXSValues), kIQ3S(kIQ3SValues);
  switch (dtype) {
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return kIQ4.of;
    case DType::kMXFP4:
    case DType::kNVFP4:
      return kMXFP4.of;
    case DType::kIQ1_S:
    case DType::kIQ1_M:
      return kIQ1.of;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return kIQ2.of;
    case DType::kIQ3_XXS:
      return kIQ3XXS.of;
    case DType::kIQ3_S:
      return kIQ3S.of;
    default:
      return nullptr;
  }
}

void pack_tile(DType dtype, const std::byte* raw, int64_t raw_row_bytes, int64_t n_outputs, int64_t n_inputs,
               int64_t tile, std::byte* to) {
  const int64_t first = tile * kTileOutputs;
  const int n = static_cast<int>(n_outputs - first < kTileOutputs ? n_outputs - first : kTileOutputs);
  // Of a whole tile all is written but what fills its last line, and the second input of an odd last one.
  const auto n_bytes = static_cast<size_t>(packed_tile_bytes(dtype, n_inputs));
  const size_t n_whole = n < kTileOutputs || n_bytes < 64 ? 0 : n_bytes - 64;
  std::memset(to + n_whole, 0, n_bytes - n_whole);
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
    case DType::kQ5_0:
      pack_spread<DType::kQ5_0>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_factors<BlockQ5_0>(l, raw, raw_row_bytes, n, n_blocks, factors);
    case DType::kQ5_1:
      pack_spread<DType::kQ5_1>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_factors<BlockQ5_1>(l, raw, raw_row_bytes, n, n_blocks, factors);
    case DType::kQ2_K:
      pack_spread<DType::kQ2_K>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_supers<BlockQ2_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kQ3_K:
      pack_spread<DType::kQ3_K>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_supers<BlockQ3_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kQ4_K:
      pack_spread<DType::kQ4_K>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_supers<BlockQ4_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kQ5_K:
      pack_spread<DType::kQ5_K>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_supers<BlockQ5_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kQ6_K:
      pack_spread<DType::kQ6_K>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_supers<BlockQ6_K>(l, raw, raw_row_bytes, n, n_supers, supers);
    case DType::kIQ1_S:
      return pack_grid<DType::kIQ1_S>(l, raw, raw_row_bytes, n, n_blocks, to, factors, supers);
    case DType::kIQ1_M:
      return pack_grid<DType::kIQ1_M>(l, raw, raw_row_bytes, n, n_blocks, to, factors, supers);
    case DType::kIQ2_XXS:
      return pack_grid<DType::kIQ2_XXS>(l, raw, raw_row_bytes, n, n_blocks, to, factors, supers);
    case DType::kIQ2_XS:
      return pack_grid<DType::kIQ2_XS>(l, raw, raw_row_bytes, n, n_blocks, to, factors, supers);
    case DType::kIQ2_S:
      return pack_grid<DType::kIQ2_S>(l, raw, raw_row_bytes, n, n_blocks, to, factors, supers);
    case DType::kIQ3_XXS:
      return pack_grid<DType::kIQ3_XXS>(l, raw, raw_row_bytes, n, n_blocks, to, factors, supers);
    case DType::kIQ3_S:
      return pack_grid<DType::kIQ3_S>(l, raw, raw_row_bytes, n, n_blocks, to, factors, supers);
    case DType::kTQ1_0:
      return pack_ternary<DType::kTQ1_0, 8>(l, raw, raw_row_bytes, n, n_blocks, to, factors);
    case DType::kTQ2_0:
      return pack_ternary<DType::kTQ2_0, 8>(l, raw, raw_row_bytes, n, n_blocks, to, factors);
    case DType::kQ1_0:
      return pack_ternary<DType::kQ1_0, 4>(l, raw, raw_row_bytes, n, n_blocks, to, factors);
    case DType::kQ2_0:
      return pack_ternary<DType::kQ2_0, 2>(l, raw, raw_row_bytes, n, n_blocks, to, factors);
    case DType::kNVFP4:
      pack_spread<DType::kNVFP4, 2>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_group_halves<BlockNVFP4, 2>(
          l, raw, raw_row_bytes, n, n_blocks, factors,
          [](const BlockNVFP4& q, int s, int g) { return float_to_half(nvfp4_scale(q.scales[2 * s + g])); });
    default:
      CHECK(dtype == DType::kIQ4_XS, "each type that is multiplied has a packer");
      pack_spread<DType::kIQ4_XS>(raw, raw_row_bytes, n, n_blocks, to, factors);
      return pack_supers<BlockIQ4_XS>(l, raw, raw_row_bytes, n, n_supers, supers);
  }
}

}  // namespace ibid
