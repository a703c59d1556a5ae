#include "engine/step/settle.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/prefetch.h"
#include "engine/schedule/disk_tier.h"
#include "engine/state/snapshots.h"
#include "sample/grammar/matcher.h"

namespace ibid {
namespace {

// Asks for what settling the shares after the i-th will touch: together it is more than a core's nearest caches hold.
void fetch_ahead(const std::vector<Share>& shares, size_t i) {
  constexpr size_t kFar = 12, kNear = 6;  // by then a sequence is loaded, and with it the address of its tokens
  if (i + kFar < shares.size()) prefetch(*shares[i + kFar].sequence, kSequenceHead);
  if (i + kNear >= shares.size()) return;
  const Sequence& s = *shares[i + kNear].sequence;
  __builtin_prefetch(s.tokens.data() + s.tokens.size(), 1);
}

}  // namespace

Settler::Settler(BlockCache& cache, Scheduler& scheduler, DiskTier* disk, const Clock& clock, const ModelFacts& facts)
    : cache_(cache),
      scheduler_(scheduler),
      clock_(clock),
      context_len_(facts.context_len),
      window_(facts.window),
      disk_(disk) {}

// Seconds on the clock, and what of them a token of the forward pass and a row that was drawn took.
struct Settler::StepTimes {
  double begun_at, now, a_token, a_row;
};

void Settler::settle(const StepPlan& plan, double begun_at, StepResult& result, StepFailures& failures,
                     std::vector<Output>& out) {
  cache_.transferred(plan.copies);
  counts_.step_prefill_tokens = counts_.step_decode_tokens = counts_.step_drafted = counts_.step_accepted =
      counts_.step_finished = 0;
  const double now = clock_.now();
  const StepTimes times = {begun_at, now, result.forward_seconds / std::max(1, plan.n_tokens),
                           result.sample_seconds / std::max(1, plan.n_rows + result.n_first_draws)};
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    fetch_ahead(plan.shares, i);
    const Share& share = plan.shares[i];
    Sequence& s = *share.sequence;
    account(share, times);
    s.place.take_states(cache_);  // also where its share comes to nothing: what was there may be written over
    if (result.shares[i].is_unsound) {
      failures.unsound.push_back(s.request->id);
      continue;
    }
    bool is_starved = result.shares[i].out_of_memory;
    try {
      if (!is_starved) settle(share, result.shares[i], times);
    } catch (const std::bad_alloc&) {
      is_starved = true;
    }
    if (is_starved) failures.starved.push_back(s.request->id);
    if (s.group == nullptr) s.answer->take(out);
    if (!s.followers.empty()) take_followers(s, out);
  }
}

// Whose the step's time was: forward passes by tokens, drawing by rows. A piece may compute again what its sequence had
// before it was preempted, and go on after that.
void Settler::account(const Share& share, const StepTimes& times) {
  Sequence& s = *share.sequence;
  s.ledger().pass(times.begun_at, s.account.waits_as());
  if (!s.account.was_admitted) admit(s, times.begun_at);
  s.account.n_preemptions_passed = s.account.n_preemptions;
  s.answer->timing().n_preemptions = s.account.n_preemptions;  // reported also if its client leaves
  const int32_t n_again = std::clamp(s.account.n_computed_when_preempted - s.n_computed(), 0, share.n_certain());
  const Phase own = s.n_computed() + n_again < s.prompt_len ? Phase::kPrefill : Phase::kDecode;
  s.ledger().pass_step(times.now, own, times.a_token * (share.n_tokens - n_again), times.a_token * n_again,
                       times.a_row * share.n_rows);
}

void Settler::admit(Sequence& s, double begun_at) {
  s.account.was_admitted = true;
  s.answer->timing().admitted = begun_at;
  if (s.choice > 0) return;
  const int32_t n_cached = std::min(s.n_computed(), s.prompt_len);  // an answer that is resumed may be cached too
  s.answer->usage().cached_tokens = n_cached;
  counts_.prompt_tokens += s.prompt_len;
  counts_.cached_tokens += n_cached;
  counts_.n_snapshot_hits += cache_.states().keeps_states() && s.n_computed() > 0;
  counts_.tokens_without_snapshot += s.n_without_snapshot;
}

