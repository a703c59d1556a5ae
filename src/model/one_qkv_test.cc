// Files that have q, k and v in one tensor where the model's layers run them apart.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "model/testing/loaded_model.h"
#include "model/testing/parts.h"

namespace ibid {
namespace {

// The same file whose layers have attn_qkv in the place of the three, where they have all three.
std::shared_ptr<const ModelFile> joined(const ModelFile& file, int64_t n_layers, int* n_joined) {
  ModelFile::Parts parts;
  parts.path = "q, k and v in one";
  parts.metadata = file.metadata();
  std::set<std::string> gone;
  for (int64_t l = 0; l < n_layers; ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    if (file.find(block + "attn_v.weight") == nullptr) continue;
    int64_t n_rows = 0, n_bytes = 0;
    TensorView view;
    for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight"}) {
      view = file.find(block + name)->view;
      n_rows += view.dim[0];
      n_bytes += view.dim[0] * view.row_stride_bytes;
    }
    auto bytes = std::make_unique<std::byte[]>(static_cast<size_t>(n_bytes));
    std::byte* to = bytes.get();
    for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight"}) {
      const TensorInfo* part = file.find(block + name);
      std::memcpy(to, part->view.data, part->bytes());
      to += part->bytes();
      gone.insert(block + name);
    }
    parts.tensors.push_back({block + "attn_qkv.weight", TensorView(bytes.get(), view.dtype, {n_rows, view.dim[1]})});
    parts.copies.push_back(std::move(bytes));
    ++*n_joined;
  }
  for (const TensorInfo& t : file.tensors()) {
    if (!gone.contains(t.name)) parts.tensors.push_back(t);
  }
  return std::make_shared<ModelFile>(std::move(parts));
}

TEST(OneQkv, HasTheBitsOfThreeTensors) {
  for (const char* architecture : {"gemma4", "qwen3", "llama"}) {
    for (const DType dtype : {DType::kF32, DType::kQ8_0, DType::kBF16}) {
      SCOPED_TRACE(architecture);
      const auto file = testing::tiny_model_file({.architecture = architecture, .dtype = dtype});
      testing::LoadedModel apart(file);
      int n_joined = 0;
      testing::LoadedModel one(joined(*file, apart.model->config().n_layers, &n_joined));
      ASSERT_NE(one.model, nullptr);
      EXPECT_GT(n_joined, 0);
      const auto tokens = testing::some_tokens(40, apart.model->config().vocab_size);
      EXPECT_EQ(apart.logits(tokens), one.logits(tokens));
    }
  }
}

TEST(OneQkv, OfAnotherSizeIsRefused) {
  const auto file = testing::tiny_model_file({.architecture = "qwen3"});
  int n_joined = 0;
  const auto one = joined(*file, 2, &n_joined);
  ModelFile::Parts parts;
  parts.path = "cut";
  parts.metadata = one->metadata();
  for (const TensorInfo& t : one->tensors()) parts.tensors.push_back(t);
  for (TensorInfo& t : parts.tensors) {
    if (t.name == "blk.1.attn_qkv.weight") t.view.dim[0] -= 1;
  }
  const std::string error = testing::load_error(std::move(parts));
  EXPECT_NE(error.find("blk.1.attn_qkv.weight"), std::string::npos) << error;
}

}  // namespace
}  // namespace ibid
