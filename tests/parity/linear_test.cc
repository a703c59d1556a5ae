#include <gtest/gtest.h>

#include "kernels/reference/linear.h"
#include "parity/linear_cases.h"
#include "parity/linear_contract.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

struct Shape {
  int64_t T, N, K;
};

// Odd and empty ones; K of one block and of many; rows around the edges of register tiles and of tasks.
std::vector<Shape> shapes(DType dtype) {
  const int64_t block = traits(dtype).block_len;
  if (block == 256) return {{1, 1, 256}, {3, 17, 512}, {0, 16, 256}, {7, 33, 1024}, {13, 48, 768}};
  if (block > 32) return {{1, 1, 128}, {3, 17, 384}, {0, 16, 128}, {7, 33, 1152}, {13, 48, 768}};
  if (block == 32)
    return {{1, 1, 32}, {0, 5, 64}, {1, 49, 576}, {5, 31, 96}, {6, 32, 608}, {100, 40, 32}, {29, 80, 1184}};
  return {{1, 1, 1}, {0, 3, 7}, {1, 65, 33}, {2, 16, 64}, {5, 33, 129}, {13, 47, 200}, {99, 20, 391}};
}

class Linear : public testing::TestWithParam<DType> {
 protected:
  void TearDown() override { ASSERT_TRUE(select_isa(supported_isas().back()).ok()); }
};

// The largest error that rounding alone explains: x's quantisation to 8 bits or bf16 aside (the reference gets the same
// rounded x), K fused multiply-adds of fp32, of which errors add up like a random walk.
double tolerance(double magnitude, int64_t K) { return magnitude * 4e-7 * std::sqrt(static_cast<double>(K)) + 1e-12; }

// x as the kernels see it: quantised in groups of 32, rounded to bf16, or as it is.
std::vector<float> as_seen_by(DType dtype, std::vector<float> x, int64_t K) {
  if (dtype == DType::kBF16) {
    for (float& v : x) v = bf16_to_float(float_to_bf16(v));
  }
  if (!is_quantised(dtype)) return x;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(K)) {
    for (size_t g = row; g < row + static_cast<size_t>(K); g += 32) {
      float amax = 0;
      for (size_t i = g; i < g + 32; ++i) amax = std::max(amax, std::fabs(x[i]));
      for (size_t i = g; i < g + 32; ++i) x[i] = std::nearbyint(x[i] * (127.0f / amax)) * (amax / 127.0f);
    }
  }
  return x;
}

TEST(Weight, OutlivesThoseThatItSharesMemoryWith) {
  std::mt19937 random(3);
  ThreadTeam team(1);
  Stream s(team);
  auto bytes = random_weight_bytes(DType::kQ4_1, 100, 576, random);
  const TensorView raw(bytes.data(), DType::kQ4_1, {100, 576});
  std::vector<Weight> weights(1200);  // more than one shared piece of memory holds
  for (Weight& w : weights) w = prepare_weight(s, raw);
  const auto packed = [](const Weight& w) { return std::span(w.packed, static_cast<size_t>(w.packed_bytes)); };
  const std::vector<std::byte> expected(packed(weights[0]).begin(), packed(weights[0]).end());
  const Weight kept[] = {weights[1], weights[600], weights[1199]};
  weights.clear();
  std::vector<Weight> others(1200);
  auto other_bytes = random_weight_bytes(DType::kQ4_1, 100, 576, random);
  for (Weight& w : others) w = prepare_weight(s, TensorView(other_bytes.data(), DType::kQ4_1, {100, 576}));
  for (const Weight& w : kept) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w.packed) % 64, 0u);
    EXPECT_TRUE(std::ranges::equal(packed(w), expected));
  }
}

