#include "engine/step/runner.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "base/grow.h"
#include "engine/state/search_group.h"
#include "sample/grammar/matcher.h"
#include "sample/logits_processor.h"
#include "text/output/reasoning_budget.h"
#include "text/output/stop_matcher.h"

namespace ibid {
namespace {

// Room for what a share's rows will give. The records themselves allocate only what requests ask for.
bool make_room(ShareResult& result, size_t n_scored, size_t n_drawn, bool keeps_refused) {
  try {
    if (keeps_refused) grow(result.refused, n_drawn);
    result.scored.resize(n_scored);
    grow(result.drawn, n_drawn);
    grow(result.accepted, n_drawn);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool is_contrastive(const Share& share) {
  return share.sequence->group != nullptr && share.sequence->group->contrastive != nullptr;
}

// Why a beam's sequence ends with this token; kNone: it does not.
FinishReason end_of(const Sequence& s, TokenId token, std::span<const TokenId> end_of_generation) {
  if (s.n_answered() + 1 < s.request->sampling.min_tokens) return FinishReason::kNone;
  const bool is_end = std::ranges::find(end_of_generation, token) != end_of_generation.end();
  if (is_end && !s.request->sampling.ignore_eos) return FinishReason::kEos;
  return s.request->stops && s.request->stops->is_stop(token) ? FinishReason::kStop : FinishReason::kNone;
}

}  // namespace

Runner::Runner(Worker& worker, ThreadTeam& team, const BatchLimits& limits, const Clock& clock)
    : worker_(worker), team_(team), clock_(clock), builder_(limits), scratch_(static_cast<size_t>(team.n_threads())) {
  tasks_.reserve(static_cast<size_t>(limits.n_rows));
  from_.reserve(static_cast<size_t>(limits.n_rows));
  to_.reserve(static_cast<size_t>(limits.n_rows));
  result_.shares.reserve(static_cast<size_t>(limits.n_sequences));
}

StepTicket Runner::launch(const StepPlan& plan, const StepWants& wants) {
  StepTicket ticket = {.wants = wants, .begun = clock_.now()};
  ForwardBatch batch;
  if (plan.n_tokens > 0) batch = builder_.build(plan);
  const auto wants_hidden = [](const Share& s) {
    return is_contrastive(s) || (s.sequence->pools() && !s.sequence->ranks());
  };
  const auto is_read = [](const Share& s) { return s.sequence->may_be_read(); };
  ticket.step = worker_.launch({.copies = plan.copies,
                                .state_copies = plan.state_copies,
                                .batch = plan.n_tokens > 0 ? &batch : nullptr,
                                .wants_hidden = std::ranges::any_of(plan.shares, wants_hidden),
                                .wants_rows_hidden = wants.rows_hidden,
                                .wants_taps = wants.taps && std::ranges::any_of(plan.shares, is_read)});
  return ticket;
}

StepResult& Runner::finish(const StepPlan& plan, const StepTicket& ticket) {
  wants_ = ticket.wants;
  const StepOutput output = worker_.wait(ticket.step);
  logits_ = output.logits;
  rows_hidden_ = output.rows_hidden;
  hidden_ = output.hidden.empty() ? std::span<const float>() : output.hidden.front().values;
  const double forwarded = clock_.now();
  list_tasks(plan);
  team_.parallel_for(static_cast<int64_t>(tasks_.size()), [&](int64_t task, int thread) {
    do_task(plan, tasks_[static_cast<size_t>(task)], scratch_[static_cast<size_t>(thread)]);
  });
  for (const Task& task : tasks_) {
    ShareResult& result = result_.shares[static_cast<size_t>(plan.rows[task.row].share)];
    result.out_of_memory |= task.out_of_memory;
    result.is_unsound |= task.is_unsound;
  }
  for (size_t i = 0; i < plan.shares.size(); ++i)
    if (is_recorded(*plan.shares[i].sequence)) recorded_->mark(plan, i, result_.shares[i]);
  move_accepted(plan);
  result_.forward_seconds = forwarded - ticket.begun;
  result_.sample_seconds = clock_.now() - forwarded;
  return result_;
}

void Runner::list_tasks(const StepPlan& plan) {
  tasks_.clear();
  result_.shares.resize(plan.shares.size());
  result_.n_first_draws = 0;
  size_t row = 0, token = 0;
  const auto width = static_cast<size_t>(worker_.facts().width);
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const Share& share = plan.shares[i];
    ShareResult& result = result_.shares[i];
    const auto n_tokens = static_cast<size_t>(share.n_tokens);
    result.hidden = hidden_.empty() ? hidden_ : hidden_.subspan(token * width, n_tokens * width);
    result.first = share.sequence->n_computed();
    result.first_row = static_cast<int32_t>(token);
    token += n_tokens;
    if (share.sequence->ranks())
      result.hidden = logits(row).first(static_cast<size_t>(worker_.facts().encoder->n_labels));
    const size_t begin = row, end = row + static_cast<size_t>(share.n_rows);
    while (row < end && plan.rows[row].purpose == RowPurpose::kScore) ++row;
    result.drawn.clear();
    result.drawn_after = {};
    result.accepted.clear();
    result.refused.clear();
    result.first_draws.clear();
    result.failure.reset();
    result.recorded_end = FinishReason::kNone;
    result.is_recorded = is_recorded(*share.sequence);
    result.recorded_turn = nullptr;
    const auto is_number = [](float x) { return std::isfinite(x); };
    result.is_unsound = share.sequence->pools() && !std::ranges::all_of(result.hidden, is_number);
    result.out_of_memory = !make_room(result, row - begin, end - row, wants_.refused);
    if (!result.out_of_memory) {
      for (size_t scored = begin; scored < row; ++scored) tasks_.push_back({scored, scored - begin});
      if (row < end && (share.sequence->may_answer() || share.sequence->group != nullptr))
        result.out_of_memory = !list_draws(plan, row, result);
    }
    row = end;
  }
}

// Of the row that the sequence draws from, and with it, where it ends the prompt, the other choices: each draws its
// first token from the same row. False: there is no memory for them.
bool Runner::list_draws(const StepPlan& plan, size_t row, ShareResult& result) try {
  const std::vector<Sequence*>& followers = plan.shares[static_cast<size_t>(plan.rows[row].share)].sequence->followers;
  grow(tasks_, tasks_.size() + (plan.rows.size() - row) + followers.size());
  grow(result.first_draws, followers.size());
  tasks_.push_back({row});
  for (Sequence* follower : followers) {
    tasks_.push_back({.row = row, .first = static_cast<int32_t>(result.first_draws.size())});
    result.first_draws.emplace_back().sequence = follower;
  }
  result_.n_first_draws += static_cast<int32_t>(followers.size());
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void Runner::do_task(const StepPlan& plan, Task& task, Scratch& scratch) {
  try {
    const Row& row = plan.rows[task.row];
    const bool is_beam = plan.shares[static_cast<size_t>(row.share)].sequence->group != nullptr;
    if (row.purpose == RowPurpose::kScore) {
      score(plan, task, scratch);
    } else if (task.first >= 0) {
      draw_first(plan, task, scratch);
    } else {
      is_beam ? look(plan, task, scratch) : draw(plan, task, scratch);
    }
  } catch (const std::bad_alloc&) {
    task.out_of_memory = true;
    scratch = {};  // what it holds between draws may not be what the next draw expects
  }
}

// Of a chain, all are in place.
void Runner::move_accepted(const StepPlan& plan) {
  from_.clear();
  to_.clear();
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const Sequence& s = *plan.shares[i].sequence;
    const std::vector<int32_t>& accepted = result_.shares[i].accepted;
    // Ascending, and each to a slot at or before its own: none is written over before it has moved.
    for (size_t depth = 0; depth < accepted.size(); ++depth) {
      if (accepted[depth] == static_cast<int32_t>(depth)) continue;
      from_.push_back(builder_.slot_of(s, s.n_tokens() + accepted[depth]));
      to_.push_back(builder_.slot_of(s, s.n_tokens() + static_cast<int32_t>(depth)));
    }
  }
  if (!from_.empty()) worker_.copy_slots(from_, to_);
}

std::span<const float> Runner::logits(size_t row) const {
  const auto vocab_size = static_cast<size_t>(worker_.facts().vocab_size);
  return logits_.subspan(row * vocab_size, vocab_size);
}

void Runner::score(const StepPlan& plan, Task& task, Scratch& scratch) {
  const Row& row = plan.rows[task.row];
  const auto share = static_cast<size_t>(row.share);
  const Sequence& s = *plan.shares[share].sequence;
  if (is_recorded(s)) return;  // that there is a record of the token is enough
  // Of the token that the row speaks about.
  const int32_t position = s.n_computed() + row.token + 1;
  Result<TokenRecord> scored =
      score_row(logits(task.row), s.tokens[static_cast<size_t>(position)], s.request->prompt_logprobs, scratch.sampler);
  task.is_unsound = !scored;
  if (!scored) return;
  scored->position = position;
  result_.shares[share].scored[task.scored] = *std::move(scored);
}

// What a row of a sequence may draw after this answer; empty: anything.
void Runner::fill_mask(const Sequence& s, std::span<const TokenId> answer, uint32_t state,
                       std::vector<uint32_t>& mask) const {
  const size_t n_words = (static_cast<size_t>(worker_.facts().vocab_size) + 31) / 32;
  mask.clear();
  if (grammar::Matcher* matcher = s.request->grammar.get()) {
    mask.assign(std::max(n_words, matcher->mask_words()), 0);
    const int64_t room = worker_.facts().context_len - s.prompt_len;
    const int64_t most = s.request->max_tokens < 0 ? room : std::min<int64_t>(room, s.request->max_tokens);
    matcher->fill(state, static_cast<int32_t>(most - static_cast<int64_t>(answer.size())), mask);
  }
  if (!s.request->reasoning) return;
  const std::optional<TokenId> forced = s.request->reasoning->forced_after(answer);
  if (!forced) return;
  const auto word = static_cast<size_t>(raw(*forced)) / 32;
  const uint32_t bit = 1u << (raw(*forced) % 32);
  // A grammar that has no reasoning has nothing to be closed.
  if (!mask.empty() && (mask[word] & bit) == 0) return;
  mask.assign(std::max(n_words, mask.size()), 0);
  mask[word] = bit;
}

// With scratch.mask, from the row as the request's own code leaves it.
Result<TokenRecord> Runner::draw_row(const Sequence& s, size_t row, const SampleHistory& history, SamplerState& state,
                                     Scratch& scratch, DrawRule* rule) const {
  std::span<const float> of_row = logits(row);
  if (LogitsProcessor* processor = s.request->processor.get()) {
    scratch.processed.assign(of_row.begin(), of_row.end());
    TRY(processor->process(history.prompt, history.answer, scratch.processed));
    of_row = scratch.processed;
  }
  return s.sampler->sample(of_row, history, state, scratch.sampler, scratch.mask, rule);
}

// What may follow a beam.
void Runner::look(const StepPlan& plan, const Task& task, Scratch& scratch) {
  const auto i = static_cast<size_t>(plan.rows[task.row].share);
  if (result_.shares[i].is_recorded) return;
  const Sequence& s = *plan.shares[i].sequence;
  const SearchGroup& group = *s.group;
  ShareResult& result = result_.shares[i];
  const auto tokens = std::span<const TokenId>(s.tokens);
  const auto n_prompt = static_cast<size_t>(s.prompt_len);
  const SampleHistory history{tokens.first(n_prompt), tokens.subspan(n_prompt)};
  grammar::Matcher* matcher = s.request->grammar.get();
  fill_mask(s, history.answer, s.sampler_state.grammar, scratch.mask);
  const Status looked = s.sampler->candidates(logits(task.row), history, s.sampler_state, scratch.sampler, scratch.mask,
                                              group.contrastive != nullptr,
                                              static_cast<size_t>(group.search->n_candidates()), result.row.best);
  if (!looked) {
    result.failure = looked.error();
    return;
  }
  for (SearchCandidate& c : result.row.best) {
    c.end = end_of(s, c.token, worker_.facts().end_of_generation);
    if (matcher == nullptr) continue;
    c.grammar = matcher->after(s.choice, s.sampler_state.grammar, c.token);
    if (c.end == FinishReason::kNone && matcher->is_closed(c.grammar)) c.end = FinishReason::kGrammar;
  }
  if (group.contrastive != nullptr && !hidden_.empty())
    group.contrastive->look_at(result.hidden.last(static_cast<size_t>(worker_.facts().width)), result.row);
}

void Runner::draw(const StepPlan& plan, const Task& task, Scratch& scratch) {
  const auto i = static_cast<size_t>(plan.rows[task.row].share);
  const Share& share = plan.shares[i];
  const Sequence& s = *share.sequence;
  ShareResult& result = result_.shares[i];
  result.state = s.sampler_state;
  const auto tokens = std::span<const TokenId>(s.tokens);
  const auto n_prompt = static_cast<size_t>(s.prompt_len);
  SampleHistory history{tokens.first(n_prompt), tokens.subspan(n_prompt)};
  grammar::Matcher* matcher = s.request->grammar.get();
  for (int32_t draft = -1;;) {
    fill_mask(s, history.answer, result.state.grammar, scratch.mask);
    const size_t at = task.row + static_cast<size_t>(draft + 1);
    // Other verifiers than the coupled one look at the drafts after this one; the rest is the same.
    const Verifier verifier = s.request->speculation.verifier;
    scratch.siblings.clear();
    if (pins_drafts(verifier)) list_siblings(s.drafts, draft, share.n_drafts, scratch.siblings);
    VerifyRule verify(scratch.siblings, scratch.law);
    TypicalRule typical(scratch.siblings);
    DrawRule* rule = nullptr;
    if (!scratch.siblings.empty()) rule = verifier == Verifier::kTypical ? static_cast<DrawRule*>(&typical) : &verify;
    Result<TokenRecord> drawn =
        result.is_recorded ? recorded_->next(plan, i) : draw_row(s, at, history, result.state, scratch, rule);
    if (!drawn) {
      result.failure = drawn.error();
      return;
    }
    const TokenId token = drawn->chosen.token;
    result.drawn.push_back(*std::move(drawn));
    if (!rows_hidden_.empty()) result.drawn_after = rows_hidden_.row(at);
    if (matcher != nullptr) {
      const uint32_t next = matcher->after(s.choice, result.state.grammar, token);
      result.state.grammar = next;
      if (matcher->is_closed(next)) return;
    }
    const bool is_first = draft < 0;
    const int32_t next = s.drafts.child(draft, token, share.n_drafts);
    if (next < 0) return read_refused(share, task.row, draft, result, scratch);
    draft = next;
    result.accepted.push_back(draft);
    if (is_first) scratch.answer.assign(history.answer.begin(), history.answer.end());
    scratch.answer.push_back(token);
    history.answer = scratch.answer;
  }
}

// With what the choice has of its own: its sampler's state and its place in the grammar.
void Runner::draw_first(const StepPlan& plan, const Task& task, Scratch& scratch) {
  ShareResult& result = result_.shares[static_cast<size_t>(plan.rows[task.row].share)];
  FirstDraw& first = result.first_draws[static_cast<size_t>(task.first)];
  const Sequence& s = *first.sequence;
  first.state = s.sampler_state;
  const SampleHistory history{s.tokens, {}};
  fill_mask(s, history.answer, first.state.grammar, scratch.mask);
  Result<TokenRecord> drawn = result.is_recorded ? recorded_->first(s, first.recorded_end)
                                                 : draw_row(s, task.row, history, first.state, scratch, nullptr);
  if (!drawn) {
    first.failure = drawn.error();
    return;
  }
  first.drawn = *std::move(drawn);
  if (grammar::Matcher* matcher = s.request->grammar.get())
    first.state.grammar = matcher->after(s.choice, first.state.grammar, first.drawn.chosen.token);
}

// The target's rows after drafts that were refused, from the first one after `parent` on: drafts, drawn without a
// grammar, that change nothing of the result but what a proposer receives. One that cannot be drawn ends them.
void Runner::read_refused(const Share& share, size_t first_row, int32_t parent, ShareResult& result, Scratch& scratch) {
  if (!wants_.refused || result.is_recorded) return;
  const Sequence& s = *share.sequence;
  const auto tokens = std::span<const TokenId>(s.tokens);
  const auto n_prompt = static_cast<size_t>(s.prompt_len);
  if (parent < 0) scratch.answer.assign(tokens.begin() + s.prompt_len, tokens.end());
  SamplerState state = result.state;
  for (int32_t draft = 0; draft < share.n_drafts; ++draft) {
    if (s.drafts.parents[static_cast<size_t>(draft)] != parent) continue;
    const TokenId token = s.drafts.tokens[static_cast<size_t>(draft)];
    scratch.answer.push_back(token);
    const size_t row = first_row + static_cast<size_t>(draft) + 1;
    const Result<TokenRecord> drawn =
        s.sampler->sample(logits(row), {tokens.first(n_prompt), scratch.answer}, state, scratch.sampler);
    if (!drawn) return;
    result.refused.push_back({token, drawn->chosen.token});
    parent = draft;
  }
}

}  // namespace ibid
