#include "engine/admission.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>

#include "model/vision/prompt_pictures.h"
#include "sample/grammar/matcher.h"
#include "text/output/stop_matcher.h"

namespace ibid {
namespace {

// What a search needs, and what cannot stand beside one.
Status validate_search(const Request& request, const ModelFacts& model) {
  const SearchOptions& search = request.search;
  const auto not_beside = [](const char* field) {
    return unsupported(std::string("A search finds whole texts, so ") + field + " cannot stand beside it.", field);
  };
  TRY(validate(search));
  const bool is_contrastive = search.kind == SearchKind::kContrastive;
  if (request.n > (is_contrastive ? 1 : search.width))
    return invalid("n is " + std::to_string(request.n) + " and the search has fewer texts.", "n");
  if (request.max_tokens == 0)
    return invalid("A search needs tokens to search; expected max_tokens of 1 or more.", "max_tokens");
  if (static_cast<int32_t>(request.prompt.size()) >= model.context_len)
    return invalid("The prompt fills the context and leaves nothing to search.", "prompt");
  if (is_contrastive && search.width > model.vocab_size) return not_beside("so large a top_k");
  const int64_t room = model.context_len - static_cast<int64_t>(request.prompt.size());
  const int64_t n_answer = request.max_tokens < 0 ? room : std::min<int64_t>(room, request.max_tokens);
  const int64_t n_context = static_cast<int64_t>(request.prompt.size()) + n_answer;
  if (is_contrastive && n_context * model.width > kMaxContrastiveContext) {
    return invalid("Contrastive search compares hidden states of at most " +
                       std::to_string(kMaxContrastiveContext / std::max(1, model.width)) +
                       " tokens, prompt and answer together; use a smaller max_tokens.",
                   "max_tokens");
  }
  if (request.stops && !request.stops->strings().empty()) return not_beside("stop");
  if (request.prompt_logprobs >= 0) return not_beside("prompt_logprobs");
  if (request.sampling.logprobs > 0) return not_beside("top_logprobs");
  if (request.grammar && request.grammar->n_choices() < search.width)
    return invalid("The grammar's matcher has too few choices for the search.", "grammar");
  return {};
}

// What stands in the place of tokens.
Status validate_pictures(const Request& request, const ModelFacts& model) {
  if (model.picture_row_len == 0) return unsupported("This model takes no pictures.", "image_url");
  if (request.pooling != Pooling::kNone || model.encoder)
    return unsupported("A text's vector is made without pictures.", "image_url");
  if (model.sees_whole_pictures && request.prompt_logprobs >= 0)
    return unsupported("This model computes a picture in one step, which has no room for as many log-probabilities.",
                       "prompt_logprobs");
  int32_t last = 0;
  for (const PlacedPicture& p : request.pictures->all()) {
    if (p.rows == nullptr || p.rows->row_len != model.picture_row_len || p.rows->rows < 1 || p.rows->columns < 1)
      return invalid("A picture was made for another model.", "image_url");
    if (p.first < last || p.rows->n_cells() > static_cast<int32_t>(request.prompt.size()) - p.first)
      return invalid("A picture's cells are not tokens of the prompt.", "image_url");
    last = p.end();
  }
  return {};
}

// What goes on with fewer keys and values.
Status validate_eviction(const Request& request, const ModelFacts& model) {
  const auto not_beside = [](const char* what) {
    return unsupported(std::string("Keys and values cannot be evicted beside ") + what + ".", "kv_eviction");
  };
  if (!model.no_eviction.empty())
    return unsupported("Keys and values cannot be evicted: this model has " + model.no_eviction + ".", "kv_eviction");
  if (request.searches()) return not_beside("a search");
  if (request.pooling != Pooling::kNone) return not_beside("pooling, which reads none");
  if (request.prompt_logprobs >= 0) return not_beside("prompt_logprobs, which steps may cut anywhere");
  if (request.pictures) return not_beside("pictures");
  if (pins_drafts(request.speculation.verifier))
    return not_beside("a verifier whose draws depend on drafts; use the coupled one");
  return validate(request.kv_eviction);
}

// Where an answer goes on.
Status validate_resume(const Request& request, const ModelFacts& model) {
  const std::vector<TokenId>& tokens = request.resume.tokens;
  const auto not_beside = [](const std::string& what, const char* field) {
    return unsupported("An answer cannot be resumed beside " + what + ".", field);
  };
  if (request.n != 1)
    return unsupported("One choice is resumed at a time: expected n 1, with seed + i for choice i.", "n");
  if (request.searches()) return not_beside("a search, which has no tokens before its end", "num_beams");
  if (request.pooling != Pooling::kNone) return not_beside("pooling, which answers no token", "pooling");
  if (request.prompt_logprobs >= 0)
    return not_beside("prompt_logprobs, which are of its first part", "prompt_logprobs");
  if (pins_drafts(request.speculation.verifier))
    return not_beside("a verifier whose draws depend on drafts; use the coupled one", "speculation.verifier");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (raw(tokens[i]) >= 0 && raw(tokens[i]) < model.vocab_size) continue;
    return invalid("Token " + std::to_string(i) + " of resume is " + std::to_string(raw(tokens[i])) +
                       "; ids go from 0 to " + std::to_string(model.vocab_size - 1) + ".",
                   "resume");
  }
  const auto n_room = static_cast<int64_t>(model.context_len) - static_cast<int64_t>(request.prompt.size());
  const int64_t most = request.max_tokens < 0 ? n_room : std::min<int64_t>(n_room, request.max_tokens);
  if (std::ssize(tokens) > most) {
    return invalid(
        "resume has " + std::to_string(tokens.size()) + " tokens; the answer may have " + std::to_string(most) + ".",
        "resume");
  }
  const std::optional<float>& mu = request.resume.mirostat_mu;
  if (request.sampling.mirostat != 0 && !mu)
    return invalid("An answer that mirostat draws is resumed with its mirostat_mu.", "resume");
  if (mu && !std::isfinite(*mu)) return invalid("mirostat_mu of resume is no number.", "resume");
  return {};
}

// The state of the request's grammar after these tokens.
Result<uint32_t> state_after(grammar::Matcher& matcher, std::span<const TokenId> tokens) {
  grammar::StateId state = grammar::kInitial;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_over = matcher.is_closed(state);
    if (!is_over) state = matcher.after(0, state, tokens[i]);
    if (is_over || state == grammar::kDead) {
      return invalid("Token " + std::to_string(i) + " of resume is none that the answer's grammar allows there.",
                     "resume");
    }
    matcher.hold(0, state);
  }
  return state;
}

