#include "tensor/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"

namespace ibid {
namespace {

constexpr size_t kManyPages = size_t{4} << 20;  // two large ones at least, however the mapping lies

std::byte* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  // Core files leave out these gigabytes of user data; and the mapping stays separate from its neighbours.
  madvise(p, bytes, MADV_DONTDUMP);
  // Keys and values of many sequences are scattered over their mapping: with 4 KiB pages most first accesses to a block
  // in a step would miss the TLB.
  if (bytes >= kManyPages) madvise(p, bytes, MADV_HUGEPAGE);  // a wish: failure is harmless
  return static_cast<std::byte*>(p);
}
void unmap(std::byte* p, size_t bytes) { munmap(p, bytes); }
// Whole pages, of which the first may begin and the last may end in a neighbour: mappings are made of such. Whether
// they are there.
bool populate(std::byte* p, size_t bytes) {
#ifdef MADV_POPULATE_WRITE  // Linux 5.14
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(p) / page * page;
  const size_t n = reinterpret_cast<uintptr_t>(p) + bytes - begin;
  return madvise(reinterpret_cast<void*>(begin), n, MADV_POPULATE_WRITE) == 0;
#else
  return false;
#endif
}
void bring_pages(std::byte* p, size_t bytes) { static_cast<void>(populate(p, bytes)); }
// The mapping is new, so its pages come as zeros.
void take_pages(std::byte* p, size_t bytes) {
  if (!populate(p, bytes)) std::fill_n(p, bytes, std::byte{0});
}

}  // namespace

const DeviceMemory& cpu_memory() {
  static constexpr DeviceMemory kMemory = {map, unmap, take_pages, bring_pages};
  return kMemory;
}

Result<Buffer> Buffer::allocate(const DeviceMemory& memory, size_t bytes, std::string_view what) {
  Buffer out;
  out.memory_ = memory;
  if (bytes == 0) return out;
  out.data_ = memory.allocate(bytes);
  if (out.data_ == nullptr) {
    return exhausted("Cannot allocate " + std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB for " +
                     std::string(what) + "; use a smaller context, fewer tokens per step or fewer bytes.");
  }
  out.bytes_ = bytes;
  return out;
}

void Buffer::take() const {
  if (data_ != nullptr && memory_.take != nullptr) memory_.take(data_, bytes_);
}

bool Buffer::take_next() {
  constexpr size_t kPiece = size_t{512} << 10;  // half a millisecond where memory is slow to come
  const size_t n = std::min(kPiece, bytes_ - taken_);
  if (n > 0) bring(std::exchange(taken_, taken_ + n), n);
  return n > 0;
}

void Buffer::bring(size_t offset, size_t bytes) const {
  CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  if (bytes > 0 && memory_.bring != nullptr) memory_.bring(data_ + offset, bytes);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(taken_, other.taken_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) memory_.release(data_, bytes_);
}

}  // namespace ibid
