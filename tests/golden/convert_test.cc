// Folders of the goldens written as GGUF files: the model, its tokens and its keys are the folder's.
#include "model/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "base/sha256.h"
#include "format/quantised_matrix.h"
#include "model/testing/loaded_model.h"
#include "model/tokenizer_of_model.h"
#include "source_paths.h"
#include "temp_folder.h"
#include "tensor/dequantise.h"
#include "text/tokenizer/json_vocabulary.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::some_tokens;

// A byte-level BPE of 80 tokens, as the goldens embed; `model` and `cuts` are a family's.
std::string byte_level_json(const std::string& normalizer, const std::string& cuts, bool ignore_merges) {
  std::vector<std::string> tokens = {"<s>", "</s>"};
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  for (char c = '0'; c <= '9'; ++c) tokens.emplace_back(1, c);
  for (const char* more : {"\xC4\xA0", "\xC4\x8A", ".", ",", "'", "!", "H", "W", "T", "S", "\xC3\x83", "\xC2\xA9"}) {
    tokens.emplace_back(more);
  }
  std::string merges;
  for (const auto& [left, right] : {std::pair("t", "h"),
                                    {"th", "e"},
                                    {"l", "l"},
                                    {"e", "ll"},
                                    {"1", "2"},
                                    {"12", "3"},
                                    {"\xC4\xA0", "the"},
                                    {"'", "s"},
                                    {"\xC4\xA0", "\xC4\xA0"}}) {
    merges += std::string(merges.empty() ? "" : ",") + "[\"" + left + "\",\"" + right + "\"]";
    tokens.push_back(std::string(left) + right);
  }
  std::string vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    vocab += (i == 0 ? "\"" : ",\"") + tokens[i] + "\":" + std::to_string(i);
  }
  const auto special = [](int id, const char* text) {
    return R"({"id":)" + std::to_string(id) + R"(,"content":")" + text +
           R"(","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false})";
  };
  return R"({"added_tokens":[)" + special(0, "<s>") + "," + special(1, "</s>") + R"(],"normalizer":)" + normalizer +
         R"(,"pre_tokenizer":)" + cuts + R"(,"post_processor":null,"decoder":{"type":"ByteLevel"},)" +
         R"("model":{"type":"BPE","ignore_merges":)" + (ignore_merges ? "true" : "false") + R"(,"vocab":{)" + vocab +
         R"(},"merges":[)" + merges + "]}}";
}

const char* kConfig =
    R"({"bos_token":"<s>","eos_token":"</s>","chat_template":"{% for m in messages %}{{ m.content }}{% endfor %}"})";
const char* kPlainCuts = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";

std::string split_by(const std::string& pattern) {
  return R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" + pattern +
         R"("},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
}
// The JSON text of Qwen 2's and Llama 3's.
const std::string kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
const std::string kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";

class Convert : public ::testing::Test {
 protected:
  // A golden's folder, with a tokenizer.
  std::string folder_of(const std::string& golden) {
    const std::string to = temp_.path(golden);
    std::filesystem::copy(source_dir() + "/tests/golden/" + golden, to);
    std::ofstream(to + "/tokenizer.json") << byte_level_json(R"({"type":"NFC"})", split_by(kQwen2), false);
    std::ofstream(to + "/tokenizer_config.json") << kConfig;
    std::ofstream(to + "/generation_config.json") << R"({"temperature":0.7,"top_k":20,"eos_token_id":[1,5]})";
    return to;
  }
  static std::shared_ptr<const ModelFile> open(const std::string& path) {
    Result<ModelFile> file = ModelFile::open(path);
    EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
    return file ? std::make_shared<ModelFile>(std::move(file).value()) : nullptr;
  }
  std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempFolder temp_;
  ThreadTeam team_{2};
};

// Rotated pairs, or value heads, lie elsewhere in the files of these, and sums over them run in another order.
bool has_values_elsewhere(const std::string& golden) {
  static const std::set<std::string> kMoved = {"llama",   "llama_tied", "llama3_rope", "mixtral", "smollm3",
                                               "granite", "granitemoe", "ministral3",  "qwen35"};
  return kMoved.contains(golden);
}

