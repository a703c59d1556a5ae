#include "engine/scheduler.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "engine/disk_tier.h"

namespace ibid {

Scheduler::Scheduler(BlockCache& cache, const SchedulerOptions& options)
    : cache_(cache),
      max_sequences_(options.max_sequences),
      policy_(make_policy(options.policy, options.budget)),
      room_(cache, *policy_, queue_, running_, options.context_len) {
  CHECK(options.budget.n_tokens >= max_sequences_ && options.budget.n_rows >= max_sequences_);
  CHECK(options.context_len > 0 && cache.n_blocks_for(options.context_len) <= cache.pool().n_total());
  const auto n = static_cast<size_t>(max_sequences_);
  running_.reserve(n);
  turn_.reserve(n);
  plan_.shares.reserve(n);
  plan_.rows.reserve(static_cast<size_t>(options.budget.n_rows));
  plan_.starved.reserve(n + 1);
}

void Scheduler::enqueue(Sequence& s) {
  s.key = policy_->key_of(s);
  queue_.push(s);
}

const StepPlan& Scheduler::plan() {
  plan_.clear();
  budget_ = policy_->budget(running_);
  turn_ = running_;
  const auto n_missing = [](const Sequence* s) { return s->n_tokens() - s->n_computed; };
  for (Sequence* s : turn_) {
    if (s->state == SequenceState::kRunning && n_missing(s) == 1) grant(*s, 1);
  }
  for (Sequence* s : turn_) {
    if (s->state == SequenceState::kRunning && n_missing(s) > 1) grant(*s, n_missing(s));
  }
  while (Sequence* s = admit_next()) grant(*s, n_missing(s));
  for (size_t i = 0; i < plan_.shares.size() && !is_full(); ++i) grant_drafts(plan_.shares[i]);
  list_rows(plan_);
  return plan_;
}

void Scheduler::grant(Sequence& s, int32_t n_tokens) {
  int32_t n = std::min(n_tokens, budget_.n_tokens - plan_.n_tokens);
  // Every token from first_row() on has a row, so as many tokens go from the end as rows are too many.
  const auto rows_of = [&s](int32_t n_of) { return std::max(0, s.n_computed + n_of - s.first_row()); };
  n -= std::max(0, std::min(n, rows_of(n) - (budget_.n_rows - plan_.n_rows)));
  if (n <= 0) return;
  try {
    if (!room_.reserve(s, s.n_computed + n, plan_)) return;
  } catch (const std::bad_alloc&) {
    return plan_.starved.push_back(s.request->id);
  }
  plan_.add({.sequence = &s, .n_tokens = n, .n_rows = std::min(n, rows_of(n))});
}

// What is left of the step goes to drafts, as far as there are blocks without taking any from anyone.
void Scheduler::grant_drafts(Share& share) {
  Sequence& s = *share.sequence;
  if (s.drafts.empty() || s.n_computed + share.n_tokens < s.n_tokens()) return;
  int32_t n = std::min({s.drafts.size(), budget_.n_tokens - plan_.n_tokens, budget_.n_rows - plan_.n_rows});
  try {
    n = room_.reserve_spare(s, s.n_tokens() + n, plan_) - s.n_tokens();
  } catch (const std::bad_alloc&) {
    return;
  }
  share.n_drafts = n;
  share.n_tokens += n;
  share.n_rows += n;
  plan_.n_tokens += n;
  plan_.n_rows += n;
}

Sequence* Scheduler::admit_next() {
  Sequence* s = queue_.front();
  if (s == nullptr || static_cast<int32_t>(running_.size()) >= max_sequences_) return nullptr;
  if (is_full() || is_known_not_to_fit(*s)) return nullptr;
  try {
    if (fetches(*s)) return admit_next();
    if (!room_.admit(*s, plan_)) {
      refusal_ = {s->id, cache_.pool().n_available(), running_.size()};
      return nullptr;
    }
  } catch (const std::bad_alloc&) {
    plan_.starved.push_back(s->request->id);
    return nullptr;
  }
  queue_.remove(*s);
  s->state = SequenceState::kRunning;
  const auto before = [](const Sequence* a, const Sequence* b) { return a->key < b->key; };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), s, before), s);
  return s;
}

// Whoever waits for a disk lets the next one go first.
bool Scheduler::fetches(Sequence& s) {
  if (disk_ == nullptr || !disk_->begin(s, static_cast<int32_t>(running_.size()), plan_.copies)) return false;
  queue_.remove(s);
  return true;
}

void Scheduler::use_disk(DiskTier& disk) {
  disk_ = &disk;
  room_.use_disk(disk);
}

bool Scheduler::is_known_not_to_fit(const Sequence& s) const {
  return refusal_.sequence == s.id && !running_.empty() && running_.size() >= refusal_.n_running &&
         cache_.pool().n_available() <= refusal_.n_available;
}

void Scheduler::remove(Sequence& s) {
  if (s.state == SequenceState::kWaiting) queue_.remove(s);
  if (s.state == SequenceState::kRunning) std::erase(running_, &s);
  if (s.state == SequenceState::kFetching) disk_->forget(s);
  room_.drop_blocks(s);
  s.state = SequenceState::kFinished;
}

}  // namespace ibid
