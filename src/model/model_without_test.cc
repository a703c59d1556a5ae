// A model without some of its layers: what it computes is what the whole model computes where these layers add nothing.
#include <gtest/gtest.h>

#include <cstring>

#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;

constexpr ModelOptions kOptions = {.step_tokens = 16, .max_rows = 16};

// The same file, but that what the layers `skipped` add to the residual stream is nothing.
std::shared_ptr<const ModelFile> silenced(const ModelFile& file, const std::vector<int32_t>& skipped) {
  ModelFile::Parts parts;
  parts.container = file.container();
  parts.path = file.path();
  parts.tensors = file.tensors();
  parts.metadata = file.metadata();
  for (TensorInfo& t : parts.tensors) {
    for (const int32_t l : skipped) {
      const std::string layer = "blk." + std::to_string(l) + ".";
      const bool scales = t.name == layer + "layer_output_scale.weight";  // all that there is
      const bool adds = t.name.starts_with(layer + "attn_output.") || t.name.starts_with(layer + "ffn_down") ||
                        t.name == layer + "proj.weight" || t.name == layer + "shortconv.out_proj.weight" ||
                        t.name == layer + "ssm_out.weight";
      if (!adds && !scales) continue;
      parts.copies.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(t.bytes())));
      const float one = 1.0f;
      if (scales) std::memcpy(parts.copies.back().get(), &one, sizeof one);
      t.view.data = parts.copies.back().get();
    }
  }
  return std::make_shared<const ModelFile>(std::move(parts));
}

std::vector<float> logits_of(Model& model, Stream& stream, std::span<const TokenId> tokens) {
  OneSequence sequence(model, stream, {.kv_dtype = DType::kF32});
  std::vector<float> out;
  sequence.append(tokens, [&out](int64_t, const TensorView& rows) {
    const float* begin = rows.row_as<const float>(0);
    out.insert(out.end(), begin, begin + rows.n_elements());
  });
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Of every architecture, windows and layers without RoPE among them.
TEST(ModelWithoutLayers, ComputesWhatTheWholeOneDoesWhereTheyAddNothing) {
  for (const std::string_view architecture : testing::tiny_architectures()) {
    const auto file =
        testing::tiny_model_file({.architecture = architecture, .n_layers = 8, .context_len = 64, .window = 8});
    LoadedModel whole(file, kOptions);
    const auto tokens = testing::some_tokens(40, whole.model->config().vocab_size);
    const std::vector<float> all = logits_of(*whole.model, *whole.stream, tokens);
    for (const std::vector<int32_t>& skipped :
         std::vector<std::vector<int32_t>>{{0}, {7}, {3}, {1, 2, 5}, {0, 1, 2, 3, 5, 6, 7}, {2, 3, 4, 6, 7}}) {
      LoadedModel expected(silenced(*file, skipped), kOptions);
      auto part = model_without(*whole.model, skipped, kOptions, *whole.stream);
      if (!part.ok() && architecture == "gemma4") {
        EXPECT_NE(part.error().message.find("cannot be left out without it"), std::string::npos);
        continue;
      }
      ASSERT_TRUE(part.ok()) << part.error().message;
      EXPECT_EQ((*part)->kv_geometries().size(), 8 - skipped.size());
      const std::vector<float> said = logits_of(**part, *whole.stream, tokens);
      EXPECT_TRUE(same_bits(said, logits_of(*expected.model, *expected.stream, tokens))) << architecture;
      EXPECT_FALSE(same_bits(said, all)) << architecture;
      EXPECT_TRUE(same_bits(all, logits_of(*whole.model, *whole.stream, tokens))) << architecture;
    }
  }
}

TEST(ModelWithoutLayers, HoldsNoWeightsOfItsOwnAndOutlivesTheWholeOne) {
  // Gemma's norms are copies.
  for (const std::string_view architecture : {"llama", "gemma3"}) {
    auto whole = std::make_unique<LoadedModel>(
        testing::TinyModelOptions{.architecture = architecture, .dtype = DType::kQ8_0, .n_layers = 4});
    const auto tokens = testing::some_tokens(30, whole->model->config().vocab_size);
    const std::vector<int32_t> skipped = {2};
    auto part = model_without(*whole->model, skipped, kOptions, *whole->stream).value();
    EXPECT_EQ(part->memory().repacked_bytes + part->memory().mapped_bytes, 0);
    EXPECT_GT(part->memory().scratch_bytes, 0);
    const std::vector<float> before = logits_of(*part, *whole->stream, tokens);
    whole->model.reset();
    EXPECT_TRUE(same_bits(before, logits_of(*part, *whole->stream, tokens)));
  }
}

TEST(ModelWithoutLayers, LayersThatAreNotThereOrAllOfThemAreRefused) {
  LoadedModel whole(testing::TinyModelOptions{.n_layers = 4});
  for (const std::vector<int32_t>& skipped :
       std::vector<std::vector<int32_t>>{{4}, {-1}, {1, 1}, {2, 1}, {0, 1, 2, 3}, {0, 1, 2, 4}, {1'000'000'000}}) {
    const auto refused = model_without(*whole.model, skipped, kOptions, *whole.stream);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("layers 0 to 3"), std::string::npos) << refused.error().message;
  }
  LoadedModel encoder(testing::TinyModelOptions{.architecture = "bert"});
  const std::vector<int32_t> first = {0};
  const auto refused = model_without(*encoder.model, first, kOptions, *encoder.stream);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("bert"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace ibid
