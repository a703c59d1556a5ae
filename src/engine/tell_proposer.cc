// What an engine tells its proposer of a step: hidden states that the step had or wrote anyway, and what rows say that
// were computed in vain.
#include "engine/engine.h"

namespace ibid {

// Of the tokens that are the sequence's now, drafts that were right among them, wherever in the step they were
// computed.
void Engine::show_taps(const StepPlan& plan, const StepResult& result) {
  if (!proposer_ || proposer_->taps() == nullptr) return;
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const Sequence& s = *plan.shares[i].sequence;
    const ShareResult& share = result.shares[i];
    if (!s.may_be_read() || s.state != SequenceState::kRunning) continue;
    tap_rows_.clear();
    const int32_t n_certain = plan.shares[i].n_certain();
    for (int32_t t = 0; t < n_certain; ++t) tap_rows_.push_back(share.first_row + t);
    for (size_t t = 0; t < share.accepted.size(); ++t) {
      const int32_t draft = share.accepted[t];
      tap_rows_.push_back(share.first_row + n_certain + draft);
    }
    proposer_->read({.sequence = raw(s.id),
                     .first = share.first,
                     .rows = tap_rows_,
                     .text = s.tokens,
                     .n_running = static_cast<int32_t>(scheduler_.running().size()),
                     .is_pinned = pins_drafts(s.request->speculation.verifier)});
  }
}

void Engine::show_hidden(const StepPlan& plan, const StepResult& result) {
  if (!proposer_ || !proposer_->reads_hidden()) return;
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const Sequence& s = *plan.shares[i].sequence;
    const std::span<const float> hidden = result.shares[i].drawn_after;
    if (!hidden.empty() && s.state == SequenceState::kRunning && s.may_be_read())
      proposer_->saw(raw(s.id), s.n_tokens(), hidden);
  }
}

void Engine::show_refused(const StepPlan& plan, const StepResult& result) {
  if (!proposer_ || !proposer_->reads_refused()) return;
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const Sequence& s = *plan.shares[i].sequence;
    const std::vector<RefusedDraft>& refused = result.shares[i].refused;
    if (!refused.empty() && s.state == SequenceState::kRunning) proposer_->refused(raw(s.id), s.n_tokens(), refused);
  }
}

}  // namespace ibid
