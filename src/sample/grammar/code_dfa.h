// CodeDfa: a regular set of texts, as a deterministic automaton over code points: the form of a schema's patterns,
// formats, lengths, names and numbers while they are combined. All operations are exact and take fuel; without it the
// result is an error. The fuel outlives the automata made with it, and accounts for their memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

// Sets of code points by number.
class CodeSets {
 public:
  explicit CodeSets(Fuel& fuel) : held_(fuel) {}
  uint32_t add(CodeSet set) {  // out of fuel: an earlier one
    const int64_t bytes = block(set.ranges().capacity() * sizeof(CodeRange));
    if ((make_room(sets_, 1, held_) && held_.add(bytes)) || sets_.empty()) sets_.push_back(std::move(set));
    return static_cast<uint32_t>(sets_.size() - 1);
  }
  const CodeSet& operator[](uint32_t set) const { return sets_[set]; }
  size_t size() const { return sets_.size(); }
  int64_t bytes() const { return held_.bytes(); }

 private:
  Held held_;
  std::vector<CodeSet> sets_;
};

// An automaton with empty edges, under construction; state 0 is the first.
struct CodeNfa {
  enum Kind : uint8_t { kEmpty, kSet, kBegin, kEnd };  // kBegin, kEnd: empty, only at the text's start or end
  struct Edge {
    uint32_t from = 0, to = 0;
    Kind kind = kEmpty;
    uint32_t set = 0;
  };
  explicit CodeNfa(Fuel& fuel) : held(fuel), sets(fuel) {}
  CodeNfa(Fuel& fuel, const CodeSets& of) : held(fuel), sets(of) {}

  Held held;  // without fuel nothing is added
  uint32_t n_states = 1;
  std::vector<Edge> edges;
  CodeSets sets;
  uint32_t accept = 0;

  uint32_t add_state() { return n_states++; }
  void add(uint32_t from, uint32_t to, CodeSet set) { add_set(from, to, sets.add(std::move(set))); }
  void add_set(uint32_t from, uint32_t to, uint32_t set) { add({from, to, kSet, set}); }
  void add(uint32_t from, uint32_t to, Kind kind = kEmpty) { add({from, to, kind, 0}); }

 private:
  void add(const Edge& edge) {
    if (make_room(edges, 1, held)) edges.push_back(edge);
  }
};

// A graph over bytes under construction, whose edges read code points as UTF-8; common endings are shared.
class CodeGraph {
 public:
  CodeGraph(uint32_t n_states, Fuel& fuel) : fuel_(fuel), held_(fuel) { graph_.n_states = n_states; }
  uint32_t add_state() { return graph_.n_states++; }
  // A state after which the bytes of one range lead to `to`.
  uint32_t hop(uint8_t lo, uint8_t hi, uint32_t to);
  void add(uint32_t from, uint8_t byte, uint32_t to) { add({from, to, byte, byte}); }
  void add_code_points(uint32_t from, uint32_t lo, uint32_t hi, uint32_t to);  // none where lo > hi
  Graph& graph() { return graph_; }

 private:
  void add(const GraphEdge& edge) {
    if (make_room(graph_.edges, 1, held_)) graph_.edges.push_back(edge);
  }

  Fuel& fuel_;
  Held held_;
  Graph graph_;
  std::unordered_map<uint64_t, uint32_t> hops_;
};

class CodeDfa {
 public:
  CodeDfa() = default;
  explicit CodeDfa(Fuel& fuel) : held_(fuel) {}
  CodeDfa(CodeDfa&&) = default;  // they may be large: copies are explicit
  CodeDfa& operator=(CodeDfa&&) = default;
  Result<CodeDfa> copy(Fuel& fuel) const;

  struct Edge {
    uint32_t lo = 0, hi = 0, to = 0;
  };
  static constexpr uint32_t kGone = ~0u;  // after a symbol without an edge

