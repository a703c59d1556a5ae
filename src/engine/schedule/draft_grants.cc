#include "engine/schedule/draft_grants.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/state/sequence.h"
#include "spec/draft_choice.h"

namespace ibid {
namespace {

// Before a step has been seen: what is shared is worth four decodes, or so.
double drafted_seconds(const StepLoad& load) { return 4 + load.n_decode_tokens; }

// The share with the likeliest draft that is not granted yet; null: all are. Only sequences that are whole have any.
Share* likeliest_draft(StepPlan& plan) {
  Share* best = nullptr;
  float most = -1;
  for (Share& share : plan.shares) {
    const Sequence& s = *share.sequence;
    const auto next = static_cast<size_t>(share.n_drafts);
    if (share.n_drafts >= s.drafts.size() || s.n_computed() + share.n_tokens < s.n_tokens()) continue;
    if (s.drafts.likely[next] > most) best = &share, most = s.drafts.likely[next];
  }
  return best;
}

// As far as there are blocks without taking any from other sequences.
void reserve_drafts(Share& share, StepPlan& plan, Room& room) {
  int32_t n = std::exchange(share.n_drafts, 0);
  if (n == 0) return;
  Sequence& s = *share.sequence;
  try {
    n = room.reserve_spare(s, s.n_tokens() + n, plan) - s.n_tokens();
  } catch (const std::bad_alloc&) {
    return;
  }
  share.n_drafts = n;
  share.n_tokens += n;
  share.n_rows += n;
  plan.n_tokens += n;
  plan.n_rows += n;
  if (n > 0) plan.load.add_drafts(s.n_tokens(), n);
}

}  // namespace

void grant_drafts(StepPlan& plan, const StepBudget& budget, const StepCost& cost, Room& room, double spent) {
  Share* share = likeliest_draft(plan);
  if (share == nullptr) return;
  StepLoad load = plan.load, decodes;
  for (const Share& decode : plan.shares) {
    if (decode.n_tokens == 1) decodes.add_decode(decode.sequence->n_computed());
  }
  const auto seconds = [&](const StepLoad& of) { return cost.is_known() ? cost.seconds(of) : drafted_seconds(of); };
  const double limit = (load.n_prompt_tokens > 0 ? budget.seconds : budget.seconds_with_drafts) - spent;
  DraftChoice choice(decodes.n_decode_tokens, seconds(decodes));
  int32_t n_left = std::min(budget.n_tokens - plan.n_tokens, budget.n_rows - plan.n_rows);
  for (; share != nullptr && n_left > 0; share = likeliest_draft(plan), --n_left) {
    const Sequence& s = *share->sequence;
    StepLoad with = load;
    with.add_drafts(s.n_tokens());
    const double likely = s.drafts.likely[static_cast<size_t>(share->n_drafts)];
    const double more = cost.is_known() ? cost.of_drafts(load, with) : seconds(with) - seconds(load);
    // What another verifier than the coupled one takes over may not depend on the clock.
    const bool is_pinned = pins_drafts(s.request->speculation.verifier);
    if (!choice.is_worth(likely, more)) break;
    if (seconds(with) > limit && !is_pinned && !s.drafts.must_run) break;
    choice.take(likely, more);
    load = with;
    ++share->n_drafts;
  }
  for (Share& granted : plan.shares) reserve_drafts(granted, plan, room);
}

}  // namespace ibid
