#include "worker/block_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "temp_folder.h"
#include "worker/disk_thread.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

constexpr BlockFormat kFormat = {.block_len = 8, .payload_bytes = 300};

struct Block {
  DurableKey key, parent;
  std::vector<std::byte> image;
};

Block block(int32_t seed) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < kFormat.block_len; ++i) tokens.push_back(TokenId{seed * 100 + i});
  Block out;
  out.parent = durable_key_of_scope("layout", std::to_string(seed));
  out.key = durable_key_of_block(out.parent, tokens);
  out.image.resize(static_cast<size_t>(kFormat.image_bytes()));
  begin_image(kFormat, out.image, out.key, out.parent, tokens);
  for (std::byte& byte : payload_of(kFormat, out.image)) byte = static_cast<std::byte>(seed++);
  seal_image(out.image);
  return out;
}

std::string file_of(const TempFolder& temp, const DurableKey& key) {
  std::string name;
  for (const uint8_t byte : key) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", byte);
    name += digits;
  }
  return temp.path("cache/blocks-1/" + name.substr(0, 2) + "/" + name);
}

BlockFolder open(const TempFolder& temp) { return BlockFolder::open(temp.path("cache")).value(); }

BlockIo read(const BlockFolder& folder, const Block& b, std::vector<std::byte>& image) {
  image.assign(b.image.size(), std::byte{0});
  return folder.read(kFormat, b.key, 1000, image);
}
BlockIo read(const BlockFolder& folder, const Block& b) {
  std::vector<std::byte> image;
  return read(folder, b, image);
}

TEST(BlockImage, EveryFlippedBitIsFound) {
  const Block b = block(1);
  ASSERT_EQ(check_image(kFormat, b.image, b.key), BlockIo::kDone);
  for (size_t bit = 0; bit < 8 * b.image.size(); ++bit) {
    std::vector<std::byte> image = b.image;
    image[bit / 8] ^= std::byte(1 << bit % 8);
    ASSERT_NE(check_image(kFormat, image, b.key), BlockIo::kDone) << "bit " << bit;
  }
}

TEST(BlockImage, AnotherBlockUnderThisNameIsForeignAndSoIsAnotherFormat) {
  const Block a = block(1), b = block(2);
  EXPECT_EQ(check_image(kFormat, a.image, b.key), BlockIo::kForeign);
  EXPECT_EQ(check_image({.block_len = 8, .payload_bytes = 299}, std::span(a.image).first(a.image.size() - 1), a.key),
            BlockIo::kForeign);
  // Whole, sealed, and under its stated name, which is not the hash of its contents.
  Block liar = a;
  begin_image(kFormat, liar.image, b.key, a.parent, tokens_of_image(a.image));
  seal_image(liar.image);
  EXPECT_EQ(check_image(kFormat, liar.image, b.key), BlockIo::kForeign);
}

constexpr BlockFormat kWithStates = {.block_len = 8, .payload_bytes = 300, .state_bytes = 40};

std::vector<std::byte> state_image(const DurableKey& parent, std::span<const TokenId> tokens, DurableKey& key) {
  key = durable_key_of_state(parent, tokens);
  std::vector<std::byte> image(static_cast<size_t>(kWithStates.image_bytes(ImageKind::kState)));
  begin_image(kWithStates, image, key, parent, tokens);
  std::ranges::fill(payload_of(kWithStates, image), std::byte{7});
  seal_image(image);
  return image;
}

TEST(BlockImage, OfAStateNamesTheTokensThatItStandsAfter) {
  const DurableKey parent = durable_key_of_scope("layout", "");
  const std::vector<TokenId> tokens = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4},
                                       TokenId{5}, TokenId{6}, TokenId{7}, TokenId{8}};
  for (const size_t n : {1, 5, 8}) {
    DurableKey key;
    std::vector<std::byte> image = state_image(parent, std::span(tokens).first(n), key);
    EXPECT_EQ(check_image(kWithStates, image, key), BlockIo::kDone);
    EXPECT_EQ(tokens_of_image(image).size(), n);
    EXPECT_EQ(payload_of(kWithStates, image).size(), 340u);
    for (size_t bit = 0; bit < 8 * image.size(); bit += 5) {
      std::vector<std::byte> flipped = image;
      flipped[bit / 8] ^= std::byte(1 << bit % 8);
      ASSERT_NE(check_image(kWithStates, flipped, key), BlockIo::kDone) << "bit " << bit;
    }
  }
}

TEST(BlockImage, ABlockIsNoStateAndAStateNoBlock) {
  const Block b = block(1);
  DurableKey key;
  const std::vector<std::byte> state = state_image(b.parent, tokens_of_image(b.image), key);
  EXPECT_NE(key, b.key);
  EXPECT_EQ(check_image(kWithStates, state, b.key), BlockIo::kForeign);
  EXPECT_EQ(check_image(kFormat, state, key), BlockIo::kCorrupt);  // of a model without states: no such length
  std::vector<std::byte> longer = b.image;
  longer.resize(state.size());
  EXPECT_EQ(check_image(kWithStates, longer, b.key), BlockIo::kForeign);
}

