// Folders of the goldens written as compressed-tensors folders: what is read from them, and what is refused.
#include "model/quantise_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "format/quantised_matrix.h"
#include "format/safetensors.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"
#include "temp_folder.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::some_tokens;
namespace fs = std::filesystem;

class QuantiseFolder : public ::testing::Test {
 protected:
  static std::string golden(const std::string& name) { return source_dir() + "/tests/golden/" + name; }
  static std::shared_ptr<const ModelFile> open(const std::string& path) {
    Result<ModelFile> file = ModelFile::open(path);
    EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
    return file ? std::make_shared<ModelFile>(std::move(file).value()) : nullptr;
  }
  static QuantiseFolderOptions options(GroupSearch search, int bits = 4) {
    static const std::vector<TokenId> tokens = some_tokens(200, 80, 5);
    return {.bits = bits, .group_len = 32, .search = search, .tokens = tokens, .chunk_len = 50};
  }
  Result<QuantisedFolder> make(const std::string& name, const std::string& to, const QuantiseFolderOptions& options,
                               int n_threads = 2) {
    const std::shared_ptr<const ModelFile> folder = open(golden(name));
    LoadedModel m(folder, {.step_tokens = 128, .max_rows = 128}, n_threads);
    return quantise_folder(*folder, m.model.get(), *m.stream, temp_.path(to), options);
  }
  std::string bytes_of(const std::string& path) {
    std::ifstream in(temp_.path(path), std::ios::binary);
    EXPECT_TRUE(in) << path;
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Of logits, against those of the folder that it was made of.
  double distance(const std::string& name, const std::string& made) {
    LoadedModel a(open(golden(name))), b(open(temp_.path(made)));
    const auto tokens = some_tokens(40, 80);
    const std::vector<float> x = a.logits(tokens), y = b.logits(tokens);
    double sum = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
      size += std::pow(static_cast<double>(x[i]), 2);
    }
    return std::sqrt(sum / size);
  }

  TempFolder temp_;
};

TEST_F(QuantiseFolder, WhatIsReadAreTheScalesTimesTheCodes) {
  for (const auto& [to, bits, quantises_inputs] :
       {std::tuple("w4a16", 4, false), std::tuple("w8a16", 8, false), std::tuple("w8a8", 8, true)}) {
    SCOPED_TRACE(to);
    QuantiseFolderOptions how = options(GroupSearch::kNone, bits);
    how.quantises_inputs = quantises_inputs;
    const auto made = make("qwen3", to, how);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->n_quantised, 14);
    EXPECT_EQ(made->n_left, 0);
    EXPECT_LT(made->bytes, made->bytes_before);
    const std::shared_ptr<const ModelFile> was = open(golden("qwen3")), file = open(temp_.path(to));
    EXPECT_EQ(file->tensor_bytes(), made->bytes);
    const QuantRecipe recipe = read_quant_recipe(*file).value();
    ThreadTeam team(1);
    for (const TensorInfo& t : was->tensors()) {
      if (t.name.find("_proj.weight") == std::string::npos) {
        const TensorInfo* same = file->find(t.name);
        ASSERT_NE(same, nullptr) << t.name;
        EXPECT_EQ(std::memcmp(same->view.data, t.view.data, t.bytes()), 0) << t.name;
        continue;
      }
      const int64_t N = t.view.dim[0], K = t.view.dim[1];
      const auto matrix = QuantisedMatrix::find(*file, recipe, t.name, N, K);
      ASSERT_TRUE(matrix) << matrix.error().message;
      EXPECT_EQ(matrix->dtype(), bits == 4 ? DType::kQ4_0 : DType::kQ8_0) << t.name;
      std::vector<std::byte> rows(static_cast<size_t>(N * row_bytes(matrix->dtype(), K)));
      matrix->rows(0, N, rows.data());
      std::vector<float> values(static_cast<size_t>(N * K));
      dequantise(TensorView(rows.data(), matrix->dtype(), {N, K}), values.data());
      std::vector<float> w(static_cast<size_t>(N * K));
      dequantise(t.view, w.data());
      const int64_t group_len = quantises_inputs ? K : 32;
      const GroupCodes codes = round_to_groups(team, w, K, {bits, group_len, DType::kF32});
      for (size_t i = 0; i < w.size(); ++i) {
        const float scale = codes.scales[i / static_cast<size_t>(group_len)];
        ASSERT_EQ(values[i], scale * static_cast<float>(codes.codes[i])) << t.name << i;
      }
    }
    EXPECT_LT(distance("qwen3", to), bits == 4 ? 0.3 : 0.03);
  }
  const std::string config = bytes_of("w8a8/config.json");
  for (const char* part : {R"("format":"int-quantized")", R"("strategy":"channel")", R"("strategy":"token")"})
    EXPECT_NE(config.find(part), std::string::npos) << config;
}

