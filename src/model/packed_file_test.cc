#include "model/packed_file.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "format/file_lock.h"
#include "format/model_digest.h"
#include "kernels/linear.h"
#include "model/testing/loaded_model.h"
#include "temp_folder.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;
using testing::LoadedModel;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Written in place, so that its identity can be what it was.
void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class Packed : public ::testing::Test {
 protected:
  explicit Packed() : team_(2), stream_(team_) {}

  std::shared_ptr<const ModelFile> model_file(const testing::TinyModelOptions& options = {.dtype = DType::kQ8_0}) {
    const std::string path = folder_.path("model" + std::to_string(n_files_++) + ".gguf");
    write(path, testing::tiny_gguf(options));
    make_old(path);
    return std::make_shared<const ModelFile>(ModelFile::open(path).value());
  }
  // A file that has not changed for an hour: what is found of it is remembered.
  static void make_old(const std::string& path) {
    static const auto kThen = fs::file_time_type::clock::now() - std::chrono::hours(1);
    fs::last_write_time(path, kThen);
  }
  std::string cache() { return folder_.path("cache"); }
  std::vector<float> logits(const std::shared_ptr<const ModelFile>& file, bool keeps = true) {
    LoadedModel m(file, {.step_tokens = 16, .max_rows = 16, .keep_packed_in = keeps ? cache() : std::string()});
    return m.logits(testing::some_tokens(12, 90));
  }
  Result<PackedFile> open(const ModelFile& file) {
    return PackedFile::open(cache(), model_digest(file, cache()), stream_);
  }
  std::string path_of(const ModelFile& file) { return PackedFile::path_in(cache(), model_digest(file, cache())); }

  int n_files_ = 0;
  TempFolder folder_;
  ThreadTeam team_;
  Stream stream_;
};

std::vector<DType> every_dtype() {
  std::vector<DType> all(testing::tiny_dtypes().begin(), testing::tiny_dtypes().end());
  all.insert(all.end(), testing::low_bit_dtypes().begin(), testing::low_bit_dtypes().end());
  return all;
}

TEST_F(Packed, AnswersAreTheSameOfEveryType) {
  for (const DType dtype : every_dtype()) {
    const auto file = model_file({.dtype = dtype});
    const std::vector<float> plain = logits(file, false);
    EXPECT_FALSE(open(*file).ok());
    EXPECT_EQ(logits(file), plain) << traits(dtype).name;
    const auto kept = open(*file);
    ASSERT_TRUE(kept.ok()) << kept.error().message;
    EXPECT_EQ(logits(file), plain) << traits(dtype).name;
  }
}

TEST_F(Packed, AnswersAreTheSameOfExperts) {
  end_where_files_are_cut(7);
  for (const DType dtype : {DType::kF16, DType::kQ4_K}) {
    const auto file = model_file({.architecture = "qwen2moe", .dtype = dtype});
    const std::vector<float> plain = logits(file, false);
    EXPECT_EQ(logits(file), plain) << traits(dtype).name;
    ASSERT_TRUE(open(*file).ok());
    LoadedModel kept(file, {.step_tokens = 16, .max_rows = 16, .keep_packed_in = cache()});
    EXPECT_EQ(kept.logits(testing::some_tokens(12, 90)), plain) << traits(dtype).name;
    // What is lost is packed again, matrix by matrix.
    fs::resize_file(path_of(*file), 4096);
    EXPECT_EQ(kept.logits(testing::some_tokens(12, 90)), plain) << traits(dtype).name;
  }
}

TEST_F(Packed, AreMappedAndNotMadeAgain) {
  const auto file = model_file();
  const std::vector<float> plain = logits(file);
  const std::string path = path_of(*file);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  make_old(path);
  ASSERT_TRUE(open(*file).ok());  // all of it was read, and that is remembered
  // Proof that a start believes it: a byte that changed and left the file's identity alone is in the answer.
  std::string bytes = read(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write(path, bytes);
  make_old(path);
  EXPECT_NE(logits(file), plain);
  // Who doubts it reads it.
  EXPECT_FALSE(PackedFile::open(cache(), model_digest(*file, cache()), stream_, true).ok());
  // Another time of modification, and every start does.
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(1));
  EXPECT_EQ(logits(file), plain);
  EXPECT_TRUE(open(*file).ok()) << "it was made again";
}

