#include "model/tokenizer_of_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/testing/parts.h"

namespace ibid {
namespace {

using namespace testing;

constexpr const char* kTokenizerJson = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 3, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})";

TEST(TokenizerOfModel, ComesFromAGguf) {
  const auto tokenizer = load_tokenizer(ModelFile(tiny_parts({.tokenizer = true})));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<TokenId> ids = (*tokenizer)->encode("hello");
  EXPECT_EQ((*tokenizer)->decode(ids), "hello");
  EXPECT_EQ(ids.size(), 5u) << "its bytes are its tokens";
}

TEST(TokenizerOfModel, WithoutAPreTokenizersNameItWarnsOnce) {
  for (const bool named : {true, false}) {
    ModelFile::Parts parts = tiny_parts({.tokenizer = true});
    parts.metadata["tokenizer.ggml.pre"] = std::string(named ? "qwen35" : "");
    if (!named) parts.metadata.erase("tokenizer.ggml.pre");
    ::testing::internal::CaptureStderr();
    const auto tokenizer = load_tokenizer(ModelFile(std::move(parts)));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    for (int i = 0; i < 3; ++i) (*tokenizer)->encode("hello");
    const std::string log = ::testing::internal::GetCapturedStderr();
    const size_t first = log.find("names no pre-tokenizer");
    EXPECT_EQ(first == std::string::npos, named) << log;
    EXPECT_EQ(log.find("names no pre-tokenizer", first == std::string::npos ? first : first + 1), std::string::npos);
  }
}

TEST(TokenizerOfModel, ComesFromAFoldersTokenizerJson) {
  ModelFile::Parts parts = folder_parts();
  parts.tokenizer_json = kTokenizerJson;
  const auto tokenizer = load_tokenizer(ModelFile(std::move(parts)));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->encode("abb"), (std::vector<TokenId>{TokenId{2}, TokenId{1}}));
}

TEST(TokenizerOfModel, AFolderWithoutOneIsRefused) {
  const auto tokenizer = load_tokenizer(ModelFile(folder_parts()));
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.error().message.find("tokenizer.json"), std::string::npos);
}

TEST(TokenizerOfModel, MoreTokensThanTheModelEmbedsAreRefused) {
  ModelFile::Parts parts = tiny_parts({.tokenizer = true});
  auto& tokens = std::get<std::vector<std::string>>(parts.metadata.at("tokenizer.ggml.tokens"));
  auto& types = std::get<std::vector<int64_t>>(parts.metadata.at("tokenizer.ggml.token_type"));
  tokens.emplace_back("one too many");
  types.push_back(1);
  const auto tokenizer = load_tokenizer(ModelFile(std::move(parts)));
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.error().message.find("do not belong together"), std::string::npos) << tokenizer.error().message;
}

// A vocabulary of letters and special tokens, the last one plain text, as both containers carry it.
struct BothWays {
  std::vector<std::string> special;
  std::string plain;
  std::string eos;

  std::vector<std::string> ends(const ModelFile& file) const {
    const auto tokenizer = load_tokenizer(file);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    std::vector<std::string> spelled;
    for (TokenId id : end_of_generation_of(file, **tokenizer)) {
      spelled.push_back((*tokenizer)->vocabulary().tokens[static_cast<size_t>(raw(id))]);
    }
    return spelled;
  }
  std::vector<std::string> ends_of_gguf() const {
    ModelFile::Parts parts;
    parts.path = "model.gguf";
    std::vector<std::string> tokens = {"a", "b"};
    std::vector<int64_t> types = {1, 1};
    for (const std::string& token : special) tokens.push_back(token), types.push_back(3);
    tokens.push_back(plain), types.push_back(1);
    const auto eos_at = std::find(tokens.begin(), tokens.end(), eos) - tokens.begin();
    parts.metadata = {{"tokenizer.ggml.model", std::string("gpt2")},
                      {"tokenizer.ggml.pre", std::string("gpt-2")},
                      {"tokenizer.ggml.tokens", std::move(tokens)},
                      {"tokenizer.ggml.token_type", std::move(types)},
                      {"tokenizer.ggml.eos_token_id", int64_t{eos_at}}};
    return ends(ModelFile(std::move(parts)));
  }
  std::vector<std::string> ends_of_folder() const {
    ModelFile::Parts parts = folder_parts();
    std::string added;
    int id = 2;
    for (const std::string& token : special) {
      added += std::string(id > 2 ? "," : "") + R"({"id":)" + std::to_string(id) + R"(,"content":")" + token +
               R"(","special":true,"normalized":false})";
      ++id;
    }
    parts.tokenizer_json = R"({"added_tokens":[)" + added +
                           R"(],"model":{"type":"BPE","merges":[],"vocab":{"a":0,"b":1,")" + plain +
                           "\":" + std::to_string(id) + "}}}";
    parts.tokenizer_config_json = R"({"eos_token":")" + eos + "\"}";
    return ends(ModelFile(std::move(parts)));
  }
};

TEST(TokenizerOfModel, AVocabularyEndsAnswersAtTheSameTokensFromEitherContainer) {
  const std::vector<std::string> code = {"<|endoftext|>", "<|im_end|>",    "<|fim_prefix|>",
                                         "<|fim_pad|>",   "<|repo_name|>", "<|file_sep|>"};
  const std::vector<std::string> harmony = {"<|return|>", "<|call|>", "<|end|>", "<|start|>"};
  const std::vector<std::string> solar = {"<|flush|>", "<|calls|>", "<|end|>", "<|im_end|>"};
  const std::vector<std::string> gemma = {"<eos>", "<turn|>", "<|tool_response>", "<|turn>"};
  using Names = std::vector<std::string>;
  const std::pair<BothWays, Names> cases[] = {
      {{code, "plain", "<|im_end|>"}, {"<|endoftext|>", "<|im_end|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}},
      {{harmony, "plain", "<|return|>"}, {"<|return|>", "<|call|>"}},
      {{harmony, "plain", "<|end|>"}, {"<|return|>", "<|call|>", "<|end|>"}},
      {{solar, "plain", "<|im_end|>"}, {"<|flush|>", "<|calls|>", "<|im_end|>"}},
      // What is also a tag of HTML ends an answer only where it is a special token.
      {{gemma, "</s>", "<eos>"}, {"<eos>", "<turn|>", "<|tool_response>"}},
      {{{"<s>", "</s>", "[PAD]", "[e~["}, "<eos>", "[e~["}, {"</s>", "[PAD]", "[e~["}}};
  for (const auto& [vocabulary, ends] : cases) {
    EXPECT_EQ(vocabulary.ends_of_gguf(), ends);
    EXPECT_EQ(vocabulary.ends_of_folder(), ends);
  }
}

TEST(TokenizerOfModel, AFoldersEndTokensAreThoseOfAllItsFiles) {
  ModelFile::Parts parts = folder_parts();
  parts.tokenizer_json = kTokenizerJson;
  parts.chat_template = "{{ messages }}";
  parts.metadata["eos_token_id"] = int64_t{3};
  parts.metadata["generation_config.eos_token_id"] = std::vector<int64_t>{3, 1, 99, -1};
  const ModelFile file(std::move(parts));
  const auto tokenizer = load_tokenizer(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(end_of_generation_of(file, **tokenizer), (std::vector<TokenId>{TokenId{1}, TokenId{3}}));
  EXPECT_EQ(chat_template_of(file, **tokenizer), "{{ messages }}");
}

}  // namespace
}  // namespace ibid
