// Folders of the goldens written as GGUF files: the model, its tokens and its keys are the folder's.
#include "model/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "model/testing/loaded_model.h"
#include "model/tokenizer_of_model.h"
#include "source_paths.h"
#include "temp_folder.h"
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
                                           "olmo2", "glm4", "lfm2", "qwen3next", "qwen35", "gpt_oss", "deepseek_v2"),
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

TEST_F(Convert, AQuantisedFolderIsRefused) {
  const auto made = convert(*open(source_dir() + "/tests/golden/quantised/awq4"), temp_.path("made.gguf"), {}, team_);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("is quantised already"), std::string::npos) << made.error().message;
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
