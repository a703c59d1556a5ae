// From a grammar to its automaton: rules made deterministic one by one, counted repeats beside them, and the shortest
// way from each node to an end.
#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "sample/grammar/automaton.h"
#include "sample/grammar/rule_machine.h"
#include "sample/grammar/states.h"

namespace ibid::grammar {
namespace {

constexpr uint32_t kMaxCopies = 128;  // states that a repeat may be copied to; beyond, it is counted
constexpr uint32_t kLarge = 1u << 20;
constexpr uint64_t kMostNodes = 1ull << 31;  // that counters may count to, all together
constexpr size_t kMaxTokenClasses = 65'000;  // symbols have 16 bits
constexpr int64_t kBytesPerRule = 24;        // in the lists that have an entry for each

}  // namespace

class AutomatonBuilder {
 public:
  AutomatonBuilder(const Grammar& grammar, const Automaton::Options& options)
      : g_(grammar), options_(options), fuel_(grammar.fuel()), held_(fuel_), machine_(fuel_) {
    done_.held = Held(fuel_);
    for (uint32_t b = 256; b-- > 0;)
      run_end_[b] = static_cast<uint8_t>(b == 255 || options.bytes[b] != options.bytes[b + 1] ? b : run_end_[b + 1]);
  }

  Result<Automaton> run() {
    if (fuel_.is_empty()) return out_of_fuel();
    TRY(measure());
    class_tokens();
    if (fuel_.is_empty()) return out_of_fuel();
    if (a_.token_classes_.size() > kMaxTokenClasses) return invalid("The grammar distinguishes too many tokens.");
    n_rules_ = static_cast<uint32_t>(g_.rules().size());
    if (g_.root() >= n_rules_) return invalid("The grammar has no rules.");
    if (!fuel_.has_room(n_rules_ * kBytesPerRule)) return out_of_fuel();
    held_.add(n_rules_ * kBytesPerRule);
    bodies_.resize(n_rules_);
    for (uint32_t r = 0; r < n_rules_; ++r) bodies_[r] = g_.rules()[r].body;
    find_other_names();
    a_.starts_.assign(n_rules_, 0);
    counter_of_.assign(n_rules_, -1);
    a_.is_body_.assign(n_rules_, 0);
    if (!finish_rules()) return out_of_fuel();
    lay_out();
    if (!measure_nodes()) return out_of_fuel();
    if (a_.root_is_nullable_ == false && rule_shortest_[g_.root()] >= kNever)
      return invalid("No text that this model can write is in the grammar's language.");
    drop_dead();
    class_symbols();
    return std::move(a_);
  }

 private:
  bool finish_rules() {
    RuleFinisher finisher(fuel_);
    for (uint32_t r = 0; r < bodies_.size(); ++r) {  // which grow
      if (counter_of_[r] >= 0) continue;
      machine_.clear();
      if (bodies_[r] != kNoExpr) build(bodies_[r], 0, 1);
      a_.starts_[r] = static_cast<uint32_t>(done_.accepts.size());
      if (!finisher.finish(machine_, done_)) return false;
    }
    machine_ = RuleMachine(fuel_);  // what it held is free
    return !fuel_.is_empty();
  }