void Settler::settle(const Share& share, ShareResult& result, const StepTimes& times) {
  Sequence& s = *share.sequence;
  if (s.state == SequenceState::kFinished) return;  // another beam of its search has failed
  if (s.pools()) s.pool.add(s.n_computed(), s.n_tokens(), result.hidden);
  advance(share);
  if (s.choice == 0 && s.n_answered() == 0 && s.request->reports_progress) s.answer->set_progress(s.n_computed());
  if (s.group != nullptr) add_context(share, result);
  score(s, result.scored);
  const bool is_whole = s.n_missing() == 0;
  if (is_whole) let_followers_go(s, result, times);
  s.place.drop_states_before(cache_);
  forget_before_window(s);
  if (!is_whole) return;
  const double now = times.now;
  if (s.group != nullptr) {
    take_row(share, result, now);
  } else if (s.pools()) {
    s.answer->set_embedding(s.pool.vector());
    end(s, FinishReason::kStop, now);
  } else if (!s.may_answer()) {
    end(s, FinishReason::kLength, now);
  } else {
    append(share, result, now);
  }
}

void Settler::advance(const Share& share) {
  Sequence& s = *share.sequence;
  const bool is_decode = s.n_computed() >= s.prompt_len;
  (is_decode ? counts_.step_decode_tokens : counts_.step_prefill_tokens) += share.n_certain();
  s.place.advance(share.n_certain());
  publish(s);
  // The same prompt, asked once more, is found whole, also while this one answers.
  if (!is_decode && s.n_computed() == s.prompt_len) s.place.publish_tail(cache_, s.cache_tokens());
  leave_snapshots(s);
  save(s);
  if (share.n_kept > 0) evict(share);
}

void Settler::evict(const Share& share) {
  SequencePlace& place = share.sequence->place;
  const int32_t n_rows = place.n_rows();
  place.take_kept(cache_, share.n_kept);
  ++counts_.n_evictions;
  counts_.evicted_tokens += n_rows - share.n_kept;
}

// Of the states that it has by now; of the one that it goes on from only where there is another one to write to.
void Settler::leave_snapshots(Sequence& s) {
  const StatePool& states = cache_.states();
  for (const HeldState& held : s.place.states()) {
    if (held.n_tokens > s.n_computed() || !is_snapshot_point(s, held.n_tokens, cache_.state_step())) continue;
    const bool goes_on_from = held.n_tokens == s.n_computed();
    if (states.is_snapshot(held.state) || (goes_on_from && states.n_available() == 0)) continue;
    s.place.hold_state(cache_, s.cache_tokens(), held.n_tokens);
    if (goes_on_from) s.place.reserve_spare_state(cache_);
  }
}

void Settler::publish(Sequence& s) { s.place.publish(cache_, s.cache_tokens()); }

void Settler::save(Sequence& s) {
  if (disk_ != nullptr) disk_->save(s);
}

void Settler::score(Sequence& s, std::vector<TokenRecord>& scored) {
  for (TokenRecord& record : scored) {
    ++s.n_scored;
    s.answer->add_prompt_record(std::move(record));
  }
}

void Settler::forget_before_window(Sequence& s) {
  if (window_ > 0) s.place.release_before(cache_, s.n_computed() - window_ + 1);
}

// They go on from the prompt's end, each with the token that was drawn for it from the first one's row.
void Settler::let_followers_go(Sequence& s, ShareResult& result, const StepTimes& times) {
  for (size_t i = 0; i < s.followers.size(); ++i) {
    Sequence& follower = *s.followers[i];
    follower.ledger().pass(times.begun_at, follower.account.waits_as());
    admit(follower, times.begun_at);
    follower.ledger().pass_step(times.now, Phase::kPrefill, 0, 0, times.a_row);
    follower.answer->usage().cached_tokens = s.answer->usage().cached_tokens;
    follower.place.fork(cache_, s.place, s.prompt_len);
    if (result.first_draws.empty()) {
      end(follower, FinishReason::kLength, times.now);  // no answer is asked for
      continue;
    }
    begin_answer(follower, result.first_draws[i], times.now);
    if (follower.state != SequenceState::kFinished) scheduler_.enqueue(follower);
  }
}

void Settler::begin_answer(Sequence& s, FirstDraw& first, double now) {
  if (first.failure) return fail(s, *first.failure, now);
  s.sampler_state = first.state;
  if (s.request->sampling.mirostat != 0) s.answer->set_mirostat(first.state.mirostat_mu);
  s.account.drafts.settle(0, 0);
  grammar::Matcher* matcher = s.request->grammar.get();
  if (matcher != nullptr) matcher->hold(s.choice, first.state.grammar);
  const bool is_closed = matcher != nullptr && matcher->is_closed(first.state.grammar);
  append(s, std::move(first.drawn), now, is_closed ? FinishReason::kGrammar : first.recorded_end);
}

