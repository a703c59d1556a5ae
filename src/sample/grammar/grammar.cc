#include "sample/grammar/grammar.h"

#include <algorithm>

namespace ibid::grammar {

// Out of fuel, all new expressions are one, and so are all new rules: compiling them returns an error.
ExprId Grammar::add(Expr expr) {
  const bool has_fuel = fuel_.burn(8 + static_cast<int64_t>(expr.parts.size())) && make_room(exprs_, 1, held_) &&
                        held_.add(block(expr.parts.capacity() * sizeof(ExprId)));
  if (!has_fuel && !exprs_.empty()) return 0;
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Grammar::text(std::string_view bytes) {
  if (bytes.empty()) return empty();
  Graph chain;
  const auto n_bytes = static_cast<int64_t>(bytes.size());
  if (!fuel_.burn(n_bytes * 3) || !fuel_.has_room(block(bytes.size() * sizeof(GraphEdge)))) return nothing();
  chain.n_states = static_cast<uint32_t>(bytes.size()) + 1;
  chain.edges.reserve(bytes.size());
  for (uint32_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    chain.edges.push_back({i, i + 1, byte, byte});
  }
  chain.accepting = {chain.n_states - 1};
  return graph(std::move(chain));
}

ExprId Grammar::code_points(const CodeSet& set) {
  Held held(fuel_);
  Graph machine;
  const auto add_edge = [&](const GraphEdge& edge) {
    if (make_room(machine.edges, 1, held)) machine.edges.push_back(edge);
  };
  machine.n_states = 2;
  machine.accepting = {1};
  // Pieces with the same bytes after the first share their states.
  std::vector<std::pair<uint64_t, uint32_t>> tails;
  for (CodeRange range : set.ranges()) {
    if (!fuel_.burn(24)) return nothing();
    each_utf8_piece(range.lo, range.hi, [&](const ByteRange* piece, int n) {
      uint32_t to = 1;
      uint64_t key = 0;
      for (int i = n - 1; i > 0; --i) {
        key = key << 16 | static_cast<uint64_t>(piece[i].lo) << 8 | piece[i].hi;
        auto known = std::find_if(tails.begin(), tails.end(), [&](auto& tail) { return tail.first == key; });
        if (known != tails.end()) {
          to = known->second;
          continue;
        }
        add_edge({machine.n_states, to, piece[i].lo, piece[i].hi});
        to = machine.n_states++;
        if (tails.size() < 64) tails.push_back({key, to});
      }
      add_edge({0, to, piece[0].lo, piece[0].hi});
    });
  }
  return graph(std::move(machine));
}

ExprId Grammar::tokens(std::vector<TokenRange> ranges) {
  if (!fuel_.burn(static_cast<int64_t>(ranges.size())) || !make_room(token_sets_, 1, held_) ||
      !held_.add(block(ranges.capacity() * sizeof(TokenRange))))
    return nothing();
  token_sets_.push_back(std::move(ranges));
  return add({ExprKind::kTokens, 0, 0, 0, 0, static_cast<uint32_t>(token_sets_.size() - 1)});
}

ExprId Grammar::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  return add({ExprKind::kSequence, 0, 0, 0, 0, 0, std::move(parts)});
}

ExprId Grammar::choice(std::vector<ExprId> parts) {
  if (parts.empty()) return nothing();
  if (parts.size() == 1) return parts[0];
  return add({ExprKind::kChoice, 0, 0, 0, 0, 0, std::move(parts)});
}

ExprId Grammar::repeat(ExprId what, uint32_t min, uint32_t max) {
  return add({ExprKind::kRepeat, 0, 0, min, max, what});
}

ExprId Grammar::graph(Graph graph) {
  if (!fuel_.burn(static_cast<int64_t>(graph.edges.size()) * 3) || !make_room(graphs_, 1, held_) ||
      !held_.add(block(graph.edges.capacity() * sizeof(GraphEdge)) +
                 block(graph.accepting.capacity() * sizeof(uint32_t))))
    return nothing();
  graphs_.push_back(std::move(graph));
  return add({ExprKind::kGraph, 0, 0, 0, 0, static_cast<uint32_t>(graphs_.size() - 1)});
}

RuleId Grammar::add_rule(std::string name) {
  const bool has_fuel = fuel_.burn(16 + static_cast<int64_t>(name.size()) / 16) && make_room(rules_, 1, held_) &&
                        held_.add(block_of(name));
  if (!has_fuel && !rules_.empty()) return 0;
  rules_.push_back({std::move(name)});
  return static_cast<RuleId>(rules_.size() - 1);
}

Status Grammar::check_depth() const {
  constexpr uint16_t kMost = 2000;
  Held held(fuel_);
  if (!fuel_.burn(static_cast<int64_t>(exprs_.size())) || !held.add(block(exprs_.size() * sizeof kMost)))
    return out_of_fuel();
  std::vector<uint16_t> depths(exprs_.size(), 0);
  for (size_t i = 0; i < exprs_.size(); ++i) {  // parts come before what they are parts of
    const Expr& e = exprs_[i];
    uint16_t depth = 0;
    const auto has = [&](ExprId part) { depth = std::max<uint16_t>(depth, static_cast<uint16_t>(depths[part] + 1)); };
    if (e.kind == ExprKind::kRepeat) has(e.a);
    for (const ExprId part : e.parts) has(part);
    if (e.kind == ExprKind::kGraph)
      for (const GraphEdge& edge : graphs_[e.a].edges)
        if (edge.expr != kNoExpr) has(edge.expr);
    if (depth > kMost) return invalid("The grammar is nested too deeply.");
    depths[i] = depth;
  }
  return {};
}

}  // namespace ibid::grammar
