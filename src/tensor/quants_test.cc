// Against the Python package `gguf`, and ggml for what it lacks: testdata/quants.txt, made by
// tools/make_dequant_goldens.py, whose generator of inputs is repeated here.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "source_paths.h"
#include "tensor/dequantise.h"
#include "tensor/half.h"
#include "tensor/quantise.h"

namespace ibid {
namespace {

constexpr int kBlocks = 2048;

uint64_t splitmix64(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::vector<int> half_fields(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kTQ1_0:
      return {52};
    case DType::kTQ2_0:
      return {64};
    case DType::kMXFP4:
    case DType::kIQ1_M:
    case DType::kNVFP4:
      return {};
    default:
      return {0};
  }
}

std::vector<uint8_t> random_blocks(DType dtype, uint64_t seed) {
  constexpr uint16_t kSpecial[] = {0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF,
                                   0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x3C00, 0x8001};
  constexpr uint8_t kExponents[] = {0, 1, 2, 127, 254, 255};
  const DTypeTraits& t = traits(dtype);
  std::vector<uint8_t> out;
  if (t.block_len == 1) {
    for (int i = 0; i < 65536; ++i) out.insert(out.end(), {static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)});
    return out;
  }
  size_t n = static_cast<size_t>(t.block_bytes);
  for (size_t i = 0; i < kBlocks * n; ++i) out.push_back(static_cast<uint8_t>(splitmix64(seed, i) >> 56));
  for (size_t k = 1; k < kBlocks; k += 2) {
    uint8_t* block = out.data() + k * n;
    if (k % 8 == 3) std::memset(block, 0, n);
    if (k % 8 == 7) std::memset(block, 255, n);
    size_t divisor = 1;
    for (int at : half_fields(dtype)) {
      std::memcpy(block + at, &kSpecial[k / 2 / divisor % std::size(kSpecial)], 2);
      divisor *= std::size(kSpecial);
    }
    if (dtype == DType::kMXFP4) block[0] = kExponents[k / 2 % std::size(kExponents)];
  }
  return out;
}

std::vector<float> random_floats(uint64_t seed) {
  std::vector<float> out;
  for (uint64_t k = 0; k < kBlocks; ++k) {
    uint64_t first = splitmix64(seed, 32 * k);
    for (uint64_t i = 0; i < 32; ++i) {
      uint64_t r = splitmix64(seed, 32 * k + i);
      uint64_t kind = k % 8;
      uint64_t of_sign = kind == 1 || kind == 5 ? first : r;
      uint64_t of_rest = kind == 1 || kind == 4 ? first : r;
      uint32_t exponent = (kind == 2 ? 140 : kind == 3 ? 25 : 118) + static_cast<uint32_t>((of_rest >> 32) & 7);
      uint32_t bits = static_cast<uint32_t>(of_sign >> 63) << 31 | exponent << 23 | (of_rest & 0x7fffff);
      out.push_back(std::bit_cast<float>(kind == 0 ? 0 : bits));
    }
  }
  return out;
}

std::vector<uint32_t> dequantised_bits(DType dtype, const std::vector<uint8_t>& blocks) {
  const DTypeTraits& t = traits(dtype);
  size_t n = blocks.size() / static_cast<size_t>(t.block_bytes) * static_cast<size_t>(t.block_len);
  std::vector<float> values(n);
  dequantise_row(dtype, blocks.data(), values.data(), static_cast<int64_t>(n));
  std::vector<uint32_t> bits;
  for (float v : values) bits.push_back(std::isnan(v) ? 0x7fc00000 : std::bit_cast<uint32_t>(v));
  return bits;
}

std::string sha256_of(const auto& values) {
  return sha256_hex({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])});
}

template <typename T>
std::vector<T> from_hex(const std::string& hex) {
  std::vector<T> out;
  for (size_t i = 0; i < hex.size(); i += 2 * sizeof(T)) {
    out.push_back(static_cast<T>(std::stoul(hex.substr(i, 2 * sizeof(T)), nullptr, 16)));
  }
  return out;
}

