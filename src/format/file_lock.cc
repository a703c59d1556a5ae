#include "format/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace ibid {

Result<FileLock> FileLock::acquire(const std::string& path, const std::function<bool()>& waiting) {
  int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) return unavailable("cannot create the lock file " + path + ": " + std::strerror(errno), path);
  FileLock lock(fd);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return unavailable("cannot lock " + path + ": " + std::strerror(errno), path);
    }
    if (!waiting()) return unavailable("cancelled while another process held " + path, path);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ibid
