// ApiDialect: all that sets one HTTP API apart, a row each: where it is served, how its bodies are read, how its
// answers and errors are written. A further API is a reader, a printer and a row; no other file compares APIs. The rows
// live as long as the process and never change, so any thread may keep a pointer to one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "server/answer/answer_printer.h"
#include "server/dialects/dialects.h"
#include "server/wire/api_error.h"
#include "server/wire/web_message.h"

namespace ibid {

enum class ApiStyle : uint8_t {
  kChat,
  kChatBatch,  // vLLM's: several conversations, a choice of each
  kCompletions,
  kMessages,
  kResponses,
  kOllamaChat,
  kOllamaGenerate,
  kLlama,
  kInfill,
  kEmbeddings,
  kOllamaEmbed,
  kOllamaEmbeddings,  // the older one, of a single prompt
  kLlamaEmbedding,
  kCohereEmbed,
  kPooling,  // vLLM's
  kRerank,   // Cohere's and Jina's
  kScore,    // vLLM's
  kOutputs   // of a path's own answers, for the replica that asks (output_lines.h); no path has it
};

// What a body is read with.
struct BodyContext {
  const ModelInfo& model;
  const Tokenizer* tokenizer;  // null: the model is not loaded; only bodies that reads_unloaded() then
  const FimTokens& fim;
  const ApiLimits& limits;
  FindResponse find_response;  // of the tenant
  bool may_unload = false;     // the model is one of several
};

struct ApiDialect {
  enum class Tokenizes : uint8_t { kNever, kLists /* of prompts: rows of ids and texts */, kAlways };
  // What a stream keeps back until the answer ends.
  enum class Holds : uint8_t { kNothing, kParsed /* what has calls or reasoning */, kAll };

  ApiStyle style;
  std::array<const char*, 3> paths;  // POST; null where there are fewer
  const char* route;                 // label in metrics and log
  const char* id_prefix;             // of its answers' ids
  // The body as a request of /v1/chat/completions or /v1/completions. Errors have the API's own
  // names of fields.
  Result<DialectBody> (*read)(Json body, const BodyContext& context);
  std::unique_ptr<AnswerPrinter> (*make_printer)();
  Tokenizes tokenizes = Tokenizes::kAlways;  // to read a body
  // Of an error found in what read() returned: its fields by the names that they have in the API. Null:
  // ours.
  ApiError (*in_own_words)(ApiError error) = nullptr;
  // The body of a refusal; null: error_json().
  std::string (*error_body)(const ApiError& error, std::string_view request_id) = nullptr;
  bool has_choices = false;      // n may be more than 1
  bool repeats_request = false;  // the answer has the prompt, and the settings that were asked for
  bool has_secret_ids = false;   // the id alone lets a client read the answer: random
  // A stream has a call in pieces that clients add up by its number, so that a resumed one goes on within a call.
  bool streams_call_pieces = false;
  bool fails_in_stream = false;       // a stream whose prompt is too long starts, and fails by an event
  bool resumes = false;               // bodies may have `resume`
  bool has_options = false;           // the seed is a member of a body's `options`
  const char* call_prefix = "call_";  // of made up ids of calls
  size_t max_tool_name = kMaxToolName;
  // Of what an answer may come to hold.
  Holds holds = Holds::kNothing;
  int32_t token_bytes = 0;     // for a token's text; 0: as most do
  int32_t logprob_copies = 1;  // of the JSON of a token's log-probabilities
};

// Ordered by style.
std::span<const ApiDialect> api_dialects();
const ApiDialect& dialect_of(ApiStyle style);
// Of a path below one of a dialect's own ("/v1/messages/count_tokens"): that dialect; below "/api/": Ollama's chat. Any
// other: chat.
const ApiDialect& dialect_above(std::string_view path);
// SageMaker's one path, /invocations, takes the bodies of several APIs: the one with the body's distinguishing field.
const ApiDialect& dialect_of_invocation(const Json& body, const ModelInfo& model);

// Whether the body can be read before its model is loaded.
bool reads_unloaded(const ApiDialect& api, const Json& body);
ApiError in_own_words(const ApiDialect& api, ApiError error);
// A refusal as the API has it, with `request_id` where that is in the API's bodies.
void restyle_error(WebResponse& response, const ApiDialect& api, std::string_view request_id);

}  // namespace ibid
