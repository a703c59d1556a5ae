// TokenMasks: which tokens may come next, of texts in one grammar, over one vocabulary. A mask is a function of
// (grammar, bytes so far) and, where asked, of how many tokens are left; never of what was asked before: states,
// transitions and masks are remembered within a budget of bytes, and made again where they were forgotten.
//
// A first mask of a state is a walk over tries of tokens, state by state. Kinds of tokens (TokenKind) all of which may
// come, or those of up to n code points, are taken whole instead: exactly those walks that could refuse none.
// Not for two threads at once. May throw std::bad_alloc, and is sound then.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "sample/grammar/states.h"
#include "sample/grammar/token_trie.h"

namespace ibid::grammar {

class TokenMasks {
 public:
  static constexpr size_t kDefaultBytes = 16 << 20;
  static constexpr uint32_t kNoLimit = ~0u;

  TokenMasks(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
             size_t max_bytes = kDefaultBytes);

  // Sets bit t % 32 of mask[t / 32] where token t may follow, and no other. `left`: how many tokens may still come,
  // this one included; as long as an end is within reach at all, a token that would put it out of reach is refused,
  // so that the text is complete when they are used up. What ends an answer is no token here: see accepts().
  void fill(StateId state, std::span<uint32_t> mask, uint32_t left = kNoLimit);
  // The state behind a token, kDead where it may not come. A token that the grammar names counts as itself wherever
  // that may come, else as its bytes.
  StateId after(StateId state, TokenId token);

  States& states() { return states_; }
  const TokenTrie& trie() const { return *trie_; }
  size_t bytes() const { return states_.bytes() + mask_bytes_; }
  // Above the budget, forgets all that `live` do not need. Between two calls all states that are used must be in it.
  bool is_over_budget() const { return bytes() > max_bytes_; }
  void forget_others(std::span<const StateId> live);
  uint64_t n_hits() const { return n_hits_; }
  uint64_t n_misses() const { return n_misses_; }

 private:
  // Of texts of one kind from one node: all of up to `all` code points stay in the rule, none of `none` or more does.
  // `worst`: the longest way to the rule's end from where they lead.
  struct Reach {
    uint32_t all = 0, none = 0, worst = 0;
  };
  struct Recipe {
    struct Whole {
      uint8_t kind = 0, up_to = 0;
    };
    std::vector<Whole> wholes;
    std::vector<int32_t> tokens;
    std::vector<uint32_t> bits;  // instead of tokens where these are many
    uint32_t worst = 0;          // the longest way to an end behind any of them
  };

  const Recipe& recipe(StateId state);
  Recipe make(StateId state, uint32_t left);
  template <typename Found>
  void walk(const TokenTrie::Kind& kind, StateId state, Found&& found);
  Reach reach(uint32_t node, size_t kind);
  Reach search(uint32_t node, size_t kind);
  Reach reach_of_counter(uint32_t node, size_t kind);

  States states_;
  std::shared_ptr<const TokenTrie> trie_;
  size_t max_bytes_;
  size_t mask_bytes_ = 0;
  uint64_t n_hits_ = 0, n_misses_ = 0;
  std::unordered_map<StateId, Recipe> recipes_;
  std::unordered_map<uint64_t, Reach> reaches_;  // by node << 3 | kind
  std::vector<StateId> path_;                    // of a walk, by depth
};

}  // namespace ibid::grammar
