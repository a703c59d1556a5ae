// Logits of Medusa's and Hydra's heads against an independent Python implementation of the papers' formulas
// (tools/make_golden_heads.py), and Medusa's against its own program (tools/run_originals.py): from folders as
// published by the papers' programs, and from GGUF files of the same under ibid's own names.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "format/safetensors.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"
#include "spec/heads/draft_heads.h"
#include "temp_folder.h"

namespace ibid {
namespace {

using testing::LoadedModel;

std::string golden(const std::string& name) { return source_dir() + "/tests/golden/" + name; }

std::string kind_of(const std::string& name) { return name.substr(0, name.find("_original")); }

class HeadsGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    read(std::string(GetParam()) + ".safetensors");
    target_ = std::make_unique<LoadedModel>(std::make_shared<ModelFile>(ModelFile::open(golden("smollm3")).value()));
  }
  void read(const std::string& name) {
    files_.push_back(MappedFile::open(golden(name)).value());
    std::vector<TensorInfo> tensors;
    ASSERT_TRUE(read_safetensors(files_.back(), tensors, copies_).ok());
    for (const TensorInfo& t : tensors) golden_[t.name] = t.view;
  }
  // max|a - b| <= 1e-4 max|b|, of each head.
  void hold(std::shared_ptr<const ModelFile> file) {
    auto loaded = DraftHeads::load(std::move(file), *target_->model, *target_->stream, 8);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    DraftHeads& heads = **loaded;
    const TensorView &hidden = golden_["hidden"], &tokens = golden_["tokens"], &logits = golden_["logits"];
    ASSERT_EQ(heads.n_heads(), logits.dim[0]);
    std::vector<int32_t> rows;
    for (int32_t row = 0; row < hidden.dim[0]; ++row) {
      rows.push_back(row);
      heads.set_hidden(row, {hidden.row_as<const float>(row), static_cast<size_t>(hidden.row_len())});
      for (int32_t i = 0; i < heads.n_heads(); ++i)
        heads.add_token(row, i, TokenId{tokens.row_as<const int32_t>(row)[i]});
    }
    const int64_t n = hidden.dim[0] * logits.row_len();
    for (int32_t i = 0; i < heads.n_heads(); ++i) {
      const std::span<const float> said = heads.run(i, rows);
      ASSERT_EQ(std::ssize(said), n);
      const float* want = logits.row_as<const float>(0) + i * n;
      double worst = 0, largest = 0;
      for (int64_t k = 0; k < n; ++k) {
        const double a = said[static_cast<size_t>(k)], b = want[k];
        worst = std::fmax(worst, std::isfinite(a) ? std::fabs(a - b) : INFINITY);
        largest = std::fmax(largest, std::fabs(b));
      }
      EXPECT_LE(worst, 1e-4 * largest) << "head " << i;
    }
  }

  std::vector<MappedFile> files_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  std::map<std::string, TensorView> golden_;
  std::unique_ptr<LoadedModel> target_;
};

TEST_P(HeadsGolden, PredictsWhatThePapersFormulasGive) {
  hold(std::make_shared<ModelFile>(ModelFile::open(golden(kind_of(GetParam()))).value()));
}

TEST_P(HeadsGolden, GgufGivesTheSameLogits) {
  const ModelFile folder = ModelFile::open(golden(kind_of(GetParam()))).value();
  GgufWriter writer;
  writer.set("general.architecture", kind_of(GetParam()));
  for (const TensorInfo& t : folder.tensors()) {
    std::string name = t.name;
    for (const auto& [theirs, ours] :
         std::map<std::string, std::string>{{R"(^(?:hydra_mlp\.)?(\d+)\.(\d+)\.linear\.)", "head.$1.blk.$2.linear."},
                                            {R"(^hydra_mlp\.(\d+)\.(\d+)\.res_connection\.)", "head.$1.blk.$2.skip."},
                                            {R"(^hydra_lm_head\.(\d+)\.)", "head.$1.output."},
                                            {R"(^(\d+)\.\d+\.weight$)", "head.$1.output.weight"}})
      name = std::regex_replace(name, std::regex(theirs), ours);
    EXPECT_TRUE(name.starts_with("head.")) << t.name;
    writer.add_tensor(name, t.view);
  }
  const TempFolder temp;
  ASSERT_TRUE(writer.write(temp.path("heads.gguf")).ok());
  hold(std::make_shared<ModelFile>(ModelFile::open(temp.path("heads.gguf")).value()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, HeadsGolden, ::testing::Values("medusa", "medusa_original", "hydra"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace ibid
