#include "model/linear_layer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/ops.h"
#include "model/blocks.h"
#include "model/testing/tiny_model.h"

namespace ibid {
namespace {

constexpr int64_t kInputs = 64, kRows = 5;

// A matrix of small random numbers in the file's form, and the product made of it.
struct Matrix {
  std::vector<std::byte> bytes;
  Linear linear;
};

Matrix matrix(Stream& s, DType dtype, int64_t n_outputs, uint64_t seed) {
  // Some rows of a tiny model's embedding would do as well; any bytes of the dtype do.
  const auto file = testing::tiny_model_file({.dtype = dtype, .seed = seed, .vocab_size = 2 * n_outputs});
  const TensorView all = file->find("token_embd.weight")->view;
  Matrix m;
  const int64_t row = row_bytes(dtype, kInputs);
  for (int64_t n = 0; n < n_outputs; ++n) m.bytes.insert(m.bytes.end(), all.row(n), all.row(n) + row);
  m.linear.weight = prepare_weight(s, TensorView(m.bytes.data(), dtype, {n_outputs, kInputs}));
  return m;
}

struct Activation2d {
  Activation2d(int64_t rows, int64_t columns) : values(static_cast<size_t>(rows * columns)), n(columns) {}
  TensorView view() { return {values.data(), DType::kF32, {static_cast<int64_t>(values.size()) / n, n}}; }
  std::vector<float> values;
  int64_t n;
};

// Says which tokens it was asked about, and adds their numbers.
class AddsTokenNumbers final : public Adapter {
 public:
  void add(Stream&, const StepRows& rows, const TensorView& out, const TensorView& x) const override {
    EXPECT_EQ(static_cast<int64_t>(rows.tokens.size()), out.n_rows());
    EXPECT_EQ(x.n_rows(), out.n_rows());
    for (int64_t i = 0; i < out.n_rows(); ++i) {
      for (int64_t j = 0; j < out.row_len(); ++j) {
        out.row_as<float>(i)[j] += static_cast<float>(rows.tokens[static_cast<size_t>(i)]);
      }
    }
  }
};

class LinearLayer : public ::testing::Test {
 protected:
  LinearLayer() {
    for (size_t i = 0; i < x_.values.size(); ++i) x_.values[i] = static_cast<float>((i * 37) % 101) / 50.0f - 1.0f;
    std::iota(tokens_.begin(), tokens_.end(), 0);
    EXPECT_TRUE(stream_.reserve_workspace(ops::linear_workspace_bytes(kRows, kInputs)).ok());
  }
  std::vector<float> alone(const Linear& l) {
    Activation2d out(kRows, l.weight.n_outputs);
    const Linear* one = &l;
    const TensorView view = out.view();
    linear(stream_, {nullptr, tokens_}, {&view, 1}, x_.view(), {&one, 1});
    return out.values;
  }

  ThreadTeam team_{1};
  Stream stream_{team_};
  Activation2d x_{kRows, kInputs};
  std::vector<int32_t> tokens_ = std::vector<int32_t>(kRows);
};

TEST_F(LinearLayer, ProductsOfOneInputAreThoseOfEachAlone) {
  Matrix a = matrix(stream_, DType::kQ4_0, 40, 1), b = matrix(stream_, DType::kBF16, 24, 2),
         c = matrix(stream_, DType::kF32, 17, 3);
  Activation2d out_a(kRows, 40), out_b(kRows, 24), out_c(kRows, 17);
  const TensorView out[] = {out_a.view(), out_b.view(), out_c.view()};
  const Linear* all[] = {&a.linear, &b.linear, &c.linear};
  linear(stream_, {nullptr, tokens_}, out, x_.view(), all);
  EXPECT_EQ(out_a.values, alone(a.linear));
  EXPECT_EQ(out_b.values, alone(b.linear));
  EXPECT_EQ(out_c.values, alone(c.linear));
}

// fl(fl(product + bias) + adapter), and an adapter learns which token each row is.
TEST_F(LinearLayer, AddsTheBiasThenTheAdapter) {
  Matrix m = matrix(stream_, DType::kQ8_0, 40, 1);
  const std::vector<float> product = alone(m.linear);
  Activation2d bias(1, 40);
  for (size_t i = 0; i < 40; ++i) bias.values[i] = 1e-3f * static_cast<float>(i) + 0.1f;
  m.linear.bias = TensorView(bias.values.data(), DType::kF32, {40});
  const std::vector<float> biased = alone(m.linear);
  tokens_ = {2, 3, 5, 7, 11};
  const AddsTokenNumbers adapter;
  m.linear.adapter = &adapter;
  const std::vector<float> adapted = alone(m.linear);
  for (size_t i = 0; i < product.size(); ++i) {
    ASSERT_EQ(biased[i], product[i] + bias.values[i % 40]);
    ASSERT_EQ(adapted[i], biased[i] + static_cast<float>(tokens_[i / 40]));
  }
}

TEST_F(LinearLayer, APartOfAProductIsRefusedUntilRanksCanAddTheirs) {
  Matrix m = matrix(stream_, DType::kF32, 16, 1);
  m.linear.slice = {.cut = Cut::kInputs, .rank = 0, .n_ranks = 2};
  EXPECT_DEATH(alone(m.linear), "nothing adds the ranks' sums yet");
}

}  // namespace
}  // namespace ibid
