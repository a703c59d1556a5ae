// TokenMasks: which tokens may come next, for texts in one grammar, over one vocabulary. A mask is a function of
// (grammar, bytes so far) and, if requested, of how many tokens are left; never of earlier calls: states, transitions
// and masks are cached within a budget of bytes, and recomputed where they were dropped.
//
// A first mask of a state is a walk over tries of tokens, state by state. Most walks are short, as most tokens are
// refused at their first byte. Those that are not:
// - Where the grammar does not distinguish code points of a kind (TokenKind), as inside a string, any n of them lead to
//   one state. So tokens of the kind are taken whole, those of up to n code points where the state after n takes no
//   more; of others that begin with n of the kind, what lies after these is walked from that state, once.
// - Where all that the grammar does not spell out leads to such a state, as at the begin of a member's name, the mask
//   is that state's except for the tokens whose ways differ.
// - Where all lower case and perhaps other groups of bytes lead to one state, as in many patterns, tokens are taken by
//   the group of their first code point, as a mark among letters may lead to a run of its own, and those after it;
//   only those with others that may come too are checked one by one.
// - Of tokens that open a string which holds any code point, only what lies after such code points is walked.
// - Else kinds all of which may come, or those of up to n code points, are taken whole where the nodes allow it.
// Not for two threads at once. May throw std::bad_alloc, and stays valid then.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sample/grammar/node_reach.h"
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
  // so that the text is complete when they are used up. End-of-generation tokens are not tokens here: see accepts().
  void fill(StateId state, std::span<uint32_t> mask, uint32_t left = kNoLimit);
  // The state after a token, kDead where it may not come. A token that the grammar names counts as itself wherever
  // that may come, else as its bytes.
  StateId after(StateId state, TokenId token);

  States& states() { return states_; }
  const TokenTrie& trie() const { return *trie_; }
  const Automaton& automaton() const { return states_.automaton(); }
  size_t bytes() const { return states_.bytes() + reach_.bytes() + mask_bytes_; }
  // Above the budget, drops all that `live` do not need. States that stay in use must be in it.
  bool is_over_budget() const { return bytes() > std::max(max_bytes_, 2 * bytes_kept_); }
  void forget_others(std::span<const StateId> live);
  size_t bytes_kept() const { return bytes_kept_; }  // by the last call: the minimum

 private:
  // Items of the states that a mask's tokens lead through, those of states met again too, so that it is a function of
  // the text: eight times what the slowest real schemas need with 200,000 tokens. A text that needs more is lost, as
  // with a state of too many items.
  static constexpr size_t kMostLookedAt = 4'000'000;
  static constexpr uint8_t kCounts = kPlainKinds + 1;
  struct Recipe {
    struct Whole {
      uint8_t kind = 0, up_to = 0;  // kPlainKinds: of all plain kinds; kCounts: of digits, the first not 0
    };
    std::vector<Whole> wholes;
    std::vector<int32_t> refused;  // of those
    std::vector<int32_t> tokens;   // and these
    std::vector<uint32_t> bits;    // instead of tokens where these are many
    uint32_t worst = 0;            // the longest way to an end after any of them
    bool is_measured = false;      // `worst` is known: where answers must close in time
    bool is_lost = false;          // more than kMostLookedAt items would be read: nothing may come
  };

  // Tokens with a tail that may come where code points of kUnicode lead nowhere else, with their first bytes.
  struct Tailed {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> first;
    uint32_t worst = 0;
    bool is_measured = false, is_lost = false;
  };
  enum class Ways : uint8_t { kUnknown, kNone, kOne, kMany };

  // What one code point of each group leads to: all of those of `all` to `to`, of `stay` to this state itself, those of
  // groups out of `any` nowhere.
  struct Spread {
    StateId to = kDead;
    ByteGroups all = 0, any = 0, stay = 0;
  };

  // What code points of some groups lead to, one after the other: `length` of those of `all`, in any order and lower
  // case among them, lead somewhere; those of `ahead`, whichever, always to the same; those out of `any` nowhere.
  struct Run {
    StateId from = kDead;
    ByteGroups all = 0, ahead = 0, any = 0;
    uint32_t length = 0;  // kAllCodes: however many, is_endless
    uint32_t worst = 0;
    bool is_endless = false;
    bool is_known = false;  // more than `length` of `all` lead nowhere
  };

  static constexpr std::string_view kSomeNonAscii = "\xC3\xA9", kSomeFarSpace = "\xC2\xA0";

  // The state after a token's last byte if the distance to an end is not needed; or one of several.
  static constexpr StateId kUnmade = ~0u;

  class ByGroups;
  const Recipe& recipe(StateId state, bool must_measure);
  void measure(StateId state, uint32_t& worst) const {
    if (state != kUnmade) worst = std::max(worst, states_.shortest(state));
  }
  Recipe make(StateId state, uint32_t left);
  // Each adds to the recipe what plain kinds and tails there are; false: it does not fit this state.
  bool make_by_chain(StateId state, size_t kind, Recipe& made);
  bool make_by_groups(StateId state, Recipe& made);  // this, and what it needs, in pattern_masks.cc
  bool make_by_difference(StateId state, Recipe& made);
  bool make_by_count(StateId state, Recipe& made);  // of digits alone
  void make_by_walk(StateId state, uint32_t left, Recipe& made);
  // What one code point of a kind leads to, all being one or none.
  Ways ways(StateId state, size_t kind);
  // The states after 0, 1, 2, ... code points of a kind. False if they are distinguished.
  bool make_chain(StateId state, size_t kind);
  const Tailed& tailed(StateId state);
  std::bitset<256> next_bytes(StateId state);
  Spread spread(StateId state);
  // After one code point of each group, kUnmade where these lead to several states.
  std::array<StateId, kByteGroups> after_groups(StateId state);
  Run run_from(StateId state);
  void look_ahead(const ByteTrie& trie, uint32_t node, StateId state);
  // Calls found(first, end, state) for the entries of each node that was looked ahead to, and of all below it.
  template <typename Found>
  void walk(const ByteTrie& trie, Found&& found);
  void walk_all(const ByteTrie& trie, StateId state, const std::bitset<256>& first, uint32_t left, Recipe& made);
  // Calls found(entry of the tails, state).
  template <typename Found>
  void walk_tails(size_t kind, Found&& found);
  // Adds the tokens with a tail that may come, of the buckets in takes_, to `bits`.
  void add_taken_tails(Recipe& made);
  void walk_differences(const ByteTrie& trie, StateId state, StateId other, const std::bitset<256>& differs,
                        Recipe& made);

  struct ByteClass {  // bytes of tokens that the grammar does not distinguish
    uint32_t a_class = 0;
    ByteGroups groups = 0;
    std::bitset<256> bytes;
  };

  States states_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<ByteClass> byte_classes_;
  size_t max_bytes_;
  size_t mask_bytes_ = 0;
  size_t bytes_kept_ = 0;
  std::unordered_map<StateId, Recipe> recipes_;
  NodeReach reach_;
  std::unordered_map<StateId, Tailed> tailed_;
  std::vector<Ways> ways_;  // of kUnicode, per state
  std::unordered_map<StateId, Spread> spreads_;
  struct Ahead {  // a node yet to be walked
    uint32_t node;
    StateId state;
  };
  std::vector<Ahead> ahead_;  // the next one last
  struct Differing {
    uint32_t node;
    StateId state, other;
  };
  std::vector<Differing> differing_;                 // likewise
  std::vector<int32_t> token_room_;                  // of the recipe that is being made
  std::vector<std::pair<uint32_t, uint32_t>> cuts_;  // of buckets
  std::vector<Run> runs_;                            // by the group of a token's first code point
  std::vector<uint8_t> takes_;                       // per bucket of kTailed: along chain_
  std::vector<StateId> chain_;
  std::vector<StateId> path_;  // after the first bytes of a token
  bool measures_ = false;      // the recipe that is being made
  size_t n_looked_at_ = 0;     // items of states, for it
  bool is_endless_ = false;    // the last of chain_ leads to itself, or no token is longer
};

}  // namespace ibid::grammar
