// Replays a workload through the engine over a model that computes nothing, on a virtual clock; and beside it what the
// same requests would cost a server that gives each one contiguous run of memory, or that runs batches to their end.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/workload.h"

namespace ibid::sim {

struct ReplayOptions {
  int32_t block_len = 16;
  int32_t n_blocks = 0;
  int32_t context_len = 0;
  int32_t max_sequences = 64;
  bool one_after_the_other = false;  // and no answers: prompts alone
};

// Shares of the memory, over the time in which a request waited for memory; otherwise of the requests' held slots.
struct Waste {
  double internal = 0;  // reserved and not filled
  double external = 0;  // free and large enough, but unusable for a waiting request
  double filled = 0;
};

struct Replayed {
  int64_t prompt_tokens = 0, cached_tokens = 0;
  std::vector<int32_t> cached;       // of each request
  std::vector<double> begun, ended;  // of each request: its first share, its end
  double unfilled = 0;               // of the slots that running requests hold, how many are empty
  Waste pressed;                     // while a request waited
  double idle_places = 0;            // of max_sequences, while a request waited
  int64_t n_steps = 0;
};
Replayed replay(const Workload& workload, const ReplayOptions& options);

// First come, first served, first fit; each request takes as long as in `replayed`. `reserved`: how much one takes at
// once.
enum class Reserve { kContext, kPowerOfTwo };
Waste contiguous(const Workload& workload, const Replayed& replayed, int64_t n_slots, int32_t context_len,
                 Reserve reserved);
// Batches of `n` in the order of arrival, each ending with its longest answer: the share of places that idle.
double idle_in_static_batches(const Workload& workload, int32_t n);

}  // namespace ibid::sim