  // States and emptiness of each expression; the emptiness of rules by a fixpoint.
  Status measure() {
    const auto& exprs = g_.exprs();
    const auto n_exprs = static_cast<int64_t>(exprs.size()), n_rules = static_cast<int64_t>(g_.rules().size());
    TRY(g_.check_depth());
    Held of_open(fuel_);
    if (!fuel_.has_room(n_exprs * 5 + n_rules)) return out_of_fuel();
    held_.add(n_exprs * 5);
    size_.assign(exprs.size(), 0);
    nullable_.assign(exprs.size(), 0);
    rule_nullable_.assign(g_.rules().size(), 0);
    std::vector<uint32_t> open;  // those that rules which turn out to be empty may make so
    for (bool changed = true, first = true; changed; first = false) {
      changed = false;
      if (!fuel_.burn(static_cast<int64_t>(exprs.size()))) return out_of_fuel();
      for (const uint32_t i : open) nullable_[i] = nullable_[i] || is_nullable(exprs[i]);
      for (uint32_t i = 0; first && i < exprs.size(); ++i) {
        const Expr& e = exprs[i];
        nullable_[i] = is_nullable(e);
        if (!nullable_[i] && hangs_on_others(e)) {
          if (!make_room(open, 1, of_open)) return out_of_fuel();
          open.push_back(i);
        }
        size_[i] = std::min(states_of(e), kLarge);
      }
      for (uint32_t r = 0; r < rule_nullable_.size(); ++r) {
        const ExprId body = g_.rules()[r].body;
        if (rule_nullable_[r] || body == kNoExpr || !nullable_[body]) continue;
        rule_nullable_[r] = 1;
        changed = true;
      }
    }
    return {};
  }

  // Rules that consist of one call of another rule.
  void find_other_names() {
    really_.resize(n_rules_);
    for (uint32_t r = 0; r < n_rules_; ++r) {
      uint32_t at = r;
      for (int hops = 0; hops < 16 && bodies_[at] != kNoExpr; ++hops) {
        const Expr& body = g_.exprs()[bodies_[at]];
        if (body.kind != ExprKind::kCall) break;
        at = body.a;
      }
      really_[r] = at;
    }
  }

  bool hangs_on_others(const Expr& e) const {
    if (e.kind == ExprKind::kBytes || e.kind == ExprKind::kTokens || e.kind == ExprKind::kNothing) return false;
    if (e.kind != ExprKind::kGraph) return true;
    return std::ranges::any_of(g_.graphs()[e.a].edges, [](const GraphEdge& edge) { return edge.expr != kNoExpr; });
  }

  bool is_nullable(const Expr& e) const {
    switch (e.kind) {
      case ExprKind::kEmpty:
        return true;
      case ExprKind::kNothing:
      case ExprKind::kBytes:
      case ExprKind::kTokens:
        return false;
      case ExprKind::kSequence:
        return std::all_of(e.parts.begin(), e.parts.end(), [&](ExprId part) { return nullable_[part] != 0; });
      case ExprKind::kChoice:
        return std::any_of(e.parts.begin(), e.parts.end(), [&](ExprId part) { return nullable_[part] != 0; });
      case ExprKind::kRepeat:
        return e.min == 0 || nullable_[e.a];
      case ExprKind::kCall:
        return rule_nullable_[e.a];
      case ExprKind::kGraph:
        break;
    }
    const Graph& graph = g_.graphs()[e.a];  // by what is empty from state 0
    std::vector<uint8_t> reached(graph.n_states, 0);
    reached[0] = 1;
    bool has_empty = false;
    fuel_.burn(static_cast<int64_t>(graph.edges.size()) / 64);
    for (const GraphEdge& edge : graph.edges) has_empty |= edge.expr != kNoExpr && nullable_[edge.expr];
    for (bool changed = has_empty; changed;) {
      changed = false;
      fuel_.burn(static_cast<int64_t>(graph.edges.size()) / 4 + 1);
      for (const GraphEdge& edge : graph.edges)
        if (reached[edge.from] && !reached[edge.to] && edge.expr != kNoExpr && nullable_[edge.expr])
          reached[edge.to] = 1, changed = true;
      if (fuel_.is_empty()) break;
    }
    return std::any_of(graph.accepting.begin(), graph.accepting.end(), [&](uint32_t s) { return reached[s] != 0; });
  }

  uint32_t states_of(const Expr& e) const {
    uint64_t n = 1;
    for (ExprId part : e.parts) n += size_[part];
    if (e.kind == ExprKind::kGraph) n = g_.graphs()[e.a].n_states;
    if (e.kind == ExprKind::kRepeat) {
      const uint64_t times = e.max == kUnbounded ? e.min + 1ull : e.max;
      n = size_[e.a] * times > kMaxCopies ? 1 : size_[e.a] * times;
    }
    return static_cast<uint32_t>(std::min<uint64_t>(n, kLarge));
  }

