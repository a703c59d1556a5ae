#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"
#include "engine/schedule/disk_tier.h"
#include "engine/schedule/draft_grants.h"
#include "engine/state/step_load.h"
#include "model/vision/prompt_pictures.h"

namespace ibid {
namespace {

constexpr size_t kMaxWindow = 1024;  // candidates for places, of all tenants
constexpr int32_t kOldestPart = 4;   // the first in order has a quarter
constexpr double kBesideOthers = 5;  // a prompt takes so many times as long beside decodes and other prompts
constexpr double kNoLimit = Policy::kNoLimit;

}  // namespace

Scheduler::Scheduler(BlockCache& cache, StepCost& cost, DiskTier* disk, const SchedulerOptions& options)
    : cache_(cache),
      max_sequences_(options.max_sequences),
      cost_(cost),
      new_blocks_(cache.pool().n_total(), cache.block_len()),
      policy_(make_policy(options.policy, {options.budget, options.max_itl, options.max_sequences}, cost_)),
      reads_whole_(options.reads_whole),
      sees_whole_pictures_(options.sees_whole_pictures),
      shares_(policy_->shortest_first()),
      turns_(*policy_, static_cast<size_t>(max_sequences_) + kMaxWindow),
      room_(cache, *policy_, queue_, running_, disk, options.context_len),
      disk_(disk),
      fair_limit_(kNoLimit) {
  CHECK(options.budget.n_tokens >= max_sequences_ && options.budget.n_rows >= max_sequences_);
  CHECK(!reads_whole_ || options.budget.n_tokens >= options.context_len, "a text that no step has room for");
  CHECK(options.context_len > 0 && cache.n_blocks_for(options.context_len) <= cache.pool().n_total());
  const auto n = static_cast<size_t>(max_sequences_);
  running_.reserve(n);
  turn_.reserve(n);
  window_.reserve(n + kMaxWindow);
  plan_.shares.reserve(n);
  plan_.rows.reserve(static_cast<size_t>(options.budget.n_rows));
  plan_.starved.reserve(2 * n + kMaxWindow);
}

void Scheduler::make_room(const Request& request, size_t n_sequences) {
  queue_.make_room(n_sequences);
  room_.make_room(n_sequences);
  policy_->meet(request);
}

void Scheduler::enqueue(Sequence& s) {
  s.account.key = policy_->key_of(s);
  policy_->queued(s);
  s.account.n_known = cache_.n_known(s.place.scope(), s.cache_tokens().first(static_cast<size_t>(s.n_reusable())));
  if (s.request->ttft_target > 0 && cost_.is_known()) {
    s.account.due -= kBesideOthers * cost_.seconds(with_prompt({}, s, s.account.n_known));
  }
  queue_.push(s);
}

// A target that the sequence would not keep even alone is ignored: what is lost anyhow may not keep others out.
double Scheduler::tpot_of(const Sequence& s) const {
  const auto tpot = static_cast<double>(s.request->tpot_target);
  if (tpot <= 0) return kNoLimit;
  StepLoad alone;
  alone.add_decode(s.n_tokens());
  return policy_->may_decode(alone, tpot) ? tpot : kNoLimit;
}

void Scheduler::choose_decodes() {
  for (Sequence* s : running_) s->account.sits_out = false;
  fair_limit_ = policy_->choose_decodes(running_);
}

// Prompts and drafts keep at least the part of the step that they have beside one tenant's decodes.
StepBudget Scheduler::budget_for(const StepLoad& decodes, double tpot) const {
  StepBudget budget = policy_->budget(decodes, tpot);
  if (fair_limit_ == kNoLimit || decodes.empty()) return budget;
  const double fair = std::max(fair_limit_, cost_.seconds(decodes) / (1 - kLeastPromptShare));
  budget.seconds = std::min(budget.seconds, fair);
  budget.seconds_with_drafts = std::min(budget.seconds_with_drafts, fair);
  return budget;
}

StepPrices Scheduler::prices() const {
  StepLoad decodes, with;
  double tpot = kNoLimit;
  for (const Sequence* s : running_) {
    if (s->n_missing() != 1 || s->account.sits_out) continue;
    decodes.add_decode(s->place.n_rows());
    tpot = std::min(tpot, tpot_of(*s));
  }
  StepPrices prices{.n_decodes = std::max(1, decodes.n_decode_tokens),
                    .limit = budget_for(decodes, tpot).seconds_with_drafts};
  if (!cost_.is_known() || decodes.n_decode_tokens == 0) return prices;
  with = decodes;
  with.add_drafts(decodes.decode_reads / decodes.n_decode_tokens);
  prices.step = cost_.seconds(decodes);
  prices.row = cost_.of_drafts(decodes, with);
  return prices;
}

const StepPlan& Scheduler::plan(double spent) {
  plan_.clear();
  grant_work();
  if (plan_.empty() && plan_.starved.empty() &&
      std::ranges::any_of(running_, [](const Sequence* s) { return s->account.sits_out; })) {
    for (Sequence* s : running_) s->account.sits_out = false;  // those whose turn it was found no blocks
    grant_work();
  }
  grant_drafts(plan_, budget_, cost_, room_, spent);
  list_rows(plan_);
  plan_.state_copies = cache_.state_copies();
  new_blocks_.write(plan_);
  if (cost_.is_known()) plan_.seconds = cost_.seconds(plan_.load);
  return plan_;
}

void Scheduler::took(double seconds) {
  if (plan_.copies.empty()) cost_.observe(plan_.load, seconds);
}

void Scheduler::took(const MeasuredStep& step) {
  for (int32_t i = 0; i < std::min(kMeasuredBlocks, cache_.pool().n_total()); ++i) new_blocks_.write(BlockId{i});
  cost_.observe(step.load, step.seconds);
}

void Scheduler::grant_work() {
  turn_ = running_;
  grant_decodes();
  grant_prompts();
}

// Will the blocks of its next tokens be new? Who waits has those that the pool gives next.
bool Scheduler::comes_to_new_memory(const Sequence& s) const {
  return !reads_whole_ && new_blocks_.has(s.place.has_blocks() ? s.place.blocks().back() : cache_.pool().front());
}

// And all that is left of its prompt, after n_before tokens.
StepLoad Scheduler::with_prompt(StepLoad load, const Sequence& s, int32_t n_before) const {
  const int32_t n = n_expected(s);
  load.add_prompt(n_before, n, 1);
  if (comes_to_new_memory(s)) load.n_new_positions += n;
  return load;
}

void Scheduler::grant_decodes() {
  StepLoad decodes;
  double tpot = kNoLimit;
  running_tpot_ = kNoLimit;
  window_.clear();
  for (Sequence* s : turn_) {
    running_tpot_ = std::min(running_tpot_, tpot_of(*s));
    if (s->n_missing() > 1) window_.push_back(s);
    if (s->n_missing() != 1 || s->account.sits_out) continue;
    decodes.add_decode(s->place.n_rows());
    tpot = std::min(tpot, tpot_of(*s));
  }
  budget_ = budget_for(decodes, tpot);
  for (Sequence* s : turn_) {
    if (s->state == SequenceState::kRunning && s->n_missing() == 1 && !s->account.sits_out) grant(*s, 1);
  }
}

// ---- prompts -------------------------------------------------------------------------------------------------------

// Those that run, but for those whom decodes have preempted, and those of the queue that may come in.
void Scheduler::list_prompts() {
  std::erase_if(window_, [](const Sequence* s) { return s->state != SequenceState::kRunning; });
  const size_t n_running = window_.size();
  policy_->window(queue_, static_cast<size_t>(max_sequences_) - running_.size(), window_);
  const auto window = std::span<Sequence* const>(window_);
  turns_.list(window.first(n_running), window.subspan(n_running));
}

// Blocks go by order: the first that waits and found none is owed the next ones, and no other is admitted before it.
// Under pressure that is all of a long queue, which would be gone through for each of its own.
void Scheduler::drop_after_the_owed() {
  const Sequence* owed = turns_.first_waiting();
  if (owed == nullptr || refusal_.sequence != owed->id) return;
  turns_.drop_if([owed](const PromptTurns::Candidate& c) { return c.waits && c.sequence != owed; });
}

void Scheduler::grant_prompts() {
  list_prompts();
  if (turns_.empty()) return;
  const Sequence* oldest = turns_.oldest();
  drop_after_the_owed();
  const bool parts = shares_ && turns_.n() > 1;
  StepBudget limit = parts ? without_part_of(oldest) : budget_;
  const int32_t n_before = plan_.n_tokens;
  bool has_looked_through = false;
  while (!is_full()) {
    const std::optional<PromptTurns::Candidate> candidate = turns_.take_next();
    if (!candidate) break;
    if (candidate->sequence == oldest) limit = budget_;
    const int32_t n_granted = plan_.n_tokens;
    grant_prompt(*candidate->sequence, candidate->waits, limit);
    if (candidate->sequence == turns_.first_waiting()) drop_after_the_owed();
    // A queue is long: once nothing is left, only prompts of one token are asked, and the oldest, for whom some is
    // kept.
    if (plan_.n_tokens == n_granted && !has_looked_through && is_spent(limit)) {
      has_looked_through = true;
      turns_.drop_if([&](const PromptTurns::Candidate& c) { return c.n_expected > 1 && c.sequence != oldest; });
    }
  }
  // What was kept for the oldest, where that is all and it has no place or no blocks: no prompt would ever get on.
  for (size_t i = 0; i < turn_.size() && plan_.n_tokens == n_before; ++i) {
    if (turn_[i]->state == SequenceState::kRunning && turn_[i]->n_missing() > 1)
      grant_prompt(*turn_[i], false, budget_);
  }
}

// What others may use up before the first in order has had its turn.
StepBudget Scheduler::without_part_of(const Sequence* oldest) const {
  StepBudget limit = budget_;
  const int32_t n = n_expected(*oldest);
  const int32_t n_together = oldest->request->kv_eviction ? oldest->request->kv_eviction.n_together() : 0;
  const int32_t n_part = std::max((budget_.n_tokens - plan_.n_tokens + kOldestPart - 1) / kOldestPart, n_together);
  limit.n_tokens -= std::min(n, reads_whole_ ? n : n_part);
  if (limit.seconds == kNoLimit) return limit;
  const double begin = cost_.seconds(plan_.load);
  const double whole = cost_.seconds(with_prompt(plan_.load, *oldest, oldest->n_computed()));
  limit.seconds -= std::min(whole - begin, std::max(0.0, limit.seconds - begin) / kOldestPart);
  return limit;
}

void Scheduler::grant_prompt(Sequence& s, bool waits, const StepBudget& limit) {
  const bool is_here = s.state == (waits ? SequenceState::kWaiting : SequenceState::kRunning);
  if (!is_here || n_within(limit, s, waits ? std::max(s.n_computed(), s.account.n_known) : s.n_computed()) <= 0) return;
  if (waits && !admit(s)) return;
  grant(s, n_within(limit, s, s.n_computed()));
}

// How many of the tokens after n_computed fit. A step with decodes has some of prompts, however costly.
int32_t Scheduler::n_within(const StepBudget& limit, const Sequence& s, int32_t n_computed) const {
  const int32_t n = std::min(s.n_tokens() - n_computed, limit.n_tokens - plan_.n_tokens);
  if (reads_whole_) return n < s.n_tokens() - n_computed ? 0 : n;
  const auto cut = [&](int32_t to) { return without_part(s, n_computed, to, limit.n_tokens - plan_.n_tokens); };
  if (n <= 1 || limit.seconds == kNoLimit) return cut(n);
  return cut(std::max(
      cost_.n_within(limit.seconds, plan_.load, n_computed, n, s.first_row() - n_computed, comes_to_new_memory(s)),
      std::min(n, n_least(limit))));
}

int32_t Scheduler::without_part(const Sequence& s, int32_t n_computed, int32_t n, int32_t n_most) const {
  n = without_part_of_picture(s, n_computed, n, n_most);
  const int32_t point = s.next_point(n_computed);
  if (point == KvEviction::kNever || n <= 0) return n;
  const int32_t whole = point - n_computed, begin = whole - s.request->kv_eviction.n_together();
  if (n >= whole) return whole;  // the next step sees fewer rows
  if (n <= begin) return n;
  if (begin > 0) return begin;
  return whole <= n_most ? whole : 0;  // however long it takes
}

int32_t Scheduler::without_part_of_picture(const Sequence& s, int32_t n_computed, int32_t n, int32_t n_most) const {
  if (!sees_whole_pictures_ || s.request->pictures == nullptr || n <= 0) return n;
  const PlacedPicture* const next = s.request->pictures->at(n_computed + n);
  if (next == nullptr || next->first == n_computed + n) return n;
  if (next->first > n_computed) return next->first - n_computed;
  const int32_t whole = next->end() - n_computed;  // however long it takes
  return whole <= n_most ? whole : 0;
}

int32_t Scheduler::n_least(const StepBudget& limit) const {
  const int32_t n_kept = limit.seconds < budget_.seconds ? kLeastPromptTokens / kOldestPart : 0;
  return kLeastPromptTokens - n_kept - plan_.load.n_prompt_tokens;
}

// No token of a prompt fits any more, not even the cheapest.
bool Scheduler::is_spent(const StepBudget& limit) const {
  if (reads_whole_) return limit.n_tokens <= plan_.n_tokens;
  return limit.n_tokens <= plan_.n_tokens ||
         (limit.seconds != kNoLimit && n_least(limit) <= 0 && cost_.n_within(limit.seconds, plan_.load, 0, 1, 1) <= 0);
}

bool Scheduler::admit(Sequence& s) {
  const Sequence* first = turns_.first_waiting();  // it is owed the next blocks, if it found none
  const bool another_is_owed = first != &s && first != nullptr && refusal_.sequence == first->id;
  if (another_is_owed || is_known_not_to_fit(s) || !keeps_targets_with(s) || fetches(s)) return false;
  if (static_cast<int32_t>(running_.size()) >= max_sequences_) {
    Sequence* giver = policy_->gives_place(running_, s);
    if (giver == nullptr) return false;
    room_.preempt(*giver, plan_);
  }
  try {
    if (!room_.admit(s, plan_)) {
      refusal_ = {s.id, n_available(), running_.size()};
      return false;
    }
  } catch (const std::bad_alloc&) {
    plan_.starved.push_back(s.request->id);
    turns_.drop_all();  // one at a time
    return false;
  }
  queue_.remove(s);
  running_tpot_ = std::min(running_tpot_, tpot_of(s));
  if (refusal_.sequence == s.id) refusal_ = {};
  start(s);
  return true;
}

void Scheduler::start(Sequence& s) {
  s.state = SequenceState::kRunning;
  const auto before = [](const Sequence* a, const Sequence* b) { return a->account.key < b->account.key; };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &s, before), &s);
}

