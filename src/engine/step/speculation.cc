#include "engine/step/speculation.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "engine/state/scope_of.h"
#include "sample/grammar/matcher.h"

namespace ibid {
namespace {

// A chain's drafts up to the first that the request's grammar refuses: no row is spent on a token that cannot be drawn.
// Drafts that were drawn for rejection stay: that they are refused is a part of its law.
void cut_by_grammar(Sequence& s) {
  grammar::Matcher* matcher = s.request->grammar.get();
  const bool is_drawn = std::ranges::any_of(s.drafts.q, [](const auto& q) { return !q.empty(); });
  if (matcher == nullptr || is_drawn || s.drafts.must_run || !s.drafts.is_chain(s.drafts.size())) return;
  grammar::StateId state = s.sampler_state.grammar;
  for (int32_t i = 0; i < s.drafts.size(); ++i) {
    state = matcher->after(s.choice, state, s.drafts.tokens[static_cast<size_t>(i)]);
    if (state == grammar::kDead) return s.drafts.cut(i);
  }
}

// Rejection verifies all, whatever they cost: which drafts are verified may not depend on the clock.
void pin(Drafts& drafts) { std::ranges::fill(drafts.likely, 1.0F); }

}  // namespace

Speculation::Speculation(const ModelFacts& facts, const EngineOptions& options, const BlockCache& cache,
                         Scheduler& scheduler)
    : facts_(facts), options_(options), cache_(cache), scheduler_(scheduler) {
  proposals_.reserve(static_cast<size_t>(options.max_sequences));
  proposed_to_.reserve(static_cast<size_t>(options.max_sequences));
  tap_rows_.reserve(static_cast<size_t>(options.step_tokens));
}

void Speculation::use(std::unique_ptr<Proposer> proposer, int32_t max_drafts) {
  proposer_ = std::move(proposer);
  extras_ = proposer_ ? proposer_->extras() : nullptr;
  max_drafts_ = std::min(max_drafts, kMaxDrafts);
}

void Speculation::propose() {
  if (!proposer_) return;
  proposals_.clear(), proposed_to_.clear();
  for (Sequence* s : scheduler_.running()) list(*s);
  if (proposals_.empty()) return;
  const StepPrices prices = scheduler_.prices();
  try {
    proposer_->begin_step(prices);
    proposer_->propose_all(proposals_);
    cut_to_pay(prices);
    for (Sequence* s : scheduler_.running()) cut_by_grammar(*s);
  } catch (const std::bad_alloc&) {  // then there are none
    for (const Proposal& p : proposals_) p.drafts->clear();
  }
  charge();
}

// A sequence that waits for its next token alone, as far as its answer may go on after it.
void Speculation::list(Sequence& s) {
  s.drafts.clear();
  if (s.group != nullptr) return;
  const Request& r = *s.request;
  const int32_t context_len = facts_.context_len;
  int32_t n_left = context_len - s.n_tokens();
  if (r.max_tokens >= 0) n_left = std::min(n_left, r.max_tokens - s.n_answered());
  int32_t n = std::min(max_drafts_, n_left - 1);
  // No accepted draft is the last token before a point where rows are evicted: the next step ends there.
  n = std::min(n, s.next_point(s.n_computed()) - s.n_tokens() - 1);
  if (r.speculation.max_drafts >= 0) n = std::min(n, r.speculation.max_drafts);
  if (n <= 0 || s.n_missing() != 1 || s.account.sits_out) return;
  const auto tokens = std::span<const TokenId>(s.tokens);
  const auto n_prompt = static_cast<size_t>(s.prompt_len);
  proposed_to_.push_back(&s);
  proposals_.push_back(
      {.input = {.sequence = raw(s.id),
                 .prompt = tokens.first(n_prompt),
                 .answer = tokens.subspan(n_prompt),
                 .max_drafts = n,
                 .prediction = r.speculation.prediction,
                 .temperature = r.sampling.temperature,
                 .sampler = s.sampler.get(),
                 .state = s.sampler_state,
                 .grammar = r.grammar.get(),
                 .choice = s.choice,
                 .verifier = r.speculation.verifier,
                 .n_left = n_left,
                 .scope = cache_.tree().spelled(s.place.scope()),
                 .free_alone = r.speculation.free_alone,
                 .has_credit = s.account.drafts.has_credit(),
                 .blocks = cache_.keeps_blocks() && !r.kv_eviction ? &s.place.table_to_lend() : nullptr},
       .drafts = &s.drafts});
}

// As many drafts as were asked for and as each sequence's account affords.
void Speculation::cut_to_pay(const StepPrices& prices) {
  for (size_t i = 0; i < proposals_.size(); ++i) {
    const ProposalInput& input = proposals_[i].input;
    Drafts& drafts = *proposals_[i].drafts;
    drafts.cut(input.max_drafts);
    if (pins_drafts(input.verifier)) pin(drafts);
    DraftAccount& account = proposed_to_[i]->account.drafts;
    account.begin_step(prices);
    const bool are_to_pay = !drafts.empty() && drafts.likely.front() < 1;  // certain ones are verified at any price
    if (are_to_pay) drafts.cut(account.affordable(drafts.size()));
  }
}

// The time of drafting is shared by the sequences that have drafts of it; where none has, by all.
void Speculation::charge() {
  const auto n_drafted = std::ranges::count_if(proposals_, [](const Proposal& p) { return !p.drafts->empty(); });
  const auto n = static_cast<double>(n_drafted > 0 ? n_drafted : std::ssize(proposals_));
  for (Sequence* s : proposed_to_) {
    if (n_drafted == 0 || !s->drafts.empty()) s->account.drafts.drafted(proposer_->spent() / n);
  }
}

StepWants Speculation::wants() const {
  if (extras_ == nullptr) return {};
  return {
      .rows_hidden = extras_->reads_hidden(), .refused = extras_->reads_refused(), .taps = extras_->taps() != nullptr};
}

void Speculation::settled(const StepPlan& plan, const StepResult& result) {
  if (extras_ == nullptr) return;
  const StepWants wanted = wants();
  const auto each_running = [&](auto show) {
    for (size_t i = 0; i < plan.shares.size(); ++i) {
      if (plan.shares[i].sequence->state == SequenceState::kRunning) show(plan.shares[i], result.shares[i]);
    }
  };
  if (wanted.taps) each_running([this](const Share& share, const ShareResult& r) { show_taps(share, r); });
  if (wanted.rows_hidden) {
    each_running([this](const Share& share, const ShareResult& r) {
      const Sequence& s = *share.sequence;
      if (!r.drawn_after.empty() && s.may_be_read()) extras_->saw(raw(s.id), s.n_tokens(), r.drawn_after);
    });
  }
  if (wanted.refused) {
    each_running([this](const Share& share, const ShareResult& r) {
      const Sequence& s = *share.sequence;
      if (!r.refused.empty()) extras_->refused(raw(s.id), s.n_tokens(), r.refused);
    });
  }
}

// Of the tokens that are the sequence's now, accepted drafts among them, wherever in the step they were computed.
void Speculation::show_taps(const Share& planned, const ShareResult& share) {
  const Sequence& s = *planned.sequence;
  if (!s.may_be_read()) return;
  tap_rows_.clear();
  const int32_t n_certain = planned.n_certain();
  for (int32_t t = 0; t < n_certain; ++t) tap_rows_.push_back(share.first_row + t);
  for (size_t t = 0; t < share.accepted.size(); ++t) {
    const int32_t draft = share.accepted[t];
    tap_rows_.push_back(share.first_row + n_certain + draft);
  }
  extras_->read({.sequence = raw(s.id),
                 .first = share.first,
                 .rows = tap_rows_,
                 .tokens = s.tokens,
                 .n_running = static_cast<int32_t>(scheduler_.running().size()),
                 .is_pinned = pins_drafts(s.request->speculation.verifier)});
}

void Speculation::ended(Sequence& s) {
  if (proposer_ == nullptr || std::exchange(s.account.was_forgotten, true)) return;
  if (extras_ != nullptr && extras_->keeps_answers()) keep_answer(s);
  proposer_->forget(raw(s.id));
}

// Not an answer that a search chose, nor one of a request without drafts.
void Speculation::keep_answer(const Sequence& s) const {
  const bool has_failed = s.answer->reason() == FinishReason::kError || s.answer->reason() == FinishReason::kCancelled;
  if (has_failed) return;
  if (s.group != nullptr || s.request->speculation.max_drafts == 0 || s.n_answered() == 0) return;
  try {
    const std::string scope = scope_of(*s.request, facts_, options_.kv_dtype).spelled();  // it has let go of its own
    const auto tokens = std::span<const TokenId>(s.tokens);
    const auto n_prompt = static_cast<size_t>(s.prompt_len);
    extras_->ended({.prompt = tokens.first(n_prompt), .answer = tokens.subspan(n_prompt), .scope = scope});
  } catch (const std::bad_alloc&) {  // then it is not kept
  }
}

void Speculation::self_check(const Sequence& s) const {
  if (proposer_ != nullptr && s.state == SequenceState::kRunning)
    proposer_->self_check({.sequence = raw(s.id), .n_computed = s.n_computed(), .tokens = s.tokens});
}

}  // namespace ibid
