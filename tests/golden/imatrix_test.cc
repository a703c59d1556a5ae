// Importance matrices: sums of a tiny model's activations, their file, and what quantisation makes of them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "format/gguf_writer.h"
#include "format/requantise.h"
#include "model/activation_sums.h"
#include "model/testing/loaded_model.h"
#include "temp_folder.h"
#include "tensor/dequantise.h"
#include "tensor/quantise.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::some_tokens;

class Imatrix : public ::testing::Test {
 protected:
  Importance sums_of(int n_threads, int step_tokens, int64_t chunk_len = 24) {
    LoadedModel m(file_, {.step_tokens = step_tokens, .max_rows = step_tokens}, n_threads);
    const auto tokens = some_tokens(60, m.model->config().vocab_size);
    auto made = sum_activations(*m.model, *m.stream, tokens, chunk_len, TokenId::kNone, true);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return *std::move(made);
  }
  std::string bytes_of(const Importance& importance) {
    EXPECT_TRUE(importance.write(temp_.path("imatrix.gguf")).ok());
    std::ifstream in(temp_.path("imatrix.gguf"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempFolder temp_;
  std::shared_ptr<const ModelFile> file_ = testing::tiny_model_file({.dtype = DType::kF32});
};

TEST_F(Imatrix, HasEveryProductAndTheSameBytesForAnyThreadsAndSteps) {
  const Importance one = sums_of(1, 128);
  const ModelConfig config = read_config(*file_).value();
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    for (int64_t l = 0; l < config.n_layers; ++l) {
      const std::string full = "blk." + std::to_string(l) + "." + name + ".weight";
      ASSERT_TRUE(one.of.contains(full)) << full;
      const Importance::Sums& sums = one.of.find(full)->second;
      EXPECT_EQ(sums.counts, std::vector<float>{60});
      EXPECT_GT(sums.squares.front(), 0);
    }
  }
  EXPECT_TRUE(one.of.contains("output.weight"));
  EXPECT_EQ(one.n_chunks, 3);
  const std::string bytes = bytes_of(one);
  EXPECT_EQ(bytes_of(sums_of(3, 128)), bytes);
  EXPECT_EQ(bytes_of(sums_of(2, 7)), bytes);
}

// A norm's outputs are those of its input, times its weight: their squares add up to what the norm makes of all.
TEST_F(Imatrix, SumsAreOfSquares) {
  LoadedModel m(file_, {.step_tokens = 128, .max_rows = 128});
  std::vector<double> squares;
  const auto tokens = some_tokens(20, m.model->config().vocab_size);
  m.model->set_tap([&](std::string_view name, int layer, const TensorView& x) {
    if (name != "gated" || layer != 0) return;
    squares.resize(static_cast<size_t>(x.row_len()));
    for (int64_t r = 0; r < x.n_rows(); ++r) {
      for (size_t k = 0; k < squares.size(); ++k) squares[k] += std::pow(static_cast<double>(x.row_as<float>(r)[k]), 2);
    }
  });
  m.logits(tokens, {.kv_dtype = DType::kF32});
  const auto made = sum_activations(*m.model, *m.stream, tokens, 20, TokenId::kNone, false);
  ASSERT_TRUE(made) << made.error().message;
  const Importance::Sums& sums = made->of.find("blk.0.ffn_down.weight")->second;
  ASSERT_EQ(sums.squares.size(), squares.size());
  for (size_t k = 0; k < squares.size(); ++k) EXPECT_EQ(sums.squares[k], static_cast<float>(squares[k])) << k;
  EXPECT_FALSE(made->of.contains("output.weight"));
}

// Which experts a token uses follows from its router's logits.
TEST(ImatrixOfExperts, EachExpertsSumsAreOfTheTokensThatUseIt) {
  LoadedModel m(testing::tiny_model_file({.architecture = "qwen3moe"}), {.step_tokens = 128, .max_rows = 128});
  const ModelConfig& c = m.model->config();
  const auto n_experts = static_cast<size_t>(c.layers[0].n_experts),
             n_used = static_cast<size_t>(c.layers[0].n_experts_used);
  const auto tokens = some_tokens(20, c.vocab_size);
  std::vector<std::vector<float>> logits, inputs;
  m.model->set_tap([&](std::string_view name, int layer, const TensorView& x) {
    if (layer != 0 || (name != "router" && name != "ffn_norm")) return;
    for (int64_t r = 0; r < x.n_rows(); ++r) {
      const float* row = x.row_as<const float>(r);
      (name == "router" ? logits : inputs).emplace_back(row, row + x.row_len());
    }
  });
  m.logits(tokens, {.kv_dtype = DType::kF32});
  const size_t K = inputs.front().size();
  std::vector<double> squares(n_experts * K);
  std::vector<float> counts(n_experts);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t e = 0; e < n_experts; ++e) {
      if (std::ranges::count_if(logits[t], [&](float x) { return x > logits[t][e]; }) >= static_cast<int64_t>(n_used))
        continue;
      ++counts[e];
      for (size_t k = 0; k < K; ++k) squares[e * K + k] += std::pow(static_cast<double>(inputs[t][k]), 2);
    }
  }
  const auto made = sum_activations(*m.model, *m.stream, tokens, 20, TokenId::kNone, false);
  ASSERT_TRUE(made) << made.error().message;
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"}) {
    const Importance::Sums& sums = made->of.find(name)->second;
    EXPECT_EQ(sums.counts, counts) << name;
    EXPECT_EQ(sums.squares, std::vector<float>(squares.begin(), squares.end())) << name;
  }
  const Importance::Sums& down = made->of.find("blk.0.ffn_down_exps.weight")->second;
  EXPECT_EQ(down.counts, counts);
  EXPECT_EQ(down.n_inputs, c.layers[0].expert_len);
}

