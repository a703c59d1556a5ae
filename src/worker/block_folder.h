// BlockFolder: the files of the disk tier, one a block, named by its key: FOLDER/blocks-1/ab/abcd...(64 digits). The
// number is the format's (block_image.h): another one is another folder.
//
// Owner's alone: folders 0700, files 0600, made by us; links are not followed, and what belongs to another user or can
// be written by one is refused at the start. One process at a time: a lock, and a refusal with a sentence.
//
// A file appears under its name when it is written: first under another name, then renamed. Nothing is flushed to the
// medium (fsync): after a power cut a file may be empty or torn; its checksums detect that, and a cache may lose what
// it had. A file's time of modification is its age (cache/durable_index.h), in nanoseconds, and no time of day.
//
// What is found here is a name; what it holds is checked when it is read. Files that we did not name are left alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/durable_index.h"
#include "format/file_lock.h"
#include "worker/block_image.h"

namespace ibid {

class BlockFolder {
 public:
  // Makes what is missing, takes the lock, removes what an earlier process left half written, and lists the names.
  static Result<BlockFolder> open(const std::string& folder);
  BlockFolder(BlockFolder&& other) noexcept;
  BlockFolder& operator=(BlockFolder&&) = delete;
  ~BlockFolder();

  std::vector<DurableEntry> take_found() { return std::move(found_); }

  // From here on, one thread; none allocates.
  // kDone, or why there is nothing in `image`. What is corrupt or foreign is removed; what is sound gets this age.
  BlockIo read(const BlockFormat& format, const DurableKey& key, int64_t age, std::span<std::byte> image) const;
  // A sealed image. kDone, kNoSpace or kFailed; then nothing is left of it.
  BlockIo write(const DurableKey& key, int64_t age, std::span<const std::byte> image) const;
  void touch(const DurableKey& key, int64_t age) const;
  void remove(const DurableKey& key) const;

 private:
  BlockFolder(FileLock lock, int fd) : lock_(std::move(lock)), fd_(fd) {}
  Status scan(const std::string& path);

  FileLock lock_;
  int fd_;  // of FOLDER/blocks-1
  std::vector<DurableEntry> found_;
};

}  // namespace ibid
