// Safetensors folders that are wrong in one way each: the weights' header and data, config.json, the index, the files
// themselves. Every case states what its error message must contain.
#include "format/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>

#include "base/json.h"
#include "hostile/limits.h"
#include "hostile/raw_gguf.h"
#include "temp_folder.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

struct BadFile {
  std::string name;
  std::string bytes;
  std::string sentence;
};
using BadFiles = std::vector<BadFile>;

std::string with_header(std::string_view header, size_t data_bytes, uint64_t length) {
  return RawBytes().u64(length).raw(header).raw(std::string(data_bytes, '\x11')).text;
}
std::string with_header(std::string_view header, size_t data_bytes = 16) {
  return with_header(header, data_bytes, header.size());
}
// A header of one tensor "t" with this dtype, shape and place; right are F32, [4] and [0,16].
std::string entry(std::string_view dtype, std::string_view shape, std::string_view place) {
  return "{\"t\":{\"dtype\":" + std::string(dtype) + ",\"shape\":" + std::string(shape) +
         ",\"data_offsets\":" + std::string(place) + "}}";
}
std::string good() { return with_header(entry("\"F32\"", "[4]", "[0,16]")); }

void lengths(BadFiles& out) {
  for (size_t n = 0; n < 8; ++n) out.push_back({std::to_string(n) + " bytes", good().substr(0, n), "too short"});
  for (uint64_t n : {UINT64_MAX, uint64_t{1} << 63, (uint64_t{16} << 20) + 1}) {
    out.push_back({"header of " + std::to_string(n) + " bytes", with_header("{}", 0, n), "16,777,216 are the most"});
  }
  for (uint64_t n : {uint64_t{3}, uint64_t{16} << 20}) {
    out.push_back({"header of " + std::to_string(n) + " bytes", with_header("{}", 0, n), "ends inside its header"});
  }
  out.push_back({"header of 0 bytes", with_header("", 16), "no valid JSON"});
  out.push_back({"length one too small", with_header("{}", 0, 1), "no valid JSON"});
  out.push_back({"a GGUF file", RawGguf().bytes(), "16,777,216 are the most"});
  out.push_back({"a pickle", "PK\x03\x04" + std::string(200, 'p'), "16,777,216 are the most"});
}

