#include "sim/solo.h"

#include <functional>

#include "sample/sampler.h"
#include "sim/cell_model.h"
#include "spelled_tokens.h"
#include "text/output/stop_matcher.h"

namespace ibid::sim {
namespace {

// The stop whose last byte comes first at or after `from`; of those, the longest. Npos: none.
struct Found {
  size_t begin = std::string::npos;
  std::string stop;
};
Found first_stop(const std::string& text, size_t from, const std::vector<std::string>& stops) {
  Found found;
  for (size_t end = from + 1; end <= text.size() && found.stop.empty(); ++end) {
    for (const std::string& stop : stops) {
      if (stop.size() > found.stop.size() && std::string_view(text).substr(0, end).ends_with(stop))
        found = {end - stop.size(), stop};
    }
  }
  return found;
}

std::string_view spelling(TokenId token) { return spelled_tokens()->token_bytes(token, false); }

}  // namespace

std::shared_ptr<const Tokenizer> spelled_tokens() {
  static const auto tokens = std::make_shared<const SpelledTokens>(
      std::vector<std::string>{"", "a", "b", "c", "d", "e", "f", "ab", "bc", "cd", "abc", " ", "x", "y", "xyx", "yx"});
  return tokens;
}

uint64_t scope_of(const Request& request) {
  const std::hash<std::string> hash;
  return mix(hash(request.tenant), hash(request.cache_salt));
}

Solo solo_answer(const Request& request, int32_t choice, int32_t context_len) {
  static thread_local SamplerScratch scratch;
  const TokenId ends[] = {kEnd};
  const auto sampler =
      Sampler::compile(request.sampling, kVocabSize, ends, request.sampling.seed + static_cast<uint64_t>(choice))
          .value();
  SamplerState state = sampler->initial_state();
  Solo out;
  out.tokens = request.prompt;
  out.prompt_len = static_cast<int32_t>(request.prompt.size());
  out.scope = scope_of(request);
  uint64_t prefix = out.scope;
  for (const TokenId t : request.prompt) out.prefixes.push_back(prefix = mix(prefix, t));
  const std::vector<std::string> none;
  const auto& stops = request.stops ? request.stops->strings() : none;
  std::string unread, read;  // before min_tokens stops are not searched for
  float logits[kVocabSize];
  while (request.max_tokens < 0 || out.n_answered() < request.max_tokens) {
    logits_after(prefix, logits);
    const auto tokens = std::span<const TokenId>(out.tokens);
    const auto n_prompt = static_cast<size_t>(out.prompt_len);
    const auto drawn = sampler->sample(logits, {tokens.first(n_prompt), tokens.subspan(n_prompt)}, state, scratch);
    if (!drawn) {
      out.reason = FinishReason::kError;
      break;
    }
    const TokenId token = drawn->chosen.token;
    out.tokens.push_back(token);
    out.prefixes.push_back(prefix = mix(prefix, token));
    if (request.sampling.logprobs >= 0) out.logprobs.push_back(drawn->chosen.raw);
    const bool may_end = out.n_answered() >= request.sampling.min_tokens;
    if (may_end && token == kEnd && !request.sampling.ignore_eos) {
      out.reason = FinishReason::kEos;
      break;
    }
    if (may_end && request.stops && request.stops->is_stop(token)) {
      out.reason = FinishReason::kStop;
      break;
    }
    const size_t n_read = read.size();
    (may_end ? read : unread) += spelling(token);
    if (const Found found = first_stop(read, n_read, stops); !found.stop.empty()) {
      read.resize(found.begin);
      out.stop_text = found.stop;
      out.reason = FinishReason::kStop;
      break;
    }
    if (static_cast<int32_t>(out.tokens.size()) >= context_len) break;
  }
  out.text = unread + read;
  return out;
}

std::string text_of(const Solo& solo, int32_t n) {
  std::string out;
  for (int32_t i = 0; i < n; ++i) out += spelling(solo.tokens[static_cast<size_t>(solo.prompt_len + i)]);
  return out;
}

float score_of(const Solo& solo, int32_t position) {
  static thread_local SamplerScratch scratch;
  float logits[kVocabSize];
  logits_after(solo.prefixes[static_cast<size_t>(position) - 1], logits);
  return score_row(logits, solo.tokens[static_cast<size_t>(position)], 0, scratch).value().chosen.raw;
}

}  // namespace ibid::sim
