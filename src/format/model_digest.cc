#include "format/model_digest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "base/cache_folder.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kSettledNs = 2 * kSecondNs;

int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::string entry_path(const std::string& cache, const FileIdentity& id) {
  return cache + "/digests/" + std::to_string(id.device) + "-" + std::to_string(id.inode) + "-" +
         std::to_string(id.size_bytes) + "-" + std::to_string(id.modified_ns);
}

// Changes with every start of the system; empty where the system does not report it.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// "DIGITS", or "DIGITS BOOT" of what holds for one run of the system.
std::optional<ModelDigest> look_up(const std::string& path) {
  std::ifstream in(path);
  std::string digits, boot;
  if (!(in >> digits) || digits.size() != 32) return std::nullopt;
  if (in >> boot && boot != boot_id()) return std::nullopt;
  if (digits.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  return ModelDigest{std::stoull(digits.substr(0, 16), nullptr, 16), std::stoull(digits.substr(16), nullptr, 16)};
}

void keep(const std::string& path, const std::string& entry) {
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
  std::string partial = path + "." + std::to_string(::getpid());
  {
    std::ofstream out(partial);
    out << entry << '\n';
    if (!out.flush()) return;
  }
  fs::rename(partial, path, ignored);
}

}  // namespace

// In parts that are given back: a file may be larger than what the process may hold.
ModelDigest read_digest(const MappedFile& file) {
  constexpr size_t kPart = size_t{16} << 20;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  for (std::span<const std::byte> rest = file.bytes(); !rest.empty();
       rest = rest.subspan(std::min(kPart, rest.size()))) {
    const std::span<const std::byte> part = rest.first(std::min(kPart, rest.size()));
    XXH3_128bits_update(state.get(), part.data(), part.size());
    file.forget(part);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return {hash.high64, hash.low64};
}

ModelDigest file_digest(const MappedFile& file, const std::string& cache) {
  if (std::optional<ModelDigest> known = known_digest(file, cache)) return *known;
  const ModelDigest digest = read_digest(file);
  keep_digest(file, digest, cache);
  return digest;
}

namespace {

template <typename DigestOf>
ModelDigest digest_of_all(const ModelFile& file, DigestOf digest_of) {
  std::vector<ModelDigest> digests;
  for (const MappedFile& part : file.files()) digests.push_back(digest_of(part));
  if (digests.size() == 1) return digests[0];
  std::string all;
  for (const ModelDigest& digest : digests) all += digest.hex();
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return {hash.high64, hash.low64};
}

}  // namespace

std::string ModelDigest::hex() const {
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return digits;
}

std::optional<ModelDigest> known_digest(const MappedFile& file, const std::string& cache) {
  return look_up(entry_path(cache, file.identity()));
}

void keep_digest(const MappedFile& file, const ModelDigest& digest, const std::string& cache) {
  const int64_t age_ns = now_ns() - file.identity().modified_ns;
  if (age_ns > kSettledNs) keep(entry_path(cache, file.identity()), digest.hex());
}

void keep_written_digest(int descriptor, const ModelDigest& digest, const std::string& cache) {
  // A file modified just now may change without a change of its time, which has a granularity. Ours is dated back by
  // more than that: a later write gives it the present time, which differs.
  const int64_t then_ns = now_ns() - 2 * kSettledNs;
  const struct timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                                    {.tv_sec = then_ns / kSecondNs, .tv_nsec = then_ns % kSecondNs}};
  if (::futimens(descriptor, times) != 0) return;
  const std::optional<FileIdentity> identity = identity_of(descriptor);  // with the time as the file system keeps it
  const std::string boot = boot_id();
  if (!identity || now_ns() - identity->modified_ns <= kSettledNs || boot.empty()) return;
  // Until then every reader gets what was written, on the disk or not. What a crash leaves of it, under the same size
  // and time, is not found here.
  keep(entry_path(cache, *identity), digest.hex() + " " + boot);
}

ModelDigest model_digest(const ModelFile& file, const std::string& cache) {
  return digest_of_all(file, [&cache](const MappedFile& part) { return file_digest(part, cache); });
}

ModelDigest model_digest(const ModelFile& file) { return model_digest(file, cache_folder()); }

ModelDigest read_model_digest(const ModelFile& file) {
  return digest_of_all(file, [](const MappedFile& part) { return read_digest(part); });
}

}  // namespace ibid