class ConvertOf : public Convert, public ::testing::WithParamInterface<const char*> {};

TEST_P(ConvertOf, AFolderGivesTheLogitsAndTheTokensOfTheFolder) {
  const std::string path = folder_of(GetParam()), to = temp_.path("made.gguf");
  const std::shared_ptr<const ModelFile> folder = open(path);
  ASSERT_NE(folder, nullptr);
  const auto made = convert(*folder, to, {.types = TypeRules{.mix = QuantMix::kF32}, .name = "tiny"}, team_);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(made->has_vocabulary);
  EXPECT_EQ(made->n_left_out, 0);
  const std::shared_ptr<const ModelFile> file = open(to);
  ASSERT_NE(file, nullptr);
  LoadedModel a(folder), b(file);
  ASSERT_NE(a.model, nullptr);
  ASSERT_NE(b.model, nullptr);
  const std::vector<TokenId> tokens = some_tokens(40, 80);
  const std::vector<float> x = a.logits(tokens), y = b.logits(tokens);
  ASSERT_EQ(x.size(), y.size());
  if (has_values_elsewhere(GetParam())) {
    float largest = 0, worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      worst = std::max(worst, std::abs(x[i] - y[i]));
    }
    EXPECT_LE(worst, 1e-3f * largest);
  } else {
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0);
  }

  const auto was = load_tokenizer(*folder), is = load_tokenizer(*file);
  ASSERT_TRUE(was) << was.error().message;
  ASSERT_TRUE(is) << is.error().message;
  for (const char* text : {"the bell's 123 tolls.\n\n  Hello, World!", "caf\xC3\xA9 1234567"}) {
    EXPECT_EQ((*was)->encode(text), (*is)->encode(text)) << text;
  }
  EXPECT_EQ(chat_template_of(*folder, **was), chat_template_of(*file, **is));
  EXPECT_EQ(end_of_generation_of(*folder, **was), end_of_generation_of(*file, **is));
  EXPECT_EQ(file->meta_string("tokenizer.ggml.pre").value(), "qwen2");
  EXPECT_EQ(file->meta_strings("tokenizer.ggml.tokens").value().size(), 80u);
  EXPECT_EQ(file->meta_float("general.sampling.temp").value(), 0.7);
  EXPECT_EQ(file->meta_string("general.name").value(), "tiny");
}

INSTANTIATE_TEST_SUITE_P(Goldens, ConvertOf,
                         ::testing::Values("llama", "llama_tied", "llama3_rope", "qwen2", "qwen3", "gemma2", "gemma3",
                                           "gemma4", "qwen3moe", "qwen2moe", "mixtral", "olmoe", "phi3", "smollm3",
                                           "olmo2", "glm4", "lfm2", "qwen3next", "qwen35", "gpt_oss", "deepseek_v2",
                                           "seed_oss", "glm4moe", "hy_v3"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(Convert, AFileDoesNotDependOnThreads) {
  const std::shared_ptr<const ModelFile> folder = open(folder_of("qwen3"));
  ThreadTeam one(1), three(3);
  ASSERT_TRUE(convert(*folder, temp_.path("one.gguf"), {.types = TypeRules{.mix = QuantMix::kQ8_0}}, one));
  ASSERT_TRUE(convert(*folder, temp_.path("three.gguf"), {.types = TypeRules{.mix = QuantMix::kQ8_0}}, three));
  EXPECT_EQ(bytes_of(temp_.path("one.gguf")), bytes_of(temp_.path("three.gguf")));
}

TEST_F(Convert, VectorsAndRoutersStayFloats) {
  const std::shared_ptr<const ModelFile> folder = open(folder_of("qwen3moe"));
  const std::string to = temp_.path("made.gguf");
  ASSERT_TRUE(convert(*folder, to, {.types = TypeRules{.mix = QuantMix::kQ8_0}}, team_));
  const std::shared_ptr<const ModelFile> file = open(to);
  for (const TensorInfo& t : file->tensors()) {
    const bool is_float = t.view.rank == 1 || t.name.find("ffn_gate_inp.") != std::string::npos;
    EXPECT_EQ(t.view.dtype, is_float ? DType::kF32 : t.view.row_len() % 32 != 0 ? DType::kF16 : DType::kQ8_0) << t.name;
  }
  EXPECT_EQ(file->meta_int("general.file_type").value(), 7);
}

TEST_F(Convert, WhatItCannotWriteIsNamedAndLeavesNoFile) {
  const std::string to = temp_.path("made.gguf"), path = folder_of("qwen3");
  const auto refused = [&](const std::string& because) {
    const auto made = convert(*open(path), to, {}, team_);
    ASSERT_FALSE(made) << because;
    EXPECT_NE(made.error().message.find(because), std::string::npos) << made.error().message;
    EXPECT_FALSE(std::filesystem::exists(to));
    EXPECT_FALSE(std::filesystem::exists(to + ".partial"));
  };
  std::ofstream(path + "/tokenizer.json") << byte_level_json(R"({"type":"Lowercase"})", kPlainCuts, false);
  refused("no normalizer but NFC");
  std::ofstream(path + "/tokenizer.json")
      << byte_level_json("null",
                         R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"[aeiou]"},)"
                         R"("behavior":"Isolated","invert":false},)" +
                             std::string(kPlainCuts) + "]}",
                         false);
  refused("no name for how");
  std::ofstream(path + "/tokenizer.json") << "{\"model\":";
  refused("");
}