// What those send that were let go. Those of a request that is to fail are held still, or end with it.
void Settler::take_followers(Sequence& s, std::vector<Output>& out) {
  if (s.followers.front()->state == SequenceState::kHeld) return;
  for (Sequence* follower : std::exchange(s.followers, {})) follower->answer->take(out);
}

void Settler::append(const Share& share, ShareResult& result, double now) {
  Sequence& s = *share.sequence;
  s.sampler_state = result.state;
  if (s.request->sampling.mirostat != 0) s.answer->set_mirostat(result.state.mirostat_mu);
  s.drafts.clear();
  s.account.drafts.settle(share.n_drafts, static_cast<int32_t>(result.accepted.size()));
  s.place.keep_drafted_states(s.n_tokens(), result.accepted);
  grammar::Matcher* matcher = s.request->grammar.get();
  if (matcher != nullptr) matcher->hold(s.choice, s.sampler_state.grammar);
  const bool is_closed = matcher != nullptr && matcher->is_closed(s.sampler_state.grammar);
  const FinishReason after_all = is_closed ? FinishReason::kGrammar : result.recorded_end;
  for (size_t i = 0; i < result.drawn.size(); ++i) {
    const bool is_last = i + 1 == result.drawn.size();
    // A draft after an answer's end is none of it.
    if (i == 0) count_drafts(s, share.n_drafts);
    if (i < result.accepted.size()) count_accepted(s, i);
    append(s, std::move(result.drawn[i]), now, is_last ? after_all : FinishReason::kNone);
    if (s.state == SequenceState::kFinished) return;
  }
  if (result.failure) return fail(s, *result.failure, now);
  publish(s);
  leave_snapshots(s);
  save(s);
  s.place.keep_state(cache_);
  // What was reserved for drafts that were wrong.
  if (share.n_drafts > 0) s.place.truncate(cache_, s.n_tokens());
}

void Settler::count_drafts(Sequence& s, int32_t n) {
  if (n == 0) return;
  ++counts_.n_drafts;
  counts_.drafted_tokens += n;
  counts_.step_drafted += n;
  s.answer->usage().drafted_tokens += n;
}

void Settler::count_accepted(Sequence& s, size_t place) {
  ++counts_.accepted_tokens;
  ++counts_.step_accepted;
  ++counts_.accepted_at[std::min(place, kDraftPlaces - 1)];
  ++s.answer->usage().accepted_tokens;
}

void Settler::append(Sequence& s, TokenRecord&& drawn, double now, FinishReason following) {
  s.tokens.push_back(drawn.chosen.token);
  // What was drawn before it is a draft whose keys, values and state are in place.
  s.place.resume_at(cache_, s.n_tokens() - 1);
  ++counts_.generated_tokens;
  Timing& timing = s.answer->timing();
  if (s.n_answered() == s.answer->usage().resumed_tokens + 1) timing.first_token = now;
  timing.last_token = now;
  const FinishReason reason = s.answer->push(std::move(drawn));
  if (reason != FinishReason::kNone) {
    close(s, reason, now);
  } else if (following != FinishReason::kNone) {
    end(s, following, now);
  } else if (!s.may_answer() || s.n_tokens() >= context_len_) {
    end(s, FinishReason::kLength, now);
  }
}

void Settler::end(Sequence& s, FinishReason reason, double now) {
  if (s.state == SequenceState::kFinished) return;
  s.answer->end(reason);
  close(s, s.answer->reason(), now);
}

void Settler::fail(Sequence& s, Error error, double now) {
  if (s.state == SequenceState::kFinished) return;
  s.answer->fail(std::move(error));
  close(s, s.answer->reason(), now);
}

void Settler::close(Sequence& s, FinishReason reason, double now) {
  s.answer->timing().n_preemptions = s.account.n_preemptions;
  s.ledger().pass(now, s.account.waits_as());
  publish(s);
  s.place.leave_all(cache_, s.cache_tokens());
  save(s);
  if (disk_ != nullptr) disk_->leave(s);
  scheduler_.remove(s);
  s.place.leave(cache_.tree());
  ++counts_.n_finished, ++counts_.step_finished;
  counts_.n_cancelled += reason == FinishReason::kCancelled;
  counts_.n_failed += reason == FinishReason::kError;
}

}  // namespace ibid
