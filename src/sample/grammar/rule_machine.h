// RuleMachine: the body of one rule on its way from an expression to an automaton. First with empty edges (Thompson
// 1968), then without, deterministic by subsets (Rabin and Scott 1959) unless that grows beyond a small multiple.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sample/grammar/fuel.h"

namespace ibid::grammar {

struct MachineEdge {
  enum Kind : uint8_t { kEmpty, kSymbol, kCall };
  uint32_t from = 0, to = 0;
  Kind kind = kEmpty;
  uint16_t lo = 0, hi = 0;  // symbols
  uint32_t rule = 0;
};

// State 0 is the first. In what finish() gives no edge leads to it, it does not accept (a rule's empty text is its
// callers' business), and there are no empty edges.
struct RuleMachine {
  uint32_t n_states = 2;
  std::vector<MachineEdge> edges;  // finished: ascending by state
  std::vector<uint8_t> accepts;    // finished

  uint32_t add_state() { return n_states++; }
};

// Finishes rules one after the other, with the same memory.
class RuleFinisher {
 public:
  explicit RuleFinisher(Fuel& fuel);  // which outlives it
  ~RuleFinisher();
  // `machine` accepts in state 1. False without fuel.
  bool finish(RuleMachine& machine);

 private:
  class Subsets;
  std::unique_ptr<Subsets> subsets_;
};

}  // namespace ibid::grammar