  // Ascending, and none within another.
  void settle(std::vector<TokenRange>& ranges) {
    fuel_.burn(static_cast<int64_t>(ranges.size()) * 4);
    std::ranges::sort(ranges, {}, &TokenRange::lo);
    size_t n = 0;
    for (const TokenRange r : ranges) {
      if (n > 0 && r.lo <= ranges[n - 1].hi) {
        ranges[n - 1].hi = std::max(ranges[n - 1].hi, r.hi);
      } else {
        ranges[n++] = r;
      }
    }
    ranges.resize(n);
  }

  // The sets of tokens that the grammar names, cut so that each is a union of classes.
  void class_tokens() {
    Held held(fuel_);
    size_t n_ranges = 0;
    for (const auto& set : g_.token_sets()) n_ranges += set.size();
    const auto n_sets = static_cast<int64_t>(g_.token_sets().size());
    const int64_t of_cuts = block(2 * n_ranges * sizeof(int32_t)), of_sets = n_sets * (24 + 24 + 8 + 32);
    if (!fuel_.has_room(of_cuts + of_sets + block(n_ranges * sizeof(TokenRange)))) return;
    held.add(of_cuts + of_sets + block(n_ranges * sizeof(TokenRange)));
    std::vector<int32_t> cuts;
    cuts.reserve(2 * n_ranges);
    for (const auto& set : g_.token_sets())
      for (TokenRange r : set) cuts.push_back(r.lo), cuts.push_back(r.hi + 1);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::map<std::vector<uint32_t>, uint32_t> classes;
    classes_of_set_.resize(g_.token_sets().size());
    // For each set, its ranges ascending, and the first that does not end before the cut.
    std::vector<std::vector<TokenRange>> sets = g_.token_sets();
    std::vector<size_t> at_range(sets.size(), 0);
    for (auto& set : sets) settle(set);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      std::vector<uint32_t> in;
      for (uint32_t set = 0; set < sets.size(); ++set) {
        size_t& at_set = at_range[set];
        while (at_set < sets[set].size() && sets[set][at_set].hi < cuts[i]) ++at_set;
        if (at_set < sets[set].size() && sets[set][at_set].lo <= cuts[i]) in.push_back(set);
      }
      if (!fuel_.burn(n_sets)) return;
      if (in.empty()) continue;
      auto [at, is_new] = classes.try_emplace(in, static_cast<uint32_t>(a_.token_classes_.size()));
      if (is_new) {
        // The key and its node, what stands in the lists of its sets, and a list of ranges; all of which may double.
        held_.add(block(in.size() * sizeof(uint32_t)) + 96 + 12 * static_cast<int64_t>(in.size()) + 128);
        a_.token_classes_.emplace_back();
        for (uint32_t set : in) classes_of_set_[set].push_back(at->second);
      }
      held_.add(3 * sizeof(TokenRange));
      a_.token_classes_[at->second].push_back({cuts[i], cuts[i + 1] - 1});
    }
  }

  // Room for `n` more edges, or no fuel any more.
  bool room_for(size_t n) { return machine_.make_room(n) || fuel_.burn(fuel_.left() + 1); }

