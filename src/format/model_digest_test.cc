#include "format/model_digest.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "format/gguf_writer.h"
#include "temp_folder.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

class Digest : public testing::Test {
 protected:
  // A model of one tensor whose first byte is `content`, last modified an hour ago.
  ModelFile model(uint8_t content) {
    std::vector<std::byte> data(16);
    data[0] = static_cast<std::byte>(content);
    GgufWriter writer;
    writer.set("general.architecture", "llama");
    writer.add_tensor("a", DType::kF32, {4}, data);
    std::string path = folder_.path("model.gguf");
    EXPECT_TRUE(writer.write(path).ok());
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    return ModelFile::open(path).value();
  }
  std::string cache() { return folder_.path("cache"); }
  int n_kept() {
    int n = 0;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(cache() + "/digests", ignored)) n += entry.is_regular_file();
    return n;
  }
  TempFolder folder_;
};

TEST_F(Digest, DependsOnEveryByteAndOnNothingElse) {
  ModelDigest one = model_digest(model(1), cache());
  EXPECT_EQ(one, model_digest(model(1), folder_.path("other")));
  EXPECT_NE(one, model_digest(model(2), folder_.path("third")));
  EXPECT_EQ(one.hex().size(), 32u);
}

TEST_F(Digest, IsKeptByTheIdentityOfTheFile) {
  ModelFile file = model(1);
  ModelDigest first = model_digest(file, cache());
  ASSERT_EQ(n_kept(), 1);
  // Proof that the second look-up does not read the file: the entry is believed.
  auto entry = fs::directory_iterator(cache() + "/digests")->path();
  std::ofstream(entry) << std::string(32, '7') << '\n';
  EXPECT_EQ(model_digest(file, cache()).hex(), std::string(32, '7'));
  std::ofstream(entry) << "damaged\n";
  EXPECT_EQ(model_digest(file, cache()), first);
}

TEST_F(Digest, OfAFileJustWrittenIsNotKept) {
  ModelFile file = model(1);
  fs::last_write_time(file.path(), fs::file_time_type::clock::now());
  model_digest(ModelFile::open(file.path()).value(), cache());
  EXPECT_EQ(n_kept(), 0);
}

TEST_F(Digest, ACacheThatCannotBeWrittenIsNoError) {
  ModelFile file = model(1);
  EXPECT_EQ(model_digest(file, "/proc/nowhere"), model_digest(file, cache()));
}

}  // namespace
}  // namespace ibid
