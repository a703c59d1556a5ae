#include "format/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "format/gguf_vocabulary.h"
#include "format/gguf_writer.h"
#include "outside_data.h"
#include "source_paths.h"
#include "temp_folder.h"

namespace ibid {
namespace {

// The default model where it is in the cache; these tests skip elsewhere.
std::string default_model() {
  if (const char* path = std::getenv("IBID_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string root = cache != nullptr && *cache != 0 ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return root + "/ibid/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

class Gguf : public testing::Test {
 protected:
  // A file of the writer's, read back.
  ModelFile read() {
    std::string path = folder_.path("file.gguf");
    EXPECT_TRUE(writer_.write(path).ok());
    Result<ModelFile> file = ModelFile::open(path);
    EXPECT_TRUE(file.ok()) << file.error().message;
    return *std::move(file);
  }
  std::span<const std::byte> data(size_t n) {
    data_.push_back(std::vector<std::byte>(n));
    for (size_t i = 0; i < n; ++i) data_.back()[i] = static_cast<std::byte>(i * 7 + data_.size());
    return data_.back();
  }
  TempFolder folder_;
  GgufWriter writer_;
  std::vector<std::vector<std::byte>> data_;
};

// A model in three files, the first of which has metadata alone, as llama.cpp's splitter can write it.
class SplitGguf : public Gguf {
 protected:
  std::string path(int i) const { return folder_.path("m-0000" + std::to_string(i) + "-of-00003.gguf"); }
  void write(int i, const std::vector<std::string>& tensors, int64_t no, int64_t count = 3, int64_t announced = 3) {
    GgufWriter writer;
    writer.set("split.no", MetaValue(no));
    writer.set("split.count", MetaValue(count));
    writer.set("split.tensors.count", MetaValue(announced));
    if (i == 1) writer.set("general.name", MetaValue(std::string("of the first")));
    for (const std::string& name : tensors) writer.add_tensor(name, DType::kF32, {2, 4}, data(32));
    ASSERT_TRUE(writer.write(path(i)).ok());
  }
  void write_all() {
    write(1, {}, 0);
    write(2, {"a", "b"}, 1);
    write(3, {"c"}, 2);
  }
  std::string error(int i = 1) const {
    const Result<ModelFile> file = ModelFile::open(path(i));
    return file ? "" : file.error().message;
  }
};

TEST_F(SplitGguf, IsOpenedByTheNameOfAnyOfItsFiles) {
  write_all();
  for (int i = 1; i <= 3; ++i) {
    const Result<ModelFile> file = ModelFile::open(path(i));
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->tensors().size(), 3u);
    EXPECT_EQ(file->files().size(), 3u);
    EXPECT_EQ(file->path(), path(1));
    EXPECT_EQ(file->meta_string("general.name").value(), "of the first");
    EXPECT_EQ(std::memcmp(file->find("a")->view.data, data_[0].data(), 32), 0);
    EXPECT_EQ(std::memcmp(file->find("c")->view.data, data_[2].data(), 32), 0);
    file->forget(file->find("c")->view);
    EXPECT_EQ(std::memcmp(file->find("c")->view.data, data_[2].data(), 32), 0);
  }
}

TEST_F(SplitGguf, IsRefusedByASentenceWhereItsFilesDisagree) {
  write_all();
  write(2, {"a", "b"}, 2);
  EXPECT_NE(error().find("is file 3 of 3"), std::string::npos) << error();
  write(2, {"a", "b"}, 1, 4);
  EXPECT_NE(error(3).find("is file 2 of 4"), std::string::npos) << error(3);
  write(2, {"a", "c"}, 1);
  EXPECT_NE(error().find("occurs in two files"), std::string::npos) << error();
  write(2, {"a"}, 1);
  EXPECT_NE(error().find("announces 3 tensors"), std::string::npos) << error();
  write(2, {"a", "b"}, 1);
  EXPECT_EQ(error(), "");
  std::filesystem::remove(path(2));
  EXPECT_NE(error(3).find("00002-of-00003.gguf cannot be opened, one of the 3 files"), std::string::npos) << error(3);
  write(2, {"a", "b"}, 1);
  std::filesystem::rename(path(1), folder_.path("alone.gguf"));
  const Result<ModelFile> alone = ModelFile::open(folder_.path("alone.gguf"));
  EXPECT_NE(alone.error().message.find("one of the 3 files of a split model"), std::string::npos);
}

TEST(SplitNames, AreThoseWithTwoNumbersOfFiveDigits) {
  EXPECT_EQ(
      split_files("x/m-00002-of-00003.gguf"),
      (std::vector<std::string>{"x/m-00001-of-00003.gguf", "x/m-00002-of-00003.gguf", "x/m-00003-of-00003.gguf"}));
  EXPECT_EQ(split_files("m-00001-of-00012.gguf").back(), "m-00012-of-00012.gguf");
  for (const char* name : {"m.gguf", "m-00001-of-00001.gguf", "-00001-of-00002.gguf", "m-00001-of-99999.gguf",
                           "m-0001-of-0002.gguf", "m-00001-of-00002.bin", "m-0000a-of-00002.gguf"}) {
    EXPECT_EQ(split_files(name), std::vector<std::string>{name});
  }
}

TEST_F(Gguf, TensorsComeBackWithDimensionsOutermostFirst) {
  writer_.add_tensor("a", DType::kQ4_0, {3, 2, 64}, data(3 * 2 * 36));
  writer_.add_tensor("b", DType::kF32, {5}, data(20));
  ModelFile file = read();
  ASSERT_EQ(file.tensors().size(), 2u);
  const TensorView& a = file.find("a")->view;
  EXPECT_EQ(a.rank, 3);
  EXPECT_EQ(a.dim[0], 3);
  EXPECT_EQ(a.dim[1], 2);
  EXPECT_EQ(a.dim[2], 64);
  EXPECT_EQ(a.row_stride_bytes, 36);
  EXPECT_EQ(std::memcmp(a.data, data_[0].data(), 216), 0);
  EXPECT_EQ(std::memcmp(file.tensor("b")->data, data_[1].data(), 20), 0);
  EXPECT_EQ(file.tensor_bytes(), 236u);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_NE(file.tensor("c").error().message.find("no tensor \"c\""), std::string::npos);
}

TEST_F(Gguf, EveryDTypeWithANumberComesBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    auto dtype = static_cast<DType>(i);
    ASSERT_GE(ggml_type(dtype), 0);
    EXPECT_EQ(dtype_from_ggml_type(static_cast<uint32_t>(ggml_type(dtype))).value(), dtype);
    writer_.add_tensor(std::string(traits(dtype).name), dtype, {2, 256},
                       data(static_cast<size_t>(2 * row_bytes(dtype, 256))));
  }
  ModelFile file = read();
  for (const TensorInfo& info : file.tensors()) EXPECT_EQ(traits(info.view.dtype).name, info.name);
}

TEST_F(Gguf, MetadataComesBackEqual) {
  std::map<std::string, MetaValue> values = {{"bool", true},
                                             {"small", int64_t{7}},
                                             {"negative", int64_t{-7}},
                                             {"wide", int64_t{1} << 40},
                                             {"widest", uint64_t{1} << 63},
                                             {"half", 0.5},
                                             {"tenth", 0.1},
                                             {"text", std::string("a\0b", 3)},
                                             {"ints", std::vector<int64_t>{1, -2}},
                                             {"wide ints", std::vector<int64_t>{1, int64_t{1} << 40}},
                                             {"floats", std::vector<double>{1, 0.1, -INFINITY}},
                                             {"strings", std::vector<std::string>{"", "x"}},
                                             {"nothing", std::vector<std::string>{}}};
  for (const auto& [key, value] : values) writer_.set(key, value);
  ModelFile file = read();
  EXPECT_EQ(file.metadata().size(), values.size());
  for (const auto& [key, value] : values) {
    ASSERT_TRUE(file.has_meta(key)) << key;
    EXPECT_EQ(*file.meta(key), value) << key;
  }
}

TEST_F(Gguf, GettersConvertWhatLosesNothingAndNameTheKeyOtherwise) {
  writer_.set("i", 3);
  writer_.set("s", "text");
  writer_.set("f", MetaValue(2.5));
  writer_.set("u", MetaValue(uint64_t{1} << 63));
  writer_.set("b", MetaValue(false));
  ModelFile file = read();
  EXPECT_EQ(file.meta_float("i").value(), 3.0);
  EXPECT_EQ(file.meta_ints("i").value(), std::vector<int64_t>{3});
  EXPECT_EQ(file.meta_strings("s").value(), std::vector<std::string>{"text"});
  EXPECT_EQ(file.meta_int("none", 9).value(), 9);
  EXPECT_EQ(file.meta_bool("b", true).value(), false);
  EXPECT_NE(file.meta_int("none").error().message.find("no key \"none\""), std::string::npos);
  EXPECT_NE(file.meta_int("s").error().message.find("\"s\" is a string where an integer"), std::string::npos);
  EXPECT_NE(file.meta_int("s", 4).error().message.find("\"s\" is a string"), std::string::npos);
  EXPECT_NE(file.meta_int("u").error().message.find("beyond 2^63"), std::string::npos);
  EXPECT_FALSE(file.meta_int("f").ok());
  EXPECT_FALSE(file.meta_bool("i").ok());
}

class GgufVocabulary : public Gguf {
 protected:
  Result<Vocabulary> vocabulary() { return vocabulary_from_gguf(read()); }
  void tokens(std::vector<std::string> spellings) {
    writer_.set("tokenizer.ggml.tokens", MetaValue(std::move(spellings)));
  }
};

TEST_F(GgufVocabulary, IsFilledFromTheKeys) {
  writer_.set("tokenizer.ggml.model", "gpt2");
  writer_.set("tokenizer.ggml.pre", "llama-bpe");
  tokens({"a", "b", "ab", "<s>", "</s>"});
  writer_.set("tokenizer.ggml.merges", MetaValue(std::vector<std::string>{"a b"}));
  writer_.set("tokenizer.ggml.token_type", MetaValue(std::vector<int64_t>{1, 1, 1, 3, 3}));
  writer_.set("tokenizer.ggml.bos_token_id", 3);
  writer_.set("tokenizer.ggml.eos_token_id", 4);
  writer_.set("tokenizer.chat_template", "{{ messages }}");
  Vocabulary v = vocabulary().value();
  EXPECT_EQ(v.model, VocabularyModel::kBpe);
  EXPECT_EQ(v.tokens[2], "ab");
  EXPECT_EQ(v.merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(v.types[3], TokenType::kControl);
  EXPECT_EQ(v.bos, TokenId{3});
  EXPECT_EQ(v.end_of_generation, std::vector<TokenId>{TokenId{4}});
  EXPECT_TRUE(v.add_bos) << "the default of llama-bpe";
  EXPECT_EQ(v.chat_template, "{{ messages }}");
}

TEST_F(GgufVocabulary, AMapOfCharactersIsRefusedUnlessItIsEmpty) {
  writer_.set("tokenizer.ggml.model", "t5");
  tokens({"<pad>", "</s>", "<unk>", "a"});
  writer_.set("tokenizer.ggml.scores", MetaValue(std::vector<double>{0, 0, 0, -1}));
  writer_.set("tokenizer.ggml.precompiled_charsmap", MetaValue(std::vector<int64_t>{}));
  EXPECT_TRUE(vocabulary().ok());
  writer_.set("tokenizer.ggml.precompiled_charsmap", MetaValue(std::vector<int64_t>{0, 4, 0, 0}));
  const Result<Vocabulary> refused = vocabulary();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(refused.error().message.find("a map of characters"), std::string::npos);
}

TEST_F(GgufVocabulary, EndsAreFoundByKeyAndBySpelling) {
  writer_.set("tokenizer.ggml.model", "gpt2");
  tokens({"x", "<|im_end|>", "<|endoftext|>", "own end", "<reponame>", "<|im_start|>", "<|end|>"});
  writer_.set("tokenizer.ggml.eos_token_id", 1);
  writer_.set("tokenizer.ggml.eot_token_id", 3);
  std::vector<TokenId> expected = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}, TokenId{6}};
  EXPECT_EQ(vocabulary()->end_of_generation, expected);
}

TEST_F(GgufVocabulary, InHarmonyTheEndOfAMessageDoesNotEndTheAnswer) {
  writer_.set("tokenizer.ggml.model", "gpt2");
  tokens({"<|end|>", "<|return|>", "<|call|>"});
  std::vector<TokenId> expected = {TokenId{1}, TokenId{2}};
  EXPECT_EQ(vocabulary()->end_of_generation, expected);
}

TEST_F(GgufVocabulary, SentencePieceDefaultsHoldOnlyInsideTheVocabulary) {
  writer_.set("tokenizer.ggml.model", "llama");
  tokens({"<unk>", "<s>"});
  writer_.set("tokenizer.ggml.scores", MetaValue(std::vector<double>{0.5, -1}));
  Vocabulary v = vocabulary().value();
  EXPECT_EQ(v.unknown, TokenId{0});
  EXPECT_EQ(v.bos, TokenId{1});
  EXPECT_EQ(v.eos, TokenId::kNone);
  EXPECT_TRUE(v.add_bos);
  EXPECT_TRUE(v.add_space_prefix);
  EXPECT_EQ(v.scores, (std::vector<float>{0.5f, -1.0f}));
}

TEST(ByHandGgufVocabularies, OfTheFieldAreRead) {
  const std::filesystem::path folder = outside_data("tokenizers");
  if (folder.empty()) GTEST_SKIP() << "IBID_DATA names no folder with tokenizers/";
  for (auto [name, model] :
       {std::pair("gpt-2", VocabularyModel::kBpe), std::pair("llama-spm", VocabularyModel::kSentencePieceBpe),
        std::pair("bert-bge", VocabularyModel::kWordPiece), std::pair("phi-3", VocabularyModel::kSentencePieceBpe),
        std::pair("deepseek-coder", VocabularyModel::kBpe)}) {
    Result<ModelFile> file = ModelFile::open((folder / name).string() + ".gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    Result<Vocabulary> v = vocabulary_from_gguf(*file);
    ASSERT_TRUE(v.ok()) << v.error().message;
    EXPECT_EQ(v->model, model);
    EXPECT_GT(v->tokens.size(), 30000u);
  }
}

TEST(SlowDefaultModel, IsReadWithItsTensorsMetadataAndVocabulary) {
  if (!std::filesystem::exists(default_model()))
    GTEST_SKIP() << default_model() << " is not there; ibid pull fetches it";
  Result<ModelFile> file = ModelFile::open(default_model());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->meta_string("general.architecture").value(), "llama");
  EXPECT_EQ(file->meta_int("llama.block_count").value(), 30);
  EXPECT_EQ(file->meta_int("llama.embedding_length").value(), 576);
  EXPECT_EQ(file->meta_int("llama.attention.head_count_kv").value(), 3);
  int n_q4_1 = 0;
  for (const TensorInfo& info : file->tensors()) n_q4_1 += info.view.dtype == DType::kQ4_1;
  EXPECT_EQ(n_q4_1, 210);
  const TensorInfo* embedding = file->find("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->view.dtype, DType::kQ8_0);
  EXPECT_EQ(embedding->view.dim[0], 49152);
  EXPECT_EQ(embedding->view.dim[1], 576);
  Result<Vocabulary> vocabulary = vocabulary_from_gguf(*file);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->tokens.size(), 49152u);
  EXPECT_EQ(vocabulary->pre_tokenizer, "smollm");
  EXPECT_EQ(vocabulary->tokens[static_cast<size_t>(raw(vocabulary->eos))], "<|im_end|>");
  EXPECT_NE(vocabulary->chat_template.find("im_start"), std::string::npos);
}

}  // namespace
}  // namespace ibid
