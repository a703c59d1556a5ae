// SearchGroup: the sequences of one request that searches (sample/search.h). Each is the seat of a beam: its sequence
// is the beam's, and it computes one row for each token. When the rows of all running beams are there, the search
// decides how they go on: the first child of a beam stays in its seat, others fork its blocks into free seats.
//
// Rows may come in different steps. A beam with its row waits (SequenceState::kParked) outside of queue and running
// ones, with its blocks until others need them: the contents of the row are here, and blocks can be computed again. So
// beams that do not all fit into the cache, or into a step, run in turns, and no two wait for each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sample/contrastive_search.h"
#include "sample/search.h"

namespace ibid {

struct Sequence;

// A search's turn: its next beams; where there are none it is over, and of each seat why its sequence ended.
struct SearchTurn {
  std::vector<SearchChild> children;
  std::vector<FinishReason> ends;
};

// Where children sit, by the seats of the beams that run: the first child of a beam in its parent's, the others in
// those that are free then, the first ones first.
inline std::vector<int32_t> seats_of(std::span<const SearchChild> children, std::span<const int32_t> running) {
  std::vector<int32_t> out(children.size(), -1);
  const auto is_taken = [&](int32_t seat) { return std::ranges::find(out, seat) != out.end(); };
  for (size_t i = 0; i < children.size(); ++i) {
    const int32_t seat = running[static_cast<size_t>(children[i].parent)];
    if (!is_taken(seat)) out[i] = seat;
  }
  int32_t free = 0;
  for (int32_t& seat : out) {
    if (seat >= 0) continue;
    while (is_taken(free)) ++free;
    seat = free;
  }
  return out;
}

struct SearchGroup {
  std::unique_ptr<Search> search;
  ContrastiveSearch* contrastive = nullptr;  // the same, where it is one
  std::vector<Sequence*> seats;
  std::vector<Sequence*> running;  // by the search's index of its beam
  std::vector<SearchRow> rows;     // of them
  int32_t n_missing = 1;           // of these rows
  std::vector<SearchChild> children;
  std::vector<Sequence*> next;
  int64_t n_turns = 0;

  // The place of a seat among those that run.
  size_t index_of(const Sequence& sequence) const {
    for (size_t i = 0; i < running.size(); ++i) {
      if (running[i] == &sequence) return i;
    }
    return running.size();
  }
};

}  // namespace ibid
