#include "sample/grammar/rule_machine.h"

#include <algorithm>
#include <span>

namespace ibid::grammar {
namespace {

using Subset = std::vector<uint32_t>;

uint32_t hash_of(std::span<const uint32_t> states) {
  uint64_t h = 0x9E3779B97F4A7C15u;
  for (uint32_t s : states) h = (h ^ s) * 0xD6E8FEB86659FD93u, h ^= h >> 32;
  return static_cast<uint32_t>(h);
}

}  // namespace

bool RuleMachine::make_room(size_t n) {
  constexpr size_t kMostEdges = 420'000;
  if (edges_.size() + empties_.size() + n > kMostEdges) return false;
  return grammar::make_room(edges_, n, held_) && grammar::make_room(empties_, n, held_);
}

uint32_t RuleMachine::add_states(uint32_t n) {
  if (!grammar::make_room(states_, n, held_)) return 0;
  const auto first = static_cast<uint32_t>(states_.size());
  states_.resize(first + n);
  return first;
}

// What one rule needs is cleared for the next, and kept.
class RuleFinisher::Subsets {
 public:
  explicit Subsets(Fuel& fuel) : fuel_(fuel), held_(fuel) {}

  bool run(const RuleMachine& machine, FinishedRules& done) {
    in_ = &machine;
    out_ = &done;
    base_ = static_cast<uint32_t>(done.accepts.size());
    subsets_.clear(), members_.clear();
    if (n_slots_used_ > 0) std::fill(slots_.begin(), slots_.end(), Slot{});
    n_slots_used_ = 0;
    if (slots_.size() > kSlotsKept) slots_.resize(kSlotsKept);
    const auto n_states = static_cast<int64_t>(machine.states_.size());
    if (!fuel_.burn(static_cast<int64_t>(machine.edges_.size() + machine.empties_.size()) * 4 + n_states * 2))
      return false;
    known_.clear();
    if (!make_room(known_, machine.states_.size(), held_)) return false;
    known_.resize(machine.states_.size());
    epoch_ = 0;
    return by_subsets(4 * n_states + 256);
  }

 private:
  bool has_empty(uint32_t state) const { return in_->states_[state].empties != 0; }
  // States with only empty edges do not count; the accepting one does.
  bool speaks(uint32_t state) const { return in_->states_[state].edges != 0 || state == 1; }

  // `closed_` becomes all counting states that the states lead to by empty edges, ascending.
  void close(std::span<const uint32_t> states) {
    ++epoch_;
    closed_.clear();
    const auto add = [&](uint32_t s) {
      if (known_[s].mark == epoch_) return;
      known_[s].mark = epoch_;
      if (make_room(closed_, 1, held_)) closed_.push_back(s);
    };
    for (uint32_t s : states) add(s);
    int64_t n_edges = 0;
    for (size_t i = 0; i < closed_.size(); ++i)
      for (uint32_t e = in_->states_[closed_[i]].empties; e != 0; e = in_->empties_[e - 1].next, ++n_edges)
        add(in_->empties_[e - 1].to);
    fuel_.burn(static_cast<int64_t>(closed_.size()) + n_edges / 8);
    std::erase_if(closed_, [&](uint32_t s) { return !speaks(s); });
    sort_states(closed_);
  }

  uint32_t state_of(std::span<const uint32_t> targets) {
    close(targets);
    if (closed_.empty()) return ~0u;
    if (closed_.size() == 1) return state_of_single(closed_[0]);
    if (2 * (n_slots_used_ + 1) > slots_.size() && !grow_slots()) return ~0u;
    const uint32_t hash = hash_of(closed_);
    size_t at = hash & (slots_.size() - 1);
    for (; slots_[at].subset != 0; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].hash == hash && std::ranges::equal(members(slots_[at].subset - 1), closed_))
        return slots_[at].subset - 1;
    const uint32_t made = add_state(closed_);
    slots_[at] = {hash, made + 1};
    ++n_slots_used_;
    return made;
  }
  bool grow_slots() {
    const size_t n = std::max<size_t>(64, 2 * slots_.size());
    if (!fuel_.has_room(block(n * sizeof(Slot)))) return false;
    held_.add(block(n * sizeof(Slot)) - block(slots_.capacity() * sizeof(Slot)));
    std::vector<Slot> old(n);
    old.swap(slots_);
    for (const Slot& slot : old) {
      size_t at = slot.hash & (slots_.size() - 1);
      while (slots_[at].subset != 0) at = (at + 1) & (slots_.size() - 1);
      if (slot.subset != 0) slots_[at] = slot;
    }
    return true;
  }
  // For the subset of one state: most are such.
  uint32_t state_of_single(uint32_t state) {
    uint32_t& single = known_[state].single;
    if (single == kUnknown) single = add_state({&state, 1});
    return single;
  }
  uint32_t add_state(std::span<const uint32_t> states) {
    fuel_.burn(static_cast<int64_t>(states.size()) + 16);
    return add_subset(states, std::binary_search(states.begin(), states.end(), 1u));
  }
  uint32_t add_subset(std::span<const uint32_t> states, bool accepts) {
    if (!make_room(out_->accepts, 1, out_->held) || !make_room(members_, states.size(), held_) ||
        !make_room(subsets_, 1, held_))
      return ~0u;
    out_->accepts.push_back(accepts);
    members_.insert(members_.end(), states.begin(), states.end());
    subsets_.push_back(static_cast<uint32_t>(members_.size()));
    return static_cast<uint32_t>(subsets_.size() - 1);
  }
  // Until one more is added.
  std::span<const uint32_t> members(uint32_t subset) const {
    const uint32_t begin = subset == 0 ? 0 : subsets_[subset - 1];
    return {members_.data() + begin, subsets_[subset] - begin};
  }

