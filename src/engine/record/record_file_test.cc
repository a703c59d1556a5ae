// A damaged record is read up to the damage, and a record that cannot be written ends only itself.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>

#include "recorded_life.h"

namespace ibid {
namespace {

using namespace testing;  // the fixture

TEST(Record, IsReadUpToWhereItIsWhole) {
  const Recorded was(7);
  const std::string bytes = bytes_of(was.path);
  const int64_t n_whole = replay(was.path, false).n_turns;
  int64_t n_before = 0;
  int n_between = 0;
  for (size_t n = 0; n < bytes.size(); n += 1 + n / 7) {
    const std::string path = was.folder.path() + "/torn";
    std::ofstream(path, std::ios::binary) << bytes.substr(0, n);
    Result<std::unique_ptr<Replay>> torn = Replay::open(path);
    if (!torn) continue;
    const ReplayResult is = replay(path, false);
    EXPECT_EQ(is.difference, "") << n;
    EXPECT_NE(is.end, "closed");
    EXPECT_GE(is.n_turns, n_before);
    n_before = is.n_turns;
    n_between += is.n_turns > 0 && is.n_turns < n_whole;
  }
  // The last cut may lose the closing event alone: how long the file is depends on the times in it.
  EXPECT_LE(n_before, n_whole);
  EXPECT_GT(n_between, 3);
}

TEST(Record, ADamagedByteEndsItThere) {
  const Recorded was(8);
  const std::string bytes = bytes_of(was.path);
  std::mt19937_64 random(1);
  for (int i = 0; i < 60; ++i) {
    std::string wrong = bytes;
    wrong[random() % wrong.size()] ^= static_cast<char>(1 << random() % 8);
    const std::string path = was.folder.path() + "/wrong";
    std::ofstream(path, std::ios::binary) << wrong;
    if (!Replay::open(path).ok()) continue;
    const ReplayResult is = replay(path, false);
    EXPECT_EQ(is.difference, "");
    EXPECT_NE(is.end, "closed");
  }
}

// An attacker can write valid checksums: wrong bytes with a valid checksum are rejected or replay as something else,
// and nothing worse.
TEST(Record, BytesOfAnyKindAreReadOrRefused) {
  const Recorded was(9);
  const std::string bytes = bytes_of(was.path);
  std::mt19937_64 random(2);
  int n_refused = 0, n_other = 0;
  for (int i = 0; i < 400; ++i) {
    std::string wrong(record::kMagic);
    for (size_t at = wrong.size(); at + 8 <= bytes.size();) {
      uint32_t n = 0;
      std::memcpy(&n, bytes.data() + at, 4);
      std::string body = bytes.substr(at + 8, n);
      if (random() % 40 == 0) {
        const size_t k = random() % body.size();
        if (random() % 4 == 0)
          body.erase(k, 1 + random() % 3);
        else if (random() % 3 == 0)
          body.insert(k, 1 + random() % 9, static_cast<char>(random()));
        else
          body[k] = static_cast<char>(random());
      }
      n = static_cast<uint32_t>(body.size());
      const uint32_t sum = record::checksum(body);
      wrong.append(reinterpret_cast<const char*>(&n), 4).append(reinterpret_cast<const char*>(&sum), 4).append(body);
      at += 8 + static_cast<size_t>(*reinterpret_cast<const uint32_t*>(bytes.data() + at));
      if (wrong.size() > 6000) break;
    }
    const std::string path = was.folder.path() + "/wrong";
    std::ofstream(path, std::ios::binary) << wrong;
    auto opened = Replay::open(path);
    if (!opened && ++n_refused > 0) continue;
    ThreadTeam team(1);
    Stream stream(team);
    auto engine = (*opened)->engine_without_model(stream);
    if (!engine && ++n_refused > 0) continue;
    const Result<ReplayResult> is = (*opened)->run(**engine, nullptr);
    is ? n_other += !is->difference.empty() : n_refused += 1;
  }
  EXPECT_GT(n_refused, 20);
  EXPECT_GT(n_other, 20);
}

TEST(Record, IsItsOwnersAndWritesOverNothing) {
  const Recorded was(1);
  struct stat about = {};
  ASSERT_EQ(stat(was.path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  const auto again = Recorder::create({.path = was.path});
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("is there already"), std::string::npos);
  EXPECT_FALSE(Recorder::create({.path = was.folder.path() + "/no/such/folder"}).ok());
  EXPECT_TRUE(Recorder::create({.path = was.folder.path() + "/unused"}).ok());
  EXPECT_NE(stat((was.folder.path() + "/unused").c_str(), &about), 0) << "nothing was recorded, nothing is left";
  EXPECT_FALSE(Replay::open(was.folder.path() + "/nothing").ok());
  std::ofstream(was.folder.path() + "/text") << "some text, longer than a head";
  EXPECT_NE(Replay::open(was.folder.path() + "/text").error().message.find("is no record"), std::string::npos);
}

TEST(Record, AFullDiskEndsItAndNotTheEngine) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {5000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Recorded was(4);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_GT(was.n_tokens, 100);
  const ReplayResult is = replay(was.path, false);
  EXPECT_EQ(is.difference, "");
  EXPECT_GT(is.n_turns, 0);
  EXPECT_LT(is.n_tokens, was.n_tokens);
}

TEST(Record, ADiskThatIsTooSlowEndsItAndNotTheEngine) {
  const Recorded was(4, false, 4000);
  EXPECT_GT(was.n_tokens, 100);
  const ReplayResult is = replay(was.path, false);
  EXPECT_EQ(is.difference, "");
  EXPECT_EQ(is.end, "the disk is too slow for it");
}

}  // namespace
}  // namespace ibid