TEST_P(Linear, IsTheReferenceUpToRounding) {
  const DType dtype = GetParam();
  std::mt19937 random(7);
  ThreadTeam team(2);
  Stream s(team);
  for (const auto& [T, N, K] : shapes(dtype)) {
    SCOPED_TRACE(testing::Message() << "T " << T << " N " << N << " K " << K);
    auto bytes = random_weight_bytes(dtype, N, K, random);
    const Weight w = prepare_weight(s, TensorView(bytes.data(), dtype, {N, K}));
    const auto file_bytes =
        static_cast<double>(bytes.size()) * static_cast<double>((N + 15) / 16 * 16) / static_cast<double>(N);
    EXPECT_GE(static_cast<double>(w.packed_bytes), static_cast<double>(bytes.size()));
    if (is_quantised(dtype) && K >= 512) {  // a tile is rounded up to a cache line
      EXPECT_LE(static_cast<double>(w.packed_bytes), (dtype > DType::kMXFP4 ? 2.25 : 1.05) * file_bytes);
    }
    auto x = random_activations(T, K, random);
    auto seen = as_seen_by(dtype, x, K);
    std::vector<double> want(static_cast<size_t>(T * N));
    std::vector<float> row(static_cast<size_t>(K));
    reference::linear(TensorView(want.data(), DType::kF64, {T, N}), TensorView(seen.data(), DType::kF32, {T, K}), w, 0,
                      N);
    GuardedOutput out(T, N);
    run_linear(s, out.view, TensorView(x.data(), DType::kF32, {T, K}), w);
    out.note();
    for (int64_t n = 0; n < N; ++n) {
      dequantise_row(dtype, w.raw.row(n), row.data(), K);
      for (int64_t t = 0; t < T; ++t) {
        double magnitude = 0;
        for (int64_t k = 0; k < K; ++k)
          magnitude += std::fabs(double{seen[static_cast<size_t>(t * K + k)]} * row[static_cast<size_t>(k)]);
        ASSERT_NEAR(out.view.row_as<float>(t)[n], want[static_cast<size_t>(t * N + n)], tolerance(magnitude, K))
            << "t " << t << " n " << n;
      }
    }
  }
}

TEST_P(Linear, GivesTheSameBitsForEveryIsaThreadCountAndRowCount) {
  const DType dtype = GetParam();
  std::mt19937 random(11);
  ThreadTeam one(1), three(3);
  Stream alone(one), shared(three);
  for (const auto& [T, N, K] : shapes(dtype)) {
    SCOPED_TRACE(testing::Message() << "T " << T << " N " << N << " K " << K);
    auto bytes = random_weight_bytes(dtype, N, K, random);
    const Weight w = prepare_weight(shared, TensorView(bytes.data(), dtype, {N, K}));
    auto x = random_activations(T, K + 3, random);
    TensorView x_view(x.data(), DType::kF32, {T, K});
    x_view.row_stride_bytes = (K + 3) * 4;
    GuardedOutput want(T, N);
    run_linear(alone, want.view, x_view, w);
    EXPECT_TRUE(want.guards_intact());
    for (Isa isa : supported_isas()) {
      SCOPED_TRACE(isa_name(isa));
      ASSERT_TRUE(select_isa(isa).ok());
      GuardedOutput together(T, N);
      run_linear(shared, together.view, x_view, w);
      EXPECT_TRUE(together.same_bits(want));
      for (int64_t rows : {1, 2, 3, 4, 5}) {  // cut into steps of so many rows
        if (rows > T) continue;
        GuardedOutput cut(T, N);
        for (int64_t t = 0; t < T; t += rows) {
          const int64_t n = std::min(rows, T - t);
          TensorView x_part = x_view, out_part = cut.view;
          x_part.data = x_view.row(t);
          out_part.data = cut.view.row(t);
          run_linear(alone, out_part.first_rows(n), x_part.first_rows(n), w);
        }
        EXPECT_TRUE(cut.same_bits(want)) << "in steps of " << rows << " rows";
      }
    }
    ASSERT_TRUE(select_isa(supported_isas().back()).ok());
  }
}