// Norms with an offset, gate and up in one, q, k and v in one, tied outputs, biases.
TEST_F(QuantiseFolder, EverySearchLeavesTheModelAlmostAsItWas) {
  for (const char* name : {"llama_tied", "qwen2", "qwen3", "gemma2", "phi3", "granite"}) {
    for (const auto& [search, what] :
         {std::pair(GroupSearch::kGptq, "gptq"), {GroupSearch::kAwq, "awq"}, {GroupSearch::kSmooth, "smooth"}}) {
      const std::string to = std::string(name) + what;
      QuantiseFolderOptions how = options(search, 8);
      how.quantises_inputs = search == GroupSearch::kSmooth;
      const auto made = make(name, to, how);
      ASSERT_TRUE(made) << name << ": " << made.error().message;
      EXPECT_GE(made->n_quantised, 8) << name;
      const int64_t n_layers = read_config(*open(golden(name))).value().n_layers;
      const int64_t n_folded = search == GroupSearch::kAwq ? 3 : search == GroupSearch::kSmooth ? 2 : 0;
      EXPECT_EQ(made->n_folded, n_folded * n_layers) << name;
      EXPECT_LT(distance(name, to), 0.06) << to;  // with activations of 8 bits
    }
  }
}

TEST_F(QuantiseFolder, HasTheSameBytesForAnyThreadsAndHoweverManyLayersAreHeldAtOnce) {
  for (const auto& [search, what] :
       {std::pair(GroupSearch::kGptq, "gptq"), {GroupSearch::kAwq, "awq"}, {GroupSearch::kSmooth, "smooth"}}) {
    const std::string a = std::string(what) + "_a", b = std::string(what) + "_b";
    QuantiseFolderOptions how = options(search, search == GroupSearch::kSmooth ? 8 : 4);
    how.quantises_inputs = search == GroupSearch::kSmooth;
    how.act_order = search == GroupSearch::kGptq;
    ASSERT_TRUE(make("llama", a, how, 1));
    how.moments_bytes = 1;
    ASSERT_TRUE(make("llama", b, how, 3));
    for (const char* file : {"/model.safetensors", "/config.json"}) EXPECT_EQ(bytes_of(a + file), bytes_of(b + file));
  }
}

TEST_F(QuantiseFolder, FilesOfAtMostSoMuchAreOneModel) {
  QuantiseFolderOptions how = options(GroupSearch::kNone);
  ASSERT_TRUE(make("qwen3", "one", how));
  how.max_file_bytes = 8192;
  ASSERT_TRUE(make("qwen3", "many", how));
  EXPECT_TRUE(fs::exists(temp_.path("many/model.safetensors.index.json")));
  const std::shared_ptr<const ModelFile> one = open(temp_.path("one")), many = open(temp_.path("many"));
  EXPECT_GT(many->files().size(), 3u);
  ASSERT_EQ(one->tensors().size(), many->tensors().size());
  for (const TensorInfo& t : one->tensors()) {
    const TensorInfo* same = many->find(t.name);
    ASSERT_NE(same, nullptr) << t.name;
    EXPECT_EQ(std::memcmp(same->view.data, t.view.data, t.bytes()), 0) << t.name;
  }
}

