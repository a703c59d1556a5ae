#include "sample/grammar/beginning.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

namespace ibid::grammar {
namespace {

class Beginning {
 public:
  Beginning(const Lead& lead, LeadIs lead_is, Grammar& g)
      : lead_(lead), is_kept_(lead_is == LeadIs::kKept), n_(lead.places.size()), g_(g), held_(g.fuel()) {}

  std::vector<ExprId> of_root(std::span<const uint32_t> from) {
    // Where rules may end along the lead, to a fixpoint: each round sees what the one before has found.
    const ExprId root = g_.call(g_.root());
    do {
      has_grown_ = false;
      ++round_;
      for (const uint32_t place : from) ends(root, place);
      for (auto it = calls_.begin(); it != calls_.end() && !g_.fuel().is_empty(); ++it) {
        const Places& found = ends(g_.rules()[it->first.first].body, it->first.second);
        if (found != it->second) it->second = found, has_grown_ = true;
      }
    } while (has_grown_ && !g_.fuel().is_empty());
    std::vector<ExprId> out;
    for (const uint32_t place : from) out.push_back(rest(root, place));
    for (; !tasks_.empty() && !g_.fuel().is_empty(); tasks_.pop_front()) {
      const Task task = tasks_.front();
      const ExprId body = g_.rules()[task.of].body;
      g_.define(task.made, task.to == kRest ? rest(body, task.from) : within(body, task.from, task.to));
    }
    return out;
  }

 private:
  using Places = std::vector<bool>;  // of the lead; its end: that it comes there within the expression
  using Key = std::pair<ExprId, uint32_t>;
  static constexpr uint32_t kRest = ~0u;
  static constexpr int64_t kBytesPerEntry = 112;  // of a map

  struct Known {
    Places places;
    uint32_t round = 0;
  };
  // An expression is a graph: from one of its states a byte or an expression leads to another.
  struct Move {
    uint32_t to = 0;
    uint8_t lo = 0, hi = 0;
    ExprId expr = kNoExpr;
  };
  // Where one may stand within an expression and the lead at once, and how one came there.
  struct Step {
    uint32_t from = 0, to = 0;  // in `at`; `to` is the expression's state where the lead ends
    bool ends_lead = false;
    uint8_t lo = 0, hi = 0;
    ExprId expr = kNoExpr;
  };
  struct Walk {
    Held held;
    std::vector<std::pair<uint32_t, uint32_t>> at;  // state, place
    std::vector<Step> steps;
  };
  struct Task {  // a rule yet to be written
    RuleId made, of;
    uint32_t from, to;
  };

  const Places& ends(ExprId id, uint32_t place) {
    Known& known = ends_[{id, place}];
    if (known.round == round_) return known.places;
    if (known.round == 0) held_.add(kBytesPerEntry + block(n_ / 8 + 8));
    known.round = round_;
    if (g_.fuel().is_empty()) return no_places_;
    known.places.resize(n_);
    if (id == kNoExpr || !g_.fuel().burn(static_cast<int64_t>(n_) / 32 + 16)) return known.places;
    const Expr& e = g_.exprs()[id];
    switch (e.kind) {
      case ExprKind::kEmpty:
        known.places[place] = true;
        break;
      case ExprKind::kNothing:
      case ExprKind::kTokens:
        break;
      case ExprKind::kCall: {
        const auto [call, is_new] = calls_.try_emplace(Key{e.a, place}, Places(n_));
        if (is_new) held_.add(kBytesPerEntry + block(n_ / 8 + 8));
        has_grown_ = has_grown_ || is_new;
        known.places = call->second;
        break;
      }
      default: {
        const Walk walked = walk(id, place);
        for (const auto& [state, at] : walked.at)
          if (is_final(e, state)) known.places[at] = true;
        for (const Step& step : walked.steps)
          if (step.ends_lead) known.places[lead_.end] = true;
      }
    }
    return known.places;
  }

  Walk walk(ExprId id, uint32_t place) {
    const Expr& e = g_.exprs()[id];
    Walk out{Held(g_.fuel()), {}, {}};
    const auto add_step = [&](const Step& step) {
      if (make_room(out.steps, 1, out.held)) out.steps.push_back(step);
    };
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> ids;
    const auto id_of = [&](uint32_t state, uint32_t at) {
      const auto [known, is_new] = ids.try_emplace({state, at}, static_cast<uint32_t>(out.at.size()));
      if (is_new && out.held.add(kBytesPerEntry) && make_room(out.at, 1, out.held)) out.at.push_back({state, at});
      return known->second;
    };
    id_of(0, place);
    for (uint32_t from = 0; from < out.at.size() && g_.fuel().burn(12); ++from) {
      const auto [state, at] = out.at[from];
      each_move(e, state, [&](const Move& move) {
        if (move.expr == kNoExpr) {
          for (const Lead::Edge& edge : lead_.places[at]) {
            const uint8_t lo = std::max(move.lo, edge.lo), hi = std::min(move.hi, edge.hi);
            if (lo > hi) continue;
            const bool is_end = edge.to == lead_.end;
            add_step({from, is_end ? move.to : id_of(move.to, edge.to), is_end, lo, hi});
          }
          g_.fuel().burn(static_cast<int64_t>(lead_.places[at].size()));
          return;
        }
        const Places& to = ends(move.expr, at);
        g_.fuel().burn(static_cast<int64_t>(n_) / 32 + 4);
        for (uint32_t next = 0; next < n_; ++next) {
          if (!to[next]) continue;
          const bool is_end = next == lead_.end;
          add_step({from, is_end ? move.to : id_of(move.to, next), is_end, 0, 0, move.expr});
        }
      });
    }
    return out;
  }