TEST_F(Packed, OnesThatAreCutShortWhileTheyAreReadAreMadeAgain) {
  end_where_files_are_cut(7);
  const auto file = model_file();
  const std::vector<float> plain = logits(file);
  LoadedModel m(file, {.step_tokens = 16, .max_rows = 16, .keep_packed_in = cache()});
  ASSERT_EQ(m.logits(testing::some_tokens(12, 90)), plain);
  fs::resize_file(path_of(*file), 4096);  // its head alone is left
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(m.logits(testing::some_tokens(12, 90)), plain);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(".packed was cut short while it was in use"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), said.size() - 1) << "once: " << said;
}

TEST_F(Packed, SecondWriterTouchesNothing) {
  const auto file = model_file();
  fs::create_directories(cache() + "/packed");
  const std::string partial = path_of(*file) + ".partial";
  write(partial, "half");
  {
    const auto other = FileLock::acquire(PackedFile::lock_in(cache()), [] { return false; });
    ASSERT_TRUE(other.ok());
    logits(file);
    EXPECT_EQ(read(partial), "half");
    EXPECT_FALSE(open(*file).ok());
  }
  logits(file);
  EXPECT_FALSE(fs::exists(partial)) << "it was of somebody who is gone";
  EXPECT_TRUE(open(*file).ok());
}

// Changes a byte and leaves the file's identity as it was: opening it afterwards does not notice.
void change_unseen(const std::string& path) {
  const auto time = fs::last_write_time(path);
  std::string bytes = read(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write(path, bytes);
  fs::last_write_time(path, time);
}

TEST_F(Packed, AreNotReadByTheStartAfterTheOneThatWroteThem) {
  const auto file = model_file();
  logits(file);
  change_unseen(path_of(*file));
  EXPECT_TRUE(open(*file).ok());
}

// Whoever writes into it within the granularity of a file's time must give it another time: it is dated back by more.
TEST_F(Packed, ChangedJustAfterTheyWereWrittenAreRead) {
  for (int i = 0; i < 20; ++i) {
    const auto file = model_file({.dtype = DType::kQ8_0, .seed = static_cast<uint64_t>(i + 1)});
    logits(file);
    const std::string path = path_of(*file);
    EXPECT_LT(fs::last_write_time(path), fs::file_time_type::clock::now() - std::chrono::seconds(3));
    {
      std::fstream in_place(path, std::ios::binary | std::ios::in | std::ios::out);
      in_place.seekp(-1, std::ios::end).put('\xff');
      in_place.seekp(5000).put('\xff');
    }
    EXPECT_FALSE(open(*file).ok()) << i;
  }
}

TEST_F(Packed, WrittenBeforeTheSystemLastStartedAreRead) {
  const auto file = model_file();
  logits(file);
  int n_of_this_run = 0;
  for (const auto& entry : fs::directory_iterator(cache() + "/digests")) {
    const std::string text = read(entry.path());
    const size_t end = text.find(' ');
    if (end == std::string::npos) continue;
    ++n_of_this_run;
    write(entry.path(), text.substr(0, end) + " 00000000-0000-0000-0000-000000000000\n");
  }
  EXPECT_EQ(n_of_this_run, 1);
  EXPECT_TRUE(open(*file).ok());  // it was read and is known from now on
  change_unseen(path_of(*file));
  EXPECT_TRUE(open(*file).ok());
  fs::remove_all(cache() + "/digests");
  EXPECT_FALSE(open(*file).ok()) << "nothing is known, so it is read";
}

TEST_F(Packed, ABrokenFileIsRefusedAtEveryByteAndMadeAgain) {
  const auto file = model_file();
  const std::vector<float> plain = logits(file);
  const std::string path = path_of(*file), bytes = read(path);
  const auto refused = [&](const std::string& broken) {
    write(path, broken);
    const auto opened = open(*file);
    return !opened.ok() && opened.error().kind == ErrorKind::kInvalid;
  };
  const auto number = [&bytes](size_t at, size_t len) {
    uint64_t n = 0;
    std::memcpy(&n, bytes.data() + at, len);
    return static_cast<size_t>(n);
  };
  const size_t n_sections = number(12, 4), head = 64 + 64 * n_sections;
  ASSERT_GT(n_sections, 10u);
  std::vector<size_t> places = {head, 4095};
  for (size_t at = 0; at < head; ++at) places.push_back(at);
  for (size_t i = 0; i < n_sections; ++i) {  // each one's first, middle and last byte
    const size_t at = number(64 + 64 * i + 24, 8), len = number(64 + 64 * i + 32, 8);
    for (const size_t place : {at, at + len / 2, at + len - 1}) places.push_back(place);
  }
  for (const size_t at : places) {
    std::string broken = bytes;
    broken[at] = static_cast<char>(broken[at] ^ 16);
    EXPECT_TRUE(refused(broken)) << at;
  }
  for (const size_t len : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{100}, size_t{4096}, bytes.size() - 1}) {
    EXPECT_TRUE(refused(bytes.substr(0, len))) << len;
  }
  EXPECT_TRUE(refused(bytes + "more"));
  EXPECT_EQ(logits(file), plain);
  EXPECT_EQ(read(path), bytes);
}

