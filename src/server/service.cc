#include "server/service.h"
#include "server/parse_body.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "base/json.h"
#include "base/quoted.h"
#include "kernels/arithmetic_version.h"
#include "server/answer_printer.h"
#include "server/build_requests.h"
#include "server/content_type.h"
#include "server/dialects.h"
#include "server/file_store.h"
#include "server/model_names.h"
#include "server/page_files.h"
#include "server/request_span.h"
#include "server/trace_json.h"

namespace ibid {
namespace {

uint64_t random_bits() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// A client's own X-Request-Id, if it is one that may stand in a header and a log.
bool is_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  return std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

std::string mebibytes(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

// In the words by which clients know it, OpenAI's and llama.cpp's.
ApiError too_long(int64_t n_tokens, int32_t context_len, std::string field, bool makes_vectors) {
  const std::string most = "This model's maximum context length is " + std::to_string(context_len) + " tokens; ";
  ApiError error{400,
                 makes_vectors ? most + "this text has " + std::to_string(n_tokens) + " and is too large to be read."
                               : most + "the prompt has " + std::to_string(n_tokens) +
                                     " and exceeds the available context size, of which the answer wants one at least.",
                 std::move(field), "context_length_exceeded"};
  error.n_prompt_tokens = n_tokens;
  error.n_ctx = context_len;
  return error;
}

Status mend_fields(std::initializer_list<std::string_view> names, MixedPrompts kind, const Tokenizer& tokenizer,
                   Json& body) {
  if (body.object() == nullptr) return {};
  for (auto& [name, value] : *body.object()) {
    if (std::ranges::find(names, std::string_view(name)) != names.end()) TRY(mend_prompts(tokenizer, kind, value));
  }
  return {};
}

// SageMaker has one path for all that a model does: which API a body is of, by the field that none of the others has.
std::pair<ApiStyle, const char*> invoked(const Json& body, const ModelInfo& model) {
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return given(body, name) != nullptr; });
  };
  if (body.object() == nullptr) return {ApiStyle::kChat, "chat"};
  if (model.is_encoder && has({"messages"})) return {ApiStyle::kEmbeddings, "embeddings"};
  if (has({"messages"})) return {ApiStyle::kChat, "chat"};
  if (has({"query"})) return {ApiStyle::kRerank, "rerank"};
  if (has({"text_1", "text_2", "queries", "data_1", "data_2"})) return {ApiStyle::kScore, "rerank"};
  if (has({"texts"})) return {ApiStyle::kCohereEmbed, "embeddings"};
  if (has({"input"})) return {ApiStyle::kEmbeddings, "embeddings"};
  if (has({"prompt"})) return {ApiStyle::kCompletions, "completions"};
  return {ApiStyle::kChat, "chat"};
}

constexpr Abort kNoMemory = Abort::kNoMemory;

// OpenAI's form has no vectors of tokens, and llama.cpp's path without the version has: it answers them there alone.
bool wants_each_token(const Json& body, const ModelInfo& model) {
  const std::string* pooling = text_at(body, "pooling");
  return pooling != nullptr ? *pooling == pooling_name(Pooling::kEach) : model.pooling == Pooling::kEach;
}

// Enough to fill steps, and no more than half of a small queue.
int64_t texts_at_once(const ServerOptions& options) { return std::clamp<int64_t>(options.n_places / 2, 1, 64); }

}  // namespace

struct Service::Route {
  const char* method;
  const char* path;
  const char* name;  // label in metrics and log
  Handler handler;   // null: a generation
  ApiStyle style = ApiStyle::kChat;
  bool needs_model = true;
  bool takes_rest = false;  // also path + "/..."
};

Service::Service(const ServerOptions& options, ApiKeys keys, RequestLog& log)
    : Service(options, keys, log, std::make_shared<Shared>(options, keys)) {}

Service::Service(const ServerOptions& options, ApiKeys keys, RequestLog& log, std::shared_ptr<Shared> shared)
    : options_(options),
      keys_(std::move(keys)),
      shared_(std::move(shared)),
      quotas_(shared_->quotas),
      hosts_(options, !keys_.empty()),
      log_(log),
      metrics_(shared_->metrics),
      answers_(shared_->answers),
      stored_(shared_->stored),
      id_prefix_(random_bits()),
      started_(steady_clock().now()) {}

