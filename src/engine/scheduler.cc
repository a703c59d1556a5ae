#include "engine/scheduler.h"

#include <algorithm>
#include <new>

#include "base/check.h"

namespace ibid {

Scheduler::Scheduler(BlockCache& cache, const SchedulerOptions& options) : cache_(cache), options_(options) {
  CHECK(options.max_tokens >= options.max_sequences && options.max_rows >= options.max_sequences);
  CHECK(options.context_len > 0 && cache.n_blocks_for(options.context_len) <= cache.pool().n_total());
  const auto n = static_cast<size_t>(options.max_sequences);
  running_.reserve(n);
  turn_.reserve(n);
  plan_.shares.reserve(n);
  plan_.rows.reserve(static_cast<size_t>(options.max_rows));
  plan_.starved.reserve(n + 1);
}

void Scheduler::enqueue(Sequence& sequence) {
  sequence.state = SequenceState::kWaiting;
  n_waiting_holders_ += !sequence.blocks.empty();
  CHECK(waiting_.size() < waiting_.capacity(), "a sequence was queued without room for it");
  const auto at = place_of(sequence);
  CHECK(at == waiting_.end() || *at != &sequence, "a sequence was queued twice");
  waiting_.insert(at, &sequence);
}

const StepPlan& Scheduler::plan() {
  plan_.clear();
  turn_ = running_;
  const auto n_missing = [](const Sequence* s) { return s->n_tokens() - s->n_computed; };
  for (Sequence* s : turn_) {
    if (s->state == SequenceState::kRunning && n_missing(s) == 1) grant(*s, 1);
  }
  for (Sequence* s : turn_) {
    if (s->state == SequenceState::kRunning && n_missing(s) > 1) grant(*s, n_missing(s));
  }
  while (Sequence* s = admit_next()) grant(*s, n_missing(s));
  for (Share& share : plan_.shares) grant_drafts(share);
  list_rows(plan_);
  return plan_;
}

std::vector<Sequence*>::iterator Scheduler::place_of(Sequence& s) {
  return std::lower_bound(waiting_.begin(), waiting_.end(), &s,
                          [](const Sequence* a, const Sequence* b) { return RunsBefore()(b, a); });
}

void Scheduler::grant(Sequence& s, int32_t n_wanted) {
  int32_t n = std::min(n_wanted, options_.max_tokens - plan_.n_tokens);
  // All tokens behind the first wanted row have one: as many go as rows are too many.
  const auto rows_of = [&s](int32_t n_tokens) { return std::max(0, s.n_computed + n_tokens - s.first_row()); };
  n -= std::max(0, std::min(n, rows_of(n) - (options_.max_rows - plan_.n_rows)));
  if (n <= 0) return;
  try {
    if (!make_writable(s, s.n_computed + n)) return;
  } catch (const std::bad_alloc&) {
    return plan_.starved.push_back(s.request->id);
  }
  plan_.shares.push_back({&s, n, std::min(n, rows_of(n))});
  plan_.n_tokens += n;
  plan_.n_rows += plan_.shares.back().n_rows;
}

// What is left of the step goes to drafts, as far as there are blocks without taking any from anyone.
void Scheduler::grant_drafts(Share& share) {
  Sequence& s = *share.sequence;
  if (s.drafts.empty() || s.n_computed + share.n_tokens < s.n_tokens()) return;
  const int32_t n_blocks = static_cast<int32_t>(s.blocks.size()) + cache_.pool().n_available();
  const int32_t n = std::min({s.drafts.size(), options_.max_tokens - plan_.n_tokens, options_.max_rows - plan_.n_rows,
                              n_blocks * cache_.block_len() - s.n_tokens()});
  if (n <= 0) return;
  try {
    if (!cache_.reserve(s.blocks, s.n_computed, s.n_tokens() + n, plan_.copies)) return;
  } catch (const std::bad_alloc&) {
    return;
  }
  share.n_drafts = n;
  share.n_tokens += n;
  share.n_rows += n;
  plan_.n_tokens += n;
  plan_.n_rows += n;
}

bool Scheduler::make_writable(Sequence& s, int32_t n_tokens) {
  while (!cache_.reserve(s.blocks, s.n_computed, n_tokens, plan_.copies)) {
    if (reclaim_for(s)) continue;
    preempt(s);
    return false;
  }
  return true;
}

// A share counts on blocks.
void Scheduler::withdraw_share(const Sequence& s) {
  const auto share = std::ranges::find(plan_.shares, &s, &Share::sequence);
  if (share == plan_.shares.end()) return;
  plan_.n_tokens -= share->n_tokens;
  plan_.n_rows -= share->n_rows;
  plan_.shares.erase(share);
}

bool Scheduler::reclaim_for(const Sequence& s) {
  if (strip_waiting(nullptr)) return true;
  for (auto it = running_.rbegin(); it != running_.rend() && *it != &s; ++it) {
    if (!(*it)->may_be_preempted()) continue;
    preempt(**it);
    return true;
  }
  return false;
}

bool Scheduler::strip_waiting(const Sequence* keep) {
  if (n_waiting_holders_ == 0) return false;
  for (Sequence* last : waiting_) {
    if (last == keep) break;
    if (last->blocks.empty()) continue;
    drop_blocks(*last);
    --n_waiting_holders_;
    return true;
  }
  return false;
}

void Scheduler::preempt(Sequence& s) {
  CHECK(s.state == SequenceState::kRunning);
  std::erase(running_, &s);
  withdraw_share(s);
  s.drafts.clear();
  cache_.publish_tail(s.scope, s.tokens, s.n_computed, s.n_published, s.blocks);
  drop_blocks(s);
  ++s.n_preemptions;
  ++n_preemptions_;
  s.n_tokens_when_preempted = s.n_tokens();
  enqueue(s);
}

Sequence* Scheduler::admit_next() {
  if (waiting_.empty() || static_cast<int32_t>(running_.size()) >= options_.max_sequences) return nullptr;
  if (plan_.n_tokens >= options_.max_tokens || plan_.n_rows >= options_.max_rows) return nullptr;
  Sequence& s = *waiting_.back();
  if (is_known_not_to_fit(s)) return nullptr;
  n_waiting_holders_ -= !s.blocks.empty();
  bool placed = false;
  try {
    placed = place(s);
    if (!placed) refusal_ = {s.id, cache_.pool().n_available(), running_.size()};
  } catch (const std::bad_alloc&) {
    plan_.starved.push_back(s.request->id);
  }
  if (!placed) {
    n_waiting_holders_ += !s.blocks.empty();
    return nullptr;
  }
  waiting_.pop_back();
  s.state = SequenceState::kRunning;
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &s, RunsBefore()), &s);
  return &s;
}

