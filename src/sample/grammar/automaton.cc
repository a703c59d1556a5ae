#include "sample/grammar/automaton.h"

#include <algorithm>

namespace ibid::grammar {

const Counter& Automaton::counter(uint32_t node) const {
  auto after = std::upper_bound(counters_.begin(), counters_.end(), node,
                                [](uint32_t n, const Counter& c) { return n < c.base; });
  return *std::prev(after);
}

uint32_t Automaton::shortest(uint32_t node) const {
  if (!is_counter(node)) return shortest_[node];
  const Counter& c = counter(node);
  const uint32_t done = node - c.base;
  if (done >= c.min) return 0;
  const uint64_t rest =
      static_cast<uint64_t>(counter_shortest_[static_cast<size_t>(&c - counters_.data())]) * (c.min - done);
  return static_cast<uint32_t>(std::min<uint64_t>(rest, kNever - 1));
}

int32_t Automaton::token_class(TokenId token) const {
  for (size_t i = 0; i < token_classes_.size(); ++i)
    for (TokenRange r : token_classes_[i])
      if (r.lo <= raw(token) && raw(token) <= r.hi) return static_cast<int32_t>(i);
  return -1;
}

size_t Automaton::bytes() const {
  size_t of_tokens = token_classes_.capacity() * sizeof token_classes_[0];
  for (const auto& ranges : token_classes_) of_tokens += ranges.capacity() * sizeof(TokenRange);
  return sizeof *this + starts_.size() * 5 + (first_edge_.size() + first_call_.size() + shortest_.size()) * 4 +
         edges_.size() * sizeof(SymbolEdge) + calls_.size() * sizeof(CallEdge) + flags_.size() +
         counters_.size() * (sizeof(Counter) + sizeof counter_shortest_[0]) + class_of_.size() * 2 +
         symbol_of_.size() * 2 + of_tokens;
}

}  // namespace ibid::grammar
