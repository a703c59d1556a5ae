// GGUF files that are wrong in one way each. Every case states what its error message must contain, so that a file
// which is refused for another reason than its own fails here.
#include "format/gguf.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <set>
#include <span>

#include "format/gguf_vocabulary.h"
#include "format/gguf_writer.h"
#include "hostile/limits.h"
#include "hostile/raw_gguf.h"
#include "temp_folder.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

struct BadFile {
  std::string name;
  std::string bytes;
  std::string sentence;  // a part of the error message
};
using BadFiles = std::vector<BadFile>;

constexpr uint64_t kMax64 = UINT64_MAX;

BadFile with_key(std::string name, std::string key, std::string sentence) {
  RawGguf file;
  file.keys.push_back(std::move(key));
  return {std::move(name), file.bytes(), std::move(sentence)};
}
BadFile with_tensor(std::string name, const RawTensor& tensor, std::string sentence) {
  RawGguf file;
  file.tensors = {tensor.bytes()};
  return {std::move(name), file.bytes(), std::move(sentence)};
}

void headers(BadFiles& out) {
  out.push_back({"empty file", "", "ends inside the first four bytes"});
  for (size_t n : {1, 2, 3}) {
    out.push_back({"only " + std::to_string(n) + " bytes", std::string("GGUF").substr(0, n), "the first four bytes"});
  }
  for (std::string magic : {"ggml", "gguf", "GGUf", "FUGG", "GGJT", "lmgg", "PK\3\4", "\x89PNG", "\x1f\x8b\b\0",
                            "\x7f"
                            "ELF",
                            "<!DO", "{\"a\"", "vers"}) {
    RawGguf file;
    magic.resize(4, '\0');
    file.magic = magic;
    out.push_back({"magic " + magic, file.bytes(), "no GGUF file"});
  }
  out.push_back({"zeros", std::string(4096, '\0'), "no GGUF file"});
  for (uint32_t version : {0u, 1u, 4u, 17u, 0xffffffffu, 0x80000003u}) {
    RawGguf file;
    file.version = version;
    out.push_back({"version " + std::to_string(version), file.bytes(), "GGUF version"});
  }
  for (uint32_t version : {0x02000000u, 0x03000000u}) {
    RawGguf file;
    file.version = version;
    out.push_back({"big-endian version " + std::to_string(version), file.bytes(), "big-endian"});
  }
  for (size_t n : {4, 5, 8, 15, 16, 23}) {
    out.push_back(
        {"header of " + std::to_string(n) + " bytes", RawGguf().bytes().substr(0, n), "ends inside the header"});
  }
  for (uint64_t n : {kMax64, uint64_t{1} << 63, uint64_t{1} << 32, uint64_t{1} << 60, uint64_t{100}}) {
    RawGguf file;
    file.n_tensors = n;
    out.push_back({std::to_string(n) + " tensors announced", file.bytes(), "more than the file has room for"});
    file = {};
    file.n_keys = n;
    out.push_back({std::to_string(n) + " keys announced", file.bytes(), "more than the file has room for"});
  }
  RawGguf file;
  file.n_keys = 2;
  out.push_back({"one key too many announced", file.bytes(), ""});
  file = {};
  file.n_tensors = 2;
  out.push_back({"one tensor too many announced", file.bytes(), ""});
  file = {};
  file.n_keys = 0;
  out.push_back({"one key too few announced", file.bytes(), ""});
}

