// The rows. A field that one line can describe is described by it; the others name a function of read_fields.h.
#include <array>

#include "server/parameters.h"
#include "server/read_fields.h"

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
     "The model's name as /v1/models gives it. Any other means the model too, unless the server is strict about names.",
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
     "What stands behind the answer, which fills in between it and the prompt: of models with tokens for it, as "
     "/infill. The prompts are texts then.",
     &R::suffix},
    {"max_tokens", kBoth, kInteger, -1, kMaxInt, false, "null", "OpenAI", "Request::max_tokens", nullptr,
     "Most tokens to generate for a choice; absent or -1 means up to the context.", &R::max_tokens},
    {"max_completion_tokens", kBoth, kInteger, -1, kMaxInt, false, "null", "OpenAI", "Request::max_tokens", nullptr,
     "The newer name of max_tokens.", &R::max_tokens, "max_tokens"},
    {"n_predict", kBoth, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "Request::max_tokens", nullptr,
     "llama.cpp's name of max_tokens; -1 means up to the context, 0 computes the prompt, for requests that begin like "
     "it, and answers nothing.",
     &R::max_tokens, "max_tokens"},
    {"n", kBoth, kOther, 0, 0, false, "1", "OpenAI", "Request::n", R"({"type":"integer","minimum":1,"maximum":@max_n})",
     "Choices per prompt, bounded by the server; choice i draws with seed + i.", &read_n},
    {"n_cmpl", kBoth, kOther, 0, 0, false, "1", "llama.cpp", "Request::n",
     R"({"type":"integer","minimum":1,"maximum":@max_n})", "llama.cpp's name of n.", &read_n_cmpl, "n"},
    {"stream", kBoth, kBoolean, 0, 0, false, "false", "OpenAI", "", nullptr,
     "Send the answer as server-sent events while it grows.", &R::stream},
    {"stream_options", kBoth, kOther, 0, 0, false, "null", "OpenAI, vLLM", "",
     R"({"type":"object","properties":{"include_usage":{"type":["boolean","null"]},"continuous_usage_stats":{"type":["boolean","null"]},"include_obfuscation":{"type":["boolean","null"],"description":"Accepted, without effect."}}})",
     "`{\"include_usage\": true}` sends a last event with the usage; `continuous_usage_stats` tells it in every event.",
     &read_stream_options},
    {"echo", kBoth, kBoolean, 0, 0, false, "false", "OpenAI, vLLM", "", nullptr,
     "Put the prompt before the answer; with logprobs, its tokens are in them too. In a chat: the last message, where "
     "it "
     "is the assistant's.",
     &R::echo},
    {"truncate_prompt_tokens", kBoth, kOther, 0, 0, false, "null", "vLLM", "",
     R"({"type":"integer","minimum":-1,"maximum":2147483647,"not":{"const":0}})",
     "Keep so many last tokens of each prompt; -1 keeps as many as leave room for max_tokens.", &read_truncate},
    {"truncation_side", kBoth, kOther, 0, 0, false, "\"left\"", "vLLM", "", R"({"enum":["left","right"]})",
     "Which tokens truncate_prompt_tokens takes away: the first ones (left), or the last (right).",
     &read_truncation_side},
    {"seed", kBoth, kOther, 0, 0, false, "null", "OpenAI", "SamplingParams::seed",
     R"({"type":"integer","minimum":-9223372036854775808,"maximum":18446744073709551615})",
     "The randomness: the same request with the same seed gives the same bytes. Absent or -1: the server chooses one "
     "and says it in the answer's `seed`. Other negative numbers count from 2^64.",
     &read_seed},

    // Where it ends.
    {"stop", kBoth, kStrings, 0, 0, false, "null", "OpenAI", "Request::stops", nullptr,
     "A text or several at which the answer ends; the text itself is left out.", &R::stop},
    {"n_indent", kBoth, kInteger, 0, kMaxInt, false, "0", "llama.cpp", "", nullptr,
     "The answer ends before a line, other than its first, that begins with fewer blanks than this; empty lines do not "
     "count.",
     &R::n_indent},
    {"t_max_predict_ms", kBoth, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "", nullptr,
     "The answer ends at the first end of a line after so many milliseconds from its first token: how long it is then "
     "depends on the time, and what it says does not. 0 or -1: never.",
     &R::t_max_predict_ms},
    // What it must be of.
    {"response_format", kBoth, kOther, 0, 0, false, "null", "OpenAI", "Request::grammar",
     R"({"type":"object","required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema","structural_tag"]},"format":{},"structures":{},"triggers":{},"schema":{},"json_schema":{"type":"object","properties":{"name":{"type":"string"},"description":{"type":["string","null"]},"strict":{"type":["boolean","null"]},"schema":{}}}}})",
     "`text`; `json_object`: any JSON object; `json_schema`: a value of the schema, at once or within `json_schema`. "
     "With "
     "`strict`, a keyword that cannot be held is an error (docs/users/structured.md). `structural_tag`: free text with "
     "tags.",
     &read_response_format},
    {"json_schema", kBoth, kOther, 0, 0, false, "{}", "llama.cpp", "Request::grammar", "{}",
     "The answer is a JSON value of this schema; `{}` asks for nothing.", &read_json_schema_field},
    {"grammar", kBoth, kString, 0, 1048576, false, "\"\"", "llama.cpp", "Request::grammar", nullptr,
     "The answer is of this grammar, in GBNF or Lark.", &R::gbnf},
    {"grammar_lazy", kBoth, kBoolean, 0, 0, false, "false", "llama.cpp", "Request::grammar", nullptr,
     "The answer is free text until one of grammar_triggers; from there on it is of the grammar.", &R::is_lazy},
    {"grammar_triggers", kBoth, kOther, 0, 0, false, "[]", "llama.cpp", "Request::grammar",
     R"({"type":"array","maxItems":64,"items":{"type":"object","required":["type","value"],"properties":{"type":{"type":"integer","minimum":0,"maximum":3},"value":{"type":"string"},"token":{"type":"integer"}}}})",
     "At what a lazy grammar begins: `{\"type\": 1, \"value\": TEXT}` a word, type 0 with `token` a token, 2 a "
     "pattern that is found, 3 one that the whole text is of.",
     &read_grammar_triggers},
    {"structured_outputs", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::grammar",
     R"({"type":"object","properties":{"json":{},"regex":{"type":["string","null"]},"choice":{"type":["array","null"],"minItems":1,"items":{"type":"string"}},"grammar":{"type":["string","null"]},"json_object":{"type":["boolean","null"]},"structural_tag":{}}})",
     "One of `json` (a schema, or its text), `regex`, `choice` (a list of texts), `grammar` (GBNF or Lark), "
     "`json_object`, "
     "`structural_tag` (an object, or its text).",
     &read_structured_outputs},
    {"guided_json", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::grammar", "{}",
     "The older name of structured_outputs.json.", &read_guided_json},
    {"guided_regex", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::grammar", R"({"type":"string"})",
     "The older name of structured_outputs.regex: the whole answer is of the expression.", &read_guided_regex},
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
     "With a grammar: tokens that would leave no room to complete the answer within max_tokens are not drawn.",
     &R::closes_in_time},
    {"stop_token_ids", kBoth, kTokenIds, 0, 0, false, "[]", "vLLM", "Request::stops", nullptr,
     "Token ids at which the answer ends.", &R::stop_ids},
    {"include_stop_str_in_output", kBoth, kBoolean, 0, 0, false, "false", "vLLM", "Request::stops", nullptr,
     "Keep the stop text at the end of the answer.", &R::include_stop},
    {"min_tokens", kBoth, kInteger, 0, kMaxInt, false, "0", "vLLM", "SamplingParams::min_tokens", nullptr,
     "No end-of-answer token before so many.", &S::min_tokens},
    {"ignore_eos", kBoth, kBoolean, 0, 0, false, "false", "vLLM, llama.cpp", "SamplingParams::ignore_eos", nullptr,
     "Go on after the model's end-of-answer token.", &S::ignore_eos},

    // Temperature and truncation.
    {"temperature", kBoth, kNumber, 0, 100, false, "0.7", "OpenAI", "SamplingParams::temperature", nullptr,
     "0 is greedy: always the most likely token.", &S::temperature},
    {"top_p", kBoth, kNumber, 0, 1, false, "0.95", "OpenAI", "SamplingParams::top_p", nullptr,
     "Keep the fewest tokens whose probabilities reach this; 1 keeps all, 0 only the most likely.", &read_top_p},
    {"top_k", kBoth, kInteger, -1, kMaxInt, false, "0", "vLLM, llama.cpp", "SamplingParams::top_k", nullptr,
     "Keep the k most likely tokens; 0 or -1 keeps all.", &read_top_k},
    {"min_p", kBoth, kNumber, 0, 1, false, "0", "vLLM, llama.cpp", "SamplingParams::min_p", nullptr,
     "Keep tokens at least this likely relative to the most likely one.", &S::min_p},
    {"typical_p", kBoth, kNumber, 0, 1, true, "1", "llama.cpp", "SamplingParams::typical_p", nullptr,
     "Keep the tokens whose surprise is nearest to the expected one; 1 is off.", &S::typical_p},
    {"top_n_sigma", kBoth, kNumber, -1, 1000, false, "0", "llama.cpp", "SamplingParams::top_n_sigma", nullptr,
     "Keep logits within so many standard deviations of the best; 0 or less is off.", &read_top_n_sigma},
    {"xtc_probability", kBoth, kNumber, 0, 1, false, "0", "llama.cpp", "SamplingParams::xtc_probability", nullptr,
     "How often the most likely tokens but the last above xtc_threshold are left out.", &S::xtc_probability},
    {"xtc_threshold", kBoth, kNumber, 0, 1, false, "0.1", "llama.cpp", "SamplingParams::xtc_threshold", nullptr,
     "From which probability XTC looks at a token.", &S::xtc_threshold},
    {"dynatemp_range", kBoth, kNumber, 0, 100, false, "0", "llama.cpp", "SamplingParams::dynatemp_range", nullptr,
     "Temperature varies by so much with the entropy; 0 is off.", &S::dynatemp_range},
    {"dynatemp_exponent", kBoth, kNumber, 0, 100, false, "1", "llama.cpp", "SamplingParams::dynatemp_exponent", nullptr,
     "How entropy maps to that range.", &S::dynatemp_exponent},
    {"mirostat", kBoth, kInteger, 0, 2, false, "0", "llama.cpp", "SamplingParams::mirostat", nullptr,
     "0 is off; 1 cuts by Zipf's law fitted to the row, 2 by surprise. Truncation that is asked for comes before; "
     "ibid's own default of top_p does not.",
     &S::mirostat},
    {"mirostat_tau", kBoth, kNumber, 0, 1000, true, "5", "llama.cpp", "SamplingParams::mirostat_tau", nullptr,
     "Mirostat's target surprise.", &S::mirostat_tau},
    {"mirostat_eta", kBoth, kNumber, 0, 100, true, "0.1", "llama.cpp", "SamplingParams::mirostat_eta", nullptr,
     "Mirostat's learning rate.", &S::mirostat_eta},

    {"samplers", kBoth, kOther, 0, 0, false, "null", "llama.cpp", "",
     R"({"oneOf":[{"type":"array","items":{"type":"string"}},{"type":"string"}]})",
     "llama.cpp's list of samplers, by their names or letters, as a set: what it leaves out is off, whatever its own "
     "field says; the order of stages stays ibid's (docs/users/api.md, Sampling). Names that ibid does not know "
     "(`infill`) "
     "change nothing.",
     &read_samplers},

    // Penalties.
    {"repetition_penalty", kBoth, kNumber, 0.001, 100, false, "1", "vLLM", "SamplingParams::repetition_penalty",
     nullptr, "Above 1 makes tokens of prompt and answer less likely; 1 is off.", &S::repetition_penalty},
    {"repeat_penalty", kBoth, kNumber, 0.001, 100, false, "1", "llama.cpp", "SamplingParams::repetition_penalty",
     nullptr, "llama.cpp's name of repetition_penalty.", &S::repetition_penalty, "repetition_penalty"},
    {"repeat_last_n", kBoth, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "SamplingParams::penalty_last_n", nullptr,
     "How many last tokens repetition_penalty looks at; -1: all.", &S::penalty_last_n},
    {"presence_penalty", kBoth, kNumber, -2, 2, false, "0", "OpenAI", "SamplingParams::presence_penalty", nullptr,
     "Taken from the logit of every token that the answer has.", &S::presence_penalty},
    {"frequency_penalty", kBoth, kNumber, -2, 2, false, "0", "OpenAI", "SamplingParams::frequency_penalty", nullptr,
     "Taken from a token's logit once for each time the answer has it.", &S::frequency_penalty},
    {"no_repeat_ngram_size", kBoth, kInteger, 0, kMaxInt, false, "0", "vLLM", "SamplingParams::no_repeat_ngram",
     nullptr, "No run of so many tokens comes twice; 0 is off.", &S::no_repeat_ngram},
    {"dry_multiplier", kBoth, kNumber, 0, 100, false, "0", "llama.cpp", "SamplingParams::dry_multiplier", nullptr,
     "Strength of the DRY penalty on repeated runs; 0 is off.", &S::dry_multiplier},
    {"dry_base", kBoth, kNumber, 1, 100, false, "1.75", "llama.cpp", "SamplingParams::dry_base", nullptr,
     "How it grows with the run's length.", &S::dry_base},
    {"dry_allowed_length", kBoth, kInteger, 1, kMaxInt, false, "2", "llama.cpp", "SamplingParams::dry_allowed_len",
     nullptr, "Runs of at least this length are penalised.", &S::dry_allowed_len},
    {"dry_penalty_last_n", kBoth, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "SamplingParams::dry_last_n",
     nullptr, "How many last tokens DRY looks at; -1: all.", &S::dry_last_n},
    {"dry_sequence_breakers", kBoth, kStrings, 0, 0, false, R"(["\n",":","\"","*"])", "llama.cpp",
     "SamplingParams::dry_breakers", nullptr,
     "Texts of at most 40 bytes across which no run is counted, however they are cut into tokens.", &R::dry_breakers},

    // Biases and masks.
    {"logit_bias", kBoth, kOther, 0, 0, false, "null", "OpenAI, llama.cpp", "SamplingParams::logit_bias",
     R"({"oneOf":[{"type":"object","propertyNames":{"minLength":1},"additionalProperties":{"$ref":"#/components/schemas/Bias"}},{"type":"array","items":{"type":"array","minItems":2,"maxItems":2,"prefixItems":[{"oneOf":[{"type":"integer","minimum":0,"maximum":@max_token},{"type":"string","minLength":1}]},{"$ref":"#/components/schemas/Bias"}]}}]})",
     "Added to logits, -100 to 100; false bans. An object `{\"ID or text\": BIAS}`, where a key that is a whole number "
     "is "
     "an id, or an array of pairs `[ID or text, BIAS]`. A text stands for the tokens that it is encoded to alone, "
     "without "
     "BOS and with special tokens read as text; each of them gets the bias once.",
     &read_logit_bias},
    {"bad_words", kBoth, kStrings, 0, 0, false, "[]", "vLLM", "SamplingParams::banned_sequences", nullptr,
     "Texts that the answer must not have, in their usual tokenisations (with and without a space before).",
     &R::bad_words},
    {"allowed_token_ids", kBoth, kOther, 0, 0, false, "null", "vLLM", "SamplingParams::allowed",
     R"({"allOf":[{"$ref":"#/components/schemas/TokenIds"},{"minItems":1}]})", "Only these tokens.", &read_allowed},

    // Searches: docs/users/search.md.
    {"num_beams", kBoth, kInteger, 1, kMaxBeams, false, "1", "Hugging Face", "Request::search", nullptr,
     "Beam search with so many beams, of which the n best texts are told; not streamed.", &R::num_beams},
    {"use_beam_search", kBoth, kBoolean, 0, 0, false, "false", "vLLM", "Request::search", nullptr,
     "Beam search with vLLM's score and end; n beams, where num_beams does not say how many.", &R::use_beam_search},
    {"length_penalty", kBoth, kOther, 0, 0, false, "1", "Hugging Face, vLLM", "Request::search",
     R"({"type":"number","minimum":-10,"maximum":10})", "A beam's sum is divided by its length to this power.",
     &read_length_penalty},
    {"early_stopping", kBoth, kOther, 0, 0, false, "false", "Hugging Face", "Request::search",
     R"({"enum":[true,false,"never"]})",
     "When enough beams have ended: as soon as there are as many as beams; where the best running one could not beat "
     "them now; or never could.",
     &read_early_stopping},
    {"num_beam_groups", kBoth, kOther, 0, 0, false, "1", "Hugging Face", "Request::search",
     R"({"type":"integer","minimum":1,"maximum":64})", "Groups of beams that are to differ; divides num_beams.",
     &read_beam_groups},
    {"diversity_penalty", kBoth, kOther, 0, 0, false, "0", "Hugging Face", "Request::search",
     R"({"type":"number","minimum":0,"maximum":100})",
     "Taken from a token's log-probability for each beam of earlier groups that has taken it in this step.",
     &read_diversity_penalty},
    {"penalty_alpha", kBoth, kOther, 0, 0, false, "0", "Hugging Face", "Request::search",
     R"({"type":"number","minimum":0,"maximum":1})",
     "Contrastive search among the top_k likeliest tokens: how much likeness to the text before weighs.",
     &read_penalty_alpha},
    {"best_of", kCompletionsOnly, kOther, 0, 0, false, "null", "OpenAI", "",
     R"({"type":"integer","minimum":1,"maximum":@max_n})",
     "Draw so many texts and tell the n that are likeliest by token; not streamed.", &read_best_of},

    // What is told about the tokens.
    {"logprobs", kChatOnly, kBoolean, 0, 0, false, "false", "OpenAI", "SamplingParams::logprobs", nullptr,
     "Tell each token's log-probability: the model's own, before any processor.", &R::want_logprobs},
    {"top_logprobs", kChatOnly, kOther, 0, 0, false, "0", "OpenAI", "SamplingParams::logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})",
     "And those of so many most likely tokens; wants logprobs.", &read_top_logprobs},
    {"logprobs", kCompletionsOnly, kOther, 0, 0, false, "null", "OpenAI", "SamplingParams::logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})",
     "Tell each token's log-probability, and those of so many most likely tokens.", &read_logprobs},
    {"n_probs", kCompletionsOnly, kOther, 0, 0, false, "null", "llama.cpp", "SamplingParams::logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})", "llama.cpp's name of logprobs; 0 is none.",
     &read_n_probs, "logprobs"},
    {"n_probs", kChatOnly, kOther, 0, 0, false, "null", "llama.cpp", "SamplingParams::logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})",
     "llama.cpp's name of logprobs with top_logprobs; 0 is none.", &read_n_probs, "top_logprobs"},
    {"logprob_token_ids", kBoth, kOther, 0, 0, false, "[]", "vLLM", "SamplingParams::logprob_tokens",
     R"({"allOf":[{"$ref":"#/components/schemas/TokenIds"},{"maxItems":@max_logprobs}]})",
     "Wants logprobs: tell those of these tokens and of the one that was drawn in the place of the most likely ones.",
     &read_logprob_tokens},
    {"processed_logprobs", kBoth, kBoolean, 0, 0, false, "false", "ibid", "SamplingParams::processed_logprobs", nullptr,
     "Also those after penalties, masks, temperature and truncation; -9999.0 where a token was ruled out.",
     &S::processed_logprobs},
    {"prompt_logprobs", kBoth, kOther, 0, 0, false, "null", "vLLM", "Request::prompt_logprobs",
     R"({"type":"integer","minimum":0,"maximum":@max_logprobs})",
     "Also those of the prompt's tokens; computes the whole prompt.", &read_prompt_logprobs},
    {"return_token_ids", kBoth, kBoolean, 0, 0, false, "false", "vLLM", "", nullptr,
     "Put the ids of the answer's tokens into each choice, and into the entries of a chat's logprobs; and those of the "
     "prompt's, as `prompt_token_ids`, where prompt_logprobs would stand.",
     &R::return_token_ids},
    {"return_tokens_as_token_ids", kBoth, kBoolean, 0, 0, false, "false", "vLLM", "", nullptr,
     "Spell tokens in log-probabilities by their ids, as `token_id:7`.", &R::tokens_as_ids},
    {"return_progress", kBoth, kBoolean, 0, 0, false, "false", "llama.cpp", "Request::tells_progress", nullptr,
     "In a stream, an event with llama.cpp's `prompt_progress`: what the cache had, then behind each step that "
     "computes "
     "some of the prompt.",
     &R::return_progress},
    {"timings_per_token", kBoth, kBoolean, 0, 0, false, "false", "llama.cpp", "", nullptr,
     "Tell llama.cpp's `timings` in each event, and in a whole answer.", &R::timings},
    {"verbose", kBoth, kBoolean, 0, 0, false, "false", "llama.cpp", "", nullptr,
     "Tell the prompt as the model reads it, in a whole answer: `__verbose.prompt`.", &R::verbose},
    {"ledger", kBoth, kBoolean, 0, 0, false, "false", "ibid", "", nullptr,
     "Tell where the answer's time went: see Ledger.", &R::ledger},
    {"trace", kBoth, kBoolean, 0, 0, false, "false", "ibid", "", nullptr,
     "Tell how each token was drawn, so that the draw can be made again: see Traces.", &R::trace},

    // Tools and reasoning: docs/users/tools.md.
    {"tools", kChatOnly, kOther, 0, 0, false, "[]", "OpenAI", "",
     R"({"type":"array","items":{"$ref":"#/components/schemas/Tool"}})",
     "Functions that the model may call, each with a name and a JSON Schema of its arguments.", &read_tools},
    {"tool_choice", kChatOnly, kOther, 0, 0, false, "\"auto\"", "OpenAI", "Request::grammar",
     R"({"$ref":"#/components/schemas/ToolChoice"})",
     "`none`: no call; `auto`: the model decides; `required`: calls alone, held by a grammar; or the functions that it "
     "may choose from.",
     &read_tool_choice},
    {"parallel_tool_calls", kChatOnly, kBoolean, 0, 0, false, "true", "OpenAI", "", nullptr,
     "False: the answer has one call at most.", &R::parallel_calls},
    {"reasoning_effort", kChatOnly, kOther, 0, 0, false, "null", "OpenAI", "",
     R"({"enum":["none","minimal","low","medium","high","xhigh","max"]})",
     "For the template, where it knows `reasoning_effort`; else minimal, low and medium are budgets of 128, 1,024 and "
     "2,048 tokens. `none` also says `enable_thinking` false.",
     &read_reasoning_effort},
    {"thinking_token_budget", kChatOnly, kInteger, -1, kMaxInt, false, "-1", "vLLM", "Request::reasoning", nullptr,
     "The model's reasoning is closed after so many tokens; -1: never.", &R::reasoning_budget},
    {"thinking_budget", kChatOnly, kInteger, -1, kMaxInt, false, "-1", "Qwen", "Request::reasoning", nullptr,
     "Qwen's name of thinking_token_budget.", &R::reasoning_budget, "thinking_token_budget"},
    {"reasoning_budget_tokens", kChatOnly, kInteger, -1, kMaxInt, false, "-1", "llama.cpp", "Request::reasoning",
     nullptr, "llama.cpp's name of thinking_token_budget.", &R::reasoning_budget, "thinking_token_budget"},
    {"reasoning_format", kChatOnly, kOther, 0, 0, false, "\"auto\"", "llama.cpp", "",
     R"({"enum":["none","auto","deepseek"]})",
     "`none`: the model's reasoning stays in the text as it wrote it; else it is told apart.", &read_reasoning_format},
    {"include_reasoning", kChatOnly, kBoolean, 0, 0, false, "true", "vLLM", "", nullptr,
     "False: the model's reasoning is left out.", &R::tells_reasoning},

    // How text is made and read.
    {"skip_special_tokens", kBoth, kBoolean, 0, 0, false, "true", "vLLM", "Request::show_special", nullptr,
     "Leave control tokens out of the text.", &R::skip_special_tokens},
    {"add_special_tokens", kCompletionsOnly, kBoolean, 0, 0, false, "true", "vLLM", "", nullptr,
     "Add what the model wants around a text prompt (BOS).", &read_add_special},
    {"add_special_tokens", kChatOnly, kBoolean, 0, 0, false, "null", "vLLM", "", nullptr,
     "Add it around the rendered conversation too; false adds nothing. Absent: BOS alone, where the vocabulary wants "
     "one "
     "and the template has not written it.",
     &read_add_special},
    {"add_generation_prompt", kChatOnly, kOther, 0, 0, false, "true", "vLLM", "", R"({"type":"boolean"})",
     "End the conversation with the start of an answer.", &read_add_generation_prompt},
    {"continue_final_message", kChatOnly, kOther, 0, 0, false, "false", "vLLM", "", R"({"type":"boolean"})",
     "The last message is the assistant's, and the answer goes on from the end of its text, or of its reasoning where "
     "it "
     "has no text.",
     &read_continue_final},
    {"chat_template_kwargs", kChatOnly, kOther, 0, 0, false, "null", "vLLM", "", R"({"type":"object"})",
     "More variables for the chat template.", &read_template_kwargs},
    {"cache_salt", kBoth, kString, 0, 256, false, "\"\"", "vLLM", "Request::cache_salt", nullptr,
     "The prefix cache is shared only between requests of the same tenant (a key without one is its own) and salt.",
     &R::cache_salt},
    {"priority", kBoth, kOther, 0, 0, false, "0", "vLLM", "Request::priority",
     R"({"type":"integer","minimum":@min_priority,"maximum":@max_priority})",
     "Higher runs earlier; only where the server allows it.", &read_priority},
    {"speculation", kBoth, kOther, 0, 0, false, "{}", "ibid", "Request::speculation",
     R"({"type":"object","properties":{"mode":{"enum":[@modes,null]},"k":{"type":["integer","null"],"minimum":0,"maximum":@max_drafts},"verifier":{"enum":["coupled","rejection","typical",null]}},"additionalProperties":false})",
     "How tokens are guessed and verified together, which changes none by default: `mode` auto, off, ngram (by the "
     "text itself alone) or the name of what the server runs beside it, as eagle; `k`, the most for a step, at most "
     "the "
     "server's; `verifier` coupled, or rejection, with which the law is exact and the "
     "bytes "
     "depend on the drafts, or typical, with which neither is exact: the answer says `exact` "
     "(docs/users/speculation.md).",
     &read_speculation},
    {"speculative.n_max", kBoth, kInteger, 0, kMaxInt, false, "null", "llama.cpp", "Request::speculation", nullptr,
     "llama.cpp's name of speculation.k.", &R::max_drafts},
    {"prediction", kBoth, kOther, 0, 0, false, "null", "OpenAI", "Request::speculation",
     R"({"type":"object","required":["type","content"],"properties":{"type":{"const":"content"},"content":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}}]}}})",
     "How the answer may go: it is guessed from here. Changes how fast it comes, not what it is.", &read_prediction},
    {"ttft_slo_ms", kBoth, kInteger, 0, 86'400'000, false, "0", "ibid", "Request::ttft_target", nullptr,
     "Milliseconds to the first token that are of use; where they cannot be kept, 429 says so early. 0: any.",
     &R::ttft_slo_ms},
    {"tpot_slo_ms", kBoth, kInteger, 0, 86'400'000, false, "0", "ibid", "Request::tpot_target", nullptr,
     "Milliseconds between tokens that are of use; where they can be kept, nobody of its tenant comes in beside whom "
     "they could not. 0: any.",
     &R::tpot_slo_ms},
};

