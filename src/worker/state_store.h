// StateStore: the bytes of recurrent states, in buffers made at start-up: one on the device, as the model reads and
// writes it, and one for the tier below. Which slot holds what is the cache's business (cache/state_pool.h). Memory is
// the system's until it is first written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "cache/state_pool.h"
#include "kernels/state_slots.h"
#include "tensor/buffer.h"

namespace ibid {

class StateStore {
 public:
  // state_bytes: of one. Zero states of a model without recurrent layers.
  static Result<StateStore> create(int64_t state_bytes, int32_t n_states, int32_t n_host_states,
                                   const DeviceMemory& memory = cpu_memory());

  const StateSlots& slots() const { return slots_; }
  int32_t n_host_slots() const { return n_host_slots_; }
  // In the given order, between the device and the host.
  void copy(std::span<const StateCopy> copies) const;
  // A whole state, as it lies; slot_bytes of `bytes`.
  void export_state(Tier tier, StateId state, std::span<std::byte> bytes) const;
  void import_state(StateId state, std::span<const std::byte> bytes) const;  // to the device

 private:
  std::byte* slot(Tier tier, StateId state) const;

  StateSlots slots_;
  int32_t n_host_slots_ = 0;
  Buffer bytes_;
  Buffer host_bytes_;
};

}  // namespace ibid
