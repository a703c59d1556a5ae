// Regex: an expression's tree, and the automaton of what it or a part of it matches.
#pragma once

#include <string_view>
#include <vector>

#include "sample/grammar/code_dfa.h"

namespace ibid::grammar {

struct Regex {
  struct Node {
    enum Kind : uint8_t { kEmpty, kSet, kSequence, kChoice, kRepeat, kBegin, kEnd } kind = kEmpty;
    uint32_t set = 0, min = 0, max = 0;
    std::vector<uint32_t> parts = {};
  };

  explicit Regex(Fuel& fuel) : sets(fuel), fuel_(&fuel), held_(fuel) {}  // which outlives it
  uint32_t add(Node node);                                               // out of fuel: some node
  uint32_t sequence(std::vector<uint32_t> parts) { return add({Node::kSequence, 0, 0, 0, std::move(parts)}); }

  std::vector<Node> nodes;  // parts come before what they are parts of
  CodeSets sets;
  std::vector<uint32_t> excluded;  // what (?!...) at the begin rules out: one, or none
  std::vector<uint32_t> groups;    // that capture, as they open
  uint32_t root = 0;

 private:
  Fuel* fuel_;
  Held held_;
};

Result<Regex> parse_regex(std::string_view text, Fuel& fuel);

// The texts that a node matches; with anything before it, or after it, where these are open.
Result<CodeDfa> regex_dfa(const Regex& regex, uint32_t node, bool open_begin, bool open_end, Fuel& fuel);

}  // namespace ibid::grammar
