// Every named intermediate of tiny models against the original Python implementation (tools/make_golden.py), from the
// folder that transformers wrote and from a GGUF of the same weights.
#include <gtest/gtest.h>

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

using testing::LoadedModel;

struct Golden {
  const char* folder;
  const char* suffix = "";
  int64_t context_len = 0;  // chooses longrope's factors
};

std::ostream& operator<<(std::ostream& out, const Golden& g) { return out << g.folder << g.suffix; }

struct GoldenFile {
  MappedFile file;
  std::vector<TensorInfo> tensors;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  std::vector<TokenId> tokens;
  std::map<std::string, TensorView> expected;
};

class ModelGolden : public ::testing::TestWithParam<Golden> {
 protected:
  static std::string folder() { return source_dir() + "/tests/golden/" + GetParam().folder; }

  void SetUp() override {
    Result<MappedFile> mapped = MappedFile::open(folder() + GetParam().suffix + ".safetensors");
    ASSERT_TRUE(mapped.ok()) << mapped.error().message;
    golden_.file = std::move(mapped).value();
    ASSERT_TRUE(read_safetensors(golden_.file, golden_.tensors, golden_.copies).ok());
    for (const TensorInfo& t : golden_.tensors) {
      if (t.name != "tokens") {
        golden_.expected[t.name] = t.view;
        continue;
      }
      for (int64_t i = 0; i < t.view.row_len(); ++i)
        golden_.tokens.push_back(TokenId{t.view.row_as<const int32_t>(0)[i]});
    }
    ASSERT_GE(golden_.tokens.size(), 24u);
  }

  // max|a - b| <= 1e-4 max|b| for every tensor of the golden file; each must come once.
  void compare(std::shared_ptr<const ModelFile> file) {
    LoadedModel m(std::move(file), {.context_len = GetParam().context_len, .step_tokens = 128, .max_rows = 128});
    ASSERT_NE(m.model, nullptr);
    const ModelConfig& config = m.model->config();
    const bool interleaved = !config.ropes.empty() && config.ropes[0].interleaved;
    std::set<std::string> seen;
    m.model->set_tap([&](std::string_view name, int layer, const TensorView& x) {
      const std::string key =
          layer < 0 ? std::string(name) : "layer." + std::to_string(layer) + "." + std::string(name);
      auto it = golden_.expected.find(key);
      ASSERT_NE(it, golden_.expected.end()) << key;
      EXPECT_TRUE(seen.insert(key).second) << key << " came twice";
      const TensorView& want = it->second;
      ASSERT_EQ(x.n_rows(), want.n_rows()) << key;
      ASSERT_EQ(x.row_len(), want.row_len()) << key;
      const bool permuted = interleaved && (name == "q" || name == "k");
      double worst = 0, largest = 0;
      for (int64_t r = 0; r < x.n_rows(); ++r) {
        for (int64_t i = 0; i < x.row_len(); ++i) {
          int64_t from = i;
          if (permuted) {  // halves (j, j + n) lie at (2 j, 2 j + 1)
            const int64_t D = config.layers.front().key_len, j = i % D, n = D / 2;
            from = i - j + (j < n ? 2 * j : 2 * (j - n) + 1);
          }
          const double a = x.row_as<const float>(r)[from], b = want.row_as<const float>(r)[i];
          worst = std::fmax(worst, std::isfinite(a) ? std::fabs(a - b) : INFINITY);
          largest = std::fmax(largest, std::fabs(b));
        }
      }
      EXPECT_LE(worst, 1e-4 * largest) << key;
    });
    m.logits(golden_.tokens, {.kv_dtype = DType::kF32});
    EXPECT_EQ(seen.size(), golden_.expected.size());
  }

  std::shared_ptr<const ModelFile> open() {
    Result<ModelFile> file = ModelFile::open(folder());
    EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
    return file ? std::make_shared<ModelFile>(std::move(file).value()) : nullptr;
  }

  GoldenFile golden_;
};

TEST_P(ModelGolden, EveryIntermediateOfTheFolderIsThatOfTransformers) {
  std::shared_ptr<const ModelFile> file = open();
  ASSERT_NE(file, nullptr);
  compare(file);
}

TEST_P(ModelGolden, EveryIntermediateOfTheGgufIsThatOfTransformers) {
  std::shared_ptr<const ModelFile> file = open();
  ASSERT_NE(file, nullptr);
  Result<ModelFile> gguf = testing::as_gguf(*file);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  compare(std::make_shared<ModelFile>(std::move(gguf).value()));
}

TEST_P(ModelGolden, EveryIntermediateOfTheReferenceOpsIsThatOfTransformers) {
  std::shared_ptr<const ModelFile> file = open();
  ASSERT_NE(file, nullptr);
  reference::select(true);
  compare(file);
  reference::select(false);
}

INSTANTIATE_TEST_SUITE_P(Architectures, ModelGolden,
                         ::testing::Values(Golden{"llama"}, Golden{"llama_tied"}, Golden{"llama3_rope"},
                                           Golden{"linear_rope"}, Golden{"mistral"}, Golden{"qwen2"}, Golden{"qwen3"},
                                           Golden{"yarn"}, Golden{"smollm3"}, Golden{"phi3"},
                                           Golden{"phi3_longrope", "_short", 32}, Golden{"phi3_longrope", "_long"},
                                           Golden{"gemma3"}),
                         [](const auto& test) { return std::string(test.param.folder) + test.param.suffix; });

}  // namespace
}  // namespace ibid
