// DeviceSpan: elements in the memory of a stream's device, which the host may not read or write. Only ops and the
// copies of a Stream take one; what the host reads is a std::span. So memory of the wrong side does not compile.
#pragma once

#include <cstddef>

#include "base/check.h"

namespace ibid {

template <typename T>
class DeviceSpan {
 public:
  DeviceSpan() = default;
  DeviceSpan(T* data, size_t size) : data_(data), size_(size) {}

  // Its address, for ops and copies; no host code may follow it.
  T* address() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  bool empty() const { return size_ == 0; }
  DeviceSpan first(size_t n) const { return subspan(0, n); }
  DeviceSpan subspan(size_t offset, size_t n) const {
    CHECK(offset <= size_ && n <= size_ - offset);
    return {data_ + offset, n};
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ibid
