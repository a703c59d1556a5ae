// Vision towers and the models that read them against transformers (tools/make_golden_vision.py): each picture's rows,
// and the logits of a prompt with two pictures, from the folder and from GGUF files of the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "format/safetensors.h"
#include "kernels/batch_arrays.h"
#include "model/one_sequence.h"
#include "model/testing/config_as_gguf.h"
#include "model/testing/loaded_model.h"
#include "model/testing/tower_as_gguf.h"
#include "model/vision/prompt_pictures.h"
#include "model/vision/tower.h"
#include "source_paths.h"

namespace ibid {
namespace {

using testing::LoadedModel;

class VisionGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Result<MappedFile> mapped = MappedFile::open(folder() + ".safetensors");
    ASSERT_TRUE(mapped.ok()) << mapped.error().message;
    file_ = std::move(mapped).value();
    ASSERT_TRUE(read_safetensors(file_, tensors_, copies_).ok());
    for (const TensorInfo& t : tensors_) named_[t.name] = t.view;
    Result<ModelFile> opened = ModelFile::open(folder());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    model_ = std::make_shared<ModelFile>(std::move(opened).value());
  }

  static std::string folder() { return source_dir() + "/tests/golden/" + GetParam(); }
  std::span<const int32_t> ints(const std::string& name) const {
    const TensorView& v = named_.at(name);
    return {v.row_as<const int32_t>(0), static_cast<size_t>(v.n_elements())};
  }
  std::span<const float> floats(const std::string& name) const {
    const TensorView& v = named_.at(name);
    return {v.row_as<const float>(0), static_cast<size_t>(v.n_elements())};
  }
  size_t n_pictures() const { return ints("starts").size(); }

  static void expect_near(std::span<const float> got, std::span<const float> want, const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    double worst = 0, largest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      worst = std::fmax(worst, std::isfinite(got[i]) ? std::fabs(double{got[i]} - double{want[i]}) : INFINITY);
      largest = std::fmax(largest, std::fabs(double{want[i]}));
    }
    EXPECT_LE(worst, 1e-4 * largest) << what;
  }

  PictureRows rows_of(const Tower& tower, size_t i, Stream& stream, TowerPace pace = TowerPace::kBetweenSteps) const {
    const std::string n = std::to_string(i);
    const auto grid = ints("grid." + n);
    Result<PictureRows> rows = tower.rows_of(grid[0], grid[1], {});
    EXPECT_TRUE(rows.ok()) << (rows ? "" : rows.error().message);
    Result<std::unique_ptr<TowerRun>> run =
        tower.begin({.grid_rows = grid[0], .grid_columns = grid[1], .patches = floats("patches." + n)});
    EXPECT_TRUE(run.ok()) << (run ? "" : run.error().message);
    while (!(*run)->step(stream, pace)) {
    }
    rows->values = std::make_shared<const std::vector<float>>((*run)->take());
    return *std::move(rows);
  }

  void compare(const std::shared_ptr<const ModelFile>& text, const std::shared_ptr<const ModelFile>& of_tower) {
    LoadedModel m(text, {.step_tokens = 128, .max_rows = 128});
    ASSERT_NE(m.model, nullptr);
    Result<std::unique_ptr<Tower>> tower = Tower::load(of_tower, "golden", 256, *m.stream);
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    std::vector<PlacedPicture> pictures;
    for (size_t i = 0; i < n_pictures(); ++i) {
      auto rows = std::make_shared<PictureRows>(rows_of(**tower, i, *m.stream));
      expect_near(*rows->values, floats("rows." + std::to_string(i)), "picture " + std::to_string(i));
      pictures.push_back({.first = ints("starts")[i], .rows = rows});
    }
    const PromptPictures placed(std::move(pictures));
    std::vector<TokenId> tokens;
    for (const int32_t id : ints("tokens")) tokens.push_back(TokenId{id});
    const bool has_axes = !m.model->config().ropes.front().axes.empty();
    for (int32_t t = 0; has_axes && t < std::ssize(tokens); ++t) {
      const auto want = ints("positions").subspan(static_cast<size_t>(3 * t), 3);
      ASSERT_TRUE(std::ranges::equal(placed.axes(t), want)) << t;
    }
    expect_near(logits(m, placed, tokens), floats("logits"), "logits");
    const auto V = static_cast<size_t>(m.model->config().vocab_size);
    for (const int32_t next : ints("greedy")) {
      const std::vector<float> all = logits(m, placed, tokens);
      const auto last = std::span(all).last(V);
      ASSERT_EQ(std::ranges::max_element(last) - last.begin(), next) << tokens.size();
      tokens.push_back(TokenId{next});
    }
  }

  static std::vector<float> logits(LoadedModel& m, const PromptPictures& pictures, std::span<const TokenId> tokens) {
    OneSequence memory(*m.model, *m.stream, {.kv_dtype = DType::kF32});
    const int32_t block_len = memory.kv()[0].block_len;
    std::vector<BlockId> table;
    for (int32_t i = 0; i < memory.kv()[0].n_blocks; ++i) table.push_back(BlockId{i});
    BatchArrays arrays(block_len, {});
    const bool has_axes = !m.model->config().ropes.front().axes.empty();
    const auto n = static_cast<int32_t>(tokens.size());
    for (int32_t t = 0; t < n; ++t) {
      arrays.add(tokens[static_cast<size_t>(t)], t, slot_in(table, block_len, t));
      if (const float* row = pictures.input(t); row != nullptr) arrays.set_input(row);
      if (has_axes) arrays.set_axes(pictures.axes(t));
      if (m.model->config().sees_whole_pictures() && pictures.at(t) != nullptr) arrays.set_end(pictures.at(t)->end());
      arrays.want(t);
      if (memory.states().slot_bytes > 0) arrays.add_state_out(t + 1 < n ? -1 : 0);
    }
    if (memory.states().slot_bytes > 0) arrays.add_state_in(-1);
    arrays.add_blocks(table);
    arrays.end_sequence();
    const int64_t V = m.model->config().vocab_size;
    std::vector<float> out(static_cast<size_t>(n * V));
    m.model->forward(*m.stream, arrays.batch(), memory.kv(), TensorView(out.data(), DType::kF32, {n, V}), {},
                     memory.states());
    return out;
  }

  MappedFile file_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  std::map<std::string, TensorView> named_;
  std::shared_ptr<const ModelFile> model_;
};