// All but the sampling, which its sampler checks.
Status validate(const Request& request, const ModelFacts& model, bool has_text) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  if (request.prompt.empty()) return invalid("The prompt has no tokens; one is the least.", "prompt");
  if (request.prompt.size() > static_cast<size_t>(model.context_len)) {
    return invalid("The prompt has " + number(static_cast<int64_t>(request.prompt.size())) +
                       " tokens and the context is " + number(model.context_len) + "; use a shorter prompt.",
                   "prompt");
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (raw(request.prompt[i]) >= 0 && raw(request.prompt[i]) < model.vocab_size) continue;
    return invalid("Token " + number(static_cast<int64_t>(i)) + " of the prompt is " + number(raw(request.prompt[i])) +
                       "; ids go from 0 to " + number(model.vocab_size - 1) + ".",
                   "prompt");
  }
  if (request.n < 1 || request.n > kMaxChoices) {
    return invalid("n is " + number(request.n) + "; expected 1 to " + number(kMaxChoices) + " choices.", "n");
  }
  if (request.max_tokens < -1) {
    return invalid("max_tokens is " + number(request.max_tokens) + "; expected 0 or more, or -1 for up to the context.",
                   "max_tokens");
  }
  if (request.max_tokens >= 0 && request.sampling.min_tokens > request.max_tokens) {
    return invalid("min_tokens is " + number(request.sampling.min_tokens) + " and max_tokens is " +
                       number(request.max_tokens) + "; min_tokens must not be more.",
                   "min_tokens");
  }
  if (!(request.weight > 0 && request.weight <= 1e6f))
    return invalid("weight is " + std::to_string(request.weight) + "; expected above 0 and up to 1000000.", "weight");
  for (const float seconds : {request.ttft_target, request.tpot_target, request.max_wait}) {
    if (!(seconds >= 0 && std::isfinite(seconds)))
      return invalid("A target is " + std::to_string(seconds) + " seconds; expected 0 (none) or more.", "target");
  }
  const int32_t most = std::min(model.vocab_size, kMaxLogprobs);
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > most) {
    return invalid("prompt_logprobs is " + number(request.prompt_logprobs) + "; expected -1 to " + number(most) + ".",
                   "prompt_logprobs");
  }
  if (request.searches()) TRY(validate_search(request, model));
  if (request.searches() && request.processor)
    return unsupported("A search takes the likeliest of the model's own logits, without a logits processor.",
                       "num_beams");
  if (request.pictures) TRY(validate_pictures(request, model));
  if (!request.resume.tokens.empty()) TRY(validate_resume(request, model));
  if (request.kv_eviction) TRY(validate_eviction(request, model));
  if (model.encoder && request.pooling == Pooling::kNone) {
    return unsupported("This model is an encoder: it makes " +
                           std::string(model.encoder->n_labels > 0 ? "scores and " : "") +
                           "vectors of texts, and no answers.",
                       "model");
  }
  if (request.pooling == Pooling::kRank && (!model.encoder || model.encoder->n_labels == 0)) {
    return unsupported("This model has no head that scores texts; use a cross-encoder (a reranker).", "model");
  }
  if (request.second_text < 0 || request.second_text >= static_cast<int32_t>(request.prompt.size()) ||
      (request.second_text > 0 && !model.encoder)) {
    return invalid("second_text is " + number(request.second_text) + "; expected a place in an encoder's prompt.",
                   "second_text");
  }
  if (request.pooling != Pooling::kNone) {
    if (model.width == 0) return unsupported("This model has no hidden states to make a text's vector of.", "pooling");
    if (request.n != 1 || request.max_tokens != 0 || request.prompt_logprobs >= 0)
      return invalid("A text's vector is no answer: expected n 1, max_tokens 0 and no prompt_logprobs.", "pooling");
  }
  if (!has_text && request.stops && !request.stops->strings().empty()) {
    return unsupported("Stop strings need a tokenizer, and this model has none; use stop ids.", "stop");
  }
  return {};
}

}  // namespace

