#include "sample/grammar/matcher.h"

#include <algorithm>
#include <new>

namespace ibid::grammar {

Matcher::Matcher(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
                 std::vector<TokenId> end_of_generation, int32_t n_choices, bool closes_in_time)
    : masks_(std::move(automaton), std::move(trie)),
      end_of_generation_(std::move(end_of_generation)),
      held_(static_cast<size_t>(n_choices), kInitial),
      closes_in_time_(closes_in_time) {}

void Matcher::fill(StateId state, int32_t n_left, std::span<uint32_t> mask) {
  std::lock_guard lock(mutex_);
  const bool is_tight = closes_in_time_ && n_left >= 0;
  masks_.fill(state, mask, is_tight ? static_cast<uint32_t>(n_left) : TokenMasks::kNoLimit);
  if (!masks_.states().accepts(state)) return;
  for (TokenId id : end_of_generation_)
    if (static_cast<size_t>(raw(id)) < 32 * mask.size())
      mask[static_cast<size_t>(raw(id)) / 32] |= 1u << (raw(id) % 32);
}

StateId Matcher::after(StateId state, TokenId token) {
  if (std::find(end_of_generation_.begin(), end_of_generation_.end(), token) != end_of_generation_.end()) return state;
  std::lock_guard lock(mutex_);
  return masks_.after(state, token);
}

bool Matcher::is_closed(StateId state) {
  std::lock_guard lock(mutex_);
  return state != kDead && masks_.states().is_closed(state);
}

bool Matcher::accepts(StateId state) {
  std::lock_guard lock(mutex_);
  return state != kDead && masks_.states().accepts(state);
}

void Matcher::hold(int32_t choice, StateId state) {
  std::lock_guard lock(mutex_);
  held_[static_cast<size_t>(choice)] = state;
  try {
    if (masks_.is_over_budget()) masks_.forget_others(held_);
  } catch (const std::bad_alloc&) {
  }
}

Result<std::shared_ptr<const Automaton>> compile(const Grammar& grammar, const TokenTrie& trie) {
  ASSIGN_OR_RETURN(Automaton made, Automaton::compile(grammar, {.bytes = trie.single_bytes()}));
  return std::make_shared<const Automaton>(std::move(made));
}

}  // namespace ibid::grammar
