#include "sample/grammar/matcher.h"

#include <algorithm>
#include <new>

namespace ibid::grammar {

Compiled::Compiled(Source source, std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
                   size_t max_bytes, std::shared_ptr<GrammarBytes> together)
    : source_(std::move(source)),
      together_(std::move(together)),
      automaton_(std::move(automaton)),
      trie_(std::move(trie)),
      max_bytes_(max_bytes),
      masks_(std::make_unique<TokenMasks>(automaton_, trie_, max_bytes_)) {
  count();
}

Compiled::~Compiled() {
  if (together_) together_->drop(counted_);
}

void Compiled::count() {
  has_grown_ = has_grown_ || masks_->bytes() > kIdleBytes;
  if (!together_) return;
  const size_t now = idle_bytes() + std::max(masks_->bytes(), kIdleBytes) - kIdleBytes;
  now > counted_ ? together_->add(now - counted_) : together_->drop(counted_ - now);
  counted_ = now;
}

bool Compiled::must_forget() const {
  return masks_->is_over_budget() ||
         (together_ && together_->are_too_many() && masks_->bytes() > std::max(kIdleBytes, 2 * masks_->bytes_kept()));
}

// Dropping states would keep the memory that states, tables and marks have grown to.
void Compiled::rest() {
  count();
  if (!has_grown_) return;
  try {
    masks_ = std::make_unique<TokenMasks>(automaton_, trie_, max_bytes_);
  } catch (const std::bad_alloc&) {
    return;  // and when the next user has gone
  }
  has_grown_ = false;
  count();
}

size_t Compiled::idle_bytes() const {
  size_t bytes = automaton_->bytes() + kIdleBytes + source_.text.size() + rules_.size() + sizeof *this;
  for (const std::string& note : notes_) bytes += note.size() + sizeof note;
  for (const std::string& choice : source_.choices) bytes += choice.size() + sizeof choice;
  return bytes;
}

Matcher::Matcher(std::shared_ptr<Compiled> compiled, std::vector<TokenId> end_of_generation, int32_t n_choices,
                 bool closes_in_time)
    : compiled_(std::move(compiled)),
      end_of_generation_(std::move(end_of_generation)),
      choices_(static_cast<size_t>(n_choices)),
      closes_in_time_(closes_in_time) {
  std::lock_guard lock(compiled_->mutex_);
  compiled_->users_.push_back(this);
}

Matcher::~Matcher() {
  std::lock_guard lock(compiled_->mutex_);
  std::erase(compiled_->users_, this);
  if (compiled_->users_.empty()) compiled_->rest();
}

void Matcher::fill(StateId state, int32_t n_left, std::span<uint32_t> mask) {
  if (state == kDead) return void(std::ranges::fill(mask, 0));
  std::lock_guard lock(compiled_->mutex_);
  TokenMasks& masks = *compiled_->masks_;
  const bool is_tight = closes_in_time_ && n_left >= 0;
  masks.fill(state, mask, is_tight ? static_cast<uint32_t>(n_left) : TokenMasks::kNoLimit);
  const bool accepts = masks.states().accepts(state);
  for (TokenId id : end_of_generation_) {
    if (static_cast<size_t>(raw(id)) >= 32 * mask.size()) continue;
    uint32_t& word = mask[static_cast<size_t>(raw(id)) / 32];
    const uint32_t bit = 1u << (raw(id) % 32);
    if (accepts) {
      word |= bit;
    } else if (word & bit) {  // the grammar names it: where it is a text's last, and not as one of many that may come
      const StateId following = masks.after(state, id);
      if (following == kDead || !masks.states().accepts(following)) word &= ~bit;
    }
  }
}

StateId Matcher::after(int32_t choice, StateId state, TokenId token) {
  if (std::find(end_of_generation_.begin(), end_of_generation_.end(), token) != end_of_generation_.end()) return state;
  std::lock_guard lock(compiled_->mutex_);
  const StateId next = compiled_->masks_->after(state, token);
  choices_[static_cast<size_t>(choice)].come_to.push_back(next);
  return next;
}

bool Matcher::is_closed(StateId state) {
  std::lock_guard lock(compiled_->mutex_);
  return state != kDead && compiled_->masks_->states().is_closed(state);
}

bool Matcher::accepts(StateId state) {
  std::lock_guard lock(compiled_->mutex_);
  return state != kDead && compiled_->masks_->states().accepts(state);
}

void Matcher::hold(int32_t choice, StateId state) {
  std::lock_guard lock(compiled_->mutex_);
  choices_[static_cast<size_t>(choice)].held = state;
  choices_[static_cast<size_t>(choice)].come_to.clear();
  compiled_->count();
  if (!compiled_->must_forget()) return;
  try {
    std::vector<StateId> live;
    for (const Matcher* user : compiled_->users_) {
      for (const Choice& c : user->choices_) {
        live.push_back(c.held);
        live.insert(live.end(), c.come_to.begin(), c.come_to.end());
      }
    }
    compiled_->masks_->forget_others(live);
  } catch (const std::bad_alloc&) {
  }
  compiled_->count();
}

Result<std::shared_ptr<const Automaton>> compile(const Grammar& grammar, const TokenTrie& trie) {
  ASSIGN_OR_RETURN(Automaton made, Automaton::compile(grammar, {.bytes = trie.single_bytes()}));
  return std::make_shared<const Automaton>(std::move(made));
}

}  // namespace ibid::grammar
