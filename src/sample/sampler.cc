#include "sample/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "kernels/math.h"
#include "sample/row_functions.h"
#include "sample/stages.h"

namespace ibid {
namespace {

constexpr std::array<std::string_view, 18> kStageNames = {"repetition_penalty",
                                                          "presence_frequency_penalty",
                                                          "dry",
                                                          "logit_bias",
                                                          "banned",
                                                          "banned_sequences",
                                                          "no_repeat_ngram",
                                                          "allowed",
                                                          "min_tokens",
                                                          "temperature",
                                                          "top_n_sigma",
                                                          "top_k",
                                                          "typical_p",
                                                          "top_p",
                                                          "min_p",
                                                          "xtc",
                                                          "mirostat",
                                                          "draw"};

Error nothing_left() {
  return invalid(
      "no token is left to choose from: the bans, the allowed ids and logit_bias together exclude all of them");
}

}  // namespace

std::span<const std::string_view> stage_names() { return kStageNames; }

Sampler::Sampler(SamplingParams params, int32_t vocab_size, std::vector<TokenId> end_of_generation, uint64_t seed)
    : params_(std::move(params)),
      vocab_size_(vocab_size),
      end_of_generation_(std::move(end_of_generation)),
      seed_(seed) {
  if (!params_.allowed.empty()) {
    allowed_.assign(static_cast<size_t>(vocab_size), 0);
    for (TokenId t : params_.allowed) allowed_[static_cast<size_t>(raw(t))] = 1;
  }
}

Result<std::shared_ptr<const Sampler>> Sampler::compile(const SamplingParams& params, int32_t vocab_size,
                                                        std::span<const TokenId> end_of_generation, uint64_t seed) {
  TRY(validate(params, vocab_size));
  std::vector<TokenId> ends;
  for (TokenId t : end_of_generation) {
    if (raw(t) >= 0 && raw(t) < vocab_size) ends.push_back(t);
  }
  return std::shared_ptr<const Sampler>(new Sampler(params, vocab_size, std::move(ends), seed));
}

SamplerState Sampler::initial_state() const { return {.mirostat_mu = 2.0f * params_.mirostat_tau}; }

bool Sampler::changes_logits(const SampleHistory& history) const {
  const SamplingParams& p = params_;
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0 || p.frequency_penalty != 0 || p.dry_multiplier > 0 ||
         !p.logit_bias.empty() || !p.banned.empty() || !p.banned_sequences.empty() || p.no_repeat_ngram > 0 ||
         !allowed_.empty() || bans_the_end(history) ||
         (p.temperature > 0 && (p.temperature != 1.0f || p.dynatemp_range > 0));
}

bool Sampler::bans_the_end(const SampleHistory& history) const {
  return params_.ignore_eos || static_cast<int32_t>(history.answer.size()) < params_.min_tokens;
}

void Sampler::process(std::span<float> row, const SampleHistory& history, SamplerScratch& scratch) const {
  const SamplingParams& p = params_;
  if (p.repetition_penalty != 1.0f)
    stages::repetition_penalty(row, history, p.repetition_penalty, p.penalty_last_n, scratch);
  if (p.presence_penalty != 0 || p.frequency_penalty != 0) {
    stages::presence_frequency_penalty(row, history, p.presence_penalty, p.frequency_penalty, scratch);
  }
  if (p.dry_multiplier > 0) stages::dry_penalty(row, history, p, scratch);
  stages::logit_bias(row, p);
  stages::ban_tokens(row, p.banned);
  stages::ban_sequences(row, history, p);
  if (p.no_repeat_ngram > 0) stages::no_repeat_ngram(row, history, p.no_repeat_ngram, scratch);
  if (!allowed_.empty()) stages::allow_only(row, allowed_);
  if (bans_the_end(history)) stages::ban_tokens(row, end_of_generation_);
  if (p.temperature > 0) {
    float temperature = std::max(stages::effective_temperature(row, p, scratch), 1e-6f);
    if (temperature != 1.0f) {
      for (float& z : row) z /= temperature;
    }
  }
}

void Sampler::truncate(stages::Support& support, const SampleHistory& history, const SamplerState& state,
                       SamplerScratch& scratch) const {
  const SamplingParams& p = params_;
  if (p.top_n_sigma > 0) stages::top_n_sigma(support, p.top_n_sigma);
  if (p.top_k > 0) stages::top_k(support, p.top_k);
  if (p.typical_p < 1) stages::typical(support, p.typical_p, scratch);
  if (p.top_p < 1) stages::top_p(support, p.top_p);
  if (p.min_p > 0) stages::min_p(support, p.min_p);
  if (p.xtc_probability > 0) stages::xtc(support, p.xtc_probability, p.xtc_threshold, seed_, history.position());
  if (p.mirostat == 2) stages::mirostat(support, state.mirostat_mu);
}

Result<Sample> Sampler::sample(std::span<const float> logits, const SampleHistory& history, SamplerState& state,
                               SamplerScratch& scratch) const {
  CHECK(static_cast<int32_t>(logits.size()) == vocab_size_);
  const SamplingParams& p = params_;
  // A model that computes NaN must not choose at random.
  if (row_has_nan(logits))
    return invalid("the model computed a logit that is not a number; its weights may be damaged");
  std::span<const float> row = logits;
  if (changes_logits(history)) {
    scratch.logits.assign(logits.begin(), logits.end());
    process(scratch.logits, history, scratch);
    row = scratch.logits;
  }
  constexpr float kMasked = -std::numeric_limits<float>::infinity();

  Sample out;
  stages::Support support;
  double log_total = 0;
  // log-probability among what was left to draw from
  auto processed = [&](const Candidate& c) {
    return static_cast<float>(static_cast<double>(c.logit - support.max_logit()) - log_total);
  };
  if (p.temperature <= 0) {
    out.chosen.token = TokenId{row_argmax(row)};
    if (raw(out.chosen.token) >= vocab_size_ || !(row[static_cast<size_t>(raw(out.chosen.token))] > kMasked))
      return nothing_left();
    out.support = 1;
  } else {
    if (!support.collect(row, scratch)) return nothing_left();
    truncate(support, history, state, scratch);
    out.chosen.token = stages::draw(support, seed_, history.position(), scratch);
    out.support = support.size();
    if (p.mirostat == 2 || p.processed_logprobs) {
      log_total = math::log(support.total_weight());
      out.chosen.processed = processed({.logit = row[static_cast<size_t>(raw(out.chosen.token))]});
    }
    if (p.mirostat == 2) {
      constexpr float kNatsPerBit = 0.69314718f;
      float surprise = -out.chosen.processed / kNatsPerBit;
      state.mirostat_mu = stages::mirostat_update(state.mirostat_mu, surprise, p.mirostat_tau, p.mirostat_eta);
    }
  }
  if (p.logprobs < 0) return out;

  Sample scored = score_row(logits, out.chosen.token, p.logprobs, scratch);
  out.chosen.raw = scored.chosen.raw;
  out.top = std::move(scored.top);
  for (ScoredToken& t : out.top) {
    t.processed = t.token == out.chosen.token ? out.chosen.processed : kMasked;
    if (p.temperature <= 0 || !p.processed_logprobs) continue;
    for (const Candidate& c : support.all()) {
      if (TokenId{c.id} == t.token) t.processed = processed(c);
    }
  }
  return out;
}

}  // namespace ibid
