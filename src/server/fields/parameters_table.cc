// The rows. A field that one line can describe is described by it; the others name a function of read_fields.h.
#include <array>

#include "server/fields/parameters.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

using S = SamplingParams;
using R = ApiRequest;
using enum FieldType;

constexpr double kMaxInt = 2147483647;

// clang-format off: one row a field
constexpr Parameter kParameters[] = {
    // What is asked.
    {"model", kBoth, kString, 0, 512, false, "null", "OpenAI", "", nullptr,
     "The model's name as in /v1/models. Another name is accepted too, unless the server has --strict-model.",
     &R::model},
    {"messages", kChatOnly, kOther, 0, 0, false, "required", "OpenAI", "",
     R"({"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Message"}})",
     "The conversation: objects with `role` (system, developer, user, assistant, tool) and `content` (a string, or an "
     "array of `{\"type\":\"text\",\"text\":…}`).",
     &read_messages},
    {"prompt", kCompletionsOnly, kOther, 0, 0, false, "required", "OpenAI", "",
     R"({"$ref":"#/components/schemas/Prompt"})", "A text, an array of token ids, or an array of either.",
     &read_prompt},
    {"suffix", kCompletionsOnly, kString, 0, 67108864, false, "\"\"", "OpenAI", "", nullptr,
     "Text after the answer, which fills in between prompt and suffix; for models with fill-in tokens, as /infill. "
     "Prompts must be texts.",
     &R::suffix},
    {"max_tokens", kBoth, kInteger, -1, kMaxInt, false, "null", "OpenAI", "Request::max_tokens", nullptr,
     "Maximum tokens of a choice; absent or -1: up to the context.", &R::max_tokens},
    {"max_completion_tokens", kBoth, kInteger, -1, kMaxInt, false, "null", "OpenAI", "Request::max_tokens", nullptr,
     "The newer name of max_tokens.", &R::max_tokens, "max_tokens"},
    {"n_predict", kBoth, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "Request::max_tokens", nullptr,
     "llama.cpp's name of max_tokens; -1: up to the context; 0: only compute and cache the prompt.", &R::max_tokens,
     "max_tokens"},
    {"n", kBoth, kOther, 0, 0, false, "1", "OpenAI", "Request::n", R"({"type":"integer","minimum":1,"maximum":@max_n})",
     "Choices per prompt, limited by the server; choice i uses seed + i.", &read_n},
    {"n_cmpl", kBoth, kOther, 0, 0, false, "1", "llama.cpp", "Request::n",
     R"({"type":"integer","minimum":1,"maximum":@max_n})", "llama.cpp's name of n.", &read_n_cmpl, "n"},
    {"stream", kBoth, kBoolean, 0, 0, false, "false", "OpenAI", "", nullptr,
     "Send the answer as server-sent events while it grows.", &R::stream},
    {"stream_options", kBoth, kOther, 0, 0, false, "null", "OpenAI, vLLM", "",
     R"({"type":"object","properties":{"include_usage":{"type":["boolean","null"]},"continuous_usage_stats":{"type":["boolean","null"]},"include_obfuscation":{"type":["boolean","null"],"description":"Accepted, without effect."}}})",
     "`{\"include_usage\": true}` adds a last event with the usage; `continuous_usage_stats` adds it to every event.",
     &read_stream_options},
    {"echo", kBoth, kBoolean, 0, 0, false, "false", "OpenAI, vLLM", "", nullptr,
     "Put the prompt before the answer; with logprobs, its tokens are in them too. In a chat: the last message, where "
     "it "
     "is the assistant's.",
     &R::echo},
    {"truncate_prompt_tokens", kBoth, kOther, 0, 0, false, "null", "vLLM", "",
     R"({"type":"integer","minimum":-1,"maximum":2147483647,"not":{"const":0}})",
     "Keep only the last N tokens of each prompt; -1: as many as leave room for max_tokens.", &read_truncate},
    {"truncation_side", kBoth, kOther, 0, 0, false, "\"left\"", "vLLM", "", R"({"enum":["left","right"]})",
     "Which tokens truncate_prompt_tokens removes: the first (left) or the last (right).", &read_truncation_side},
    {"seed", kBoth, kOther, 0, 0, false, "null", "OpenAI", "SamplingParams::seed",
     R"({"type":"integer","minimum":-9223372036854775808,"maximum":18446744073709551615})",
     "The same request with the same seed gives the same bytes. Absent or -1: the server chooses one and reports it in "
     "the answer's `seed`. Other negative numbers count from 2^64.",
     &read_seed},

    // Where it ends.
    {"stop", kBoth, kStrings, 0, 0, false, "null", "OpenAI", "Request::stops", nullptr,
     "Stop string or strings; the string itself is omitted.", &R::stop},
    {"n_indent", kBoth, kInteger, 0, kMaxInt, false, "0", "llama.cpp", "", nullptr,
     "The answer ends before a line, other than the first, that starts with fewer blanks; empty lines do not count.",
     &R::n_indent},
    {"t_max_predict_ms", kBoth, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "", nullptr,
     "The answer ends at the first line end this many milliseconds after its first token. Its length then depends on "
     "time, its contents do not. 0 or -1: never.",
     &R::t_max_predict_ms},
    // What it must be of.
    {"response_format", kBoth, kOther, 0, 0, false, "null", "OpenAI", "Request::grammar",
     R"({"type":"object","required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema","structural_tag"]},"format":{},"structures":{},"triggers":{},"schema":{},"json_schema":{"type":"object","properties":{"name":{"type":"string"},"description":{"type":["string","null"]},"strict":{"type":["boolean","null"]},"schema":{}}}}})",
     "`text`; `json_object`: any JSON object; `json_schema`: a value of the schema, given directly or within "
     "`json_schema`. With `strict`, a keyword that cannot be enforced is an error (docs/users/structured.md). "
     "`structural_tag`: free text with tags.",
     &read_response_format},
    {"json_schema", kBoth, kOther, 0, 0, false, "{}", "llama.cpp", "Request::grammar", "{}",
     "The answer is a JSON value of this schema; `{}`: no constraint.", &read_json_schema_field},
    {"grammar", kBoth, kString, 0, 1048576, false, "\"\"", "llama.cpp", "Request::grammar", nullptr,
     "The answer matches this grammar (GBNF or Lark).", &R::gbnf},
    {"grammar_lazy", kBoth, kBoolean, 0, 0, false, "false", "llama.cpp", "Request::grammar", nullptr,
     "The answer is free text until one of grammar_triggers, and matches the grammar from there.", &R::is_lazy},
    {"grammar_triggers", kBoth, kOther, 0, 0, false, "[]", "llama.cpp", "Request::grammar",
     R"({"type":"array","maxItems":64,"items":{"type":"object","required":["type","value"],"properties":{"type":{"type":"integer","minimum":0,"maximum":3},"value":{"type":"string"},"token":{"type":"integer"}}}})",
     "Triggers of a lazy grammar: `{\"type\": 1, \"value\": TEXT}` a word, type 0 with `token` a token, 2 a pattern "
     "that occurs, 3 a pattern that matches the whole text.",
     &read_grammar_triggers},
    {"structured_outputs", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::grammar",
     R"({"type":"object","properties":{"json":{},"regex":{"type":["string","null"]},"choice":{"type":["array","null"],"minItems":1,"items":{"type":"string"}},"grammar":{"type":["string","null"]},"json_object":{"type":["boolean","null"]},"structural_tag":{}}})",
     "One of `json` (a schema, or its text), `regex`, `choice` (a list of strings), `grammar` (GBNF or Lark), "
     "`json_object`, `structural_tag` (an object, or its text).",
     &read_structured_outputs},
    {"guided_json", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::grammar", "{}",
     "The older name of structured_outputs.json.", &read_guided_json},
    {"guided_regex", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::grammar", R"({"type":"string"})",
     "The older name of structured_outputs.regex: the whole answer matches the expression.", &read_guided_regex},
    {"guided_choice", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::grammar",
     R"({"type":"array","minItems":1,"items":{"type":"string"}})", "The older name of structured_outputs.choice.",
     &read_guided_choice},
    {"guided_grammar", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::grammar", R"({"type":"string"})",
     "The older name of structured_outputs.grammar.", &read_guided_grammar},
    {"regex", kBoth, kOther, 0, 0, false, "null", "SGLang", "Request::grammar", R"({"type":"string"})",
     "Its name of structured_outputs.regex.", &read_regex},
    {"ebnf", kBoth, kOther, 0, 0, false, "null", "SGLang", "Request::grammar", R"({"type":"string"})",
     "Its name of structured_outputs.grammar.", &read_ebnf},
    {"close_in_time", kBoth, kBoolean, 0, 0, false, "false", "ibid", "Request::grammar", nullptr,
     "With a grammar: complete the answer within max_tokens.", &R::closes_in_time},
    {"stop_token_ids", kBoth, kTokenIds, 0, 0, false, "[]", "vLLM", "Request::stops", nullptr,
     "Token ids at which the answer ends.", &R::stop_ids},
    {"include_stop_str_in_output", kBoth, kBoolean, 0, 0, false, "false", "vLLM", "Request::stops", nullptr,
     "Keep the stop text at the end of the answer.", &R::include_stop},
    {"min_tokens", kBoth, kInteger, 0, kMaxInt, false, "0", "vLLM", "SamplingParams::min_tokens", nullptr,
     "Minimum tokens before an end-of-answer token.", &S::min_tokens},
    {"ignore_eos", kBoth, kBoolean, 0, 0, false, "false", "vLLM, llama.cpp", "SamplingParams::ignore_eos", nullptr,
     "Continue after the model's end-of-answer token.", &S::ignore_eos},

    // Temperature and truncation.
    {"temperature", kBoth, kNumber, 0, 100, false, "0.7", "OpenAI", "SamplingParams::temperature", nullptr,
     "0 is greedy: always the most likely token.", &S::temperature},
    {"top_p", kBoth, kNumber, 0, 1, false, "0.95", "OpenAI", "SamplingParams::top_p", nullptr,
     "Keep the fewest tokens whose probabilities sum to this; 1 keeps all, 0 only the most likely.", &read_top_p},
    {"top_k", kBoth, kInteger, -1, kMaxInt, false, "0", "vLLM, llama.cpp", "SamplingParams::top_k", nullptr,
     "Keep the k most likely tokens; 0 or -1 keeps all.", &read_top_k},
    {"min_p", kBoth, kNumber, 0, 1, false, "0", "vLLM, llama.cpp", "SamplingParams::min_p", nullptr,
     "Keep tokens at least this likely, relative to the most likely one.", &S::min_p},
    {"typical_p", kBoth, kNumber, 0, 1, true, "1", "llama.cpp", "SamplingParams::typical_p", nullptr,
     "Keep the tokens with surprisal nearest to the expected one; 1 is off.", &S::typical_p},
    {"top_n_sigma", kBoth, kNumber, -1, 1000, false, "0", "llama.cpp", "SamplingParams::top_n_sigma", nullptr,
     "Keep logits within N standard deviations of the best; 0 or less is off.", &read_top_n_sigma},
    {"xtc_probability", kBoth, kNumber, 0, 1, false, "0", "llama.cpp", "SamplingParams::xtc_probability", nullptr,
     "How often XTC removes the most likely tokens above xtc_threshold; the last of them stays.", &S::xtc_probability},
    {"xtc_threshold", kBoth, kNumber, 0, 1, false, "0.1", "llama.cpp", "SamplingParams::xtc_threshold", nullptr,
     "Minimum probability of tokens that XTC may remove.", &S::xtc_threshold},
    {"dynatemp_range", kBoth, kNumber, 0, 100, false, "0", "llama.cpp", "SamplingParams::dynatemp_range", nullptr,
     "Range of the temperature, which varies with the entropy; 0 is off.", &S::dynatemp_range},
    {"dynatemp_exponent", kBoth, kNumber, 0, 100, false, "1", "llama.cpp", "SamplingParams::dynatemp_exponent", nullptr,
     "Exponent of the entropy within dynatemp_range.", &S::dynatemp_exponent},
    {"mirostat", kBoth, kInteger, 0, 2, false, "0", "llama.cpp", "SamplingParams::mirostat", nullptr,
     "0 is off; 1 and 2 are the versions of Mirostat. Requested truncation comes before; ibid's own default of top_p "
     "does not.",
     &S::mirostat},
    {"mirostat_tau", kBoth, kNumber, 0, 1000, true, "5", "llama.cpp", "SamplingParams::mirostat_tau", nullptr,
     "Mirostat's target surprisal.", &S::mirostat_tau},
    {"mirostat_eta", kBoth, kNumber, 0, 100, true, "0.1", "llama.cpp", "SamplingParams::mirostat_eta", nullptr,
     "Mirostat's learning rate.", &S::mirostat_eta},

    {"samplers", kBoth, kOther, 0, 0, false, "null", "llama.cpp", "",
     R"({"oneOf":[{"type":"array","items":{"type":"string"}},{"type":"string"}]})",
     "llama.cpp's list of samplers, by names or letters, as a set: what it omits is off, whatever its own field is. "
     "The order of stages stays ibid's (docs/users/api.md, Sampling). Unknown names (`infill`) have no effect.",
     &read_samplers},

    // Penalties.
    {"repetition_penalty", kBoth, kNumber, 0.001, 100, false, "1", "vLLM", "SamplingParams::repetition_penalty",
     nullptr, "Above 1 makes tokens of prompt and answer less likely; 1 is off.", &S::repetition_penalty},
    {"repeat_penalty", kBoth, kNumber, 0.001, 100, false, "1", "llama.cpp", "SamplingParams::repetition_penalty",
     nullptr, "llama.cpp's name of repetition_penalty.", &S::repetition_penalty, "repetition_penalty"},
    {"repeat_last_n", kBoth, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "SamplingParams::penalty_last_n", nullptr,
     "Number of last tokens that repetition_penalty considers; -1: all.", &S::penalty_last_n},
    {"presence_penalty", kBoth, kNumber, -2, 2, false, "0", "OpenAI", "SamplingParams::presence_penalty", nullptr,
     "Subtracted from the logit of every token in the answer.", &S::presence_penalty},
    {"frequency_penalty", kBoth, kNumber, -2, 2, false, "0", "OpenAI", "SamplingParams::frequency_penalty", nullptr,
     "Subtracted from a token's logit once per occurrence in the answer.", &S::frequency_penalty},
    {"no_repeat_ngram_size", kBoth, kInteger, 0, kMaxInt, false, "0", "vLLM", "SamplingParams::no_repeat_ngram",
     nullptr, "No n-gram of this length occurs twice; 0 is off.", &S::no_repeat_ngram},
    {"dry_multiplier", kBoth, kNumber, 0, 100, false, "0", "llama.cpp", "SamplingParams::dry_multiplier", nullptr,
     "Strength of the DRY penalty on repeated runs; 0 is off.", &S::dry_multiplier},
    {"dry_base", kBoth, kNumber, 1, 100, false, "1.75", "llama.cpp", "SamplingParams::dry_base", nullptr,
     "Growth of the DRY penalty with the run's length.", &S::dry_base},
    {"dry_allowed_length", kBoth, kInteger, 1, kMaxInt, false, "2", "llama.cpp", "SamplingParams::dry_allowed_len",
     nullptr, "Minimum length of runs that DRY penalizes.", &S::dry_allowed_len},
    {"dry_penalty_last_n", kBoth, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "SamplingParams::dry_last_n",
     nullptr, "Number of last tokens that DRY considers; -1: all.", &S::dry_last_n},
    {"dry_sequence_breakers", kBoth, kStrings, 0, 0, false, R"(["\n",":","\"","*"])", "llama.cpp",
     "SamplingParams::dry_breakers", nullptr, "Strings of at most 40 bytes that end a run, however they are tokenized.",
     &R::dry_breakers},

    // Biases and masks.
    {"logit_bias", kBoth, kOther, 0, 0, false, "null", "OpenAI, llama.cpp", "SamplingParams::logit_bias",
     R"({"oneOf":[{"type":"object","propertyNames":{"minLength":1},"additionalProperties":{"$ref":"#/components/schemas/Bias"}},{"type":"array","items":{"type":"array","minItems":2,"maxItems":2,"prefixItems":[{"oneOf":[{"type":"integer","minimum":0,"maximum":@max_token},{"type":"string","minLength":1}]},{"$ref":"#/components/schemas/Bias"}]}}]})",
     "Added to logits, -100 to 100; false bans. An object `{\"ID or text\": BIAS}` (a whole number is an id), or an "
     "array of pairs `[ID or text, BIAS]`. A text means its tokens when encoded alone, without BOS and special tokens; "
     "each gets the bias once.",
     &read_logit_bias},
    {"bad_words", kBoth, kStrings, 0, 0, false, "[]", "vLLM", "SamplingParams::banned_sequences", nullptr,
     "Strings that the answer must not contain; in their usual tokenizations, with and without a leading space.",
     &R::bad_words},
    {"allowed_token_ids", kBoth, kOther, 0, 0, false, "null", "vLLM", "SamplingParams::allowed",
     R"({"allOf":[{"$ref":"#/components/schemas/TokenIds"},{"minItems":1}]})", "Allow only these tokens.",
     &read_allowed},

    // Searches: docs/users/search.md.
    {"num_beams", kBoth, kInteger, 1, kMaxBeams, false, "1", "Hugging Face", "Request::search", nullptr,
     "Beam search with this many beams; the n best are returned. Not streamed.", &R::num_beams},
    {"use_beam_search", kBoth, kBoolean, 0, 0, false, "false", "vLLM", "Request::search", nullptr,
     "Beam search with vLLM's score and stopping rule; n beams unless num_beams is set.", &R::use_beam_search},
    {"length_penalty", kBoth, kOther, 0, 0, false, "1", "Hugging Face, vLLM", "Request::search",
     R"({"type":"number","minimum":-10,"maximum":10})",
     "A beam's score is its sum of log-probabilities divided by its length to this power.", &read_length_penalty},
    {"early_stopping", kBoth, kOther, 0, 0, false, "false", "Hugging Face", "Request::search",
     R"({"enum":[true,false,"never"]})",
     "When to stop: as soon as num_beams have ended; when the best running beam could not beat them now; or when it "
     "never could.",
     &read_early_stopping},
    {"num_beam_groups", kBoth, kOther, 0, 0, false, "1", "Hugging Face", "Request::search",
     R"({"type":"integer","minimum":1,"maximum":64})", "Number of groups for diverse beam search; divides num_beams.",
     &read_beam_groups},
    {"diversity_penalty", kBoth, kOther, 0, 0, false, "0", "Hugging Face", "Request::search",
     R"({"type":"number","minimum":0,"maximum":100})",
     "Subtracted from a token's log-probability for each beam of earlier groups that took it in this step.",
     &read_diversity_penalty},
    {"penalty_alpha", kBoth, kOther, 0, 0, false, "0", "Hugging Face", "Request::search",
     R"({"type":"number","minimum":0,"maximum":1})",
     "Contrastive search among the top_k most likely tokens: weight of the similarity to earlier tokens.",
     &read_penalty_alpha},
    {"best_of", kCompletionsOnly, kOther, 0, 0, false, "null", "OpenAI", "",
     R"({"type":"integer","minimum":1,"maximum":@max_n})",
     "Sample this many answers and return the n with the highest log-probability per token; not streamed.",
     &read_best_of},

    // What is reported about the tokens.
    {"logprobs", kChatOnly, kBoolean, 0, 0, false, "false", "OpenAI", "SamplingParams::logprobs", nullptr,
     "Report each token's log-probability: the model's own, before any processing.", &R::want_logprobs},
    {"top_logprobs", kChatOnly, kOther, 0, 0, false, "0", "OpenAI", "SamplingParams::logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})",
     "Number of most likely tokens to report; needs logprobs.", &read_top_logprobs},
    {"logprobs", kCompletionsOnly, kOther, 0, 0, false, "null", "OpenAI", "SamplingParams::logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})",
     "Report each token's log-probability, and those of this many most likely tokens.", &read_logprobs},
    {"n_probs", kCompletionsOnly, kOther, 0, 0, false, "null", "llama.cpp", "SamplingParams::logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})", "llama.cpp's name of logprobs; 0 is none.",
     &read_n_probs, "logprobs"},
    {"n_probs", kChatOnly, kOther, 0, 0, false, "null", "llama.cpp", "SamplingParams::logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})",
     "llama.cpp's name of logprobs with top_logprobs; 0 is none.", &read_n_probs, "top_logprobs"},
    {"logprob_token_ids", kBoth, kOther, 0, 0, false, "[]", "vLLM", "SamplingParams::logprob_tokens",
     R"({"allOf":[{"$ref":"#/components/schemas/TokenIds"},{"maxItems":@max_logprobs}]})",
     "With logprobs: report those of these tokens; and of the sampled one, instead of the most likely ones.",
     &read_logprob_tokens},
    {"processed_logprobs", kBoth, kBoolean, 0, 0, false, "false", "ibid", "SamplingParams::processed_logprobs", nullptr,
     "Also log-probabilities after penalties, masks, temperature and truncation; -9999.0 for a removed token.",
     &S::processed_logprobs},
    {"prompt_logprobs", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::prompt_logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})",
     "Also log-probabilities of the prompt's tokens; computes the whole prompt.", &read_prompt_logprobs},
    {"return_token_ids", kBoth, kBoolean, 0, 0, false, "false", "vLLM", "", nullptr,
     "Add the ids of the answer's tokens to each choice and to a chat's logprobs, and those of the prompt as "
     "`prompt_token_ids`.",
     &R::return_token_ids},
    {"return_tokens_as_token_ids", kBoth, kBoolean, 0, 0, false, "false", "vLLM", "", nullptr,
     "Show tokens in log-probabilities as `token_id:7`.", &R::tokens_as_ids},
    {"return_progress", kBoth, kBoolean, 0, 0, false, "false", "llama.cpp", "Request::reports_progress", nullptr,
     "In a stream, events with llama.cpp's `prompt_progress`: the cached part, then one after each step that computes "
     "some of the prompt.",
     &R::return_progress},
    {"timings_per_token", kBoth, kBoolean, 0, 0, false, "false", "llama.cpp", "", nullptr,
     "Add llama.cpp's `timings` to each event and to a whole answer.", &R::timings},
    {"verbose", kBoth, kBoolean, 0, 0, false, "false", "llama.cpp", "", nullptr,
     "Add the rendered prompt to a whole answer, as `__verbose.prompt`.", &R::verbose},
    {"ledger", kBoth, kBoolean, 0, 0, false, "false", "ibid", "", nullptr,
     "Report where the answer's time went: see Ledger.", &R::ledger},
    {"trace", kBoth, kBoolean, 0, 0, false, "false", "ibid", "", nullptr,
     "Report how each token was sampled, so that it can be repeated: see Traces.", &R::trace},

    // Tools and reasoning: docs/users/tools.md.
    {"tools", kChatOnly, kOther, 0, 0, false, "[]", "OpenAI", "",
     R"({"type":"array","items":{"$ref":"#/components/schemas/Tool"}})",
     "Functions that the model may call, each with a name and a JSON Schema of its arguments.", &read_tools},
    {"tool_choice", kChatOnly, kOther, 0, 0, false, "\"auto\"", "OpenAI", "Request::grammar",
     R"({"$ref":"#/components/schemas/ToolChoice"})",
     "`none`: no call; `auto`: the model decides; `required`: a call, enforced by a grammar; or the functions that it "
     "may choose from.",
     &read_tool_choice},
    {"parallel_tool_calls", kChatOnly, kBoolean, 0, 0, false, "true", "OpenAI", "", nullptr,
     "False: at most one call per answer.", &R::parallel_calls},
    {"reasoning_effort", kChatOnly, kOther, 0, 0, false, "null", "OpenAI", "",
     R"({"enum":["none","minimal","low","medium","high","xhigh","max"]})",
     "Passed to the template if it knows `reasoning_effort`; otherwise minimal, low and medium are budgets of 128, "
     "1,024 and 2,048 tokens. `none` also sets `enable_thinking` to false.",
     &read_reasoning_effort},
    {"thinking_token_budget", kChatOnly, kInteger, -1, kMaxInt, false, "-1", "vLLM", "Request::reasoning", nullptr,
     "Maximum tokens of reasoning, which is then closed; -1: no limit.", &R::reasoning_budget},
    {"thinking_budget", kChatOnly, kInteger, -1, kMaxInt, false, "-1", "Qwen", "Request::reasoning", nullptr,
     "Qwen's name of thinking_token_budget.", &R::reasoning_budget, "thinking_token_budget"},
    {"reasoning_budget_tokens", kChatOnly, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "Request::reasoning",
     nullptr, "llama.cpp's name of thinking_token_budget.", &R::reasoning_budget, "thinking_token_budget"},
    {"reasoning_format", kChatOnly, kOther, 0, 0, false, "\"auto\"", "llama.cpp", "",
     R"({"enum":["none","auto","deepseek"]})", "`none`: reasoning stays in the text; otherwise it is separate.",
     &read_reasoning_format},
    {"include_reasoning", kChatOnly, kBoolean, 0, 0, false, "true", "vLLM", "", nullptr, "False: omit reasoning.",
     &R::reports_reasoning},

    // How text is made and read.
    {"skip_special_tokens", kBoth, kBoolean, 0, 0, false, "true", "vLLM", "Request::show_special", nullptr,
     "Omit control tokens from the text.", &R::skip_special_tokens},
    {"add_special_tokens", kCompletionsOnly, kBoolean, 0, 0, false, "true", "vLLM", "", nullptr,
     "Add BOS to a text prompt.", &read_add_special},
    {"add_special_tokens", kChatOnly, kBoolean, 0, 0, false, "null", "vLLM", "", nullptr,
     "Add BOS and EOS around the rendered conversation; false: nothing. Absent: BOS only, if the vocabulary requires "
     "it and the template did not write it.",
     &read_add_special},
    {"add_generation_prompt", kChatOnly, kOther, 0, 0, false, "true", "vLLM", "", R"({"type":"boolean"})",
     "End the conversation with the start of an answer.", &read_add_generation_prompt},
    {"continue_final_message", kChatOnly, kOther, 0, 0, false, "false", "vLLM", "", R"({"type":"boolean"})",
     "The last message is the assistant's, and the answer continues its text, or its reasoning if it has no text.",
     &read_continue_final},
    {"chat_template_kwargs", kChatOnly, kOther, 0, 0, false, "null", "vLLM", "", R"({"type":"object"})",
     "Additional variables for the chat template.", &read_template_kwargs},
    {"cache_salt", kBoth, kString, 0, 256, false, "\"\"", "vLLM", "Request::cache_salt", nullptr,
     "The prefix cache is shared only between requests of the same tenant (a key without one is a tenant) and salt.",
     &R::cache_salt},
    {"resume", kBoth, kOther, 0, 0, false, "null", "ibid", "Request::resume",
     R"({"type":"object","required":["token_ids"],"properties":{"token_ids":{"$ref":"#/components/schemas/TokenIds"},"mirostat_mu":{"type":["number","null"],"minimum":-1000000,"maximum":1000000},"model_digest":{"type":["string","null"]},"system_fingerprint":{"type":["string","null"]},"outputs":{"type":["boolean","null"]}},"additionalProperties":false})",
     "The first tokens of the answer, which another replica (or this one) gave: the response has what follows them, as "
     "if the answer had never been cut. Needs `seed` (docs/users/replicas.md).",
     &read_resume},
    {"resumable", kBoth, kBoolean, 0, 0, false, "false", "ibid", "", nullptr,
     "A stream that the server's shutdown cuts ends with an error that has `resume` and `seed`, which a replica takes "
     "with the rest of the body.",
     &R::is_resumable},
    {"kv_eviction", kBoth, kOther, 0, 0, false, "null", "ibid", "Request::kv_eviction",
     R"({"type":"object","required":["method"],"properties":{"method":{"enum":["none","snapkv","h2o","streaming"]},"keep":{"type":["integer","null"],"minimum":1},"keep_share":{"type":["number","null"],"exclusiveMinimum":0,"maximum":1},"window":{"type":["integer","null"],"minimum":1,"maximum":256},"sinks":{"type":["integer","null"],"minimum":0,"maximum":256}},"additionalProperties":false,"anyOf":[{"properties":{"method":{"const":"none"}}},{"required":["keep"],"properties":{"keep":{"type":"integer"},"keep_share":{"type":"null"}}},{"required":["keep_share"],"properties":{"keep":{"type":"null"},"keep_share":{"type":"number"}}}]})",
     "The answer goes on with the keys and values of `keep` tokens, or of `keep_share` of the prompt, which `method` "
     "chooses. Changes the answer, the same way on every server (docs/users/caching.md). Absent: the server's, if any.",
     &read_kv_eviction},
    {"kv_transfer_params", kBoth, kOther, 0, 0, false, "null", "vLLM", "", R"({"type":"object"})",
     "Of routers that part prefill from decode: with `do_remote_decode` the answer has this member for the replica "
     "that "
     "decodes. No block is moved.",
     &read_kv_transfer},
    {"priority", kBoth, kOther, 0, 0, false, "0", "vLLM", "Request::priority",
     R"({"type":"integer","minimum":@min_priority,"maximum":@max_priority})",
     "Higher runs earlier; only if the server allows it.", &read_priority},
    {"speculation", kBoth, kOther, 0, 0, false, "{}", "ibid", "Request::speculation",
     R"({"type":"object","properties":{"mode":{"enum":[@modes,null]},"k":{"type":["integer","null"],"minimum":0,"maximum":@max_drafts},"verifier":{"enum":["coupled","rejection","typical",null]}},"additionalProperties":false})",
     "Speculative decoding, which changes no token by default: `mode` auto, off, ngram (lookup only) or the server's "
     "proposer, as eagle; `k`, the maximum of draft tokens per step, at most the server's; `verifier` coupled; or "
     "rejection, exact in distribution, with bytes that depend on the draft tokens; or typical, not exact: the answer "
     "has `exact` (docs/users/speculation.md).",
     &read_speculation},
    {"speculative.n_max", kBoth, kInteger, 0, kMaxInt, false, "null", "llama.cpp", "Request::speculation", nullptr,
     "llama.cpp's name of speculation.k.", &R::max_drafts},
    {"prediction", kBoth, kOther, 0, 0, false, "null", "OpenAI", "Request::speculation",
     R"({"type":"object","required":["type","content"],"properties":{"type":{"const":"content"},"content":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}}]}}})",
     "The expected answer, used for draft tokens. Changes the speed, not the answer.", &read_prediction},
    {"ttft_slo_ms", kBoth, kInteger, 0, 86'400'000, false, "0", "ibid", "Request::ttft_target", nullptr,
     "Target for the time to first token in milliseconds; if it cannot be met, 429 at once. 0: none.", &R::ttft_slo_ms},
    {"tpot_slo_ms", kBoth, kInteger, 0, 86'400'000, false, "0", "ibid", "Request::tpot_target", nullptr,
     "Target for inter-token latency in milliseconds; other requests of the tenant wait if they would break it. 0: "
     "none.",
     &R::tpot_slo_ms},
};

