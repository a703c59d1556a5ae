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

// What one rule needs is cleared for the next, and kept.
class RuleFinisher::Subsets {
 public:
  explicit Subsets(Fuel& fuel) : fuel_(fuel) {}

  bool run(RuleMachine& machine) {
    in_ = &machine;
    out_.clear(), accepts_.clear(), subsets_.clear(), members_.clear();
    slots_.assign(slots_.size(), {});
    n_slots_used_ = 0;
    if (slots_.size() > kSlotsKept) slots_.resize(kSlotsKept);
    if (!fuel_.burn(static_cast<int64_t>(in_->edges.size()) * 4 + in_->n_states * 2)) return false;
    first_.assign(in_->n_states + 1, 0);
    for (const MachineEdge& e : in_->edges) ++first_[e.from + 1];
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    sorted_.resize(in_->edges.size());
    next_.assign(first_.begin(), first_.end() - 1);
    for (const MachineEdge& e : in_->edges) sorted_[next_[e.from]++] = e;
    mark_.assign(in_->n_states, 0);
    ones_.assign(in_->n_states, kUnknown);
    singles_.assign(in_->n_states, kUnknown);
    kinds_.assign(in_->n_states, 0);
    for (const MachineEdge& e : in_->edges) kinds_[e.from] |= e.kind == MachineEdge::kEmpty ? kHasEmpty : kSpeaks;
    kinds_[1] |= kSpeaks;
    const int64_t limit = 4 * static_cast<int64_t>(in_->n_states) + 256;
    if (!by_subsets(limit)) return false;
    in_->n_states = static_cast<uint32_t>(accepts_.size());
    in_->edges.assign(out_.begin(), out_.end());
    in_->accepts.assign(accepts_.begin(), accepts_.end());
    return true;
  }

 private:
  void close(Subset& states) {
    if (++epoch_ == 0) std::fill(mark_.begin(), mark_.end(), 0), epoch_ = 1;
    size_t n = 0;
    for (uint32_t s : states)
      if (mark_[s] != epoch_) mark_[s] = epoch_, states[n++] = s;
    states.resize(n);
    for (size_t i = 0; i < states.size(); ++i) {
      for (uint32_t e = first_[states[i]]; e < first_[states[i] + 1]; ++e) {
        if (sorted_[e].kind != MachineEdge::kEmpty || mark_[sorted_[e].to] == epoch_) continue;
        mark_[sorted_[e].to] = epoch_;
        states.push_back(sorted_[e].to);
      }
    }
    fuel_.burn(static_cast<int64_t>(states.size()));
    // States with nothing but empty edges say nothing; the accepting one does.
    std::erase_if(states, [&](uint32_t s) { return (kinds_[s] & kSpeaks) == 0; });
    std::sort(states.begin(), states.end());
  }