TEST_F(Imatrix, IsReadAsItWasWrittenAndAddsUp) {
  Importance a = sums_of(1, 128);
  a.datasets = {"text"};
  ASSERT_TRUE(a.write(temp_.path("a.gguf")).ok());
  const auto read = Importance::open(temp_.path("a.gguf"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(bytes_of(*read), bytes_of(a));
  const float one = a.of.begin()->second.squares[0];
  ASSERT_TRUE(a.add(*read).ok());
  EXPECT_EQ(a.of.begin()->second.squares[0], 2 * one);
  EXPECT_EQ(a.of.begin()->second.counts[0], 120);
  EXPECT_EQ(a.n_chunks, 6);
  EXPECT_EQ(a.datasets, std::vector<std::string>{"text"});
  Importance other;
  other.of[a.of.begin()->first] = {.n_inputs = 1, .squares = {1}, .counts = {1}};
  EXPECT_FALSE(a.add(other).ok());
}

// Of an expert that no token used each input weighs the same.
TEST_F(Imatrix, WeighsAnInputByTheMeanOfItsSquares) {
  Importance importance;
  importance.of["experts"] = {.n_inputs = 2, .squares = {4, 8, 0, 0, 3, 0}, .counts = {2, 0, 1}};
  EXPECT_EQ(importance.weights("experts", 3, 2).value(), (std::vector<float>{2, 4, 1, 1, 3, 0}));
  EXPECT_EQ(importance.weights("others", 3, 2).value(), std::vector<float>());
  EXPECT_FALSE(importance.weights("experts", 2, 2));
}

TEST_F(Imatrix, HostileFilesAreSentences) {
  const auto refused = [&](const std::function<void(GgufWriter&)>& make, const std::string& because) {
    GgufWriter writer;
    make(writer);
    ASSERT_TRUE(writer.write(temp_.path("bad.gguf")).ok());
    const auto read = Importance::open(temp_.path("bad.gguf"));
    ASSERT_FALSE(read) << because;
    EXPECT_NE(read.error().message.find(because), std::string::npos) << read.error().message;
  };
  const float good[4] = {1, 2, 3, 4}, bad[4] = {1, -2, 3, 4}, worse[4] = {1, NAN, 3, 4};
  const auto bytes = [](const auto& x) { return std::as_bytes(std::span(x)); };
  const auto add = [&](GgufWriter& w, const auto& sums, std::initializer_list<int64_t> dims) {
    w.set("general.type", "imatrix");
    w.add_tensor("a.weight.in_sum2", DType::kF32, dims, bytes(sums));
  };
  refused([&](GgufWriter& w) { w.set("general.type", "model"); }, "no importance matrix");
  refused([&](GgufWriter& w) { w.set("general.type", "imatrix"); }, "has no sums");
  refused([&](GgufWriter& w) { add(w, good, {1, 4}); }, "has no tensor");
  refused(
      [&](GgufWriter& w) {
        add(w, good, {1, 4});
        w.add_tensor("a.weight.counts", DType::kF32, {2, 1}, bytes(good).subspan(0, 8));
      },
      "has 2 counts for 4 sums");
  for (const auto& sums : {std::span(bad), std::span(worse)}) {
    refused(
        [&](GgufWriter& w) {
          add(w, sums, {1, 4});
          w.add_tensor("a.weight.counts", DType::kF32, {1, 1}, bytes(good).subspan(0, 4));
        },
        "negative or not finite");
  }
}

TEST_F(Imatrix, OfAnotherModelIsRefused) {
  Importance importance;
  importance.of["blk.0.attn_q.weight"] = {.n_inputs = 3, .squares = {1, 1, 1}, .counts = {1}};
  ThreadTeam team(1);
  const ModelConfig c = read_config(*file_).value();
  const auto made =
      requantise(*file_, temp_.path("out.gguf"),
                 {.architecture = c.architecture, .n_layers = c.n_layers, .importance = &importance}, team);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("it is of another model"), std::string::npos) << made.error().message;
}

// A model whose rows fill blocks of 256.
TEST(FewBits, NeedAnImportance) {
  const TempFolder temp;
  const auto file = testing::tiny_model_file({.dtype = DType::kQ6_K});
  const ModelConfig c = read_config(*file).value();
  ThreadTeam team(1);
  const auto made = [&](QuantMix mix, const Importance* importance) {
    return requantise(*file, temp.path("out.gguf"),
                      {.types = {.mix = mix, .is_pure = true},
                       .architecture = c.architecture,
                       .n_layers = c.n_layers,
                       .requantises = true,
                       .importance = importance},
                      team);
  };
  Importance importance;
  for (const TensorInfo& t : file->tensors()) {
    const auto n = static_cast<size_t>(t.view.row_len());
    if (t.view.rank == 2) importance.of[t.name] = {static_cast<int64_t>(n), std::vector<float>(n, 2.0f), {1}};
  }
  for (const QuantMix mix : {QuantMix::kIQ2_XXS, QuantMix::kIQ2_XS, QuantMix::kIQ2_M, QuantMix::kIQ3_XXS}) {
    const auto without = made(mix, nullptr);
    ASSERT_FALSE(without);
    EXPECT_NE(without.error().message.find("needs an importance matrix"), std::string::npos) << without.error().message;
    const auto with = made(mix, &importance);
    EXPECT_TRUE(with) << with.error().message;
  }
  EXPECT_TRUE(made(QuantMix::kIQ3_S, nullptr));
}

// Errors where inputs are large shrink, at the cost of the others.
TEST(QuantiseByImportance, LessensTheErrorThatCounts) {
  constexpr int kLen = 1024;
  std::vector<float> x(kLen), importance(kLen), y(kLen);
  uint32_t state = 7;
  const auto next = [&] { return static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) / (1 << 24); };
  for (int i = 0; i < kLen; ++i) {
    x[static_cast<size_t>(i)] = next() + next() + next() - 1.5f;
    importance[static_cast<size_t>(i)] = i % 7 == 0 ? 50.0f : 0.1f + next();
  }
  for (const DType dtype : {DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                            DType::kIQ4_XS, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kIQ2_XXS,
                            DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S}) {
    std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(dtype, kLen)));
    const auto error = [&](const float* weights) {
      quantise_row(dtype, x.data(), bytes.data(), kLen, weights);
      dequantise_row(dtype, bytes.data(), y.data(), kLen);
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
        sum += static_cast<double>(importance[i]) * d * d;
      }
      return sum;
    };
    const double without = error(nullptr), with = error(importance.data());
    EXPECT_LT(with, without) << traits(dtype).name;
  }
  for (const DType dtype : {DType::kQ8_0, DType::kBF16}) {
    std::vector<std::byte> a(static_cast<size_t>(row_bytes(dtype, kLen))), b = a;
    quantise_row(dtype, x.data(), a.data(), kLen);
    quantise_row(dtype, x.data(), b.data(), kLen, importance.data());
    EXPECT_EQ(a, b) << "which takes no notice of it";
  }
}

}  // namespace
}  // namespace ibid