void json(BadFiles& out) {
  for (std::string_view text :
       {"x", "{", "{\"a\"", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{} {}", "\"", "{\"a\":01}", "{\"a\":nul}",
        "{\"\xff\":1}", "{\"a\":\"\\u12\"}", "{\"a\":\"\\ud800\"}", "{\"a\":1e}", "// c\n{}", "{'a':1}"}) {
    out.push_back({"JSON " + std::string(text), with_header(text), "no valid JSON"});
  }
  for (std::string_view text : {"[]", "1", "\"a\"", "null", "true"}) {
    out.push_back({"root " + std::string(text), with_header(text), "not an object"});
  }
  out.push_back({"deep arrays", with_header(std::string(100'000, '[')), "no valid JSON"});
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  out.push_back({"deep objects", with_header(deep), "no valid JSON"});
  std::string wide = "{\"a\":[0";
  for (int i = 0; i < 500'000; ++i) wide += ",0";
  out.push_back({"half a million numbers", with_header(wide + "]}"), "more than 250000 values"});
  out.push_back({"number beyond doubles", with_header("{\"a\":1e999}"), "beyond the range"});
  out.push_back({"NUL in the header", with_header(std::string_view("{\0}", 3)), "no valid JSON"});
  out.push_back({"tensor twice", with_header("{\"a\":1,\"a\":2}"), "occurs twice"});
}

void entries(BadFiles& out) {
  for (std::string_view value : {"1", "[]", "\"F32\"", "null"}) {
    out.push_back({"entry " + std::string(value), with_header("{\"t\":" + std::string(value) + "}"), "not an object"});
  }
  out.push_back({"empty entry", with_header("{\"t\":{}}"), "has no dtype"});
  out.push_back({"no shape", with_header("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}"), "has no shape"});
  out.push_back({"no offsets", with_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[4]}}"), "no valid data_offsets"});
  out.push_back(
      {"empty name", with_header("{\"\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}"), "empty name"});
  out.push_back({"__metadata__ is a number", with_header("{\"__metadata__\":1}"), "__metadata__"});
  for (std::string_view dtype : {"1", "null", "[\"F32\"]"}) {
    out.push_back({"dtype " + std::string(dtype), with_header(entry(dtype, "[4]", "[0,16]")), "has no dtype"});
  }
  for (std::string_view dtype : {"F8_E4M3FNUZ", "F6_E2M3", "F4", "C64", "Q4_0", "Q4_K", "", "F33"}) {
    out.push_back({"dtype " + std::string(dtype), with_header(entry("\"" + std::string(dtype) + "\"", "[4]", "[0,16]")),
                   "has the dtype \"" + std::string(dtype) + "\""});
  }
  for (std::string_view shape : {"4", "null", "{\"0\":4}", "\"4\""}) {
    out.push_back({"shape " + std::string(shape), with_header(entry("\"F32\"", shape, "[0,16]")), "has no shape"});
  }
  for (std::string_view shape : {"[-4]", "[4.0]", "[\"4\"]", "[[4]]", "[18446744073709551615]", "[null]", "[1e3]"}) {
    out.push_back(
        {"shape " + std::string(shape), with_header(entry("\"F32\"", shape, "[0,16]")), "no integer from 0 on"});
  }
  for (std::string_view shape : {"[0]", "[4,0]", "[0,9223372036854775807]"}) {
    out.push_back({"shape " + std::string(shape), with_header(entry("\"F32\"", shape, "[0,16]")), "dimension of zero"});
  }
  for (std::string_view shape :
       {"[4611686018427387904]", "[4294967296,4294967296]", "[9223372036854775807,9223372036854775807]",
        "[4611686018427387905,4]", "[2147483648,2147483648,4]"}) {
    out.push_back(
        {"shape " + std::string(shape), with_header(entry("\"F32\"", shape, "[0,16]")), "more than 2^63 bytes"});
  }
  out.push_back({"rank 9", with_header(entry("\"F32\"", "[1,1,1,1,1,1,1,1,4]", "[0,16]")), "9 dimensions"});
  for (std::string_view place : {"[]", "[0]", "[0,16,16]", "0", "[16,0]", "[-16,0]", "[0,16.0]", "[\"0\",\"16\"]", "{}",
                                 "[0,18446744073709551615]", "[null,null]"}) {
    out.push_back(
        {"offsets " + std::string(place), with_header(entry("\"F32\"", "[4]", place)), "no valid data_offsets"});
  }
  for (std::string_view place : {"[0,15]", "[0,17]", "[0,0]", "[1,16]", "[0,9223372036854775807]"}) {
    out.push_back({"offsets " + std::string(place), with_header(entry("\"F32\"", "[4]", place)),
                   "bytes of data where its shape needs"});
  }
  for (std::string_view place : {"[16,32]", "[4,20]", "[9223372036854775791,9223372036854775807]"}) {
    out.push_back(
        {"offsets " + std::string(place), with_header(entry("\"F32\"", "[4]", place), 64), "a hole or an overlap"});
  }
  const std::string second = ",\"u\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":";
  std::string two = entry("\"F32\"", "[4]", "[0,16]");
  two.pop_back();
  for (std::string_view place : {"[0,16]", "[12,28]", "[20,36]"}) {
    out.push_back({"second tensor at " + std::string(place), with_header(two + second + std::string(place) + "}}", 64),
                   "a hole or an overlap"});
  }
  for (size_t n : {0, 15, 17, 4096}) {
    out.push_back(
        {std::to_string(n) + " bytes of data", with_header(entry("\"F32\"", "[4]", "[0,16]"), n), "the file has"});
  }
}

class HostileSafetensors : public testing::Test {
 protected:
  HostileSafetensors() { folder_.write("config.json", "{}"); }
  void expect(const std::string& name, const std::string& sentence) {
    Cost cost;
    Result<ModelFile> file = ModelFile::open(folder_.path());
    cost.expect_small(name);
    ASSERT_FALSE(file.ok()) << name;
    EXPECT_NE(file.error().message.find(sentence), std::string::npos) << name << ": " << file.error().message;
    EXPECT_LT(file.error().message.size(), 1000u) << name;
  }
  TempFolder folder_;
};

TEST_F(HostileSafetensors, TheFileThatTheCasesChangeIsGood) {
  folder_.write("model.safetensors", good());
  Result<ModelFile> file = ModelFile::open(folder_.path());
  ASSERT_TRUE(file.ok()) << file.error().message;
}

TEST_F(HostileSafetensors, EveryBadFileGetsItsOwnSentenceInTimeAndMemory) {
  BadFiles cases;
  lengths(cases);
  json(cases);
  entries(cases);
  std::set<std::string> names;
  for (const BadFile& bad : cases) {
    EXPECT_TRUE(names.insert(bad.name).second) << bad.name << " is there twice";
    folder_.write("model.safetensors", bad.bytes);
    expect(bad.name, bad.sentence);
  }
  EXPECT_GE(cases.size(), 60u);
  RecordProperty("cases", static_cast<int>(cases.size()));
}

TEST_F(HostileSafetensors, BadConfigurationsAreRefused) {
  folder_.write("model.safetensors", good());
  std::string wide = "{\"a\":[";
  for (int i = 0; i < 60'000; ++i) wide += "{},";
  // Without a limit on names this would flatten to gigabytes.
  std::string explosive = "{\"" + std::string(100'000, 'k') + "\":[";
  for (int i = 0; i < 20'000; ++i) explosive += "{\"x\":1},";
  const std::pair<std::string, std::string> cases[] = {
      {"", "no valid JSON"},
      {"[]", "not an object"},
      {"{\"a\": 1,}", "line 1, column"},
      {"{\n\"a\": Nan}", "line 2"},
      {"{\"a\": 1, \"a\": 1}", "occurs twice"},
      {"{\"a\": 1e400}", "beyond the range"},
      {std::string(1'000'000, '['), "no valid JSON"},
      {wide + "0]}", "more than 50000 values"},
      {explosive + "0]}", "more than 512 bytes"},
      {"{\"" + std::string(1'000'000, 'k') + "\": 1}", "more than 512 bytes"},
      {std::string("\xef\xbb\xbf{}"), "no valid JSON"},
      {std::string("{\"a\": \"\xc0\x80\"}"), "no valid JSON"}};
  for (const auto& [text, sentence] : cases) {
    folder_.write("config.json", text);
    expect("config.json " + text.substr(0, 40), sentence);
  }
  folder_.write("config.json", "{}");
  folder_.write("generation_config.json", "{");
  expect("generation_config.json", "generation_config.json: no valid JSON");
}

TEST_F(HostileSafetensors, BadIndicesAreRefused) {
  folder_.write("model.safetensors", good());
  const std::pair<std::string, std::string> cases[] = {
      {"", "no valid JSON"},
      {"{}", "no weight_map"},
      {"[]", "no weight_map"},
      {R"({"weight_map": []})", "no weight_map"},
      {R"({"weight_map": {}})", "or an empty one"},
      {R"({"weight_map": {"a": 1}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": ""}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": "."}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": ".."}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": "../model.safetensors"}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": "x/y.safetensors"}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": "x\\y"}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": "model.safetensors\u0000"}})", "does not lie in a file of this folder"},
      {R"({"weight_map": {"a": "gone.safetensors"}})", "lacks \"gone.safetensors\""},
      {R"({"weight_map": {"a": "model.safetensors", "a": "model.safetensors"}})", "occurs twice"}};
  for (const auto& [text, sentence] : cases) {
    folder_.write("model.safetensors.index.json", text);
    expect("index " + text, sentence);
  }
}

TEST_F(HostileSafetensors, FoldersPipesAndLoopsInPlaceOfFilesAreRefused) {
  std::string weights = folder_.path("model.safetensors");
  fs::create_directory(weights);
  expect("weights are a folder", "is a folder");
  fs::remove(weights);
  ASSERT_EQ(::mkfifo(weights.c_str(), 0600), 0);
  expect("weights are a pipe", "not a regular file");
  fs::remove(weights);
  fs::create_symlink("model.safetensors", weights);
  expect("weights are a link to themselves", "cannot open");
  fs::remove(weights);
  folder_.write("model.safetensors", good());
  fs::remove(folder_.path("config.json"));
  fs::create_directory(folder_.path("config.json"));
  expect("config.json is a folder", "is a folder");
}

TEST_F(HostileSafetensors, SparseFilesOfManyGigabytesCostNothing) {
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors.index.json", "model.safetensors"}) {
    for (const auto& entry : fs::directory_iterator(folder_.path())) fs::remove(entry);
    folder_.write("config.json", "{}");
    folder_.write("model.safetensors", good());
    std::string path = folder_.write(name, std::string_view("\x08\0\0\0\0\0\0\0", 8));
    ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 40), 0);
    expect(name, name == std::string("model.safetensors") ? "no valid JSON" : "are the most");
  }
}

TEST_F(HostileSafetensors, CutAtEveryByteGivesASentence) {
  std::string header = "{";
  for (int i = 0; i < 24; ++i) {
    if (i > 0) header += ",";
    header += "\"model.layers." + std::to_string(i) +
              ".weight\":{\"dtype\":\"BF16\",\"shape\":[4,12],\"data_offsets\":[" + std::to_string(96 * i) + "," +
              std::to_string(96 * i + 96) + "]}";
  }
  std::string bytes = with_header(header + "}", 24 * 96);
  ASSERT_GE(bytes.size(), 4096u);
  std::string path = folder_.write("model.safetensors", bytes);
  ASSERT_TRUE(ModelFile::open(folder_.path()).ok());
  Cost cost;
  for (size_t n = bytes.size(); n-- > 0;) {
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(n)), 0);
    Result<MappedFile> file = MappedFile::open(path);
    ASSERT_TRUE(file.ok());
    std::vector<TensorInfo> tensors;
    std::vector<std::unique_ptr<std::byte[]>> copies;
    ASSERT_FALSE(read_safetensors(*file, tensors, copies).ok()) << "cut to " << n << " bytes";
  }
  cost.expect_small("all cuts together");
}

}  // namespace
}  // namespace ibid