// No value of theirs changes an answer here.
constexpr IgnoredField kIgnored[] = {
    // OpenAI.
    {"user", kBoth, "the API key identifies the user"},
    {"safety_identifier", kBoth, "the API key identifies the user"},
    {"metadata", kBoth, "nothing is stored"},
    {"store", kBoth, "nothing is stored"},
    {"service_tier", kBoth, "there is one"},
    {"verbosity", kBoth, "a model that was not trained with it does not know it"},
    {"prompt_cache_key", kBoth, "the prefix cache finds a prompt by its tokens"},
    {"prompt_cache_options", kBoth, "the prefix cache finds a prompt by its tokens"},
    {"prompt_cache_retention", kBoth, "a cached block stays until its room is needed"},
    // vLLM and llm-d.
    {"spaces_between_special_tokens", kBoth, "none are added"},
    {"cache_hit_threshold", kBoth, "what the prefix cache does not have is computed"},
    // llama.cpp.
    {"id_slot", kBoth, "any free place in the batch is as good"},
    {"n_keep", kBoth, "a context that is full ends the answer"},
    {"n_discard", kBoth, "a context that is full ends the answer"},
    {"cache_prompt", kBoth,
     "an answer is the same with the prefix cache and without; cache_salt gives a cache of your own"},
    {"n_cache_reuse", kBoth, "the prefix cache finds a prompt by its tokens"},
    {"response_fields", kBoth, "answers have OpenAI's form; /completion returns only the named fields"},
    {"backend_sampling", kBoth, "where a token is drawn changes none"},
    {"speculative.n_min", kBoth, "drafts change no token"},
    {"speculative.p_min", kBoth, "drafts change no token"},
    {"adaptive_decay", kBoth, "it belongs to adaptive_target, which is not served"},
    {"preserved_tokens", kBoth, "a grammar names the control tokens that it needs; skip_special_tokens shows them"},
    {"parallel_tool_calls", kCompletionsOnly, "completions have no tools"},
};

