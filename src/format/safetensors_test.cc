#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "temp_folder.h"

namespace ibid {
namespace {

class Safetensors : public testing::Test {
 protected:
  Safetensors() { write("config.json", R"({"model_type": "llama", "hidden_size": 8})"); }
  void write(const std::string& name, std::string_view text) { folder_.write(name, text); }
  TensorInfo tensor(const std::string& name, DType dtype, std::initializer_list<int64_t> dims) {
    TensorInfo info{name, TensorView(nullptr, dtype, dims)};
    data_.push_back(std::vector<std::byte>(info.bytes(), static_cast<std::byte>(data_.size() + 1)));
    info.view.data = data_.back().data();
    return info;
  }
  std::string bytes(std::vector<TensorInfo> tensors) { return safetensors_bytes(tensors); }
  std::string error() {
    Result<ModelFile> file = ModelFile::open(folder_.path());
    return file.ok() ? "" : file.error().message;
  }

  TempFolder folder_;
  std::vector<std::vector<std::byte>> data_;
};

TEST_F(Safetensors, TensorsComeBack) {
  write("model.safetensors", bytes({tensor("a.weight", DType::kF16, {2, 3}), tensor("b", DType::kBF16, {4}),
                                    tensor("c", DType::kF32, {1, 2, 3, 4})}));
  Result<ModelFile> file = ModelFile::open(folder_.path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->container(), Container::kSafetensors);
  ASSERT_EQ(file->tensors().size(), 3u);
  const TensorView a = file->tensor("a.weight").value();
  EXPECT_EQ(a.dtype, DType::kF16);
  EXPECT_EQ(a.rank, 2);
  EXPECT_EQ(a.dim[1], 3);
  EXPECT_EQ(std::memcmp(a.data, data_[0].data(), 12), 0);
  EXPECT_EQ(file->find("c")->view.dim[3], 4);
}

TEST_F(Safetensors, DataThatIsNotAlignedIsCopiedToWhereItIs) {
  std::string text =
      R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  uint64_t n = text.size();
  float one = 1.0f;
  std::string all(reinterpret_cast<char*>(&n), 8);
  all += text + "\x07" + std::string(reinterpret_cast<char*>(&one), 4);
  write("model.safetensors", all);
  Result<ModelFile> file = ModelFile::open(folder_.path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  TensorView b = file->tensor("b").value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data) % 4, 0u);
  EXPECT_EQ(*b.row_as<float>(0), 1.0f);
}

TEST_F(Safetensors, ShardsAreFoundByTheIndexAndElseByTheirEnding) {
  write("model-00001-of-00002.safetensors", bytes({tensor("a", DType::kF32, {1})}));
  write("model-00002-of-00002.safetensors", bytes({tensor("b", DType::kF32, {2})}));
  EXPECT_EQ(ModelFile::open(folder_.path())->tensors().size(), 2u);
  write("model.safetensors.index.json", R"({"weight_map": {"b": "model-00002-of-00002.safetensors"}})");
  EXPECT_EQ(ModelFile::open(folder_.path())->tensors().size(), 1u);
  write("model.safetensors.index.json", R"({"weight_map": {"b": "gone.safetensors"}})");
  EXPECT_NE(error().find("lacks \"gone.safetensors\""), std::string::npos) << error();
  write("model.safetensors.index.json", R"({"weight_map": {"b": "../x.safetensors"}})");
  EXPECT_NE(error().find("does not lie in a file of this folder"), std::string::npos) << error();
}

TEST_F(Safetensors, ATensorInTwoFilesIsRefused) {
  write("1.safetensors", bytes({tensor("a", DType::kF32, {1})}));
  write("2.safetensors", bytes({tensor("a", DType::kF32, {1})}));
  EXPECT_NE(error().find("\"a\" occurs in two files"), std::string::npos) << error();
}

TEST_F(Safetensors, ConfigurationBecomesFlatMetadata) {
  write("model.safetensors", bytes({tensor("a", DType::kF32, {1})}));
  write("config.json", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "rms_norm_eps": 1e-05,
    "rope_scaling": {"type": "yarn", "factor": 4}, "tie_word_embeddings": true, "nothing": null,
    "layer_types": ["a", "b"], "mixed": [1, 2.5], "deep": [{"x": 1}, {"x": 2}], "eos_token_id": [1, 2], "flags": [true, false]})");
  write("generation_config.json", R"({"temperature": 0.6})");
  write("tokenizer.json", "{}");
  Result<ModelFile> file = ModelFile::open(folder_.path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->meta_strings("architectures").value(), std::vector<std::string>{"LlamaForCausalLM"});
  EXPECT_EQ(file->meta_int("hidden_size").value(), 8);
  EXPECT_EQ(file->meta_float("rms_norm_eps").value(), 1e-05);
  EXPECT_EQ(file->meta_string("rope_scaling.type").value(), "yarn");
  EXPECT_EQ(file->meta_float("rope_scaling.factor").value(), 4.0);
  EXPECT_FALSE(file->has_meta("nothing"));
  EXPECT_EQ(file->meta_floats("mixed").value(), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(file->meta_int("deep.1.x").value(), 2);
  EXPECT_EQ(file->meta_ints("flags").value(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(file->meta_float("generation_config.temperature").value(), 0.6);
  EXPECT_EQ(file->tokenizer_json(), "{}");
}

// Python writes them, and published configurations hold them.
TEST_F(Safetensors, NumbersThatJsonDoesNotKnowAreTheirLetters) {
  write("model.safetensors", bytes({tensor("a", DType::kF32, {1})}));
  write("config.json",
        R"({"limit": [0.0, Infinity], "least": -Infinity, "none": NaN, "text": "an \"Infinity\\", "b": [NaN]})");
  Result<ModelFile> file = ModelFile::open(folder_.path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->meta_float("limit.0").value(), 0.0);
  EXPECT_EQ(file->meta_string("limit.1").value(), "Infinity");
  EXPECT_EQ(file->meta_string("least").value(), "-Infinity");
  EXPECT_FALSE(file->meta_float("none").ok());
  EXPECT_EQ(file->meta_string("text").value(), "an \"Infinity\\");
  for (const char* wrong : {R"({"a": Infinit})", R"({"a": --Infinity})", R"({"a": Infinity1})", R"({"a": "Infinity)"}) {
    write("config.json", wrong);
    EXPECT_FALSE(ModelFile::open(folder_.path()).ok()) << wrong;
  }
}

TEST_F(Safetensors, TruthValuesAreBytes) {
  const std::string text = R"({"t2d":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  const uint64_t n = text.size();
  std::string all(reinterpret_cast<const char*>(&n), 8);
  all += text + std::string("\x01\x00\x01", 3);
  write("model.safetensors", all);
  Result<ModelFile> file = ModelFile::open(folder_.path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  const TensorView t2d = file->tensor("t2d").value();
  EXPECT_EQ(t2d.dtype, DType::kI8);
  EXPECT_EQ(t2d.row_as<int8_t>(0)[0] * 100 + t2d.row_as<int8_t>(0)[1] * 10 + t2d.row_as<int8_t>(0)[2], 101);
}

TEST_F(Safetensors, OtherIntegersAndFloatsOfEightBitsAreSignedIntegersAsLong) {
  const std::string text = R"({"e4m3":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
                           R"("e8m0":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[3,4]},)"
                           R"("words":{"dtype":"U32","shape":[1],"data_offsets":[4,8]}})";
  const uint64_t n = text.size();
  std::string all(reinterpret_cast<const char*>(&n), 8);
  all += text + std::string("\x7e\x7f\x80\x81\xff\xff\xff\xff", 8);
  write("model.safetensors", all);
  Result<ModelFile> file = ModelFile::open(folder_.path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->find("e4m3")->view.dtype, DType::kI8);
  EXPECT_EQ(file->find("e4m3")->eight_bits, EightBits::kE4M3);
  EXPECT_EQ(file->find("e8m0")->eight_bits, EightBits::kE8M0);
  EXPECT_EQ(file->find("words")->view.dtype, DType::kI32);
  EXPECT_EQ(file->find("words")->eight_bits, EightBits::kInteger);
}

TEST_F(Safetensors, APickleIsRefusedByItsName) {
  write("pytorch_model.bin", "PK");
  EXPECT_NE(error().find("pytorch_model.bin"), std::string::npos) << error();
}

TEST_F(Safetensors, MissingPartsAreNamed) {
  EXPECT_NE(error().find("no .safetensors file"), std::string::npos) << error();
  std::filesystem::remove(folder_.path("config.json"));
  EXPECT_NE(error().find("no config.json"), std::string::npos) << error();
}

}  // namespace
}  // namespace ibid
