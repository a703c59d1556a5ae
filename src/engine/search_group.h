// SearchGroup: the sequences of one request that searches (sample/search.h). Each is the seat of a beam: its text is
// the beam's, and it computes one row for each token. When the rows of all beams that run are there, the search says
// how they go on: the first child of a beam stays in its seat, others fork its blocks into free seats.
//
// Rows may come in different steps. Who has its row waits (SequenceState::kParked) outside of queue and running ones,
// with its blocks as long as nobody needs them: what the row said is here, and blocks can be computed again. So beams
// that do not all fit into the cache, or into a step, run in turns, and no two wait for each other.
#pragma once

#include <memory>
#include <vector>

#include "sample/contrastive_search.h"
#include "sample/search.h"

namespace ibid {

struct Sequence;

struct SearchGroup {
  std::unique_ptr<Search> search;
  ContrastiveSearch* contrastive = nullptr;  // the same, where it is one
  std::vector<Sequence*> seats;
  std::vector<Sequence*> running;  // by the search's index of its beam
  std::vector<SearchRow> rows;     // of them
  int32_t n_missing = 1;           // of these rows
  std::vector<SearchChild> children;
  std::vector<Sequence*> next;

  // The place of a seat among those that run.
  size_t index_of(const Sequence& sequence) const {
    for (size_t i = 0; i < running.size(); ++i) {
      if (running[i] == &sequence) return i;
    }
    return running.size();
  }
};

}  // namespace ibid