Result<AdmittedRequest> admit(Request request, const ModelFacts& model, bool has_text) try {
  TRY(validate(request, model, has_text));
  if (KvEviction& e = request.kv_eviction; e && e.keep_share > 0) {
    const double share = static_cast<double>(e.keep_share) * static_cast<double>(request.prompt.size());
    e.keep = std::max(e.least(), static_cast<int32_t>(share));
  }
  ASSIGN_OR_RETURN(
      std::shared_ptr<const Sampler> sampler,
      Sampler::compile(request.sampling, model.vocab_size, model.end_of_generation, request.sampling.seed));
  if (request.searches() && !sampler->only_ranks()) {
    return unsupported("A search takes the likeliest: temperature, top_k, top_p and the like cannot stand beside it.",
                       "temperature");
  }
  std::optional<uint32_t> grammar;
  if (request.grammar && !request.resume.tokens.empty()) {
    ASSIGN_OR_RETURN(grammar, state_after(*request.grammar, request.resume.tokens));
  }
  return AdmittedRequest(std::make_shared<const Request>(std::move(request)), std::move(sampler), grammar);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

SamplerState AdmittedRequest::initial_state(int32_t choice) const {
  SamplerState state = sampler_->initial_state(static_cast<uint64_t>(choice));
  if (request_->resume.tokens.empty()) return state;
  if (request_->resume.mirostat_mu) state.mirostat_mu = *request_->resume.mirostat_mu;
  if (grammar_) state.grammar = *grammar_;
  return state;
}

Status may_wait(int32_t n_now, int32_t n_then, int32_t max_waiting) {
  if (n_then <= max_waiting || (n_now == 0 && max_waiting > 0)) return {};
  return exhausted("The queue is full (" + std::to_string(n_now) + " sequences wait); try again later.");
}

}  // namespace ibid
