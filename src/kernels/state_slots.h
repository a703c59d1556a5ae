// StateSlots: the memory of recurrent states as a model sees it. A slot is one run of bytes that holds the state of one
// sequence after some of its tokens, of all recurrent layers; the model defines its contents. A batch names the slots
// that it reads and writes (forward_batch.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ibid {

struct StateSlots {
  std::byte* bytes = nullptr;  // on the device, [n_slots, slot_bytes]
  int64_t slot_bytes = 0;
  int32_t n_slots = 0;

  std::byte* slot(int32_t i) const { return bytes + i * slot_bytes; }
};

}  // namespace ibid
