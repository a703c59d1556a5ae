// Buffer: memory of one device with one owner. Everything that lives as long as an engine is allocated in these at
// start-up: keys and values, rows of logits, hidden states, a stream's workspace. A step allocates none of it.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace ibid {

// How a device gives and takes back memory, aligned to 64 bytes. The CPU's is a mapping of its own: zero, and given by
// the system page by page as it is first written, so that what is not used costs address space only.
struct DeviceMemory {
  std::byte* (*allocate)(size_t bytes) = nullptr;  // null where there is none left
  void (*release)(std::byte* p, size_t bytes) = nullptr;
  void (*take)(std::byte* p, size_t bytes) = nullptr;  // of what is new: zeros in every page; null: it was taken
  // Makes the pages of a part be there, as they are; a wish. Null as above.
  void (*bring)(std::byte* p, size_t bytes) = nullptr;
  // Copies to the host, after all that was enqueued on the stream with this handle, and waits for it. Null where the
  // host reads the memory itself (the CPU's).
  void (*to_host)(void* native, const std::byte* from, std::byte* to, size_t bytes) = nullptr;
};
const DeviceMemory& cpu_memory();

class Buffer {
 public:
  Buffer() = default;
  // `what` names the use, as in "the KV cache"; the error states how much could not be allocated. Zero bytes are a
  // buffer of none.
  static Result<Buffer> allocate(const DeviceMemory& memory, size_t bytes, std::string_view what);
  Buffer(Buffer&& other) noexcept
      : memory_(other.memory_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        taken_(std::exchange(other.taken_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  // Of a new buffer: every page is there, so that the process has all of it from now on. What the largest step needs:
  // given page by page, the first load of its size would look like a leak, and the memory promised at start would not
  // be held.
  void take() const;

  // The same piece by piece, for a caller with idle time. Returns whether a piece was left.
  bool take_next();

  // Of [offset, offset + bytes), without a change to what is there: later writes need no page of the system.
  void bring(size_t offset, size_t bytes) const;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  DeviceMemory memory_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t taken_ = 0;  // by take_next()
};

}  // namespace ibid