bool Scheduler::is_known_not_to_fit(const Sequence& s) const {
  return refusal_.sequence == s.id && !running_.empty() && running_.size() >= refusal_.n_running &&
         cache_.pool().n_available() <= refusal_.n_available;
}

bool Scheduler::place(Sequence& s) {
  const bool held = !s.blocks.empty();
  if (!held) {
    const auto known = std::span(s.tokens).first(static_cast<size_t>(s.n_reusable()));
    s.n_computed = cache_.match(s.scope, known, s.blocks, plan_.copies);
    s.n_published = s.n_computed / cache_.block_len();
  }
  do {
    if (admit_blocks(s)) return true;
  } while (strip_waiting(&s));
  // A block to copy needs room besides its copy: alone, a sequence of full length fits only without it.
  s.n_computed = s.n_computed / cache_.block_len() * cache_.block_len();
  cache_.truncate(s.blocks, s.n_computed);
  if (admit_blocks(s)) return true;
  if (!held) drop_blocks(s);
  return false;
}

// What runs will need a block each before long; admitting into that room would only preempt.
bool Scheduler::admit_blocks(Sequence& s) {
  const int32_t n_tokens = std::min(s.n_tokens() + 1, std::max(s.n_tokens(), options_.context_len));
  const int32_t n_kept_free = static_cast<int32_t>(running_.size());
  if (cache_.n_blocks_missing(s.blocks, s.n_computed, n_tokens) + n_kept_free > cache_.pool().n_available())
    return false;
  return cache_.reserve(s.blocks, s.n_computed, n_tokens, plan_.copies);
}

void Scheduler::remove(Sequence& s) {
  if (s.state == SequenceState::kWaiting) {
    n_waiting_holders_ -= !s.blocks.empty();
    waiting_.erase(place_of(s));
  } else if (s.state == SequenceState::kRunning) {
    std::erase(running_, &s);
  }
  drop_blocks(s);
  s.state = SequenceState::kFinished;
}

void Scheduler::drop_blocks(Sequence& s) {
  cache_.release(s.blocks);
  s.n_computed = 0;
  s.n_published = 0;
}

}  // namespace ibid
