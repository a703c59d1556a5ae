#include "engine/admission.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>

#include "base/planted.h"
#include "text/output/stop_matcher.h"

namespace ibid {
namespace {

// All but the sampling, which its sampler checks.
Status validate(const Request& request, const ModelFacts& model, bool has_text) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  if (request.prompt.empty()) return invalid("The prompt has no tokens; one is the least.", "prompt");
  if (request.prompt.size() > static_cast<size_t>(model.context_len)) {
    return invalid("The prompt has " + number(static_cast<int64_t>(request.prompt.size())) +
                       " tokens and the context is " + number(model.context_len) + "; a shorter prompt would do.",
                   "prompt");
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (raw(request.prompt[i]) >= 0 && raw(request.prompt[i]) < model.vocab_size) continue;
    return invalid("Token " + number(static_cast<int64_t>(i)) + " of the prompt is " + number(raw(request.prompt[i])) +
                       "; ids go from 0 to " + number(model.vocab_size - 1) + ".",
                   "prompt");
  }
  if (request.n < 1 || request.n > kMaxChoices) {
    return invalid("n is " + number(request.n) + "; 1 to " + number(kMaxChoices) + " choices would do.", "n");
  }
  if (request.max_tokens < -1) {
    return invalid(
        "max_tokens is " + number(request.max_tokens) + "; 0 or more, or -1 for up to the context, would do.",
        "max_tokens");
  }
  if (request.max_tokens >= 0 && request.sampling.min_tokens > request.max_tokens) {
    return invalid("min_tokens is " + number(request.sampling.min_tokens) + " and max_tokens is " +
                       number(request.max_tokens) + "; min_tokens must not be more.",
                   "min_tokens");
  }
  if (!(request.weight > 0 && request.weight <= 1e6f))
    return invalid("weight is " + std::to_string(request.weight) + "; above 0 and up to 1000000 would do.", "weight");
  for (const float seconds : {request.ttft_target, request.tpot_target, request.max_wait}) {
    if (!(seconds >= 0 && std::isfinite(seconds)))
      return invalid("A target is " + std::to_string(seconds) + " seconds; 0 (none) or more would do.", "target");
  }
  const int32_t most = std::min(model.vocab_size, kMaxLogprobs);
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > most) {
    return invalid("prompt_logprobs is " + number(request.prompt_logprobs) + "; -1 to " + number(most) + " would do.",
                   "prompt_logprobs");
  }
  if (request.pooling != Pooling::kNone) {
    if (model.width == 0) return unsupported("This model has no hidden states to make a text's vector of.", "pooling");
    if (request.n != 1 || request.max_tokens != 0 || request.prompt_logprobs >= 0)
      return invalid("A text's vector is no answer: n 1, max_tokens 0 and no prompt_logprobs would do.", "pooling");
  }
  if (!has_text && request.stops && !request.stops->strings().empty()) {
    return unsupported("Stop strings need a tokenizer, and this model has none; stop ids would do.", "stop");
  }
  return {};
}

}  // namespace

Result<AdmittedRequest> admit(Request request, const ModelFacts& model, bool has_text) try {
  TRY(validate(request, model, has_text));
  ASSIGN_OR_RETURN(std::shared_ptr<const Sampler> sampler,
                   Sampler::compile(request.sampling, model.vocab_size, model.end_of_generation,
                                    PLANTED("noise_shared_by_requests") ? 0 : request.sampling.seed));
  return AdmittedRequest(std::make_shared<const Request>(std::move(request)), std::move(sampler));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status may_wait(int32_t n_now, int32_t n_then, int32_t max_waiting) {
  if (n_then <= max_waiting || (n_now == 0 && max_waiting > 0)) return {};
  return exhausted("The queue is full (" + std::to_string(n_now) + " sequences wait); try again later.");
}

}  // namespace ibid