void keys(BadFiles& out) {
  for (uint64_t n : {kMax64, uint64_t{1} << 63, uint64_t{1} << 32, uint64_t{5000}}) {
    out.push_back(with_key("key name of " + std::to_string(n) + " bytes",
                           RawBytes().u64(n).raw("name").u32(kRawU8).u8(1).text, "ends inside the name of key 1"));
  }
  out.push_back(with_key("key without a name", raw_u32_key("", 1), "1 to 65535"));
  out.push_back(with_key("key with a name of 65536 bytes", raw_u32_key(std::string(65536, 'k'), 1), "1 to 65535"));
  out.push_back(with_key("key twice", raw_string_key("general.architecture", "llama"), "occurs twice"));
  for (uint32_t type : {13u, 14u, 255u, 0x80000000u, 0xffffffffu}) {
    out.push_back(
        with_key("value type " + std::to_string(type), raw_key("k", type, std::string(16, 'v')), "value type"));
    out.push_back(with_key("element type " + std::to_string(type), raw_array_key("k", type, 1, std::string(16, 'v')),
                           "element type"));
  }
  // Values of every type that begin at the last byte of the file.
  constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                    "bool",  "string", "array",  "uint64", "int64",  "float64"};
  for (uint32_t type = kRawU8; type <= kRawF64; ++type) {
    RawGguf file;
    file.keys.push_back(raw_key("k", type, ""));
    file.tensors.clear();
    out.push_back({std::string("file ends before a ") + kNames[type], file.header(), "ends inside"});
    file.keys.back() = raw_array_key("k", type, 1, "");
    out.push_back({std::string("file ends before an array of ") + kNames[type], file.header(),
                   type == kRawArray ? "array of arrays" : "more than the file has room for"});
    for (uint64_t n : {kMax64, (uint64_t{1} << 61) + 1}) {  // the latter wraps when multiplied by 8
      file.keys.back() = raw_array_key("k", type, n, std::string(64, 'v'));
      out.push_back({std::string("array of ") + std::to_string(n) + " " + kNames[type], file.bytes(),
                     type == kRawArray ? "array of arrays" : "more than the file has room for"});
    }
  }
  for (uint8_t value : {2, 255}) {
    out.push_back(
        with_key("bool " + std::to_string(value), raw_key("k", kRawBool, RawBytes().u8(value).text), "boolean"));
    out.push_back(with_key("bool " + std::to_string(value) + " in an array",
                           raw_array_key("k", kRawBool, 2, RawBytes().u8(1).u8(value).text), "boolean"));
  }
  for (uint64_t n : {kMax64, uint64_t{1} << 63, uint64_t{1} << 32, uint64_t{5000}}) {
    out.push_back(with_key("string of " + std::to_string(n) + " bytes",
                           raw_key("k", kRawString, RawBytes().u64(n).raw("abc").text), "ends inside the string"));
    out.push_back(with_key("string of " + std::to_string(n) + " bytes in an array",
                           raw_array_key("k", kRawString, 2, RawBytes().string("a").u64(n).raw("abc").text),
                           "ends inside element 1"));
  }
  out.push_back(with_key("integer beyond 2^63 in an array", raw_array_key("k", kRawU64, 1, RawBytes().u64(kMax64).text),
                         "beyond 2^63"));
  out.push_back(with_key("arrays in an array", raw_array_key("k", kRawArray, 1, RawBytes().u32(kRawU8).u64(0).text),
                         "array of arrays"));
  out.push_back(with_key("one of two files", raw_u32_key("split.count", 2), "split model"));
  out.push_back(with_key("split.count as text", raw_string_key("split.count", "2"), "is no count"));
  for (uint32_t n : {0u, 1u, 2u, 3u, 4u, 7u, 12u, 31u, 33u, 48u, 0x80000000u, 0xffffffffu}) {
    out.push_back(with_key("alignment " + std::to_string(n), raw_u32_key("general.alignment", n), "power of two"));
  }
  out.push_back(
      with_key("alignment -32", raw_key("general.alignment", kRawI32, RawBytes().put(-32).text), "power of two"));
  out.push_back(
      with_key("alignment 2^64-1", raw_key("general.alignment", kRawU64, RawBytes().u64(kMax64).text), "no integer"));
  out.push_back(with_key("alignment as text", raw_string_key("general.alignment", "32"), "no integer"));
  out.push_back(
      with_key("alignment 32.0", raw_key("general.alignment", kRawF32, RawBytes().f32(32).text), "no integer"));
}

