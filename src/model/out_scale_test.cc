// Scales of products, which GGUF files keep beside matrices of NVFP4 (NAME.scale of NAME.weight).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "model/testing/loaded_model.h"
#include "model/testing/parts.h"

namespace ibid {
namespace {

using testing::LoadedModel;

void add_scales(ModelFile::Parts& parts, const std::string& name, const std::vector<float>& scales,
                DType dtype = DType::kF32) {
  auto copy = std::make_unique<std::byte[]>(scales.size() * sizeof(float));
  std::memcpy(copy.get(), scales.data(), scales.size() * sizeof(float));
  parts.tensors.push_back({name, TensorView(copy.get(), dtype, {static_cast<int64_t>(scales.size())})});
  parts.copies.push_back(std::move(copy));
}

std::vector<float> logits_of_scaled(ModelFile::Parts parts) {
  LoadedModel m(std::make_shared<ModelFile>(std::move(parts)));
  if (m.model == nullptr) return {};
  return m.logits(testing::some_tokens(20, m.model->config().vocab_size), {.kv_dtype = DType::kF32});
}

// A half is exact: that of `up` halves what `down` reads, and that of `down` its outputs.
TEST(OutScale, OfUpAndOfDownAreTheSame) {
  const auto parts = [] { return testing::tiny_parts({.architecture = "llama", .dtype = DType::kNVFP4}); };
  const std::vector<float> plain = logits_of_scaled(parts());
  ModelFile::Parts ones = parts(), up = parts(), down = parts();
  add_scales(ones, "blk.0.ffn_up.scale", {1.0f});
  add_scales(ones, "blk.0.ffn_up.input_scale", {0.125f});
  add_scales(up, "blk.0.ffn_up.scale", {0.5f});
  add_scales(down, "blk.0.ffn_down.scale", {0.5f});
  ASSERT_FALSE(plain.empty());
  EXPECT_EQ(logits_of_scaled(std::move(ones)), plain);
  const std::vector<float> halved = logits_of_scaled(std::move(up));
  EXPECT_NE(halved, plain);
  EXPECT_EQ(logits_of_scaled(std::move(down)), halved);
}

TEST(OutScale, OfExpertsIsOneForEach) {
  const auto parts = [] { return testing::tiny_parts({.architecture = "qwen2moe", .dtype = DType::kNVFP4}); };
  ModelFile::Parts up = parts(), down = parts(), first = parts();
  std::vector<float> scales(10, 1.0f);
  for (size_t e = 0; e < scales.size(); ++e) scales[e] = std::ldexp(1.0f, static_cast<int>(e % 3) - 1);
  add_scales(up, "blk.0.ffn_up_exps.scale", scales);
  add_scales(down, "blk.0.ffn_down_exps.scale", scales);
  add_scales(first, "blk.0.ffn_down_exps.scale", std::vector<float>(10, scales[0]));
  const std::vector<float> expected = logits_of_scaled(std::move(up));
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits_of_scaled(std::move(down)), expected);
  EXPECT_NE(logits_of_scaled(std::move(first)), expected);
}

TEST(OutScale, ThatIsNoneIsRefusedByASentence) {
  const auto error_of = [](const std::vector<float>& scales, DType dtype = DType::kF32) {
    ModelFile::Parts parts = testing::tiny_parts({.architecture = "llama", .dtype = DType::kNVFP4});
    add_scales(parts, "blk.1.attn_q.scale", scales, dtype);
    return testing::load_error(std::move(parts));
  };
  EXPECT_EQ(error_of({2.0f}), "");
  EXPECT_NE(error_of({1.0f, 1.0f}).find("blk.1.attn_q.scale"), std::string::npos);
  EXPECT_NE(error_of({INFINITY}).find("not finite"), std::string::npos);
  EXPECT_NE(error_of({NAN}).find("not finite"), std::string::npos);
  EXPECT_NE(error_of({1.0f}, DType::kI32).find("expected F32"), std::string::npos);
}

}  // namespace
}  // namespace ibid
