#include "model/linear_layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/ops.h"
#include "model/adapters.h"
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

// fl(fl(product + bias) + B (s (A x))), of the rows that have the adapter, and then the scale.
TEST_F(LinearLayer, AddsTheBiasThenTheAdapterOfEachRow) {
  Matrix m = matrix(stream_, DType::kQ8_0, 40, 1);
  Activation2d bias(1, 40);
  for (size_t i = 0; i < 40; ++i) bias.values[i] = 1e-3f * static_cast<float>(i) + 0.1f;
  m.linear.bias = TensorView(bias.values.data(), DType::kF32, {40});
  const std::vector<float> biased = alone(m.linear);
  const std::vector<AdapterSeat> seats = {
      {.name = "p", .pattern = "p.weight", .n_outputs = 40, .n_inputs = kInputs, .pieces = one_piece(kInputs)}};
  Adapter::Pair pair{.seat = 0, .rank = 3, .factor = 0.3};
  for (int64_t i = 0; i < 3 * kInputs; ++i) pair.a.push_back(static_cast<float>(i % 7) / 7 - 0.4f);
  for (int64_t i = 0; i < 3 * 40; ++i) pair.b.push_back(static_cast<float>(i % 11) / 11 - 0.4f);
  std::vector<float> term(kRows * 40);
  for (size_t t = 0; t < kRows; ++t) {
    float u[3];
    for (size_t i = 0; i < 3; ++i) {
      u[i] = 0;
      for (size_t k = 0; k < kInputs; ++k) u[i] = std::fma(x_.values[t * kInputs + k], pair.a[i * kInputs + k], u[i]);
      u[i] *= 0.3f;
    }
    for (size_t n = 0; n < 40; ++n) {
      float& sum = term[t * 40 + n];
      for (size_t i = 0; i < 3; ++i) sum = std::fma(u[i], pair.b[n * 3 + i], sum);
    }
  }
  const auto table = AdapterTable::create(stream_.memory(), AdapterTable::sizes_of(seats, 2, 4, 8, 8, 0)).value();
  const auto placed = table->place(Adapter::make(stream_, seats, {pair}, "a").value()).value();
  ASSERT_TRUE(stream_.reserve_workspace(AdapterTable::workspace_bytes(table->sizes(), seats)).ok());
  m.linear.seat = 0;
  m.linear.scale = 0.5f;
  // Two sequences of the five rows' eight tokens have it: rows of tokens 0, 1, 5 and 6.
  const std::vector<int32_t> starts = {0, 3, 5, 8}, adapters = {placed->slot, -1, placed->slot};
  ForwardBatch batch;
  batch.n_tokens = 8, batch.n_sequences = 3, batch.query_start = starts.data(), batch.adapters = adapters.data();
  tokens_ = {0, 1, 4, 5, 6};
  Activation2d out(kRows, 40);
  const TensorView view = out.view();
  const Linear* one = &m.linear;
  linear(stream_, {&batch, tokens_, table.get()}, {&view, 1}, x_.view(), {&one, 1});
  for (size_t i = 0; i < out.values.size(); ++i) {
    const bool has_one = i / 40 != 2;
    ASSERT_EQ(out.values[i], 0.5f * (has_one ? biased[i] + term[i] : biased[i])) << i;
  }
}

TEST_F(LinearLayer, APartOfAProductIsRefusedUntilRanksCanAddTheirs) {
  Matrix m = matrix(stream_, DType::kF32, 16, 1);
  m.linear.slice = {.cut = Cut::kInputs, .rank = 0, .n_ranks = 2};
  EXPECT_DEATH(alone(m.linear), "nothing adds the ranks' sums yet");
}

}  // namespace
}  // namespace ibid