void tensor_entries(BadFiles& out) {
  for (uint64_t n : {kMax64, uint64_t{1} << 63, uint64_t{1} << 32, uint64_t{5000}}) {
    out.push_back(
        with_tensor("tensor name of " + std::to_string(n) + " bytes", {.name_length = n}, "the name of tensor 0"));
  }
  out.push_back(with_tensor("tensor without a name", {.name = "", .dims = {8, 1}}, "0 bytes"));
  out.push_back(with_tensor("tensor name of 513 bytes", {.name = std::string(513, 't')}, "513 bytes"));
  for (uint32_t rank : {0u, 5u, 6u, 255u, 0x80000000u, 0xffffffffu}) {
    out.push_back(
        with_tensor("rank " + std::to_string(rank), {.dims = {8, 1, 1, 1}, .rank = rank}, "dimensions; 1 to 4"));
  }
  for (size_t i = 0; i < 4; ++i) {
    std::vector<uint64_t> dims = {8, 1, 1, 1};
    dims[i] = 0;
    out.push_back(with_tensor("dimension " + std::to_string(i) + " is zero", {.dims = dims}, "dimension of zero"));
  }
  const std::vector<uint64_t> wrapping[] = {
      {kMax64},
      {uint64_t{1} << 63},
      {uint64_t{1} << 32, uint64_t{1} << 32},
      {uint64_t{1} << 62, 4},
      {(uint64_t{1} << 62) + 1, 4},
      {uint64_t{1} << 22, uint64_t{1} << 22, uint64_t{1} << 22},
      {uint64_t{1} << 16, uint64_t{1} << 16, uint64_t{1} << 16, uint64_t{1} << 16},
      {0x100000001, 0xffffffff, 2},
      {kMax64, kMax64}};
  for (const auto& dims : wrapping) {
    out.push_back(
        with_tensor("elements wrap: " + std::to_string(dims[0]) + " and " + std::to_string(dims.size() - 1) + " more",
                    {.dims = dims}, "more than 2^63 elements"));
  }
  for (const std::vector<uint64_t>& dims :
       {std::vector<uint64_t>{(uint64_t{1} << 62) + 8}, {uint64_t{1} << 61, 2}, {uint64_t{1} << 40}, {1000}}) {
    out.push_back(with_tensor("bytes wrap or exceed the file: " + std::to_string(dims[0]), {.dims = dims},
                              "larger than the file"));
  }
  for (uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 255u, 0x7fffffffu, 0xffffffffu}) {
    out.push_back(with_tensor("tensor type " + std::to_string(type), {.dims = {256}, .type = type}, "does not exist"));
  }
  const std::pair<uint32_t, const char*> unsupported[] = {{9, "Q8_1"}, {15, "Q8_K"}};
  for (auto [type, name] : unsupported) {
    out.push_back(with_tensor(std::string("tensor type ") + name, {.dims = {256}, .type = type},
                              std::string("type is ") + name + ", which files do not have"));
  }
  for (int i = 0; i < kDTypeCount; ++i) {
    auto dtype = static_cast<DType>(i);
    if (!is_quantised(dtype)) continue;
    auto type = static_cast<uint32_t>(ggml_type(dtype));
    uint64_t len = static_cast<uint64_t>(traits(dtype).block_len);
    for (uint64_t dim : {uint64_t{1}, len - 1, len + 1}) {
      out.push_back(with_tensor("row of " + std::to_string(dim) + " in " + std::string(traits(dtype).name),
                                {.dims = {dim, len}, .type = type}, "no whole blocks"));
    }
  }
}

void tensor_data(BadFiles& out) {
  for (uint64_t offset : {uint64_t{1}, uint64_t{8}, uint64_t{31}, kMax64}) {
    out.push_back(with_tensor("offset " + std::to_string(offset), {.offset = offset}, "not aligned"));
  }
  for (uint64_t offset : {uint64_t{32}, uint64_t{4096}, uint64_t{1} << 32, uint64_t{1} << 63, kMax64 - 31}) {
    out.push_back(with_tensor("offset " + std::to_string(offset), {.offset = offset}, "reaches past the end"));
  }
  out.push_back(with_tensor("one element too many", {.dims = {9}}, "reaches past the end"));
  RawGguf file;
  file.data_bytes = 31;
  out.push_back({"last byte missing", file.bytes(), "reaches past the end"});
  file.data_bytes = 0;
  out.push_back({"no data", file.bytes(), "reaches past the end"});
  out.push_back({"no padding", file.header(), "reaches past the end"});
  file.data_bytes = 64;
  file.tensors = {RawTensor{.name = "a"}.bytes(), RawTensor{.name = "a", .offset = 32}.bytes()};
  out.push_back({"tensor twice", file.bytes(), "occurs twice"});
  file.tensors = {RawTensor{.name = "a"}.bytes(), RawTensor{.name = "b"}.bytes()};
  out.push_back({"same place", file.bytes(), "overlap"});
  file.tensors = {RawTensor{.name = "a", .dims = {9}}.bytes(), RawTensor{.name = "b", .offset = 32}.bytes()};
  out.push_back({"overlap of one element", file.bytes(), "overlap"});
  file.tensors = {RawTensor{.name = "b", .offset = 32}.bytes(), RawTensor{.name = "a", .dims = {16}}.bytes()};
  out.push_back({"overlap, later one first", file.bytes(), "overlap"});
  file.tensors = {RawTensor{.name = "a"}.bytes()};
  file.n_tensors = 2;
  out.push_back({"second tensor's entry is data", file.bytes(), ""});
}