  // Edges of `machine_` between two states that read what the expression describes. No edge enters `from` or leaves
  // `to`, so that parts of a choice may share both.
  void build(ExprId id, uint32_t from, uint32_t to) {
    if (!fuel_.burn(6) || !room_for(16)) return;
    const Expr& e = g_.exprs()[id];
    switch (e.kind) {
      case ExprKind::kEmpty:
        machine_.add_empty(from, to);
        return;
      case ExprKind::kNothing:
        return;
      case ExprKind::kBytes:
        add_bytes(from, to, e.lo, e.hi);
        return;
      case ExprKind::kTokens:
        for (uint32_t c : classes_of_set_[e.a]) {
          const auto symbol = static_cast<uint16_t>(256 + c);
          machine_.add_symbols(from, to, symbol, symbol);
        }
        return;
      case ExprKind::kSequence:
        for (size_t i = 0; i < e.parts.size(); ++i) {
          const uint32_t next = i + 1 == e.parts.size() ? to : machine_.add_state();
          build(e.parts[i], from, next);
          from = next;
        }
        if (e.parts.empty()) machine_.add_empty(from, to);
        return;
      case ExprKind::kChoice:
        for (ExprId part : e.parts) build(part, from, to);
        return;
      case ExprKind::kRepeat:
        return build_repeat(e, from, to);
      case ExprKind::kCall:
        machine_.add_call(from, to, really_[e.a]);
        if (rule_nullable_[e.a]) machine_.add_empty(from, to);
        return;
      case ExprKind::kGraph:
        break;
    }
    const Graph& graph = g_.graphs()[e.a];
    if (!fuel_.burn(static_cast<int64_t>(graph.edges.size()) * 3 + graph.n_states)) return;
    if (!room_for(graph.edges.size() + graph.accepting.size() + 16)) return;
    const uint32_t base = machine_.add_states(graph.n_states);
    if (fuel_.is_empty()) return;  // there are none
    machine_.add_empty(from, base);
    for (const GraphEdge& edge : graph.edges) {
      if (edge.expr == kNoExpr) {
        add_bytes(base + edge.from, base + edge.to, edge.lo, edge.hi);
      } else if (g_.exprs()[edge.expr].kind == ExprKind::kCall || g_.exprs()[edge.expr].kind == ExprKind::kEmpty) {
        build(edge.expr, base + edge.from, base + edge.to);
      } else {  // states of its own at both ends: other edges of the graph enter and leave these two
        const uint32_t begin = machine_.add_state(), end = machine_.add_state();
        machine_.add_empty(base + edge.from, begin);
        build(edge.expr, begin, end);
        machine_.add_empty(end, base + edge.to);
      }
    }
    for (uint32_t s : graph.accepting) machine_.add_empty(base + s, to);
  }

  // No byte that cannot be spelled is in any automaton.
  void add_bytes(uint32_t from, uint32_t to, uint32_t lo, uint32_t hi) {
    for (uint32_t b = lo; b <= hi; ++b) {
      const uint32_t end = std::min<uint32_t>(hi, run_end_[b]);
      if (options_.bytes[b]) machine_.add_symbols(from, to, static_cast<uint16_t>(b), static_cast<uint16_t>(end));
      b = end;
    }
  }

  void build_repeat(const Expr& e, uint32_t from, uint32_t to) {
    if (e.max == 0 || e.max < e.min) {
      if (e.max == 0 && e.min == 0) machine_.add_empty(from, to);
      return;
    }
    const uint32_t min = nullable_[e.a] ? 0 : e.min;
    const bool is_unbounded = e.max == kUnbounded;
    const uint64_t times = is_unbounded ? min + 1ull : e.max;
    if (size_[e.a] * times > kMaxCopies && times > 1) return build_counted(e, min, from, to);
    uint32_t at = machine_.add_state();
    machine_.add_empty(from, at);
    for (uint64_t i = 0; i < times; ++i) {
      if (i >= min) machine_.add_empty(at, to);
      const uint32_t next = is_unbounded && i + 1 == times ? at : machine_.add_state();
      if (next == at) {  // a loop, whose body has ends of its own
        const uint32_t begin = machine_.add_state(), end = machine_.add_state();
        machine_.add_empty(at, begin);
        build(e.a, begin, end);
        machine_.add_empty(end, at);
      } else {
        build(e.a, at, next);
      }
      at = next;
    }
    if (!is_unbounded) machine_.add_empty(at, to);
  }