// Of every output, once: each path of few and many rows, and what the contract has.
TEST(LinearInputs, AScaleOfTheProductMultipliesItsSums) {
  std::mt19937 random(31);
  ThreadTeam team(2);
  Stream s(team);
  constexpr int64_t kN = 75, kK = 256;
  auto bytes = random_weight_bytes(DType::kNVFP4, kN, kK, random);
  Weight w = prepare_weight(s, TensorView(bytes.data(), DType::kNVFP4, {kN, kK}));
  w.out_scale = 0.3f;
  for (const int64_t T : {1, 40}) {
    auto x = random_activations(T, kK, random);
    GuardedOutput out(T, kN);
    run_linear(s, out.view, TensorView(x.data(), DType::kF32, {T, kK}), w);
    EXPECT_TRUE(out.guards_intact());
    const Contract contract(w);
    for (int64_t t = 0; t < T; ++t) {
      const ContractRow row(x.data() + t * kK, kK);
      for (int64_t n = 0; n < kN; ++n) ASSERT_EQ(out.view.row_as<float>(t)[n], contract.output(row, n));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryDType, Linear, testing::ValuesIn(kMatrixDTypes),
                         [](const auto& i) { return std::string(traits(i.param).name); });

// The largest codes beside the largest inputs of one sign: no sum of a block leaves the integers that an instruction
// set keeps it in.
TEST(LinearInputs, TheLargestCodesFitTheirSums) {
  std::mt19937 random(17);
  ThreadTeam team(1);
  Stream s(team);
  constexpr int64_t T = 33, N = 16, K = 256;
  std::vector<float> x(T * K);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i / K % 2 == 0 ? 1.0f : -1.0f;
  for (DType dtype : kMatrixDTypes) {
    if (!is_quantised(dtype)) continue;
    for (std::byte all : {std::byte{0xff}, std::byte{0x7f}, std::byte{0x00}}) {
      auto bytes = random_weight_bytes(dtype, N, K, random, all);
      const Weight w = prepare_weight(s, TensorView(bytes.data(), dtype, {N, K}));
      for (Isa isa : supported_isas()) {
        ASSERT_TRUE(select_isa(isa).ok());
        for (int64_t rows : {int64_t{1}, T}) {
          GuardedOutput out(rows, N);
          run_linear(s, out.view, TensorView(x.data(), DType::kF32, {rows, K}), w);
          out.note();
          for (int64_t t = 0; t < rows; ++t) {
            const ContractRow row(x.data() + t * K, K);
            for (int64_t n = 0; n < N; ++n) {
              ASSERT_EQ(out.view.row_as<float>(t)[n], Contract(w).output(row, n))
                  << traits(dtype).name << isa_name(isa);
            }
          }
        }
      }
    }
  }
  ASSERT_TRUE(select_isa(supported_isas().back()).ok());
}

// Sums that cancel, overflow, and end in subnormals, through every set's fma: the emulated one too.
TEST(LinearInputs, AnyFiniteFloatsGiveTheSameBitsOnEveryIsa) {
  std::mt19937 random(13);
  ThreadTeam team(1);
  Stream s(team);
  constexpr int64_t T = 40, N = 64, K = 5;
  for (uint32_t exponents : {0xffu, 0x0fu, 0x1fu, 0x3fu}) {  // any, near the smallest, ..., up to 1
    auto number = [&] {
      const uint32_t bits = (random() & 0x807fffff) | (random() & exponents) << 23;
      return std::bit_cast<float>((bits & 0x7f800000) == 0x7f800000 ? bits & 0xbfffffff : bits);
    };
    std::vector<float> w(N * K), x(T * K);
    for (float& v : w) v = number();
    for (float& v : x) v = exponents == 0xff ? number() : std::ldexp(static_cast<float>(random() % 4096) - 2048, -11);
    const Weight weight = prepare_weight(s, TensorView(w.data(), DType::kF32, {N, K}));
    for (Isa isa : supported_isas()) {
      ASSERT_TRUE(select_isa(isa).ok());
      GuardedOutput out(T, N);
      run_linear(s, out.view, TensorView(x.data(), DType::kF32, {T, K}), weight);
      out.note();
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t n = 0; n < N; ++n) {
          float want = 0;
          for (int64_t k = 0; k < K; ++k) {
            want = std::fma(x[static_cast<size_t>(t * K + k)], w[static_cast<size_t>(n * K + k)], want);
          }
          const float got = out.view.row_as<float>(t)[n];
          if (std::isnan(want) && std::isnan(got)) continue;
          ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << isa_name(isa) << " " << exponents;
        }
      }
    }
  }
  ASSERT_TRUE(select_isa(supported_isas().back()).ok());
}