BadFiles bad_files() {
  BadFiles out;
  headers(out);
  keys(out);
  tensor_entries(out);
  tensor_data(out);
  return out;
}

class HostileGguf : public testing::Test {
 protected:
  Result<ModelFile> open(std::string_view bytes) { return ModelFile::open(folder_.write("bad.gguf", bytes)); }
  TempFolder folder_;
};

TEST_F(HostileGguf, TheFileThatTheCasesChangeIsGood) {
  Result<ModelFile> file = open(RawGguf().bytes());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 1u);
}

TEST_F(HostileGguf, EveryBadFileGetsItsOwnSentenceInTimeAndMemory) {
  BadFiles cases = bad_files();
  std::set<std::string> names;
  for (const BadFile& bad : cases) {
    EXPECT_TRUE(names.insert(bad.name).second) << bad.name << " is there twice";
    Cost cost;
    Result<ModelFile> file = open(bad.bytes);
    cost.expect_small(bad.name);
    ASSERT_FALSE(file.ok()) << bad.name;
    EXPECT_NE(file.error().message.find(bad.sentence), std::string::npos) << bad.name << ": " << file.error().message;
    EXPECT_NE(file.error().message.find("bad.gguf"), std::string::npos)
        << "the file is named: " << file.error().message;
    EXPECT_LT(file.error().message.size(), 1000u) << bad.name;
  }
  EXPECT_GE(cases.size(), 120u);
  RecordProperty("cases", static_cast<int>(cases.size()));
}

// A file of 4 kB and a little with all kinds of values and several tensors, that ends with the last tensor's last byte.
std::string four_kilobytes() {
  GgufWriter writer;
  writer.set("general.architecture", "llama");
  writer.set("llama.block_count", 1);
  writer.set("llama.rope.freq_base", MetaValue(10000.0));
  writer.set("tokenizer.ggml.model", "gpt2");
  writer.set("tokenizer.ggml.add_bos_token", MetaValue(true));
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  for (int i = 0; i < 75; ++i) {
    tokens.push_back("token" + std::to_string(i));
    types.push_back(1);
  }
  writer.set("tokenizer.ggml.tokens", MetaValue(tokens));
  writer.set("tokenizer.ggml.token_type", MetaValue(types));
  writer.set("tokenizer.ggml.scores", MetaValue(std::vector<double>(75, 0.1)));
  static const std::vector<std::byte> data(1024, std::byte{1});
  writer.add_tensor("token_embd.weight", DType::kF32, {16, 8}, std::span(data).first(512));
  writer.add_tensor("blk.0.attn_q.weight", DType::kQ8_0, {4, 32}, std::span(data).first(136));
  writer.add_tensor("output_norm.weight", DType::kF32, {256}, data);
  return writer.bytes();
}

TEST_F(HostileGguf, ASparseFileOfATerabyteHasRoomForAnyCountAndCostsNothing) {
  struct Case {
    std::string name, bytes, sentence;
  };
  RawGguf file;
  std::vector<Case> cases;
  file.n_tensors = 1 << 20;
  cases.push_back({"a million tensors", file.bytes(), "or than 131,072"});
  file = {};
  file.n_keys = 1 << 20;
  cases.push_back({"a million keys", file.bytes(), "or than 65,536"});
  for (uint32_t type : {kRawU8, kRawF64, kRawBool, kRawString}) {
    file = {};
    file.keys.push_back(raw_array_key("k", type, uint64_t{1} << 33, ""));
    cases.push_back({"an array of 2^33 of type " + std::to_string(type), file.header(), "more than 56 MiB"});
  }
  file.keys.back() = RawBytes().string("k").u32(kRawString).u64(uint64_t{1} << 33).text;
  cases.push_back({"a string of 2^33 bytes", file.header(), "more than 56 MiB"});
  file.keys = std::vector<std::string>(1, raw_array_key("k", kRawString, 1 << 20, ""));
  file.keys.push_back(raw_u32_key("l", 1));
  cases.push_back({"a million empty strings, then zeros", file.header().substr(0, file.header().size() - 64), ""});
  for (const Case& bad : cases) {
    std::string path = folder_.write("bad.gguf", bad.bytes);
    ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 40), 0);
    Cost cost;
    Result<ModelFile> model = ModelFile::open(path);
    cost.expect_small(bad.name);
    ASSERT_FALSE(model.ok()) << bad.name;
    EXPECT_NE(model.error().message.find(bad.sentence), std::string::npos) << bad.name << ": " << model.error().message;
  }
}

