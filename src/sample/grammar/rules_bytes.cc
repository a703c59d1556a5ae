#include "sample/grammar/rules_bytes.h"

#include <algorithm>

namespace ibid::grammar {
namespace {

constexpr uint64_t kVersion = 1;

class Writer {
 public:
  // LEB128
  void number(uint64_t n) {
    for (; n >= 128; n >>= 7) bytes.push_back(static_cast<char>(n | 128));
    bytes.push_back(static_cast<char>(n));
  }
  // kNoExpr is 0.
  void expr(ExprId id) { number(static_cast<uint64_t>(id + 1)); }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  // At most `most`; else, and after the end, nothing more is read.
  uint64_t number(uint64_t most) {
    uint64_t n = 0;
    for (int shift = 0; shift < 63 && is_ok_; shift += 7) {
      if (at_ == bytes_.size()) break;
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      n |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte >= 128) continue;
      if (n <= most) return n;
      break;
    }
    is_ok_ = false;
    return 0;
  }
  uint32_t number32(uint64_t most = ~0u) { return static_cast<uint32_t>(number(most)); }
  // How many there are of what takes a byte at least.
  uint32_t count() { return number32(bytes_.size() - at_); }
  // One that has been read before.
  ExprId expr(uint32_t n_read) { return number32(n_read) - 1; }
  void fail() { is_ok_ = false; }
  bool is_ok() const { return is_ok_; }
  bool is_at_end() const { return at_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  bool is_ok_ = true;
};

Graph read_graph(Reader& in, uint32_t n_exprs, Fuel& fuel) {
  Graph graph;
  graph.n_states = in.number32();
  if (graph.n_states == 0) in.fail();
  if (!in.is_ok() || !fuel.burn(graph.n_states)) return graph;
  const uint32_t n_edges = in.count();
  for (uint32_t i = 0; i < n_edges && in.is_ok(); ++i) {
    GraphEdge edge;
    edge.from = in.number32(graph.n_states - 1);
    edge.to = in.number32(graph.n_states - 1);
    edge.expr = in.expr(n_exprs);
    if (edge.expr == kNoExpr)
      edge.lo = static_cast<uint8_t>(in.number(255)), edge.hi = static_cast<uint8_t>(in.number(255));
    graph.edges.push_back(edge);
  }
  const uint32_t n_accepting = in.count();
  for (uint32_t i = 0; i < n_accepting && in.is_ok(); ++i) graph.accepting.push_back(in.number32(graph.n_states - 1));
  return graph;
}

std::vector<TokenRange> read_tokens(Reader& in) {
  std::vector<TokenRange> ranges;
  const uint32_t n = in.count();
  for (uint32_t i = 0; i < n && in.is_ok(); ++i) {
    TokenRange range;
    range.lo = static_cast<int32_t>(in.number(INT32_MAX - 1));
    range.hi = static_cast<int32_t>(in.number(INT32_MAX - 1));
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace

std::string write_rules(const Grammar& grammar) {
  Writer out;
  out.number(kVersion);
  out.number(grammar.rules().size());
  out.number(grammar.root());
  out.number(grammar.exprs().size());
  for (const Expr& e : grammar.exprs()) {
    out.number(static_cast<uint64_t>(e.kind));
    switch (e.kind) {
      case ExprKind::kEmpty:
      case ExprKind::kNothing:
        break;
      case ExprKind::kBytes:
        out.number(e.lo), out.number(e.hi);
        break;
      case ExprKind::kSequence:
      case ExprKind::kChoice:
        out.number(e.parts.size());
        for (const ExprId part : e.parts) out.expr(part);
        break;
      case ExprKind::kRepeat:
        out.expr(e.a), out.number(e.min), out.number(e.max);
        break;
      case ExprKind::kCall:
        out.number(e.a);
        break;
      case ExprKind::kTokens: {
        const std::vector<TokenRange>& ranges = grammar.token_sets()[e.a];
        out.number(ranges.size());
        for (const TokenRange r : ranges)
          out.number(static_cast<uint64_t>(std::max(r.lo, 0))), out.number(static_cast<uint64_t>(std::max(r.hi, 0)));
        break;
      }
      case ExprKind::kGraph: {
        const Graph& graph = grammar.graphs()[e.a];
        out.number(graph.n_states);
        out.number(graph.edges.size());
        for (const GraphEdge& edge : graph.edges) {
          out.number(edge.from), out.number(edge.to), out.expr(edge.expr);
          if (edge.expr == kNoExpr) out.number(edge.lo), out.number(edge.hi);
        }
        out.number(graph.accepting.size());
        for (const uint32_t state : graph.accepting) out.number(state);
        break;
      }
    }
  }
  for (const Grammar::Rule& rule : grammar.rules()) out.expr(rule.body);
  return std::move(out.bytes);
}

Status read_rules(std::string_view bytes, Grammar& grammar) {
  Reader in(bytes);
  const auto broken = [] { return invalid("These are no rules as this version writes them."); };
  if (in.number(kVersion) != kVersion) return broken();
  const uint32_t n_rules = in.count();
  if (n_rules == 0) return broken();
  const uint64_t root = in.number(n_rules - uint64_t{1});
  for (uint32_t r = 0; r < n_rules && in.is_ok() && !grammar.fuel().is_empty(); ++r) grammar.add_rule("rule");
  const uint32_t n_exprs = in.count();
  for (uint32_t i = 0; i < n_exprs && in.is_ok() && !grammar.fuel().is_empty(); ++i) {
    ExprId made = kNoExpr;
    const auto kind = static_cast<ExprKind>(in.number(static_cast<uint64_t>(ExprKind::kGraph)));
    switch (kind) {
      case ExprKind::kEmpty:
        made = grammar.empty();
        break;
      case ExprKind::kNothing:
        made = grammar.nothing();
        break;
      case ExprKind::kBytes: {
        const auto lo = static_cast<uint8_t>(in.number(255));
        made = grammar.byte(lo, static_cast<uint8_t>(in.number(255)));
        break;
      }
      case ExprKind::kSequence:
      case ExprKind::kChoice: {
        std::vector<ExprId> parts(in.count());
        for (ExprId& part : parts) part = in.expr(i);
        if (parts.size() == 1 || std::ranges::find(parts, kNoExpr) != parts.end()) return broken();
        if (kind == ExprKind::kChoice && parts.empty()) return broken();
        made = kind == ExprKind::kChoice ? grammar.choice(std::move(parts)) : grammar.sequence(std::move(parts));
        break;
      }
      case ExprKind::kRepeat: {
        const ExprId what = in.expr(i);
        const uint32_t min = in.number32(kMaxRepeat), max = in.number32();
        if (what == kNoExpr || (max != kUnbounded && max > kMaxRepeat)) return broken();
        made = grammar.repeat(what, min, max);
        break;
      }
      case ExprKind::kCall:
        made = grammar.call(in.number32(n_rules - uint64_t{1}));
        break;
      case ExprKind::kTokens:
        made = grammar.tokens(read_tokens(in));
        break;
      case ExprKind::kGraph:
        made = grammar.graph(read_graph(in, i, grammar.fuel()));
        break;
    }
    if (grammar.fuel().is_empty()) break;
    if (!in.is_ok() || made != i) return broken();
  }
  for (uint32_t r = 0; r < n_rules && in.is_ok() && !grammar.fuel().is_empty(); ++r)
    grammar.define(r, in.expr(n_exprs));
  if (grammar.fuel().is_empty()) return out_of_fuel();
  if (!in.is_ok() || !in.is_at_end()) return broken();
  grammar.set_root(static_cast<RuleId>(root));
  return {};
}

}  // namespace ibid::grammar
