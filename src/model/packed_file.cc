#include "model/packed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/descriptor.h"
#include "base/quoted.h"
#include "format/file_lock.h"
#include "kernels/linear.h"

namespace ibid {
namespace {

constexpr int64_t kPage = 4096;
// What is written at once: whole large pages (2 MiB), so that the system's cache of the file may consist of such.
constexpr int64_t kWritten = int64_t{4} << 20;
constexpr std::array<char, 8> kMagic = {'i', 'b', 'i', 'd', 'p', 'a', 'c', 'k'};

struct Head {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kPackedVersion;
  uint32_t n_sections = 0;
  uint64_t model_high = 0, model_low = 0;
  uint64_t n_bytes = 0, zero = 0;
  uint64_t check_high = 0, check_low = 0;
};
static_assert(sizeof(Head) == 64 && std::endian::native == std::endian::little);

int64_t in_pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

ModelDigest checksum(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

// Of a header whose own checksum counts as zero.
ModelDigest header_checksum(std::span<const std::byte> header) {
  std::vector<std::byte> copy(header.begin(), header.end());
  std::fill_n(copy.begin() + offsetof(Head, check_high), 16, std::byte{0});
  return checksum(copy);
}

Error unusable(const std::string& path, const std::string& what) {
  return invalid("The packed weights in " + in_quotes(path) + " are not used: " + what + ".", path);
}

// Checks that the file is ours and writable by no other user.
Status expect_own(const std::string& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return not_found(path + " does not exist", path);
    return unusable(path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return unusable(path, "it is no regular file");
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) return unusable(path, "another user may write it");
  return {};
}

}  // namespace

struct PackedFile::Section {
  uint32_t tensor = 0;
  uint32_t dtype = 0;
  int64_t n_outputs = 0, n_inputs = 0;
  uint64_t at = 0, n_bytes = 0;
  uint64_t check_high = 0, check_low = 0;
  uint64_t zero = 0;
};

// Packs lost sections again. Within a signal's handler, on a thread that was reading weights: no memory but pages of
// the system's, and no other threads.
struct PackedFile::Mender {
  std::byte* begin = nullptr;     // of the mapping
  std::vector<Section> sections;  // a copy: the file's own may be lost
  std::vector<TensorView> raw;    // of each; rank 0: it is not read
  std::vector<bool> is_mended;

