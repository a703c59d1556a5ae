// Searches and best_of: fields that choose how an answer is found, and their combinations.
#include <algorithm>
#include <string>

#include "server/fields/read_fields.h"

namespace ibid {

Status read_early_stopping(ApiRequest& request, const Json& value, const ApiLimits&) {
  const bool is_never = value.string() != nullptr && *value.string() == "never";
  if (value.boolean() == nullptr && !is_never) return wrong_value("early_stopping", "true, false or \"never\"", value);
  request.search.early_stopping = is_never           ? EarlyStopping::kNever
                                  : *value.boolean() ? EarlyStopping::kYes
                                                     : EarlyStopping::kNo;
  return {};
}

Status read_length_penalty(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(const double number, read_number(value, -10, 10, false, "length_penalty"));
  request.search.length_penalty = static_cast<float>(number);
  return {};
}

Status read_diversity_penalty(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(const double number, read_number(value, 0, 100, false, "diversity_penalty"));
  request.search.diversity_penalty = static_cast<float>(number);
  return {};
}

Status read_penalty_alpha(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(const double number, read_number(value, 0, 1, false, "penalty_alpha"));
  request.search.alpha = static_cast<float>(number);
  return {};
}

Status read_beam_groups(ApiRequest& request, const Json& value, const ApiLimits&) {
  ASSIGN_OR_RETURN(const int64_t n, read_integer(value, 1, kMaxBeams, "num_beam_groups"));
  request.search.n_groups = static_cast<int32_t>(n);
  return {};
}

Status read_best_of(ApiRequest& request, const Json& value, const ApiLimits& limits) {
  ASSIGN_OR_RETURN(const int64_t n, read_integer(value, 1, limits.max_n, "best_of"));
  request.best_of = static_cast<int32_t>(n);
  return {};
}

namespace {

// Beside a search, defaults of how tokens are drawn have no effect, whatever the server's are; what the request itself
// sets, the engine refuses where it matters.
void drop_defaults(ApiRequest& request) {
  const SamplingParams off;
  SamplingParams& s = request.sampling;
  const auto drop = [&](std::string_view name, auto SamplingParams::*field) {
    if (request.sources.of(name) != SamplingSource::kRequest) s.*field = off.*field;
  };
  drop("temperature", &SamplingParams::temperature);
  drop("top_p", &SamplingParams::top_p);
  drop("top_k", &SamplingParams::top_k);
  drop("min_p", &SamplingParams::min_p);
  drop("typical_p", &SamplingParams::typical_p);
  drop("top_n_sigma", &SamplingParams::top_n_sigma);
  drop("xtc_probability", &SamplingParams::xtc_probability);
  drop("dynatemp_range", &SamplingParams::dynatemp_range);
  drop("mirostat", &SamplingParams::mirostat);
}

}  // namespace

Status check_search(ApiRequest& request) {
  SearchOptions& search = request.search;
  const bool is_beam = request.use_beam_search || request.num_beams > 1, is_contrastive = search.alpha > 0;
  if (request.best_of > 0 && request.best_of < request.n)
    return invalid("best_of is " + std::to_string(request.best_of) + " and n is " + std::to_string(request.n) +
                       "; best_of must be at least n.",
                   "best_of");
  const bool chooses = request.best_of > request.n;
  if (is_beam && is_contrastive)
    return invalid("penalty_alpha asks for contrastive search and num_beams for beams; give one of them.",
                   "penalty_alpha");
  if ((is_beam || is_contrastive || chooses) && request.stream)
    return unsupported("What is searched or chosen from several is known at the end alone; stream must be false.",
                       "stream");
  if (chooses && (is_beam || is_contrastive))
    return unsupported("best_of draws texts and a search finds them; give one of them.", "best_of");
  if ((chooses || is_beam || is_contrastive) && request.trace)
    return unsupported("A trace records how tokens are drawn, one after the other; leave it out.", "trace");
  if (!is_beam) {
    const SearchOptions none;
    const auto lonely = [](const char* field) {
      return invalid(std::string(field) + " belongs to beam search, which num_beams or use_beam_search ask for.",
                     field);
    };
    if (search.length_penalty != none.length_penalty) return lonely("length_penalty");
    if (search.early_stopping != none.early_stopping) return lonely("early_stopping");
    if (search.n_groups != none.n_groups) return lonely("num_beam_groups");
    if (search.diversity_penalty != none.diversity_penalty) return lonely("diversity_penalty");
  }
  if (is_beam) {
    search.kind = SearchKind::kBeam;
    // vLLM's spelling has its width in n.
    search.width = request.num_beams > 0 ? request.num_beams : request.n;
    search.scores_whole = request.use_beam_search;
  } else if (is_contrastive) {
    if (request.sources.of("top_k") != SamplingSource::kRequest || request.sampling.top_k < 2)
      return invalid("penalty_alpha needs top_k of 2 or more: the tokens to choose from.", "penalty_alpha");
    search.kind = SearchKind::kContrastive;
    search.width = request.sampling.top_k;
    request.sampling.top_k = 0;
  }
  if (search.kind == SearchKind::kNone) return {};
  drop_defaults(request);
  if (search.kind == SearchKind::kContrastive) request.sampling.top_k = 0;
  return validate(search);
}

}  // namespace ibid
