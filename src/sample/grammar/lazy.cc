#include "sample/grammar/lazy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sample/grammar/free_text.h"

namespace ibid::grammar {
namespace {

class Derivative {
 public:
  Derivative(std::string_view text, Grammar& g) : text_(text), n_(text.size()), g_(g) {}

  ExprId of_root() {
    // Where rules may end within the text, to a fixpoint: each round sees what the one before has found.
    const ExprId root = g_.call(g_.root());
    do {
      has_grown_ = false;
      ends(root, 0);
      for (auto it = ends_.begin(); it != ends_.end() && !g_.fuel().is_empty(); ++it) {
        Places found = ends(body(it->first.first), it->first.second);
        if (found != it->second) it->second = std::move(found), has_grown_ = true;
      }
    } while (has_grown_ && !g_.fuel().is_empty());
    return rest(root, 0);
  }

 private:
  using Places = std::vector<bool>;  // [n] of the text's places
  using Key = std::pair<RuleId, size_t>;

  ExprId body(RuleId rule) const { return g_.rules()[rule].body; }
  bool is_spent() { return !g_.fuel().burn(static_cast<int64_t>(n_) + 8); }

  // The places before the text's end to which the expression may lead from place i.
  Places ends(ExprId id, size_t i) {
    Places out(n_);
    if (id == kNoExpr || is_spent()) return out;
    const Expr e = g_.exprs()[id];
    switch (e.kind) {
      case ExprKind::kEmpty:
        out[i] = true;
        break;
      case ExprKind::kNothing:
      case ExprKind::kTokens:
        break;
      case ExprKind::kBytes:
        if (reads(e.lo, e.hi, i) && i + 1 < n_) out[i + 1] = true;
        break;
      case ExprKind::kSequence: {
        out[i] = true;
        for (const ExprId part : e.parts) out = ends_of_all(part, out);
        break;
      }
      case ExprKind::kChoice:
        for (const ExprId part : e.parts) add(ends(part, i), out);
        break;
      case ExprKind::kRepeat: {
        Places at(n_);
        at[i] = true;
        if (e.min == 0) out[i] = true;
        // Each turn that reads something comes further; one that reads nothing stands for those that must be.
        const bool is_nullable = ends(e.a, i)[i];
        for (size_t turn = 1; turn <= n_ && turn <= e.max; ++turn) {
          at = ends_of_all(e.a, at);
          if (turn >= e.min || is_nullable) add(at, out);
        }
        break;
      }
      case ExprKind::kCall: {
        const auto [known, is_new] = ends_.try_emplace(Key{e.a, i}, Places(n_));
        has_grown_ = has_grown_ || is_new;
        out = known->second;
        break;
      }
      case ExprKind::kGraph: {
        const Graph graph = g_.graphs()[e.a];
        const std::vector<Places> reached = walk(graph, i);
        for (const uint32_t state : graph.accepting) {
          for (size_t j = i; j < n_; ++j) out[j] = out[j] || reached[state][j];
        }
        break;
      }
    }
    return out;
  }

