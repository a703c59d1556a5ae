// ApiRequest: the body of /v1/chat/completions or /v1/completions, read and checked field by field, but not tokenised
// yet. The fields and their ranges stand in one table (parameters.h); what is read here is what openapi.json and
// docs/users/api.md document.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/state/kv_eviction.h"
#include "sample/grammar/lazy.h"
#include "sample/search.h"
#include "server/fields/chat_prompt.h"
#include "server/fields/parse_body.h"
#include "server/fields/sampling_defaults.h"
#include "server/wire/api_error.h"
#include "spec/verifier.h"

namespace ibid {

enum class Endpoint : uint8_t { kChat = 1, kCompletions = 2 };

// Most bytes of a tool's name: Anthropic's bound, the largest; an API may have its own (api_dialects.h).
inline constexpr size_t kMaxToolName = 128;

// Defaults for what a request does not specify.
struct RequestDefaults {
  int32_t max_tokens = -1;       // of an answer; -1: up to the context
  std::optional<uint64_t> seed;  // none: one of its own for each request
  Json template_kwargs;          // an object of variables for the chat template, or null
  bool include_usage = false;    // in streams
  bool tokens_as_ids = false;    // in log-probabilities
  bool verbose = false;          // show the prompt
  bool prefill = false;          // go on from a chat's last message where it is the assistant's
  KvEviction kv_eviction;        // of those that may have one (read_kv_eviction.cc)
  bool template_dates = false;   // date_string and datetime too, as llama.cpp gives them: today's
};

// Bounds that an operator may change, and defaults.
struct ApiLimits {
  int32_t max_n = 64;             // choices of one prompt
  int32_t max_prompts = 256;      // in one completions request
  int32_t max_choices = 256;      // n times prompts
  int32_t max_inputs = 2048;      // texts of an embeddings request
  int32_t max_logprobs = 20;      // candidates beside the chosen token
  int32_t max_logit_bias = 1024;  // entries
  int32_t max_stops = 64;         // stop strings, and stop ids
  int32_t max_stop_bytes = 4096;  // of all stop strings together
  int32_t max_messages = 4096;
  size_t max_tool_name = kMaxToolName;
  bool allow_priority = false;
  int32_t max_drafts = 0;  // of a sequence in a step; 0: the server does not speculate
  std::string proposer;  // the proposer beside the look-up, as a mode of requests: "eagle", "draft+window"; empty: none
  JsonLimits json = kBodyLimits;
  RequestDefaults defaults;
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

// A piece of text whose tokens get a bias (llama.cpp's logit_bias by string), or are banned in a row (bad words).
struct TextBias {
  std::string text;
  float bias = 0;
  bool ban = false;
};

// What the tokenizer adds around a prompt's tokens: nothing; the BOS that the vocabulary needs, where a chat template
// has not written it; all that the model needs around a text.
enum class AddSpecial : uint8_t { kNothing, kMissingBos, kAll };

// What the answer must be of, in the language in which it was asked.
struct GrammarRequest {
  enum class Kind : uint8_t { kNone, kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf, kTag };
  Kind kind = Kind::kNone;
  std::string text;  // of the schema, the expression or the grammar
  std::vector<std::string> choices;
  bool is_strict = false;
  std::string field;  // which asked
};

// A picture of a message: a data URL or an address, and the field that has it.
struct PictureUrl {
  std::string url, where;
  const Result<std::string>* fetched = nullptr;  // from the address: its bytes, or why there are none. Not owned
};
inline constexpr size_t kMaxPictures = 64;  // of a request

// At what a lazy grammar begins, as llama.cpp has it.
struct GrammarTrigger {
  std::string text;
  TokenId token = TokenId::kNone;  // instead of a text
  grammar::Trigger::Kind kind = grammar::Trigger::Kind::kText;
};

enum class ToolChoice : uint8_t { kNone, kAuto, kRequired };

// The first part of the answer, which another replica gave. What it names of that replica must be this one's too.
struct ResumeFields {
  std::vector<TokenId> token_ids;
  std::optional<float> mirostat_mu;
  std::string model_digest, fingerprint;  // empty: not named
  bool as_outputs = false;                // the answer's form (answer/output_lines.h)
};

// What a request asks of its answer's form. Small: the writer of the answer keeps a copy.
struct AnswerFields {
  int32_t n = 1;
  int32_t best_of = 0;  // choices that are computed, of which the answer has the n likeliest; 0: n
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // in every event
  bool echo = false;
  bool want_logprobs = false;
  int32_t prompt_logprobs = -1;
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // in log-probabilities: "token_id:7"
  bool timings = false;        // llama.cpp's
  bool verbose = false;        // the answer has the rendered prompt
  bool ledger = false;
  bool is_prefill = false;                 // another replica decodes: the answer has its kv_transfer_params
  bool reports_drafts = false;             // in the usage
  Verifier verifier = Verifier::kCoupled;  // of drafts; with another one the answer names what is exact
  bool reports_reasoning = true;
  bool parallel_calls = true;     // false: the first call alone
  int32_t n_indent = 0;           // blanks with which each further line must begin
  int32_t t_max_predict_ms = -1;  // the answer ends at the first end of a line after so long; not above 0: never
};

struct ApiRequest : AnswerFields {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;
  SamplingParams sampling;  // without what has to be tokenised first
  SamplingSources sources;  // of its parameters
  bool has_seed = false;
  int32_t num_beams = 0;
  bool use_beam_search = false;
  SearchOptions search;  // of these and their like
  int32_t max_tokens = -1;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_ids;
  bool include_stop = false;
  GrammarRequest grammar;
  std::string gbnf;  // the field `grammar`
  bool is_lazy = false;
  std::vector<GrammarTrigger> triggers;
  bool closes_in_time = false;
  bool skip_special_tokens = true;
  int32_t priority = 0;
  int32_t ttft_slo_ms = 0;  // 0: none
  int32_t tpot_slo_ms = 0;
  int32_t max_drafts = -1;       // -1: the server's
  bool drafts_are_free = false;  // mode ngram: by the look-up and grammars alone
  std::string prediction;
  std::string cache_salt;
  std::optional<ResumeFields> resume;
  std::optional<KvEviction> kv_eviction;
  bool is_resumable = false;  // an answer that the server's end cuts ends with what resumes it
  bool trace = false;
  bool return_progress = false;
  std::vector<TextBias> text_bias;
  std::vector<std::string> bad_words;
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};
  AddSpecial add_special = AddSpecial::kMissingBos;
  int32_t truncate_prompt = 0;  // keep so many last tokens of each prompt; -1: as many as leave room; 0: all
  bool keeps_first = false;     // of truncate_prompt: the first tokens instead

