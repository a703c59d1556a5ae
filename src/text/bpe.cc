#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

namespace ibid {
namespace {

constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
constexpr uint32_t kNoEntry = std::numeric_limits<uint32_t>::max();
constexpr size_t kShortWord = 96;  // where merge_long begins to win, measured with tools of bench/

}  // namespace

void BpeScratch::trim(size_t n_symbols) {
  auto cut = [n_symbols](auto& v) {
    if (v.capacity() <= 4 * n_symbols) return;
    v.clear();
    v.shrink_to_fit();
  };
  cut(symbols), cut(ranks), cut(results), cut(next), cut(previous), cut(entries), cut(rank_queue), cut(positions);
  cut(urgent);
}

Result<BpeMerger> BpeMerger::build(std::span<const Merge> merges) {
  constexpr size_t kMaxProbes = 1024;  // a file made to collide must not cost its square
  BpeMerger merger;
  merger.slots_.assign(std::bit_ceil(std::max<size_t>(16, merges.size() * 2)), Merge{-1, -1, 0, 0});
  merger.mask_ = merger.slots_.size() - 1;
  for (const Merge& m : merges) {
    size_t i = hash(m.left, m.right) & merger.mask_;
    for (size_t probes = 0;; i = (i + 1) & merger.mask_) {
      const Merge& slot = merger.slots_[i];
      if (slot.left < 0 || (slot.left == m.left && slot.right == m.right)) break;
      if (++probes == kMaxProbes) return invalid("the merges are made to collide; the vocabulary cannot be trusted");
    }
    merger.slots_[i] = m;
    merger.n_ranks_ = std::max(merger.n_ranks_, m.rank + 1);
  }
  return merger;
}

void BpeMerger::merge(BpeScratch& s) const {
  if (s.symbols.size() < 2) return;
  s.symbols.size() <= kShortWord ? merge_short(s) : merge_long(s);
}

void BpeMerger::merge_short(BpeScratch& s) const {
  size_t n = s.symbols.size();
  if (n < 2) return;
  s.ranks.resize(n);
  s.results.resize(n);
  int32_t* symbols = s.symbols.data();
  int32_t* ranks = s.ranks.data();
  int32_t* results = s.results.data();
  auto set_pair = [&](size_t i) {
    const Merge* m = find(symbols[i], symbols[i + 1]);
    ranks[i] = m ? m->rank : kNoRank;
    results[i] = m ? m->result : 0;
  };
  for (size_t i = 0; i + 1 < n; ++i) set_pair(i);
  while (n > 1) {
    int32_t best = kNoRank;
    for (size_t i = 0; i + 1 < n; ++i) best = std::min(best, ranks[i]);
    if (best == kNoRank) break;
    size_t i = 0;
    while (ranks[i] != best) ++i;
    symbols[i] = results[i];
    std::copy(symbols + i + 2, symbols + n, symbols + i + 1);
    if (i + 2 < n) {
      std::copy(ranks + i + 2, ranks + n - 1, ranks + i + 1);
      std::copy(results + i + 2, results + n - 1, results + i + 1);
    }
    --n;
    if (i + 1 < n) set_pair(i);
    if (i > 0) set_pair(i - 1);
  }
  s.symbols.resize(n);
}

void BpeMerger::merge_long(BpeScratch& s) const {
  const int32_t n = static_cast<int32_t>(s.symbols.size());
  if (n < 2) return;
  int32_t* symbols = s.symbols.data();
  s.ranks.assign(static_cast<size_t>(n), kNoRank);
  s.next.resize(static_cast<size_t>(n));
  s.previous.resize(static_cast<size_t>(n));
  if (s.heads.size() < static_cast<size_t>(n_ranks_)) s.heads.resize(static_cast<size_t>(n_ranks_), kNoEntry);
  s.entries.clear();
  s.rank_queue.clear();
  s.urgent.clear();
  int32_t* ranks = s.ranks.data();
  int32_t* next = s.next.data();
  int32_t* previous = s.previous.data();
  uint32_t free_entry = kNoEntry;
  int32_t rank = -1;  // being merged

  auto wait = [&](int32_t r, int32_t position) {
    if (r <= rank) {
      s.urgent.push_back(static_cast<int64_t>(r) << 32 | position);
      std::push_heap(s.urgent.begin(), s.urgent.end(), std::greater<>());
      return;
    }
    uint32_t& head = s.heads[static_cast<size_t>(r)];
    if (head == kNoEntry) {
      s.rank_queue.push_back(r);
      std::push_heap(s.rank_queue.begin(), s.rank_queue.end(), std::greater<>());
    }
    uint32_t entry = free_entry;
    if (entry == kNoEntry) {
      entry = static_cast<uint32_t>(s.entries.size());
      s.entries.push_back({});
    } else {
      free_entry = s.entries[entry].next;
    }
    s.entries[entry] = {position, head};
    head = entry;
  };
  auto set_pair = [&](int32_t i, int32_t j) {
    const Merge* m = find(symbols[i], symbols[j]);
    ranks[i] = m ? m->rank : kNoRank;
    if (m) wait(m->rank, i);
  };
  // Merges the pair at i if it still has rank r.
  auto merge_at = [&](int32_t i, int32_t r) {
    if (ranks[i] != r) return;
    int32_t j = next[i];
    symbols[i] = find(symbols[i], symbols[j])->result;
    symbols[j] = -1;
    ranks[j] = kNoRank;
    next[i] = next[j];
    ranks[i] = kNoRank;
    if (next[i] < n) {
      previous[next[i]] = i;
      set_pair(i, next[i]);
    }
    if (previous[i] >= 0) set_pair(previous[i], i);
  };

  for (int32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  for (int32_t i = n - 2; i >= 0; --i) set_pair(i, i + 1);
  while (!s.rank_queue.empty()) {
    std::pop_heap(s.rank_queue.begin(), s.rank_queue.end(), std::greater<>());
    rank = s.rank_queue.back();
    s.rank_queue.pop_back();
    s.positions.clear();
    uint32_t& head = s.heads[static_cast<size_t>(rank)];
    for (uint32_t e = head; e != kNoEntry;) {
      s.positions.push_back(s.entries[e].position);
      uint32_t after = s.entries[e].next;
      s.entries[e].next = free_entry;
      free_entry = e;
      e = after;
    }
    head = kNoEntry;
    if (!std::is_sorted(s.positions.begin(), s.positions.end())) {
      if (std::is_sorted(s.positions.rbegin(), s.positions.rend())) {
        std::reverse(s.positions.begin(), s.positions.end());
      } else {
        std::sort(s.positions.begin(), s.positions.end());
      }
    }
    for (size_t k = 0; k < s.positions.size() || !s.urgent.empty();) {
      int64_t waiting = k < s.positions.size() ? static_cast<int64_t>(rank) << 32 | s.positions[k]
                                               : std::numeric_limits<int64_t>::max();
      if (!s.urgent.empty() && s.urgent.front() < waiting) {
        std::pop_heap(s.urgent.begin(), s.urgent.end(), std::greater<>());
        int64_t first = s.urgent.back();
        s.urgent.pop_back();
        merge_at(static_cast<int32_t>(first & 0xFFFFFFFF), static_cast<int32_t>(first >> 32));
      } else {
        merge_at(s.positions[k++], rank);
      }
    }
  }
  int32_t n_left = 0;
  for (int32_t i = 0; i < n; i = next[i]) symbols[n_left++] = symbols[i];
  s.symbols.resize(static_cast<size_t>(n_left));
}

}  // namespace ibid
