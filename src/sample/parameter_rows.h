// The parameters of a draw, one row each: the name in API, traces and errors, and its range. validate() checks requests
// against the rows, digests and traces spell them.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sample/sampling_params.h"
#include "text/output/breaker_set.h"

namespace ibid {

// [low, high] of a number; booleans and lists have none.
struct ParameterRange {
  double low = 0, high = 0;
  const char* wanted = "";  // in words: "x is 7, but must be <wanted>"
};
inline constexpr double kAboveZero = std::numeric_limits<float>::denorm_min();

// Calls visit(name, value, range) for each parameter but those that change no token of a given seed (seed, logprobs,
// processed_logprobs, logprob_token_ids); numbers and booleans first, then lists. Names are those of the API. The order
// is the digests': a new parameter goes after those of its kind.
template <typename Visit>
void for_each_parameter_row(const SamplingParams& params, Visit&& visit) {
  // A new member must be added here, or this does not compile.
  const auto& [repetition_penalty, presence_penalty, frequency_penalty, penalty_last_n, no_repeat_ngram, dry_multiplier,
               dry_base, dry_allowed_len, dry_last_n, dry_breakers, logit_bias, banned, banned_sequences, allowed,
               temperature, dynatemp_range, dynatemp_exponent, top_k, top_p, min_p, typical_p, top_n_sigma,
               xtc_probability, xtc_threshold, mirostat, mirostat_tau, mirostat_eta, seed, logprobs, processed_logprobs,
               logprob_tokens, min_tokens, ignore_eos] = params;
  constexpr double kMaxInt = std::numeric_limits<int32_t>::max();
  visit("temperature", temperature, ParameterRange{0, 100, "between 0 (greedy) and 100"});
  visit("top_k", top_k, ParameterRange{0, kMaxInt, "0 (off) or a number of tokens"});
  visit("top_p", top_p, ParameterRange{kAboveZero, 1, "above 0 and at most 1"});
  visit("min_p", min_p, ParameterRange{0, 1, "between 0 (off) and 1"});
  visit("typical_p", typical_p, ParameterRange{kAboveZero, 1, "above 0 and at most 1"});
  visit("top_n_sigma", top_n_sigma, ParameterRange{0, 1000, "0 (off) or a number of standard deviations"});
  visit("xtc_probability", xtc_probability, ParameterRange{0, 1, "between 0 (off) and 1"});
  visit("xtc_threshold", xtc_threshold, ParameterRange{0, 1, "between 0 and 1"});
  visit("dynatemp_range", dynatemp_range, ParameterRange{0, 100, "between 0 (off) and 100"});
  visit("dynatemp_exponent", dynatemp_exponent, ParameterRange{0, 100, "between 0 and 100"});
  visit("mirostat", mirostat, ParameterRange{0, 2, "0 (off), 1 or 2"});
  visit("mirostat_tau", mirostat_tau, ParameterRange{0, 1000, "between 0 and 1000"});
  visit("mirostat_eta", mirostat_eta, ParameterRange{0, 100, "between 0 and 100"});
  visit("repetition_penalty", repetition_penalty, ParameterRange{0.001f, 100, "between 0.001 and 100"});
  visit("repeat_last_n", penalty_last_n, ParameterRange{-1, kMaxInt, "-1 (all) or a number of tokens"});
  visit("presence_penalty", presence_penalty, ParameterRange{-2, 2, "between -2 and 2"});
  visit("frequency_penalty", frequency_penalty, ParameterRange{-2, 2, "between -2 and 2"});
  visit("no_repeat_ngram_size", no_repeat_ngram, ParameterRange{0, kMaxInt, "0 (off) or the length of an n-gram"});
  visit("dry_multiplier", dry_multiplier, ParameterRange{0, 100, "between 0 and 100"});
  visit("dry_base", dry_base, ParameterRange{1, 100, "between 1 and 100"});
  visit("dry_allowed_length", dry_allowed_len, ParameterRange{1, kMaxInt, "at least 1"});
  visit("dry_penalty_last_n", dry_last_n, ParameterRange{-1, kMaxInt, "-1 (all) or a number of tokens"});
  visit("min_tokens", min_tokens, ParameterRange{0, kMaxInt, "0 or more"});
  visit("ignore_eos", ignore_eos, ParameterRange{});
  static_cast<void>(seed), static_cast<void>(logprobs), static_cast<void>(processed_logprobs);
  static_cast<void>(logprob_tokens);
  visit("dry_sequence_breakers", dry_breakers, ParameterRange{});
  visit("logit_bias", logit_bias, ParameterRange{});
  visit("banned_token_ids", banned, ParameterRange{});
  visit("banned_sequences", banned_sequences, ParameterRange{});
  visit("allowed_token_ids", allowed, ParameterRange{});
}

// The same without ranges, and with the breakers as their texts.
template <typename Visit>
void for_each_parameter(const SamplingParams& params, Visit&& visit) {
  for_each_parameter_row(params, [&]<typename T>(std::string_view name, const T& value, const ParameterRange&) {
    if constexpr (std::is_same_v<T, std::shared_ptr<const BreakerSet>>) {
      visit(name, value ? value->texts() : std::vector<std::string>());
    } else {
      visit(name, value);
    }
  });
}

}  // namespace ibid
