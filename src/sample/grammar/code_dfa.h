// CodeDfa: a regular set of texts, as a deterministic automaton over code points: what patterns, formats, lengths,
// names and numbers of a schema are while they meet each other. All operations are exact and take fuel; without it the
// result is an error.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

// An automaton with empty edges, as it is written down; state 0 is the first.
struct CodeNfa {
  enum Kind : uint8_t { kEmpty, kSet, kBegin, kEnd };  // kBegin, kEnd: empty, at the text's ends alone
  struct Edge {
    uint32_t from = 0, to = 0;
    Kind kind = kEmpty;
    uint32_t set = 0;
  };
  uint32_t n_states = 1;
  std::vector<Edge> edges;
  std::vector<CodeSet> sets;
  uint32_t accept = 0;

  uint32_t add_state() { return n_states++; }
  void add(uint32_t from, uint32_t to, CodeSet set) {
    sets.push_back(std::move(set));
    edges.push_back({from, to, kSet, static_cast<uint32_t>(sets.size() - 1)});
  }
  void add(uint32_t from, uint32_t to, Kind kind = kEmpty) { edges.push_back({from, to, kind, 0}); }
  uint32_t add_text(uint32_t from, std::string_view utf8);  // gives the state behind it
};

class CodeDfa {
 public:
  struct Edge {
    uint32_t lo = 0, hi = 0, to = 0;
  };

  static Result<CodeDfa> make(const CodeNfa& nfa, Fuel& fuel);
  static CodeDfa all();
  static Result<CodeDfa> length(uint32_t min, uint32_t max, Fuel& fuel);  // kUnbounded: no most
  static Result<CodeDfa> one_of(std::span<const std::string_view> texts, Fuel& fuel);

  enum class How { kBoth, kFirstOnly, kEither };
  static Result<CodeDfa> combine(const CodeDfa& a, const CodeDfa& b, How how, Fuel& fuel);
  Result<CodeDfa> complement(Fuel& fuel) const { return combine(all(), *this, How::kFirstOnly, fuel); }

  bool accepts(std::string_view utf8) const;
  bool is_empty() const;  // nothing is accepted
  bool is_all() const;    // exactly: everything is, in the form that all() has
  uint32_t n_states() const { return static_cast<uint32_t>(accepts_.size()); }
  std::span<const Edge> edges(uint32_t state) const {
    return {edges_.data() + first_[state], edges_.data() + first_[state + 1]};
  }
  bool accepts(uint32_t state) const { return accepts_[state] != 0; }

  // The texts as UTF-8, or as the inside of a JSON string in its shortest spelling.
  enum class Spelling { kPlain, kJson };
  ExprId spell(Grammar& grammar, Spelling spelling) const;

 private:
  void begin_state(bool accepts);
  void add_edge(uint32_t lo, uint32_t hi, uint32_t to);
  bool trim(Fuel& fuel);

  std::vector<uint32_t> first_ = {0};
  std::vector<Edge> edges_;  // per state ascending and disjoint
  std::vector<uint8_t> accepts_;
};

}  // namespace ibid::grammar
