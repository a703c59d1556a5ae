#include "worker/block_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

namespace ibid {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr size_t kNameLen = 64;
constexpr std::string_view kPart = ".part";

// "ab/abcd..." and, while it is written, "ab/abcd....part".
struct BlockPath {
  std::array<char, 3 + kNameLen + kPart.size() + 1> text = {};
  explicit BlockPath(const DurableKey& key, bool is_part = false) {
    for (size_t i = 0; i < key.size(); ++i) {
      text[3 + 2 * i] = kHexDigits[key[i] >> 4];
      text[4 + 2 * i] = kHexDigits[key[i] & 15];
    }
    text[0] = text[3], text[1] = text[4], text[2] = '/';
    if (is_part) kPart.copy(text.data() + 3 + kNameLen, kPart.size());
  }
  const char* file() const { return text.data(); }
  std::array<char, 3> folder() const { return {text[0], text[1], 0}; }
};

int digit(char c) {
  const char* at = c == 0 ? nullptr : std::strchr(kHexDigits, c);
  return at == nullptr ? -1 : static_cast<int>(at - kHexDigits);
}

// False: no name of ours.
bool read_name(std::string_view name, std::string_view folder, DurableKey& key) {
  if (name.size() != kNameLen || name.substr(0, 2) != folder) return false;
  for (size_t i = 0; i < key.size(); ++i) {
    const int high = digit(name[2 * i]), low = digit(name[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    key[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

timespec time_of(int64_t age) { return {.tv_sec = age / 1'000'000'000, .tv_nsec = age % 1'000'000'000}; }
// Returns the age in nanoseconds; 0 for an impossible time.
int64_t age_of(const struct stat& info) {
  constexpr time_t kLatest = 8'000'000'000;
  if (info.st_mtim.tv_sec < 0 || info.st_mtim.tv_sec > kLatest) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

void set_age(int fd, int64_t age) {
  const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, time_of(age)};
  ::futimens(fd, times);
}

class BlockFd {
 public:
  explicit BlockFd(int fd) : fd_(fd) {}
  ~BlockFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  BlockFd(const BlockFd&) = delete;
  BlockFd& operator=(const BlockFd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

BlockIo failure_of(int error) {
  if (error == ENOENT || error == ENOTDIR) return BlockIo::kMissing;
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? BlockIo::kNoSpace : BlockIo::kFailed;
}

// All of it; the system's error, or 0. Too little is -1.
int read_whole(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::read(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return -1;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return 0;
}
int write_whole(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return 0;
}

Error cannot(const std::string& what, const std::string& path) {
  return unavailable("The cache's folder cannot be " + what + ": " + path + ": " + std::strerror(errno), path);
}

using Listing = std::unique_ptr<DIR, decltype([](DIR* dir) { ::closedir(dir); })>;
Listing list(int parent, const char* name) {
  const int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  DIR* dir = fd < 0 ? nullptr : ::fdopendir(fd);
  if (dir == nullptr && fd >= 0) ::close(fd);
  return Listing(dir);
}

}  // namespace

Result<BlockFolder> BlockFolder::open(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = folder + "/blocks-1";
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return cannot("made", path);
  BlockFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0) return cannot("opened", path);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return cannot("read", path);
  if (info.st_uid != ::geteuid() || (info.st_mode & 0077) != 0) {
    return invalid("The cache's folder " + path + " is open to other users (or theirs): what they put there would be " +
                       "taken for computed; use `chmod 700` or another folder.",
                   path);
  }
  Result<FileLock> lock = FileLock::acquire(path + "/lock", [] { return false; });
  if (!lock) {
    return unavailable("The cache's folder " + path + " is in use by another process (or its lock cannot be taken); " +
                           "use another folder.",
                       path);
  }
  BlockFolder out(*std::move(lock), fd.release());
  TRY(out.scan(path));
  return out;
}

BlockFolder::BlockFolder(BlockFolder&& other) noexcept
    : lock_(std::move(other.lock_)), fd_(std::exchange(other.fd_, -1)), found_(std::move(other.found_)) {}

BlockFolder::~BlockFolder() {
  if (fd_ >= 0) ::close(fd_);
}

// Reads names and the status of each file; none is opened.
Status BlockFolder::scan(const std::string& path) {
  for (int i = 0; i < 256; ++i) {
    const char name[] = {kHexDigits[i >> 4], kHexDigits[i & 15], 0};
    const Listing dir = list(fd_, name);
    if (!dir) {
      if (errno == ENOENT) continue;
      return cannot("read", path + "/" + name);
    }
    while (const dirent* entry = ::readdir(dir.get())) {
      const std::string_view file = entry->d_name;
      struct stat info = {};
      DurableKey key;
      if (file.size() == kNameLen + kPart.size() && file.ends_with(kPart) &&
          read_name(file.substr(0, kNameLen), name, key))
        ::unlinkat(::dirfd(dir.get()), entry->d_name, 0);
      if (!read_name(file, name, key)) continue;
      if (::fstatat(::dirfd(dir.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (S_ISREG(info.st_mode)) found_.push_back({key, int64_t{info.st_size}, age_of(info)});
    }
  }
  return {};
}

BlockIo BlockFolder::read(const BlockFormat& format, const DurableKey& key, int64_t age,
                          std::span<std::byte> image) const {
  const BlockPath path(key);
  const BlockFd fd(::openat(fd_, path.file(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0) return failure_of(errno);
  struct stat info = {};
  BlockIo outcome = BlockIo::kCorrupt;
  if (::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == static_cast<off_t>(image.size())) {
    const int error = read_whole(fd.get(), image);
    if (error > 0) return failure_of(error);
    if (error == 0) outcome = check_image(format, image, key);
  }
  outcome == BlockIo::kDone ? set_age(fd.get(), age) : remove(key);
  return outcome;
}

BlockIo BlockFolder::write(const DurableKey& key, int64_t age, std::span<const std::byte> image) const {
  const BlockPath path(key), part(key, true);
  const auto create = [&] {
    return ::openat(fd_, part.file(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  };
  int created = create();
  if (created < 0 && errno == ENOENT) {
    ::mkdirat(fd_, part.folder().data(), 0700);
    created = create();
  }
  if (created < 0) return errno == ENOENT ? BlockIo::kFailed : failure_of(errno);
  int error = 0;
  {
    const BlockFd fd(created);
    error = write_whole(fd.get(), image);
    set_age(fd.get(), age);
  }
  if (error == 0 && ::renameat(fd_, part.file(), fd_, path.file()) != 0) error = errno;
  if (error == 0) return BlockIo::kDone;
  ::unlinkat(fd_, part.file(), 0);
  return failure_of(error);
}

void BlockFolder::touch(const DurableKey& key, int64_t age) const {
  const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, time_of(age)};
  ::utimensat(fd_, BlockPath(key).file(), times, AT_SYMLINK_NOFOLLOW);
}

void BlockFolder::remove(const DurableKey& key) const { ::unlinkat(fd_, BlockPath(key).file(), 0); }

}  // namespace ibid
