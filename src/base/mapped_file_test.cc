#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "temp_folder.h"

namespace ibid {
namespace {

class MappedFiles : public testing::Test {
 protected:
  std::string path(const std::string& name) { return folder_.path(name); }
  std::string write(const std::string& name, std::string_view content) { return folder_.write(name, content); }
  TempFolder folder_;
};

TEST_F(MappedFiles, ShowTheBytesOfTheFileAndSurviveItsRemovalAndMoves) {
  std::string where = write("abc", "abc");
  Result<MappedFile> opened = MappedFile::open(where);
  ASSERT_TRUE(opened.ok());
  std::filesystem::remove(where);
  const std::byte* before = opened->bytes().data();
  MappedFile moved = *std::move(opened);
  EXPECT_EQ(moved.text(), "abc");
  EXPECT_EQ(moved.bytes().data(), before);
  EXPECT_EQ(moved.identity().size_bytes, 3);
  moved = MappedFile();
  EXPECT_TRUE(moved.bytes().empty());
}

TEST_F(MappedFiles, AnEmptyFileIsAnEmptySpan) {
  Result<MappedFile> opened = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(opened->bytes().empty());
}

TEST_F(MappedFiles, FoldersPipesAndNothingAreRefusedWithASentence) {
  EXPECT_EQ(MappedFile::open(path("none")).error().kind, ErrorKind::kNotFound);
  EXPECT_NE(MappedFile::open(folder_.path()).error().message.find("is a folder"), std::string::npos);
  std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(MappedFile::open(pipe).error().message.find("not a regular file"), std::string::npos);
}

TEST_F(MappedFiles, IdentityChangesWithTheContent) {
  std::string where = write("identity", "one");
  FileIdentity first = MappedFile::open(where)->identity();
  EXPECT_EQ(first, MappedFile::open(where)->identity());
  write("identity", "three");
  EXPECT_NE(first, MappedFile::open(where)->identity());
}

}  // namespace
}  // namespace ibid
