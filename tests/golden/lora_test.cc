// Adapters of low rank against peft (tools/make_golden_lora.py): the logits of tiny models with an adapter on, from a
// folder and from a GGUF of the same weights, of an adapter's folder and of its GGUF; and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "base/json.h"
#include "format/requantise.h"
#include "format/safetensors.h"
#include "model/adapter_file.h"
#include "model/merged_adapters.h"
#include "model/testing/config_as_gguf.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"
#include "temp_folder.h"

namespace ibid {
namespace {

using testing::LoadedModel;

std::string folder() { return source_dir() + "/tests/golden/lora/"; }

std::string base_of(const std::string& adapter) {
  const Result<MappedFile> config = MappedFile::open(folder() + adapter + "/adapter_config.json");
  EXPECT_TRUE(config.ok());
  return *parse_json(config->text())->find("base_model_name_or_path")->string();
}

std::shared_ptr<const ModelFile> base_file(const std::string& adapter, bool as_gguf) {
  Result<ModelFile> file = ModelFile::open(source_dir() + "/tests/golden/" + base_of(adapter));
  EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
  if (!as_gguf) return std::make_shared<ModelFile>(std::move(file).value());
  Result<ModelFile> gguf = testing::as_gguf(*file);
  EXPECT_TRUE(gguf.ok()) << (gguf ? "" : gguf.error().message);
  return std::make_shared<ModelFile>(std::move(gguf).value());
}

constexpr ModelOptions kOptions = {
    .step_tokens = 128, .max_rows = 128, .max_adapters = 2, .max_adapter_rank = kMaxAdapterRank};

struct Expected {
  explicit Expected(const std::string& adapter) {
    Result<MappedFile> mapped = MappedFile::open(folder() + adapter + ".safetensors");
    EXPECT_TRUE(mapped.ok());
    file = std::move(mapped).value();
    EXPECT_TRUE(read_safetensors(file, tensors, copies).ok());
    for (const TensorInfo& t : tensors) {
      if (t.name == "logits") logits = t.view;
      if (t.name != "tokens" && t.name != "greedy") continue;
      for (int64_t i = 0; i < t.view.row_len(); ++i)
        (t.name == "tokens" ? tokens : greedy).push_back(TokenId{t.view.row_as<const int32_t>(0)[i]});
    }
  }
  MappedFile file;
  std::vector<TensorInfo> tensors;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  TensorView logits;
  std::vector<TokenId> tokens, greedy;
};

void compare(const std::string& adapter, const std::string& path, bool as_gguf) {
  SCOPED_TRACE(path + (as_gguf ? " on the GGUF" : " on the folder"));
  const std::shared_ptr<const ModelFile> file = base_file(adapter, as_gguf);
  LoadedModel m(file, kOptions);
  ASSERT_NE(m.model, nullptr);
  const auto read = read_adapter(path, *file, *m.model, *m.stream);
  ASSERT_TRUE(read.ok()) << read.error().message;
  const auto placed = m.model->adapters()->place(*read);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  const OneSequenceOptions with = {.kv_dtype = DType::kF32, .adapter = (*placed)->slot};
  const Expected expected(adapter);
  const std::vector<float> logits = m.logits(expected.tokens, with);
  ASSERT_EQ(std::ssize(logits), expected.logits.n_elements());
  const auto* want = expected.logits.row_as<const float>(0);
  double worst = 0, largest = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    worst = std::fmax(worst, std::isfinite(logits[i]) ? std::fabs(double{logits[i]} - double{want[i]}) : INFINITY);
    largest = std::fmax(largest, std::fabs(double{want[i]}));
  }
  EXPECT_LE(worst, 1e-4 * largest);
  std::vector<TokenId> tokens = expected.tokens;
  for (const TokenId next : expected.greedy) {
    const std::vector<float> all = m.logits(tokens, with);
    const auto row = all.end() - static_cast<ptrdiff_t>(m.model->config().vocab_size);
    ASSERT_EQ(TokenId{static_cast<int32_t>(std::max_element(row, all.end()) - row)}, next) << tokens.size();
    tokens.push_back(next);
  }
}

class LoraGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(LoraGolden, LogitsAreThoseOfPeft) {
  compare(GetParam(), folder() + GetParam(), false);
  compare(GetParam(), folder() + GetParam(), true);
}

INSTANTIATE_TEST_SUITE_P(Adapters, LoraGolden,
                         ::testing::Values("llama", "llama_minimal", "llama_zero", "llama_patterns", "llama_rslora",
                                           "llama_regex", "llama_all_linear", "qwen2", "qwen3", "phi3", "gemma3",
                                           "gpt2", "granitehybrid_dense", "lfm2", "qwen3moe", "qwen3moe_experts",
                                           "qwen35_vl", "qwen35_vl_old_names", "qwen3next"),
                         [](const auto& test) { return std::string(test.param); });

// The file that `ibid quantize --lora` writes, without an adapter beside it.
std::string merged_file(const std::string& adapter, std::span<const AdapterToMerge> adapters, const std::string& to,
                        int n_threads, QuantMix mix) {
  const std::shared_ptr<const ModelFile> base = base_file(adapter, true);
  ThreadTeam team(n_threads);
  Stream stream(team);
  const Result<MergedAdapters> merged = MergedAdapters::read(adapters, base, stream);
  EXPECT_TRUE(merged.ok()) << merged.error().message;
  if (!merged.ok()) return "";
  EXPECT_GT(merged->n_tensors(), 0u);
  const ModelConfig config = read_config(*base).value();
  const Result<Requantised> made = requantise(
      *base, to,
      {.types = {.mix = mix}, .architecture = config.architecture, .n_layers = config.n_layers, .terms = &*merged},
      team);
  EXPECT_TRUE(made.ok()) << made.error().message;
  const Result<MappedFile> written = MappedFile::open(to);
  EXPECT_TRUE(written.ok());
  return std::string(written->text());
}

TEST_P(LoraGolden, MergedFilesHaveTheLogitsOfPeft) {
  const std::string adapter = GetParam();
  const TempFolder out;
  const std::vector<AdapterToMerge> one = {{.path = folder() + adapter}};
  const std::string path = out.path() + "/merged.gguf";
  const std::string bytes = merged_file(adapter, one, path, 1, QuantMix::kF32);
  EXPECT_EQ(bytes, merged_file(adapter, one, out.path() + "/again.gguf", 2, QuantMix::kF32)) << "threads";
  LoadedModel m(std::make_shared<const ModelFile>(ModelFile::open(path).value()),
                {.step_tokens = 128, .max_rows = 128});
  ASSERT_NE(m.model, nullptr);
  const Expected expected(adapter);
  const std::vector<float> logits = m.logits(expected.tokens, {.kv_dtype = DType::kF32});
  ASSERT_EQ(std::ssize(logits), expected.logits.n_elements());
  const auto* want = expected.logits.row_as<const float>(0);
  double worst = 0, largest = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    worst = std::fmax(worst, std::isfinite(logits[i]) ? std::fabs(double{logits[i]} - double{want[i]}) : INFINITY);
    largest = std::fmax(largest, std::fabs(double{want[i]}));
  }
  EXPECT_LE(worst, 3e-4 * largest);  // weights were rounded once more than peft's sums
}