  // States of a sequence: parts done; of a repeat: repeats done, as far as they count; of others: before and after.
  template <typename Found>
  void each_move(const Expr& e, uint32_t state, Found&& found) {
    switch (e.kind) {
      case ExprKind::kBytes:
        if (state == 0) found(Move{1, e.lo, e.hi});
        return;
      case ExprKind::kSequence:
        if (state < e.parts.size()) found(Move{state + 1, 0, 0, e.parts[state]});
        return;
      case ExprKind::kChoice:
        for (size_t i = 0; state == 0 && i < e.parts.size(); ++i) found(Move{1, 0, 0, e.parts[i]});
        return;
      case ExprKind::kRepeat:
        if (e.max == kUnbounded || state < e.max)
          found(Move{e.max == kUnbounded ? std::min(state + 1, e.min) : state + 1, 0, 0, e.a});
        return;
      case ExprKind::kGraph: {
        const std::vector<GraphState>& states = states_of(e.a);
        if (state >= states.size()) return;
        for (const Move& move : states[state].moves) found(move);
        return;
      }
      default:
        return;
    }
  }

  struct GraphState {
    std::vector<Move> moves;
    bool is_final = false;
  };
  // None without fuel.
  const std::vector<GraphState>& states_of(uint32_t id) {
    std::vector<GraphState>& states = graphs_[id];
    if (!states.empty()) return states;
    const Graph& graph = g_.graphs()[id];
    const int64_t bytes = int64_t{graph.n_states} * static_cast<int64_t>(sizeof(GraphState));
    if (!g_.fuel().has_room(bytes)) return states;
    held_.add(bytes);
    states.resize(graph.n_states);
    if (!g_.fuel().burn(4 * static_cast<int64_t>(graph.n_states + graph.edges.size()))) return states;
    held_.add(kBytesPerEntry + static_cast<int64_t>(graph.edges.size()) * 3 * static_cast<int64_t>(sizeof(Move)));
    for (const GraphEdge& edge : graph.edges) states[edge.from].moves.push_back({edge.to, edge.lo, edge.hi, edge.expr});
    for (const uint32_t state : graph.accepting) states[state].is_final = true;
    return states;
  }

  bool is_final(const Expr& e, uint32_t state) {
    if (e.kind == ExprKind::kGraph) {
      const std::vector<GraphState>& states = states_of(e.a);
      return state < states.size() && states[state].is_final;
    }
    if (e.kind == ExprKind::kSequence) return state == e.parts.size();
    return e.kind == ExprKind::kRepeat ? state >= e.min : state == 1;
  }

  // What an expression may be after one of its states; of a graph it is a copy, which the caller has.
  ExprId following(const Expr& e, uint32_t state) {
    if (e.kind == ExprKind::kSequence)
      return g_.sequence({e.parts.begin() + static_cast<ptrdiff_t>(state), e.parts.end()});
    if (e.kind == ExprKind::kRepeat)
      return g_.repeat(e.a, e.min > state ? e.min - state : 0, e.max == kUnbounded ? kUnbounded : e.max - state);
    return g_.empty();
  }

  RuleId rule_of(RuleId of, uint32_t from, uint32_t to) {
    const auto [known, is_new] = rules_.try_emplace({of, from, to}, 0);
    if (is_new) {
      held_.add(kBytesPerEntry + 2 * static_cast<int64_t>(sizeof(Task)));
      known->second = g_.add_rule(g_.rules()[of].name + (to == kRest ? " from its beginning on" : " as a beginning"));
      tasks_.push_back({known->second, of, from, to});
    }
    return known->second;
  }

  void add_read(const Step& step, uint32_t from, uint32_t to, Graph& graph) {
    graph.edges.push_back({from, to, step.lo, step.hi, is_kept_ ? kNoExpr : g_.empty()});
  }

