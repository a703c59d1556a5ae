#include "spec/drafting.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "base/planted.h"
#include "sample/grammar/matcher.h"
#include "spec/rejection.h"

namespace ibid {
namespace {

constexpr size_t kUnpriced = 2;  // drafts as long as nothing is known of what they cost

}  // namespace

Drafting::Drafting(DraftingOptions options) : options_(std::move(options)), pair_(options_.prior_rate) {}

void Drafting::begin_step(const StepPrices& prices) {
  prices_ = prices;
  spent_ = 0;
}

void Drafting::passed(int32_t n_tokens, double seconds) {
  cost_.observe(n_tokens, seconds);
  spent_ += seconds;
}

// ---- texts ---------------------------------------------------------------------------------------------------------

void Drafting::begin_text(DraftText& text, const ProposalInput& input) {
  text.sequence = input.sequence;
  pair_.begin_text();
  text.confidence = DraftConfidence(pair_.rate());
  text.tokens.assign(input.prompt.begin(), input.prompt.end());
  text.tokens.insert(text.tokens.end(), input.answer.begin(), input.answer.end());
  text.n_text = static_cast<int32_t>(text.tokens.size());
  text.sureness.clear();
}

int32_t Drafting::follow(DraftText& text, const ProposalInput& input) {
  const auto n_prompt = static_cast<int32_t>(input.prompt.size());
  const int32_t n = n_prompt + static_cast<int32_t>(input.answer.size());
  const auto at = [&](int32_t i) {
    return i < n_prompt ? input.prompt[static_cast<size_t>(i)] : input.answer[static_cast<size_t>(i - n_prompt)];
  };
  int32_t n_agreed = text.n_text;
  const int32_t n_both = std::min(n, static_cast<int32_t>(text.tokens.size()));
  while (n_agreed < n_both && text.tokens[static_cast<size_t>(n_agreed)] == at(n_agreed)) ++n_agreed;
  observe(text, input, n_agreed);
  text.tokens.resize(static_cast<size_t>(n_agreed));
  for (int32_t i = n_agreed; i < n; ++i) text.tokens.push_back(at(i));
  text.n_text = n;
  text.state = input.state;
  text.state.choice += PLANTED("a_draft_model_draws_with_other_noise");
  return n_agreed;
}

// Of the last drafts, those up to the first that was wrong, verified or not: the text tells.
void Drafting::observe(DraftText& text, const ProposalInput& input, int32_t n_agreed) {
  const auto n = static_cast<int32_t>(input.prompt.size() + input.answer.size());
  for (size_t i = 0; i < text.sureness.size(); ++i) {
    const int32_t position = text.n_text + static_cast<int32_t>(i);
    if (position >= n) break;
    const bool was_right = n_agreed > position;
    text.confidence.observe(text.sureness[i], was_right);
    pair_.observe(was_right);
    if (!was_right) break;
  }
  text.sureness.clear();
}

// ---- who drafts ----------------------------------------------------------------------------------------------------

bool Drafting::may_draft(const DraftText& text, const Proposal& p) const {
  const bool others_know_better = !p.drafts->empty() && p.drafts->likely.front() >= text.confidence.of_next();
  return !others_know_better || is_pinned(p.input) || PLANTED("likelier_drafts_of_others_are_replaced");
}

void Drafting::choose(std::vector<DraftLane>& lanes, DraftChoice& choice) const {
  if (std::ranges::all_of(lanes, &DraftLane::is_pinned)) return;
  if (!is_priced()) {
    std::erase_if(lanes,
                  [](const DraftLane& lane) { return !lane.is_pinned && lane.text->sureness.size() >= kUnpriced; });
    return;
  }
  const bool is_free = PLANTED("time_of_a_draft_model_is_not_priced");
  const auto expected = [](const DraftLane& lane) { return lane.likely * lane.text->confidence.of_next(); };
  const double each = prices_.row + (is_free ? 0 : cost_.seconds(1) - cost_.seconds(0));
  std::erase_if(lanes, [&](const DraftLane& lane) { return !lane.is_pinned && !choice.raises(expected(lane), each); });
  double sum = 0;
  for (const DraftLane& lane : lanes) sum += expected(lane);
  const auto n = static_cast<double>(lanes.size());
  const double more = n * prices_.row + (is_free ? 0 : cost_.seconds(n));
  const bool is_late = prices_.step + spent_ + more > prices_.limit && !PLANTED("a_draft_model_makes_gaps");
  if (is_late || !choice.raises(sum, more)) std::erase_if(lanes, [](const DraftLane& lane) { return !lane.is_pinned; });
  choice.take(sum, more);
}

// ---- draws ---------------------------------------------------------------------------------------------------------

// The row over the target's ids: what it has no column for never comes.
std::span<const float> Drafting::as_target(std::span<const float> row, std::vector<float>& out) const {
  const auto n = static_cast<size_t>(options_.vocab_size);
  if (options_.ids.empty() && row.size() >= n) return row.first(n);
  out.assign(n, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < row.size(); ++i) {
    const size_t id = options_.ids.empty() ? i : static_cast<size_t>(raw(options_.ids[i]));
    out[id] = row[i];
  }
  return out;
}

// The drafter's own probability, at temperature 1.
float Drafting::sureness_of(TokenId token, std::span<const float> row, SamplerScratch& scratch) const {
  if (!options_.ids.empty())
    token = TokenId{static_cast<int32_t>(std::ranges::lower_bound(options_.ids, token) - options_.ids.begin())};
  const Result<TokenRecord> scored = score_row(row, token, 0, scratch);
  return scored ? std::exp(scored->chosen.raw) : 0;
}

void Drafting::draw(std::vector<DraftLane>& lanes, std::span<const float> logits, size_t row_len, ThreadTeam& team) {
  scratch_.resize(static_cast<size_t>(team.n_threads()));
  team.parallel_for(static_cast<int64_t>(lanes.size()), [&](int64_t i, int thread) {
    DraftLane& lane = lanes[static_cast<size_t>(i)];
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    lane.drawn = TokenId::kNone;
    lane.is_starved = false;
    if (lane.row < 0) return;
    try {
      draw(lane, logits.subspan(static_cast<size_t>(lane.row) * row_len, row_len), scratch);
    } catch (const std::bad_alloc&) {
      scratch = {};
      lane.is_starved = true;
    }
  });
  if (std::ranges::any_of(lanes, &DraftLane::is_starved)) throw std::bad_alloc();
}

void Drafting::draw(DraftLane& lane, std::span<const float> drafters, Scratch& scratch) const {
  const ProposalInput& input = lane.proposal->input;
  DraftText& text = *lane.text;
  const auto n = static_cast<size_t>(options_.vocab_size);
  const std::span<const float> row = as_target(drafters, scratch.row);
  const auto tokens = std::span<const TokenId>(text.tokens);
  const size_t n_prompt = input.prompt.size();
  const size_t n_answer =
      (PLANTED("a_draft_model_forgets_its_drafts") ? static_cast<size_t>(text.n_text) : tokens.size()) - n_prompt;
  scratch.mask.clear();
  if (input.grammar != nullptr && !PLANTED("a_draft_model_ignores_grammars")) {
    scratch.mask.assign(std::max((n + 31) / 32, input.grammar->mask_words()), 0);
    input.grammar->fill(text.state.grammar, input.n_left - static_cast<int32_t>(text.sureness.size()), scratch.mask);
  }
  const bool is_drawn = input.is_rejection && input.temperature > 0;  // else it is certain
  if (is_drawn && text.sureness.empty())
    text.q.resize(std::max(text.q.size(), static_cast<size_t>(input.max_drafts) * n));
  lane.q = {};
  if (is_drawn) lane.q = std::span(text.q).subspan(text.sureness.size() * n, n);
  ProposeRule propose(is_drawn ? std::span(text.q).subspan(text.sureness.size() * n, n) : std::span<float>());
  DrawRule* rule = is_drawn && !PLANTED("a_drafts_noise_is_the_targets") ? &propose : nullptr;
  const Result<TokenRecord> drawn =
      input.sampler->sample(row, {tokens.first(n_prompt), tokens.subspan(n_prompt, n_answer)}, text.state,
                            scratch.sampler, scratch.mask, rule);
  if (!drawn) return;
  const TokenId token = drawn->chosen.token;
  lane.sureness = sureness_of(token, options_.ids.empty() ? row : drafters, scratch.sampler);
  // Behind an end nothing follows, so that its row is not worth a draft; but what is drawn for rejection is offered.
  const bool may_withhold = !is_drawn || PLANTED("drawn_ends_are_withheld");
  if (may_withhold && std::ranges::find(options_.end_of_generation, token) != options_.end_of_generation.end()) return;
  if (input.grammar != nullptr) {
    text.state.grammar = input.grammar->after(input.choice, text.state.grammar, token);
    if (may_withhold && input.grammar->is_closed(text.state.grammar)) return;
  }
  lane.drawn = token;
}

void Drafting::take_drawn(std::vector<DraftLane>& lanes) const {
  std::erase_if(lanes, [this](DraftLane& lane) {
    if (lane.drawn == TokenId::kNone) return true;
    DraftText& text = *lane.text;
    Drafts& drafts = *lane.proposal->drafts;
    if (text.sureness.empty()) drafts.clear();  // those of others
    lane.likely *= text.confidence.of(lane.sureness);
    drafts.add(lane.drawn, drafts.size() - 1, lane.is_pinned ? 1 : lane.likely, lane.q);
    text.tokens.push_back(lane.drawn);
    text.sureness.push_back(lane.sureness);
    lane.n_tokens = 1;
    return drafts.size() >= lane.proposal->input.max_drafts ||
           static_cast<int32_t>(text.tokens.size()) > options_.context_len;
  });
}

}  // namespace ibid