  uint32_t state_of(const Subset& targets) {
    closed_ = targets;
    close(closed_);
    if (closed_.empty()) return ~0u;
    if (closed_.size() == 1) return state_of_single(closed_[0]);
    if (2 * (n_slots_used_ + 1) > slots_.size()) grow_slots();
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
  void grow_slots() {
    std::vector<Slot> old(std::max<size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      size_t at = slot.hash & (slots_.size() - 1);
      while (slots_[at].subset != 0) at = (at + 1) & (slots_.size() - 1);
      if (slot.subset != 0) slots_[at] = slot;
    }
  }
  // Of the subset that has one state alone: most are such.
  uint32_t state_of_single(uint32_t state) {
    if (singles_[state] == kUnknown) singles_[state] = add_state({&state, 1});
    return singles_[state];
  }
  uint32_t add_state(std::span<const uint32_t> states) {
    fuel_.burn(static_cast<int64_t>(states.size()) + 16);
    accepts_.push_back(std::binary_search(states.begin(), states.end(), 1u));
    members_.insert(members_.end(), states.begin(), states.end());
    subsets_.push_back(static_cast<uint32_t>(members_.size()));
    return static_cast<uint32_t>(subsets_.size() - 1);
  }
  // Until one more is added.
  std::span<const uint32_t> members(uint32_t subset) const {
    const uint32_t begin = subset == 0 ? 0 : subsets_[subset - 1];
    return {members_.data() + begin, subsets_[subset] - begin};
  }

  // Above `limit` subsets each new one is taken apart into its members: what follows of them is one state each, so all
  // ends within n_states more.
  void edge_to(uint32_t from, MachineEdge edge, const Subset& targets, int64_t limit) {
    edge.from = from;
    if (targets.size() > 1 && static_cast<int64_t>(accepts_.size()) <= limit) {
      edge.to = state_of(targets);
      if (edge.to != ~0u) out_.push_back(edge);
      return;
    }
    for (uint32_t target : targets) {
      edge.to = state_of_one(target);
      if (edge.to != ~0u) out_.push_back(edge);
    }
  }

  // Most edges lead where others have led.
  uint32_t state_of_one(uint32_t target) {
    if (ones_[target] != kUnknown) return ones_[target];
    if ((kinds_[target] & kHasEmpty) != 0) return ones_[target] = state_of({target});
    fuel_.burn(1);
    return ones_[target] = (kinds_[target] & kSpeaks) != 0 ? state_of_single(target) : ~0u;
  }

  // Most are in order, or nearly.
  static void sort_by_byte(std::vector<MachineEdge>& symbols) {
    const auto by_byte = [](const MachineEdge& a, const MachineEdge& b) { return a.lo < b.lo; };
    constexpr size_t kFew = 32;
    if (symbols.size() > kFew) return std::sort(symbols.begin(), symbols.end(), by_byte);
    for (size_t i = 1; i < symbols.size(); ++i) {
      const MachineEdge moved = symbols[i];
      size_t at = i;
      for (; at > 0 && by_byte(moved, symbols[at - 1]); --at) symbols[at] = symbols[at - 1];
      symbols[at] = moved;
    }
  }

  bool by_subsets(int64_t limit) {
    Subset start = {0};
    close(start);
    members_ = start;
    subsets_.push_back(static_cast<uint32_t>(start.size()));
    accepts_.push_back(0);
    Subset targets;
    std::vector<MachineEdge> symbols, open;
    std::vector<std::pair<uint32_t, uint32_t>> calls;
    // Neighbours with one target are one edge.
    auto join = [&](size_t n) {
      if (n > 0 && out_.size() == n + 1 && out_[n - 1].from == out_[n].from &&
          out_[n - 1].kind == MachineEdge::kSymbol && out_[n - 1].to == out_[n].to &&
          out_[n - 1].hi + 1 == out_[n].lo) {
        out_[n - 1].hi = out_[n].hi;
        out_.pop_back();
      }
    };
    auto emit = [&](uint32_t from, uint16_t lo, uint16_t hi) {
      const size_t n = out_.size();
      edge_to(from, {0, 0, MachineEdge::kSymbol, lo, hi}, targets, limit);
      join(n);
    };
    auto emit_one = [&](uint32_t from, const MachineEdge& e) {
      const uint32_t to = state_of_one(e.to);
      if (to == ~0u) return;
      out_.push_back({from, to, MachineEdge::kSymbol, e.lo, e.hi});
      join(out_.size() - 1);
    };
    out_.reserve(in_->edges.size());
    for (uint32_t from = 0; from < subsets_.size(); ++from) {
      symbols.clear();
      calls.clear();
      for (uint32_t s : members(from)) {
        for (uint32_t e = first_[s]; e < first_[s + 1]; ++e) {
          if (sorted_[e].kind == MachineEdge::kSymbol) symbols.push_back(sorted_[e]);
          if (sorted_[e].kind == MachineEdge::kCall) calls.push_back({sorted_[e].rule, sorted_[e].to});
        }
      }
      if (!fuel_.burn(static_cast<int64_t>(symbols.size() + calls.size()) * 3 + 4)) return false;
      sort_by_byte(symbols);
      bool is_disjoint = true;
      for (size_t i = 1; i < symbols.size(); ++i) is_disjoint &= symbols[i - 1].hi < symbols[i].lo;
      if (is_disjoint) {
        if (!fuel_.burn(static_cast<int64_t>(symbols.size()) * 3)) return false;
        for (const MachineEdge& e : symbols) emit_one(from, e);
        symbols.clear();
      }
      // Pieces of bytes within which no edge begins or ends.
      open.clear();
      size_t next = 0;
      for (uint32_t at = 0; next < symbols.size() || !open.empty();) {
        if (open.empty()) at = symbols[next].lo;
        for (; next < symbols.size() && symbols[next].lo <= at; ++next) open.push_back(symbols[next]);
        uint32_t end = next < symbols.size() ? symbols[next].lo - 1u : ~0u;
        targets.clear();
        for (const MachineEdge& e : open) end = std::min<uint32_t>(end, e.hi), targets.push_back(e.to);
        if (!fuel_.burn(static_cast<int64_t>(targets.size()) + 2)) return false;
        std::sort(targets.begin(), targets.end());
        targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
        emit(from, static_cast<uint16_t>(at), static_cast<uint16_t>(end));
        std::erase_if(open, [&](const MachineEdge& e) { return e.hi == end; });
        at = end + 1;
      }
      std::sort(calls.begin(), calls.end());
      for (size_t i = 0; i < calls.size();) {
        targets.clear();
        const uint32_t rule = calls[i].first;
        for (; i < calls.size() && calls[i].first == rule; ++i) targets.push_back(calls[i].second);
        targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
        edge_to(from, {0, 0, MachineEdge::kCall, 0, 0, rule}, targets, limit);
      }
      if (fuel_.is_empty()) return false;
    }
    return true;
  }

  static constexpr uint32_t kUnknown = ~0u - 1;
  enum Kind : uint8_t { kHasEmpty = 1, kSpeaks = 2 };

  static constexpr size_t kSlotsKept = 1024;
  struct Slot {
    uint32_t hash = 0, subset = 0;  // 1 + its number
  };

  RuleMachine* in_ = nullptr;
  Fuel& fuel_;
  std::vector<uint32_t> first_, next_;
  std::vector<MachineEdge> sorted_, out_;
  std::vector<uint32_t> mark_, ones_, singles_;  // per state of the machine; of its closure, of the subset of it alone
  std::vector<uint8_t> kinds_;
  uint32_t epoch_ = 0;
  std::vector<uint8_t> accepts_;
  std::vector<uint32_t> members_, subsets_;  // of the subsets, and where those of each end
  std::vector<Slot> slots_;                  // of subsets of several states: open addressing
  size_t n_slots_used_ = 0;
  Subset closed_;
};

RuleFinisher::RuleFinisher(Fuel& fuel) : subsets_(std::make_unique<Subsets>(fuel)) {}
RuleFinisher::~RuleFinisher() = default;
bool RuleFinisher::finish(RuleMachine& machine) { return subsets_->run(machine); }

}  // namespace ibid::grammar
