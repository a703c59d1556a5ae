// RuleMachine: turns the body of one rule from an expression into an automaton. First with empty edges (Thompson
// 1968), then without, deterministic by subsets (Rabin and Scott 1959) unless that grows beyond a small multiple.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sample/grammar/automaton.h"
#include "sample/grammar/fuel.h"

namespace ibid::grammar {

// State 0 is the first, state 1 accepts. To be cleared for the next rule, with the same memory.
class RuleMachine {
 public:
  explicit RuleMachine(Fuel& fuel) : held_(fuel) { clear(); }
  void clear() { states_.assign(2, {}), edges_.clear(), empties_.clear(); }
  // For `n` more edges and as many states. False: too many for a rule, or out of fuel.
  bool make_room(size_t n);
  uint32_t add_state() { return add_states(1); }
  uint32_t add_states(uint32_t n);  // the first of them; out of fuel it is the machine's
  void add_empty(uint32_t from, uint32_t to) {
    if (!grammar::make_room(empties_, 1, held_)) return;
    empties_.push_back({to, states_[from].empties});
    states_[from].empties = static_cast<uint32_t>(empties_.size());
  }
  void add_symbols(uint32_t from, uint32_t to, uint16_t lo, uint16_t hi) { add({to, 0, kNoRule, lo, hi}, from); }
  void add_call(uint32_t from, uint32_t to, uint32_t rule) { add({to, 0, rule, 0, 0}, from); }

 private:
  friend class RuleFinisher;
  static constexpr uint32_t kNoRule = ~0u;
  // Lists: `next` and what a state has are 1 + a place, 0: the end.
  struct Empty {
    uint32_t to = 0, next = 0;
  };
  struct Edge {
    uint32_t to = 0, next = 0;
    uint32_t rule = kNoRule;  // that is called; else symbols are read
    uint16_t lo = 0, hi = 0;
  };
  struct State {
    uint32_t empties = 0, edges = 0;
  };
  void add(Edge edge, uint32_t from) {
    if (!grammar::make_room(edges_, 1, held_)) return;
    edge.next = states_[from].edges;
    edges_.push_back(edge);
    states_[from].edges = static_cast<uint32_t>(edges_.size());
  }

  Held held_;
  std::vector<State> states_;
  std::vector<Empty> empties_;
  std::vector<Edge> edges_;
};

// Rules that are finished, one after the other: what an automaton has. Of each rule the first node is its start: no
// edge leads to it, and it does not accept (a rule's empty text is its callers' business).
struct FinishedRules {
  std::vector<uint32_t> first_edge, first_call;  // per node; without the end
  std::vector<SymbolEdge> edges;                 // of a node ascending
  std::vector<CallEdge> calls;
  std::vector<uint8_t> accepts;  // per node, 0 or 1
  Held held = {};
};

// Finishes rules one after the other, with the same memory.
class RuleFinisher {
 public:
  explicit RuleFinisher(Fuel& fuel);  // which outlives it
  ~RuleFinisher();
  // Adds what the machine reads to `done`. False without fuel.
  bool finish(const RuleMachine& machine, FinishedRules& done);

 private:
  class Subsets;
  std::unique_ptr<Subsets> subsets_;
};

}  // namespace ibid::grammar