  static bool mend(void* context, size_t at) { return static_cast<Mender*>(context)->mend(at); }
  bool mend(size_t at) {
    for (size_t i = 0; i < sections.size(); ++i) {
      const Section& section = sections[i];
      const auto bytes = static_cast<size_t>(in_pages(static_cast<int64_t>(section.n_bytes)));
      if (at < section.at || at >= section.at + bytes) continue;
      return is_mended[i] ||
             (raw[i].rank > 0 && (is_mended[i] = pack(section, raw[i], bytes)));  // or by another thread
    }
    return false;
  }
  // `bytes`: of its pages.
  bool pack(const Section& section, const TensorView& from, size_t bytes) const {
    void* made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return false;
    const int64_t tile_bytes = packed_tile_bytes(from.dtype, section.n_inputs);
    for (int64_t tile = 0; tile * tile_bytes < static_cast<int64_t>(section.n_bytes); ++tile) {
      pack_tile(from, tile, static_cast<std::byte*>(made) + tile * tile_bytes);
    }
    ::mprotect(made, bytes, PROT_READ);
    return ::mremap(made, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, begin + section.at) != MAP_FAILED;
  }
};

std::string PackedFile::path_in(const std::string& cache, const ModelDigest& model) {
  return cache + "/packed/" + model.hex() + ".packed";
}

std::span<const PackedFile::Section> PackedFile::sections() const {
  static_assert(sizeof(Section) == 64);
  Head head;
  std::memcpy(&head, file_.bytes().data(), sizeof head);
  return {reinterpret_cast<const Section*>(file_.bytes().data() + sizeof head), head.n_sections};
}

Result<PackedFile> PackedFile::open(const std::string& cache, const ModelDigest& model, Stream& s, bool reads_all) {
  const std::string path = path_in(cache, model);
  TRY(expect_own(path));
  PackedFile out;
  ASSIGN_OR_RETURN(out.file_, MappedFile::open(path));
  out.file_.prefer_large_pages();
  const std::span<const std::byte> bytes = out.file_.bytes();
  Head head;
  if (bytes.size() < sizeof head) return unusable(path, "it ends within its head");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kMagic) return unusable(path, "they were not written by ibid");
  if (head.version != kPackedVersion) return unusable(path, "they have another ibid's layout");
  if (ModelDigest{head.model_high, head.model_low} != model) return unusable(path, "they are of another model");
  if (head.n_bytes != bytes.size()) return unusable(path, "the file is not as long as it was");
  if (head.n_sections > (bytes.size() - sizeof head) / sizeof(Section)) return unusable(path, "the head is damaged");
  const auto header_bytes = static_cast<size_t>(in_pages(64 + 64 * int64_t{head.n_sections}));
  if (header_bytes > bytes.size()) return unusable(path, "it ends within its head");
  const ModelDigest check = {head.check_high, head.check_low};
  if (header_checksum(bytes.first(header_bytes)) != check) return unusable(path, "the head is damaged");
  const std::span<const Section> sections = out.sections();
  for (const Section& section : sections) {
    if (section.at % kPage != 0 || section.at < header_bytes || section.at > bytes.size() ||
        section.n_bytes > bytes.size() - section.at) {
      return unusable(path, "a section lies outside of it");
    }
  }
  out.mender_ = std::make_shared<Mender>();
  out.mender_->begin = const_cast<std::byte*>(bytes.data());
  out.mender_->sections.assign(sections.begin(), sections.end());
  out.mender_->raw.resize(sections.size());
  out.mender_->is_mended.resize(sections.size());
  out.file_.mend_where_cut(&Mender::mend, out.mender_.get());
  if (!reads_all && known_digest(out.file_, cache) == check) return out;
  std::atomic<bool> is_sound = true;
  s.team().parallel_for(static_cast<int64_t>(sections.size()), [&](int64_t i, int) {
    const Section& section = sections[static_cast<size_t>(i)];
    const ModelDigest found = checksum(bytes.subspan(section.at, section.n_bytes));
    if (found != ModelDigest{section.check_high, section.check_low}) is_sound = false;
  });
  if (!is_sound) return unusable(path, "they are damaged");
  // What was read may be in memory alone, of a writer who did not wait for the disk.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() >= 0 && ::fdatasync(fd.get()) == 0) keep_digest(out.file_, check, cache);
  return out;
}

std::span<const std::byte> PackedFile::find(int64_t tensor, const TensorView& raw, int64_t bytes) const {
  const std::span<const Section> all = sections();
  const auto at = std::ranges::lower_bound(all, tensor, {}, [](const Section& s) { return int64_t{s.tensor}; });
  if (at == all.end() || int64_t{at->tensor} != tensor) return {};
  if (at->dtype != static_cast<uint32_t>(raw.dtype) || at->n_outputs != raw.n_rows() || at->n_inputs != raw.row_len() ||
      static_cast<int64_t>(at->n_bytes) != bytes) {
    return {};
  }
  mender_->raw[static_cast<size_t>(at - all.begin())] = raw;
  return file_.bytes().subspan(at->at, at->n_bytes);
}

namespace {

// Writes all of `bytes` at `at`; false: errno has the reason.
bool write_all(int fd, std::span<const std::byte> bytes, int64_t at) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += n;
  }
  return true;
}

}  // namespace