  static Result<CodeDfa> make(const CodeNfa& nfa, Fuel& fuel);
  static CodeDfa all();
  static Result<CodeDfa> length(uint32_t min, uint32_t max, Fuel& fuel);  // kUnbounded: no maximum
  static Result<CodeDfa> one_of(std::span<const std::string_view> texts, Fuel& fuel);

  enum class How { kBoth, kFirstOnly, kEither };
  static Result<CodeDfa> combine(const CodeDfa& a, const CodeDfa& b, How how, Fuel& fuel);
  Result<CodeDfa> complement(Fuel& fuel) const { return combine(all(), *this, How::kFirstOnly, fuel); }

  bool accepts(std::string_view utf8) const;
  bool is_empty() const;  // nothing is accepted
  bool is_all() const;    // everything is accepted, in the form of all()
  uint32_t n_states() const { return static_cast<uint32_t>(accepts_.size()); }
  std::span<const Edge> edges(uint32_t state) const {
    return {edges_.data() + first_[state], edges_.data() + first_[state + 1]};
  }
  bool accepts(uint32_t state) const { return accepts_[state] != 0; }
  // Calls f(lo, hi, to_a, to_b) for ranges within which neither list of edges changes, as long as one of them has
  // edges.
  template <typename Function>
  static void each_piece(std::span<const Edge> of_a, std::span<const Edge> of_b, Function&& f);

  // The texts as UTF-8, or as the inside of a JSON string in its shortest spelling.
  enum class Spelling { kPlain, kJson };
  ExprId spell(Grammar& grammar, Spelling spelling) const;
  Graph spelled(Spelling spelling, Fuel& fuel) const;  // unfinished without fuel
  // Those of min to max code points. kNoExpr if there are clearly none.
  Result<ExprId> spell_bounded(Grammar& grammar, Spelling spelling, uint32_t min, uint32_t max) const;

 private:
  // For each state the fewest and most code points to the end of a text; kGone: unbounded, or, as the fewest, no text.
  struct Lengths {
    std::vector<uint32_t> least, most;
  };
  Lengths lengths(Fuel& fuel) const;
  // Texts of some lengths: those of `texts`, and those that lead there to the state of a tail and go on with min to max
  // code points that this automaton's state `loop` has an edge for.
  struct Bounded;
  Result<Bounded> bounded(uint32_t min, uint32_t max, Fuel& fuel) const;
  // Room for one more state and so many more edges.
  bool make_room(size_t n_edges) {
    return grammar::make_room(first_, 1, held_) && grammar::make_room(accepts_, 1, held_) &&
           grammar::make_room(edges_, n_edges, held_);
  }
  void begin_state(bool accepts);
  void add_edge(uint32_t lo, uint32_t hi, uint32_t to);
  bool trim(Fuel& fuel);
  bool merge_twins(Fuel& fuel, int n_passes = 4);

  Held held_;
  std::vector<uint32_t> first_ = {0};
  std::vector<Edge> edges_;  // per state ascending and disjoint
  std::vector<uint8_t> accepts_;
};

struct CodeDfa::Bounded {
  struct Tail {
    uint32_t state = 0, loop = 0, min = 0, max = 0;
  };
  CodeDfa texts;
  std::vector<Tail> tails;
};

template <typename Function>
void CodeDfa::each_piece(std::span<const Edge> of_a, std::span<const Edge> of_b, Function&& f) {
  size_t i = 0, j = 0;
  for (uint32_t at = 0; i < of_a.size() || j < of_b.size();) {
    uint32_t end = kMaxCodePoint;
    const auto next = [&](std::span<const Edge> edges, size_t& k) {
      if (k == edges.size()) return kGone;
      const bool is_within = edges[k].lo <= at;
      end = std::min(end, is_within ? edges[k].hi : edges[k].lo - 1);
      return is_within ? edges[k].to : kGone;
    };
    const uint32_t to_a = next(of_a, i), to_b = next(of_b, j);
    f(at, end, to_a, to_b);
    if (i < of_a.size() && of_a[i].hi == end) ++i;
    if (j < of_b.size() && of_b[j].hi == end) ++j;
    at = end + 1;
  }
}

}  // namespace ibid::grammar
