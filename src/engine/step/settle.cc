#include "engine/step/settle.h"

#include <algorithm>
#include <limits>
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
                           result.sample_seconds / std::max(1, plan.n_rows)};
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    fetch_ahead(plan.shares, i);
    const Share& share = plan.shares[i];
    Sequence& s = *share.sequence;
    account(share, times);
    take_states(s);
    if (result.shares[i].is_unsound) {
      failures.unsound.push_back(s.request->id);
      continue;
    }
    bool is_starved = result.shares[i].out_of_memory;
    try {
      if (!is_starved) settle(share, result.shares[i], now);
    } catch (const std::bad_alloc&) {
      is_starved = true;
    }
    if (is_starved) failures.starved.push_back(s.request->id);
    if (s.group == nullptr) s.answer->take(out);
  }
}

// Whose the step's time was: forward passes by tokens, drawing by rows. A piece may compute again what its sequence had
// before it was preempted, and go on after that.
void Settler::account(const Share& share, const StepTimes& times) {
  Sequence& s = *share.sequence;
  s.ledger().pass(times.begun_at, s.waits_as());
  if (!s.was_admitted) admit(s, times.begun_at);
  s.n_preemptions_passed = s.answer->timing().n_preemptions = s.n_preemptions;  // reported also if its client leaves
  const int32_t n_again = std::clamp(s.n_computed_when_preempted - s.n_computed, 0, share.n_certain());
  const Phase own = s.n_computed + n_again < s.prompt_len ? Phase::kPrefill : Phase::kDecode;
  s.ledger().pass_step(times.now, own, times.a_token * (share.n_tokens - n_again), times.a_token * n_again,
                       times.a_row * share.n_rows);
}

void Settler::admit(Sequence& s, double begun_at) {
  s.was_admitted = true;
  s.answer->timing().admitted = begun_at;
  if (s.choice > 0) return;
  s.answer->usage().cached_tokens = s.n_computed;
  counts_.prompt_tokens += s.prompt_len;
  counts_.cached_tokens += s.n_computed;
}

// What the step wrote is the sequence's now, even where the rest of its share comes to nothing: it may have been
// written over what was there.
void Settler::take_states(Sequence& s) {
  if (s.next_states.empty()) return;  // it has none, or has ended
  cache_.release(s.states);
  s.states.swap(s.next_states);
}

void Settler::settle(const Share& share, ShareResult& result, double now) {
  Sequence& s = *share.sequence;
  if (s.state == SequenceState::kFinished) return;  // another beam of its search has failed
  if (s.pools()) s.pool.add(s.n_computed, s.n_tokens(), result.hidden);
  advance(share);
  if (s.choice == 0 && s.n_answered() == 0 && s.request->tells_progress) s.answer->set_progress(s.n_computed);
  if (s.group != nullptr) add_context(share, result);
  score(s, result.scored);
  const bool is_whole = s.n_computed == s.n_tokens();
  if (is_whole) let_followers_go(s);
  cache_.drop_states_before(s.states, s.n_computed);
  forget_before_window(s);
  if (!is_whole) return;
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
  const bool is_decode = s.n_computed >= s.prompt_len;
  (is_decode ? counts_.step_decode_tokens : counts_.step_prefill_tokens) += share.n_certain();
  s.n_computed += share.n_certain();
  publish(s);
  // The same prompt, asked once more, is found whole, also while this one answers.
  if (!is_decode && s.n_computed == s.prompt_len)
    cache_.publish_tail(s.scope, s.tokens, s.n_computed, s.n_published, s.blocks);
  leave_snapshots(s);
}

// Of the states that it has by now; of the one that it goes on from only where there is another one to write to.
void Settler::leave_snapshots(Sequence& s) {
  const StatePool& states = cache_.states();
  for (const HeldState& held : s.states) {
    if (held.n_tokens > s.n_computed || !is_snapshot_point(s, held.n_tokens, cache_.state_step())) continue;
    const bool goes_on_from = held.n_tokens == s.n_computed;
    if (states.is_snapshot(held.state) || (goes_on_from && states.n_available() == 0)) continue;
    cache_.hold_state(s.scope, s.tokens, held.n_tokens, s.n_published, s.blocks, held.state);
    if (goes_on_from) cache_.reserve_spare_state(s.states, s.n_computed, s.next_states);
  }
}