struct Golden {
  std::string kind, first, second;
  DType dtype;
};

std::vector<Golden> goldens() {
  std::ifstream in(source_dir() + "/src/tensor/testdata/quants.txt");
  std::vector<Golden> out;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Golden g;
    std::string type;
    words >> g.kind >> type >> g.first >> g.second;
    g.dtype = dtype_from_name(type).value();
    out.push_back(g);
  }
  return out;
}

TEST(Dequantise, EqualsThePythonPackageOnRandomBlocksWithExtremeCodesAndScales) {
  std::set<DType> seen;
  for (const Golden& g : goldens()) {
    if (g.kind != "dequantise") continue;
    seen.insert(g.dtype);
    EXPECT_EQ(sha256_of(dequantised_bits(g.dtype, random_blocks(g.dtype, std::stoull(g.first)))), g.second)
        << traits(g.dtype).name;
  }
  EXPECT_EQ(seen.size(), 27u) << "every format of GGUF files that is not F32";
}

TEST(Dequantise, EqualsThePythonPackageOnTheBlocksWrittenOut) {
  int n = 0;
  for (const Golden& g : goldens()) {
    if (g.kind != "block") continue;
    ++n;
    EXPECT_EQ(dequantised_bits(g.dtype, from_hex<uint8_t>(g.first)), from_hex<uint32_t>(g.second))
        << traits(g.dtype).name;
  }
  EXPECT_EQ(n, 7);
}

TEST(Quantise, EqualsThePythonPackageOnZeroHugeTinyAndTiedBlocks) {
  int n = 0;
  for (const Golden& g : goldens()) {
    if (g.kind != "quantise") continue;
    ++n;
    std::vector<float> values = random_floats(std::stoull(g.first));
    std::vector<uint8_t> packed(static_cast<size_t>(row_bytes(g.dtype, static_cast<int64_t>(values.size()))));
    quantise_row(g.dtype, values.data(), packed.data(), static_cast<int64_t>(values.size()));
    EXPECT_EQ(sha256_of(packed), g.second) << traits(g.dtype).name;
  }
  EXPECT_EQ(n, 8);
}

// The root of the mean square of errors over that of the values, of normal numbers.
double relative_error(DType dtype, const std::vector<float>& x) {
  std::vector<uint8_t> packed(static_cast<size_t>(row_bytes(dtype, static_cast<int64_t>(x.size()))));
  quantise_row(dtype, x.data(), packed.data(), static_cast<int64_t>(x.size()));
  std::vector<float> back(x.size());
  dequantise_row(dtype, packed.data(), back.data(), static_cast<int64_t>(x.size()));
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(back[i] - x[i], 2);
    size += std::pow(x[i], 2);
  }
  return std::sqrt(error / size);
}

// By ggml_quantize_chunk of xllamacpp 2026.10.11549.
TEST(Quantise, FormatsWithoutASearchEqualGgmls) {
  std::mt19937 random(11);
  std::vector<float> x(256 * 32);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = (static_cast<float>(random() >> 8) - 8388608.0f) * 0x1p-23f * 0.01f * static_cast<float>(1 + i / 64 % 7);
  }
  const std::pair<DType, const char*> digests[] = {
      {DType::kTQ1_0, "5c3fc408b28551829a3bf91e4a6a30f8f03afe4bcba7ad2f954998651c73ec64"},
      {DType::kTQ2_0, "c33e4339ffb1e81ad25b26ad2f9d9c588aabebd6d91b96945a852c5fdc4cbd0a"},
      {DType::kNVFP4, "9996112269d501300bbfc2282ea58747da7b6a1aeaa2944e7ba49f6030d3585d"},
      {DType::kQ1_0, "3afccb5056fee026f88cc61a99857a613130a37f632af6ad79bbe749cc56362e"},
      {DType::kQ2_0, "de3e6c67844b71227dcab3061bfda611a44a2e1da018c73662fe381a7a6c0795"}};
  for (const auto& [dtype, digest] : digests) {
    std::vector<uint8_t> packed(static_cast<size_t>(row_bytes(dtype, static_cast<int64_t>(x.size()))));
    quantise_row(dtype, x.data(), packed.data(), static_cast<int64_t>(x.size()));
    EXPECT_EQ(sha256_of(packed), digest) << traits(dtype).name;
  }
}