TEST_F(HostileGguf, CutAtEveryByteGivesASentence) {
  std::string bytes = four_kilobytes();
  ASSERT_GE(bytes.size(), 4096u);
  std::string path = folder_.write("cut.gguf", bytes);
  ASSERT_TRUE(ModelFile::open(path).ok());
  Cost cost;
  for (size_t n = bytes.size(); n-- > 0;) {
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(n)), 0);
    Result<ModelFile> file = ModelFile::open(path);
    ASSERT_FALSE(file.ok()) << "cut to " << n << " bytes";
    ASSERT_FALSE(file.error().message.empty());
  }
  cost.expect_small("all cuts together");
}

TEST_F(HostileGguf, AnyByteChangedGivesAModelOrASentence) {
  std::string bytes = four_kilobytes();
  size_t header_bytes = bytes.size() - 1024 - 160 - 512;
  std::string path = folder_.write("changed.gguf", bytes);
  int fd = ::open(path.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  int n_refused = 0;
  for (size_t i = 0; i < header_bytes; ++i) {
    for (unsigned char change : {0x01, 0x80, 0xff}) {
      char changed = static_cast<char>(static_cast<unsigned char>(bytes[i]) ^ change);
      ASSERT_EQ(::pwrite(fd, &changed, 1, static_cast<off_t>(i)), 1);
      Result<ModelFile> file = ModelFile::open(path);
      n_refused += !file.ok() || !vocabulary_from_gguf(*file).ok();
    }
    ASSERT_EQ(::pwrite(fd, &bytes[i], 1, static_cast<off_t>(i)), 1);
  }
  ::close(fd);
  EXPECT_TRUE(ModelFile::open(path).ok());
  EXPECT_GT(n_refused, 1000);
}

class SlowHostileGguf : public HostileGguf {};

TEST_F(SlowHostileGguf, AThousandMutantsOfEveryWeightTypeGiveNumbersOrASentence) {
  std::mt19937 random(39);
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!is_quantised(dtype)) continue;
    RawGguf file;
    file.tensors = {RawTensor{.dims = {256, 3}, .type = static_cast<uint32_t>(ggml_type(dtype))}.bytes()};
    file.data_bytes = static_cast<size_t>(3 * row_bytes(dtype, 256));
    std::string good = file.bytes();
    for (size_t at = good.size() - file.data_bytes; at < good.size(); ++at) good[at] = static_cast<char>(random());
    int n_read = 0;
    Cost cost;
    for (int mutant = 0; mutant < 1000; ++mutant) {
      std::string bytes = good;
      for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
      Result<ModelFile> model = ModelFile::open(folder_.write("mutant.gguf", bytes));
      if (!model.ok()) {
        ASSERT_FALSE(model.error().message.empty());
        continue;
      }
      for (const TensorInfo& tensor : model->tensors()) {
        if (!is_weight_type(tensor.view.dtype)) continue;
        std::vector<float> values(static_cast<size_t>(tensor.view.n_elements()));
        dequantise(tensor.view, values.data());
        ++n_read;
      }
    }
    EXPECT_GT(n_read, 100) << traits(dtype).name;
    cost.expect_small("all mutants together");
  }
}

TEST(GgufBounds, NamesOfKeysCountAsMetadata) {
  RawGguf file;
  for (int i = 0; i < 900; ++i) {
    std::string name = std::to_string(i);
    file.keys.push_back(raw_u32_key(name + std::string(65'535 - name.size(), 'k'), 1));
  }
  const TempFolder folder;
  const std::string path = folder.path("names.gguf");
  std::ofstream(path, std::ios::binary) << file.bytes();
  const auto opened = ModelFile::open(path);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("more than 56 MiB"), std::string::npos) << opened.error().message;
}

TEST(GgufBounds, OfAsManyTensorsAsAreReadIsWrittenInTime) {
  ProcessorTime time("131,072 tensors");
  GgufWriter writer;
  const float x = 1;
  for (int i = 0; i < 131'072; ++i)
    writer.add_tensor("a tensor " + std::to_string(i), DType::kF32, {1}, std::as_bytes(std::span(&x, 1)));
}

}  // namespace
}  // namespace ibid