  // Calls add(subset) for what `targets_` lead to. Above `limit` subsets each new one is taken apart into its members:
  // what follows of them is one state each, so all ends within n_states more.
  template <typename Add>
  void lead(int64_t limit, Add&& add) {
    if (targets_.size() > 1 && static_cast<int64_t>(subsets_.size()) <= limit) {
      if (const uint32_t to = state_of(targets_); to != ~0u) add(to);
      return;
    }
    for (uint32_t target : targets_)
      if (const uint32_t to = state_of_one(target); to != ~0u) add(to);
  }

  // Most edges have the target of an earlier edge.
  uint32_t state_of_one(uint32_t target) {
    if (known_[target].one != kUnknown) return known_[target].one;
    uint32_t to = ~0u;
    if (has_empty(target)) {
      to = state_of({&target, 1});
    } else {
      fuel_.burn(1);
      if (speaks(target)) to = state_of_single(target);
    }
    return known_[target].one = to;
  }

  // Most are in order, or nearly; and where they are, so most often is what they lead to.
  static void sort_by_byte(std::vector<SymbolEdge>& symbols) {
    const auto by_byte = [](const SymbolEdge& a, const SymbolEdge& b) { return a.lo < b.lo; };
    constexpr size_t kFew = 32;
    if (symbols.size() > kFew) {
      if (!std::ranges::is_sorted(symbols, by_byte)) std::ranges::stable_sort(symbols, by_byte);
      return;
    }
    for (size_t i = 1; i < symbols.size(); ++i) {
      const SymbolEdge moved = symbols[i];
      size_t at = i;
      for (; at > 0 && by_byte(moved, symbols[at - 1]); --at) symbols[at] = symbols[at - 1];
      symbols[at] = moved;
    }
  }
  static void sort_states(Subset& states) {
    if (!std::ranges::is_sorted(states)) std::ranges::sort(states);
  }

  void add_edge(uint16_t lo, uint16_t hi, uint32_t to) {
    if (make_room(out_->edges, 1, out_->held)) out_->edges.push_back({lo, hi, base_ + to});
  }

  // Neighbours with one target are one edge: the last one of a node's, which begin at `first`, and the one before it.
  void join(size_t first) {
    std::vector<SymbolEdge>& edges = out_->edges;
    const size_t n = edges.size();
    if (n < first + 2 || edges[n - 2].to != edges[n - 1].to || edges[n - 2].hi + 1 != edges[n - 1].lo) return;
    edges[n - 2].hi = edges[n - 1].hi;
    edges.pop_back();
  }

