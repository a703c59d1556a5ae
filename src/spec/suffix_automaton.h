// SuffixAutomaton: of a growing text, the longest end that occurs in it before, and where. Exact, and of any length.
//
// The smallest automaton of a text's substrings, built online (Blumer, Blumer, Haussler, Ehrenfeucht, Chen, Seiferas,
// "The smallest automaton recognizing the subwords of a text", 1985): at most 2n states and 3n edges for n tokens,
// amortised O(1) a token. The longest end that occurs before is the suffix link of the state of the whole text. Edges
// of all states lie in one hash table, keyed at random, and in a list for each state.
//
// For one thread. Room for the largest text is reserved when it is made; nothing allocates after that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace ibid {

class SuffixAutomaton {
 public:
  explicit SuffixAutomaton(int32_t max_tokens);
  // Bytes of one, at most.
  static int64_t bytes_of(int32_t max_tokens);

  void clear();
  void add(TokenId token);  // not if it is full
  std::span<const TokenId> text() const { return text_; }
  bool is_full() const { return text_.size() >= static_cast<size_t>(max_tokens_); }

  // The last `len` tokens of the text (0: none) are also those before text()[first_end], its first occurrence, and
  // those before text()[last_end], a late one.
  struct Match {
    int32_t len = 0, first_end = 0, last_end = 0;
  };
  const Match& match() const { return match_; }

  // Where the longest end of another text occurs in this one, token by token of that text: amortised O(1). Void once
  // this text has changed.
  struct Cursor {
    int32_t state = 0;
    int32_t len = 0;  // tokens of that end
  };
  void follow(TokenId token, Cursor& cursor) const;
  // The place after a late occurrence of what the cursor has, which may be the text's end.
  int32_t end_of(const Cursor& cursor) const { return states_[static_cast<size_t>(cursor.state)].last_end; }

 private:
  struct State {
    int32_t len = 0;    // of the longest text that leads here
    int32_t link = -1;  // the state of the longest of its ends that leads elsewhere
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
  std::vector<TokenId> text_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> table_;  // indices of edges, -1: none; open addressing
  int32_t whole_ = 0;           // the state of the whole text
  Match match_;
};

}  // namespace ibid
