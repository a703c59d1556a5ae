// Texts of a grammar by how they begin: those of which a beginning leads along an automaton to its end. What
// context-free and regular sets have in common (Bar-Hillel, Perles and Shamir 1961, Zeitschrift fuer Phonetik 14), and,
// where the beginning is left out, Brzozowski's derivative (1964, JACM 11(4), for expressions), by rules for each
// place.
#pragma once

#include <span>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

struct Lead {
  struct Edge {
    uint32_t to = 0;
    uint8_t lo = 0, hi = 0;
  };
  std::vector<std::vector<Edge>> places;
  uint32_t end = 0;  // which has no edges: whatever follows is free
};

// Of the texts of the root, for each of the places `from`, those of which a beginning of at least a byte leads from
// there to the end; whole, or only what is after it. Tokens that the grammar names are in no beginning.
enum class LeadIs : uint8_t { kKept, kLeftOut };
std::vector<ExprId> beginning_with(const Lead& lead, std::span<const uint32_t> from, LeadIs lead_is, Grammar& grammar);

}  // namespace ibid::grammar