std::vector<float> values_of(const ModelFile& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  EXPECT_NE(info, nullptr) << name;
  if (info == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(info->view.n_elements()));
  dequantise(info->view, values.data());
  return values;
}

// What llama.cpp's converter writes of the same folders (bench/compare_tensors.py): names, shapes and bits.
TEST_F(Convert, TheTensorsAreThoseOfTheFieldsConverter) {
  std::ifstream lines(source_dir() + "/tests/golden/converted.txt");
  std::string golden, digest;
  int n = 0;
  for (; lines >> golden >> digest; ++n) {
    const std::string to = temp_.path("made.gguf");
    const auto made = convert(*open(source_dir() + "/tests/golden/" + golden), to,
                              {.types = TypeRules{.mix = QuantMix::kF32}}, team_);
    ASSERT_TRUE(made) << golden << ": " << made.error().message;
    const std::shared_ptr<const ModelFile> file = open(to);
    std::map<std::string, TensorView> sorted;
    for (const TensorInfo& t : file->tensors()) sorted[t.name] = t.view;
    std::string all;
    for (const auto& [name, view] : sorted) {
      all += name;
      for (int i = 0; i < view.rank; ++i) all += " " + std::to_string(view.dim[static_cast<size_t>(i)]);
      all += "\n";
      all.append(reinterpret_cast<const char*>(view.data), static_cast<size_t>(view.n_elements()) * sizeof(float));
    }
    EXPECT_EQ(sha256_hex(all), digest) << golden;
  }
  EXPECT_GE(n, 40);
}

