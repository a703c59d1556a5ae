// GGUF files that are well formed and whose vocabulary is wrong in one way each.
#include "format/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include "hostile/raw_gguf.h"
#include "temp_folder.h"

namespace ibid {
namespace {

TEST(HostileGgufVocabulary, IsRefusedByTheKeyAtFault) {
  TempFolder folder;
  const std::string model = raw_string_key("tokenizer.ggml.model", "gpt2");
  const std::string two = RawBytes().string("a").string("b").text;
  const std::string tokens = raw_array_key("tokenizer.ggml.tokens", kRawString, 2, two);
  auto i32s = [](std::vector<int32_t> values) {
    RawBytes out;
    for (int32_t value : values) out.put(value);
    return out.text;
  };
  struct Case {
    std::string name;
    std::vector<std::string> keys;
    std::string where;
  };
  std::vector<Case> cases = {
      {"no model", {tokens}, "tokenizer.ggml.model"},
      {"unknown model", {raw_string_key("tokenizer.ggml.model", "rwkv"), tokens}, "tokenizer.ggml.model"},
      {"model is a number", {raw_u32_key("tokenizer.ggml.model", 1), tokens}, "tokenizer.ggml.model"},
      {"no tokens", {model}, "tokenizer.ggml.tokens"},
      {"empty tokens", {model, raw_array_key("tokenizer.ggml.tokens", kRawString, 0, "")}, "tokenizer.ggml.tokens"},
      {"tokens are numbers",
       {model, raw_array_key("tokenizer.ggml.tokens", kRawI32, 2, i32s({1, 2}))},
       "tokenizer.ggml.tokens"},
      {"tokens are one number", {model, raw_u32_key("tokenizer.ggml.tokens", 1)}, "tokenizer.ggml.tokens"},
      {"one score",
       {model, tokens, raw_array_key("tokenizer.ggml.scores", kRawF32, 1, i32s({0}))},
       "tokenizer.ggml.scores"},
      {"scores are texts",
       {model, tokens, raw_array_key("tokenizer.ggml.scores", kRawString, 2, two)},
       "tokenizer.ggml.scores"},
      {"three types",
       {model, tokens, raw_array_key("tokenizer.ggml.token_type", kRawI32, 3, i32s({1, 1, 1}))},
       "tokenizer.ggml.token_type"},
      {"type 7",
       {model, tokens, raw_array_key("tokenizer.ggml.token_type", kRawI32, 2, i32s({1, 7}))},
       "tokenizer.ggml.token_type"},
      {"type -1",
       {model, tokens, raw_array_key("tokenizer.ggml.token_type", kRawI32, 2, i32s({1, -1}))},
       "tokenizer.ggml.token_type"},
      {"merges are numbers",
       {model, tokens, raw_array_key("tokenizer.ggml.merges", kRawI32, 2, i32s({1, 2}))},
       "tokenizer.ggml.merges"},
      {"add_bos is a number",
       {model, tokens, raw_u32_key("tokenizer.ggml.add_bos_token", 1)},
       "tokenizer.ggml.add_bos_token"},
      {"pre is a number", {model, tokens, raw_u32_key("tokenizer.ggml.pre", 1)}, "tokenizer.ggml.pre"},
      {"characters are mapped",
       {model, tokens, raw_array_key("tokenizer.ggml.precompiled_charsmap", kRawI32, 2, i32s({1, 2}))},
       "tokenizer.ggml.precompiled_charsmap"},
      {"the map of characters is a text",
       {model, tokens, raw_string_key("tokenizer.ggml.precompiled_charsmap", "ab")},
       "tokenizer.ggml.precompiled_charsmap"},
      {"template is a number", {model, tokens, raw_u32_key("tokenizer.chat_template", 1)}, "tokenizer.chat_template"}};
  for (const char* key : {"bos", "eos", "unknown", "padding", "seperator", "eot", "eom"}) {
    std::string name = std::string("tokenizer.ggml.") + key + "_token_id";
    cases.push_back({name + " past the end", {model, tokens, raw_u32_key(name, 2)}, name});
    cases.push_back({name + " -2", {model, tokens, raw_key(name, kRawI32, i32s({-2}))}, name});
    cases.push_back({name + " 2^64-1", {model, tokens, raw_key(name, kRawU64, RawBytes().u64(UINT64_MAX).text)}, name});
    cases.push_back({name + " as text", {model, tokens, raw_string_key(name, "a")}, name});
  }
  for (const Case& bad : cases) {
    RawGguf raw;
    raw.keys = bad.keys;
    Result<ModelFile> file = ModelFile::open(folder.write("bad.gguf", raw.bytes()));
    ASSERT_TRUE(file.ok()) << bad.name << ": " << file.error().message;
    Result<Vocabulary> vocabulary = vocabulary_from_gguf(*file);
    ASSERT_FALSE(vocabulary.ok()) << bad.name;
    EXPECT_EQ(vocabulary.error().where, bad.where) << bad.name << ": " << vocabulary.error().message;
  }
}

}  // namespace
}  // namespace ibid
