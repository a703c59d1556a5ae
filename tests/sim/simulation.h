// Simulation: the real engine (scheduler, room, cache, batch, sampler, settling) over a model whose cells name what
// they hold, on a virtual clock, living through a script. After the idea of FoundationDB's simulation (Zhou et al.,
// SIGMOD 2021, section 4): everything by one seed, in one thread, so that what fails fails again.
//
// Held true: each cell that is read is the reader's own (cell_model.h; freed blocks are poisoned); each answer is the
// one that its request alone gives, to the byte of its text; all counts equal a count of our own; the first in order
// has a share within a bound; at the end every request has ended and every block is back.
#pragma once

#include <cstdint>
#include <string>

#include "sim/script.h"

namespace ibid::sim {

// What a run met, so that a test can check that it met everything. Plain, to be sent through a pipe.
struct Met {
  int64_t n_steps = 0, n_submitted = 0, n_refused = 0, n_finished = 0, n_cancelled = 0, n_stopped = 0;
  int64_t n_preemptions = 0, n_copies = 0, n_shares = 0, n_tokens = 0, n_cached_tokens = 0, n_accepted_drafts = 0;
  int64_t n_scored = 0, n_forked = 0, n_down = 0, n_up = 0, n_fetched = 0, n_broken = 0, n_restarts = 0,
          longest_wait = 0;  // steps that the first in order was without a share
  uint64_t digest = 0;       // of all that was computed and heard
  void add(const Met& other);
};

struct Verdict {
  bool failed = false;
  int64_t step = 0;
  std::string what;
  Met met;
};

// Stops at the first fault. What is our own mistake in the engine (a CHECK) aborts the process: judge.h runs it apart.
// With a folder, each process of the life is on record there, named by its number.
Verdict simulate(const Script& script, const std::string& records = "");

}  // namespace ibid::sim