constexpr UnservedField kUnserved[] = {
    // OpenAI.
    {"functions", kChatOnly, "[[]]", "use tools"},
    {"function_call", kChatOnly, R"(["none","auto"])", "use tool_choice"},
    {"modalities", kChatOnly, R"([["text"]])", "use [\"text\"]"},
    {"audio", kChatOnly, "[]", "leave it out"},
    {"moderation", kChatOnly, "[]", "leave it out"},
    {"web_search_options", kChatOnly, "[]", "leave it out"},
    // vLLM.
    {"chat_template", kChatOnly, "[]", "leave it out"},
    {"documents", kChatOnly, "[[]]", "leave it out"},
    {"thinking_token_budget", kCompletionsOnly, "[]", "leave it out"},
    {"thinking_budget", kCompletionsOnly, "[]", "leave it out"},
    {"prompt_embeds", kCompletionsOnly, "[]", "use prompt"},
    {"detokenize", kBoth, "[true]", "return_token_ids adds the ids to the text"},
    {"logits_processors", kBoth, "[[]]", "leave it out"},
    {"guided_whitespace_pattern", kBoth, "[]", "leave it out"},
    {"repetition_detection", kBoth, "[{}]", "use frequency_penalty or dry_multiplier"},
    {"media_io_kwargs", kChatOnly, "[{}]", "leave it out"},
    {"mm_processor_kwargs", kBoth, "[{}]", "leave it out"},
    {"vllm_xargs", kBoth, "[{}]", "leave it out"},
    {"request_id", kBoth, "[]", "send it as the header X-Request-Id"},
    // llama.cpp.
    {"lora", kBoth, "[[]]", "name the adapter as the model"},
    {"min_keep", kBoth, "[0,1]", "leave it out"},
    {"tfs_z", kBoth, "[1]", "leave it out"},
    {"post_sampling_probs", kBoth, "[false]", "use processed_logprobs"},
    {"return_tokens", kBoth, "[false]", "use return_token_ids"},
    {"reasoning_format", kCompletionsOnly, R"(["none","auto"])", "leave it out"},
    {"reasoning_budget_tokens", kCompletionsOnly, "[-1]", "leave it out"},
    {"adaptive_target", kBoth, "[-1,-0.01]", "leave it out"},
};

// clang-format on

}  // namespace

std::span<const Parameter> parameters() { return kParameters; }
std::span<const IgnoredField> ignored_fields() { return kIgnored; }
std::span<const UnservedField> unserved_fields() { return kUnserved; }

}  // namespace ibid