TEST(LinearOfMany, WeightsOfDifferentDTypesShareOneInput) {
  std::mt19937 random(3);
  ThreadTeam team(2);
  Stream s(team);
  constexpr int64_t T = 9, K = 256;
  auto x = random_activations(T, K, random);
  const TensorView x_view(x.data(), DType::kF32, {T, K});
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Weight> weights;
  std::vector<GuardedOutput> together, apart;
  const DType dtypes[] = {DType::kQ4_1, DType::kF16, DType::kBF16, DType::kQ6_K};
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t N = 16 + 23 * i;
    bytes.push_back(random_weight_bytes(dtypes[i], N, K, random));
    weights.push_back(prepare_weight(s, TensorView(bytes.back().data(), dtypes[i], {N, K})));
    together.emplace_back(T, N);
    apart.emplace_back(T, N);
    run_linear(s, apart.back().view, x_view, weights.back());
  }
  std::vector<const Weight*> pointers;
  std::vector<TensorView> views;
  for (size_t i = 0; i < 4; ++i) {
    pointers.push_back(&weights[i]);
    views.push_back(together[i].view);
  }
  ops::linear(s, views, x_view, pointers);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(together[i].same_bits(apart[i])) << traits(dtypes[i]).name;
}

TEST(LinearInputs, ZerosTinyAndHugeRowsStayWithThemselves) {
  std::mt19937 random(5);
  ThreadTeam team(2);
  Stream s(team);
  constexpr int64_t K = 64, N = 20, T = 6;
  auto bytes = random_weight_bytes(DType::kQ8_0, N, K, random);
  const Weight w = prepare_weight(s, TensorView(bytes.data(), DType::kQ8_0, {N, K}));
  std::vector<float> x(T * K, 0.0f);
  for (size_t k = 0; k < K; ++k) {
    x[1 * K + k] = 1e-38f;  // below what is quantised: zeros
    x[2 * K + k] = 1e30f;
    x[4 * K + k] = 0.5f;
  }
  x[3 * K + 5] = std::nanf("");
  x[5 * K + 40] = INFINITY;
  for (Isa isa : supported_isas()) {
    ASSERT_TRUE(select_isa(isa).ok());
    GuardedOutput out(T, N);
    run_linear(s, out.view, TensorView(x.data(), DType::kF32, {T, K}), w);
    out.note();
    for (int64_t n = 0; n < N; ++n) {
      EXPECT_EQ(out.view.row_as<float>(0)[n], 0.0f);
      EXPECT_EQ(out.view.row_as<float>(1)[n], 0.0f);
      EXPECT_TRUE(std::isfinite(out.view.row_as<float>(2)[n]));
      EXPECT_TRUE(std::isnan(out.view.row_as<float>(3)[n])) << "a NaN must not pass for a number";
      EXPECT_TRUE(std::isfinite(out.view.row_as<float>(4)[n]));
      EXPECT_TRUE(std::isnan(out.view.row_as<float>(5)[n]));
    }
  }
}

}  // namespace
}  // namespace ibid
