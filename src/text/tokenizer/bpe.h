// BpeMerger: byte-pair encoding of one word (Sennrich et al. 2016, section 3.2): of all adjacent pairs that a rule
// merges, the one with the lowest rank goes first, the leftmost of equals. Plain arrays for short words; for long ones
// positions wait in one list per rank, so that n symbols take O(n log n) at worst and nearly O(n) for trained rules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace ibid {

struct Merge {
  int32_t left;
  int32_t right;
  int32_t rank;  // lower goes first; equal ranks are allowed
  int32_t result;
};

// Working memory of one thread, reused from word to word; grows to the longest word seen and is cut back by trim().
struct BpeScratch {
  std::vector<int32_t> symbols;
  std::vector<int32_t> ranks, results;  // short words: of each pair
  std::vector<int32_t> links;           // long words: where each symbol ends, and after it where it begins
  std::vector<uint32_t> heads;          // first waiting entry of each rank, or kNoEntry
  // Waiting positions first, first + stride, ...: a run of one letter is one entry.
  struct Entry {
    int32_t first;
    int32_t stride;
    int32_t count;
    uint32_t next;
  };
  std::vector<Entry> entries;
  std::vector<int32_t> rank_queue;  // heap of ranks that have a list
  std::vector<int32_t> positions;   // of the rank being merged
  std::vector<int64_t> urgent;      // heap of (rank, position) that must go before the rest of this rank

  void trim(size_t n_symbols);
};

class BpeMerger {
 public:
  BpeMerger() = default;
  // If a pair is given twice, the last one counts.
  static Result<BpeMerger> build(std::span<const Merge> merges);

  // Merges scratch.symbols in place.
  void merge(BpeScratch& scratch) const;
  const Merge* find(int32_t left, int32_t right) const {
    if (left < 0 || right < 0 || slots_.empty()) return nullptr;
    size_t i = hash(left, right) & mask_;
    for (size_t probes = 0; probes <= longest_; ++probes, i = (i + 1) & mask_) {
      const Merge& m = slots_[i];
      if (m.left == left && m.right == right) return &m;
      if (m.left < 0) return nullptr;
    }
    return nullptr;
  }
  // The two ways, apart from each other for tests.
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

 private:
  static size_t hash(int32_t left, int32_t right) {
    uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    key *= 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(key >> 32 ^ key >> 15);
  }
  std::vector<Merge> slots_;
  size_t mask_ = 0;
  size_t longest_ = 0;  // way of a pair from its place
  int32_t n_ranks_ = 0;
};

}  // namespace ibid
