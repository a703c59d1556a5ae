// Every named intermediate of tiny encoders against the original Python implementation (tools/make_golden_bert.py),
// from the folder that transformers wrote and from a GGUF of the same weights, with the kernels and with the reference
// ops.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "format/safetensors.h"
#include "kernels/reference/reference.h"
#include "model/testing/config_as_gguf.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"

namespace ibid {
namespace {

struct Expected {
  MappedFile file;
  std::vector<TensorInfo> tensors;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  std::vector<TokenId> tokens;
  std::vector<uint8_t> types;
  std::map<std::string, TensorView> of;

  explicit Expected(const std::string& path) {
    Result<MappedFile> mapped = MappedFile::open(path);
    EXPECT_TRUE(mapped.ok()) << mapped.error().message;
    if (!mapped) return;
    file = std::move(mapped).value();
    EXPECT_TRUE(read_safetensors(file, tensors, copies).ok());
    for (const TensorInfo& t : tensors) {
      const auto* ids = t.view.row_as<const int32_t>(0);
      for (int64_t i = 0; t.name == "tokens" && i < t.view.row_len(); ++i) tokens.push_back(TokenId{ids[i]});
      for (int64_t i = 0; t.name == "types" && i < t.view.row_len(); ++i) types.push_back(static_cast<uint8_t>(ids[i]));
      if (t.name != "tokens" && t.name != "types") of[t.name] = t.view;
    }
  }
};

std::string path_of(const std::string& name) { return source_dir() + "/tests/golden/" + name; }

std::shared_ptr<const ModelFile> open(const std::string& name) {
  Result<ModelFile> file = ModelFile::open(path_of(name));
  EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
  return file ? std::make_shared<ModelFile>(std::move(file).value()) : nullptr;
}

// max|a - b| <= 1e-4 max|b| for every tensor of the golden file; each must come once.
void compare(std::shared_ptr<const ModelFile> file, const std::string& name) {
  const Expected expected(path_of(name) + ".safetensors");
  testing::LoadedModel m(std::move(file), {.step_tokens = 96, .max_rows = 4, .max_sequences = 2});
  ASSERT_NE(m.model, nullptr);
  std::set<std::string> seen;
  m.model->set_tap([&](std::string_view part, int layer, const TensorView& x) {
    const std::string key = layer < 0 ? std::string(part) : "layer." + std::to_string(layer) + "." + std::string(part);
    const auto it = expected.of.find(key);
    ASSERT_NE(it, expected.of.end()) << key;
    EXPECT_TRUE(seen.insert(key).second) << key << " came twice";
    ASSERT_EQ(x.n_rows(), it->second.n_rows()) << key;
    ASSERT_EQ(x.row_len(), it->second.row_len()) << key;
    double worst = 0, largest = 0;
    for (int64_t r = 0; r < x.n_rows(); ++r) {
      for (int64_t i = 0; i < x.row_len(); ++i) {
        const double a = x.row_as<const float>(r)[i], b = it->second.row_as<const float>(r)[i];
        worst = std::fmax(worst, std::isfinite(a) ? std::fabs(a - b) : INFINITY);
        largest = std::fmax(largest, std::fabs(b));
      }
    }
    EXPECT_LE(worst, 1e-4 * largest) << key;
  });
  const auto n = static_cast<int32_t>(expected.tokens.size());
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < n; ++i) positions.push_back(i);
  const std::array<int32_t, 2> query_start = {0, n};
  const int32_t first = 0, n_rows = m.model->config().n_labels > 0;
  const ForwardBatch batch = {.n_tokens = n,
                              .n_sequences = 1,
                              .n_rows = n_rows,
                              .tokens = expected.tokens.data(),
                              .positions = positions.data(),
                              .query_start = query_start.data(),
                              .token_types = expected.types.data(),
                              .logit_rows = &first};
  std::vector<float> row(static_cast<size_t>(m.model->config().vocab_size));
  const TensorView logits(row.data(), DType::kF32, {1, std::ssize(row)});
  m.model->forward(*m.stream, batch, {}, logits.first_rows(n_rows));
  EXPECT_EQ(seen.size(), expected.of.size());
}

class Encoder : public ::testing::TestWithParam<const char*> {};

TEST_P(Encoder, OfTheFolderIsThatOfTransformers) { compare(open(GetParam()), GetParam()); }

TEST_P(Encoder, OfTheReferenceOpsIsThatOfTransformers) {
  reference::select(true);
  compare(open(GetParam()), GetParam());
  reference::select(false);
}

INSTANTIATE_TEST_SUITE_P(Bert, Encoder, ::testing::Values("bert", "bert_rank"));

// Of the one with the exact GELU: the format does not record which it was.
TEST(EncoderGolden, OfTheGgufIsThatOfTransformers) {
  const auto file = open("bert_rank");
  ASSERT_NE(file, nullptr);
  Result<ModelFile> gguf = testing::as_gguf(*file);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  compare(std::make_shared<ModelFile>(std::move(gguf).value()), "bert_rank");
}

}  // namespace
}  // namespace ibid
