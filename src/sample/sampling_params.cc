#include "sample/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "sample/parameter_rows.h"

namespace ibid {
namespace {

template <typename Number>
Status in_range(const char* name, Number number, const ParameterRange& range) {
  const auto value = static_cast<double>(number);
  if (std::isfinite(value) && value >= range.low && value <= range.high) return {};
  return invalid(fmt::format("{} is {}, but must be {}", name, number, range.wanted), name);
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
  Status first_wrong;
  for_each_parameter_row(p, [&]<typename T>(const char* name, const T& value, const ParameterRange& range) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (first_wrong) first_wrong = in_range(name, value, range);
    }
  });
  TRY(std::move(first_wrong));
  const int32_t most = std::min(vocab_size, kMaxLogprobs);
  TRY(in_range("logprobs", p.logprobs, {-1, static_cast<double>(most), fmt::format("at most {}", most).c_str()}));
  if (p.logprob_tokens.size() > static_cast<size_t>(most))
    return invalid(fmt::format("logprob_token_ids has {} ids; expected at most {}", p.logprob_tokens.size(), most),
                   "logprob_token_ids");
  TRY(check_ids("logprob_token_ids", p.logprob_tokens, vocab_size));
  TRY(bounded("logit_bias", p.logit_bias.size(), "entries"));
  TRY(bounded("banned_token_ids", p.banned.size(), "entries"));
  size_t n_banned = 0;
  for (const auto& sequence : p.banned_sequences) n_banned += sequence.size();
  TRY(bounded("bad_words", n_banned, "tokens"));
  for (const auto& [id, bias] : p.logit_bias) {
    TRY(check_ids("logit_bias", {id}, vocab_size));
    TRY(in_range("logit_bias", bias, {-1e6, 1e6, "a finite number"}));
  }
  TRY(check_ids("banned_token_ids", p.banned, vocab_size));
  TRY(check_ids("allowed_token_ids", p.allowed, vocab_size));
  for (const auto& sequence : p.banned_sequences) TRY(check_ids("bad_words", sequence, vocab_size));
  return {};
}

}  // namespace ibid
