// Grammar: rules over bytes, the common form of all languages that users write (JSON Schema, regular expressions, GBNF,
// Lark, ...). Scannerless: the terminals are bytes and, where a grammar names them, tokens; other tokens count only by
// the bytes that they spell, so their boundaries do not matter. Any context-free grammar is allowed: ambiguous,
// left-recursive, with empty rules.
//
// Built by one thread; expressions are nodes of a graph without cycles, named by ids, and may be shared. Rules may call
// each other freely. Its memory is charged to its fuel, which outlives it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "sample/grammar/code_set.h"
#include "sample/grammar/fuel.h"

namespace ibid::grammar {

using ExprId = uint32_t;
using RuleId = uint32_t;
inline constexpr uint32_t kNoExpr = ~0u;
inline constexpr uint32_t kUnbounded = ~0u;  // repeat(e, n, kUnbounded): n times or more
inline constexpr uint32_t kMaxRepeat = 1u << 24;
inline constexpr int32_t kLastToken = 0x3FFFFFFF;  // a grammar may name only smaller ids

enum class ExprKind : uint8_t { kEmpty, kNothing, kBytes, kTokens, kSequence, kChoice, kRepeat, kCall, kGraph };

// An automaton within an expression. An edge reads one byte of [lo, hi], or a text of `expr`.
struct GraphEdge {
  uint32_t from = 0, to = 0;
  uint8_t lo = 0, hi = 0;
  ExprId expr = kNoExpr;
};
struct Graph {  // begins in state 0
  uint32_t n_states = 0;
  std::vector<GraphEdge> edges;
  std::vector<uint32_t> accepting;
};

struct Expr {
  ExprKind kind = ExprKind::kEmpty;
  uint8_t lo = 0, hi = 0;          // kBytes: one byte of this range
  uint32_t min = 0, max = 0;       // kRepeat
  uint32_t a = 0;                  // kRepeat: what; kCall: the rule; kTokens, kGraph: which
  std::vector<ExprId> parts = {};  // kSequence, kChoice
};

struct TokenRange {
  int32_t lo = 0, hi = 0;  // both are members
};

class Grammar {
 public:
  explicit Grammar(Fuel& fuel) : fuel_(fuel), held_(fuel) {}

  ExprId empty() { return add({ExprKind::kEmpty}); }
  ExprId nothing() { return add({ExprKind::kNothing}); }
  ExprId byte(uint8_t lo, uint8_t hi) { return add({ExprKind::kBytes, lo, hi}); }
  ExprId text(std::string_view bytes);
  ExprId code_points(const CodeSet& set);  // one of them, as UTF-8
  // One token out of the ranges: itself, not what it spells.
  ExprId tokens(std::vector<TokenRange> ranges);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId choice(std::vector<ExprId> parts);
  ExprId repeat(ExprId what, uint32_t min, uint32_t max);
  ExprId optional(ExprId what) { return repeat(what, 0, 1); }
  ExprId call(RuleId rule) { return add({ExprKind::kCall, 0, 0, 0, 0, rule}); }
  ExprId graph(Graph graph);

  RuleId add_rule(std::string name);
  RuleId rule(std::string name, ExprId body) {
    const RuleId made = add_rule(std::move(name));
    define(made, body);
    return made;
  }
  void define(RuleId rule, ExprId body) { rules_[rule].body = body; }
  void set_root(RuleId rule) { root_ = rule; }

  struct Rule {
    std::string name;
    ExprId body = kNoExpr;  // without: derives nothing
  };
  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<Expr>& exprs() const { return exprs_; }
  const std::vector<Graph>& graphs() const { return graphs_; }
  const std::vector<std::vector<TokenRange>>& token_sets() const { return token_sets_; }
  RuleId root() const { return root_; }
  // Requested constraints that the grammar does not enforce, as sentences, the first few.
  static constexpr size_t kMaxNotes = 32;
  const std::vector<std::string>& notes() const { return notes_; }
  void add_note(std::string note) {
    if (notes_.size() < kMaxNotes) notes_.push_back(std::move(note));
  }
  Fuel& fuel() const { return fuel_; }
  // Whether its expressions are nested no deeper than recursive functions over them may go; repeats need no brackets.
  Status check_depth() const;

 private:
  ExprId add(Expr expr);

  Fuel& fuel_;
  Held held_;  // by all that follows
  std::vector<Expr> exprs_;
  std::vector<Rule> rules_;
  std::vector<Graph> graphs_;
  std::vector<std::vector<TokenRange>> token_sets_;
  RuleId root_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace ibid::grammar
