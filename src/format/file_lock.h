// FileLock: one process (and one FileLock) at a time holds it; freed by the system when its holder dies.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace ibid {

class FileLock {
 public:
  // Waits; calls `waiting` every tenth of a second meanwhile and gives up with kUnavailable once it returns false. The
  // file is created where it is missing and stays (removing it would let two holders have two files).
  static Result<FileLock> acquire(const std::string& path, const std::function<bool()>& waiting);

  FileLock(FileLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileLock& operator=(FileLock&& other) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace ibid
