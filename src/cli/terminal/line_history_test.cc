#include "cli/terminal/line_history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "temp_folder.h"

namespace ibid::cli {
namespace {

using Lines = std::vector<std::string>;

TEST(LineHistory, KeepsLinesInAFileThatOnlyItsOwnerReads) {
  TempFolder folder;
  const std::string path = folder.path("state/ibid/history");
  EXPECT_EQ(LineHistory(path).read(), Lines());
  LineHistory(path).add("one");
  LineHistory(path).add("two\nlines \"and\" \u00fc");
  EXPECT_EQ(LineHistory(path).read(), (Lines{"one", "two\nlines \"and\" \u00fc"}));
  struct stat told = {};
  ASSERT_EQ(::stat(path.c_str(), &told), 0);
  EXPECT_EQ(told.st_mode & 0777, 0600u);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  LineHistory(path).add("three");
  ASSERT_EQ(::stat(path.c_str(), &told), 0);
  EXPECT_EQ(told.st_mode & 0777, 0600u) << "what others could read they cannot any more";
}

TEST(LineHistory, WithoutAPathNothingIsKept) {
  LineHistory("").add("one");
  EXPECT_EQ(LineHistory("").read(), Lines());
}

TEST(LineHistory, InvalidLinesAreLeftOutAndALongFileIsCut) {
  TempFolder folder;
  const std::string path = folder.write("history", "\"a\"\nrubbish\n5\n\"b\"\n");
  EXPECT_EQ(LineHistory(path).read(), (Lines{"a", "b"}));
  const LineHistory history(path);
  for (size_t i = 0; i < 3 * LineHistory::kMost; ++i) history.add(std::to_string(i));
  EXPECT_EQ(history.read().size(), LineHistory::kMost);
  EXPECT_EQ(history.read().back(), std::to_string(3 * LineHistory::kMost - 1));
  std::ifstream file(path);
  size_t n = 0;
  for (std::string line; std::getline(file, line);) ++n;
  EXPECT_EQ(n, LineHistory::kMost);
}

TEST(LineHistory, AFolderOrAPipeIsNoPlaceForIt) {
  TempFolder folder;
  LineHistory(folder.path()).add("one");
  EXPECT_EQ(LineHistory(folder.path()).read(), Lines());
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  LineHistory(folder.path("pipe")).add("one");  // and does not block
  EXPECT_EQ(LineHistory(folder.path("pipe")).read(), Lines());
}

TEST(LineHistory, PlaceComesFromTheEnvironment) {
  const auto path_with = [](const char* file, const char* state) {
    file ? ::setenv("IBID_HISTFILE", file, 1) : ::unsetenv("IBID_HISTFILE");
    state ? ::setenv("XDG_STATE_HOME", state, 1) : ::unsetenv("XDG_STATE_HOME");
    return line_history_path();
  };
  EXPECT_EQ(path_with("", "/state"), "");
  EXPECT_EQ(path_with("/x", "/state"), "/x");
  EXPECT_EQ(path_with(nullptr, "/state"), "/state/ibid/history");
  EXPECT_EQ(path_with(nullptr, nullptr), std::string(std::getenv("HOME")) + "/.local/state/ibid/history");
}

}  // namespace
}  // namespace ibid::cli
