#include "server/answer/api_dialects.h"
#include "server/fields/body_parts.h"

#include <algorithm>

#include "base/check.h"
#include "base/json_writer.h"
#include "server/answer/output_lines.h"
#include "server/dialects/dialect_words.h"

namespace ibid {
namespace {

using Tokenizes = ApiDialect::Tokenizes;
using Holds = ApiDialect::Holds;

std::string messages_error(const ApiError& error, std::string_view request_id) {
  std::string body = "{\"type\":\"error\"," + messages_error_members(error) + ",\"request_id\":";
  JsonWriter(body).string(request_id);
  return body += '}';
}

std::string ollama_error(const ApiError& error, std::string_view) {
  const std::string message = error.n_ctx > 0 ? too_long_message(error,
                                                                 "the input length exceeds the context "
                                                                 "length: {N} tokens of {M}")
                                              : error.message;
  std::string body;
  JsonWriter json(body);
  json.begin_object().field("error", message);
  write_resume(error, json);
  json.end_object();
  return body;
}

Result<DialectBody> read_chat(Json body, const BodyContext&) {
  DialectBody out;
  out.body = std::move(body);
  return out;
}

Result<DialectBody> read_completions(Json body, const BodyContext& in) {
  DialectBody out;
  out.endpoint = Endpoint::kCompletions;
  out.body = std::move(body);
  if (in.tokenizer != nullptr) TRY(mend_fields({"prompt"}, MixedPrompts::kOne, *in.tokenizer, out.body));
  return out;
}

template <bool generate>
Result<DialectBody> read_ollama(Json body, const BodyContext& in) {
  return body_of_ollama(body, generate, in.model, in.may_unload);
}

constexpr EmbeddingApi kOpenAiVectors{.has_chats = true};
constexpr EmbeddingApi kPoolingVectors{.has_chats = true, .has_tasks = true, .has_token_vectors = true};
constexpr EmbeddingApi kLlamaVectors{.other_texts = "content", .has_token_vectors = true, .has_norm = true};
constexpr EmbeddingApi kCohereVectors{.texts = "texts", .dimensions = "output_dimension", .has_types = true};
constexpr EmbeddingApi kOllamaVectors{.is_ollama = true, .nothing = "{\"embeddings\":[]}"};
constexpr EmbeddingApi kOllamaVector{.texts = "prompt", .is_ollama = true, .nothing = "{\"embedding\":[]}"};

template <const EmbeddingApi& api>
Result<DialectBody> read_embeddings(Json body, const BodyContext& in) {
  TRY(mend_fields({"input", "content", "prompt"}, MixedPrompts::kList, *in.tokenizer, body));
  return body_of_embeddings(body, api, in.model, in.limits);
}

template <bool reranks>
Result<DialectBody> read_rank(Json body, const BodyContext& in) {
  return body_of_rank(body, reranks, in.model, *in.tokenizer, in.limits);
}

template <OpenAiForm form>
std::unique_ptr<AnswerPrinter> openai_printer() {
  return make_openai_printer(form);
}
template <bool generate>
std::unique_ptr<AnswerPrinter> ollama_printer() {
  return make_ollama_printer(generate);
}
template <bool reranks>
std::unique_ptr<AnswerPrinter> rank_printer() {
  return make_rank_printer(reranks);
}

constexpr ApiDialect kDialects[] = {
    {.style = ApiStyle::kChat,
     .paths = {"/v1/chat/completions", "/chat/completions", "/invocations"},  // or what the latter's body is of
     .route = "chat",
     .id_prefix = "chatcmpl-",
     .read = &read_chat,
     .make_printer = &openai_printer<OpenAiForm::kChat>,
     .tokenizes = Tokenizes::kNever,
     .has_choices = true,
     .streams_call_pieces = true,
     .resumes = true},
    {.style = ApiStyle::kChatBatch,
     .paths = {"/v1/chat/completions/batch"},
     .route = "chat",
     .id_prefix = "chatcmpl-",
     .read = [](Json body, const BodyContext&) { return body_of_chat_batch(std::move(body)); },
     .make_printer = &openai_printer<OpenAiForm::kChatBatch>,
     .tokenizes = Tokenizes::kNever},
    {.style = ApiStyle::kCompletions,
     .paths = {"/v1/completions", "/completions"},
     .route = "completions",
     .id_prefix = "cmpl-",
     .read = &read_completions,
     .make_printer = &openai_printer<OpenAiForm::kCompletions>,
     .tokenizes = Tokenizes::kLists,
     .has_choices = true,
     .resumes = true},
    {.style = ApiStyle::kMessages,
     .paths = {"/v1/messages"},
     .route = "messages",
     .id_prefix = "msg_",
     .read = [](Json body, const BodyContext&) { return body_of_messages(body); },
     .make_printer = &make_messages_printer,
     .tokenizes = Tokenizes::kNever,
     .in_own_words = &in_words_of_messages,
     .error_body = &messages_error,
     .resumes = true,
     .call_prefix = "toolu_"},
    {.style = ApiStyle::kResponses,
     .paths = {"/v1/responses", "/responses"},
     .route = "responses",
     .id_prefix = "resp_",
     .read = [](Json body, const BodyContext& in) { return body_of_response(body, in.find_response); },
     .make_printer = &make_responses_printer,
     .tokenizes = Tokenizes::kNever,
     .in_own_words = &in_words_of_responses,
     .has_secret_ids = true,
     .fails_in_stream = true,
     .resumes = true,
     .max_tool_name = 257,  // those of a namespace stand before it
     .holds = Holds::kAll,
     .token_bytes = 128,    // a text is written and kept several times
     .logprob_copies = 4},  // in the events that end a text too, and they are kept
    {.style = ApiStyle::kOllamaChat,
     .paths = {"/api/chat"},
     .route = "ollama",
     .id_prefix = "cmpl-",
     .read = &read_ollama<false>,
     .make_printer = &ollama_printer<false>,
     .tokenizes = Tokenizes::kNever,
     .in_own_words = &in_words_of_ollama_chat,
     .error_body = &ollama_error,
     .resumes = true,
     .has_options = true,
     .holds = Holds::kParsed},
    {.style = ApiStyle::kOllamaGenerate,
     .paths = {"/api/generate"},
     .route = "ollama",
     .id_prefix = "cmpl-",
     .read = &read_ollama<true>,
     .make_printer = &ollama_printer<true>,
     .tokenizes = Tokenizes::kNever,
     .in_own_words = &in_words_of_ollama_generate,
     .error_body = &ollama_error,
     .resumes = true,
     .has_options = true},
    {.style = ApiStyle::kLlama,
     .paths = {"/completion"},
     .route = "completion",
     .id_prefix = "cmpl-",
     .read = [](Json body, const BodyContext& in) { return body_of_completion(body, *in.tokenizer); },
     .make_printer = &make_llama_printer,
     .in_own_words = &in_words_of_llama,
     .repeats_request = true,
     .resumes = true},
    {.style = ApiStyle::kInfill,
     .paths = {"/infill"},
     .route = "infill",
     .id_prefix = "cmpl-",
     .read = [](Json body, const BodyContext& in) { return body_of_infill(body, *in.tokenizer, in.fim); },
     .make_printer = &make_llama_printer,
     .in_own_words = &in_words_of_llama,
     .repeats_request = true,
     .resumes = true},
    {.style = ApiStyle::kEmbeddings,
     .paths = {"/v1/embeddings", "/embeddings"},
     .route = "embeddings",
     .id_prefix = "embd-",
     .read = &read_embeddings<kOpenAiVectors>,
     .make_printer = &make_embeddings_printer},
    {.style = ApiStyle::kOllamaEmbed,
     .paths = {"/api/embed"},
     .route = "embeddings",
     .id_prefix = "cmpl-",
     .read = &read_embeddings<kOllamaVectors>,
     .make_printer = &make_ollama_embed_printer,
     .error_body = &ollama_error},
    {.style = ApiStyle::kOllamaEmbeddings,
     .paths = {"/api/embeddings"},
     .route = "embeddings",
     .id_prefix = "cmpl-",
     .read = &read_embeddings<kOllamaVector>,
     .make_printer = &make_ollama_embeddings_printer,
     .error_body = &ollama_error},
    {.style = ApiStyle::kLlamaEmbedding,
     .paths = {"/embedding"},
     .route = "embeddings",
     .id_prefix = "cmpl-",
     .read = &read_embeddings<kLlamaVectors>,
     .make_printer = &make_llama_embedding_printer},
    {.style = ApiStyle::kCohereEmbed,
     .paths = {"/v2/embed"},
     .route = "embeddings",
     .id_prefix = "embd-",
     .read = &read_embeddings<kCohereVectors>,
     .make_printer = &make_cohere_embed_printer},
    {.style = ApiStyle::kPooling,
     .paths = {"/pooling"},
     .route = "embeddings",
     .id_prefix = "pooling-",
     .read = &read_embeddings<kPoolingVectors>,
     .make_printer = &make_pooling_printer},
    {.style = ApiStyle::kRerank,
     .paths = {"/v1/rerank", "/v2/rerank", "/rerank"},
     .route = "rerank",
     .id_prefix = "rerank-",
     .read = &read_rank<true>,
     .make_printer = &rank_printer<true>},
    {.style = ApiStyle::kScore,
     .paths = {"/v1/score", "/score"},
     .route = "rerank",
     .id_prefix = "score-",
     .read = &read_rank<false>,
     .make_printer = &rank_printer<false>},
    {.style = ApiStyle::kOutputs,
     .paths = {},
     .route = "other",
     .id_prefix = "cmpl-",
     .read = nullptr,
     .make_printer = &make_output_printer,
     .token_bytes = 64},  // with its numbers
};

constexpr bool is_ordered() {
  for (size_t i = 0; i < std::size(kDialects); ++i) {
    if (static_cast<size_t>(kDialects[i].style) != i) return false;
  }
  return true;
}
static_assert(is_ordered());

// The fields of which one makes a body at /invocations a dialect's; the first match counts.
struct Invocation {
  std::array<const char*, 5> fields;
  ApiStyle style;
};
constexpr Invocation kInvocations[] = {
    {{"messages"}, ApiStyle::kChat},
    {{"query"}, ApiStyle::kRerank},
    {{"text_1", "text_2", "queries", "data_1", "data_2"}, ApiStyle::kScore},
    {{"texts"}, ApiStyle::kCohereEmbed},
    {{"input"}, ApiStyle::kEmbeddings},
    {{"prompt"}, ApiStyle::kCompletions},
};

}  // namespace

std::span<const ApiDialect> api_dialects() { return kDialects; }

const ApiDialect& dialect_of(ApiStyle style) { return kDialects[static_cast<size_t>(style)]; }

const ApiDialect& dialect_above(std::string_view path) {
  for (const ApiDialect& api : kDialects) {
    for (const char* own : api.paths) {
      if (own != nullptr && path.starts_with(own) && path.substr(std::string_view(own).size()).starts_with('/'))
        return api;
    }
  }
  return dialect_of(path.starts_with("/api/") ? ApiStyle::kOllamaChat : ApiStyle::kChat);
}

const ApiDialect& dialect_of_invocation(const Json& body, const ModelInfo& model) {
  if (body.object() == nullptr) return dialect_of(ApiStyle::kChat);
  if (model.is_encoder && given(body, "messages") != nullptr) return dialect_of(ApiStyle::kEmbeddings);
  for (const Invocation& invocation : kInvocations) {
    for (const char* field : invocation.fields) {
      if (field != nullptr && given(body, field) != nullptr) return dialect_of(invocation.style);
    }
  }
  return dialect_of(ApiStyle::kChat);
}

bool reads_unloaded(const ApiDialect& api, const Json& body) {
  if (api.tokenizes != Tokenizes::kLists) return api.tokenizes == Tokenizes::kNever;
  const Json* prompt = body.find("prompt");
  return prompt == nullptr || prompt->array() == nullptr;
}

ApiError in_own_words(const ApiDialect& api, ApiError error) {
  return api.in_own_words != nullptr ? api.in_own_words(std::move(error)) : error;
}

void restyle_error(WebResponse& response, const ApiDialect& api, std::string_view request_id) {
  if (response.error == nullptr || api.error_body == nullptr) return;
  response.body = api.error_body(*response.error, request_id);
}

}  // namespace ibid