TEST(BlockFolder, NextProcessReadsWrittenBlocks) {
  const TempFolder temp;
  const Block a = block(1), b = block(2);
  {
    const BlockFolder folder = open(temp);
    EXPECT_EQ(folder.write(a.key, 7'000'000'123, a.image), BlockIo::kDone);
    EXPECT_EQ(folder.write(b.key, 5'000'000'000, b.image), BlockIo::kDone);
    folder.touch(b.key, 9'000'000'001);
  }
  BlockFolder folder = open(temp);
  const std::vector<DurableEntry> found = folder.take_found();
  ASSERT_EQ(found.size(), 2u);
  for (const DurableEntry& entry : found) {
    EXPECT_EQ(entry.bytes, kFormat.image_bytes());
    EXPECT_EQ(entry.age, entry.key == a.key ? 7'000'000'123 : 9'000'000'001);
  }
  std::vector<std::byte> image;
  EXPECT_EQ(read(folder, a, image), BlockIo::kDone);
  EXPECT_EQ(image, a.image);
  EXPECT_EQ(parent_of_image(image), a.parent);
  EXPECT_EQ(read(folder, block(3)), BlockIo::kMissing);
}

TEST(BlockFolder, FilesAndFoldersAreTheirOwnersAlone) {
  const TempFolder temp;
  const Block a = block(1);
  const mode_t before = ::umask(0);
  {
    const BlockFolder folder = open(temp);
    ASSERT_EQ(folder.write(a.key, 1, a.image), BlockIo::kDone);
  }
  ::umask(before);
  const auto mode = [](const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  };
  EXPECT_EQ(mode(file_of(temp, a.key)), 0600u);
  EXPECT_EQ(mode(fs::path(file_of(temp, a.key)).parent_path()), 0700u);
  EXPECT_EQ(mode(temp.path("cache/blocks-1")), 0700u);
  ASSERT_EQ(::chmod(temp.path("cache/blocks-1").c_str(), 0770), 0);
  const auto refused = BlockFolder::open(temp.path("cache"));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("open to other users"), std::string::npos) << refused.error().message;
}

TEST(BlockFolder, ASecondProcessIsRefusedWithASentenceAndTouchesNothing) {
  const TempFolder temp;
  const BlockFolder folder = open(temp);
  const Block a = block(1);
  folder.write(a.key, 1, a.image);
  const std::string half = file_of(temp, a.key) + ".part";
  std::ofstream(half) << "as the first one writes it";
  const pid_t child = ::fork();
  if (child == 0) {
    const auto second = BlockFolder::open(temp.path("cache"));
    ::_exit(!second.ok() && second.error().message.find("in use by another process") != std::string::npos ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(fs::exists(half));
}

TEST(BlockFolder, TornAndFlippedFilesAreRemoved) {
  const Block a = block(1);
  for (const int64_t len : {int64_t{0}, int64_t{1}, int64_t{127}, kFormat.header_bytes(), kFormat.image_bytes() - 1}) {
    const TempFolder temp;
    const BlockFolder folder = open(temp);
    ASSERT_EQ(folder.write(a.key, 1, a.image), BlockIo::kDone);
    fs::resize_file(file_of(temp, a.key), static_cast<uintmax_t>(len));
    EXPECT_EQ(read(folder, a), BlockIo::kCorrupt) << len;
    EXPECT_EQ(read(folder, a), BlockIo::kMissing) << len;
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    const TempFolder temp;
    const BlockFolder folder = open(temp);
    ASSERT_EQ(folder.write(a.key, 1, a.image), BlockIo::kDone);
    const auto at = static_cast<std::streamoff>(random() % a.image.size());
    std::fstream file(file_of(temp, a.key), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at).put(static_cast<char>(std::to_integer<int>(a.image[static_cast<size_t>(at)]) ^ 1 << random() % 8));
    file.close();
    const BlockIo outcome = read(folder, a);
    EXPECT_TRUE(outcome == BlockIo::kCorrupt || outcome == BlockIo::kForeign) << at;
  }
}

TEST(BlockFolder, AnotherBlocksFileUnderThisNameIsForeign) {
  const TempFolder temp;
  const Block a = block(1), b = block(2);
  const BlockFolder folder = open(temp);
  ASSERT_EQ(folder.write(a.key, 1, a.image), BlockIo::kDone);
  ASSERT_EQ(folder.write(b.key, 1, b.image), BlockIo::kDone);
  fs::copy_file(file_of(temp, a.key), file_of(temp, b.key), fs::copy_options::overwrite_existing);
  EXPECT_EQ(read(folder, b), BlockIo::kForeign);
  EXPECT_EQ(read(folder, a), BlockIo::kDone);
}

TEST(BlockFolder, NamesThatAreNotOursAreLeftAloneAndWhatWasHalfWrittenGoes) {
  const TempFolder temp;
  const Block a = block(1);
  open(temp).write(a.key, 1, a.image);
  const fs::path file = file_of(temp, a.key);
  for (const char* name : {"notes.txt", "ABCD", ".part"}) std::ofstream(file.parent_path() / name) << "mine";
  std::ofstream(file.string() + ".part") << "torn";
  std::string elsewhere = file.filename();
  elsewhere[0] = elsewhere[0] == '0' ? '1' : '0';
  std::ofstream(file.parent_path() / elsewhere) << "a name of another folder";
  std::string linked = file.filename();
  linked.back() = linked.back() == '0' ? '1' : '0';
  fs::create_symlink("/etc/passwd", file.parent_path() / linked);
  BlockFolder folder = open(temp);
  ASSERT_EQ(folder.take_found().size(), 1u);
  EXPECT_TRUE(fs::exists(file.parent_path() / "notes.txt"));
  EXPECT_TRUE(fs::exists(file.parent_path() / ".part"));
  EXPECT_FALSE(fs::exists(file.string() + ".part"));
  Block b = a;
  b.key.back() ^= linked.back() == '0' || linked.back() == '1' ? 1 : 0;
  EXPECT_NE(read(folder, b), BlockIo::kDone);  // a link is not followed
}

// A folder in a file's place, and a file that may not be as long as it must: the system's error is reported.
TEST(BlockFolder, SystemErrorsAreReportedAndLeaveNoFiles) {
  const TempFolder temp;
  const Block a = block(1), b = block(2);
  const BlockFolder folder = open(temp);
  fs::create_directories(file_of(temp, a.key) + "/x");
  EXPECT_NE(read(folder, a), BlockIo::kDone);
  EXPECT_EQ(folder.write(a.key, 1, a.image), BlockIo::kFailed);
  EXPECT_FALSE(fs::exists(file_of(temp, a.key) + ".part"));
  const pid_t child = ::fork();  // a limit on files that is the child's own
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const bool is_told = folder.write(b.key, 1, b.image) == BlockIo::kNoSpace;
    ::_exit(is_told && !fs::exists(file_of(temp, b.key)) && !fs::exists(file_of(temp, b.key) + ".part") ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(folder.write(b.key, 1, b.image), BlockIo::kDone);
}

TEST(BlockFolder, AFolderThatCannotBeIsRefusedWithItsName) {
  const TempFolder temp;
  temp.write("file", "x");
  const auto refused = BlockFolder::open(temp.path("file/cache"));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("file/cache"), std::string::npos) << refused.error().message;
}

TEST(DiskThread, WritesReadsAndForgetsInOrderAndBesideTheCaller) {
  const TempFolder temp;
  std::vector<Block> blocks;
  for (int32_t i = 0; i < 100; ++i) blocks.push_back(block(i));
  {
    auto disk = open_disk(temp.path("cache"), kFormat).value();
    for (const Block& b : blocks) {
      const std::span<std::byte> image = disk->image_to_write(ImageKind::kBlock);
      ASSERT_FALSE(image.empty());
      begin_image(kFormat, image, b.key, b.parent, tokens_of_image(b.image));
      std::ranges::copy(std::span(b.image).subspan(static_cast<size_t>(kFormat.header_bytes())),
                        payload_of(kFormat, image).begin());
      ASSERT_TRUE(disk->write(b.key, 1, image));
    }
    disk->remove(blocks[7].key);
  }  // what was taken is written before it ends
  auto disk = open_disk(temp.path("cache"), kFormat).value();
  EXPECT_EQ(disk->take_found().size(), 99u);
  std::vector<DurableStore::Done> done;
  int64_t n_read = 0, ticket = 0;
  for (size_t turn = 0; n_read < 100 && turn < 10000; ++turn) {
    while (ticket < 100 && disk->read(blocks[static_cast<size_t>(ticket)].key, 2, ticket, ImageKind::kBlock)) ++ticket;
    disk->wait(0.1);
    done.clear();
    disk->collect(done);
    for (const DurableStore::Done& d : done) {
      EXPECT_EQ(d.ticket, n_read);
      EXPECT_EQ(d.outcome, n_read == 7 ? BlockIo::kMissing : BlockIo::kDone);
      EXPECT_TRUE(n_read == 7 || std::ranges::equal(d.image, blocks[static_cast<size_t>(n_read)].image));
      disk->release(d.image);
      ++n_read;
    }
  }
  EXPECT_EQ(n_read, 100);
  EXPECT_EQ(disk->n_under_way(), 0);
}

}  // namespace
}  // namespace ibid
