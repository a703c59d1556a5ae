#include "sample/grammar/schema_names.h"

#include <algorithm>
#include <string>

#include "sample/grammar/code_dfa.h"
#include "sample/grammar/schema_value.h"

namespace ibid::grammar {

OtherNames::OtherNames(Grammar& grammar) : g_(grammar) {
  const Graph all = CodeDfa::all().spelled(CodeDfa::Spelling::kJson, grammar.fuel());
  edges_.resize(all.n_states);
  for (const GraphEdge& edge : all.edges) edges_[edge.from].push_back(edge);
  // Deterministic but for backslashes: where they lead is one state.
  for (size_t state = 0; state < edges_.size(); ++state) {  // which grow
    std::ranges::sort(edges_[state], {}, [](const GraphEdge& edge) { return edge.lo; });
    const std::vector<GraphEdge> own = std::move(edges_[state]);
    std::vector<GraphEdge> merged;
    for (const GraphEdge& edge : own) {
      if (merged.empty() || merged.back().lo != edge.lo) {
        merged.push_back(edge);
        continue;
      }
      std::vector<GraphEdge> both = edges_[merged.back().to];
      both.insert(both.end(), edges_[edge.to].begin(), edges_[edge.to].end());
      merged.back().to = static_cast<uint32_t>(edges_.size());
      edges_.push_back(std::move(both));
    }
    edges_[state] = std::move(merged);
  }
  accepts_.resize(edges_.size());
  for (const uint32_t state : all.accepting) accepts_[state] = true;
}

ExprId OtherNames::none_of(std::span<const std::string_view> texts) {
  Held held(g_.fuel());
  std::vector<std::string> spelled;
  for (const std::string_view text : texts) {
    const bool has_fuel = g_.fuel().burn(static_cast<int64_t>(text.size()) + 8) && make_room(spelled, 1, held) &&
                          g_.fuel().has_room(block(6 * text.size() + 1));
    if (!has_fuel) return g_.nothing();
    spelled.push_back(json_spelling(text));
    held.add(block_of(spelled.back()));
  }
  std::sort(spelled.begin(), spelled.end());
  // States of any string, then the nodes of a trie of the texts, each with the state that its text leads to: what
  // leaves the trie goes on as any string.
  struct Node {
    size_t begin, end, depth;
    uint32_t state;
  };
  const auto base = static_cast<uint32_t>(edges_.size());
  Graph graph;
  const auto add_edge = [&](const GraphEdge& edge) {
    if (make_room(graph.edges, 1, held)) graph.edges.push_back(edge);
  };
  for (uint32_t state = 0; state < base; ++state) {
    for (const GraphEdge& edge : edges_[state]) add_edge({state + 1, edge.to + 1, edge.lo, edge.hi});
    if (accepts_[state]) graph.accepting.push_back(state + 1);
  }
  const auto id_of = [&](size_t node) { return node == 0 ? 0 : base + static_cast<uint32_t>(node); };
  std::vector<Node> nodes = {{0, spelled.size(), 0, 0}};
  for (size_t n = 0; n < nodes.size(); ++n) {
    auto [at, end, depth, state] = nodes[n];
    if (!g_.fuel().burn(24) || !make_room(graph.accepting, 1, held)) return g_.nothing();
    const bool is_text = at < end && spelled[at].size() == depth;
    while (at < end && spelled[at].size() == depth) ++at;
    if (accepts_[state] && !is_text) graph.accepting.push_back(id_of(n));
    for (const GraphEdge& edge : edges_[state]) {
      uint32_t lo = edge.lo;  // up to here, without it
      for (; at < end && static_cast<uint8_t>(spelled[at][depth]) <= edge.hi;) {
        const auto byte = static_cast<uint8_t>(spelled[at][depth]);
        const size_t begin = at;
        while (at < end && static_cast<uint8_t>(spelled[at][depth]) == byte) ++at;
        if (byte < edge.lo) continue;  // of no string
        if (lo < byte) add_edge({id_of(n), edge.to + 1, static_cast<uint8_t>(lo), static_cast<uint8_t>(byte - 1)});
        add_edge({id_of(n), id_of(nodes.size()), byte, byte});
        if (!make_room(nodes, 1, held)) return g_.nothing();
        nodes.push_back({begin, at, depth + 1, edge.to});
        lo = byte + 1u;
      }
      if (lo <= edge.hi) add_edge({id_of(n), edge.to + 1, static_cast<uint8_t>(lo), edge.hi});
    }
  }
  graph.n_states = base + static_cast<uint32_t>(nodes.size());
  if (g_.fuel().is_empty()) return g_.nothing();
  held = Held();  // the grammar has it
  return g_.graph(std::move(graph));
}

}  // namespace ibid::grammar
