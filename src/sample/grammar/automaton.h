// Automaton: a grammar as it runs. Each rule is an automaton over bytes, deterministic as far as that stays small, with
// edges that call other rules; counted repeats are counters and not copies. Immutable, for one vocabulary: it has only
// what the vocabulary's tokens can spell, so that from every node some tokens lead to an end.
//
// Symbols: a byte is itself; 256 + i is a token of class i (tokens that the grammar names; TokenClass).
// Nodes: [0, n_nodes) are written out; above them lie those of counters: base + i is "i repeats are done".
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

inline constexpr uint32_t kNever = 0x3FFFFFFF;  // no length

struct SymbolEdge {
  uint16_t lo = 0, hi = 0;
  uint32_t to = 0;
};
struct CallEdge {
  uint32_t rule = 0, to = 0;
};
// Repeats `body` min to max times; at least once. Nodes after `base + last` are not needed: the last one either ends
// the repeats, or repeats for ever.
struct Counter {
  uint32_t base = 0, min = 0, last = 0, body = 0, rule = 0;
  bool is_unbounded = false;
  uint32_t n_nodes() const { return last + 1; }
};

class Automaton {
 public:
  struct Options {
    std::bitset<256> bytes;  // the bytes that some token consists of; all others are out of reach
  };
  static Result<Automaton> compile(const Grammar& grammar, const Options& options);

  uint32_t root() const { return root_; }
  bool root_is_nullable() const { return root_is_nullable_; }
  uint32_t n_rules() const { return static_cast<uint32_t>(starts_.size()); }
  uint32_t n_nodes() const { return n_nodes_; }
  uint32_t start(uint32_t rule) const { return starts_[rule]; }
  bool is_counted_body(uint32_t rule) const { return is_body_[rule] != 0; }  // called by counters alone

  bool is_counter(uint32_t node) const { return node >= n_nodes_; }
  const Counter& counter(uint32_t node) const;
  // For written-out nodes:
  std::span<const SymbolEdge> edges(uint32_t node) const {
    return {edges_.data() + first_edge_[node], edges_.data() + first_edge_[node + 1]};
  }
  std::span<const CallEdge> calls(uint32_t node) const {
    return {calls_.data() + first_call_[node], calls_.data() + first_call_[node + 1]};
  }
  // For all nodes:
  bool accepts(uint32_t node) const {
    if (!is_counter(node)) return (flags_[node] & kAccepts) != 0;
    const Counter& c = counter(node);
    return node - c.base >= c.min;
  }
  // The node accepts and has no edges.
  bool only_accepts(uint32_t node) const {
    if (!is_counter(node)) return (flags_[node] & kOnlyAccepts) != 0;
    const Counter& c = counter(node);
    return node - c.base == c.last && !c.is_unbounded;
  }
  // The fewest symbols from here to an accepting node of the same rule.
  uint32_t shortest(uint32_t node) const;

  // Symbols that no edge distinguishes share a class.
  uint32_t n_classes() const { return n_classes_; }
  uint32_t class_of(uint32_t symbol) const { return class_of_[symbol]; }
  uint32_t symbol_of(uint32_t a_class) const { return symbol_of_[a_class]; }
  // The tokens of symbol 256 + i, as ranges.
  const std::vector<std::vector<TokenRange>>& token_classes() const { return token_classes_; }
  // -1: none.
  int32_t token_class(TokenId token) const;
  size_t bytes() const;

 private:
  friend class AutomatonBuilder;
  enum Flag : uint8_t { kAccepts = 1, kOnlyAccepts = 2 };

  uint32_t root_ = 0, n_nodes_ = 0, n_classes_ = 0;
  bool root_is_nullable_ = false;
  std::vector<uint32_t> starts_;  // per rule; a node of a counter where the rule is one
  std::vector<uint8_t> is_body_;
  std::vector<uint32_t> first_edge_, first_call_;
  std::vector<SymbolEdge> edges_;
  std::vector<CallEdge> calls_;
  std::vector<uint8_t> flags_;
  std::vector<uint32_t> shortest_;
  std::vector<Counter> counters_;           // ascending by base
  std::vector<uint32_t> counter_shortest_;  // of each: its body's shortest text
  std::vector<uint16_t> class_of_, symbol_of_;
  std::vector<std::vector<TokenRange>> token_classes_;
};

}  // namespace ibid::grammar
