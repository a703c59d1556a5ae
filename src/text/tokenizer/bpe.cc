#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

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
  cut(symbols), cut(ranks), cut(results), cut(links), cut(entries), cut(rank_queue), cut(positions);
  cut(urgent);
}

Result<BpeMerger> BpeMerger::build(std::span<const Merge> merges) {
  constexpr size_t kMaxProbes = 1024;  // a file made to collide must not cost its square
  BpeMerger merger;
  merger.slots_.assign(std::bit_ceil(std::max<size_t>(16, merges.size() * 2)), Merge{-1, -1, 0, 0});
  merger.mask_ = merger.slots_.size() - 1;
  constexpr size_t kAhead = 16;
  for (size_t k = 0; k < merges.size(); ++k) {
    const Merge& m = merges[k];
    if (k + kAhead < merges.size()) {
      const Merge& later = merges[k + kAhead];
      __builtin_prefetch(&merger.slots_[hash(later.left, later.right) & merger.mask_], 1);
    }
    size_t i = hash(m.left, m.right) & merger.mask_;
    size_t probes = 0;
    for (;; i = (i + 1) & merger.mask_) {
      const Merge& slot = merger.slots_[i];
      if (slot.left < 0 || (slot.left == m.left && slot.right == m.right)) break;
      if (++probes == kMaxProbes) return invalid("the merges are made to collide; the vocabulary cannot be trusted");
    }
    merger.longest_ = std::max(merger.longest_, probes);
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

namespace {

// Positions that wait to be merged: a list per rank, the lowest rank first. Positions that arrive at a rank that is
// already being merged go through a heap of their own, so that the order is exact for any ranks.
class Waiting {
 public:
  Waiting(BpeScratch& scratch, int32_t n_ranks) : s_(scratch) {
    if (s_.heads.size() < static_cast<size_t>(n_ranks)) s_.heads.resize(static_cast<size_t>(n_ranks), kNoEntry);
    s_.entries.clear();
    s_.rank_queue.clear();
    s_.urgent.clear();
  }
  // If memory ran out, waiting positions are dropped: the scratch outlives the word.
  ~Waiting() {
    for (const int32_t rank : s_.rank_queue) s_.heads[static_cast<size_t>(rank)] = kNoEntry;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void add(int32_t rank, int32_t position) {
    if (rank <= rank_) {
      s_.urgent.push_back(static_cast<int64_t>(rank) << 32 | position);
      std::push_heap(s_.urgent.begin(), s_.urgent.end(), std::greater<>());
      return;
    }
    uint32_t& head = s_.heads[static_cast<size_t>(rank)];
    if (head == kNoEntry) {
      s_.rank_queue.push_back(rank);
      std::push_heap(s_.rank_queue.begin(), s_.rank_queue.end(), std::greater<>());
    } else {
      BpeScratch::Entry& e = s_.entries[head];
      if (e.count == 1) e.stride = position - e.first;
      if (position == e.first + e.stride * e.count) {
        ++e.count;
        return;
      }
    }
    uint32_t entry = free_;
    if (entry == kNoEntry) {
      entry = static_cast<uint32_t>(s_.entries.size());
      s_.entries.push_back({});
    } else {
      free_ = s_.entries[entry].next;
    }
    s_.entries[entry] = {position, 0, 1, head};
    head = entry;
  }

  // Calls merge(position, rank) for every waiting position, in order; it may add more.
  template <typename Merge>
  void drain(Merge&& merge) {
    while (!s_.rank_queue.empty()) {
      std::pop_heap(s_.rank_queue.begin(), s_.rank_queue.end(), std::greater<>());
      rank_ = s_.rank_queue.back();
      s_.rank_queue.pop_back();
      BpeScratch::Entry run = take_list();
      for (int32_t k = 0; k < run.count || !s_.urgent.empty();) {
        int32_t position = run.stride != 0 ? run.first + k * run.stride
                           : k < run.count ? s_.positions[static_cast<size_t>(k)]
                                           : 0;
        int64_t next =
            k < run.count ? static_cast<int64_t>(rank_) << 32 | position : std::numeric_limits<int64_t>::max();
        if (!s_.urgent.empty() && s_.urgent.front() < next) {
          std::pop_heap(s_.urgent.begin(), s_.urgent.end(), std::greater<>());
          int64_t first = s_.urgent.back();
          s_.urgent.pop_back();
          merge(static_cast<int32_t>(first & 0xFFFFFFFF), static_cast<int32_t>(first >> 32));
        } else {
          merge(position, rank_);
          ++k;
        }
      }
    }
  }

 private:
  // The positions of rank_, ascending: one run with a stride, or (stride 0) s_.positions.
  BpeScratch::Entry take_list() {
    uint32_t head = std::exchange(s_.heads[static_cast<size_t>(rank_)], kNoEntry);
    BpeScratch::Entry first = s_.entries[head];
    if (first.next == kNoEntry && first.stride != 0) {
      s_.entries[head].next = std::exchange(free_, head);
      if (first.stride < 0) {
        first.first += (first.count - 1) * first.stride;
        first.stride = -first.stride;
      }
      return first;
    }
    s_.positions.clear();
    for (uint32_t e = head; e != kNoEntry;) {
      BpeScratch::Entry& entry = s_.entries[e];
      for (int32_t k = 0; k < entry.count; ++k) s_.positions.push_back(entry.first + k * entry.stride);
      e = std::exchange(entry.next, std::exchange(free_, e));
    }
    if (!std::is_sorted(s_.positions.begin(), s_.positions.end())) std::sort(s_.positions.begin(), s_.positions.end());
    return {0, 0, static_cast<int32_t>(s_.positions.size()), kNoEntry};
  }

  BpeScratch& s_;
  int32_t rank_ = -1;  // being merged
  uint32_t free_ = kNoEntry;
};

}  // namespace

void BpeMerger::merge_long(BpeScratch& s) const {
  const int32_t n = static_cast<int32_t>(s.symbols.size());
  if (n < 2) return;
  int32_t* symbols = s.symbols.data();
  s.links.resize(static_cast<size_t>(n));
  int32_t* links = s.links.data();
  Waiting waiting(s, n_ranks_);

  // In a run the same pair comes again and again, at each of these three places.
  struct Last {
    int32_t left = -1, right = -1;
    const Merge* merge = nullptr;
  };
  Last merged, following, before;
  auto find_again = [&](Last& last, int32_t left, int32_t right) {
    if (last.left != left || last.right != right) last = {left, right, find(left, right)};
    return last.merge;
  };
  auto wait = [&](Last& last, int32_t i, int32_t j) {
    if (const Merge* m = find_again(last, symbols[i], symbols[j])) waiting.add(m->rank, i);
  };
  for (int32_t i = 0; i < n; ++i) links[i] = i + 1;
  for (int32_t i = 0; i + 1 < n; ++i) wait(following, i, i + 1);
  // A position may have changed since it came: it counts only if its pair still has this rank. The last slot of a
  // symbol of several slots holds where the symbol begins, so that links lead both ways.
  waiting.drain([&](int32_t i, int32_t rank) {
    if (symbols[i] < 0) return;
    int32_t j = links[i];
    if (j == n) return;
    const Merge* m = find_again(merged, symbols[i], symbols[j]);
    if (!m || m->rank != rank) return;
    int32_t end = links[j];
    symbols[i] = m->result;
    symbols[j] = -1;
    links[end - 1] = i;
    links[i] = end;
    if (end < n) wait(following, i, end);
    if (i > 0) wait(before, symbols[i - 1] >= 0 ? i - 1 : links[i - 1], i);
  });
  int32_t n_left = 0;
  for (int32_t i = 0; i < n;) {
    int32_t next = links[i];
    symbols[n_left++] = symbols[i];
    i = next;
  }
  s.symbols.resize(static_cast<size_t>(n_left));
}

}  // namespace ibid
