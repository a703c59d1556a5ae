// Stream: an ordered queue of work on one device. Ops take it as their first argument; no other code depends on the
// device. On the CPU work is done at the call, by a team of threads; on CUDA it is enqueued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "tensor/buffer.h"

namespace ibid {

enum class Device : uint8_t { kCpu, kCuda };
std::string_view device_name(Device device);  // "the CPU", "CUDA"

class Stream {
 public:
  // A CPU stream over `team` (not owned, outlives the stream).
  explicit Stream(ThreadTeam& team);
  // A queue of another device; `native` is its handle (a cudaStream_t), not owned.
  Stream(Device device, void* native, DeviceMemory memory);

  Device device() const { return device_; }
  const DeviceMemory& memory() const { return memory_; }  // of its device
  ThreadTeam& team() const {                              // the CPU's: a stream of another device has none
    CHECK(team_ != nullptr, "only a CPU stream has a thread team");
    return *team_;
  }
  void* native() const { return native_; }  // null on the CPU

  // Room for what ops need besides their arguments (quantised activations, partial sums). Sized once at start-up, by
  // the largest of the ops' own `*_workspace_bytes`; ops never allocate. Valid until the next op on this stream.
  // Nothing has changed where there is no memory for it.
  Status reserve_workspace(size_t bytes);
  std::byte* workspace(size_t bytes) const;  // 64-byte aligned; CHECKs that it was reserved
  size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  Device device_ = Device::kCpu;
  ThreadTeam* team_ = nullptr;
  void* native_ = nullptr;
  DeviceMemory memory_;
  Buffer workspace_;
};

}  // namespace ibid