// No value of theirs changes an answer here.
constexpr IgnoredField kIgnored[] = {
    // OpenAI.
    {"user", kBoth, "who asks is told by the API key"},
    {"safety_identifier", kBoth, "who asks is told by the API key"},
    {"metadata", kBoth, "nothing is stored"},
    {"store", kBoth, "nothing is stored"},
    {"service_tier", kBoth, "there is one"},
    {"verbosity", kBoth, "a model that was not trained with it does not know it"},
    {"prompt_cache_key", kBoth, "the prefix cache finds a prompt by its tokens"},
    {"prompt_cache_options", kBoth, "the prefix cache finds a prompt by its tokens"},
    {"prompt_cache_retention", kBoth, "a cached block stays until its room is needed"},
    // vLLM.
    {"spaces_between_special_tokens", kBoth, "none are added"},
    // llama.cpp.
    {"id_slot", kBoth, "any free place in the batch is as good"},
    {"n_keep", kBoth, "a context that is full ends the answer"},
    {"n_discard", kBoth, "a context that is full ends the answer"},
    {"cache_prompt", kBoth,
     "an answer is the same with the prefix cache and without; cache_salt gives a cache of your own"},
    {"n_cache_reuse", kBoth, "the prefix cache finds a prompt by its tokens"},
    {"response_fields", kBoth, "answers have OpenAI's form; /completion tells the fields alone that it names"},
    {"backend_sampling", kBoth, "where a token is drawn changes none"},
    {"speculative.n_min", kBoth, "drafts change no token"},
    {"speculative.p_min", kBoth, "drafts change no token"},
    {"adaptive_decay", kBoth, "it belongs to adaptive_target, which is not served"},
    {"preserved_tokens", kBoth, "a grammar names the control tokens that it wants; skip_special_tokens shows them"},
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
    {"kv_transfer_params", kBoth, "[{}]", "leave it out"},
    {"vllm_xargs", kBoth, "[{}]", "leave it out"},
    {"request_id", kBoth, "[]", "send it as the header X-Request-Id"},
    // llama.cpp.
    {"lora", kBoth, "[[]]", "leave it out"},
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