  // Chat.
  ChatPrompt chat;
  std::vector<PictureUrl> pictures;  // of its messages, in order
  // Further conversations, which are answered by a choice each: of `chat` all but its messages, which would be a copy
  // of megabytes of tools for each of hundreds.
  struct Conversation {
    Json messages;
    bool continues_final = false;
  };
  std::vector<Conversation> more_chats;
  int32_t top_logprobs = 0;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::vector<std::string> allowed_tools;  // of tool_choice; empty: all
  int32_t reasoning_budget = -1;           // tokens; -1: none
  std::string reasoning_effort;
  bool finds_reasoning = true;

  // Completions.
  std::vector<Prompt> prompts;
  bool keeps_prompt = false;           // the answer repeats it
  std::string suffix;                  // what stands after the answer
  std::string prompt_name = "prompt";  // as the API that asked calls it
};

// The error's param is the field. `defaults`: how to sample where the body does not specify it.
Result<ApiRequest> parse_api_request(Endpoint endpoint, const Json& body, const ApiLimits& limits,
                                     const SamplingDefaults& defaults = {});

// Further conversations of a request that parse_api_request() has read from `body`: arrays of messages each.
Status add_conversations(ApiRequest& request, const std::vector<Json>& more, const Json& body, const ApiLimits& limits);

// Checks the fields of searches in combination.
Status check_search(ApiRequest& request);

// Checks `resume` beside the other fields, and leaves out what the answer's first part has had.
Status check_resume(ApiRequest& request);

// Checks the fields of tools in combination.
Status check_tools(ApiRequest& request);

// Roles, contents and their parts; text parts are joined with newlines, so that `content` is a string or null
// afterwards. A user's message with pictures keeps its parts, and `pictures` gets theirs in order; null: they are
// refused. Roles stay as given: the template's form decides what becomes of "developer".
Result<Json> check_messages(const Json& messages, const ApiLimits& limits, const std::string& where = "messages",
                            std::vector<PictureUrl>* pictures = nullptr);
// One prompt or a list of them, text or ids.
Result<std::vector<Prompt>> read_prompts(const Json& value, const ApiLimits& limits, const std::string& where);

}  // namespace ibid
