// Who may still wait. One rule for the engine and for the thread before it: the thread counts at least what the engine
// counts, so that nobody whom it let in is refused later.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace ibid {

// `n_now` sequences wait, and with those of a request that asks it would be `n_then`. A request with more choices than
// may wait is taken where nobody does.
inline Status may_wait(int32_t n_now, int32_t n_then, int32_t max_waiting) {
  if (n_then <= max_waiting || (n_now == 0 && max_waiting > 0)) return {};
  return exhausted("The queue is full (" + std::to_string(n_now) + " sequences wait); try again later.");
}

}  // namespace ibid
