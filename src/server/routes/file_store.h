// FileStore: files that clients upload and batches write, in a folder that is its owner's alone. Each has 128 random
// bits for its id and belongs to the tenant that made it: to others it is not there. Bounded in bytes, all together.
//
//   DIR/files/ID        the bytes
//   DIR/files/ID.json   what is known of it, written last and renamed into place: without it there is no file
//
// What an earlier process left half made is removed at the start: the opener holds the folder's lock by then
// (batches.h). Files that are whole and cannot be read now stay. Safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace ibid {

int64_t unix_seconds();                          // since 1970
std::string random_id(std::string_view prefix);  // and 32 hexadecimal digits
// Whether it may be one that random_id() made: a name of a file, and no path.
bool is_id(std::string_view id, std::string_view prefix);
// Written beside it and renamed: there whole or not at all.
Status write_whole(const std::string& path, std::string_view bytes);
Result<std::string> read_whole(const std::string& path);

struct StoredFile {
  std::string id, tenant, filename, purpose;
  int64_t bytes = 0, created = 0;  // created: seconds since 1970
};

// Of things that belong to tenants, by id. A tenant's own; to others it is not there.
template <typename T>
using ById = std::map<std::string, T, std::less<>>;
template <typename T>
std::optional<T> owned(const ById<T>& all, std::string_view id, std::string_view tenant) {
  const auto found = all.find(id);
  if (found == all.end() || found->second.tenant != tenant) return std::nullopt;
  return found->second;
}
// The newest first.
template <typename T>
std::vector<T> all_owned(const ById<T>& all, std::string_view tenant) {
  std::vector<T> out;
  for (const auto& [id, one] : all) {
    if (one.tenant == tenant) out.push_back(one);
  }
  std::ranges::sort(
      out, [](const T& a, const T& b) { return a.created != b.created ? a.created > b.created : a.id < b.id; });
  return out;
}

class FileStore {
 public:
  static Result<std::unique_ptr<FileStore>> open(const std::string& folder, int64_t max_bytes);

  Result<StoredFile> create(const std::string& tenant, std::string filename, std::string purpose,
                            std::string_view content);
  // A file of the same file system becomes one of these, under an id that was made for it; again is no harm.
  Status adopt(const std::string& id, const std::string& tenant, std::string filename, const std::string& path);
  // The same, where the folder takes nothing more: as long as the process lives, read at its own place. False: there is
  // no such file.
  bool lend(const std::string& id, const std::string& tenant, std::string filename, const std::string& path);
  std::optional<StoredFile> find(std::string_view id, std::string_view tenant) const;
  std::vector<StoredFile> list(std::string_view tenant) const;  // the newest first
  bool remove(std::string_view id, std::string_view tenant);
  std::string path_of(std::string_view id) const;
  int64_t bytes() const;

 private:
  FileStore(std::string folder, int64_t max_bytes) : folder_(std::move(folder)), max_bytes_(max_bytes) {}
  Status scan();
  Status write_facts(const StoredFile& file) const;
  void forget(const StoredFile& file);
  Status reserve(int64_t bytes);

  const std::string folder_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  ById<StoredFile> files_;
  std::map<std::string, std::string, std::less<>> lent_;  // paths, by id
  int64_t bytes_ = 0;
};

std::string file_json(const StoredFile& file);

}  // namespace ibid