TEST_F(Packed, OfAnotherModelOrOfAnotherUserAreNotUsed) {
  const auto one = model_file();
  const std::vector<float> of_one = logits(one);
  const std::string path = path_of(*one);
  const auto two = model_file({.dtype = DType::kQ8_0, .seed = 2});
  const std::vector<float> of_two = logits(two);
  EXPECT_NE(of_one, of_two);
  fs::copy_file(path_of(*two), path, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(open(*one).ok());
  EXPECT_EQ(logits(one), of_one);
  EXPECT_TRUE(open(*one).ok());
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  const auto opened = open(*one);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("another user"), std::string::npos) << opened.error().message;
  fs::remove(path);
  fs::create_symlink(path_of(*two), path);
  EXPECT_FALSE(open(*one).ok());
}

TEST_F(Packed, WhereTheyCannotBeWrittenTheModelLoads) {
  const auto file = model_file();
  const std::vector<float> plain = logits(file, false);
  write(cache(), "a file where the folder should be");
  EXPECT_EQ(logits(file), plain);
}

TEST_F(Packed, OfAModelInPartAreNotKept) {
  const auto file = model_file();
  LoadedModel m(file, {.step_tokens = 16, .max_rows = 16, .n_layers = 1, .keep_packed_in = cache()});
  EXPECT_FALSE(open(*file).ok());
}

// Nothing of what was in its memory before is left in a tile, whole or not.
TEST_F(Packed, EveryByteOfATileIsWritten) {
  for (const DType dtype : every_dtype()) {
    for (const int64_t n_inputs : {int64_t{256}, int64_t{768}, is_quantised(dtype) ? int64_t{1024} : int64_t{7}}) {
      constexpr int64_t kOutputs = 21;  // a tile and a part of one
      std::vector<std::byte> raw(static_cast<size_t>(kOutputs * row_bytes(dtype, n_inputs)), std::byte{0x5a});
      const auto tile_bytes = static_cast<size_t>(packed_tile_bytes(dtype, n_inputs));
      for (int64_t tile = 0; tile < 2; ++tile) {
        std::vector<std::byte> one(tile_bytes, std::byte{0}), two(tile_bytes, std::byte{0xff});
        for (std::vector<std::byte>* to : {&one, &two}) {
          pack_tile(dtype, raw.data(), row_bytes(dtype, n_inputs), kOutputs, n_inputs, tile, to->data());
        }
        EXPECT_EQ(one, two) << traits(dtype).name << ", " << n_inputs << " inputs, tile " << tile;
      }
    }
  }
}

// Whoever changes what pack_tile writes changes these, and kPackedVersion with them: old files would be read as new
// ones.
TEST_F(Packed, VersionIsThatOfTheBytes) {
  XXH64_hash_t hash = kPackedVersion;
  for (const DType dtype : every_dtype()) {
    if (dtype == testing::low_bit_dtypes().front()) {
      EXPECT_EQ(hash, 16175957793531131881u);
    }
    constexpr int64_t kN = 40, kK = 512;
    std::vector<std::byte> raw(static_cast<size_t>(kN * row_bytes(dtype, kK)));
    for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>((i * 2654435761u) >> 13);
    const Weight w = prepare_weight(stream_, TensorView(raw.data(), dtype, {kN, kK}));
    hash = XXH3_64bits_withSeed(w.packed, static_cast<size_t>(w.packed_bytes), hash);
  }
  EXPECT_EQ(hash, 2904644082155532243u);
}

}  // namespace
}  // namespace ibid
