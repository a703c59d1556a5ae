// Logits of EAGLE heads and MTP layers against an independent Python implementation of the papers' formulas
// (tools/make_golden_eagle.py), EAGLE-1's also against its own program (tools/run_originals.py), from folders as
// published by the papers' programs and by those that train such heads; heads also from GGUF files of the same and from
// one with the names of llama.cpp's converter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"
#include "spec/heads/mtp_layer.h"
#include "temp_folder.h"
#include "tiny_eagle.h"
#include "tiny_files.h"

namespace ibid {
namespace {

using testing::kTinyEagleSizes;
using testing::LoadedModel;
using testing::PairsOfOne;

std::string golden(const std::string& name) { return source_dir() + "/tests/golden/" + name; }

std::string head_of(const std::string& name) {
  if (name == "eagle3_llamacpp") return golden(name + ".gguf");
  return golden(name.substr(0, name.find("_original")));
}

class EagleGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    file_ = MappedFile::open(golden(std::string(GetParam()) + ".safetensors")).value();
    ASSERT_TRUE(read_safetensors(file_, tensors_, copies_).ok());
    for (const TensorInfo& t : tensors_) golden_[t.name] = t.view;
    const std::string target = is_mtp() ? "mtp" : "smollm3";
    target_file_ = std::make_shared<ModelFile>(ModelFile::open(golden(target)).value());
    target_ = std::make_unique<LoadedModel>(target_file_);
  }
  bool is_mtp() const { return std::string_view(GetParam()) == "mtp"; }
  std::vector<TokenId> ids(const std::string& name) {
    std::vector<TokenId> out;
    for (int64_t i = 0; i < golden_[name].row_len(); ++i)
      out.push_back(TokenId{golden_[name].row_as<const int32_t>(0)[i]});
    return out;
  }
  static std::span<const float> values_of(const TensorView& x) {
    return {x.row_as<const float>(0), static_cast<size_t>(x.n_elements())};
  }
  // max|a - b| <= 1e-4 max|b|, rows `first` on.
  void compare(std::span<const float> said, const std::string& name, int64_t first, int64_t n) {
    const TensorView& want = golden_[name];
    ASSERT_EQ(std::ssize(said), n * want.row_len()) << name;
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < std::ssize(said); ++i) {
      const double b = want.row_as<const float>(first)[i];
      worst = std::fmax(worst, std::isfinite(said[static_cast<size_t>(i)])
                                   ? std::fabs(static_cast<double>(said[static_cast<size_t>(i)]) - b)
                                   : INFINITY);
      largest = std::fmax(largest, std::fabs(b));
    }
    EXPECT_LE(worst, 1e-4 * largest) << name;
  }
  void hold(std::shared_ptr<const ModelFile> file) {
    auto loaded = EagleHead::load(std::move(file), *target_->model, *target_->stream, kTinyEagleSizes);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EagleHead& head = **loaded;
    PairsOfOne pairs(head);
    const std::vector<TokenId> tokens = ids("tokens"), drafts = ids("drafts");
    const auto behind = std::span(tokens).subspan(1);
    // In pieces: the second one reads the first one's keys.
    const std::vector<int32_t> sizes = {7, 1, 16};
    int32_t at = 0;
    EagleHead::PassResult said;
    for (const int32_t n : sizes) {
      std::vector<int32_t> rows(static_cast<size_t>(n));
      std::iota(rows.begin(), rows.end(), 0);
      for (const int32_t row : rows) {
        ASSERT_EQ(golden_["features"].row_len(), head.feature_len());
        std::copy_n(golden_["features"].row_as<const float>(at + row), head.feature_len(),
                    head.features().row_as<float>(row));
      }
      head.fuse(n);
      said = pairs.run(behind.subspan(static_cast<size_t>(at), static_cast<size_t>(n)), rows);
      compare(values_of(said.states), "states", at, n);
      compare(said.logits, "logits", at, n);
      at += n;
    }
    ASSERT_EQ(at, golden_["features"].dim[0]);
    for (size_t i = 0; i < drafts.size(); ++i) {
      const size_t n_outputs = static_cast<size_t>(golden_["logits"].row_len());
      const auto row = said.logits.last(n_outputs);
      const auto best = static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
      EXPECT_EQ(head.ids().empty() ? TokenId{best} : head.ids()[static_cast<size_t>(best)], drafts[i]);
      const int32_t first = 0, last = static_cast<int32_t>(said.states.n_rows()) - 1;
      head.load_states({&last, 1});
      said = pairs.run({&drafts[i], 1}, {&first, 1});
      compare(values_of(said.states), "draft_states", static_cast<int64_t>(i), 1);
      compare(said.logits, "draft_logits", static_cast<int64_t>(i), 1);
    }
  }

  MappedFile file_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  std::map<std::string, TensorView> golden_;
  std::shared_ptr<const ModelFile> target_file_;
  std::unique_ptr<LoadedModel> target_;
};

TEST_P(EagleGolden, PredictsWhatThePapersFormulasGive) {
  hold(is_mtp() ? mtp_layer_of(*target_file_).value()
                : std::make_shared<const ModelFile>(ModelFile::open(head_of(GetParam())).value()));
}

// As tools/pack_eagle.py writes it.
class EagleGoldenGguf : public EagleGolden {};
TEST_P(EagleGoldenGguf, GgufGivesTheSameStates) {
  const ModelFile folder = ModelFile::open(golden(GetParam())).value();
  const TempFolder temp;
  hold(std::make_shared<ModelFile>(ModelFile::open(testing::written_draft_file(temp, "eagle", folder)).value()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EagleGoldenGguf,
                         ::testing::Values("eagle1", "eagle3", "eagle3_speculators", "eagle3_fc_norm"),
                         [](const auto& param_info) { return std::string(param_info.param); });
INSTANTIATE_TEST_SUITE_P(Kinds, EagleGolden,
                         ::testing::Values("eagle1", "eagle1_original", "eagle3", "eagle3_speculators",
                                           "eagle3_fc_norm", "eagle3_llamacpp", "mtp"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace ibid
