// By hand: five published vocabularies (tokenizers/ in the folder that IBID_DATA names), each with 46 texts and their
// ids. What encodes also decodes: to the text where bytes are tokens, to the text with spaces for
// its U+2581 where that is the mark of a space.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "conformance/tokenizer_corpus.h"
#include "format/gguf.h"
#include "format/gguf_vocabulary.h"
#include "outside_data.h"
#include "source_paths.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

// The parts that each end with `end`; all of the text must be such parts.
std::vector<std::string> parts_of(const std::string& text, const std::string& end) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at; (at = text.find(end, from)) != text.npos; from = at + end.size()) {
    parts.push_back(text.substr(from, at - from));
  }
  EXPECT_EQ(from, text.size()) << "bytes after the last " << end;
  return parts;
}

std::string with_spaces_for_marks(std::string text) {
  constexpr std::string_view kMark = "\u2581";
  for (size_t at; (at = text.find(kMark)) != text.npos;) text.replace(at, kMark.size(), " ");
  return text;
}

void expect_there_and_back(const Tokenizer& tokenizer, const std::string& text) {
  const VocabularyModel model = tokenizer.vocabulary().model;
  if (model == VocabularyModel::kWordPiece) return;  // normalizes, and stands words apart
  // phi-3's "</s>" is read in any text, takes white space along and gets a space after it.
  if (model != VocabularyModel::kBpe && text.find("</s>") != text.npos) return;
  const std::string expected = model == VocabularyModel::kBpe ? text : with_spaces_for_marks(text);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), expected) << text;
}

void check(const std::string& name) {
  const std::filesystem::path folder = outside_data("tokenizers");
  if (folder.empty()) GTEST_SKIP() << "IBID_DATA names no folder with tokenizers/";
  auto file = open_gguf((folder / name).string());
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto vocabulary = vocabulary_from_gguf(*file);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  auto made = Tokenizer::from_vocabulary(std::move(*vocabulary));
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Tokenizer& tokenizer = **made;
  std::vector<std::string> texts = parts_of(read(folder / (name + ".inp")), "\n__ggml_vocab_test__\n");
  std::vector<std::string> lines = parts_of(read(folder / (name + ".out")), "\n");
  ASSERT_EQ(texts.size(), lines.size());
  size_t n_equal = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(lines[i]);
    std::vector<int> expected, got;
    for (int id; line >> id;) expected.push_back(id);
    for (TokenId id : tokenizer.encode(texts[i])) got.push_back(raw(id));
    EXPECT_EQ(got, expected) << name << ", text " << i << ": " << texts[i];
    n_equal += got == expected;
    expect_there_and_back(tokenizer, texts[i]);
  }
  EXPECT_EQ(n_equal, 46u);
  for (size_t i = 0; i < 500; ++i) expect_there_and_back(tokenizer, corpus::string(5, i));
}

TEST(ByHandVocabularies, Gpt2) { check("gpt-2.gguf"); }
TEST(ByHandVocabularies, LlamaSentencePiece) { check("llama-spm.gguf"); }
TEST(ByHandVocabularies, DeepseekCoder) { check("deepseek-coder.gguf"); }
TEST(ByHandVocabularies, Bert) { check("bert-bge.gguf"); }
TEST(ByHandVocabularies, Phi3) { check("phi-3.gguf"); }

}  // namespace
}  // namespace ibid