void Service::set_backend(Backend* backend) {
  backend->start([this, backend](std::span<Output> outputs, const EngineStats& stats) {
    router_.deliver(outputs);
    metrics_.add_step(stats, this);
    live_.add_step(stats, backend->clock().now());
  });
  fim_ = find_fim_tokens(backend->tokenizer());
  backend_ = backend;
}

double Service::now() const {
  const Backend* backend = backend_;
  return backend != nullptr ? backend->clock().now() : steady_clock().now();
}

std::string Service::new_request_id() { return "req-" + hex(id_prefix_ + ++n_requests_); }

WebResponse Service::refuse(int status, std::string message, std::string code, double arrived) {
  WebResponse response =
      error_response({status, std::move(message), "", std::move(code), status == 429 || status == 503 ? 1 : 0});
  const std::string id = new_request_id();
  response.headers.emplace_back("X-Request-Id", id);
  RequestLine line;
  line.request_id = id;
  line.route = "other";
  line.status = status;
  line.seconds = std::max(0.0, now() - arrived);
  metrics_.add_response(line.route, status);
  write(line);
  response.close = true;
  return response;
}

bool Service::allowed_origin(const WebRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (options_.cors_origin == "*") return true;
  if (origin.empty()) return !asks_for_another_site(request);
  if (origin == options_.cors_origin) return true;
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && origin.substr(scheme + 3) == request.header("host");
}

void Service::add_cors(const WebRequest& request, WebResponse& response) const {
  if (options_.cors_origin.empty() || request.header("origin").empty() || !allowed_origin(request)) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", request.header("origin"));
  response.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  response.headers.emplace_back("Vary", "Origin");
}

WebExchange Service::handle(const WebRequest& request, std::function<void()> wake) {
  if (request.model && request.model->service != this) {
    WebExchange of_model = request.model->service->handle(request, std::move(wake));
    of_model.model = request.model;
    return of_model;
  }
  WebExchange exchange;
  exchange.arrived = request.arrived;
  exchange.method = request.method;
  if (spans_ != nullptr) exchange.trace = parse_trace_parent(request.header("traceparent"));
  const std::string_view given = request.header("x-request-id");
  exchange.request_id = is_request_id(given) ? std::string(given) : new_request_id();
  try {
    WebResponse response = dispatch(request, exchange, std::move(wake));
    restyle_error(response, exchange.style, exchange.request_id);
    response.headers.emplace_back("X-Request-Id", exchange.request_id);
    add_cors(request, response);
    exchange.response = std::move(response);
  } catch (const std::bad_alloc&) {  // the engine has it, and nobody will ask for its answer
    if (exchange.generation) abandon(*exchange.generation);
    for (WebExchange& instance : exchange.instances) finish(instance, &kNoMemory);
    quotas_.leave(exchange.tenant, exchange.n_sequences, now());
    throw;
  }
  return exchange;
}

// Whether the route takes a path that is no route's own: a name behind it, or in the place of its "{id}".
template <typename Route>
static bool is_below(std::string_view path, const Route& route) {
  std::string_view own = route.path;
  if (route.takes_rest) return path.starts_with(own) && path.substr(own.size()).starts_with('/');
  const size_t at = own.find("{id}");
  if (at == std::string_view::npos || !path.starts_with(own.substr(0, at))) return false;
  const std::string_view end = own.substr(at + 4), rest = path.substr(at);
  const size_t n = rest.find('/');
  return n != 0 && !rest.empty() && (n == std::string_view::npos ? end.empty() : rest.substr(n) == end);
}

