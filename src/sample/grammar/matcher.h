// Compiled: a grammar shared by all requests that use it; its states and masks are computed once. Matcher: one
// request's use of it, for all its choices: masks of its rows and the states of its sequences.
//
// A state is an integer that its sequence keeps. It stays valid while a choice holds it, or has reached it since the
// choice last held one: so a row that is drawn on trial moves from state to state with nothing to undo, and other
// requests with the same grammar do not invalidate it. All functions from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "sample/grammar/source.h"
#include "sample/grammar/token_masks.h"

namespace ibid::grammar {

class Matcher;

// The memory of all grammars of one model, kept ones and those in use. From any thread.
class GrammarBytes {
 public:
  explicit GrammarBytes(size_t most) : most_(most) {}
  void add(size_t bytes) { taken_ += bytes; }
  void drop(size_t bytes) { taken_ -= bytes; }
  bool are_too_many() const { return taken_ > most_; }
  size_t taken() const { return taken_; }

 private:
  const size_t most_;
  std::atomic<size_t> taken_ = 0;
};

class Compiled {
 public:
  // `together` may be null. Above its limit, a grammar drops what it can of its states and masks.
  Compiled(Source source, std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
           size_t max_bytes = TokenMasks::kDefaultBytes, std::shared_ptr<GrammarBytes> together = nullptr);
  ~Compiled();
  // The memory of states and masks that are kept while no request uses them.
  static constexpr size_t kIdleBytes = 256 << 10;

  const Source& source() const { return source_; }
  // Set before the first use: requested constraints that are not enforced (Grammar::notes).
  void set_notes(std::vector<std::string> notes) { notes_ = std::move(notes); }
  const std::vector<std::string>& notes() const { return notes_; }
  // For a grammar that a caller made: its source, for records.
  void set_rules(std::string rules) { rules_ = std::move(rules); }
  Source recorded() const { return rules_.empty() ? source_ : Source{.language = Language::kMade, .text = rules_}; }
  size_t idle_bytes() const;  // the most that it takes while no request uses it

 private:
  friend class Matcher;
  // With the mutex held:
  void count();  // updates what it takes
  bool must_forget() const;
  void rest();  // no request uses it: starts over if it has grown

  Source source_;
  std::string rules_;
  std::vector<std::string> notes_;
  std::shared_ptr<GrammarBytes> together_;
  size_t counted_ = 0;  // of them, its own
  const std::shared_ptr<const Automaton> automaton_;
  const std::shared_ptr<const TokenTrie> trie_;
  const size_t max_bytes_;
  std::mutex mutex_;
  std::unique_ptr<TokenMasks> masks_;  // never null
  bool has_grown_ = false;             // they have taken more than kIdleBytes since they were made
  std::vector<const Matcher*> users_;
};

class Matcher {
 public:
  // `end_of_generation`: the ids that may end an answer where the grammar accepts, and only there. `closes_in_time`:
  // an answer is complete when its tokens are used up, if it can be.
  Matcher(std::shared_ptr<Compiled> compiled, std::vector<TokenId> end_of_generation, int32_t n_choices,
          bool closes_in_time = false);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Bits of the tokens that may follow, as TokenMasks::fill; all others of the mask are 0. `n_left`: tokens that the
  // answer may still have, -1: no limit. May throw std::bad_alloc.
  // After kDead no token may follow: a sequence reaches it if it is at more places of an ambiguous grammar at once than
  // a state may hold (States::kMaxItems), which masks that take whole kinds of tokens do not foresee.
  void fill(StateId state, int32_t n_left, std::span<uint32_t> mask);
  size_t mask_words() const { return compiled_->trie_->mask_words(); }  // the fewest that fill() takes
  // The state of a choice after a token that the mask allowed; after an end, the same state.
  StateId after(int32_t choice, StateId state, TokenId token);
  // The sequence is complete and nothing may follow.
  bool is_closed(StateId state);
  bool accepts(StateId state);
  // The choice is in this state now: others that it reached may be dropped. Allocation failures are deferred to the
  // next call.
  void hold(int32_t choice, StateId state);

  const Source& source() const { return compiled_->source(); }
  Source recorded() const { return compiled_->recorded(); }
  const std::vector<std::string>& notes() const { return compiled_->notes(); }
  int32_t n_choices() const { return static_cast<int32_t>(choices_.size()); }
  bool closes_in_time() const { return closes_in_time_; }

 private:
  struct Choice {
    StateId held = kInitial;
    std::vector<StateId> come_to;  // since
  };

  std::shared_ptr<Compiled> compiled_;
  std::vector<TokenId> end_of_generation_;
  std::vector<Choice> choices_;
  bool closes_in_time_;
};

// A grammar for one vocabulary; an error if it has no text.
Result<std::shared_ptr<const Automaton>> compile(const Grammar& grammar, const TokenTrie& trie);

}  // namespace ibid::grammar
