// MappedFile: a whole file mapped read-only. Pages are read when touched, so opening costs nothing per byte.
//
// A file that another program cuts short while it is mapped raises SIGBUS on the lost pages: replace model files by
// renaming a new one over them (as ibid's own downloads do), never by writing into them. A process cannot continue
// without its model's bytes; end_where_files_are_cut() ends it with a sentence. Optional files, such as those of
// drafts, can be lost: after let_go_where_cut() all bytes of such a file read as zeros, and is_lost() reports it. Bytes
// that can be made again use mend_where_cut(). Threads: a mapping may be read from any thread; opening and moving
// belong to one.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ibid {

// Identifies one state of a file without reading it.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size_bytes = 0;
  int64_t modified_ns = 0;  // since 1970
  auto operator<=>(const FileIdentity&) const = default;
};
// Of an open file; null where the system does not report it.
std::optional<FileIdentity> identity_of(int descriptor);

// From now on a read of a mapped file's bytes that the system cannot give ends the process with `exit_code` and a
// sentence on stderr that names the file. Other bus errors do what they did before. Call it before there are threads.
void end_where_files_are_cut(int exit_code);

class MappedFile {
 public:
  // Only regular files: folders, pipes and devices are refused. An empty file gives an empty span.
  static Result<MappedFile> open(const std::string& path);

  // From now on, where end_where_files_are_cut() was called: a read of bytes that the system cannot give makes all of
  // the file's bytes zeros, with a warning on stderr that names it. Their readers must accept any bytes.
  void let_go_where_cut() const;
  bool is_lost() const;
  // The same of bytes that can be made again: `mend` maps others over them, those at `at` among them. It is called by
  // the thread that read, within a signal's handler: so that thread holds no lock that mend() needs, and only one
  // thread at a time is in it. False: it cannot, and the process ends. `context` outlives the mapping.
  using Mend = bool (*)(void* context, size_t at);
  void mend_where_cut(Mend mend, void* context) const;

  // Bytes of the program itself, named for sentences.
  static MappedFile of_program(std::span<const std::byte> bytes, std::string name);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }
  // Gives back the memory of the whole pages in `part` of bytes(): it is read again when touched again.
  void forget(std::span<const std::byte> part) const;
  // Large memory pages, where the system's cache of this file has them: fewer look-ups of addresses while streaming.
  void prefer_large_pages() const;
  const FileIdentity& identity() const { return identity_; }

 private:
  std::string path_;
  FileIdentity identity_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool is_mapping_ = true;  // false: of the program
};

}  // namespace ibid