TEST_P(VisionGolden, RowsAndLogitsOfTheFolderAreThoseOfTransformers) { compare(model_, model_); }

TEST_P(VisionGolden, LogitsOfTheGgufAreThoseOfTransformers) {
  Result<ModelFile> gguf = testing::as_gguf(*model_);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  compare(std::make_shared<ModelFile>(std::move(gguf).value()), model_);
}

// llama.cpp's names and layouts have the same numbers.
TEST_P(VisionGolden, AnMmprojFileGivesTheBitsOfTheFolder) {
  Result<ModelFile> gguf = testing::tower_as_gguf(*model_);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  ThreadTeam team(2);
  Stream stream(team);
  Result<std::unique_ptr<Tower>> of_folder = Tower::load(model_, "golden", 256, stream);
  Result<std::unique_ptr<Tower>> of_gguf =
      Tower::load(std::make_shared<ModelFile>(std::move(gguf).value()), "golden", 256, stream);
  ASSERT_TRUE(of_folder.ok()) << of_folder.error().message;
  ASSERT_TRUE(of_gguf.ok()) << of_gguf.error().message;
  for (size_t i = 0; i < n_pictures(); ++i)
    EXPECT_EQ(*rows_of(**of_gguf, i, stream, TowerPace::kAlone).values, *rows_of(**of_folder, i, stream).values) << i;
}

// In steps of its own size, in blocks, beside the same prompt.
TEST_P(VisionGolden, TheEngineAnswersAsTransformers) {
  LoadedModel m(model_, {.step_tokens = 128, .max_rows = 128});
  ASSERT_NE(m.model, nullptr);
  Result<std::unique_ptr<Tower>> tower = Tower::load(model_, "golden", 256, *m.stream);
  ASSERT_TRUE(tower.ok()) << tower.error().message;
  std::vector<PlacedPicture> pictures;
  for (size_t i = 0; i < n_pictures(); ++i)
    pictures.push_back(
        {.first = ints("starts")[i], .rows = std::make_shared<PictureRows>(rows_of(**tower, i, *m.stream))});
  for (const auto& p : pictures)
    std::const_pointer_cast<PictureRows>(p.rows)->digest[0] = static_cast<uint8_t>(p.first);
  auto engine =
      Engine::create(*m.model, nullptr, *m.stream, {.kv_dtype = DType::kF32, .step_tokens = 24, .max_sequences = 4})
          .value();
  for (uint64_t id = 1; id <= 2; ++id) {
    Request r;
    r.id = RequestId{id};
    for (const int32_t token : ints("tokens")) r.prompt.push_back(TokenId{token});
    r.pictures = std::make_shared<const PromptPictures>(pictures);
    r.max_tokens = static_cast<int32_t>(ints("greedy").size());
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    r.sampling.logprobs = 0;
    ASSERT_TRUE(engine->submit(std::move(r)).ok());
  }
  std::vector<Output> out;
  while (engine->step(out)) {
  }
  std::map<RequestId, std::vector<int32_t>> answers;
  for (const Output& o : out) {
    for (const TokenRecord& token : o.tokens) answers[o.request].push_back(raw(token.chosen.token));
  }
  for (uint64_t id = 1; id <= 2; ++id) EXPECT_TRUE(std::ranges::equal(answers[RequestId{id}], ints("greedy"))) << id;
  const auto last = floats("logits").last(static_cast<size_t>(m.model->config().vocab_size));
  double sum = 0;
  for (const float logit : last) sum += std::exp(double{logit});
  const auto first = std::ranges::find_if(out, [](const Output& o) { return !o.tokens.empty(); });
  EXPECT_NEAR(first->tokens.front().chosen.raw, last[static_cast<size_t>(ints("greedy")[0])] - std::log(sum), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, VisionGolden,
                         ::testing::Values("qwen3vl_vision", "qwen35_vision", "gemma3_vision", "gemma4_vision",
                                           "gemma4_large_vision"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace ibid
