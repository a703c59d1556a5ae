// What tokens were drawn by, as text and as one number: the order of the stages, the version of the arithmetic that
// made the logits, and every parameter that can change a token. The text, and so the number, is the same on every
// machine and in every process (row T3), so that a trace tells whether two answers were drawn alike.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sample/sampling_params.h"
#include "sample/stage_order.h"
#include "text/output/breaker_set.h"

namespace ibid {

// Calls visit(name, value) for each parameter but those that change no token of a given seed (seed, logprobs,
// processed_logprobs); numbers and booleans first, then lists. Names are those of the API.
template <typename Visit>
void for_each_parameter(const SamplingParams& params, Visit&& visit) {
  // A member that is added must be added here, or this does not compile.
  const auto& [repetition_penalty, presence_penalty, frequency_penalty, penalty_last_n, no_repeat_ngram, dry_multiplier,
               dry_base, dry_allowed_len, dry_last_n, dry_breakers, logit_bias, banned, banned_sequences, allowed,
               temperature, dynatemp_range, dynatemp_exponent, top_k, top_p, min_p, typical_p, top_n_sigma,
               xtc_probability, xtc_threshold, mirostat, mirostat_tau, mirostat_eta, seed, logprobs, processed_logprobs,
               min_tokens, ignore_eos] = params;
  visit("temperature", temperature);
  visit("top_k", top_k);
  visit("top_p", top_p);
  visit("min_p", min_p);
  visit("typical_p", typical_p);
  visit("top_n_sigma", top_n_sigma);
  visit("xtc_probability", xtc_probability);
  visit("xtc_threshold", xtc_threshold);
  visit("dynatemp_range", dynatemp_range);
  visit("dynatemp_exponent", dynatemp_exponent);
  visit("mirostat", mirostat);
  visit("mirostat_tau", mirostat_tau);
  visit("mirostat_eta", mirostat_eta);
  visit("repetition_penalty", repetition_penalty);
  visit("repeat_last_n", penalty_last_n);
  visit("presence_penalty", presence_penalty);
  visit("frequency_penalty", frequency_penalty);
  visit("no_repeat_ngram_size", no_repeat_ngram);
  visit("dry_multiplier", dry_multiplier);
  visit("dry_base", dry_base);
  visit("dry_allowed_length", dry_allowed_len);
  visit("dry_penalty_last_n", dry_last_n);
  visit("min_tokens", min_tokens);
  visit("ignore_eos", ignore_eos);
  static_cast<void>(seed), static_cast<void>(logprobs), static_cast<void>(processed_logprobs);
  visit("dry_sequence_breakers", dry_breakers ? dry_breakers->texts() : std::vector<std::string>());
  visit("logit_bias", logit_bias);
  visit("banned_token_ids", banned);
  visit("banned_sequences", banned_sequences);
  visit("allowed_token_ids", allowed);
}

// The lines that are hashed: "stages=a,b,c", and for the sampling "arithmetic_version=n" and "name=value" for each
// parameter, each with a newline. Floats have the
// fewest digits that give them back; texts are preceded by their length in bytes.
std::string spell_stages(std::span<const StageId> order = stage_order());
std::string spell_sampling(const SamplingParams& params, std::span<const StageId> order = stage_order());

// XXH3-128 of such lines, as 32 hexadecimal digits.
std::string sampling_digest(std::string_view spelled);

}  // namespace ibid
