#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <new>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "engine/disk_tier.h"
#include "engine/measure_steps.h"
#include "spec/draft_choice.h"

namespace ibid {
namespace {

constexpr size_t kMaxWindow = 1024;  // candidates for places, of all tenants
constexpr int32_t kOldestPart = 4;   // the first in order has a quarter
constexpr double kBesideOthers = 5;  // a prompt takes so many times as long beside decodes and other prompts
constexpr double kNoLimit = Policy::kNoLimit;

int32_t n_missing(const Sequence& s) { return s.n_tokens() - s.n_computed; }
// The same, of what is not known to be cached.
int32_t n_expected(const Sequence& s) { return s.n_tokens() - std::max(s.n_computed, s.n_known); }
// Before a step has been seen: what is shared is worth four decodes, or so.
double drafted_seconds(const StepLoad& load) { return 4 + load.n_decode_tokens; }

}  // namespace

Scheduler::Scheduler(BlockCache& cache, StepCost& cost, DiskTier* disk, const SchedulerOptions& options)
    : cache_(cache),
      max_sequences_(options.max_sequences),
      cost_(cost),
      new_blocks_(cache.pool().n_total(), cache.block_len()),
      policy_(make_policy(options.policy, {options.budget, options.max_itl, options.max_sequences}, cost_)),
      reads_whole_(options.reads_whole),
      shares_(policy_->shortest_first()),
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
  candidates_.reserve(n + kMaxWindow);
  flows_.reserve(n + kMaxWindow);
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
  s.key = policy_->key_of(s);
  policy_->queued(s);
  s.n_known = cache_.n_known(s.scope, std::span(s.tokens).first(static_cast<size_t>(s.n_reusable())));
  if (s.request->ttft_target > 0 && cost_.is_known()) {
    s.due -= kBesideOthers * cost_.seconds(with_prompt({}, s, s.n_known));
  }
  queue_.push(s);
}

// A target that the sequence would not keep even alone binds nobody: what is lost anyhow may not keep others out.
double Scheduler::tpot_of(const Sequence& s) const {
  const auto tpot = static_cast<double>(s.request->tpot_target);
  if (tpot <= 0) return kNoLimit;
  StepLoad alone;
  alone.add_decode(s.n_tokens());
  return policy_->may_decode(alone, tpot) ? tpot : kNoLimit;
}

void Scheduler::choose_decodes() {
  for (Sequence* s : running_) s->sits_out = false;
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
    if (n_missing(*s) != 1 || s->sits_out) continue;
    decodes.add_decode(s->n_computed);
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
  if (plan_.empty() && plan_.starved.empty() && std::ranges::any_of(running_, &Sequence::sits_out)) {
    for (Sequence* s : running_) s->sits_out = false;  // those whose turn it was found no blocks
    grant_work();
  }
  grant_drafts(spent);
  list_rows(plan_);
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
  return !reads_whole_ && new_blocks_.has(s.blocks.empty() ? cache_.pool().front() : s.blocks.back());
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
    if (n_missing(*s) > 1) window_.push_back(s);
    if (n_missing(*s) != 1 || s->sits_out) continue;
    decodes.add_decode(s->n_computed);
    tpot = std::min(tpot, tpot_of(*s));
  }
  budget_ = budget_for(decodes, tpot);
  for (Sequence* s : turn_) {
    if (s->state == SequenceState::kRunning && n_missing(*s) == 1 && !s->sits_out) grant(*s, 1);
  }
}

// ---- prompts -------------------------------------------------------------------------------------------------------

// Those that run stand in the window, but for those whom decodes have preempted.
void Scheduler::list_candidates() {
  candidates_.clear();
  std::erase_if(window_, [](const Sequence* s) { return s->state != SequenceState::kRunning; });
  const size_t n_running = window_.size();
  policy_->window(queue_, static_cast<size_t>(max_sequences_) - running_.size(), window_);
  for (size_t i = 0; i < window_.size(); ++i) {
    const Sequence& s = *window_[i];
    candidates_.push_back({window_[i], i >= n_running, policy_->turn_of(s), s.key, n_expected(s)});
  }
}