  void build_counted(const Expr& e, uint32_t min, uint32_t from, uint32_t to) {
    auto [at, is_new] = counted_.try_emplace({e.a, min, e.max}, 0);
    if (is_new) {
      auto [body, is_new_body] = counted_bodies_.try_emplace(e.a, 0);
      if (is_new_body) body->second = add_rule(e.a, true);
      at->second = add_rule(kNoExpr, false);
      Counter counter;
      counter.min = std::max(min, 1u);
      counter.is_unbounded = e.max == kUnbounded;
      counter.last = counter.is_unbounded ? counter.min : e.max;
      counter.body = body->second;
      counter.rule = at->second;
      counter_of_[at->second] = static_cast<int32_t>(a_.counters_.size());
      a_.counters_.push_back(counter);
    }
    machine_.add_call(from, to, at->second);
    if (min == 0) machine_.add_empty(from, to);
  }

  uint32_t add_rule(ExprId body, bool is_body) {
    fuel_.burn(32);
    held_.add(3 * kBytesPerRule + 160);  // lists that may double, and what finds counters again
    bodies_.push_back(body);
    a_.starts_.push_back(0);
    counter_of_.push_back(-1);
    a_.is_body_.push_back(is_body);
    rule_nullable_.push_back(0);  // their calls carry it
    return static_cast<uint32_t>(bodies_.size() - 1);
  }

  void lay_out() {
    if (!make_room(done_.first_edge, 1, done_.held) || !make_room(done_.first_call, 1, done_.held)) return;
    a_.root_ = g_.root();
    a_.root_is_nullable_ = rule_nullable_[g_.root()];
    a_.n_nodes_ = static_cast<uint32_t>(done_.accepts.size());
    a_.first_edge_ = std::move(done_.first_edge);
    a_.first_call_ = std::move(done_.first_call);
    a_.edges_ = std::move(done_.edges);
    a_.calls_ = std::move(done_.calls);
    static_assert(Automaton::kAccepts == 1);
    a_.flags_ = std::move(done_.accepts);
    a_.first_edge_.push_back(static_cast<uint32_t>(a_.edges_.size()));
    a_.first_call_.push_back(static_cast<uint32_t>(a_.calls_.size()));
    uint64_t base = a_.n_nodes_;
    for (Counter& c : a_.counters_) {
      c.base = static_cast<uint32_t>(base);
      base += c.n_nodes();
      if (base > kMostNodes) fuel_.burn(fuel_.left() + 1);
      a_.starts_[c.rule] = c.base;
    }
    fuel_.burn(a_.n_nodes_ * 2 + static_cast<int64_t>(a_.edges_.size() + a_.calls_.size()) * 2);
  }

