#include "engine/schedule/room.h"

#include <algorithm>

#include "base/check.h"
#include "engine/schedule/disk_tier.h"
#include "engine/state/snapshots.h"

namespace ibid {

Room::Room(BlockCache& cache, Policy& policy, WaitingQueue& queue, std::vector<Sequence*>& running, DiskTier* disk,
           int32_t context_len)
    : cache_(cache), policy_(policy), queue_(queue), running_(running), disk_(disk), context_len_(context_len) {}

bool Room::reserve(Sequence& s, int32_t n_tokens, StepPlan& plan) {
  while (!s.place.reserve(cache_, n_tokens, plan.copies) || !reserve_states(s, n_tokens)) {
    if (reclaim_for(s, plan)) continue;
    preempt(s, plan);
    return false;
  }
  return true;
}

bool Room::reserve_kept(Sequence& s, int32_t n_rows, StepPlan& plan) {
  while (!s.place.reserve_kept(cache_, n_rows, plan.copies)) {
    if (reclaim_for(s, plan)) continue;
    preempt(s, plan);
    return false;
  }
  return true;
}

// The state after the last of these tokens; those that others may go on from only where that takes none from a
// sequence.
bool Room::reserve_states(Sequence& s, int32_t n_tokens) {
  const StatePool& states = cache_.states();
  if (!states.keeps_states()) return true;
  if (!s.place.reserve_state(cache_, n_tokens)) return false;
  const int32_t step = cache_.state_step();
  for (int32_t n = s.n_computed(); (n = next_snapshot_point(s, n, step)) < n_tokens && states.n_available() > 0;)
    s.place.reserve_state_beside(cache_, n);
  return true;
}

int32_t Room::reserve_spare(Sequence& s, int32_t n_tokens, StepPlan& plan) {
  const StatePool& states = cache_.states();
  if (states.keeps_states()) n_tokens = std::min(n_tokens, s.n_tokens() + states.n_available());
  const int32_t n_blocks = static_cast<int32_t>(s.place.blocks().size()) + cache_.pool().n_available();
  n_tokens = std::min(n_tokens, n_blocks * cache_.block_len() + s.place.n_evicted());
  // Its share has made the block that it writes to its own, so that nothing is to be copied and what is counted fits.
  if (!s.place.reserve(cache_, n_tokens, plan.copies))
    n_tokens =
        std::min(n_tokens, static_cast<int32_t>(s.place.blocks().size()) * cache_.block_len() + s.place.n_evicted());
  for (int32_t n = s.n_tokens(); states.keeps_states() && n < n_tokens; ++n)
    s.place.reserve_state_beside(cache_, n + 1);
  return n_tokens;
}

bool Room::reclaim_for(const Sequence& s, StepPlan& plan) {
  if (Sequence* fetching = disk_ == nullptr ? nullptr : disk_->give_way()) {
    fetching->place.drop(cache_);
    queue_.push(*fetching);
    return true;
  }
  if (strip(parked_holder(s, false)) || strip(queue_.last_holder(nullptr))) return true;
  Sequence* victim = policy_.victim(running_, s);
  if (victim == nullptr) return false;
  preempt(*victim, plan);
  return true;
}

bool Room::strip(Sequence* holder) {
  if (holder == nullptr) return false;
  holder->place.drop(cache_);
  return true;
}

void Room::preempt(Sequence& s, StepPlan& plan) {
  CHECK(s.state == SequenceState::kRunning);
  std::erase(running_, &s);
  plan.withdraw(s);
  s.drafts.clear();
  s.account.n_computed_when_preempted = std::max(s.account.n_computed_when_preempted, s.n_computed());
  // What is not needed until it runs again, it finds again: to its last token.
  s.place.leave_all(cache_, s.cache_tokens());
  s.place.drop(cache_);
  s.account.was_sought = false;
  ++s.account.n_preemptions;
  ++n_preemptions_;
  s.account.n_tokens_when_preempted = s.n_tokens();
  queue_.push(s);
}

bool Room::admit(Sequence& s, StepPlan& plan) {
  const bool held = s.place.has_blocks();
  if (!held) {
    const auto known = s.cache_tokens().first(static_cast<size_t>(s.n_reusable()));
    s.place.match(cache_, known, plan.copies);
    s.n_without_snapshot = cache_.states().keeps_states() ? cache_.n_agreed() - s.n_computed() : 0;
  }
  // Where nothing runs, it takes from those before it too: a policy may have chosen it although they hold blocks, which
  // would never be freed.
  do {
    if (admit_blocks(s, plan)) return true;
  } while (strip(parked_holder(s, true)) ||
           strip(running_.empty() ? queue_.last_other_holder(s) : queue_.last_holder(&s)));
  // Whatever runs gives one back; what it has found until then is worth more than an early start.
  if (cache_.states().keeps_states() && cache_.states().n_available() == 0) {
    if (!held) s.place.drop(cache_);
    return false;
  }
  // A block to copy needs room besides its copy: alone, a sequence of full length fits only without it.
  s.place.rewind_to_block(cache_);
  if (admit_blocks(s, plan)) return true;
  // What was held before stays so: its blocks cannot be found by others.
  if (!held) s.place.drop(cache_);
  return false;
}

// With all blocks at once, and a state to write to, it can make progress without taking anything from anyone. What runs
// will need a block each before long; admitting into that room would only preempt.
bool Room::admit_blocks(Sequence& s, StepPlan& plan) {
  int32_t n_tokens = std::min(s.n_tokens() + 1, std::max(s.n_tokens(), context_len_));
  int32_t n_kept_free = cache_.keeps_blocks() ? static_cast<int32_t>(running_.size()) : 0;
  if (const int32_t point = s.next_point(s.n_computed()); point <= s.n_tokens()) {
    n_tokens = point;
    n_kept_free += cache_.n_blocks_for(s.request->kv_eviction.keep);
  }
  if (s.place.n_blocks_missing(cache_, n_tokens) + n_kept_free > cache_.pool().n_available()) return false;
  if (cache_.states().keeps_states() && cache_.states().n_available() == 0) return false;
  return s.place.reserve(cache_, n_tokens, plan.copies) && s.place.reserve_spare_state(cache_);
}

void Room::park(Sequence& s) {
  s.state = SequenceState::kParked;
  parked_.push_back(&s);
}

void Room::unpark(Sequence& s) { std::erase(parked_, &s); }

Sequence* Room::parked_holder(const Sequence& asker, bool is_admitted) const {
  Sequence* last = nullptr;
  for (Sequence* s : parked_) {
    const bool gives_way =
        !is_admitted || running_.empty() || s->group == asker.group || asker.account.key < s->account.key;
    if (!s->place.has_blocks() || !gives_way) continue;
    if (last == nullptr || last->account.key < s->account.key) last = s;
  }
  return last;
}

}  // namespace ibid
