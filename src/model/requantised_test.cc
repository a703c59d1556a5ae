// Requantised files against what each of their tensors must be, and that a model of them runs.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "format/gguf_writer.h"
#include "format/requantise.h"
#include "model/model.h"
#include "model/one_sequence.h"
#include "model/testing/parts.h"
#include "model/testing/tiny_model.h"
#include "tensor/dequantise.h"
#include "tensor/quantise.h"

namespace ibid {
namespace {

class Requantise : public ::testing::Test {
 protected:
  Requantise() : to_(::testing::TempDir() + "requantised." + std::to_string(getpid()) + ".gguf") { remove(); }
  ~Requantise() override { remove(); }
  void remove() {
    std::filesystem::remove(to_);
    std::filesystem::remove(to_ + ".partial");
  }
  static RequantiseOptions options_of(const ModelFile& file, QuantMix mix, int64_t kv_groups = 0) {
    const ModelConfig c = read_config(file).value();
    const LayerConfig* attention = c.first_with(Mixer::kAttention);
    const LayerConfig& layer = attention != nullptr ? *attention : c.layers.front();
    return {.types = {.mix = mix},
            .architecture = c.architecture,
            .n_layers = c.n_layers,
            .n_heads = layer.n_heads,
            .n_kv_heads = layer.n_kv_heads,
            .head_len = layer.key_len,
            .kv_groups = kv_groups,
            .requantises = true};
  }