// Whether it and those of its tenant keep their targets for the time between tokens, once it decodes too. What a tenant
// asks for keeps no other one out.
bool Scheduler::keeps_targets_with(const Sequence& s) const {
  double tpot = tpot_of(s);
  if (running_.empty() || std::min(tpot, running_tpot_) == kNoLimit) return true;
  StepLoad decodes;
  decodes.add_decode(s.n_tokens());
  for (const Sequence* r : running_) {
    decodes.add_decode(r->n_tokens());
    if (r->request->tenant == s.request->tenant) tpot = std::min(tpot, tpot_of(*r));
  }
  return policy_->may_decode(decodes, tpot);
}

// ---- shares --------------------------------------------------------------------------------------------------------

void Scheduler::grant(Sequence& s, int32_t n_tokens) {
  int32_t n = std::min(n_tokens, budget_.n_tokens - plan_.n_tokens);
  // Every token from first_row() on has a row, so as many tokens go from the end as rows are too many.
  const auto rows_of = [&s](int32_t n_of) { return std::max(0, s.n_computed() + n_of - s.first_row()); };
  const int32_t n_beyond = rows_of(n) - (budget_.n_rows - plan_.n_rows);
  n -= std::max(0, std::min(n, n_beyond));
  n = without_part(s, s.n_computed(), n, n);  // no more than there are rows for
  if (n <= 0) return;
  const bool evicts = s.next_point(s.n_computed()) == s.n_computed() + n;
  const int32_t n_kept = evicts ? s.request->kv_eviction.keep : 0;
  try {
    if (!room_.reserve(s, s.n_computed() + n, plan_)) return;
    if (evicts && !room_.reserve_kept(s, n_kept, plan_)) return;
  } catch (const std::bad_alloc&) {
    return plan_.starved.push_back(s.request->id);
  }
  Share share{.sequence = &s, .n_tokens = n, .n_rows = std::min(n, rows_of(n)), .n_kept = n_kept};
  share.n_new_positions = new_blocks_.n_positions(share);
  plan_.add(share);
  policy_->granted(s, n);
}