Status PackedFileWriter::write(const std::string& cache, const ModelDigest& model, Stream& s,
                               const std::function<void(double)>& progress) const {
  typedef PackedFile::Section Section;
  std::vector<const Packed*> order;
  for (const Packed& packed : weights_) order.push_back(&packed);
  std::ranges::sort(order, {}, [](const Packed* p) { return p->tensor; });
  const auto bytes_of = [&](size_t i) {
    return std::span(order[i]->weight.packed, static_cast<size_t>(order[i]->weight.packed_bytes));
  };
  std::vector<std::byte> header(static_cast<size_t>(in_pages(64 + 64 * static_cast<int64_t>(order.size()))));
  const std::span<Section> sections(reinterpret_cast<Section*>(header.data() + sizeof(Head)), order.size());
  auto end = static_cast<int64_t>(header.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Weight& w = order[i]->weight;
    sections[i] = {.tensor = static_cast<uint32_t>(order[i]->tensor),
                   .dtype = static_cast<uint32_t>(w.dtype),
                   .n_outputs = w.n_outputs,
                   .n_inputs = w.n_inputs,
                   .at = static_cast<uint64_t>(end),
                   .n_bytes = static_cast<uint64_t>(w.packed_bytes)};
    end = in_pages(end + w.packed_bytes);
  }
  s.team().parallel_for(static_cast<int64_t>(order.size()), [&](int64_t i, int) {
    const ModelDigest check = checksum(bytes_of(static_cast<size_t>(i)));
    sections[static_cast<size_t>(i)].check_high = check.high;
    sections[static_cast<size_t>(i)].check_low = check.low;
  });
  Head head = {.n_sections = static_cast<uint32_t>(order.size()),
               .model_high = model.high,
               .model_low = model.low,
               .n_bytes = static_cast<uint64_t>(end)};
  std::memcpy(header.data(), &head, sizeof head);
  const ModelDigest check = header_checksum(header);
  head.check_high = check.high;
  head.check_low = check.low;
  std::memcpy(header.data(), &head, sizeof head);

  const std::string path = PackedFile::path_in(cache, model), partial = path + ".partial";
  const std::string folder = std::filesystem::path(path).parent_path();
  const auto failed = [&](int error) {
    return unavailable("The packed weights cannot be kept in " + in_quotes(path) + ": " + std::strerror(error) + ".",
                       path);
  };
  std::error_code made;
  std::filesystem::create_directories(cache, made);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return failed(errno);
  const auto lock = FileLock::acquire(PackedFile::lock_in(cache), [] { return false; });
  if (!lock) return {};
  struct statvfs space = {};
  if (::statvfs(folder.c_str(), &space) == 0 &&
      static_cast<uint64_t>(space.f_bavail) * space.f_frsize < static_cast<uint64_t>(end)) {
    return failed(ENOSPC);
  }
  ::unlink(partial.c_str());  // of somebody who was interrupted: the lock is ours
  const Descriptor fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd.get() < 0) return failed(errno);
  const auto give_up = [&](int error) {
    ::unlink(partial.c_str());
    return failed(error);
  };
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kWritten, end)));
  size_t first = 0;  // section that may lie in the piece
  for (int64_t at = 0; at < end; at += kWritten) {
    const int64_t len = std::min(kWritten, end - at);
    std::ranges::fill(piece, std::byte{0});
    // What of `bytes`, which begin at `from` in the file, lies in the piece.
    const auto put = [&](std::span<const std::byte> bytes, int64_t from) {
      const int64_t begin = std::max(at, from), stop = std::min(at + len, from + static_cast<int64_t>(bytes.size()));
      if (begin < stop)
        std::memcpy(piece.data() + (begin - at), bytes.data() + (begin - from), static_cast<size_t>(stop - begin));
    };
    put(header, 0);
    while (first < order.size() && static_cast<int64_t>(sections[first].at + sections[first].n_bytes) <= at) ++first;
    for (size_t i = first; i < order.size() && static_cast<int64_t>(sections[i].at) < at + len; ++i) {
      put(bytes_of(i), static_cast<int64_t>(sections[i].at));
    }
    if (!write_all(fd.get(), std::span(piece).first(static_cast<size_t>(len)), at)) return give_up(errno);
    if (progress) progress(static_cast<double>(at + len) / static_cast<double>(end));
  }
  if (::rename(partial.c_str(), path.c_str()) != 0) return give_up(errno);
  // The checksums are of the very bytes that were written, so the next start need not read them.
  keep_written_digest(fd.get(), check, cache);
  return {};
}

}  // namespace ibid