// The candidate that none is before.
template <typename Before>
const Scheduler::Candidate* Scheduler::first(Before before) const {
  const Candidate* best = nullptr;
  for (const Candidate& c : candidates_) {
    if (best == nullptr || before(c, *best)) best = &c;
  }
  return best;
}

// Among those of one flow, which have the same turn whatever is granted.
bool Scheduler::goes_before(const Candidate& a, const Candidate& b) const {
  if (!shares_) return a.key < b.key;
  return std::tuple(a.key.rank, a.n_expected, a.key.id) < std::tuple(b.key.rank, b.n_expected, b.key.id);
}

// Each flow's candidates stand together, who is next last: a grant changes the turns of whole flows.
void Scheduler::sort_candidates() {
  std::ranges::sort(candidates_, [this](const Candidate& a, const Candidate& b) {
    return a.sequence->flow != b.sequence->flow ? a.sequence->flow < b.sequence->flow : goes_before(b, a);
  });
  flows_.clear();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const bool is_first = i == 0 || candidates_[i].sequence->flow != candidates_[i - 1].sequence->flow;
    if (is_first) flows_.push_back({.begin = i});
    flows_.back().end = i + 1;
  }
}

// None where all have had their turn.
std::optional<Scheduler::Candidate> Scheduler::take_next() {
  FlowOfCandidates* best = nullptr;
  double best_turn = 0;
  for (FlowOfCandidates& flow : flows_) {
    if (flow.begin == flow.end) continue;
    const Candidate& next = candidates_[flow.end - 1];
    const double turn = policy_->turn_of(*next.sequence);
    const bool is_better =
        best == nullptr || turn < best_turn || (turn == best_turn && goes_before(next, candidates_[best->end - 1]));
    if (is_better) best = &flow, best_turn = turn;
  }
  if (best == nullptr) return {};
  return candidates_[--best->end];
}

template <typename Drops>
void Scheduler::drop_candidates(Drops drops) {
  for (FlowOfCandidates& flow : flows_) {
    const auto at = [this](size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); };
    flow.end = static_cast<size_t>(std::remove_if(at(flow.begin), at(flow.end), drops) - candidates_.begin());
  }
}

// Blocks go by order: whom they were wanting for is owed the next ones, and no other is admitted before it. Under
// pressure that is all of a long queue, which would be gone through for each of its own.
void Scheduler::drop_after_the_owed() {
  if (first_waiting_ == nullptr || refusal_.sequence != first_waiting_->id) return;
  drop_candidates([this](const Candidate& c) { return c.waits && c.sequence != first_waiting_; });
}

void Scheduler::grant_prompts() {
  list_candidates();
  if (candidates_.empty()) return;
  const auto in_order = [](const Candidate& a, const Candidate& b) {
    return a.turn != b.turn ? a.turn < b.turn : a.key < b.key;
  };
  const auto waiting_in_order = [&](const Candidate& a, const Candidate& b) {
    return a.waits != b.waits ? a.waits : in_order(a, b);
  };
  const Candidate* waiting = first(waiting_in_order);
  first_waiting_ = waiting->waits ? waiting->sequence : nullptr;
  const Sequence* oldest = first(in_order)->sequence;
  sort_candidates();
  drop_after_the_owed();
  const bool parts = shares_ && candidates_.size() > 1;
  StepBudget limit = parts ? without_part_of(oldest) : budget_;
  const int32_t n_before = plan_.n_tokens;
  bool has_looked_through = false;
  while (!is_full()) {
    const std::optional<Candidate> candidate = take_next();
    if (!candidate) break;
    if (candidate->sequence == oldest) limit = budget_;
    const int32_t n_granted = plan_.n_tokens;
    grant_prompt(*candidate, limit);
    if (candidate->sequence == first_waiting_) drop_after_the_owed();
    // A queue is long: once nothing is left, only who wants one token is asked, and the oldest, for whom some is kept.
    if (plan_.n_tokens == n_granted && !has_looked_through && is_spent(limit)) {
      has_looked_through = true;
      drop_candidates([&](const Candidate& c) { return c.n_expected > 1 && c.sequence != oldest; });
    }
  }
  // What was kept for the oldest, where that is all and it has no place or no blocks: nobody would ever get on.
  for (size_t i = 0; i < turn_.size() && plan_.n_tokens == n_before; ++i) {
    if (turn_[i]->state == SequenceState::kRunning && n_missing(*turn_[i]) > 1)
      grant_prompt({.sequence = turn_[i]}, budget_);
  }
}