// Every one of tests/golden/quantised: the file has the very values that the folder is read as, whether its codes are
// kept or become floats.
TEST_F(Convert, AQuantisedFoldersMatricesKeepTheirValues) {
  const std::map<std::string, std::string> of_folder = {
      {"attn_v.weight", "self_attn.v_proj.weight"}, {"attn_output.weight", "self_attn.o_proj.weight"},
      {"ffn_gate.weight", "mlp.gate_proj.weight"},  {"ffn_up.weight", "mlp.up_proj.weight"},
      {"ffn_down.weight", "mlp.down_proj.weight"},  {"attn_q.weight", "self_attn.q_proj.weight"},
      {"attn_k.weight", "self_attn.k_proj.weight"}};
  int n_folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/tests/golden/quantised")) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename();
    const std::shared_ptr<const ModelFile> folder = open(entry.path());
    const std::string kept = temp_.path("kept.gguf"), floats = temp_.path("floats.gguf");
    const auto made = convert(*folder, kept, {}, team_);
    ASSERT_TRUE(made) << name << ": " << made.error().message;
    EXPECT_EQ(made->n_kept, 7) << name;
    EXPECT_EQ(made->n_left_out, 0) << name;
    const auto in_floats = convert(*folder, floats, {.types = TypeRules{.mix = QuantMix::kF32}}, team_);
    ASSERT_TRUE(in_floats) << name << ": " << in_floats.error().message;
    const std::shared_ptr<const ModelFile> a = open(kept), b = open(floats);
    const QuantRecipe recipe = read_quant_recipe(*folder).value();
    for (const auto& [gguf, canonical] : of_folder) {
      const TensorView v = a->tensor("blk.0." + gguf).value();
      const int64_t N = v.dim[0], K = v.dim[1];
      const auto matrix = QuantisedMatrix::find(*folder, recipe, "model.layers.0." + canonical, N, K);
      ASSERT_TRUE(matrix) << name << matrix.error().message;
      EXPECT_EQ(v.dtype, matrix->dtype()) << name << gguf;
      std::vector<std::byte> rows(static_cast<size_t>(N * row_bytes(v.dtype, K)));
      matrix->rows(0, N, rows.data());
      std::vector<float> want(static_cast<size_t>(N * K));
      dequantise(TensorView(rows.data(), v.dtype, {N, K}), want.data());
      if (gguf == "attn_q.weight" || gguf == "attn_k.weight") {  // pairs that turn lie side by side
        const std::vector<float> was = want;
        for (int64_t n = 0; n < N; ++n) {
          const int64_t from = n / 16 * 16 + n % 2 * 8 + n % 16 / 2;
          std::copy_n(was.begin() + from * K, K, want.begin() + n * K);
        }
      }
      EXPECT_EQ(values_of(*a, "blk.0." + gguf), want) << name << " " << gguf;
      EXPECT_EQ(values_of(*b, "blk.0." + gguf), want) << name << " " << gguf;
    }
    LoadedModel of_kept(a);
    ASSERT_NE(of_kept.model, nullptr) << name;
    ++n_folders;
  }
  EXPECT_EQ(n_folders, 32);
}

TEST_F(Convert, AQuantisedFolderIsQuantisedAgainOnlyWhereThatIsAskedFor) {
  const std::shared_ptr<const ModelFile> folder = open(source_dir() + "/tests/golden/quantised/awq4");
  const std::string to = temp_.path("made.gguf");
  const TypeRules q8_0 = {.mix = QuantMix::kQ8_0};
  const auto made = convert(*folder, to, {.types = q8_0}, team_);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("is quantised already"), std::string::npos) << made.error().message;
  EXPECT_FALSE(std::filesystem::exists(to));
  const auto again = convert(*folder, to, {.types = q8_0, .requantises = true}, team_);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(open(to)->tensor("blk.0.attn_v.weight").value().dtype, DType::kQ8_0);
  EXPECT_EQ(again->n_kept, 0);
  // The type that it has already is no other.
  const auto same = convert(*folder, to, {.types = TypeRules{.mix = QuantMix::kQ5_0}}, team_);
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->n_kept, 7);
}