  // The texts of an expression that lead from one place to another before the end.
  ExprId within(ExprId id, uint32_t from, uint32_t to) {
    if (!is_kept_) return g_.empty();
    if (id == kNoExpr || g_.fuel().is_empty()) return g_.nothing();
    const Expr e = g_.exprs()[id];
    Held held(g_.fuel());
    if (!held.add(block(e.parts.size() * sizeof(ExprId)))) return g_.nothing();
    if (e.kind == ExprKind::kEmpty) return id;
    if (e.kind == ExprKind::kCall) return g_.call(rule_of(e.a, from, to));
    if (const auto known = within_.find({id, from, to}); known != within_.end()) return known->second;
    const Walk walked = walk(id, from);
    if (!held.add(block(walked.steps.size() * sizeof(GraphEdge)))) return g_.nothing();
    Graph graph;
    graph.edges.reserve(walked.steps.size());
    graph.n_states = static_cast<uint32_t>(walked.at.size());
    for (const Step& step : walked.steps) {
      if (step.ends_lead) continue;
      if (step.expr == kNoExpr) {
        add_read(step, step.from, step.to, graph);
      } else {
        const ExprId part = within(step.expr, walked.at[step.from].second, walked.at[step.to].second);
        graph.edges.push_back({step.from, step.to, 0, 0, part});
      }
    }
    for (uint32_t i = 0; i < graph.n_states; ++i)
      if (walked.at[i].second == to && is_final(e, walked.at[i].first)) graph.accepting.push_back(i);
    held_.add(kBytesPerEntry);
    return within_[{id, from, to}] = g_.graph(std::move(graph));
  }

  // The texts of an expression within which the lead comes from a place to its end.
  ExprId rest(ExprId id, uint32_t place) {
    if (id == kNoExpr || g_.fuel().is_empty()) return g_.nothing();
    const Expr e = g_.exprs()[id];
    Held held(g_.fuel());
    if (!held.add(block(e.parts.size() * sizeof(ExprId)))) return g_.nothing();
    if (e.kind == ExprKind::kCall) return g_.call(rule_of(e.a, place, kRest));
    if (e.kind == ExprKind::kEmpty || e.kind == ExprKind::kNothing || e.kind == ExprKind::kTokens) return g_.nothing();
    if (const auto known = rests_.find({id, place}); known != rests_.end()) return known->second;
    const Walk walked = walk(id, place);
    const bool is_graph = e.kind == ExprKind::kGraph;
    const auto end = static_cast<uint32_t>(walked.at.size());  // and after it a graph's copy
    if (!held.add(block(walked.steps.size() * sizeof(GraphEdge)))) return g_.nothing();
    Graph graph;
    graph.edges.reserve(walked.steps.size());
    graph.n_states = end + 1;
    graph.accepting = {end};
    if (is_graph) {
      const auto n_edges = static_cast<int64_t>(g_.graphs()[e.a].edges.size());
      if (!g_.fuel().burn(static_cast<int64_t>(g_.graphs()[e.a].n_states))) return g_.nothing();
      if (!held.add(2 * n_edges * static_cast<int64_t>(sizeof(GraphEdge)))) return g_.nothing();
      const Graph copy = g_.graphs()[e.a];
      graph.edges.reserve(copy.edges.size() + walked.steps.size());
      graph.n_states = end + copy.n_states;
      for (const GraphEdge& edge : copy.edges)
        graph.edges.push_back({end + edge.from, end + edge.to, edge.lo, edge.hi, edge.expr});
      graph.accepting.clear();
      for (const uint32_t state : copy.accepting) graph.accepting.push_back(end + state);
    }
    for (const Step& step : walked.steps) {
      const uint32_t at = walked.at[step.from].second;
      const uint32_t to = !step.ends_lead ? step.to : is_graph ? end + step.to : end;
      if (step.expr == kNoExpr) {
        add_read(step, step.from, to, graph);
      } else {
        ExprId part = step.ends_lead ? rest(step.expr, at) : within(step.expr, at, walked.at[step.to].second);
        if (step.ends_lead && !is_graph) part = g_.sequence({part, following(e, step.to)});
        graph.edges.push_back({step.from, to, 0, 0, part});
      }
    }
    held_.add(kBytesPerEntry);
    return rests_[{id, place}] = g_.graph(std::move(graph));
  }

  const Lead& lead_;
  const bool is_kept_;
  const size_t n_;
  Grammar& g_;
  Held held_;  // by what follows
  const Places no_places_ = Places(n_);
  std::map<Key, Known> ends_;
  std::map<Key, Places> calls_;
  std::map<uint32_t, std::vector<GraphState>> graphs_;
  std::map<std::tuple<RuleId, uint32_t, uint32_t>, RuleId> rules_;
  std::map<std::tuple<ExprId, uint32_t, uint32_t>, ExprId> within_;
  std::map<Key, ExprId> rests_;
  std::deque<Task> tasks_;
  uint32_t round_ = 0;
  bool has_grown_ = false;
};

}  // namespace

std::vector<ExprId> beginning_with(const Lead& lead, std::span<const uint32_t> from, LeadIs lead_is, Grammar& grammar) {
  return Beginning(lead, lead_is, grammar).of_root(from);
}

}  // namespace ibid::grammar