// The states after drafts: of those that were right each is now after as many tokens as its sequence has with it.
void Settler::keep_states_of(Sequence& s, const std::vector<int32_t>& accepted) {
  constexpr int32_t kRefused = std::numeric_limits<int32_t>::max();
  for (HeldState& held : s.states) {
    if (held.n_tokens <= s.n_tokens()) continue;
    const auto draft = std::ranges::find(accepted, held.n_tokens - s.n_tokens() - 1);
    held.n_tokens =
        draft == accepted.end() ? kRefused : s.n_tokens() + 1 + static_cast<int32_t>(draft - accepted.begin());
  }
}

void Settler::publish(Sequence& s) {
  s.n_published = cache_.publish(s.scope, s.tokens, s.n_computed, s.n_published, s.blocks);
  if (disk_ != nullptr) disk_->save(s);
}

void Settler::score(Sequence& s, std::vector<TokenRecord>& scored) {
  for (TokenRecord& record : scored) {
    ++s.n_scored;
    s.answer->add_prompt_record(std::move(record));
  }
}

void Settler::forget_before_window(Sequence& s) {
  if (window_ > 0) cache_.release_before(s.n_computed - window_ + 1, s.n_published, s.blocks);
}

void Settler::let_followers_go(Sequence& s) {
  if (s.followers.empty()) return;
  for (Sequence* follower : std::exchange(s.followers, {})) {
    // Each computes the prompt's last token itself: it needs that row of logits anyway.
    const int32_t n = cache_.fork(s.blocks, s.states, s.prompt_len - 1, follower->blocks, follower->states);
    follower->n_computed = n;
    follower->n_published = std::min(s.n_published, follower->n_computed / cache_.block_len());
    follower->answer->usage().cached_tokens = s.answer->usage().cached_tokens;
    scheduler_.enqueue(*follower);
  }
}

void Settler::append(const Share& share, ShareResult& result, double now) {
  Sequence& s = *share.sequence;
  s.sampler_state = result.state;
  s.drafts.clear();
  s.draft_account.settle(share.n_drafts, static_cast<int32_t>(result.accepted.size()));
  keep_states_of(s, result.accepted);
  grammar::Matcher* matcher = s.request->grammar.get();
  if (matcher != nullptr) matcher->hold(s.choice, s.sampler_state.grammar);
  const bool is_closed = matcher != nullptr && matcher->is_closed(s.sampler_state.grammar);
  const FinishReason after_all = is_closed ? FinishReason::kGrammar : result.told_end;
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
  cache_.keep_state(s.states, s.n_computed);
  // What was reserved for drafts that were wrong.
  if (share.n_drafts > 0) cache_.truncate(s.blocks, s.n_tokens());
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
  s.n_computed = cache_.resume_point(s.blocks, s.states, s.n_tokens() - 1);
  ++counts_.generated_tokens;
  Timing& timing = s.answer->timing();
  if (s.n_answered() == 1) timing.first_token = now;
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
  s.answer->timing().n_preemptions = s.n_preemptions;
  s.ledger().pass(now, s.waits_as());
  publish(s);
  cache_.publish_tail(s.scope, s.tokens, s.n_computed, s.n_published, s.blocks);
  if (const StateId state = state_after(s.states, s.n_computed); state != StateId::kNone)
    cache_.hold_state(s.scope, s.tokens, s.n_computed, s.n_published, s.blocks, state);
  if (disk_ != nullptr) disk_->leave(s);
  scheduler_.remove(s);
  cache_.tree().let_go(std::exchange(s.scope, ScopeId::kNone));
  ++counts_.n_finished, ++counts_.step_finished;
  counts_.n_cancelled += reason == FinishReason::kCancelled;
  counts_.n_failed += reason == FinishReason::kError;
}

}  // namespace ibid
