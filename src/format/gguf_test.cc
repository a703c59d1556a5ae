#include "format/gguf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "format/gguf_vocabulary.h"

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