// Half of it twice is all of it, but for what is rounded between; of no rank at all, the base.
TEST(LoraGolden, MergedScalesAdd) {
  const TempFolder out;
  const auto weights = [&](std::span<const AdapterToMerge> adapters) {
    merged_file("llama", adapters, out.path() + "/m.gguf", 2, QuantMix::kF32);
    const ModelFile file = ModelFile::open(out.path() + "/m.gguf").value();
    const TensorInfo* q = file.find("blk.0.attn_q.weight");
    return std::vector<float>(q->view.row_as<const float>(0), q->view.row_as<const float>(0) + q->view.n_elements());
  };
  const std::string path = folder() + "llama";
  const auto once = weights(std::vector<AdapterToMerge>{{.path = path}});
  const auto twice = weights(std::vector<AdapterToMerge>{{.path = path, .scale = 0.5}, {.path = path, .scale = 0.5}});
  const auto none = weights(std::vector<AdapterToMerge>{{.path = path, .scale = 0}});
  const std::shared_ptr<const ModelFile> base = base_file("llama", true);
  const auto* own = base->find("blk.0.attn_q.weight")->view.row_as<const float>(0);
  double changed = 0;
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_NEAR(twice[i], once[i], 1e-6);
    EXPECT_EQ(none[i], own[i]);
    changed = std::fmax(changed, std::fabs(double{once[i]} - double{own[i]}));
  }
  EXPECT_GT(changed, 1e-3);
}

