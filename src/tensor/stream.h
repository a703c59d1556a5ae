// Stream: an ordered queue of work on one device. Ops take it as their first argument; no other code depends on the
// device. On the CPU work is done at the call, by a team of threads; on CUDA it is enqueued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "tensor/buffer.h"
#include "tensor/device_span.h"

namespace ibid {

enum class Device : uint8_t { kCpu, kCuda };
std::string_view device_name(Device device);  // "the CPU", "CUDA"

class Stream {
 public:
  // A CPU stream over `team` (not owned, outlives the stream).
  explicit Stream(ThreadTeam& team);
  // A queue of another device; `native` is its handle (a cudaStream_t). `host` are threads for what the host does
  // beside it (draws). Neither is owned, both outlive the stream.
  Stream(Device device, void* native, DeviceMemory memory, ThreadTeam& host);

  Device device() const { return device_; }
  const DeviceMemory& memory() const { return memory_; }  // of its device
  // Threads that run the CPU's ops: a stream of another device has none.
  ThreadTeam& team() const {
    CHECK(device_ == Device::kCpu, "only a CPU stream has a thread team");
    return host_;
  }
  // Threads of the host, idle while ops run elsewhere; those of team() on a CPU stream, idle between ops.
  ThreadTeam& host() const { return host_; }

  // Where the host reads it: itself on the CPU, else a copy into `room`, as long. Waits for all that was enqueued.
  template <typename T>
  std::span<const T> on_host(DeviceSpan<const T> values, std::span<T> room) const {
    if (memory_.to_host == nullptr) return {values.address(), values.size()};
    CHECK(room.size() >= values.size(), "room for a copy on the host");
    memory_.to_host(native_, reinterpret_cast<const std::byte*>(values.address()),
                    reinterpret_cast<std::byte*>(room.data()), values.bytes());
    return room.first(values.size());
  }
  // Whether on_host() copies.
  bool copies_to_host() const { return memory_.to_host != nullptr; }
  void* native() const { return native_; }  // null on the CPU

  // Room for what ops need besides their arguments (quantised activations, partial sums). Sized once at start-up, by
  // the largest of the ops' own `*_workspace_bytes`; ops never allocate. Valid until the next op on this stream.
  // Nothing has changed where there is no memory for it.
  Status reserve_workspace(size_t bytes);
  std::byte* workspace(size_t bytes) const;  // 64-byte aligned; CHECKs that it was reserved
  size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  Device device_ = Device::kCpu;
  ThreadTeam& host_;
  void* native_ = nullptr;
  DeviceMemory memory_;
  Buffer workspace_;
};

}  // namespace ibid