WebResponse Service::dispatch(const WebRequest& request, WebExchange& exchange, std::function<void()> wake) {
  static constexpr Route kRoutes[] = {
      {"GET", "/health", "health", &Service::health, ApiStyle::kChat, false},
      {"POST", "/v1/chat/completions", "chat", nullptr, ApiStyle::kChat},
      {"POST", "/v1/chat/completions/batch", "chat", nullptr, ApiStyle::kChatBatch},
      {"POST", "/v1/chat/completions/input_tokens", "text", &Service::chat_tokens},
      {"POST", "/invocations", "chat", nullptr, ApiStyle::kChat},  // or what its body is of
      {"POST", "/predict", "predict", nullptr, ApiStyle::kChat},
      {"POST", "/v1/completions", "completions", nullptr, ApiStyle::kCompletions},
      {"GET", "/v1/models", "models", &Service::models, ApiStyle::kChat, false, true},
      {"POST", "/v1/responses", "responses", nullptr, ApiStyle::kResponses},
      {"POST", "/v1/responses/input_tokens", "text", &Service::response_tokens},
      {"GET", "/v1/responses/{id}", "responses", &Service::response_by_id, ApiStyle::kResponses, false},
      {"DELETE", "/v1/responses/{id}", "responses", &Service::delete_response, ApiStyle::kResponses, false},
      {"GET", "/v1/responses/{id}/input_items", "responses", &Service::response_input, ApiStyle::kResponses, false},
      {"POST", "/v1/responses/{id}/cancel", "responses", &Service::cancel_response, ApiStyle::kResponses, false},
      {"POST", "/api/chat", "ollama", nullptr, ApiStyle::kOllamaChat},
      {"POST", "/api/generate", "ollama", nullptr, ApiStyle::kOllamaGenerate},
      {"GET", "/api/tags", "ollama", &Service::ollama_tags, ApiStyle::kOllamaChat, false},
      {"GET", "/api/ps", "ollama", &Service::ollama_tags, ApiStyle::kOllamaChat, false},
      {"POST", "/api/show", "ollama", &Service::ollama_show, ApiStyle::kOllamaChat},
      {"GET", "/api/version", "other", &Service::version, ApiStyle::kOllamaChat, false},
      {"POST", "/completion", "completion", nullptr, ApiStyle::kLlama},
      {"POST", "/infill", "infill", nullptr, ApiStyle::kInfill},
      {"GET", "/props", "other", &Service::props},
      {"GET", "/slots", "other", &Service::slots},
      {"GET", "/load", "other", &Service::load},
      {"GET", "/tokenizer_info", "text", &Service::tokenizer_info},
      {"GET", "/v1/health", "health", &Service::health, ApiStyle::kChat, false},
      {"GET", "/ping", "health", &Service::health, ApiStyle::kChat, false},
      {"POST", "/v1/files", "files", &Service::create_file, ApiStyle::kChat, false},
      {"GET", "/v1/files", "files", &Service::list_files, ApiStyle::kChat, false},
      {"GET", "/v1/files/{id}", "files", &Service::file_by_id, ApiStyle::kChat, false},
      {"DELETE", "/v1/files/{id}", "files", &Service::delete_file, ApiStyle::kChat, false},
      {"GET", "/v1/files/{id}/content", "files", &Service::file_content, ApiStyle::kChat, false},
      {"POST", "/v1/batches", "batches", &Service::create_batch, ApiStyle::kChat, false},
      {"GET", "/v1/batches", "batches", &Service::list_batches, ApiStyle::kChat, false},
      {"GET", "/v1/batches/{id}", "batches", &Service::batch_by_id, ApiStyle::kChat, false},
      {"POST", "/v1/batches/{id}/cancel", "batches", &Service::cancel_batch, ApiStyle::kChat, false},
      {"POST", "/v1/embeddings", "embeddings", nullptr, ApiStyle::kEmbeddings},
      {"POST", "/v2/embed", "embeddings", nullptr, ApiStyle::kCohereEmbed},
      {"POST", "/api/embed", "embeddings", nullptr, ApiStyle::kOllamaEmbed},
      {"POST", "/api/embeddings", "embeddings", nullptr, ApiStyle::kOllamaEmbeddings},
      {"POST", "/embedding", "embeddings", nullptr, ApiStyle::kLlamaEmbedding},
      {"POST", "/pooling", "embeddings", nullptr, ApiStyle::kPooling},
      {"POST", "/v1/rerank", "rerank", nullptr, ApiStyle::kRerank},
      {"POST", "/v2/rerank", "rerank", nullptr, ApiStyle::kRerank},
      {"POST", "/rerank", "rerank", nullptr, ApiStyle::kRerank},
      {"POST", "/v1/score", "rerank", nullptr, ApiStyle::kScore},
      {"POST", "/score", "rerank", nullptr, ApiStyle::kScore},
      {"POST", "/v1/messages", "messages", nullptr, ApiStyle::kMessages},
      {"POST", "/v1/messages/count_tokens", "text", &Service::count_tokens, ApiStyle::kMessages},
      // Some clients' base URL lacks the version.
      {"POST", "/chat/completions", "chat", nullptr, ApiStyle::kChat},
      {"POST", "/chat/completions/input_tokens", "text", &Service::chat_tokens},
      {"POST", "/completions", "completions", nullptr, ApiStyle::kCompletions},
      {"POST", "/embeddings", "embeddings", nullptr, ApiStyle::kEmbeddings},
      {"POST", "/responses", "responses", nullptr, ApiStyle::kResponses},
      {"GET", "/models", "models", &Service::models, ApiStyle::kChat, false, true},
      {"POST", "/models/load", "models", &Service::change_model, ApiStyle::kChat, false},
      {"POST", "/models/unload", "models", &Service::change_model, ApiStyle::kChat, false},
      {"POST", "/tokenize", "text", &Service::tokenize},
      {"POST", "/detokenize", "text", &Service::detokenize},
      {"POST", "/apply-template", "text", &Service::apply_template},
      {"GET", "/metrics", "metrics", &Service::metrics_text, ApiStyle::kChat, false},
      {"GET", "/engine", "engine", &Service::engine_view},
      {"GET", "/version", "other", &Service::version, ApiStyle::kChat, false},
      {"GET", "/openapi.json", "other", &Service::openapi, ApiStyle::kChat, false},
  };
  static constexpr Route kPage = {"GET", "", "page", &Service::page, ApiStyle::kChat, false};
  const std::string_view path = request.path();
  const Route* route = std::ranges::find(page_files(), path, &PageFile::path) != page_files().end() ? &kPage : nullptr;
  std::string allowed = route != nullptr ? route->method : "";  // methods
  const bool is_own = std::ranges::find(kRoutes, path, &Route::path) != std::end(kRoutes);
  for (const Route& candidate : kRoutes) {
    if (is_own ? path != candidate.path : !is_below(path, candidate)) continue;
    // A path may have a route for each method.
    allowed += (allowed.empty() ? "" : ", ") + std::string(candidate.method);
    if (route == nullptr || request.method == candidate.method) route = &candidate;
  }
  if (route != nullptr) exchange.route = route->name, exchange.style = route->style;
  const bool is_health = exchange.route == std::string_view("health");

  if (request.as_tenant) exchange.tenant = *request.as_tenant;
  if (!request.as_tenant && !hosts_.allows(request.header("host"))) {
    return error_response({403,
                           "This server does not answer to the name " + in_quotes(request.header("host"), 128) +
                               "; --allow-host gives it further names.",
                           "", "host_refused"});
  }
  // A page of another site must not use a server that trusts its network.
  if (!request.as_tenant && !allowed_origin(request))
    return error_response(
        {403, "This server does not answer pages of other sites; --cors-origin allows one.", "", "origin_refused"});
  if (request.method == "OPTIONS" && !options_.cors_origin.empty()) {
    WebResponse response;
    response.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                        {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id"},
                        {"Access-Control-Max-Age", "600"}};
    return response;
  }
  if (!keys_.empty() && !is_health && !request.as_tenant) {
    std::optional<std::string> tenant = keys_.tenant_of(ApiKeys::key_in(request));
    if (!tenant) {
      WebResponse response = error_response(
          {401, "This server wants an API key, as \"Authorization: Bearer KEY\".", "", "invalid_api_key"});
      // A browser asks its user for the key (as password) and then sends it by itself.
      if (exchange.route == std::string_view("page"))
        response.headers.back().second = "Basic realm=\"ibid: the API key is the password\"";
      return response;
    }
    exchange.tenant = *std::move(tenant);
  }
  if (route == nullptr)
    return error_response(
        {404, "There is no such path here; /openapi.json lists those that there are.", "", "no_such_path"});
  const bool is_read = request.method == "GET" || request.method == "HEAD";
  if (std::string_view(route->method) == "GET" ? !is_read : request.method != route->method) {
    WebResponse response = error_response({405, "This path takes " + allowed + " alone.", "", "method_not_allowed"});
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  if (request.method == "POST") {
    const bool is_upload = route->handler == &Service::create_file;
    const std::optional<ApiError> wrong = is_upload ? std::nullopt : check_content_type(request);
    if (wrong) return error_response(*wrong);
  }
  if (request.refusal) return error_response(*request.refusal);
  if (route->needs_model && backend_ == nullptr)
    return error_response({503, fleet_ != nullptr ? "The model is not loaded." : "The model is still loading.", "",
                           fleet_ != nullptr ? "not_loaded" : "loading", 1});
  if (path == "/predict") return predict(request, exchange, wake);
  if (route->handler == nullptr) return generate(request, exchange, std::move(wake));
  return (this->*route->handler)(request, exchange);
}

// A body of any API in the words of ours.
Result<DialectBody> Service::read_dialect(const WebExchange& exchange, Json body) {
  const Backend& backend = *backend_.load();
  switch (exchange.style) {
    case ApiStyle::kMessages:
      return body_of_messages(body);
    case ApiStyle::kResponses:
      return body_of_response(body, [&](std::string_view id) { return stored_.find(id, exchange.tenant, now()); });
    case ApiStyle::kOllamaChat:
    case ApiStyle::kOllamaGenerate:
      return body_of_ollama(body, exchange.style == ApiStyle::kOllamaGenerate, backend.model(), is_of_fleet_);
    case ApiStyle::kLlama:
      return body_of_completion(body, backend.tokenizer());
    case ApiStyle::kInfill:
      return body_of_infill(body, backend.tokenizer(), fim_);
    case ApiStyle::kEmbeddings:
    case ApiStyle::kOllamaEmbed:
    case ApiStyle::kOllamaEmbeddings:
    case ApiStyle::kLlamaEmbedding:
    case ApiStyle::kCohereEmbed:
    case ApiStyle::kPooling:
      TRY(mend_fields({"input", "content", "prompt"}, MixedPrompts::kList, backend.tokenizer(), body));
      return body_of_embeddings(body, exchange.style, backend.model(), options_.api);
    case ApiStyle::kRerank:
    case ApiStyle::kScore:
      return body_of_rank(body, exchange.style, backend.model(), backend.tokenizer(), options_.api);
    case ApiStyle::kChatBatch:
      return body_of_chat_batch(std::move(body));
    case ApiStyle::kChat:
    case ApiStyle::kCompletions:
      break;
  }
  DialectBody out;
  out.endpoint = exchange.style == ApiStyle::kCompletions ? Endpoint::kCompletions : Endpoint::kChat;
  out.body = std::move(body);
  if (exchange.style == ApiStyle::kCompletions)
    TRY(mend_fields({"prompt"}, MixedPrompts::kOne, backend.tokenizer(), out.body));
  return out;
}

WebResponse Service::generate(const WebRequest& request, WebExchange& exchange, std::function<void()> wake) {
  if (draining_) return error_response({503, "The server is shutting down.", "", "shutting_down", 5});
  Backend& backend = *backend_.load();
  Result<Json> body = parse_body(request.body, options_.api.json);
  if (!body) return error_response(ApiError::of(body.error()));
  if (request.path() == "/invocations") std::tie(exchange.style, exchange.route) = invoked(*body, backend.model());
  if (request.path() == "/embeddings" && wants_each_token(*body, backend.model()))
    exchange.style = ApiStyle::kLlamaEmbedding;
  Result<DialectBody> own = read_dialect(exchange, *std::move(body));
  if (!own) return error_response(ApiError::of(own.error()));
  if (own->answer) {
    const std::string* asked = text_at(own->body, "model");
    const Result<std::string> known = answering_name(asked != nullptr ? *asked : "", backend.model(), options_);
    if (!known) return error_response(ApiError::of(known.error()));
    WebResponse response;
    response.body = *std::move(own->answer);
    return response;
  }
  const Endpoint endpoint = own->endpoint;
  const ModelInfo& model = backend.model();
  const bool makes_vectors = own->embedding.pooling != Pooling::kNone;
  if (model.is_encoder && !makes_vectors)
    return error_response(ApiError::of(
        unsupported("This model is an encoder: it makes vectors of texts (/v1/embeddings) and no answers.", "model")));
  ApiLimits limits = options_.api;
  if (makes_vectors) limits.max_prompts = limits.max_choices = limits.max_inputs;
  Result<ApiRequest> api = parse_api_request(endpoint, own->body, limits, model.sampling);
  if (!api) return error_response(ApiError::of(api.error()));
  if (Status more = add_conversations(*api, own->conversations, own->body, limits); !more)
    return error_response(ApiError::of(more.error()));
  own->conversations.clear();
  if (makes_vectors) api->echo = false, api->max_tokens = 0, api->prompt_name = own->prompt_name;
  if (!own->rank.pairs.empty()) api->prompts = std::exchange(own->rank.pairs, {});
  const bool is_llama = exchange.style == ApiStyle::kLlama || exchange.style == ApiStyle::kInfill;
  api->keeps_prompt = is_llama;
  if (exchange.style != ApiStyle::kChat && exchange.style != ApiStyle::kCompletions && api->n != 1)
    return error_response(
        ApiError::of(unsupported("n is " + std::to_string(api->n) + "; this API has one choice.", "n")));
  Result<std::string> name = answering_name(api->model, model, options_);
  if (!name) return error_response(ApiError::of(name.error()));
  // Many texts are under way a few at a time.
  const int64_t at_once = makes_vectors ? texts_at_once(options_) : INT64_MAX;
  const int64_t n_sequences =
      std::min(at_once, int64_t{std::max({api->n, api->best_of, api->search.width})} *
                            std::max<int64_t>(1 + std::ssize(api->more_chats), std::ssize(api->prompts)));
  if (backend.is_full()) {
    return error_response(
        {429, "The queue is full; try again later.", "", "queue_full", quotas_.retry_after(n_sequences, now())});
  }
  if (const std::optional<ApiError> refusal = quotas_.enter(exchange.tenant, n_sequences, now()))
    return error_response(*refusal);
  exchange.n_sequences = n_sequences;
  own->body = Json();
  if (!api->has_seed) api->sampling.seed = random_bits() >> 11;  // a number that every JSON reader gives back
  Result<BuiltRequests> built = build_requests(*api, backend, exchange.tenant);
  if (!built) return error_response(ApiError::of(built.error()));

  GenerationInfo info;
  const TenantTerms& terms = quotas_.terms_of(exchange.tenant);
  for (Request& r : built->requests) {
    r.weight = static_cast<float>(terms.weight);
    r.max_wait = static_cast<float>(terms.max_wait);
    r.pooling = own->embedding.pooling;
    if (!own->rank.second_text.empty()) r.second_text = own->rank.second_text[info.requests.size()];
    const auto len = static_cast<int64_t>(r.prompt.size());
    if (len >= model.context_len && !(len == model.context_len && r.max_tokens == 0)) {
      return error_response(
          too_long(len, model.context_len, endpoint == Endpoint::kChat ? "messages" : api->prompt_name, makes_vectors));
    }
    r.id = backend.next_id();
    info.requests.push_back(r.id);
    info.prompt_lens.push_back(static_cast<int32_t>(len));
    if ((endpoint == Endpoint::kCompletions && api->echo && api->want_logprobs) || api->return_token_ids)
      info.prompt_ids.push_back(r.prompt);
  }
  info.style = exchange.style;
  info.id = std::string(id_prefix_of(info.style)) + hex(id_prefix_ ^ static_cast<uint64_t>(info.requests[0]));
  // Whoever knows this one may read the answer.
  if (exchange.style == ApiStyle::kResponses) info.id = "resp_" + hex(random_bits()) + hex(random_bits());
  info.model = *std::move(name);
  const size_t n_prompts = info.requests.size();
  info.fingerprint = "ibid-" IBID_VERSION "-a" + std::to_string(kArithmeticVersion) + "-" + model.digest.substr(0, 12);
  info.created = unix_seconds();
  info.seed = api->sampling.seed;
  info.n = std::max(api->n, api->best_of);
  info.n_told = api->n;
  info.searches = api->search.kind != SearchKind::kNone;
  info.stream = api->stream;
  info.include_usage = api->include_usage;
  info.continuous_usage = api->continuous_usage;
  info.echo = api->echo;
  info.want_logprobs = api->want_logprobs;
  info.processed_logprobs = api->sampling.processed_logprobs;
  info.prompt_logprobs = api->prompt_logprobs >= 0;
  info.tells_reasoning = api->tells_reasoning;
  info.parallel_calls = api->parallel_calls;
  if (const grammar::Matcher* matcher = built->requests[0].grammar.get()) info.not_held = matcher->notes();
  info.parser = std::move(built->parser);
  info.reasoning = std::move(built->reasoning);
  info.llama = std::move(own->llama);
  info.embedding = own->embedding;
  info.embedding_len = model.width;
  info.rank = std::move(own->rank);
  if (is_llama) info.settings = settings_json(*api, backend.tokenizer().vocabulary());
  info.repeated = std::move(own->echo);
  info.stored = std::move(own->stored);
  if (info.stored) info.stored->id = info.id, info.stored->tenant = exchange.tenant;
  if (own->is_stored) info.keeper = &stored_;
  if (api->trace)
    info.trace = trace_facts(built->requests[0].sampling, api->sources, model, built->requests[0].grammar.get());
  info.return_token_ids = api->return_token_ids;
  info.ledger = api->ledger;
  info.tokens_as_ids = api->tokens_as_ids;
  info.timings = api->timings;
  info.verbose = api->verbose;
  info.rendered = std::move(built->rendered);
  info.tells_drafts = api->tells_drafts;
  info.is_rejection = api->is_rejection;
  info.clock = &backend.clock();
  info.prompt_texts = std::move(built->prompt_texts);
  info.arrived = request.arrived;
  info.submitted = now();

  const int64_t most = Generation::most_bytes(info, built->requests, model.context_len, options_.max_stream_backlog);
  const std::string field = makes_vectors ? api->prompt_name : "max_tokens";
  if (const std::optional<ApiError> refusal = promise(exchange, most, field)) return error_response(*refusal);

  exchange.mailbox = std::make_shared<Mailbox>(std::move(wake));
  exchange.row = live_.add_row();
  exchange.row->route = exchange.route;
  exchange.row->n_choices = info.n * static_cast<int32_t>(n_prompts);
  exchange.row->stream = info.stream;
  exchange.row->arrived = request.arrived;
  for (const int32_t len : info.prompt_lens) exchange.row->prompt_tokens += len;
  exchange.generation = std::make_unique<Generation>(std::move(info), backend.tokenizer(), metrics_);
  const auto n_first = static_cast<size_t>(std::min<int64_t>(at_once, std::ssize(built->requests)));
  exchange.held.assign(std::make_move_iterator(built->requests.rbegin()),
                       std::make_move_iterator(built->requests.rend() - static_cast<std::ptrdiff_t>(n_first)));
  if (Status status = submit(std::span(built->requests).first(n_first), exchange.mailbox); !status) {
    exchange.generation = nullptr;
    exchange.held.clear();
    ApiError error = ApiError::of(status.error());
    if (error.status == 429) error.retry_after_s = quotas_.retry_after(n_sequences, now());
    return error_response(error);
  }
  metrics_.add_tokens(exchange.row->prompt_tokens, 0, 0);
  quotas_.charge(exchange.tenant, exchange.row->prompt_tokens, now());
  WebResponse head;
  if (api->stream) {
    head.content_type = exchange.generation->stream_type();
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
  }
  return head;
}

// Memory for an answer that may come to hold so many bytes, before it is begun.
std::optional<ApiError> Service::promise(WebExchange& exchange, int64_t bytes, const std::string& field) {
  if (bytes > answers_.most()) {
    return ApiError{400,
                    "This answer might come to hold " + mebibytes(bytes) + " and the server has " +
                        mebibytes(answers_.most()) + " for all of them (--max-answers-bytes): " +
                        (field == "max_tokens" ? "fewer tokens, choices or log-probabilities, or a stream, would do."
                                               : "fewer or shorter texts would do."),
                    field, "answer_too_large"};
  }
  exchange.promised = answers_.take(bytes);
  if (exchange.promised) return std::nullopt;
  return ApiError{429, "The answers under way have all of the server's memory for them; try again later.", "",
                  "memory_full", 1};
}

// All or none, also where memory runs out in between.
Status Service::submit(std::span<Request> requests, const std::shared_ptr<Mailbox>& mailbox) {
  struct Undo {
    Service& service;
    std::vector<RequestId> ids;
    ~Undo() {
      for (const RequestId id : ids) {
        service.router_.remove(id);
        service.cancel(id);
      }
    }
  } undo = {*this, {}};
  undo.ids.reserve(requests.size());
  for (Request& request : requests) {
    undo.ids.push_back(request.id);
    router_.add(request.id, mailbox);  // before submit: the answer may come while submit returns
    TRY(backend_.load()->submit(std::move(request)));
  }
  undo.ids.clear();
  return {};
}

// The next of many texts, as those before them are done.
void Service::submit_held(WebExchange& exchange) {
  Generation& generation = *exchange.generation;
  const auto n_under_way = [&] {
    return std::ssize(generation.info().requests) - std::ssize(exchange.held) -
           static_cast<int64_t>(generation.n_finished());
  };
  while (!exchange.held.empty() && n_under_way() < texts_at_once(options_)) {
    Request next = exchange.held.back();
    Status status = draining_ ? Status(unavailable("The server is shutting down.")) : Status();
    if (status && !generation.has_failed()) status = submit({&next, 1}, exchange.mailbox);
    if (!status && status.error().kind == ErrorKind::kExhausted && n_under_way() > 0) return;  // when one of those ends
    if (status && !generation.has_failed()) {
      exchange.held.pop_back();
      continue;
    }
    std::vector<Output> ended;
    for (const Request& held : exchange.held) {
      Output& output = ended.emplace_back();
      output.request = held.id;
      output.fail(status ? unavailable("Another text of the request failed.") : status.error());
    }
    exchange.held.clear();
    generation.take(std::move(ended));
  }
}

void Service::collect(WebExchange& exchange) {
  if (exchange.model && exchange.model->service != this) return exchange.model->service->collect(exchange);
  for (WebExchange& instance : exchange.instances) {
    if (instance.generation) collect(instance);
  }
  if (!exchange.generation) return;
  exchange.generation->take(exchange.mailbox->take());
  submit_held(exchange);
  exchange.row->generated = exchange.generation->completion_tokens();
}

void Service::abandon(const Generation& generation) {
  for (const RequestId id : generation.info().requests) {
    router_.remove(id);
    if (!generation.finished()) cancel(id);
  }
}

void Service::cancel(WebExchange& exchange) {
  if (exchange.model && exchange.model->service != this) return exchange.model->service->cancel(exchange);
  for (WebExchange& instance : exchange.instances) {
    if (instance.generation) cancel(instance);
  }
  if (!exchange.generation) return;
  for (const RequestId id : exchange.generation->info().requests) cancel(id);
}

// Giving up must not fail for want of memory: nobody else would free these blocks.
void Service::cancel(RequestId id) {
  for (int i = 0; i < 1000; ++i) {
    try {
      return backend_.load()->cancel(id);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void Service::finish(WebExchange& exchange, const Abort* cut) {
  if (exchange.model && exchange.model->service != this) return exchange.model->service->finish(exchange, cut);
  for (WebExchange& instance : exchange.instances) {
    const bool is_cut = cut != nullptr && instance.generation && !instance.generation->finished();
    finish(instance, is_cut ? cut : nullptr);
  }
  const double end = now();
  RequestLine line;
  line.request_id = exchange.request_id;
  line.tenant = exchange.tenant;
  line.method = exchange.method;
  line.route = exchange.route;
  line.status = exchange.response.status;
  line.seconds = end - exchange.arrived;
  if (cut != nullptr) {
    metrics_.add_abort(*cut);
    line.finish = kAbortNames[static_cast<size_t>(*cut)];
  }
  if (Generation* generation = exchange.generation.get()) {
    abandon(*generation);
    if (!generation->finished()) exchange.held.clear();
    try {
      collect(exchange);  // what came before its client went counts, here as in the metrics
      line.choices = generation->finishes();
    } catch (const std::bad_alloc&) {
    }
    line.has_times = true;
    line.times = generation->times(end);
    line.prompt_tokens = generation->prompt_tokens();
    line.cached_tokens = generation->cached_tokens();
    line.completion_tokens = generation->completion_tokens();
    line.n_preemptions = generation->n_preemptions();
    if (cut == nullptr) line.finish = generation->finish_word();
    line.stream = generation->info().stream;
    metrics_.add_request(line.times, line.prompt_tokens, line.completion_tokens);
    quotas_.charge(exchange.tenant, line.completion_tokens, end);
  }
  quotas_.leave(exchange.tenant, std::exchange(exchange.n_sequences, 0), end);
  metrics_.add_response(exchange.route, exchange.response.status);
  write(line);
  if (spans_ != nullptr) send_span(*spans_, exchange, line, end);
}

void Service::write(const RequestLine& line) {
  try {
    log_.add(line);
  } catch (const std::bad_alloc&) {
    metrics_.add_log_line_lost();
  }
}

}  // namespace ibid