TEST(LoraGolden, WhatCannotBeMergedIsRefused) {
  ThreadTeam team(1);
  Stream stream(team);
  const auto refusal = [&](const std::string& adapter, bool as_gguf) {
    const std::vector<AdapterToMerge> one = {{.path = folder() + adapter}};
    const auto read = MergedAdapters::read(one, base_file("llama", as_gguf), stream);
    return read.ok() ? std::string() : read.error().message;
  };
  EXPECT_NE(refusal("llama", false).find("ibid convert"), std::string::npos);
  EXPECT_NE(refusal("qwen3moe", true).find("no product"), std::string::npos);
  EXPECT_NE(refusal("refused/dora", true).find("use_dora"), std::string::npos);
}

TEST(LoraGolden, GgufAdaptersAreThoseOfTheirFolders) {
  for (const char* adapter : {"llama", "llama_minimal", "qwen3", "qwen3moe_experts"})
    compare(adapter, folder() + adapter + ".gguf", true);
}

TEST(LoraGolden, AGgufAdapterOfAFolderIsRefused) {
  const std::shared_ptr<const ModelFile> file = base_file("llama", false);
  LoadedModel m(file, kOptions);
  const auto read = read_adapter(folder() + "llama.gguf", *file, *m.model, *m.stream);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("the model is a folder"), std::string::npos) << read.error().message;
}

// Each with what its sentence must name.
TEST(LoraGolden, RefusedAdaptersAreNamed) {
  const std::map<std::string, std::string> kReasons = {
      {"a_missing", "no second matrix"},
      {"alora", "alora_invocation_tokens"},
      {"alpha_infinite", "adapter_config.json"},
      {"alpha_nan", "adapter_config.json"},
      {"alpha_nan_as_text", "lora_alpha"},
      {"b_missing", "no second matrix"},
      {"dora", "use_dora"},
      {"lora_bias", "bias"},
      {"modules_to_save", "modules_to_save"},
      {"not_lora", "peft_type"},
      {"one_dimension", "shapes"},
      {"rank_not_of_tensors", "states another"},
      {"trainable_tokens", "trainable_token_indices"},
      {"unknown_layer", "no product"},
      {"unknown_module", "no product"},
      {"wrong_inputs", "shapes"},
      {"weights_pickled", "adapter_model.bin"},
      {"wrong_outputs", "shapes"},
      {"adapter_type.gguf", "adapter.type"},
      {"alpha_missing.gguf", "adapter.lora.alpha"},
      {"architecture.gguf", "the model is of"},
      {"norm.gguf", "no matrix"},
      {"unknown_module.gguf", "no product"},
      {"wrong_inputs.gguf", "shapes"},
  };
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder() + "refused")) {
    ++n;
    const std::string name = entry.path().filename().string();
    const std::shared_ptr<const ModelFile> file = base_file("llama", name.ends_with(".gguf"));
    LoadedModel m(file, kOptions);
    const auto read = read_adapter(entry.path().string(), *file, *m.model, *m.stream);
    ASSERT_FALSE(read.ok()) << name;
    const auto reason = kReasons.find(name);
    if (reason != kReasons.end()) {
      EXPECT_NE(read.error().message.find(reason->second), std::string::npos) << name << ": " << read.error().message;
    }
  }
  EXPECT_GE(n, 40);
}

// What is no product of the model changes the answers too: it is refused, and by its name.
TEST(LoraGolden, AdaptersOfEmbeddingsAreRefused) {
  for (const char* adapter : {"llama_embeddings", "llama_embeddings_saved", "llama_tied_embeddings"}) {
    const std::shared_ptr<const ModelFile> file = base_file(adapter, false);
    LoadedModel m(file, kOptions);
    const auto read = read_adapter(folder() + adapter, *file, *m.model, *m.stream);
    ASSERT_FALSE(read.ok()) << adapter;
    EXPECT_TRUE(read.error().message.find("embed_tokens") != std::string::npos ||
                read.error().message.find("lm_head.base_layer") != std::string::npos)
        << read.error().message;
  }
}

}  // namespace
}  // namespace ibid
