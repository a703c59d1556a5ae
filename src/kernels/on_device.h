// The one place where an op looks at its stream's device. An op of kernels/ops.h checks shapes, then gives a body for
// each device to on_device, which runs the right one. The reference is a second body of the CPU (kernels/reference.h).
#pragma once

#include <type_traits>

#include "kernels/op_profile.h"
#include "kernels/reference/reference.h"
#include "tensor/stream.h"

namespace ibid::ops {

// Stands where there is no body. If a device lacks a body for an op that a model runs, the model should not have been
// loaded there: no_body stops with a sentence that names both.
inline constexpr struct NoBody {
} kNoBody;
[[noreturn]] void no_body(const char* op, Device device);

// For ops that only copy: the CPU's body is the reference.
inline constexpr struct SameAsCpu {
} kSameAsCpu;

// `work` is called only where somebody looks (kernels/op_profile.h).
template <typename Cpu, typename Reference, typename Cuda, typename Work>
void on_device(const Stream& s, const char* op, Cpu&& cpu, [[maybe_unused]] Reference&& reference,
               [[maybe_unused]] Cuda&& cuda, Work&& work) {
  const OpTimer timer(op, op_profile() != nullptr ? work() : OpWork{});
  switch (s.device()) {
    case Device::kCpu:
      if constexpr (!std::is_same_v<std::decay_t<Reference>, SameAsCpu>) {
        if (reference::selected()) return reference();
      }
      return cpu();
    case Device::kCuda:
      if constexpr (std::is_same_v<std::decay_t<Cuda>, NoBody>) {
        no_body(op, s.device());
      } else {
        return cuda();
      }
  }
}

template <typename Cpu, typename Reference, typename Cuda>
void on_device(const Stream& s, const char* op, Cpu&& cpu, Reference&& reference, Cuda&& cuda) {
  on_device(s, op, cpu, reference, cuda, [] { return OpWork{}; });
}

}  // namespace ibid::ops