// A sequence that waits for a disk leaves its turn to others.
bool Scheduler::fetches(Sequence& s) try {
  if (disk_ == nullptr || !disk_->begin(s, static_cast<int32_t>(running_.size()), plan_.copies)) return false;
  queue_.remove(s);
  return true;
} catch (const std::bad_alloc&) {
  plan_.starved.push_back(s.request->id);
  return true;
}

void Scheduler::park(Sequence& s) {
  CHECK(s.state == SequenceState::kRunning);
  std::erase(running_, &s);
  room_.park(s);
}

void Scheduler::resume(Sequence& s) {
  if (s.state == SequenceState::kParked) room_.unpark(s);
  if (s.account.key.id == SeqId::kNone) return enqueue(s);
  const bool has_place = s.place.has_blocks() && static_cast<int32_t>(running_.size()) < max_sequences_;
  has_place ? start(s) : queue_.push(s);
}

void Scheduler::rest(Sequence& s) {
  if (s.state == SequenceState::kParked) room_.unpark(s);
  s.state = SequenceState::kHeld;
  s.place.drop(cache_);
}

bool Scheduler::is_known_not_to_fit(const Sequence& s) const {
  return refusal_.sequence == s.id && !running_.empty() && running_.size() >= refusal_.n_running &&
         n_available() <= refusal_.n_available;
}

// Blocks and states: with more of either, who did not fit may fit.
int32_t Scheduler::n_available() const { return cache_.pool().n_available() + cache_.states().n_available(); }

void Scheduler::remove(Sequence& s) {
  if (s.state == SequenceState::kWaiting) queue_.remove(s);
  if (s.state == SequenceState::kRunning) std::erase(running_, &s);
  if (s.state == SequenceState::kFetching) disk_->forget(s);
  if (s.state == SequenceState::kParked) room_.unpark(s);
  s.place.drop(cache_);
  policy_->gone(s);
  s.state = SequenceState::kFinished;
}

}  // namespace ibid