TEST(Quantise, SearchedFormatsErrAsLittleAsTheirBitsAllow) {
  // What was measured, rounded up. A wrong place of a code or scale errs by 0.5 and more.
  const std::pair<DType, double> bounds[] = {{DType::kQ2_K, 0.32},    {DType::kQ3_K, 0.17},  {DType::kQ4_K, 0.082},
                                             {DType::kQ5_K, 0.042},   {DType::kQ6_K, 0.019}, {DType::kIQ4_NL, 0.086},
                                             {DType::kIQ4_XS, 0.088}, {DType::kMXFP4, 0.16}, {DType::kIQ2_XXS, 0.36},
                                             {DType::kIQ2_XS, 0.32},  {DType::kIQ2_S, 0.27}, {DType::kIQ3_XXS, 0.20},
                                             {DType::kIQ3_S, 0.15}};
  for (const auto& [dtype, bound] : bounds) {
    for (const float scale : {1.0f, 3e-3f, 2e4f}) {
      std::mt19937 random(7);
      std::normal_distribution<float> normal(0.0f, scale);
      std::vector<float> x(256 * 64);
      for (float& v : x) v = normal(random);
      const double error = relative_error(dtype, x);
      EXPECT_LT(error, bound) << traits(dtype).name << " of " << scale;
      EXPECT_GT(error, 0.7 * bound) << "a bound that is far from the measured error proves nothing: "
                                    << traits(dtype).name;
    }
  }
}

TEST(Quantise, SearchedFormatsKeepRepresentableValues) {
  for (const DType dtype :
       {DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
        DType::kMXFP4, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S}) {
    // The scales that are tried for a grid put the largest magnitude near its end, where not all points are.
    const double bound = dtype <= DType::kMXFP4 ? 0.02 : 0.35;
    EXPECT_LT(relative_error(dtype, std::vector<float>(256, -1.0f)), bound) << traits(dtype).name;
    const std::vector<float> zeros(256, 0.0f);
    std::vector<uint8_t> packed(static_cast<size_t>(row_bytes(dtype, 256)));
    quantise_row(dtype, zeros.data(), packed.data(), 256);
    std::vector<float> back(256, 1.0f);
    dequantise_row(dtype, packed.data(), back.data(), 256);
    EXPECT_EQ(back, zeros) << traits(dtype).name;
  }
}

TEST(Quantise, InfinitiesNansAndSubnormalsGiveSomeCodesAndNoTrap) {
  std::vector<float> bad(256, 1.0f);
  for (float value : {INFINITY, -INFINITY, NAN, 1e-45f, 3e38f, -3e38f}) {
    bad[7] = value;
    if (value == 1e-45f) bad.assign(256, value);
    for (int d = 0; d < kDTypeCount; ++d) {
      const auto dtype = static_cast<DType>(d);
      if (!can_quantise(dtype)) continue;
      std::vector<uint8_t> packed(static_cast<size_t>(row_bytes(dtype, 256)));
      quantise_row(dtype, bad.data(), packed.data(), 256);
    }
  }
}

TEST(Half, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (uint32_t h = 0; h < 65536; ++h) {
    auto half = static_cast<uint16_t>(h);
    float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), half);
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t h = 0; h + 1 < 0x7c00; ++h) {
    float low = half_to_float(static_cast<uint16_t>(h));
    float high = half_to_float(static_cast<uint16_t>(h + 1));
    float middle = low + (high - low) / 2;  // exact
    ASSERT_EQ(float_to_half(middle), h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), h);
    ASSERT_EQ(float_to_half(std::nextafter(middle, INFINITY)), h + 1);
    ASSERT_EQ(float_to_half(-middle), (h % 2 == 0 ? h : h + 1) | 0x8000);
  }
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
}

}  // namespace
}  // namespace ibid
