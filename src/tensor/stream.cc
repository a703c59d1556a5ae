#include "tensor/stream.h"

#include <new>

#include "base/check.h"

namespace ibid {
namespace {
constexpr std::align_val_t kAlignment{64};
}

Stream::Stream(ThreadTeam& team) : team_(&team) {}

void Stream::FreeAligned::operator()(std::byte* p) const { ::operator delete[](p, kAlignment); }

void Stream::reserve_workspace(size_t bytes) {
  if (bytes <= workspace_bytes_) return;
  workspace_.reset(static_cast<std::byte*>(::operator new[](bytes, kAlignment)));
  workspace_bytes_ = bytes;
}

std::byte* Stream::workspace(size_t bytes) const {
  CHECK(bytes <= workspace_bytes_, "an op needs more workspace than was reserved at start-up");
  return workspace_.get();
}

}  // namespace ibid