  std::string to_;
  ThreadTeam team_{2};
};

std::vector<float> values_of(const TensorView& v) {
  std::vector<float> out(static_cast<size_t>(v.n_elements()));
  dequantise(v, out.data());
  return out;
}

TEST_F(Requantise, EachMatrixIsWhatItsRowsQuantiseTo) {
  const auto from = testing::tiny_model_file({.dtype = DType::kF16});
  for (const QuantMix mix : {QuantMix::kF32, QuantMix::kBF16, QuantMix::kQ4_0, QuantMix::kQ8_0, QuantMix::kQ4_K_M}) {
    remove();
    const auto made = requantise(*from, to_, options_of(*from, mix), team_);
    ASSERT_TRUE(made) << made.error().message;
    const ModelFile file = ModelFile::open(to_).value();
    ASSERT_EQ(file.tensors().size(), from->tensors().size());
    EXPECT_EQ(file.meta_int("general.file_type").value(), quant_mix_file_type(mix));
    int n_changed = 0;
    for (const TensorInfo& t : file.tensors()) {
      const TensorView was = from->tensor(t.name).value();
      if (was.rank == 1) {
        EXPECT_EQ(std::memcmp(was.data, t.view.data, t.bytes()), 0) << t.name;
        continue;
      }
      n_changed += t.view.dtype != was.dtype;
      const std::vector<float> x = values_of(was);
      std::vector<std::byte> want(t.bytes());
      quantise_row(t.view.dtype, x.data(), want.data(), static_cast<int64_t>(x.size()));
      EXPECT_EQ(std::memcmp(want.data(), t.view.data, want.size()), 0) << t.name;
    }
    EXPECT_GE(n_changed, 10);
    // Tensors with another type than the mixture's are reported, with the reason.
    int64_t n_other = 0, n_told = 0;
    for (const TensorInfo& t : file.tensors())
      n_other += t.view.rank == 2 && ((mix == QuantMix::kQ4_K_M && traits(t.view.dtype).block_len != 256) ||
                                      (mix == QuantMix::kQ4_0 && t.view.dtype != DType::kQ4_0));  // output: Q6_K
    for (const auto& [instead, n] : made->instead) {
      EXPECT_NE(instead.row_len % traits(instead.wished).block_len, 0);
      n_told += n;
    }
    EXPECT_EQ(n_told, n_other);
  }
}

TEST_F(Requantise, EveryArchitectureRunsInOtherTypesAndWithFewerKeyValueHeads) {
  for (const std::string_view architecture : testing::tiny_architectures()) {
    const auto from = testing::tiny_model_file({.architecture = architecture});
    const ModelConfig config = read_config(*from).value();
    const LayerConfig& first = *config.first_with(Mixer::kAttention);
    const bool alike = std::ranges::all_of(config.layers, [&](const LayerConfig& l) {
      return l.mixer != Mixer::kAttention || (l.n_kv_heads == first.n_kv_heads && l.key_len == first.key_len);
    });
    const RequantiseOptions options = options_of(*from, QuantMix::kQ8_0, alike ? 1 : 0);
    remove();
    const auto made = requantise(*from, to_, options, team_);
    ASSERT_TRUE(made) << architecture << ": " << made.error().message;
    auto file = std::make_shared<const ModelFile>(ModelFile::open(to_).value());
    const ModelConfig made_config = read_config(*file).value();
    for (const LayerConfig& layer : made_config.layers) EXPECT_LE(layer.n_kv_heads, alike ? 1 : 2) << architecture;
    Stream stream(team_);
    auto model = load_model(file, {.context_len = 64, .step_tokens = 8, .max_rows = 8}, stream);
    ASSERT_TRUE(model) << architecture << ": " << model.error().message;
    OneSequence sequence(**model, stream, {});
    const std::vector<TokenId> tokens = {TokenId{1}, TokenId{2}, TokenId{3}};
    sequence.append(tokens, [&](int64_t, const TensorView& rows) {
      for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(rows.row_as<float>(i)[0])) << architecture;
    });
  }
}

TEST_F(Requantise, ExpertsAreMatricesAndTheirRouterKeepsItsType) {
  const auto from = testing::tiny_model_file({.architecture = "qwen2moe"});
  const auto made = requantise(*from, to_, options_of(*from, QuantMix::kQ8_0), team_);
  ASSERT_TRUE(made) << made.error().message;
  const ModelFile file = ModelFile::open(to_).value();
  int n_experts = 0;
  for (const TensorInfo& t : file.tensors()) {
    const bool is_float = t.view.rank == 1 || t.name.find("ffn_gate_inp") != std::string::npos;
    EXPECT_EQ(t.view.dtype, is_float ? DType::kF32 : DType::kQ8_0) << t.name;
    n_experts += t.view.rank == 3;
  }
  EXPECT_EQ(n_experts, 6) << "three matrices of two layers";
  const TensorView was = from->find("blk.1.ffn_down_exps.weight")->view,
                   is = file.find("blk.1.ffn_down_exps.weight")->view;
  EXPECT_EQ(was.dim, is.dim);
  const std::vector<float> x = values_of(was), y = values_of(is);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::fmax(worst, std::fabs(x[i] - y[i]));
  EXPECT_LT(worst, 0.02);
}

TEST_F(Requantise, HeadsOfAGroupBecomeTheirMeanAndOthersStay) {
  for (const std::string_view architecture : {"llama", "qwen2", "phi3"}) {
    const auto from = testing::tiny_model_file({.architecture = architecture});
    const RequantiseOptions o = options_of(*from, QuantMix::kF32, 1);
    ASSERT_GT(o.n_kv_heads, 1);
    remove();
    ASSERT_TRUE(requantise(*from, to_, o, team_)) << architecture;
    const ModelFile file = ModelFile::open(to_).value();
    const int64_t D = o.head_len, K = o.n_kv_heads, H = o.n_heads;
    int n_pooled = 0;
    for (const TensorInfo& t : file.tensors()) {
      const bool fused = t.name.find(".attn_qkv.") != std::string::npos;
      const bool pooled =
          fused || t.name.find(".attn_k.") != std::string::npos || t.name.find(".attn_v.") != std::string::npos;
      const TensorView was = from->tensor(t.name).value();
      const std::vector<float> x = values_of(was), y = values_of(t.view);
      if (!pooled) {
        EXPECT_EQ(x, y) << t.name;
        continue;
      }
      ++n_pooled;
      const auto row_len = static_cast<size_t>(was.n_elements() / was.dim[0]);
      std::vector<float> want;
      const auto put = [&](int64_t first, int64_t n_heads) {  // the mean of n_heads heads from row `first` on
        for (int64_t r = 0; r < D; ++r) {
          for (size_t k = 0; k < row_len; ++k) {
            double sum = 0;
            for (int64_t h = 0; h < n_heads; ++h) {
              sum += static_cast<double>(x[static_cast<size_t>(first + h * D + r) * row_len + k]);
            }
            want.push_back(static_cast<float>(sum / static_cast<double>(n_heads)));
          }
        }
      };
      for (int64_t h = 0; fused && h < H; ++h) put(h * D, 1);
      put(fused ? H * D : 0, K);
      if (fused) put((H + K) * D, K);
      EXPECT_EQ(y, want) << architecture << ' ' << t.name;
    }
    EXPECT_GE(n_pooled, 2);
  }
}

TEST_F(Requantise, RefusesTheImpossibleAndLeavesNoFiles) {
  const auto from = testing::tiny_model_file({});
  RequantiseOptions options = options_of(*from, QuantMix::kQ8_0);
  const auto refusal = [&](const ModelFile& file, const std::string& to) {
    const auto made = requantise(file, to, options, team_);
    EXPECT_FALSE(made);
    EXPECT_FALSE(std::filesystem::exists(to_));
    EXPECT_FALSE(std::filesystem::exists(to_ + ".partial"));
    return made ? std::string() : made.error().message;
  };
  options.kv_groups = options.n_kv_heads + 1;
  EXPECT_NE(refusal(*from, to_).find("cannot be averaged"), std::string::npos);
  options.kv_groups = 1;
  ModelFile::Parts parts = testing::tiny_parts({.architecture = "qwen2"});
  const auto bias = std::ranges::find(parts.tensors, "blk.0.attn_k.bias", &TensorInfo::name);
  ASSERT_NE(bias, parts.tensors.end());
  auto blocks = std::make_unique<std::byte[]>(static_cast<size_t>(row_bytes(DType::kQ8_0, bias->view.dim[0])));
  bias->view = TensorView(blocks.get(), DType::kQ8_0, {bias->view.dim[0]});
  parts.copies.push_back(std::move(blocks));
  const ModelFile of_blocks(std::move(parts));
  const RequantiseOptions was_options = std::exchange(options, options_of(*from, QuantMix::kQ8_0, 1));
  EXPECT_NE(refusal(of_blocks, to_).find("a vector of type Q8_0"), std::string::npos);
  options = was_options;
  options.kv_groups = 0;
  EXPECT_NE(refusal(*from, "/nowhere/at/all").find("cannot write"), std::string::npos);

  // No room: files may not grow beyond 4 KiB.
  rlimit was = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &was), 0);
  const rlimit small = {4096, was.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string full = refusal(*from, to_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &was), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(full.find("cannot write"), std::string::npos) << full;

  GgufWriter writer;
  writer.set("general.architecture", "llama");
  std::vector<float> row(32, 1.0f);
  row[31] = INFINITY;
  writer.add_tensor("blk.0.ffn_up.weight", DType::kF32, {1, 32}, std::as_bytes(std::span(row)));
  const std::string path = to_ + ".bad";
  ASSERT_TRUE(writer.write(path).ok());
  options = {.types = {.mix = QuantMix::kQ8_0},
             .architecture = "llama",
             .n_layers = 1,
             .n_heads = 1,
             .n_kv_heads = 1,
             .head_len = 32};
  EXPECT_NE(refusal(ModelFile::open(path).value(), to_).find("not finite"), std::string::npos);
  std::filesystem::remove(path);
}

TEST_F(Requantise, WhatIsQuantisedAlreadyIsAskedFor) {
  const auto from = testing::tiny_model_file({.dtype = DType::kQ8_0});
  RequantiseOptions options = options_of(*from, QuantMix::kQ4_0);
  options.requantises = false;
  const auto refused = requantise(*from, to_, options, team_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--allow-requantize"), std::string::npos) << refused.error().message;
  options.types.mix = QuantMix::kQ8_0;
  EXPECT_TRUE(requantise(*from, to_, options, team_)) << "which copies it";
}

}  // namespace
}  // namespace ibid