  bool by_subsets(int64_t limit) {
    close(std::span<const uint32_t>(&kStart, 1));
    add_subset(closed_, false);
    for (uint32_t from = 0; from < subsets_.size(); ++from) {
      const size_t first = out_->edges.size();
      if (!make_room(out_->first_edge, 1, out_->held) || !make_room(out_->first_call, 1, out_->held)) return false;
      out_->first_edge.push_back(static_cast<uint32_t>(first));
      out_->first_call.push_back(static_cast<uint32_t>(out_->calls.size()));
      symbols_.clear();
      calls_.clear();
      for (uint32_t s : members(from)) {
        const auto n_before = static_cast<ptrdiff_t>(symbols_.size());
        for (uint32_t e = in_->states_[s].edges; e != 0;) {
          const RuleMachine::Edge& edge = in_->edges_[e - 1];
          if (edge.rule == RuleMachine::kNoRule) {
            if (!make_room(symbols_, 1, held_)) return false;
            symbols_.push_back({edge.lo, edge.hi, edge.to});
          } else {
            if (!make_room(calls_, 1, held_)) return false;
            calls_.push_back({edge.rule, edge.to});
          }
          e = edge.next;
        }
        std::reverse(symbols_.begin() + n_before, symbols_.end());  // as they were added
      }
      if (!fuel_.burn(static_cast<int64_t>(symbols_.size() + calls_.size()) * 3 + 4)) return false;
      sort_by_byte(symbols_);
      bool is_disjoint = true;
      for (size_t i = 1; i < symbols_.size(); ++i) is_disjoint &= symbols_[i - 1].hi < symbols_[i].lo;
      if (is_disjoint) {
        if (!fuel_.burn(static_cast<int64_t>(symbols_.size()) * 3)) return false;
        for (const SymbolEdge& e : symbols_) {
          const uint32_t to = state_of_one(e.to);
          if (to == ~0u) continue;
          add_edge(e.lo, e.hi, to);
          join(first);
        }
      } else if (!add_pieces(first, limit)) {
        return false;
      }
      std::sort(calls_.begin(), calls_.end());
      for (size_t i = 0; i < calls_.size();) {
        targets_.clear();
        const uint32_t rule = calls_[i].first;
        for (; i < calls_.size() && calls_[i].first == rule; ++i) targets_.push_back(calls_[i].second);
        targets_.erase(std::unique(targets_.begin(), targets_.end()), targets_.end());
        lead(limit, [&](uint32_t to) {
          if (make_room(out_->calls, 1, out_->held)) out_->calls.push_back({rule, base_ + to});
        });
      }
      if (fuel_.is_empty()) return false;
    }
    return true;
  }

  // Pieces of bytes within which none of symbols_ begins or ends.
  bool add_pieces(size_t first, int64_t limit) {
    open_.clear();
    size_t next = 0;
    for (uint32_t at = 0; next < symbols_.size() || !open_.empty();) {
      if (open_.empty()) at = symbols_[next].lo;
      for (; next < symbols_.size() && symbols_[next].lo <= at; ++next) open_.push_back(symbols_[next]);
      uint32_t end = next < symbols_.size() ? symbols_[next].lo - 1u : ~0u;
      targets_.clear();
      for (const SymbolEdge& e : open_) end = std::min<uint32_t>(end, e.hi), targets_.push_back(e.to);
      if (!fuel_.burn(static_cast<int64_t>(targets_.size()) + 2)) return false;
      sort_states(targets_);
      targets_.erase(std::unique(targets_.begin(), targets_.end()), targets_.end());
      const size_t n_before = out_->edges.size();
      lead(limit, [&](uint32_t to) { add_edge(static_cast<uint16_t>(at), static_cast<uint16_t>(end), to); });
      if (out_->edges.size() == n_before + 1) join(first);
      std::erase_if(open_, [&](const SymbolEdge& e) { return e.hi == end; });
      at = end + 1;
    }
    return true;
  }

  static constexpr uint32_t kStart = 0;
  static constexpr uint32_t kUnknown = ~0u - 1;
  static constexpr size_t kSlotsKept = 1024;
  struct Slot {
    uint32_t hash = 0, subset = 0;  // 1 + its number
  };
  struct Known {  // of a state of the machine: the subsets of its closure, and of it alone
    uint32_t mark = 0, one = kUnknown, single = kUnknown;
  };

  Fuel& fuel_;
  Held held_;  // by the lists of this
  const RuleMachine* in_ = nullptr;
  FinishedRules* out_ = nullptr;
  uint32_t base_ = 0;  // the node of subset 0
  std::vector<Known> known_;
  uint32_t epoch_ = 0;
  std::vector<uint32_t> members_, subsets_;  // of the subsets, and where those of each end
  std::vector<Slot> slots_;                  // of subsets of several states: open addressing
  size_t n_slots_used_ = 0;
  Subset closed_, targets_;
  std::vector<SymbolEdge> symbols_, open_;
  std::vector<std::pair<uint32_t, uint32_t>> calls_;
};

RuleFinisher::RuleFinisher(Fuel& fuel) : subsets_(std::make_unique<Subsets>(fuel)) {}
RuleFinisher::~RuleFinisher() = default;
bool RuleFinisher::finish(const RuleMachine& machine, FinishedRules& done) { return subsets_->run(machine, done); }

}  // namespace ibid::grammar
