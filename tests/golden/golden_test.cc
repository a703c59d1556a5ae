// Every named intermediate of tiny models against the original Python implementation (tools/make_golden.py), from the
// folder that transformers wrote and from a GGUF of the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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
  std::vector<TokenId> tokens, greedy;  // greedy: those that follow, where the file has them
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
      if (t.name != "tokens" && t.name != "greedy") {
        golden_.expected[t.name] = t.view;
        continue;
      }
      for (int64_t i = 0; i < t.view.row_len(); ++i)
        (t.name == "tokens" ? golden_.tokens : golden_.greedy).push_back(TokenId{t.view.row_as<const int32_t>(0)[i]});
    }
    ASSERT_GE(golden_.tokens.size(), 24u);
  }

  // max|a - b| <= 1e-4 max|b| for every tensor of the golden file; each must come once.
  void compare(std::shared_ptr<const ModelFile> file) {
    LoadedModel m(std::move(file), {.context_len = GetParam().context_len, .step_tokens = 128, .max_rows = 128});
    ASSERT_NE(m.model, nullptr);
    const ModelConfig& config = m.model->config();
    // The originals of ernie, glm and cohere have pairs of neighbours themselves; files of latent rows have them.
    // GGUF's granitehybrid has them where nothing turns too.
    const bool turns_neighbours = !config.ropes.empty() && config.ropes[0].interleaved;
    const bool interleaved = (turns_neighbours || config.architecture == "granitehybrid") &&
                             !config.architecture.starts_with("ernie") && config.architecture != "glm4" &&
                             config.architecture != "cohere2" && config.layers.front().mixer != Mixer::kLatent;
    std::set<std::string> seen;
    m.model->set_tap([&](std::string_view name, int layer, const TensorView& x) {
      // What experts read, which transformers does not have in one tensor (imatrix_test.cc holds them to the router).
      if (name.starts_with("expert_") || name == "shared_gated") return;
      const std::string key =
          layer < 0 ? std::string(name) : "layer." + std::to_string(layer) + "." + std::string(name);
      auto it = golden_.expected.find(key);
      ASSERT_NE(it, golden_.expected.end()) << key;
      EXPECT_TRUE(seen.insert(key).second) << key << " came twice";
      const TensorView& want = it->second;
      ASSERT_EQ(x.n_rows(), want.n_rows()) << key;
      ASSERT_EQ(x.row_len(), want.row_len()) << key;
      const bool permuted = interleaved && (name == "q" || name == "k");
      // Value heads of GGUF's qwen35 lie tiled, the original's grouped.
      const DeltaHeads heads = layer < 0 ? DeltaHeads{} : config.layers[static_cast<size_t>(layer)].delta;
      const bool tiled = heads.tiled && name == "mixed";
      double worst = 0, largest = 0;
      for (int64_t r = 0; r < x.n_rows(); ++r) {
        for (int64_t i = 0; i < x.row_len(); ++i) {
          int64_t from = i;
          if (permuted) {  // halves (j, j + n) lie at (2 j, 2 j + 1)
            const int64_t D = config.layers[static_cast<size_t>(layer)].key_len, j = i % D, n = D / 2;
            from = i - j + (j < n ? 2 * j : 2 * (j - n) + 1);
          }
          if (tiled) {
            const int64_t n = heads.n_value_heads / heads.n_key_heads, head = i / heads.value_len;
            from = (head % n * heads.n_key_heads + head / n) * heads.value_len + i % heads.value_len;
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
    m.model->set_tap({});
    std::vector<TokenId> tokens = golden_.tokens;
    for (const TokenId expected : golden_.greedy) {
      const std::vector<float> logits = m.logits(tokens, {.kv_dtype = DType::kF32});
      const auto row = logits.end() - static_cast<ptrdiff_t>(config.vocab_size);
      ASSERT_EQ(TokenId{static_cast<int32_t>(std::max_element(row, logits.end()) - row)}, expected) << tokens.size();
      tokens.push_back(expected);
    }
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

INSTANTIATE_TEST_SUITE_P(
    Architectures, ModelGolden,
    ::testing::Values(Golden{"llama"}, Golden{"llama_tied"}, Golden{"llama3_rope"}, Golden{"linear_rope"},
                      Golden{"mistral"}, Golden{"qwen2"}, Golden{"qwen3"}, Golden{"yarn"}, Golden{"smollm3"},
                      Golden{"phi3"}, Golden{"phi3_longrope", "_short", 32}, Golden{"phi3_longrope", "_long"},
                      Golden{"phi4"}, Golden{"phi4_mini"}, Golden{"gemma3"}, Golden{"qwen3moe"}, Golden{"qwen2moe"},
                      Golden{"mixtral"}, Golden{"olmoe"}, Golden{"granitemoe"}, Golden{"glm4moe"}, Golden{"dots1"},
                      Golden{"minimax_m2"}, Golden{"ernie4_5_moe"}, Golden{"hunyuan_moe"}, Golden{"hy_v3"},
                      Golden{"lfm2"}, Golden{"lfm2moe"}, Golden{"qwen3next"}, Golden{"qwen35"}, Golden{"qwen35moe"},
                      Golden{"qwen35_vl"}, Golden{"granite"}, Golden{"seed_oss"}, Golden{"mistral3"},
                      Golden{"ministral3"}, Golden{"ernie4_5"}, Golden{"hunyuan_dense"}, Golden{"olmo2"},
                      Golden{"olmo3"}, Golden{"exaone4"}, Golden{"glm4"}, Golden{"cohere2"}, Golden{"nemotron"},
                      Golden{"gpt2"}, Golden{"bloom"}, Golden{"mpt"}, Golden{"gemma2"}, Golden{"gemma4"},
                      Golden{"gemma4_moe"}, Golden{"gpt_oss"}, Golden{"deepseek_v3"}, Golden{"deepseek_v2"},
                      Golden{"glm4_moe_lite"}, Golden{"mistral4"}, Golden{"granitehybrid"},
                      Golden{"granitehybrid_dense"}, Golden{"nemotron_h"}, Golden{"nemotron_h_moe"},
                      Golden{"falcon_h1"}, Golden{"falcon_h1_norm"}, Golden{"muse_glimmer"}),
    [](const auto& test) { return std::string(test.param.folder) + test.param.suffix; });

// Each tensor of a model matters: one that is other numbers gives other logits.
class EachTensor : public ::testing::TestWithParam<const char*> {
 protected:
  static Result<ModelFile> open() { return ModelFile::open(source_dir() + "/tests/golden/" + GetParam()); }

  // The same model whose tensor `changed` is other numbers; -1: none.
  static std::vector<float> logits_of(const ModelFile& file, int64_t changed) {
    ModelFile::Parts parts;
    parts.container = file.container();
    parts.path = file.path();
    parts.metadata = file.metadata();
    for (const TensorInfo& t : file.tensors()) {
      auto copy = std::make_unique<std::byte[]>(t.bytes());
      std::memcpy(copy.get(), t.view.data, t.bytes());
      auto* values = reinterpret_cast<float*>(copy.get());
      for (size_t i = 0; std::ssize(parts.tensors) == changed && i < t.bytes() / sizeof(float); ++i) {
        values[i] += 0.3f * static_cast<float>(static_cast<int>(i * i % 3) - 1);
      }
      parts.tensors.push_back(t);
      parts.tensors.back().view.data = copy.get();
      parts.copies.push_back(std::move(copy));
    }
    LoadedModel m(std::make_shared<ModelFile>(std::move(parts)));
    return m.logits(testing::some_tokens(120, m.model->config().vocab_size), {.kv_dtype = DType::kF32});
  }

  // What scales the residual stream before the last norm moves nothing; rope_freqs.weight is refused with other
  // numbers.
  static bool cannot_move(const ModelFile& file, const std::string& name) {
    const std::string last = std::to_string(read_config(file).value().n_layers - 1);
    return name.ends_with("." + last + ".layer_scalar") || name == "blk." + last + ".layer_output_scale.weight" ||
           name == "rope_freqs.weight" || name.find(".vision_") != std::string::npos;  // a tower stays unread
  }

  // Of the tensors of single experts most: one that no token uses moves nothing.
  static void expect_each_moves(const ModelFile& file) {
    const std::vector<float> expected = logits_of(file, -1);
    int64_t n_of_experts = 0, n_still = 0;
    for (int64_t i = 0; i < std::ssize(file.tensors()); ++i) {
      const TensorInfo& tensor = file.tensors()[static_cast<size_t>(i)];
      ASSERT_EQ(tensor.view.dtype, DType::kF32);
      if (cannot_move(file, tensor.name)) continue;
      const std::vector<float> moved = logits_of(file, i);
      double most = 0;
      for (size_t j = 0; j < moved.size(); ++j) most = std::fmax(most, std::fabs(moved[j] - expected[j]));
      const bool is_of_expert = tensor.name.find(".experts.") != std::string::npos;
      n_of_experts += is_of_expert;
      n_still += is_of_expert && most == 0;
      if (!is_of_expert || most != 0) {
        EXPECT_GT(most, is_of_expert ? 1e-4 : 5e-3) << tensor.name;
      }
    }
    EXPECT_LE(8 * n_still, n_of_experts);
  }
};

TEST_P(EachTensor, OfTheFolderMovesTheLogits) {
  const Result<ModelFile> file = open();
  ASSERT_TRUE(file.ok()) << file.error().message;
  expect_each_moves(*file);
}

TEST_P(EachTensor, OfTheGgufMovesTheLogits) {
  const Result<ModelFile> file = open();
  ASSERT_TRUE(file.ok());
  const Result<ModelFile> gguf = testing::as_gguf(*file);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  expect_each_moves(*gguf);
}

INSTANTIATE_TEST_SUITE_P(WithExperts, EachTensor,
                         ::testing::Values("qwen3moe", "qwen2moe", "mixtral", "olmoe", "granitemoe", "glm4moe", "dots1",
                                           "minimax_m2", "ernie4_5_moe", "hunyuan_moe", "hy_v3", "lfm2", "lfm2moe",
                                           "qwen3next", "qwen35", "qwen35moe", "gpt_oss", "deepseek_v3", "deepseek_v2",
                                           "glm4_moe_lite", "granitehybrid", "granitehybrid_dense", "nemotron_h",
                                           "nemotron_h_moe", "falcon_h1", "falcon_h1_norm", "mistral4"),
                         [](const auto& test) { return std::string(test.param); });

INSTANTIATE_TEST_SUITE_P(Dense, EachTensor,
                         ::testing::Values("granite", "seed_oss", "ministral3", "ernie4_5", "hunyuan_dense", "olmo2",
                                           "olmo3", "exaone4", "glm4", "cohere2", "nemotron", "gpt2", "bloom", "mpt",
                                           "gemma2", "gemma4", "gemma4_moe", "muse_glimmer"),
                         [](const auto& test) { return std::string(test.param); });

// A layer's experts may lie in one tensor, gate above up, as transformers holds them.
TEST(Experts, OfAFolderMayLieInOneTensor) {
  Result<ModelFile> apart = ModelFile::open(source_dir() + "/tests/golden/qwen3moe");
  ASSERT_TRUE(apart.ok());
  const Result<ModelFile> gguf = testing::as_gguf(*apart);
  ASSERT_TRUE(gguf.ok());
  ModelFile::Parts parts;
  parts.container = Container::kSafetensors;
  parts.path = "stacked";
  parts.metadata = apart->metadata();
  for (const TensorInfo& t : apart->tensors()) {
    if (t.name.find(".experts.") == std::string::npos) parts.tensors.push_back(t);
  }
  for (const int l : {0, 2}) {
    const std::string of = "blk." + std::to_string(l) + ".", to = "model.layers." + std::to_string(l) + ".mlp.experts.";
    const TensorView gate = gguf->find(of + "ffn_gate_exps.weight")->view,
                     up = gguf->find(of + "ffn_up_exps.weight")->view;
    const int64_t E = gate.dim[0], F = gate.dim[1], C = gate.dim[2];
    const auto half = static_cast<size_t>(F * gate.row_stride_bytes);
    auto both = std::make_unique<std::byte[]>(2 * half * static_cast<size_t>(E));
    for (int64_t e = 0; e < E; ++e) {
      std::memcpy(both.get() + static_cast<size_t>(2 * e) * half, gate.matrix(e).data, half);
      std::memcpy(both.get() + static_cast<size_t>(2 * e + 1) * half, up.matrix(e).data, half);
    }
    parts.tensors.push_back({to + "gate_up_proj", TensorView(both.get(), DType::kF32, {E, 2 * F, C})});
    parts.tensors.push_back({to + "down_proj", gguf->find(of + "ffn_down_exps.weight")->view});
    parts.copies.push_back(std::move(both));
  }
  LoadedModel one(std::make_shared<ModelFile>(std::move(*apart))),
      stacked(std::make_shared<ModelFile>(std::move(parts)));
  const auto tokens = testing::some_tokens(40, 80);
  EXPECT_EQ(one.logits(tokens), stacked.logits(tokens));
}

// The text part of kimi-k2.5 is deepseek-v3's, and that of mistral small 4 is a mistral 3's.
TEST(LatentAttention, MayBeThatOfATextModelBesideATower) {
  struct Kind {
    const char *golden, *outer, *inner;
  };
  for (const auto& [golden, outer, inner] :
       {Kind{"deepseek_v3", "kimi_k25", "kimi_k2"}, Kind{"mistral4", "mistral3", "mistral4"}}) {
    SCOPED_TRACE(outer);
    Result<ModelFile> alone = ModelFile::open(source_dir() + "/tests/golden/" + golden);
    const Result<ModelFile> source = ModelFile::open(source_dir() + "/tests/golden/" + golden);
    ASSERT_TRUE(alone.ok() && source.ok());
    ModelFile::Parts parts;
    parts.container = Container::kSafetensors;
    parts.path = "beside a tower";
    for (const auto& [key, value] : source->metadata()) parts.metadata["text_config." + key] = value;
    parts.metadata["text_config.model_type"] = std::string(inner);
    parts.metadata["model_type"] = std::string(outer);
    for (const TensorInfo& t : source->tensors()) parts.tensors.push_back({"language_model." + t.name, t.view});
    for (const char* name : {"vision_tower.patch_embed.weight", "mm_projector.proj.0.weight"})
      parts.tensors.push_back({name, source->tensors().front().view});
    LoadedModel one(std::make_shared<ModelFile>(std::move(*alone))),
        beside(std::make_shared<ModelFile>(std::move(parts)));
    const auto tokens = testing::some_tokens(40, 80);
    EXPECT_EQ(one.logits(tokens), beside.logits(tokens));
  }
}

// Layers that draft stay unread: folders of Qwen3-Next have them without a key.
TEST(DeltaNets, AFolderMayHaveALayerThatDrafts) {
  const std::string path = source_dir() + "/tests/golden/qwen35";
  Result<ModelFile> plain = ModelFile::open(path);
  const Result<ModelFile> source = ModelFile::open(path);
  ASSERT_TRUE(plain.ok() && source.ok());
  ModelFile::Parts parts;
  parts.container = Container::kSafetensors;
  parts.path = "with a layer that drafts";
  parts.metadata = source->metadata();
  parts.tensors = source->tensors();
  for (const char* name : {"mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight"}) {
    parts.tensors.push_back(parts.tensors.front());
    parts.tensors.back().name = name;
  }
  LoadedModel without(std::make_shared<ModelFile>(std::move(*plain))),
      with(std::make_shared<ModelFile>(std::move(parts)));
  EXPECT_EQ(without.model->config().n_mtp_layers, 0);
  EXPECT_EQ(with.model->config().n_mtp_layers, 1);
  const auto tokens = testing::some_tokens(40, 80);
  EXPECT_EQ(without.logits(tokens), with.logits(tokens));
}

}  // namespace
}  // namespace ibid
