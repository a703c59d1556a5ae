#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "kernels/ops.h"
#include "parity/paged.h"

namespace ibid {
namespace {

// A stream of CUDA's kind over host memory: whatever ran on it would be a CPU body that took the memory of
// another device for its own.
Stream pretended_cuda() {
  static ThreadTeam host(1);
  return Stream(Device::kCuda, nullptr,
                {[](size_t bytes) { return static_cast<std::byte*>(std::malloc(bytes)); },
                 [](std::byte* p, size_t) { std::free(p); }},
                host);
}

TEST(CudaSeam, OpWithoutABodyForTheDeviceStopsWithAnError) {
  GTEST_FLAG_SET(death_test_style, "fast");
  Stream s = pretended_cuda();
  parity::Guarded a(2, 16), b(2, 16), c(2, 16), angles(2, 16), row(1, 16);
  const TensorView x = a.view(), y = b.view(), out = c.view(), cos_sin = angles.view();
  std::vector<float> values(16 * 16);
  ThreadTeam team(1);
  Stream cpu(team);
  const TensorView matrix(values.data(), DType::kF32, {16, 16});
  const Weight weight = prepare_weight(cpu, matrix);
  const std::vector<TokenId> tokens = {TokenId{0}, TokenId{1}};
  const std::vector<int32_t> two = {0, 1};
  const std::vector<double> frequency(8, 1.0);
  const ops::Rope rope = {.n_pairs = 8, .frequency = frequency.data()};
  parity::Paged cache({.heads = 1, .kv_heads = 1, .head_len = 16}, 1, 16);
  const int32_t query_start[] = {0, 2}, kv_len[] = {2}, block_start[] = {0, 1};
  const BlockId table[] = {BlockId{0}};
  const ForwardBatch batch = {.n_tokens = 2,
                              .n_sequences = 1,
                              .block_len = 16,
                              .positions = two.data(),
                              .slots = two.data(),
                              .query_start = query_start,
                              .kv_len = kv_len,
                              .block_start = block_start,
                              .block_table = table};
  EXPECT_DEATH(ops::embed(s, out, weight, tokens), "ops::embed has no body for CUDA; run the model on the CPU");
  EXPECT_DEATH(ops::rms_norm(s, out, x, row.vector(), 1e-5f), "ops::rms_norm has no body for CUDA");
  EXPECT_DEATH(ops::linear(s, {&out, 1}, x, std::array{&weight}), "ops::linear has no body for CUDA");
  const std::vector<Weight> experts = {weight};
  const std::array<std::span<const Weight>, 1> all = {experts};
  std::vector<int32_t> of_rows(2);
  int32_t first_row[] = {0, 2};
  const ExpertRows rows = {2, 1, 1, of_rows.data(), values.data(), of_rows.data(), of_rows.data(), first_row};
  EXPECT_DEATH(ops::linear_experts(s, {&out, 1}, x, ops::ExpertInput::kOfRow, rows, all),
               "ops::linear_experts has no body for CUDA");
  parity::Guarded of_one(2, 1);
  EXPECT_DEATH(ops::route(s, rows, of_one.view(), {}), "ops::route has no body for CUDA");
  EXPECT_DEATH(ops::add_experts(s, out, x, rows), "ops::add_experts has no body for CUDA");
  EXPECT_DEATH(ops::gate_rows(s, x, of_one.view()), "ops::gate_rows has no body for CUDA");
  EXPECT_DEATH(ops::add_rms_norm(s, out, x, y, row.vector(), 1e-5f), "ops::add_rms_norm has no body for CUDA");
  EXPECT_DEATH(ops::add_bias(s, x, row.vector()), "ops::add_bias has no body for CUDA");
  EXPECT_DEATH(ops::add(s, x, y), "ops::add has no body for CUDA");
  EXPECT_DEATH(ops::scale(s, x, 2.0f), "ops::scale has no body for CUDA");
  EXPECT_DEATH(ops::silu_mul(s, out, x, y), "ops::silu_mul has no body for CUDA");
  EXPECT_DEATH(ops::gelu_mul(s, out, x, y), "ops::gelu_mul has no body for CUDA");
  EXPECT_DEATH(ops::layer_norm(s, out, x, row.vector(), row.vector(), 1e-5f), "ops::layer_norm has no body for CUDA");
  EXPECT_DEATH(ops::gelu(s, out, x), "ops::gelu has no body for CUDA");
  EXPECT_DEATH(ops::gelu_tanh(s, out, x), "ops::gelu_tanh has no body for CUDA");
  EXPECT_DEATH(ops::tanh(s, out, x), "ops::tanh has no body for CUDA");
  EXPECT_DEATH(ops::rope_angles(s, cos_sin, rope, two), "ops::rope_angles has no body for CUDA");
  EXPECT_DEATH(ops::rope(s, x, 16, rope, cos_sin), "ops::rope has no body for CUDA");
  EXPECT_DEATH(ops::store_kv(s, cache.kv(), x, y, batch), "ops::store_kv has no body for CUDA");
  EXPECT_DEATH(ops::copy_slots(s, cache.kv(), two, two), "ops::copy_slots has no body for CUDA");
  EXPECT_DEATH(ops::copy_block(s, cache.kv(), BlockId{0}, BlockId{0}), "ops::copy_block has no body for CUDA");
  EXPECT_DEATH(ops::paged_attention(s, out, x, cache.kv(), batch, {}), "ops::paged_attention has no body for CUDA");
  EXPECT_DEATH(ops::gather_rows(s, out, x, two), "ops::gather_rows has no body for CUDA");
  EXPECT_DEATH(ops::copy_rows(s, out, two, x, two), "ops::copy_rows has no body for CUDA");
  EXPECT_DEATH(ops::soft_cap(s, x, 3.0f), "ops::soft_cap has no body for CUDA");
  EXPECT_DEATH(ops::log_softmax(s, out, x), "ops::log_softmax has no body for CUDA");
  EXPECT_DEATH(s.team(), "only a CPU stream has a thread team");
}

// What comes from a file is refused by a sentence, before anything is computed.
TEST(CudaSeam, AWeightWithoutAProductOnTheDeviceIsRefused) {
  const Stream s = pretended_cuda();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ6_K, DType::kMXFP4}) {
    const Status status = weight_supported(s, dtype);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "CUDA has no product for weights of type " + std::string(traits(dtype).name) +
                                          "; run the model on the CPU");
  }
}

}  // namespace
}  // namespace ibid
