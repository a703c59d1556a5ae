#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"
#include "kernels/row_math.h"
#include "sample/sort_candidates.h"
#include "sample/stage_table.h"
#include "sample/stages.h"

namespace ibid {
namespace {

// The first place of `most`, which is in it.
int32_t row_find(std::span<const float> row, float most) {
  const size_t from = next_block_from(row, 0, most);
  const auto at = std::find(row.begin() + static_cast<std::ptrdiff_t>(from), row.end(), most);
  return static_cast<int32_t>(at - row.begin());
}

Error nothing_left() {
  return invalid(
      "no token is left to choose from: the bans, the allowed ids, logit_bias and the grammar together exclude all of "
      "them");
}

Error not_of_the_row() { return invalid("the draw returned a token that is not possible here; try another seed"); }

bool is_possible(std::span<const float> row, TokenId token) {
  const auto at = static_cast<size_t>(raw(token));  // beyond all of the row where it is below 0
  return at < row.size() && row[at] > -std::numeric_limits<float>::infinity();
}

// The chosen token and those that a request names, each once, in the order of TokenRecord::top.
std::vector<TokenLogprob> named_tokens(std::span<const TokenId> names, TokenId chosen,
                                       std::span<const float> log_probs) {
  std::vector<TokenLogprob> out;
  out.reserve(names.size() + 1);
  const auto add = [&](TokenId id) { out.push_back({.token = id, .raw = log_probs[static_cast<size_t>(raw(id))]}); };
  add(chosen);
  for (const TokenId id : names) add(id);
  std::ranges::sort(out, [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.raw != b.raw ? a.raw > b.raw : raw(a.token) < raw(b.token);
  });
  const auto again = std::ranges::unique(out, {}, &TokenLogprob::token);
  out.erase(again.begin(), again.end());
  return out;
}

}  // namespace

Sampler::Sampler(SamplingParams params, int32_t vocab_size, std::vector<TokenId> end_of_generation, uint64_t seed,
                 std::span<const StageId> order)
    : params_(std::move(params)),
      vocab_size_(vocab_size),
      end_of_generation_(std::move(end_of_generation)),
      seed_(seed) {
  if (!params_.allowed.empty()) {
    allowed_.assign(static_cast<size_t>(vocab_size), 0);
    for (TokenId t : params_.allowed) allowed_[static_cast<size_t>(raw(t))] = 1;
  }
  for (StageId id : order) {
    if (!stage(id).is_asked(params_)) continue;
    if (stage(id).change_row != nullptr) row_stages_.push_back(id);
    if (stage(id).cut_support != nullptr) support_stages_.push_back(id);
  }
}

Result<std::shared_ptr<const Sampler>> Sampler::compile(const SamplingParams& params, int32_t vocab_size,
                                                        std::span<const TokenId> end_of_generation, uint64_t seed,
                                                        std::span<const StageId> order) {
  CHECK(is_stage_order(order));
  TRY(validate(params, vocab_size));
  std::vector<TokenId> ends;
  for (TokenId t : end_of_generation) {
    if (raw(t) >= 0 && raw(t) < vocab_size) ends.push_back(t);
  }
  return std::shared_ptr<const Sampler>(new Sampler(params, vocab_size, std::move(ends), seed, order));
}

SamplerState Sampler::initial_state(uint64_t choice) const {
  return {.choice = choice, .mirostat_mu = 2.0f * params_.mirostat_tau};
}

bool Sampler::only_ranks() const {
  const bool cools = params_.temperature > 0 && (params_.temperature != 1.0f || params_.dynatemp_range > 0);
  // The last one is the draw.
  return !cools && std::ranges::none_of(support_stages_, [](StageId id) { return stage(id).cut_support != nullptr; });
}

Status Sampler::candidates(std::span<const float> logits, const SampleHistory& history, const SamplerState& given,
                           SamplerScratch& scratch, std::span<const uint32_t> mask, bool by_probability, size_t n,
                           std::vector<SearchCandidate>& out) const {
  CHECK(mask.empty() || mask.size() >= (logits.size() + 31) / 32);
  CHECK(static_cast<int32_t>(logits.size()) == vocab_size_);
  out.clear();
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  if (const RowLook look = row_look(logits); !look.is_sound || look.n_possible == 0) return unsound_row();
  std::vector<float>&row = scratch.logits, &log_probs = scratch.log_probs;
  log_probs.resize(logits.size());
  row_log_softmax(log_probs, logits);
  by_probability ? row.assign(logits.begin(), logits.end()) : row.assign(log_probs.begin(), log_probs.end());
  if (!mask.empty()) stages::keep_bits(row, mask);
  SamplerState state = given;
  const StageInput input{.params = params_,
                         .history = history,
                         .state = state,
                         .seed = seed_,
                         .vocab_size = vocab_size_,
                         .allowed = allowed_,
                         .end_of_generation = end_of_generation_,
                         .scratch = scratch};
  for (StageId id : row_stages_) {
    if (stage(id).acts == nullptr || stage(id).acts(input)) stage(id).change_row(row, input);
  }
  const RowLook look = row_look(row);
  if (!look.is_sound) return invalid("the penalties and biases together take a logit beyond what a float can hold");
  if (by_probability && look.n_possible > 0) row_log_softmax(row, row);
  keep_best(row, n, scratch);
  for (const Candidate& c : scratch.best) {
    if (!(c.logit > kMasked)) break;
    const float score = by_probability ? static_cast<float>(math::exp(static_cast<double>(c.logit))) : c.logit;
    out.push_back({.token = TokenId{c.id}, .score = score, .logprob = log_probs[static_cast<size_t>(c.id)]});
  }
  return {};
}

Result<TokenRecord> Sampler::sample(std::span<const float> logits, const SampleHistory& history, SamplerState& state,
                                    SamplerScratch& scratch, std::span<const uint32_t> mask, DrawRule* rule) const {
  CHECK(mask.empty() || mask.size() >= (logits.size() + 31) / 32);
  CHECK(static_cast<int32_t>(logits.size()) == vocab_size_);
  const SamplingParams& p = params_;
  // A model that computes NaN must not choose at random.
  RowLook look = row_look(logits);
  if (!look.is_sound) return unsound_row();
  const StageInput input{.params = p,
                         .history = history,
                         .state = state,
                         .seed = seed_ + state.choice,
                         .vocab_size = vocab_size_,
                         .allowed = allowed_,
                         .end_of_generation = end_of_generation_,
                         .scratch = scratch};
  const auto acts = [&](StageId id) { return stage(id).acts == nullptr || stage(id).acts(input); };
  std::span<const float> row = logits;
  if (!mask.empty() || std::ranges::any_of(row_stages_, acts)) {
    scratch.logits.assign(logits.begin(), logits.end());
    // The place of the other hard masks makes no difference: the stages before them change tokens one by one, and none
    // from -infinity. Dynamic temperature, after them, looks at the whole row.
    if (!mask.empty()) stages::keep_bits(scratch.logits, mask);
    for (StageId id : row_stages_) {
      if (acts(id)) stage(id).change_row(scratch.logits, input);
    }
    row = scratch.logits;
    look = row_look(row);
    if (!look.is_sound) {
      return invalid("the penalties, biases and temperature together take a logit beyond what a float can hold");
    }
  }
  constexpr float kMasked = -std::numeric_limits<float>::infinity();

  TokenRecord out;
  out.position = history.position();
  stages::Support support;
  double log_total = 0;
  // log-probability among what was left to draw from
  auto processed = [&](const Candidate& c) {
    // Rounding must not make a probability of more than one.
    return static_cast<float>(std::min(static_cast<double>(c.logit - support.max_logit()) - log_total, 0.0));
  };
  if (look.n_possible == 0) return nothing_left();
  if (p.temperature <= 0) {
    out.chosen.token = TokenId{row_find(row, look.most)};
    out.support = 1;
  } else {
    support.collect(row, look, scratch);
    for (StageId id : support_stages_) {
      if (acts(id)) stage(id).cut_support(support, input);
    }
    if (rule == nullptr) {
      out.chosen.token = stages::draw(support, input.seed, history.position(), scratch);
    } else {
      const double total = support.total_weight();
      out.chosen.token = rule->draw(support.all(), total, input.seed, out.position);
    }
    // An error of a rule fails this request only: from here on the token indexes rows.
    if (!is_possible(row, out.chosen.token)) return not_of_the_row();
    out.support = support.size();
    if (p.mirostat != 0 || p.processed_logprobs) {
      log_total = math::log(support.total_weight());
      out.chosen.processed = processed({.logit = row[static_cast<size_t>(raw(out.chosen.token))]});
    }
    if (p.mirostat != 0) {
      constexpr float kNatsPerBit = 0.69314718f;
      float surprise = -out.chosen.processed / kNatsPerBit;
      state.mirostat_mu = stages::mirostat_update(state.mirostat_mu, surprise, p.mirostat_tau, p.mirostat_eta);
    }
  }
  if (p.logprobs < 0) return out;

  const auto index = [](const TokenLogprob& t) { return static_cast<size_t>(raw(t.token)); };
  const bool names_tokens = !p.logprob_tokens.empty();
  ASSIGN_OR_RETURN(TokenRecord scored, score_row(logits, out.chosen.token, names_tokens ? 0 : p.logprobs, scratch));
  out.chosen.raw = scored.chosen.raw;
  out.top = names_tokens ? named_tokens(p.logprob_tokens, out.chosen.token, scratch.log_probs) : std::move(scored.top);
  for (TokenLogprob& t : out.top) t.processed = t.token == out.chosen.token ? out.chosen.processed : kMasked;
  if (p.temperature <= 0 || !p.processed_logprobs) return out;
  // One pass over the support for all of them: counts marks the tokens to find.
  scratch.counts.resize(std::max(scratch.counts.size(), logits.size()), 0);
  for (size_t i = 0; i < out.top.size(); ++i) scratch.counts[index(out.top[i])] = static_cast<int32_t>(i) + 1;
  for (const Candidate& c : support.all()) {
    const int32_t place = scratch.counts[static_cast<size_t>(c.id)];
    if (place > 0) out.top[static_cast<size_t>(place) - 1].processed = processed(c);
  }
  for (const TokenLogprob& t : out.top) scratch.counts[index(t)] = 0;
  return out;
}

}  // namespace ibid