TEST_F(QuantiseFolder, WhatIsNotDoneIsNamedAndLeavesNoFolder) {
  const auto refused = [&](const std::string& name, const QuantiseFolderOptions& how, const std::string& because) {
    const auto made = make(name, "made", how);
    ASSERT_FALSE(made) << because;
    EXPECT_NE(made.error().message.find(because), std::string::npos) << made.error().message;
    EXPECT_FALSE(fs::exists(temp_.path("made")));
    EXPECT_FALSE(fs::exists(temp_.path("made.partial")));
  };
  QuantiseFolderOptions how = options(GroupSearch::kNone);
  for (const int64_t group_len : {0, -32, 16, 48}) {
    how.group_len = group_len;
    refused("qwen3", how, "a multiple of 32");
  }
  how.group_len = 1024;
  refused("qwen3", how, "whole groups");
  how = options(GroupSearch::kNone, 3);
  refused("qwen3", how, "4 or 8 bits");
  refused("qwen3", options(GroupSearch::kSmooth, 8), "activations are quantised too");
  how = options(GroupSearch::kSmooth, 8);
  how.quantises_inputs = true;
  refused("gemma4", how, "SmoothQuant divides in the norm");
  how.smoothing = std::nan("");
  refused("qwen3", how, "from 0 to 1");
  how.search = GroupSearch::kAwq;
  refused("qwen3", how, "a scale for each output");
  how.search = GroupSearch::kNone;
  how.bits = 4;
  refused("qwen3", how, "codes of 8 bits");
  how = options(GroupSearch::kGptq);
  how.damp = std::nan("");
  refused("qwen3", how, "damp");
  how = options(GroupSearch::kGptq);
  how.tokens = how.tokens.first(1);
  refused("qwen3", how, "two or more");
  how.tokens = options(GroupSearch::kGptq).tokens;
  how.chunk_len = 1'000'000;
  refused("qwen3", how, "a chunk has");
  refused("quantised/ct4", options(GroupSearch::kNone), "is quantised already");
  refused("qwen3moe", options(GroupSearch::kGptq), "has experts");
  refused("gemma4", options(GroupSearch::kAwq), "--search gptq");
  refused("olmo2", options(GroupSearch::kAwq), "--search gptq");
  refused("lfm2", options(GroupSearch::kAwq), "--search gptq");
  ASSERT_TRUE(make("qwen3", "made", options(GroupSearch::kNone)));
  const auto again = make("qwen3", "made", options(GroupSearch::kNone));
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("is there already"), std::string::npos);
}

// Weights and norms that are not finite.
TEST_F(QuantiseFolder, ANumberThatIsNotFiniteIsNamed) {
  for (const char* tensor : {"model.layers.1.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"}) {
    fs::remove_all(temp_.path("bad"));
    fs::copy(golden("qwen3"), temp_.path("bad"));
    const std::shared_ptr<const ModelFile> file = open(golden("qwen3"));
    std::vector<TensorInfo> tensors = file->tensors();
    std::vector<std::byte> copy;
    for (TensorInfo& t : tensors) {
      if (t.name != tensor) continue;
      copy.assign(t.view.data, t.view.data + t.bytes());
      const float nan = std::nanf("");
      std::memcpy(copy.data() + 40, &nan, 4);
      t.view.data = copy.data();
    }
    for (const auto& entry : fs::directory_iterator(temp_.path("bad"))) {
      if (entry.path().extension() == ".safetensors") fs::remove(entry.path());
    }
    std::ofstream(temp_.path("bad/model.safetensors"), std::ios::binary) << safetensors_bytes(tensors);
    const std::shared_ptr<const ModelFile> bad = open(temp_.path("bad"));
    LoadedModel m(bad);
    for (const GroupSearch search : {GroupSearch::kGptq, GroupSearch::kAwq}) {
      const auto made = quantise_folder(*bad, m.model.get(), *m.stream, temp_.path("made"), options(search));
      ASSERT_FALSE(made);
      EXPECT_NE(made.error().message.find("finite"), std::string::npos) << made.error().message;
      EXPECT_FALSE(fs::exists(temp_.path("made.partial")));
    }
  }
}

}  // namespace
}  // namespace ibid
