#include "spec/drawn/drafting.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "sample/grammar/matcher.h"
#include "spec/drawn/rejection.h"

namespace ibid {
namespace {

constexpr int32_t kUnpriced = 2;  // number of drafts while their cost is unknown

}  // namespace

Drafting::Drafting(DraftingOptions options) : options_(std::move(options)), pair_(options_.prior_rate) {}

void Drafting::begin_step(const StepPrices& prices) {
  prices_ = prices;
  spent_ = 0;
}

void Drafting::passed(int32_t n_tokens, double seconds) {
  if (n_tokens > 0) cost_.observe(n_tokens, seconds);
  spent_ += seconds;
}

// ---- sequences ------------------------------------------------------------------------------------------------------

void Drafting::begin_sequence(DraftSequence& seq, const ProposalInput& input) {
  seq.sequence = input.sequence;
  pair_.begin_sequence();
  seq.confidence = DraftConfidence(pair_.rate());
  seq.tokens.assign(input.prompt.begin(), input.prompt.end());
  seq.tokens.insert(seq.tokens.end(), input.answer.begin(), input.answer.end());
  seq.sequence_len = static_cast<int32_t>(seq.tokens.size());
  seq.sureness.clear();
}

int32_t Drafting::follow(DraftSequence& seq, const ProposalInput& input) {
  const auto n_prompt = static_cast<int32_t>(input.prompt.size());
  const int32_t n = n_prompt + static_cast<int32_t>(input.answer.size());
  const auto at = [&](int32_t i) {
    return i < n_prompt ? input.prompt[static_cast<size_t>(i)] : input.answer[static_cast<size_t>(i - n_prompt)];
  };
  int32_t n_agreed = seq.sequence_len;
  const int32_t n_both = std::min(n, static_cast<int32_t>(seq.tokens.size()));
  while (n_agreed < n_both && seq.tokens[static_cast<size_t>(n_agreed)] == at(n_agreed)) ++n_agreed;
  observe(seq, input, n_agreed);
  seq.tokens.resize(static_cast<size_t>(n_agreed));
  for (int32_t i = n_agreed; i < n; ++i) seq.tokens.push_back(at(i));
  seq.sequence_len = n;
  seq.state = input.state;
  return n_agreed;
}

// Observes the last drafts up to the first wrong one, verified or not: the sequence shows which were right.
void Drafting::observe(DraftSequence& seq, const ProposalInput& input, int32_t n_agreed) {
  const auto n = static_cast<int32_t>(input.prompt.size() + input.answer.size());
  for (size_t i = 0; i < seq.sureness.size(); ++i) {
    const int32_t position = seq.sequence_len + static_cast<int32_t>(i);
    if (position >= n) break;
    const bool was_right = n_agreed > position;
    seq.confidence.observe(seq.sureness[i], was_right);
    pair_.observe(was_right);
    if (!was_right) break;
  }
  seq.sureness.clear();
}

// ---- drafting ------------------------------------------------------------------------------------------------------

bool Drafting::may_draft(const DraftSequence& seq, const Proposal& p) const {
  const bool others_know_better = !p.drafts->empty() && p.drafts->likely.front() >= seq.confidence.of_next();
  return (!others_know_better && p.input.has_credit) || is_pinned(p.input);
}

void Drafting::choose(std::vector<DraftLane>& lanes, DraftChoice& choice) const {
  if (std::ranges::all_of(lanes, &DraftLane::is_pinned)) return;
  if (!is_priced()) {
    std::erase_if(lanes, [](const DraftLane& lane) { return !lane.is_pinned && lane.n_drafts >= kUnpriced; });
    return;
  }
  const auto expected = [](const DraftLane& lane) { return lane.likely * lane.seq->confidence.of_next(); };
  const double each = cost_.seconds(1) - cost_.seconds(0);
  std::erase_if(lanes, [&](const DraftLane& lane) {
    return !lane.is_pinned && !choice.raises(expected(lane), prices_.row + (lane.is_ready ? 0 : each));
  });
  double sum = 0;
  for (const DraftLane& lane : lanes) sum += expected(lane);
  const auto n = static_cast<double>(lanes.size());
  const bool has_pass = !std::ranges::all_of(lanes, &DraftLane::is_ready);
  const double more = n * prices_.row + (has_pass ? cost_.seconds(n) : 0);
  const bool is_late = prices_.step + spent_ + more > prices_.limit;
  if (is_late || !choice.raises(sum, more)) std::erase_if(lanes, [](const DraftLane& lane) { return !lane.is_pinned; });
  choice.take(sum, more);
}

// ---- draws ---------------------------------------------------------------------------------------------------------

// The row over the target's ids: ids without a column have probability 0.
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

void Drafting::draw(std::vector<DraftLane>& lanes, std::span<const float> logits, size_t row_len, ThreadTeam& team) {
  scratch_.resize(static_cast<size_t>(team.n_threads()));
  team.parallel_for(static_cast<int64_t>(lanes.size()), [&](int64_t i, int thread) {
    DraftLane& lane = lanes[static_cast<size_t>(i)];
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    lane.drawn.clear();
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

SampleHistory Drafting::history_of(const DraftLane& lane, Scratch& scratch) const {
  const DraftSequence& seq = *lane.seq;
  const auto tokens = std::span<const TokenId>(seq.tokens);
  const size_t n_prompt = lane.proposal->input.prompt.size();
  if (lane.node < 0) {
    const size_t n = tokens.size();
    return {tokens.first(n_prompt), tokens.subspan(n_prompt, n - n_prompt)};
  }
  scratch.answer.assign(tokens.begin() + static_cast<std::ptrdiff_t>(n_prompt), tokens.end());
  scratch.answer.resize(scratch.answer.size() + static_cast<size_t>(lane.n_drafts));
  auto at = scratch.answer.rbegin();
  for (int32_t i = lane.node; i >= 0; i = seq.tree.nodes[static_cast<size_t>(i)].parent)
    *at++ = seq.tree.nodes[static_cast<size_t>(i)].token;
  return {tokens.first(n_prompt), scratch.answer};
}

void Drafting::draw(DraftLane& lane, std::span<const float> proposers, Scratch& scratch) const {
  const ProposalInput& input = lane.proposal->input;
  DraftSequence& seq = *lane.seq;
  const auto n = static_cast<size_t>(options_.vocab_size);
  const std::span<const float> row = as_target(proposers, scratch.row);
  SamplerState state = lane.node < 0 ? seq.state : seq.tree.nodes[static_cast<size_t>(lane.node)].state;
  const SampleHistory history = history_of(lane, scratch);
  scratch.mask.clear();
  if (input.grammar != nullptr) {
    scratch.mask.assign(std::max((n + 31) / 32, input.grammar->mask_words()), 0);
    input.grammar->fill(state.grammar, input.n_left - lane.n_drafts, scratch.mask);
  }
  const bool is_drawn = input.verifier == Verifier::kRejection && input.temperature > 0;  // else the draft is certain
  // Before the first draw: the places of a tree are drawn together.
  if (is_drawn && lane.n_drafts == 0) seq.q.resize(std::max(seq.q.size(), static_cast<size_t>(input.max_drafts) * n));
  const auto q = is_drawn ? std::span(seq.q).subspan(static_cast<size_t>(lane.law) * n, n) : std::span<float>();
  lane.q = q;
  ProposeRule propose(q, lane.n_wanted);
  FirstOfRace race(lane.n_wanted);
  DrawRule* rule = lane.n_wanted > 1 ? &race : nullptr;
  if (is_drawn) rule = &propose;
  const SamplerState before = state;
  const Result<TokenRecord> drawn = input.sampler->sample(row, history, state, scratch.sampler, scratch.mask, rule);
  if (!drawn) return;
  std::vector<TokenId> tokens = {drawn->chosen.token};
  if (input.temperature > 0 && rule != nullptr) {
    const std::span<const TokenId> all = rule == &propose ? propose.drawn() : race.drawn();
    if (!all.empty()) tokens.assign(all.begin(), all.end());
  } else if (lane.n_wanted > 1) {
    const auto most = static_cast<size_t>(lane.n_wanted);
    const bool has_more =
        input.sampler->candidates(row, history, before, scratch.sampler, scratch.mask, true, most, scratch.best).ok();
    for (size_t i = 0; has_more && i < scratch.best.size() && tokens.size() < most; ++i) {
      if (scratch.best[i].token != tokens.front()) tokens.push_back(scratch.best[i].token);
    }
  }
  add_drawn(lane, tokens, state, options_.ids.empty() ? row : proposers, scratch.sampler);
}

// The proposer's confidence in each token: its own probability at temperature 1, among the remaining tokens.
void Drafting::add_drawn(DraftLane& lane, std::span<const TokenId> tokens, const SamplerState& state,
                         std::span<const float> row, SamplerScratch& scratch) const {
  const ProposalInput& input = lane.proposal->input;
  const auto column = [this](TokenId token) {
    if (options_.ids.empty()) return token;
    return TokenId{static_cast<int32_t>(std::ranges::lower_bound(options_.ids, token) - options_.ids.begin())};
  };
  const bool is_scored = score_row(row, column(tokens.front()), 0, scratch).ok();
  // Nothing follows an end of generation, so its row is not worth a draft; but a token drawn for rejection is offered.
  const bool may_withhold = lane.q.empty();
  float left = 1;
  for (const TokenId token : tokens) {
    const float of_token = is_scored ? std::exp(scratch.log_probs[static_cast<size_t>(raw(column(token)))]) : 0;
    DraftNode node = {.token = token, .parent = lane.node, .depth = lane.n_drafts + 1};
    node.sureness = left > of_token ? of_token / left : 1;
    left -= of_token;
    node.state = state;
    node.q = lane.q;
    const bool is_end = std::ranges::find(options_.end_of_generation, token) != options_.end_of_generation.end();
    node.is_offered = !may_withhold || !is_end;
    if (input.grammar != nullptr && node.is_offered) {
      node.state.grammar = input.grammar->after(input.choice, state.grammar, token);
      if (may_withhold && input.grammar->is_closed(node.state.grammar)) node.is_offered = false;
    }
    lane.drawn.push_back(node);
  }
}

void Drafting::take_drawn(std::vector<DraftLane>& lanes) const {
  std::erase_if(lanes, [this](DraftLane& lane) {
    if (lane.drawn.empty() || !lane.drawn.front().is_offered) return true;
    DraftSequence& seq = *lane.seq;
    Drafts& drafts = *lane.proposal->drafts;
    const DraftNode& drawn = lane.drawn.front();
    if (seq.sureness.empty()) drafts.clear();  // drafts of other proposers
    lane.likely *= seq.confidence.of(drawn.sureness);
    drafts.add(drawn.token, drafts.size() - 1, lane.is_pinned ? 1 : lane.likely, lane.q);
    seq.tokens.push_back(drawn.token);
    seq.sureness.push_back(drawn.sureness);
    seq.state = drawn.state;
    lane.law = ++lane.n_drafts;
    lane.n_tokens = 1;
    return drafts.size() >= lane.proposal->input.max_drafts ||
           static_cast<int32_t>(seq.tokens.size()) > options_.context_len;
  });
}

}  // namespace ibid
