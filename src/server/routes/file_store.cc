#include "server/routes/file_store.h"

#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/check.h"
#include "base/json_writer.h"
#include "base/quoted.h"

namespace ibid {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFilePrefix = "file-";

std::string fact_of(const Json& json, const char* name) {
  const Json* value = json.find(name);
  return value != nullptr && value->string() != nullptr ? *value->string() : "";
}
int64_t number_of(const Json& json, const char* name) {
  const Json* value = json.find(name);
  return value != nullptr && value->integer() != nullptr ? *value->integer() : 0;
}

}  // namespace

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string random_id(std::string_view prefix) {
  static constexpr char kHex[] = "0123456789abcdef";
  unsigned char bytes[16];
  CHECK(RAND_bytes(bytes, sizeof bytes) == 1, "the system has no random bytes");
  std::string out(prefix);
  for (const unsigned char byte : bytes) out.append({kHex[byte >> 4], kHex[byte & 15]});
  return out;
}

bool is_id(std::string_view id, std::string_view prefix) {
  if (!id.starts_with(prefix) || id.size() != prefix.size() + 32) return false;
  return std::ranges::all_of(id.substr(prefix.size()),
                             [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Status write_whole(const std::string& path, std::string_view bytes) {
  const std::string beside = path + ".part";
  {
    std::ofstream file(beside, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.flush();
    if (!file) {
      ::unlink(beside.c_str());
      return unavailable("The server's disk for files is full or does not take this one.");
    }
  }
  ::chmod(beside.c_str(), 0600);
  if (::rename(beside.c_str(), path.c_str()) == 0) return {};
  ::unlink(beside.c_str());
  return unavailable("The server's folder for files does not take this one.");
}

Result<std::string> read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  if (file && file.peek() != std::ifstream::traits_type::eof()) content << file.rdbuf();
  if (!file.is_open() || file.bad()) return unavailable("A file of the server cannot be read.");
  return std::move(content).str();
}

std::string file_json(const StoredFile& file) {
  std::string out;
  JsonWriter(out)
      .begin_object()
      .field("id", file.id)
      .field("object", "file")
      .field("bytes", file.bytes)
      .field("created_at", file.created)
      .field("filename", file.filename)
      .field("purpose", file.purpose)
      .field("status", "processed")
      .end_object();
  return out;
}

Result<std::unique_ptr<FileStore>> FileStore::open(const std::string& folder, int64_t max_bytes) {
  std::error_code wrong;
  fs::create_directories(folder, wrong);
  if (!wrong) fs::permissions(folder, fs::perms::owner_all, wrong);
  if (wrong)
    return invalid("The folder " + in_quotes(folder) + " cannot be used: " + wrong.message() + ".", "--files-dir");
  std::unique_ptr<FileStore> store(new FileStore(folder, max_bytes));
  TRY(store->scan());
  return store;
}

Status FileStore::scan() {
  std::error_code wrong;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_, wrong)) names.push_back(entry.path().filename().string());
  for (const std::string& name : names) {
    if (!name.ends_with(".json")) continue;
    const std::string id = name.substr(0, name.size() - 5);
    const Result<std::string> text = read_whole(folder_ + "/" + name);
    const Result<Json> json = text ? parse_json(*text) : Result<Json>(text.error());
    const int64_t bytes = static_cast<int64_t>(fs::file_size(folder_ + "/" + id, wrong));
    if (!is_id(id, kFilePrefix) || !json || wrong) continue;
    files_[id] = {id,    fact_of(*json, "tenant"),      fact_of(*json, "filename"), fact_of(*json, "purpose"),
                  bytes, number_of(*json, "created_at")};
    bytes_ += bytes;
  }
  const std::set<std::string> all(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string id = name.substr(0, kFilePrefix.size() + 32);
    const bool is_half = name.ends_with(".part") || !all.contains(id) || !all.contains(id + ".json");
    if (is_id(id, kFilePrefix) && is_half) ::unlink((folder_ + "/" + name).c_str());
  }
  return {};
}

Status FileStore::reserve(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes_ + bytes > max_bytes_) {
    return exhausted("The server's room for files, " + std::to_string(max_bytes_ >> 20) +
                         " MiB, has none for this one; delete others.",
                     "file");
  }
  bytes_ += bytes;
  return {};
}

Status FileStore::write_facts(const StoredFile& file) const {
  std::string facts;
  JsonWriter(facts)
      .begin_object()
      .field("tenant", file.tenant)
      .field("filename", file.filename)
      .field("purpose", file.purpose)
      .field("created_at", file.created)
      .end_object();
  return write_whole(folder_ + "/" + file.id + ".json", facts);
}

void FileStore::forget(const StoredFile& file) {
  const std::lock_guard lock(mutex_);
  bytes_ -= file.bytes;
  ::unlink((folder_ + "/" + file.id).c_str());
}

std::string FileStore::path_of(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto lent = lent_.find(id);
  return lent != lent_.end() ? lent->second : folder_ + "/" + std::string(id);
}

Result<StoredFile> FileStore::create(const std::string& tenant, std::string filename, std::string purpose,
                                     std::string_view content) {
  const StoredFile file = {random_id(kFilePrefix), tenant,        std::move(filename), std::move(purpose),
                           std::ssize(content),    unix_seconds()};
  TRY(reserve(file.bytes));
  Status written = write_whole(path_of(file.id), content);
  if (written) written = write_facts(file);  // last: without them there is no file
  if (!written) {
    forget(file);
    return written.error();
  }
  const std::lock_guard lock(mutex_);
  files_[file.id] = file;
  return file;
}

// What is known of it goes first here: a process that dies in between finds the bytes in their old place.
Status FileStore::adopt(const std::string& id, const std::string& tenant, std::string filename,
                        const std::string& path) {
  if (find(id, tenant)) return {};
  std::error_code wrong;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, wrong));
  if (wrong) return unavailable("A batch's file is gone.");
  const StoredFile file = {id, tenant, std::move(filename), "batch_output", bytes, unix_seconds()};
  TRY(write_facts(file));
  if (::rename(path.c_str(), (folder_ + "/" + id).c_str()) != 0)
    return unavailable("The server's folder for files does not take a batch's file.");
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  files_[id] = file;
  return {};
}

bool FileStore::lend(const std::string& id, const std::string& tenant, std::string filename, const std::string& path) {
  std::error_code wrong;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, wrong));
  if (wrong) return false;
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  files_[id] = {id, tenant, std::move(filename), "batch_output", bytes, unix_seconds()};
  lent_[id] = path;
  return true;
}

std::optional<StoredFile> FileStore::find(std::string_view id, std::string_view tenant) const {
  const std::lock_guard lock(mutex_);
  return owned(files_, id, tenant);
}

std::vector<StoredFile> FileStore::list(std::string_view tenant) const {
  const std::lock_guard lock(mutex_);
  return all_owned(files_, tenant);
}

bool FileStore::remove(std::string_view id, std::string_view tenant) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.tenant != tenant) return false;
  const std::string path = folder_ + "/" + std::string(id);
  ::unlink((path + ".json").c_str());  // first: without it there is no file
  const auto lent = lent_.find(id);
  ::unlink(lent != lent_.end() ? lent->second.c_str() : path.c_str());
  if (lent != lent_.end()) lent_.erase(lent);
  bytes_ -= found->second.bytes;
  files_.erase(found);
  return true;
}

int64_t FileStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace ibid
