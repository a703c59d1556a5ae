#include "tensor/stream.h"

#include <new>

#include "base/check.h"

namespace ibid {
namespace {

constexpr std::align_val_t kAlignment{64};

std::byte* allocate_aligned(size_t bytes) {
  return static_cast<std::byte*>(::operator new[](bytes, kAlignment, std::nothrow));
}
void release_aligned(std::byte* p) { ::operator delete[](p, kAlignment); }

}  // namespace

std::string_view device_name(Device device) {
  switch (device) {
    case Device::kCpu:
      return "the CPU";
    case Device::kCuda:
      return "CUDA";
  }
  return "a device without a name";
}

Stream::Stream(ThreadTeam& team)
    : team_(&team), memory_{allocate_aligned, release_aligned}, workspace_(nullptr, release_aligned) {}

Stream::Stream(Device device, void* native, DeviceMemory memory)
    : device_(device), native_(native), memory_(memory), workspace_(nullptr, memory.release) {
  CHECK(device != Device::kCpu, "a CPU stream is made over a thread team");
}

Status Stream::reserve_workspace(size_t bytes) {
  if (bytes <= workspace_bytes_) return {};
  std::byte* const memory = memory_.allocate(bytes);
  if (memory == nullptr) {
    return exhausted("There are no " + std::to_string(bytes >> 20) +
                     " MiB of memory for the ops' workspace; fewer tokens of a step or a smaller context would do.");
  }
  workspace_.reset(memory);
  workspace_bytes_ = bytes;
  return {};
}

std::byte* Stream::workspace(size_t bytes) const {
  CHECK(bytes <= workspace_bytes_, "an op needs more workspace than was reserved at start-up");
  return workspace_.get();
}

}  // namespace ibid
