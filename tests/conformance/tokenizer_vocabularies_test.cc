// The five vocabularies of ../shared/data/tokenizers, each with 47 texts and their ids; skipped where that folder is
// not beside the project.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "format/gguf.h"
#include "format/gguf_vocabulary.h"
#include "source_paths.h"
#include "text/tokenizer.h"

namespace ibid {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at; (at = text.find(separator, from)) != text.npos; from = at + separator.size()) {
    parts.push_back(text.substr(from, at - from));
  }
  parts.push_back(text.substr(from));  // the 47th text is the empty one behind the last separator
  return parts;
}

void check(const std::string& name) {
  std::filesystem::path folder = std::filesystem::path(source_dir()) / "../shared/data/tokenizers";
  if (!std::filesystem::exists(folder / name)) GTEST_SKIP() << "no ../shared/data/tokenizers beside the project";
  auto file = open_gguf((folder / name).string());
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto vocabulary = vocabulary_from_gguf(*file);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  auto made = Tokenizer::from_vocabulary(std::move(*vocabulary));
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Tokenizer& tokenizer = **made;
  std::vector<std::string> texts = split(read(folder / (name + ".inp")), "\n__ggml_vocab_test__\n");
  std::vector<std::string> lines = split(read(folder / (name + ".out")), "\n");
  ASSERT_EQ(texts.size(), lines.size());
  size_t n_equal = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(lines[i]);
    std::vector<int> expected, got;
    for (int id; line >> id;) expected.push_back(id);
    for (TokenId id : tokenizer.encode(texts[i])) got.push_back(raw(id));
    EXPECT_EQ(got, expected) << name << ", text " << i << ": " << texts[i];
    n_equal += got == expected;
  }
  EXPECT_EQ(n_equal, 47u);
}

TEST(RealVocabularies, Gpt2) { check("gpt-2.gguf"); }
TEST(RealVocabularies, LlamaSentencePiece) { check("llama-spm.gguf"); }
TEST(RealVocabularies, DeepseekCoder) { check("deepseek-coder.gguf"); }
TEST(RealVocabularies, Bert) { check("bert-bge.gguf"); }
TEST(RealVocabularies, Phi3) { check("phi-3.gguf"); }

}  // namespace
}  // namespace ibid
