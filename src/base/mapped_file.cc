#include "base/mapped_file.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
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

// What is mapped, for a signal handler, which may take no memory and no lock. Files beyond the number of places are not
// named.
struct Place {
  std::atomic<bool> is_taken{false};
  std::atomic<uintptr_t> begin{0};  // 0: nothing yet
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> only_helps{false};
  std::atomic<bool> is_lost{false};
  std::atomic<MappedFile::Mend> mend{nullptr};
  std::atomic<void*> context{nullptr};
  std::array<char, 512> path{};
};
std::array<Place, 64> places;

Place* place_at(const void* data) {
  for (Place& place : places) {
    if (data != nullptr && place.begin == reinterpret_cast<uintptr_t>(data)) return &place;
  }
  return nullptr;
}

void note(const void* data, size_t size, const std::string& path) {
  for (Place& place : places) {
    if (place.is_taken.exchange(true)) continue;
    const size_t n = std::min(path.size(), place.path.size() - 1);
    std::copy_n(path.data(), n, place.path.data());
    place.path[n] = '\0';
    place.only_helps = place.is_lost = false;
    place.mend = nullptr;
    place.end = reinterpret_cast<uintptr_t>(data) + size;
    place.begin = reinterpret_cast<uintptr_t>(data);
    return;
  }
}

void unmap(const std::byte* data, size_t size) {
  if (Place* place = place_at(data)) {
    place->begin = 0;
    place->is_taken = false;
  }
  ::munmap(const_cast<std::byte*>(data), size);
}

std::atomic<int> code_of_cut_files{0};

void say(const char* text) { [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, std::strlen(text)); }

std::atomic_flag is_mending = ATOMIC_FLAG_INIT;

bool mend(const Place& place, size_t at) {
  const MappedFile::Mend make_again = place.mend;
  if (make_again == nullptr) return false;
  while (is_mending.test_and_set()) ::sched_yield();
  const bool is_mended = make_again(place.context, at);
  is_mending.clear();
  return is_mended;
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Place& place : places) {
    const uintptr_t begin = place.begin;
    if (begin == 0 || at < begin || at >= place.end) continue;
    if (place.only_helps) {
      constexpr int kZeros = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
      void* zeros = ::mmap(reinterpret_cast<void*>(begin), place.end - begin, PROT_READ, kZeros, -1, 0);
      if (zeros != MAP_FAILED) {  // the same read again gives zeros
        if (place.is_lost.exchange(true)) return;
        say("warning: ");
        say(place.path.data());
        say(" was cut short while it was in use, or its disk cannot be read; serving continues without it\n");
        return;
      }
    }
    if (mend(place, at - begin)) {
      if (place.is_lost.exchange(true)) return;
      say("warning: ");
      say(place.path.data());
      say(" was cut short while it was in use, or its disk cannot be read; its contents are made again\n");
      return;
    }
    say("error: ");
    say(place.path.data());
    say(" was cut short while it was in use, or its disk cannot be read; replace files by renaming a new one over "
        "them\n");
    ::_exit(code_of_cut_files);
  }
  ::signal(signal, SIG_DFL);  // the same read again ends the process as it would have
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

void end_where_files_are_cut(int exit_code) {
  code_of_cut_files = exit_code;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;  // what is made again is read from a file, too
  ::sigaction(SIGBUS, &action, nullptr);
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
  note(data, size, path);
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

void MappedFile::let_go_where_cut() const {
  if (Place* place = is_mapping_ ? place_at(data_) : nullptr) place->only_helps = true;
}

void MappedFile::mend_where_cut(Mend mend, void* context) const {
  Place* place = is_mapping_ ? place_at(data_) : nullptr;
  if (place == nullptr) return;
  place->context = context;
  place->mend = mend;
}

bool MappedFile::is_lost() const {
  const Place* place = is_mapping_ ? place_at(data_) : nullptr;
  return place != nullptr && place->is_lost;
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
  if (data_ != nullptr && is_mapping_) unmap(data_, size_);
  path_ = std::move(other.path_);
  identity_ = other.identity_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  is_mapping_ = other.is_mapping_;
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr && is_mapping_) unmap(data_, size_);
}

}  // namespace ibid