  // What the expression may still be, when it has read the text from place i on.
  ExprId rest(ExprId id, size_t i) {
    if (i == n_) return id;
    if (id == kNoExpr || is_spent()) return g_.nothing();
    const Expr e = g_.exprs()[id];
    switch (e.kind) {
      case ExprKind::kEmpty:
      case ExprKind::kNothing:
      case ExprKind::kTokens:
        return g_.nothing();
      case ExprKind::kBytes:
        return reads(e.lo, e.hi, i) && i + 1 == n_ ? g_.empty() : g_.nothing();
      case ExprKind::kSequence: {
        std::vector<ExprId> choices;
        Places at(n_);
        at[i] = true;
        for (size_t k = 0; k < e.parts.size(); ++k) {
          for (size_t j = i; j < n_; ++j) {
            if (!at[j]) continue;
            std::vector<ExprId> parts = {rest(e.parts[k], j)};
            parts.insert(parts.end(), e.parts.begin() + static_cast<ptrdiff_t>(k) + 1, e.parts.end());
            choices.push_back(g_.sequence(std::move(parts)));
          }
          at = ends_of_all(e.parts[k], at);
        }
        return g_.choice(std::move(choices));
      }
      case ExprKind::kChoice: {
        std::vector<ExprId> choices;
        for (const ExprId part : e.parts) choices.push_back(rest(part, i));
        return g_.choice(std::move(choices));
      }
      case ExprKind::kRepeat: {
        std::vector<ExprId> choices;
        Places at(n_);
        at[i] = true;
        const uint32_t min = ends(e.a, i)[i] ? 0 : e.min;
        for (size_t turn = 1; turn <= n_ && turn <= e.max; ++turn) {  // the one in which the text ends
          const auto n = static_cast<uint32_t>(turn);
          const ExprId more = g_.repeat(e.a, min > n ? min - n : 0, e.max == kUnbounded ? kUnbounded : e.max - n);
          for (size_t j = i; j < n_; ++j) {
            if (at[j]) choices.push_back(g_.sequence({rest(e.a, j), more}));
          }
          at = ends_of_all(e.a, at);
        }
        return g_.choice(std::move(choices));
      }
      case ExprKind::kCall: {
        const auto [known, is_new] = rules_.try_emplace(Key{e.a, i}, 0);
        if (is_new) {
          const RuleId made = g_.add_rule(g_.rules()[e.a].name + " behind its beginning");
          known->second = made;
          const ExprId left = rest(body(e.a), i);
          g_.define(made, left);
          return g_.call(made);
        }
        return g_.call(known->second);
      }
      case ExprKind::kGraph: {
        const Graph graph = g_.graphs()[e.a];
        const std::vector<Places> reached = walk(graph, i);
        Graph out;  // state 0, then the graph
        out.n_states = graph.n_states + 1;
        for (uint32_t state = 0; state < graph.n_states; ++state) {
          if (reached[state][n_]) out.edges.push_back({0, state + 1, 0, 0, g_.empty()});
        }
        for (const GraphEdge& edge : graph.edges) {
          out.edges.push_back({edge.from + 1, edge.to + 1, edge.lo, edge.hi, edge.expr});
          for (size_t j = i; j < n_ && edge.expr != kNoExpr; ++j) {
            if (reached[edge.from][j]) out.edges.push_back({0, edge.to + 1, 0, 0, rest(edge.expr, j)});
          }
        }
        for (const uint32_t state : graph.accepting) out.accepting.push_back(state + 1);
        return g_.graph(std::move(out));
      }
    }
    return g_.nothing();
  }

  // [state][place], the text's end too: where a walk from state 0 at place i has read the text up to it.
  std::vector<Places> walk(const Graph& graph, size_t i) {
    std::vector<Places> reached(graph.n_states, Places(n_ + 1));
    reached[0][i] = true;
    for (bool has_more = true; has_more;) {
      has_more = false;
      const auto reach = [&](uint32_t state, size_t place) {
        if (!reached[state][place]) reached[state][place] = has_more = true;
      };
      for (const GraphEdge& edge : graph.edges) {
        if (is_spent()) return reached;
        for (size_t j = i; j < n_; ++j) {
          if (!reached[edge.from][j]) continue;
          if (edge.expr == kNoExpr) {
            if (reads(edge.lo, edge.hi, j)) reach(edge.to, j + 1);
            continue;
          }
          const Places to = ends(edge.expr, j);
          for (size_t k = j; k < n_; ++k) {
            if (to[k]) reach(edge.to, k);
          }
        }
      }
    }
    return reached;
  }

  bool reads(uint8_t lo, uint8_t hi, size_t i) const {
    const auto byte = static_cast<uint8_t>(text_[i]);
    return lo <= byte && byte <= hi;
  }
  Places ends_of_all(ExprId id, const Places& from) {
    Places out(n_);
    for (size_t j = 0; j < n_; ++j) {
      if (from[j]) add(ends(id, j), out);
    }
    return out;
  }
  static void add(const Places& more, Places& to) {
    for (size_t j = 0; j < to.size(); ++j) to[j] = to[j] || more[j];
  }

  std::string_view text_;
  size_t n_;
  Grammar& g_;
  std::map<Key, Places> ends_;
  std::map<Key, RuleId> rules_;
  bool has_grown_ = false;
};

}  // namespace

ExprId behind(std::string_view text, Grammar& grammar) { return Derivative(text, grammar).of_root(); }

void wait_for(const std::vector<Trigger>& triggers, Grammar& grammar) {
  FreeText free{.stops_behind_first = true};
  FreeText before;  // a token
  std::vector<ExprId> choices;
  for (const Trigger& trigger : triggers) {
    if (trigger.token >= 0) continue;
    free.words.push_back({trigger.text, behind(trigger.text, grammar)});
    before.excluded.push_back(trigger.text);
  }
  choices.push_back(free_text(free, grammar));
  for (const Trigger& trigger : triggers) {
    if (trigger.token < 0) continue;
    choices.push_back(grammar.sequence(
        {free_text(before, grammar), grammar.tokens({{trigger.token, trigger.token}}), behind(trigger.text, grammar)}));
  }
  grammar.set_root(grammar.rule("lazy", grammar.choice(std::move(choices))));
}

}  // namespace ibid::grammar