  // Knuth 1977, "A generalization of Dijkstra's algorithm": the lightest derivation from each node, lightest first.
  bool measure_nodes() {
    const uint32_t n = a_.n_nodes_;
    Held held(fuel_);
    const auto n_calls = static_cast<int64_t>(a_.calls_.size()), n_edges = static_cast<int64_t>(a_.edges_.size());
    const auto n_rules = static_cast<int64_t>(bodies_.size());
    const int64_t held_here = int64_t{n} * 13 + (n_edges + 2 * n_calls) * 8 + n_rules * 36 + 4096;
    if (!fuel_.has_room(held_here + int64_t{n} * 4 + n_rules * 4)) return false;
    held.add(held_here);
    held_.add(int64_t{n} * 4 + n_rules * 4);
    a_.shortest_.assign(n, kNever);
    rule_shortest_.assign(bodies_.size(), kNever);
    struct Back {
      uint32_t from;
      uint32_t rule;  // ~0: a symbol
    };
    if (!fuel_.burn(static_cast<int64_t>(n) * 4 + static_cast<int64_t>(a_.edges_.size() + a_.calls_.size()) * 6))
      return false;
    std::vector<uint32_t> first(n + 1, 0);
    for (const SymbolEdge& e : a_.edges_) ++first[e.to + 1];
    for (const CallEdge& e : a_.calls_) ++first[e.to + 1];
    for (uint32_t i = 0; i < n; ++i) first[i + 1] += first[i];
    std::vector<Back> back(first[n]);
    std::vector<uint32_t> at(first.begin(), first.end() - 1);
    std::vector<uint32_t> caller_first(bodies_.size() + 1, 0), callers(a_.calls_.size()), caller_to(a_.calls_.size());
    for (const CallEdge& e : a_.calls_) ++caller_first[e.rule + 1];
    for (size_t r = 0; r < bodies_.size(); ++r) caller_first[r + 1] += caller_first[r];
    std::vector<uint32_t> caller_at(caller_first.begin(), caller_first.end() - 1);
    for (uint32_t node = 0; node < n; ++node) {
      for (const SymbolEdge& e : a_.edges(node)) back[at[e.to]++] = {node, ~0u};
      for (const CallEdge& e : a_.calls(node)) {
        back[at[e.to]++] = {node, e.rule};
        const uint32_t i = caller_at[e.rule]++;
        callers[i] = node, caller_to[i] = e.to;
      }
    }
    std::vector<uint32_t> rule_of(n, ~0u);  // of starts
    for (uint32_t r = 0; r < bodies_.size(); ++r)
      if (counter_of_[r] < 0) rule_of[a_.starts_[r]] = r;
    std::vector<std::vector<uint32_t>> counters_of_body(bodies_.size());
    for (uint32_t i = 0; i < a_.counters_.size(); ++i) counters_of_body[a_.counters_[i].body].push_back(i);
    // Most lengths are small, and none that is offered is below the one that is looked at.
    using Entry = std::pair<uint32_t, uint32_t>;
    std::vector<Entry> far;  // a heap
    std::vector<std::vector<uint32_t>> near(256);
    size_t nearest = 0;
    auto take = [&]() -> std::optional<Entry> {
      while (nearest < near.size() && near[nearest].empty()) ++nearest;
      if (nearest == near.size() && far.empty()) return std::nullopt;
      Entry taken;
      if (nearest < near.size()) {
        taken = {static_cast<uint32_t>(nearest), near[nearest].back()};
        near[nearest].pop_back();
      } else {
        std::ranges::pop_heap(far, std::greater<>());
        taken = far.back();
        far.pop_back();
      }
      return taken;
    };
    std::vector<uint8_t> done(n, 0);
    auto offer = [&](uint32_t node, uint64_t length) {
      if (length >= a_.shortest_[node]) return;
      a_.shortest_[node] = static_cast<uint32_t>(length);
      if (length < near.size()) {
        if (make_room(near[length], 1, held)) near[length].push_back(node);
      } else if (make_room(far, 1, held)) {
        far.push_back({a_.shortest_[node], node});
        std::ranges::push_heap(far, std::greater<>());
      }
    };
    std::vector<uint32_t> finished;
    auto finish_rule = [&](uint32_t rule, uint64_t length) {
      if (rule_shortest_[rule] < kNever) return;
      rule_shortest_[rule] = static_cast<uint32_t>(std::min<uint64_t>(length, kNever - 1));
      finished.push_back(rule);
    };
    for (uint32_t node = 0; node < n; ++node)
      if (a_.flags_[node] & Automaton::kAccepts) offer(node, 0);
    while (const std::optional<Entry> next = take()) {
      const auto [length, node] = *next;
      if (done[node]) continue;
      done[node] = 1;
      if (!fuel_.burn(4)) return false;
      for (uint32_t i = first[node]; i < first[node + 1]; ++i) {
        const uint64_t step = back[i].rule == ~0u ? 1 : rule_shortest_[back[i].rule];
        if (step < kNever) offer(back[i].from, std::min<uint64_t>(length + step, kNever - 1));
      }
      if (rule_of[node] != ~0u) finish_rule(rule_of[node], length);
      for (; !finished.empty();) {
        const uint32_t rule = finished.back();
        finished.pop_back();
        for (uint32_t i = caller_first[rule]; i < caller_first[rule + 1]; ++i) {
          const uint64_t rest = a_.shortest_[caller_to[i]];
          if (done[caller_to[i]]) offer(callers[i], std::min<uint64_t>(rule_shortest_[rule] + rest, kNever - 1));
        }
        for (uint32_t c : counters_of_body[rule])
          finish_rule(a_.counters_[c].rule, static_cast<uint64_t>(rule_shortest_[rule]) * a_.counters_[c].min);
      }
    }
    return true;
  }

