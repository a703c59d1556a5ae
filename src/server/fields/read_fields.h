// Readers of the fields that a type and a range alone do not describe; rows of the table name them.
#pragma once

#include "server/fields/api_request.h"

namespace ibid {

Status read_messages(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_prompt(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_n(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_n_cmpl(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_stream_options(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_grammar_triggers(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_early_stopping(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_length_penalty(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_diversity_penalty(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_penalty_alpha(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_beam_groups(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_best_of(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_seed(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_top_p(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_top_k(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_top_n_sigma(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_logit_bias(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_allowed(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_logprobs(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_n_probs(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_top_logprobs(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_prompt_logprobs(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_logprob_tokens(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_truncate(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_add_special(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_truncation_side(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_template_kwargs(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_response_format(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_json_schema_field(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_structured_outputs(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_guided_json(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_guided_regex(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_guided_choice(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_guided_grammar(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_regex(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_ebnf(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_speculation(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_prediction(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_resume(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_kv_eviction(ApiRequest& request, const Json& value, const ApiLimits& limits);
void take_default_eviction(const KvEviction& eviction, ApiRequest& request);  // after all other fields
Status read_kv_transfer(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_priority(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_tools(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_tool_choice(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_reasoning_effort(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_reasoning_format(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_continue_final(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_samplers(ApiRequest& request, const Json& value, const ApiLimits& limits);
Status read_add_generation_prompt(ApiRequest& request, const Json& value, const ApiLimits& limits);

// After all other fields: what llama.cpp's list of samplers leaves out is off.
Status keep_samplers(ApiRequest& request, const Json& samplers);

// "FIELD must be WANTED, not a string": the sentence of every wrong type.
Error wrong_value(const std::string& where, const std::string& wanted, const Json& found);
// A whole number in [min, max]; 1.0 counts as 1.
Result<int64_t> read_integer(const Json& value, int64_t min, int64_t max, const std::string& where);
Result<double> read_number(const Json& value, double min, double max, bool above_min, const std::string& where);
Result<std::vector<TokenId>> read_token_ids(const Json& value, const std::string& where);

}  // namespace ibid
