// A proposer's fixed number of entries for sequences. An entry with `sequence` below 0 is free.
#pragma once

#include <cstdint>
#include <vector>

namespace ibid {

// Returns the entry of this sequence, else the first free entry, else null.
template <typename Seq>
Seq* place_of(std::vector<Seq>& seqs, int64_t sequence) {
  Seq* unused = nullptr;
  for (Seq& seq : seqs) {
    if (seq.sequence == sequence) return &seq;
    if (unused == nullptr && seq.sequence < 0) unused = &seq;
  }
  return unused;
}

// Returns the entry of this sequence, or null. For self_check().
template <typename Seq>
const Seq* held_place(const std::vector<Seq>& seqs, int64_t sequence) {
  for (const Seq& seq : seqs) {
    if (seq.sequence == sequence) return &seq;
  }
  return nullptr;
}

}  // namespace ibid
