#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"

namespace ibid {
namespace {

FileIdentity identity_in(const struct stat& info) {
  return {.device = static_cast<uint64_t>(info.st_dev),
          .inode = static_cast<uint64_t>(info.st_ino),
          .size_bytes = static_cast<int64_t>(info.st_size),
          .modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

Error cannot_open(const std::string& path, int error) {
  std::string message = "cannot open " + path + ": " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR) return not_found(message + "; check the path", path);
  if (error == EMFILE || error == ENFILE) return exhausted(message + "; raise the limit with `ulimit -n`", path);
  return unavailable(message, path);
}

}  // namespace

std::optional<FileIdentity> identity_of(int descriptor) {
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) return std::nullopt;
  return identity_in(info);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // Non-blocking, because opening a pipe for reading would wait for a writer.
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return cannot_open(path, errno);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return cannot_open(path, errno);
  if (S_ISDIR(info.st_mode)) return invalid(path + " is a folder; a file was expected", path);
  if (!S_ISREG(info.st_mode)) return invalid(path + " is not a regular file, so it cannot be mapped", path);

  MappedFile file;
  file.path_ = path;
  file.identity_ = identity_in(info);
  if (info.st_size == 0) return file;  // mmap refuses a length of zero
  auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    return exhausted("cannot map " + path + " (" + std::to_string(size) + " bytes): " + std::strerror(errno), path);
  }
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile MappedFile::of_program(std::span<const std::byte> bytes, std::string name) {
  MappedFile file;
  file.path_ = std::move(name);
  file.data_ = bytes.data();
  file.size_ = bytes.size();
  file.is_mapping_ = false;
  return file;
}

void MappedFile::forget(std::span<const std::byte> part) const {
  if (!is_mapping_) return;
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage, end = (address + part.size()) / kPage * kPage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // a wish
}

void MappedFile::prefer_large_pages() const {
  if (data_ != nullptr && is_mapping_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_HUGEPAGE);  // a wish
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      identity_(other.identity_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      is_mapping_(other.is_mapping_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr && is_mapping_) ::munmap(const_cast<std::byte*>(data_), size_);
  path_ = std::move(other.path_);
  identity_ = other.identity_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  is_mapping_ = other.is_mapping_;
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr && is_mapping_) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace ibid