// What others may use up before the first in order has had its turn.
StepBudget Scheduler::without_part_of(const Sequence* oldest) const {
  StepBudget limit = budget_;
  const int32_t n = n_expected(*oldest);
  limit.n_tokens -= std::min(n, reads_whole_ ? n : (budget_.n_tokens - plan_.n_tokens + kOldestPart - 1) / kOldestPart);
  if (limit.seconds == kNoLimit) return limit;
  const double begin = cost_.seconds(plan_.load);
  const double whole = cost_.seconds(with_prompt(plan_.load, *oldest, oldest->n_computed));
  limit.seconds -= std::min(whole - begin, std::max(0.0, limit.seconds - begin) / kOldestPart);
  return limit;
}

void Scheduler::grant_prompt(const Candidate& candidate, const StepBudget& limit) {
  Sequence& s = *candidate.sequence;
  const bool is_here = s.state == (candidate.waits ? SequenceState::kWaiting : SequenceState::kRunning);
  if (!is_here || n_within(limit, s, candidate.waits ? std::max(s.n_computed, s.n_known) : s.n_computed) <= 0) return;
  if (candidate.waits && !admit(s)) return;
  grant(s, n_within(limit, s, s.n_computed));
}

// How many of the tokens after n_computed fit. A step with decodes has some of prompts, however costly.
int32_t Scheduler::n_within(const StepBudget& limit, const Sequence& s, int32_t n_computed) const {
  const int32_t n = std::min(s.n_tokens() - n_computed, limit.n_tokens - plan_.n_tokens);
  if (reads_whole_) return n < s.n_tokens() - n_computed ? 0 : n;
  if (n <= 1 || limit.seconds == kNoLimit) return n;
  return std::max(
      cost_.n_within(limit.seconds, plan_.load, n_computed, n, s.first_row() - n_computed, comes_to_new_memory(s)),
      std::min(n, n_least(limit)));
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
  // Blocks go by order: whom they were wanting for is owed the next ones.
  const bool another_is_owed =
      first_waiting_ != &s && first_waiting_ != nullptr && refusal_.sequence == first_waiting_->id;
  if (another_is_owed || is_known_not_to_fit(s) || !keeps_targets_with(s) || fetches(s)) return false;
  if (static_cast<int32_t>(running_.size()) >= max_sequences_) {
    Sequence* giver = policy_->gives_place(running_, s);
    if (giver == nullptr) return false;
    room_.preempt(*giver, plan_);
  }
  try {
    if (!room_.admit(s, plan_)) {
      refusal_ = {s.id, cache_.pool().n_available(), running_.size()};
      return false;
    }
  } catch (const std::bad_alloc&) {
    plan_.starved.push_back(s.request->id);
    flows_.clear();  // one at a time
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
  const auto before = [](const Sequence* a, const Sequence* b) { return a->key < b->key; };
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
  const auto rows_of = [&s](int32_t n_of) { return std::max(0, s.n_computed + n_of - s.first_row()); };
  const int32_t n_beyond = rows_of(n) - (budget_.n_rows - plan_.n_rows);
  n -= std::max(0, std::min(n, n_beyond));
  if (n <= 0) return;
  try {
    if (!room_.reserve(s, s.n_computed + n, plan_)) return;
  } catch (const std::bad_alloc&) {
    return plan_.starved.push_back(s.request->id);
  }
  Share share{.sequence = &s, .n_tokens = n, .n_rows = std::min(n, rows_of(n))};
  share.n_new_positions = new_blocks_.n_positions(share);
  plan_.add(share);
  policy_->granted(s, n);
}

// What is left of the step goes to drafts: of all sequences, the likeliest first, as long as they pay.
void Scheduler::grant_drafts(double spent) {
  Share* share = likeliest_draft();
  if (share == nullptr) return;
  StepLoad load = plan_.load, decodes;
  for (const Share& decode : plan_.shares) {
    if (decode.n_tokens == 1) decodes.add_decode(decode.sequence->n_computed);
  }
  const auto seconds = [this](const StepLoad& of) {
    return cost_.is_known() ? cost_.seconds(of) : drafted_seconds(of);
  };
  const double limit = (load.n_prompt_tokens > 0 ? budget_.seconds : budget_.seconds_with_drafts) - spent;
  DraftChoice choice(decodes.n_decode_tokens, seconds(decodes));
  int32_t n_left = std::min(budget_.n_tokens - plan_.n_tokens, budget_.n_rows - plan_.n_rows);
  for (; share != nullptr && n_left > 0; share = likeliest_draft(), --n_left) {
    const Sequence& s = *share->sequence;
    StepLoad with = load;
    with.add_drafts(s.n_tokens());
    const double likely = s.drafts.likely[static_cast<size_t>(share->n_drafts)];
    const double more = cost_.is_known() ? cost_.of_drafts(load, with) : seconds(with) - seconds(load);
    // What another verifier than the coupled one takes over may not depend on the clock.
    const bool is_pinned = pins_drafts(s.request->speculation.verifier);
    if (!choice.is_worth(likely, more)) break;
    if (seconds(with) > limit && !is_pinned && !s.drafts.must_run) break;
    choice.take(likely, more);
    load = with;
    ++share->n_drafts;
  }
  for (Share& granted : plan_.shares) reserve_drafts(granted);
}

// Who has the likeliest draft that is not granted yet; null: all are. They are those of sequences that are whole.
Share* Scheduler::likeliest_draft() {
  Share* best = nullptr;
  float most = -1;
  for (Share& share : plan_.shares) {
    const Sequence& s = *share.sequence;
    const auto next = static_cast<size_t>(share.n_drafts);
    if (share.n_drafts >= s.drafts.size() || s.n_computed + share.n_tokens < s.n_tokens()) continue;
    if (s.drafts.likely[next] > most) best = &share, most = s.drafts.likely[next];
  }
  return best;
}

// As far as there are blocks without taking any from anyone.
void Scheduler::reserve_drafts(Share& share) {
  int32_t n = std::exchange(share.n_drafts, 0);
  if (n == 0) return;
  Sequence& s = *share.sequence;
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
  if (n > 0) plan_.load.add_drafts(s.n_tokens(), n);
}

// Whoever waits for a disk leaves its turn to others.
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
  if (s.key.id == SeqId::kNone) return enqueue(s);
  const bool has_place = !s.blocks.empty() && static_cast<int32_t>(running_.size()) < max_sequences_;
  has_place ? start(s) : queue_.push(s);
}

void Scheduler::rest(Sequence& s) {
  if (s.state == SequenceState::kParked) room_.unpark(s);
  s.state = SequenceState::kHeld;
  room_.drop_blocks(s);
}

bool Scheduler::is_known_not_to_fit(const Sequence& s) const {
  return refusal_.sequence == s.id && !running_.empty() && running_.size() >= refusal_.n_running &&
         cache_.pool().n_available() <= refusal_.n_available;
}

void Scheduler::remove(Sequence& s) {
  if (s.state == SequenceState::kWaiting) queue_.remove(s);
  if (s.state == SequenceState::kRunning) std::erase(running_, &s);
  if (s.state == SequenceState::kFetching) disk_->forget(s);
  if (s.state == SequenceState::kParked) room_.unpark(s);
  room_.drop_blocks(s);
  policy_->gone(s);
  s.state = SequenceState::kFinished;
}

}  // namespace ibid