// A folder of gpt-oss with experts of MXFP4: the file's codes are the folder's, gate and up apart.
TEST_F(Convert, ExpertsOfMxfp4KeepTheirCodes) {
  const std::shared_ptr<const ModelFile> plain = open(source_dir() + "/tests/golden/gpt_oss");
  ModelFile::Parts parts;
  parts.container = Container::kSafetensors;
  parts.path = "folder";
  parts.metadata = plain->metadata();
  parts.metadata["intermediate_size"] = int64_t{32};  // whole blocks
  parts.quant_recipe_json = R"({"quant_method":"mxfp4"})";
  static float zeros[1024];
  uint32_t state = 1;
  const auto add = [&](const std::string& name, std::initializer_list<int64_t> dims, int least, int range) {
    const TensorView shape(nullptr, DType::kI8, dims);
    auto bytes = std::make_unique<std::byte[]>(static_cast<size_t>(shape.n_elements()));
    for (int64_t i = 0; i < shape.n_elements(); ++i)
      bytes[static_cast<size_t>(i)] =
          static_cast<std::byte>(least + (state = state * 1664525 + 1013904223) / 65536 % static_cast<uint32_t>(range));
    parts.tensors.push_back({name, TensorView(bytes.get(), DType::kI8, dims)});
    parts.copies.push_back(std::move(bytes));
  };
  for (const TensorInfo& t : plain->tensors()) {
    const bool is_both = t.name.ends_with("experts.gate_up_proj");
    if (t.name.ends_with("experts.gate_up_proj_bias")) {
      parts.tensors.push_back({t.name, TensorView(zeros, DType::kF32, {t.view.dim[0], 64})});
    } else if (is_both || t.name.ends_with("experts.down_proj")) {
      const int64_t E = t.view.dim[0], C = is_both ? t.view.dim[1] : t.view.dim[2], N = is_both ? 64 : C;
      add(t.name + "_blocks", {E, N, is_both ? C / 32 : 1, 16}, 0, 256);
      add(t.name + "_scales", {E, N, is_both ? C / 32 : 1}, 118, 6);
    } else {
      parts.tensors.push_back(t);
    }
  }
  const ModelFile folder(std::move(parts));
  const auto made = convert(folder, temp_.path("made.gguf"), {}, team_);
  ASSERT_TRUE(made) << made.error().message;
  const auto in_floats = convert(folder, temp_.path("floats.gguf"), {.types = TypeRules{.mix = QuantMix::kF32}}, team_);
  ASSERT_TRUE(in_floats) << in_floats.error().message;
  const std::shared_ptr<const ModelFile> a = open(temp_.path("made.gguf")), b = open(temp_.path("floats.gguf"));
  const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (const auto& [gguf, own, first, step] : {std::tuple("ffn_gate_exps", "gate_up_proj", 0, 2),
                                               {"ffn_up_exps", "gate_up_proj", 1, 2},
                                               {"ffn_down_exps", "down_proj", 0, 1}}) {
    const std::string name = std::string("blk.0.") + gguf + ".weight",
                      from = std::string("model.layers.0.mlp.experts.") + own;
    const TensorView v = a->tensor(name).value(), blocks = folder.tensor(from + "_blocks").value(),
                     scales = folder.tensor(from + "_scales").value();
    EXPECT_EQ(v.dtype, DType::kMXFP4);
    const int64_t N = v.dim[1], K = v.dim[2];
    std::vector<float> want(static_cast<size_t>(v.n_elements()));
    for (int64_t i = 0; i < std::ssize(want); ++i) {
      const int64_t e = i / (N * K), row = e * N * step + i / K % N * step + first, k = i % K;
      const int byte = static_cast<int>(blocks.data[(row * K + k) / 2]), code = byte >> (k % 2 * 4) & 15;
      const int exponent = static_cast<int>(scales.data[row * (K / 32) + k / 32]) - 127;
      want[static_cast<size_t>(i)] = std::ldexp(code < 8 ? e2m1[code] : -e2m1[code - 8], exponent);
    }
    EXPECT_EQ(values_of(*a, name), want) << name;
    EXPECT_EQ(values_of(*b, name), want) << name;
  }
}

