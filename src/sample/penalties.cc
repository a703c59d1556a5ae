#include <algorithm>
#include <limits>

#include "kernels/math.h"
#include "sample/repeats.h"
#include "sample/stages.h"
#include "text/output/breaker_set.h"

namespace ibid::stages {
namespace {

// The last n tokens of prompt + answer, oldest first, as a pair of spans.
std::pair<std::span<const TokenId>, std::span<const TokenId>> last_tokens(const SampleHistory& history, int32_t n) {
  size_t total = history.prompt.size() + history.answer.size();
  size_t take = n < 0 ? total : std::min(total, static_cast<size_t>(n));
  size_t from_answer = std::min(take, history.answer.size());
  return {history.prompt.last(std::min(take - from_answer, history.prompt.size())), history.answer.last(from_answer)};
}

void count(std::span<const TokenId> tokens, int32_t vocab_size, SamplerScratch& scratch) {
  for (TokenId t : tokens) {
    if (raw(t) < 0 || raw(t) >= vocab_size) continue;
    if (scratch.counts[static_cast<size_t>(raw(t))]++ == 0) scratch.touched.push_back(raw(t));
  }
}

void clear_counts(SamplerScratch& scratch) {
  for (int32_t t : scratch.touched) scratch.counts[static_cast<size_t>(t)] = 0;
  scratch.touched.clear();
}

void prepare_counts(std::span<float> logits, SamplerScratch& scratch) {
  if (scratch.counts.size() < logits.size()) scratch.counts.resize(logits.size(), 0);
}

TokenId at(const SampleHistory& history, size_t i) {
  return i < history.prompt.size() ? history.prompt[i] : history.answer[i - history.prompt.size()];
}

bool ends_with(const SampleHistory& history, size_t end, std::span<const TokenId> tail) {
  if (tail.size() > end) return false;
  for (size_t i = 0; i < tail.size(); ++i) {
    if (at(history, end - tail.size() + i) != tail[i]) return false;
  }
  return true;
}

}  // namespace

void repetition_penalty(std::span<float> logits, const SampleHistory& history, float penalty, int32_t last_n,
                        SamplerScratch& scratch) {
  prepare_counts(logits, scratch);
  auto [old_part, new_part] = last_tokens(history, last_n);
  count(old_part, static_cast<int32_t>(logits.size()), scratch);
  count(new_part, static_cast<int32_t>(logits.size()), scratch);
  for (int32_t t : scratch.touched) {
    float& z = logits[static_cast<size_t>(t)];
    z = z > 0 ? z / penalty : z * penalty;
  }
  clear_counts(scratch);
}

void presence_frequency_penalty(std::span<float> logits, const SampleHistory& history, float presence, float frequency,
                                SamplerScratch& scratch) {
  prepare_counts(logits, scratch);
  count(history.answer, static_cast<int32_t>(logits.size()), scratch);
  for (int32_t t : scratch.touched) {
    auto n = static_cast<float>(scratch.counts[static_cast<size_t>(t)]);
    logits[static_cast<size_t>(t)] -= n * frequency + presence;
  }
  clear_counts(scratch);
}

// For each earlier position i, the length of the common suffix of history[..i] and the history is how long a repeat
// would get if history[i + 1] came next.
void dry_penalty(std::span<float> logits, const SampleHistory& history, const SamplingParams& params,
                 SamplerScratch& scratch) {
  size_t total = history.prompt.size() + history.answer.size();
  size_t n = params.dry_last_n < 0 ? total : std::min(total, static_cast<size_t>(params.dry_last_n));
  // A breaker ends every repeat: nothing before the last one's end counts.
  if (params.dry_breakers) n = params.dry_breakers->n_after_last(history.prompt, history.answer, n);
  // Only repeats of what follows the last breaker are counted, but their earlier occurrence may be anywhere.
  size_t window = params.dry_last_n < 0 ? total : std::min(total, static_cast<size_t>(params.dry_last_n));
  if (n == 0 || window < 2) return;
  auto reversed = [&](size_t i) { return at(history, total - 1 - i); };
  repeat_lengths(window, reversed, scratch.repeats);
  prepare_counts(logits, scratch);
  for (size_t i = 1; i < window; ++i) {
    int32_t len = std::min(scratch.repeats[i], static_cast<int32_t>(n));
    int32_t next = raw(reversed(i - 1));
    if (len < params.dry_allowed_len || next < 0 || next >= static_cast<int32_t>(logits.size())) continue;
    int32_t& longest = scratch.counts[static_cast<size_t>(next)];
    if (longest == 0) scratch.touched.push_back(next);
    longest = std::max(longest, len);
  }
  double log_base = math::log(static_cast<double>(params.dry_base));
  for (int32_t t : scratch.touched) {
    double power = static_cast<double>(scratch.counts[static_cast<size_t>(t)] - params.dry_allowed_len) * log_base;
    double penalty = params.dry_multiplier * math::exp(std::min(power, 80.0));
    logits[static_cast<size_t>(t)] -= static_cast<float>(penalty);
  }
  clear_counts(scratch);
}

void no_repeat_ngram(std::span<float> logits, const SampleHistory& history, int32_t n, SamplerScratch& scratch) {
  const size_t total = history.prompt.size() + history.answer.size(), prefix = static_cast<size_t>(n) - 1;
  if (total <= prefix) return;
  const auto reversed = [&](size_t i) { return at(history, total - 1 - i); };
  if (prefix > 0) repeat_lengths(total, reversed, scratch.repeats);
  // The tokens that followed earlier occurrences of the last n - 1 tokens.
  for (size_t i = 1; i + prefix <= total; ++i) {
    const int32_t next = raw(reversed(i - 1));
    if (prefix > 0 && static_cast<size_t>(scratch.repeats[i]) < prefix) continue;
    if (next < 0 || next >= static_cast<int32_t>(logits.size())) continue;
    logits[static_cast<size_t>(next)] = -std::numeric_limits<float>::infinity();
  }
}

void ban_sequences(std::span<float> logits, const SampleHistory& history, const SamplingParams& params) {
  size_t total = history.prompt.size() + history.answer.size();
  for (const std::vector<TokenId>& sequence : params.banned_sequences) {
    std::span<const TokenId> all(sequence);
    if (all.empty() || !ends_with(history, total, all.first(all.size() - 1))) continue;
    logits[static_cast<size_t>(raw(all.back()))] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace ibid::stages
