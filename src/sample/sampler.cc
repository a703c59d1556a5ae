#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"
#include "sample/row_functions.h"
#include "sample/stages.h"

namespace ibid {
namespace {

Error nothing_left() {
  return invalid(
      "no token is left to choose from: the bans, the allowed ids and logit_bias together exclude all of them");
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
    if (id == StageId::kDraw || !asks_for(id)) continue;
    (works_on_row(id) ? row_stages_ : support_stages_).push_back(id);
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

bool Sampler::asks_for(StageId id) const {
  const SamplingParams& p = params_;
  switch (id) {
    case StageId::kRepetitionPenalty:
      return p.repetition_penalty != 1.0f;
    case StageId::kPresenceFrequencyPenalty:
      return p.presence_penalty != 0 || p.frequency_penalty != 0;
    case StageId::kDry:
      return p.dry_multiplier > 0;
    case StageId::kLogitBias:
      return !p.logit_bias.empty();
    case StageId::kBanned:
      return !p.banned.empty();
    case StageId::kBannedSequences:
      return !p.banned_sequences.empty();
    case StageId::kNoRepeatNgram:
      return p.no_repeat_ngram > 0;
    case StageId::kAllowed:
      return !p.allowed.empty();
    case StageId::kMinTokens:
      return p.min_tokens > 0 || p.ignore_eos;
    case StageId::kTemperature:
      return p.temperature > 0 && (p.temperature != 1.0f || p.dynatemp_range > 0);
    case StageId::kTopNSigma:
      return p.top_n_sigma > 0;
    case StageId::kTopK:
      return p.top_k > 0;
    case StageId::kTypicalP:
      return p.typical_p < 1;
    case StageId::kTopP:
      return p.top_p < 1;
    case StageId::kMinP:
      return p.min_p > 0;
    case StageId::kXtc:
      return p.xtc_probability > 0;
    case StageId::kMirostat:
      return p.mirostat != 0;
    case StageId::kDraw:
      return true;
  }
  return false;
}

bool Sampler::bans_the_end(const SampleHistory& history) const {
  return params_.ignore_eos || static_cast<int32_t>(history.answer.size()) < params_.min_tokens;
}

bool Sampler::changes_logits(const SampleHistory& history) const {
  return std::ranges::any_of(row_stages_,
                             [&](StageId id) { return id != StageId::kMinTokens || bans_the_end(history); });
}

void Sampler::change_row(StageId id, std::span<float> row, const SampleHistory& history,
                         SamplerScratch& scratch) const {
  const SamplingParams& p = params_;
  switch (id) {
    case StageId::kRepetitionPenalty:
      return stages::repetition_penalty(row, history, p.repetition_penalty, p.penalty_last_n, scratch);
    case StageId::kPresenceFrequencyPenalty:
      return stages::presence_frequency_penalty(row, history, p.presence_penalty, p.frequency_penalty, scratch);
    case StageId::kDry:
      return stages::dry_penalty(row, history, p, scratch);
    case StageId::kLogitBias:
      return stages::logit_bias(row, p);
    case StageId::kBanned:
      return stages::ban_tokens(row, p.banned);
    case StageId::kBannedSequences:
      return stages::ban_sequences(row, history, p);
    case StageId::kNoRepeatNgram:
      return stages::no_repeat_ngram(row, history, p.no_repeat_ngram, scratch);
    case StageId::kAllowed:
      return stages::allow_only(row, allowed_);
    case StageId::kMinTokens:
      if (bans_the_end(history)) stages::ban_tokens(row, end_of_generation_);
      return;
    case StageId::kTemperature:
      return stages::temperature(row, p, scratch);
    default:
      CHECK(false, "this stage works on the support");
  }
}

void Sampler::cut_support(StageId id, stages::Support& support, const SampleHistory& history, const SamplerState& state,
                          SamplerScratch& scratch) const {
  const SamplingParams& p = params_;
  switch (id) {
    case StageId::kTopNSigma:
      return stages::top_n_sigma(support, p.top_n_sigma);
    case StageId::kTopK:
      return stages::top_k(support, p.top_k);
    case StageId::kTypicalP:
      return stages::typical(support, p.typical_p, scratch);
    case StageId::kTopP:
      return stages::top_p(support, p.top_p);
    case StageId::kMinP:
      return stages::min_p(support, p.min_p);
    case StageId::kXtc:
      return stages::xtc(support, p.xtc_probability, p.xtc_threshold, seed_ + state.choice, history.position());
    case StageId::kMirostat:
      return p.mirostat == 1 ? stages::mirostat1(support, state.mirostat_mu, vocab_size_)
                             : stages::mirostat2(support, state.mirostat_mu);
    default:
      CHECK(false, "this stage works on the row");
  }
}

Result<TokenRecord> Sampler::sample(std::span<const float> logits, const SampleHistory& history, SamplerState& state,
                                    SamplerScratch& scratch, std::span<const uint32_t> mask) const {
  CHECK(mask.empty() || mask.size() >= (logits.size() + 31) / 32);
  CHECK(static_cast<int32_t>(logits.size()) == vocab_size_);
  const SamplingParams& p = params_;
  // A model that computes NaN must not choose at random.
  if (!row_is_sound(logits)) return unsound_row();
  std::span<const float> row = logits;
  if (changes_logits(history) || !mask.empty()) {
    scratch.logits.assign(logits.begin(), logits.end());
    // Where the other hard masks stand would be the same: what comes before them changes tokens one by one, and none
    // from -infinity. Dynamic temperature, behind them, looks at the whole row.
    if (!mask.empty()) stages::keep_bits(scratch.logits, mask);
    for (StageId id : row_stages_) change_row(id, scratch.logits, history, scratch);
    row = scratch.logits;
    if (!row_is_sound(row)) {
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
  if (p.temperature <= 0) {
    out.chosen.token = TokenId{row_argmax(row)};
    if (raw(out.chosen.token) >= vocab_size_ || !(row[static_cast<size_t>(raw(out.chosen.token))] > kMasked))
      return nothing_left();
    out.support = 1;
  } else {
    if (!support.collect(row, scratch)) return nothing_left();
    for (StageId id : support_stages_) cut_support(id, support, history, state, scratch);
    out.chosen.token = stages::draw(support, seed_ + state.choice, history.position(), scratch);
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
  ASSIGN_OR_RETURN(TokenRecord scored, score_row(logits, out.chosen.token, p.logprobs, scratch));
  out.chosen.raw = scored.chosen.raw;
  out.top = std::move(scored.top);
  for (TokenLogprob& t : out.top) t.processed = t.token == out.chosen.token ? out.chosen.processed : kMasked;
  if (p.temperature <= 0 || !p.processed_logprobs) return out;
  // One look at the support for all of them: counts has who is wanted.
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
