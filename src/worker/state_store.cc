#include "worker/state_store.h"

#include <cstring>

#include "base/check.h"

namespace ibid {

Result<StateStore> StateStore::create(int64_t state_bytes, int32_t n_states, int32_t n_host_states,
                                      const DeviceMemory& memory) {
  StateStore store;
  ASSIGN_OR_RETURN(store.bytes_,
                   Buffer::allocate(memory, static_cast<size_t>(state_bytes * n_states), "the recurrent states"));
  ASSIGN_OR_RETURN(store.host_bytes_, Buffer::allocate(cpu_memory(), static_cast<size_t>(state_bytes * n_host_states),
                                                       "the host tier of the recurrent states"));
  store.n_host_slots_ = n_host_states;
  store.slots_ = {.bytes = store.bytes_.data(), .slot_bytes = state_bytes, .n_slots = n_states};
  return store;
}

std::byte* StateStore::slot(Tier tier, StateId state) const {
  if (tier == Tier::kDevice) return slots_.slot(raw(state));
  const auto offset = static_cast<size_t>(raw(state) * slots_.slot_bytes);
  CHECK(raw(state) >= 0 && offset < host_bytes_.bytes(), "a state on the host that has no memory");
  return host_bytes_.data() + offset;
}

void StateStore::copy(std::span<const StateCopy> copies) const {
  for (const StateCopy& c : copies) {
    const bool comes_up = c.from_tier == Tier::kHost;
    CHECK(comes_up ? c.to_tier == Tier::kDevice : c.to_tier == Tier::kHost, "states are copied between tiers alone");
    std::memcpy(slot(c.to_tier, c.to), slot(c.from_tier, c.from), static_cast<size_t>(slots_.slot_bytes));
  }
}

void StateStore::export_state(Tier tier, StateId state, std::span<std::byte> bytes) const {
  CHECK(static_cast<int64_t>(bytes.size()) == slots_.slot_bytes, "a state is exchanged whole");
  std::memcpy(bytes.data(), slot(tier, state), bytes.size());
}

void StateStore::import_state(StateId state, std::span<const std::byte> bytes) const {
  CHECK(static_cast<int64_t>(bytes.size()) == slots_.slot_bytes, "a state is exchanged whole");
  std::memcpy(slot(Tier::kDevice, state), bytes.data(), bytes.size());
}

}  // namespace ibid
