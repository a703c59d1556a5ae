#include "tensor/stream.h"

#include <utility>

#include "base/check.h"

namespace ibid {

std::string_view device_name(Device device) {
  switch (device) {
    case Device::kCpu:
      return "the CPU";
    case Device::kCuda:
      return "CUDA";
  }
  return "a device without a name";
}

Stream::Stream(ThreadTeam& team) : host_(team), memory_(cpu_memory()) {}

Stream::Stream(Device device, void* native, DeviceMemory memory, ThreadTeam& host)
    : device_(device), host_(host), native_(native), memory_(memory) {
  CHECK(device != Device::kCpu, "a CPU stream is made over a thread team");
}

Status Stream::reserve_workspace(size_t bytes) {
  if (bytes <= workspace_.bytes()) return {};
  ASSIGN_OR_RETURN(Buffer larger, Buffer::allocate(memory_, bytes, "the ops' workspace"));
  larger.take();
  workspace_ = std::move(larger);
  return {};
}

std::byte* Stream::workspace(size_t bytes) const {
  CHECK(bytes <= workspace_.bytes(), "an op needs more workspace than was reserved at start-up");
  return workspace_.data();
}

}  // namespace ibid
