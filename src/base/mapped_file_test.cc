#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/descriptor.h"
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

TEST_F(MappedFiles, TruncatedFileEndsTheProcessByName) {
  const std::string content(3 << 16, 'x'), where = write("cut", content), other = write("other", content);
  const auto read_cut = [&](bool is_mapped) {
    end_where_files_are_cut(7);
    std::vector<MappedFile> gone;
    for (int i = 0; i < 100; ++i) gone.push_back(*MappedFile::open(other));  // more than there are places for
    gone.clear();
    MappedFile file = *MappedFile::open(where);
    const volatile std::byte* last = file.bytes().data() + content.size() - 1;
    if (!is_mapped) file = MappedFile();  // whose place is forgotten
    void* again =
        ::mmap(nullptr, content.size(), PROT_READ, MAP_PRIVATE, Descriptor(::open(where.c_str(), O_RDONLY)).get(), 0);
    std::filesystem::resize_file(where, 10);
    if (!is_mapped) last = static_cast<const volatile std::byte*>(again) + content.size() - 1;
    const std::byte read = *last;
    std::_Exit(static_cast<int>(read));
  };
  EXPECT_EXIT(read_cut(true), testing::ExitedWithCode(7), "error: .*/cut was cut short while it was in use");
  write("cut", content);
  EXPECT_EXIT(read_cut(false), testing::KilledBySignal(SIGBUS), "");  // no file of ours: as the system does
}

TEST_F(MappedFiles, TruncatedOptionalFileReadsAsZeros) {
  const std::string content(3 << 16, 'x'), where = write("help", content);
  const auto read_cut = [&](bool only_helps) {
    end_where_files_are_cut(7);
    const MappedFile file = *MappedFile::open(where), model = *MappedFile::open(where);
    if (only_helps) file.let_go_where_cut();
    if (file.is_lost() || file.text() != content) std::_Exit(1);
    std::filesystem::resize_file(where, 10);
    const auto last_of = [](const MappedFile& of) {
      const volatile char* last = &of.text().back();
      return *last;
    };
    const bool are_zeros = last_of(file) == 0 && file.text() == std::string(content.size(), '\0');
    if (!are_zeros || !file.is_lost() || model.is_lost()) std::_Exit(2);
    std::_Exit(last_of(model));  // the same file, as what is needed
  };
  EXPECT_EXIT(read_cut(true), testing::ExitedWithCode(7),
              "warning: .*/help was cut short while it was in use.*\nerror: .*/help was cut short");
  write("help", content);
  EXPECT_EXIT(read_cut(false), testing::ExitedWithCode(7), "^error: ");
}

}  // namespace
}  // namespace ibid