  void drop_dead() {
    uint32_t edge = 0, call = 0;
    for (uint32_t node = 0; node < a_.n_nodes_; ++node) {
      const uint32_t edge_end = a_.first_edge_[node + 1], call_end = a_.first_call_[node + 1];
      uint32_t i = a_.first_edge_[node], j = a_.first_call_[node];
      a_.first_edge_[node] = edge;
      a_.first_call_[node] = call;
      for (; i < edge_end; ++i)
        if (a_.shortest_[a_.edges_[i].to] < kNever) a_.edges_[edge++] = a_.edges_[i];
      for (; j < call_end; ++j)
        if (a_.shortest_[a_.calls_[j].to] < kNever && rule_shortest_[a_.calls_[j].rule] < kNever)
          a_.calls_[call++] = a_.calls_[j];
      if ((a_.flags_[node] & Automaton::kAccepts) && edge == a_.first_edge_[node] && call == a_.first_call_[node])
        a_.flags_[node] |= Automaton::kOnlyAccepts;
      if (node + 1 == a_.n_nodes_) a_.first_edge_[a_.n_nodes_] = edge, a_.first_call_[a_.n_nodes_] = call;
    }
    a_.edges_.resize(edge);
    a_.calls_.resize(call);
    for (const Counter& c : a_.counters_) a_.counter_shortest_.push_back(rule_shortest_[c.body]);
  }

  void class_symbols() {
    const uint32_t n_symbols = 256 + static_cast<uint32_t>(a_.token_classes_.size());
    std::vector<uint8_t> begins(n_symbols + 1, 0);
    for (const SymbolEdge& e : a_.edges_) begins[e.lo] = begins[e.hi + 1u] = 1;
    a_.class_of_.resize(n_symbols);
    for (uint32_t s = 0; s < n_symbols; ++s) {
      if (s == 0 || s == 256 || begins[s]) a_.symbol_of_.push_back(static_cast<uint16_t>(s));
      a_.class_of_[s] = static_cast<uint16_t>(a_.symbol_of_.size() - 1);
    }
    a_.n_classes_ = static_cast<uint32_t>(a_.symbol_of_.size());
  }

  const Grammar& g_;
  const Automaton::Options& options_;
  std::array<uint8_t, 256> run_end_;  // of each byte, the last one up to which all can be spelled or all cannot
  Fuel& fuel_;
  Held held_;  // by what follows and has none of its own
  Automaton a_;
  uint32_t n_rules_ = 0;
  std::vector<uint32_t> size_;
  std::vector<uint8_t> nullable_, rule_nullable_;
  std::vector<ExprId> bodies_;
  std::vector<uint32_t> really_;  // per rule of the grammar: the one that it is
  RuleMachine machine_;
  FinishedRules done_;
  std::vector<int32_t> counter_of_;  // per rule; -1: none
  std::map<std::tuple<ExprId, uint32_t, uint32_t>, uint32_t> counted_;
  std::map<ExprId, uint32_t> counted_bodies_;
  std::vector<std::vector<uint32_t>> classes_of_set_;
  std::vector<uint32_t> rule_shortest_;
};

Result<Automaton> Automaton::compile(const Grammar& grammar, const Options& options) {
  ASSIGN_OR_RETURN(Automaton made, AutomatonBuilder(grammar, options).run());
  const States states(std::shared_ptr<const Automaton>(std::shared_ptr<void>(), &made));  // not its owner
  if (!states.begins()) return invalid("The grammar's texts may begin in more ways at once than can be followed.");
  return made;
}

}  // namespace ibid::grammar