// Folders that lie end in a sentence, and no file appears.
TEST_F(Convert, AQuantisedFolderThatLiesIsNamed) {
  const std::shared_ptr<const ModelFile> folder = open(source_dir() + "/tests/golden/quantised/ct4");
  const std::string q = "model.layers.0.self_attn.q_proj.weight", to = temp_.path("made.gguf");
  using Change = std::function<void(ModelFile::Parts&, TensorInfo&)>;
  const std::tuple<const char*, std::string, Change> changes[] = {
      {"no scale", "_scale",
       [](auto& parts, auto& t) { std::erase_if(parts.tensors, [&](auto& x) { return x.name == t.name; }); }},
      {"a scale for too few rows", "_scale",
       [](auto&, auto& t) {
         t.view = TensorView(t.view.data, t.view.dtype, {1, 2});
       }},
      {"codes of another matrix", "_packed",
       [](auto&, auto& t) {
         t.view = TensorView(t.view.data, t.view.dtype, {32, 8});
       }},
      {"another shape", "_shape",
       [](auto&, auto& t) {
         t.view.data = t.view.data + 8;
         t.view = TensorView(t.view.data, t.view.dtype, {1});
       }},
      {"an infinite scale", "_scale",
       [](auto&, auto& t) {
         std::memset(t.view.data, 0x7f, t.bytes());
         std::memset(t.view.data, 0x80, 1);
       }},
  };
  for (const auto& [what, end, change] : changes) {
    ModelFile::Parts parts;
    parts.container = Container::kSafetensors;
    parts.path = "folder";
    parts.metadata = folder->metadata();
    parts.quant_recipe_json = folder->quant_recipe_json();
    for (const TensorInfo& t : folder->tensors()) {
      auto copy = std::make_unique<std::byte[]>(t.bytes());
      std::memcpy(copy.get(), t.view.data, t.bytes());
      parts.tensors.push_back(t);
      parts.tensors.back().view.data = copy.get();
      parts.copies.push_back(std::move(copy));
    }
    for (size_t i = 0; i < parts.tensors.size(); ++i) {
      if (parts.tensors[i].name != q + end) continue;
      change(parts, parts.tensors[i]);
      break;
    }
    const auto made = convert(ModelFile(std::move(parts)), to, {}, team_);
    ASSERT_FALSE(made) << what;
    const std::string& why = made.error().message;
    EXPECT_TRUE(why.find("q_proj") != why.npos || why.find("attn_q") != why.npos) << what << ": " << why;
    EXPECT_FALSE(std::filesystem::exists(to)) << what;
  }
}

