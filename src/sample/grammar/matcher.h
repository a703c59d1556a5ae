// Matcher: one request's grammar at work, for all its choices: masks of its rows and the states of its texts. A state
// is an integer that its sequence keeps; it stays valid as long as it is held, or until the next call of hold(), so a
// row that is drawn on trial goes from state to state and has nothing to undo. From any thread at once.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "sample/grammar/token_masks.h"

namespace ibid::grammar {

class Matcher {
 public:
  // `end_of_generation`: the ids that may end an answer where the grammar accepts, and nowhere else. `closes_in_time`:
  // an answer is complete when its tokens are used up, if it can be.
  Matcher(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
          std::vector<TokenId> end_of_generation, int32_t n_choices, bool closes_in_time = false);

  // Bits of the tokens that may follow, as TokenMasks::fill; all others of the mask are 0. `n_left`: tokens that the
  // answer may still have, -1: no limit. May throw std::bad_alloc.
  void fill(StateId state, int32_t n_left, std::span<uint32_t> mask);
  size_t mask_words() const { return masks_.trie().mask_words(); }  // the fewest that fill() takes
  // The state behind a token that the mask allowed; of an end, the same state.
  StateId after(StateId state, TokenId token);
  // The text is complete and nothing may follow.
  bool is_closed(StateId state);
  bool accepts(StateId state);
  // The choice stands there now: other states may be forgotten. Allocation failures are put off to the next call.
  void hold(int32_t choice, StateId state);

 private:
  std::mutex mutex_;
  TokenMasks masks_;
  std::vector<TokenId> end_of_generation_;
  std::vector<StateId> held_;
  bool closes_in_time_;
};

// A grammar for one vocabulary, with a sentence where it has no text.
Result<std::shared_ptr<const Automaton>> compile(const Grammar& grammar, const TokenTrie& trie);

}  // namespace ibid::grammar
