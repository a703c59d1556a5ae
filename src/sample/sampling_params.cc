#include "sample/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace ibid {
namespace {

constexpr double kMaxInt = std::numeric_limits<int32_t>::max();

Status in_range(const char* name, double value, double low, double high, const char* wanted) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return invalid(fmt::format("{} is {}, but must be {}", name, value, wanted), name);
}

Status check_ids(const char* name, const std::vector<TokenId>& ids, int32_t vocab_size) {
  for (TokenId id : ids) {
    if (raw(id) < 0 || raw(id) >= vocab_size) {
      return invalid(
          fmt::format("{} names token {}, but the vocabulary has ids 0 to {}", name, raw(id), vocab_size - 1), name);
    }
  }
  return {};
}

Status bounded(const char* name, size_t n, const char* what) {
  if (n <= static_cast<size_t>(kMaxTokenEntries)) return {};
  return invalid(fmt::format("{} has {} {}, but at most {} are served", name, n, what, kMaxTokenEntries), name);
}

}  // namespace

Status validate(const SamplingParams& p, int32_t vocab_size) {
  TRY(in_range("repetition_penalty", p.repetition_penalty, 0.001f, 100, "between 0.001 and 100"));
  TRY(in_range("presence_penalty", p.presence_penalty, -2, 2, "between -2 and 2"));
  TRY(in_range("frequency_penalty", p.frequency_penalty, -2, 2, "between -2 and 2"));
  TRY(in_range("repeat_last_n", p.penalty_last_n, -1, kMaxInt, "-1 (all) or a number of tokens"));
  TRY(in_range("no_repeat_ngram_size", p.no_repeat_ngram, 0, kMaxInt, "0 (off) or the length of an n-gram"));
  TRY(in_range("dry_multiplier", p.dry_multiplier, 0, 100, "between 0 and 100"));
  TRY(in_range("dry_base", p.dry_base, 1, 100, "between 1 and 100"));
  TRY(in_range("dry_allowed_length", p.dry_allowed_len, 1, kMaxInt, "at least 1"));
  TRY(in_range("dry_penalty_last_n", p.dry_last_n, -1, kMaxInt, "-1 (all) or a number of tokens"));
  TRY(in_range("temperature", p.temperature, 0, 100, "between 0 (greedy) and 100"));
  TRY(in_range("dynatemp_range", p.dynatemp_range, 0, 100, "between 0 (off) and 100"));
  TRY(in_range("dynatemp_exponent", p.dynatemp_exponent, 0, 100, "between 0 and 100"));
  TRY(in_range("top_k", p.top_k, 0, kMaxInt, "0 (off) or a number of tokens"));
  if (!(p.top_p > 0 && p.top_p <= 1))
    return invalid(fmt::format("top_p is {}, but must be above 0 and at most 1", p.top_p), "top_p");
  TRY(in_range("min_p", p.min_p, 0, 1, "between 0 (off) and 1"));
  if (!(p.typical_p > 0 && p.typical_p <= 1)) {
    return invalid(fmt::format("typical_p is {}, but must be above 0 and at most 1", p.typical_p), "typical_p");
  }
  TRY(in_range("top_n_sigma", p.top_n_sigma, 0, 1000, "0 (off) or a number of standard deviations"));
  TRY(in_range("xtc_probability", p.xtc_probability, 0, 1, "between 0 (off) and 1"));
  TRY(in_range("xtc_threshold", p.xtc_threshold, 0, 1, "between 0 and 1"));
  TRY(in_range("mirostat", p.mirostat, 0, 2, "0 (off), 1 or 2"));
  TRY(in_range("mirostat_tau", p.mirostat_tau, 0, 1000, "between 0 and 1000"));
  TRY(in_range("mirostat_eta", p.mirostat_eta, 0, 100, "between 0 and 100"));
  const int32_t most = std::min(vocab_size, kMaxLogprobs);
  TRY(in_range("logprobs", p.logprobs, -1, most, fmt::format("at most {}", most).c_str()));
  TRY(in_range("min_tokens", p.min_tokens, 0, kMaxInt, "0 or more"));
  TRY(bounded("logit_bias", p.logit_bias.size(), "entries"));
  TRY(bounded("banned_token_ids", p.banned.size(), "entries"));
  size_t n_banned = 0;
  for (const auto& sequence : p.banned_sequences) n_banned += sequence.size();
  TRY(bounded("bad_words", n_banned, "tokens"));
  for (const auto& [id, bias] : p.logit_bias) {
    TRY(check_ids("logit_bias", {id}, vocab_size));
    TRY(in_range("logit_bias", bias, -1e6, 1e6, "a finite number"));
  }
  TRY(check_ids("banned_token_ids", p.banned, vocab_size));
  TRY(check_ids("allowed_token_ids", p.allowed, vocab_size));
  for (const auto& sequence : p.banned_sequences) TRY(check_ids("bad_words", sequence, vocab_size));
  return {};
}

}  // namespace ibid