TEST_F(Convert, ADryRunWritesNothingAndShardsAreOneModel) {
  const std::shared_ptr<const ModelFile> folder = open(folder_of("qwen3"));
  const std::string to = temp_.path("made.gguf");
  const TypeRules types = {.mix = QuantMix::kQ8_0, .named = {read_named_type("blk\\.0\\.ffn_up=f16").value()}};
  const auto planned = convert(*folder, to, {.types = types, .dry_run = true}, team_);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_FALSE(std::filesystem::exists(to));
  const auto made = convert(*folder, to, {.types = types, .shards = {.max_bytes = 20'000}}, team_);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->weights.bytes, planned->weights.bytes);
  std::string first;
  for (const auto& entry : std::filesystem::directory_iterator(temp_.path())) {
    if (entry.path().filename().string().starts_with("made-00001-of-")) first = entry.path();
  }
  const std::shared_ptr<const ModelFile> file = open(first);
  ASSERT_EQ(file->tensors().size(), planned->weights.tensors.size());
  for (size_t i = 0; i < file->tensors().size(); ++i) {
    EXPECT_EQ(file->tensors()[i].name, planned->weights.tensors[i].name);
    EXPECT_EQ(file->tensors()[i].view.dtype, planned->weights.tensors[i].to);
  }
  EXPECT_EQ(file->find("blk.0.ffn_up.weight")->view.dtype, DType::kF16);
  EXPECT_EQ(file->find("blk.1.ffn_up.weight")->view.dtype, DType::kQ8_0);
}

TEST_F(Convert, AFolderWithoutATokenizerGivesAFileWithoutAVocabulary) {
  const std::string path = folder_of("qwen2"), to = temp_.path("made.gguf");
  std::filesystem::remove(path + "/tokenizer.json");
  const auto made = convert(*open(path), to, {}, team_);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_FALSE(made->has_vocabulary);
  EXPECT_FALSE(open(to)->has_meta("tokenizer.ggml.model"));
  const auto again = convert(*open(to), temp_.path("again.gguf"), {}, team_);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("is a GGUF file already"), std::string::npos);
}

TEST(JsonVocabulary, NamesHowWordsAreCut) {
  const auto name_of = [](const std::string& normalizer, const std::string& cuts, bool ignore_merges) {
    const auto v = vocabulary_from_json(byte_level_json(normalizer, cuts, ignore_merges), kConfig);
    return v ? v->pre_tokenizer : v.error().message;
  };
  EXPECT_EQ(name_of("null", kPlainCuts, false), "gpt-2");
  EXPECT_EQ(name_of(R"({"type":"NFC"})", kPlainCuts, false), "mpt");
  EXPECT_EQ(name_of("null",
                    R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)" +
                        std::string(kPlainCuts) + "]}",
                    false),
            "smollm");
  EXPECT_EQ(name_of(R"({"type":"NFC"})", split_by(kQwen2), false), "qwen2");
  EXPECT_EQ(name_of("null", split_by(kLlama3), true), "llama-bpe");
  EXPECT_EQ(name_of("null", split_by(kLlama3), false), "dbrx");
}

// Llama 2's and Gemma's: characters, bytes for what has no token, merges by rank.
std::string character_json(bool prefix) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  const char* hex = "0123456789ABCDEF";
  for (int i = 0; i < 256; ++i) tokens.push_back(std::string("<0x") + hex[i / 16] + hex[i % 16] + ">");
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  tokens.emplace_back("\xE2\x96\x81");
  std::string merges;
  for (const auto& [left, right] :
       {std::pair("e", "r"), {"t", "h"}, {"h", "e"}, {"th", "e"}, {"t", "he"}, {"\xE2\x96\x81", "the"}, {"l", "l"}}) {
    merges += std::string(merges.empty() ? "" : ",") + "[\"" + left + "\",\"" + right + "\"]";
    const std::string made = std::string(left) + right;
    if (std::ranges::find(tokens, made) == tokens.end()) tokens.push_back(made);
  }
  std::string vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    vocab += (i == 0 ? "\"" : ",\"") + tokens[i] + "\":" + std::to_string(i);
  }
  const std::string marks = R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})";
  const auto special = [](int id, const char* text) {
    return R"({"id":)" + std::to_string(id) + R"(,"content":")" + text +
           R"(","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false})";
  };
  return R"({"added_tokens":[)" + special(0, "<unk>") + "," + special(1, "<s>") + "," + special(2, "</s>") +
         R"(],"normalizer":{"type":"Sequence","normalizers":[)" +
         (prefix ? R"({"type":"Prepend","prepend":"\u2581"},)" : "") + marks +
         R"(]},"pre_tokenizer":null,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":)" +
         R"({"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":)" +
         R"({"id":"<s>","ids":[1],"tokens":["<s>"]}}},"decoder":{"type":"Sequence","decoders":[{"type":"Replace",)" +
         R"("pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"})" +
         (prefix ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "") +
         R"(]},"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{)" + vocab +
         R"(},"merges":[)" + merges + "]}}";
}

TEST(JsonVocabulary, OfCharactersHasScores) {
  for (const bool prefix : {false, true}) {
    const auto v = vocabulary_from_json(character_json(prefix), kConfig);
    ASSERT_TRUE(v) << v.error().message;
    EXPECT_EQ(v->model, VocabularyModel::kSentencePieceBpe);
    EXPECT_EQ(v->add_space_prefix, prefix);
    EXPECT_TRUE(v->add_bos);
    const auto score_of = [&](std::string_view token) {
      return v->scores[static_cast<size_t>(std::ranges::find(v->tokens, token) - v->tokens.begin())];
    };
    EXPECT_GT(score_of("er"), score_of("th"));
    EXPECT_GT(score_of("the"), score_of("ll"));
    EXPECT_GT(score_of("ll"), score_of("a")) << "which no merge makes";
    const auto tokenizer = Tokenizer::from_vocabulary(*v);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(
        (*tokenizer)->encode("the caller", {.add_special = true}),
        Tokenizer::from_json(character_json(prefix), kConfig).value()->encode("the caller", {.add_special = true}));
  }
}

}  // namespace
}  // namespace ibid
