// SuffixAutomaton: finds the longest suffix of a growing sequence that occurs earlier in it, and where. Exact, for any
// length.
//
// The smallest automaton of a sequence's substrings, built online (Blumer, Blumer, Haussler, Ehrenfeucht, Chen,
// Seiferas, "The smallest automaton recognizing the subwords of a text", 1985): at most 2n states and 3n edges for n
// tokens, amortised O(1) per token. The longest suffix that occurs earlier is the suffix link of the state of the whole
// sequence. The edges of all states lie in one hash table with a random key, and in a list per state.
//
// For one thread. The constructor reserves memory for max_tokens; nothing allocates after that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace ibid {

class SuffixAutomaton {
 public:
  explicit SuffixAutomaton(int32_t max_tokens);
  // Maximum size of an automaton in bytes.
  static int64_t bytes_of(int32_t max_tokens);

  void clear();
  void add(TokenId token);  // requires !is_full()
  std::span<const TokenId> tokens() const { return tokens_; }
  bool is_full() const { return tokens_.size() >= static_cast<size_t>(max_tokens_); }

  // The last `len` tokens of the sequence (0: no match) equal those before tokens()[first_end], their first occurrence,
  // and those before tokens()[last_end], a late occurrence.
  struct Match {
    int32_t len = 0, first_end = 0, last_end = 0;
  };
  const Match& match() const { return match_; }

  // Position of the longest suffix of another sequence that occurs in this one, updated token by token: amortised O(1).
  // Invalid once this sequence has changed.
  struct Cursor {
    int32_t state = 0;
    int32_t len = 0;  // tokens of that suffix
  };
  void follow(TokenId token, Cursor& cursor) const;
  // The position after a late occurrence of the cursor's suffix; may be the end of this sequence.
  int32_t end_of(const Cursor& cursor) const { return states_[static_cast<size_t>(cursor.state)].last_end; }

 private:
  struct State {
    int32_t len = 0;    // of the longest sequence that leads here
    int32_t link = -1;  // the state of the longest of its suffixes that leads elsewhere
    int32_t first_edge = -1;
    int32_t first_end = 0, last_end = 0;
  };
  struct Edge {
    int32_t from = 0, to = 0;
    TokenId token{};
    int32_t next = -1;  // of the same state
  };
  int32_t add_state(const State& state);
  void add_edge(int32_t from, TokenId token, int32_t to);
  Edge* find(int32_t from, TokenId token);
  const Edge* find(int32_t from, TokenId token) const { return const_cast<SuffixAutomaton*>(this)->find(from, token); }
  size_t place_of(int32_t from, TokenId token) const;
  int32_t clone(int32_t state, int32_t len);

  int32_t max_tokens_;
  uint64_t key_;
  std::vector<TokenId> tokens_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> table_;  // indices of edges, -1: none; open addressing
  int32_t whole_ = 0;           // the state of the whole sequence
  Match match_;
};

}  // namespace ibid
