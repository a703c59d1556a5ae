// Where a sequence of a model with recurrent layers leaves its state for others (cache/state_pool.h): before its
// prompt's last token, which is computed again for its row of logits, and after every state_step
// tokens. What is left besides stands where it comes about: at an answer's end, and where a sequence is preempted. The
// engine does not know where a prompt's messages end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/state/sequence.h"

namespace ibid {

inline bool is_snapshot_point(const Sequence& s, int32_t n_tokens, int32_t state_step) {
  return n_tokens == s.prompt_len - 1 || n_tokens % state_step == 0;
}

// The first after n_tokens.
inline int32_t next_snapshot_point(const Sequence& s, int32_t n_tokens, int32_t state_step) {
  const int32_t next = (n_tokens / state_step + 1) * state_step;
  return n_tokens < s.prompt_len - 1 ? std::min(next, s.prompt_len - 1) : next;
}

}  // namespace ibid
