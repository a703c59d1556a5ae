// What minLength and maxLength leave of a pattern: texts of a CodeDfa that have so many code points.
#include "sample/grammar/code_dfa.h"

namespace ibid::grammar {

CodeDfa::Lengths CodeDfa::lengths(Fuel& fuel) const {
  const uint32_t n = n_states();
  Lengths made{std::vector<uint32_t>(n, kGone), std::vector<uint32_t>(n, kGone)};
  if (!fuel.burn(static_cast<int64_t>(edges_.size()) * 4 + n * 4)) return made;
  if (!fuel.has_room(int64_t{n} * 36 + static_cast<int64_t>(edges_.size()) * 4)) return made;
  std::vector<uint32_t> first(n + 1, 0), back(edges_.size()), n_ahead(n, 0), ahead;
  for (const Edge& e : edges_) ++first[e.to + 1];
  for (uint32_t s = 0; s < n; ++s) first[s + 1] += first[s];
  std::vector<uint32_t> at(first.begin(), first.end() - 1);
  for (uint32_t s = 0; s < n; ++s) {
    n_ahead[s] = static_cast<uint32_t>(edges(s).size());
    for (const Edge& e : edges(s)) back[at[e.to]++] = s;
    if (accepts_[s]) made.least[s] = 0, ahead.push_back(s);
  }
  for (size_t i = 0; i < ahead.size(); ++i) {
    for (uint32_t e = first[ahead[i]]; e < first[ahead[i] + 1]; ++e) {
      if (made.least[back[e]] != kGone) continue;
      made.least[back[e]] = made.least[ahead[i]] + 1;
      ahead.push_back(back[e]);
    }
  }
  // Those after which there is no loop, from the ends on.
  std::vector<uint32_t> farthest(n, 0);
  ahead.clear();
  for (uint32_t s = 0; s < n; ++s)
    if (n_ahead[s] == 0) ahead.push_back(s);
  for (size_t i = 0; i < ahead.size(); ++i) {
    made.most[ahead[i]] = farthest[ahead[i]];
    for (uint32_t e = first[ahead[i]]; e < first[ahead[i] + 1]; ++e) {
      farthest[back[e]] = std::max(farthest[back[e]], farthest[ahead[i]] + 1);
      if (--n_ahead[back[e]] == 0) ahead.push_back(back[e]);
    }
  }
  return made;
}

// The product of the states with how many code points were read, as far as that matters: where all that may follow fits
// there is nothing to count, and where one state is all that follows a repeat counts for it.
Result<CodeDfa::Bounded> CodeDfa::bounded(uint32_t min, uint32_t max, Fuel& fuel) const {
  constexpr uint32_t kFree = kGone;
  Held held(fuel);
  const Lengths far = lengths(fuel);
  if (!held.add(int64_t{n_states()} * 8)) return out_of_fuel();
  Bounded made;
  made.texts = CodeDfa(fuel);
  std::unordered_map<uint64_t, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> queue;  // a state, and how many were read
  auto id_of = [&](uint32_t state, uint32_t read) {
    if (read != kFree && read + uint64_t{far.least[state]} >= min && far.most[state] != kGone &&
        (max == kUnbounded || read + uint64_t{far.most[state]} <= max))
      read = kFree;
    if (read != kFree && max == kUnbounded) read = std::min(read, min);
    if (read == min && max == kUnbounded) read = kFree;
    auto [at, is_new] = ids.try_emplace(uint64_t{state} << 32 | read, static_cast<uint32_t>(queue.size()));
    if (is_new && held.add(80) && grammar::make_room(queue, 1, held)) queue.push_back({state, read});
    return at->second;
  };
  if (max != kUnbounded && far.least[0] > max) return made;
  id_of(0, 0);
  for (size_t from = 0; from < queue.size(); ++from) {
    const auto [state, read] = queue[from];
    const std::span<const Edge> out = edges(state);
    if (!fuel.burn(24 + 2 * static_cast<int64_t>(out.size())) || !made.texts.make_room(out.size()))
      return out_of_fuel();
    const bool is_loop = accepts(state) && std::ranges::all_of(out, [s = state](const Edge& e) { return e.to == s; });
    if (read != kFree && is_loop && !out.empty()) {
      if (!grammar::make_room(made.tails, 1, held)) return out_of_fuel();
      made.texts.begin_state(false);
      const uint32_t least = read < min ? min - read : 0;
      made.tails.push_back({static_cast<uint32_t>(from), state, least, max == kUnbounded ? kUnbounded : max - read});
      continue;
    }
    made.texts.begin_state(accepts(state) && (read == kFree || read >= min));
    if (read != kFree && read == max) continue;
    for (const Edge& e : out) {
      if (read != kFree && max != kUnbounded && read + 1 + uint64_t{far.least[e.to]} > max) continue;
      made.texts.add_edge(e.lo, e.hi, id_of(e.to, read == kFree ? kFree : read + 1));
    }
  }
  return made;
}

Result<ExprId> CodeDfa::spell_bounded(Grammar& grammar, Spelling spelling, uint32_t min, uint32_t max) const {
  ASSIGN_OR_RETURN(const Bounded bound, bounded(min, max, grammar.fuel()));
  if (bound.tails.empty()) {
    if (bound.texts.is_empty()) return kNoExpr;
    return bound.texts.spell(grammar, spelling);
  }
  Graph graph = bound.texts.spelled(spelling, grammar.fuel());
  const uint32_t end = graph.n_states++;
  std::vector<std::pair<uint32_t, ExprId>> ones;  // one code point of each state's loop
  for (const Bounded::Tail& tail : bound.tails) {
    auto known = std::ranges::find(ones, tail.loop, &std::pair<uint32_t, ExprId>::first);
    if (known == ones.end()) {
      CodeDfa one;
      one.begin_state(false);
      for (const Edge& e : edges(tail.loop)) one.add_edge(e.lo, e.hi, 1);
      one.begin_state(true);
      ones.push_back({tail.loop, one.spell(grammar, spelling)});
      known = ones.end() - 1;
    }
    graph.edges.push_back({tail.state, end, 0, 0, grammar.repeat(known->second, tail.min, tail.max)});
  }
  graph.accepting.push_back(end);
  return grammar.graph(std::move(graph));
}

}  // namespace ibid::grammar
