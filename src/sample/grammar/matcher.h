// Compiled: a grammar at work for all requests that ask for it; what its states and masks are is found out once.
// Matcher: one request's place in that, for all its choices: masks of its rows and the states of its texts.
//
// A state is an integer that its sequence keeps. It stays valid while a choice holds it, or has come to it since the
// choice last held one: so a row that is drawn on trial goes from state to state and has nothing to undo, and others
// who ask for the same grammar take nothing away. All from any thread at once.
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

// What the grammars of one model take together, kept ones and those that requests use. From any thread.
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
  // `together` may be null. Where they are too many, it forgets what it can of its states and masks.
  Compiled(Source source, std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
           size_t max_bytes = TokenMasks::kDefaultBytes, std::shared_ptr<GrammarBytes> together = nullptr);
  ~Compiled();
  // What is remembered of states and masks while nobody uses them.
  static constexpr size_t kIdleBytes = 256 << 10;

  const Source& source() const { return source_; }
  // Before anybody uses it: what was asked for and is not held (Grammar::notes).
  void set_notes(std::vector<std::string> notes) { notes_ = std::move(notes); }
  const std::vector<std::string>& notes() const { return notes_; }
  // Of a grammar that a caller made: what it is, for records.
  void set_rules(std::string rules) { rules_ = std::move(rules); }
  Source recorded() const { return rules_.empty() ? source_ : Source{.language = Language::kMade, .text = rules_}; }
  size_t idle_bytes() const;  // the most that it takes while nobody uses it

 private:
  friend class Matcher;
  // With the mutex held:
  void count();  // what it has come to take
  bool must_forget() const;
  void rest();  // nobody uses it: begins again where it has grown

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
  // `end_of_generation`: the ids that may end an answer where the grammar accepts, and nowhere else. `closes_in_time`:
  // an answer is complete when its tokens are used up, if it can be.
  Matcher(std::shared_ptr<Compiled> compiled, std::vector<TokenId> end_of_generation, int32_t n_choices,
          bool closes_in_time = false);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Bits of the tokens that may follow, as TokenMasks::fill; all others of the mask are 0. `n_left`: tokens that the
  // answer may still have, -1: no limit. May throw std::bad_alloc.
  // Of kDead none may follow: a text comes there where it stands at more places of an ambiguous grammar at once than a
  // state may hold (States::kMaxItems), which masks that take whole kinds of tokens do not foresee.
  void fill(StateId state, int32_t n_left, std::span<uint32_t> mask);
  size_t mask_words() const { return compiled_->trie_->mask_words(); }  // the fewest that fill() takes
  // The state after a token that the mask allowed, for a choice; of an end, the same state.
  StateId after(int32_t choice, StateId state, TokenId token);
  // The text is complete and nothing may follow.
  bool is_closed(StateId state);
  bool accepts(StateId state);
  // The choice stands there now: others that it came to may be forgotten. Allocation failures are put off to the next
  // call.
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

// A grammar for one vocabulary, with a sentence where it has no text.
Result<std::shared_ptr<const Automaton>> compile(const Grammar& grammar, const TokenTrie& trie);

}  // namespace ibid::grammar
