#include "server/service.h"

#include <algorithm>
#include <new>
#include <string>

#include "base/insist.h"
#include "base/json.h"
#include "base/quoted.h"
#include "server/answer_printer.h"
#include "server/content_type.h"
#include "server/dialect_words.h"
#include "server/dialects.h"
#include "server/file_store.h"
#include "server/page_files.h"
#include "server/random_id.h"
#include "server/request_span.h"

namespace ibid {
namespace {

// A client's own X-Request-Id, if it is one that may stand in a header and a log.
bool is_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  return std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

constexpr Abort kNoMemory = Abort::kNoMemory;

}  // namespace

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

bool Service::has_key(const WebRequest& request) const {
  return keys_.empty() || keys_.tenant_of(ApiKeys::key_in(request));
}

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
  response.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, Ibid-Seed");
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
    if (response.error != nullptr && exchange.is_ours) {
      response.error = std::make_shared<const ApiError>(in_words_of(exchange.style, *response.error));
      response.body = error_json(*response.error);
    }
    restyle_error(response, exchange.style, exchange.request_id);
    response.headers.emplace_back("X-Request-Id", exchange.request_id);
    add_cors(request, response);
    exchange.response = std::move(response);
  } catch (...) {  // no memory, say: the engine has it, and nobody will ask for its answer
    if (exchange.generation) abandon(*exchange.generation);
    for (WebExchange& instance : exchange.instances) finish(instance, &kNoMemory);
    quotas_.leave(exchange.tenant, exchange.n_sequences, now());
    throw;
  }
  return exchange;
}

// Whether the route takes a path that is no route's own: a name after it, or in the place of its "{id}".
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

std::optional<WebResponse> Service::answer_at_door(const WebRequest& request, WebExchange& exchange,
                                                   const Route*& route) const {
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
      {"GET", "/api/version", "other", &Service::ollama_version, ApiStyle::kOllamaChat, false},
      {"POST", "/api/pull", "ollama", &Service::ollama_manage, ApiStyle::kOllamaChat, false},
      {"POST", "/api/push", "ollama", &Service::ollama_manage, ApiStyle::kOllamaChat, false},
      {"POST", "/api/create", "ollama", &Service::ollama_manage, ApiStyle::kOllamaChat, false},
      {"POST", "/api/copy", "ollama", &Service::ollama_manage, ApiStyle::kOllamaChat, false},
      {"DELETE", "/api/delete", "ollama", &Service::ollama_manage, ApiStyle::kOllamaChat, false},
      {"POST", "/api/blobs", "ollama", &Service::ollama_manage, ApiStyle::kOllamaChat, false, true},
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
  route = std::ranges::find(page_files(), path, &PageFile::path) != page_files().end() ? &kPage : nullptr;
  std::string allowed = route != nullptr ? route->method : "";  // methods
  const bool is_own = std::ranges::find(kRoutes, path, &Route::path) != std::end(kRoutes);
  for (const Route& candidate : kRoutes) {
    if (is_own ? path != candidate.path : !is_below(path, candidate)) continue;
    // A path may have a route for each method.
    allowed += (allowed.empty() ? "" : ", ") + std::string(candidate.method);
    if (route == nullptr || request.method == candidate.method) route = &candidate;
  }
  if (path.starts_with("/api/")) exchange.style = ApiStyle::kOllamaChat;  // errors of unknown paths, too
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
      WebResponse response = error_response({401, ApiKeys::kWanted, "", "invalid_api_key"});
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
    const bool is_upload = route->handler == &Service::create_file || route->handler == &Service::ollama_manage;
    const std::optional<ApiError> wrong = is_upload ? std::nullopt : check_content_type(request);
    if (wrong) return error_response(*wrong);
  }
  return std::nullopt;
}

bool Service::is_answered_at_door(const WebRequest& request) const {
  WebExchange exchange;
  const Route* route = nullptr;
  return answer_at_door(request, exchange, route).has_value();
}

std::pair<std::string, double> Service::turn_of(const WebRequest& request) const {
  std::string tenant = keys_.tenant_of(ApiKeys::key_in(request)).value_or("");
  const double weight = quotas_.terms_of(tenant).weight;
  return {std::move(tenant), weight};
}

WebExchange Service::unhandled(const WebRequest& request) {
  WebExchange exchange;
  const Route* route = nullptr;
  static_cast<void>(answer_at_door(request, exchange, route));
  exchange.arrived = request.arrived;
  exchange.method = request.method;
  const std::string_view given = request.header("x-request-id");
  exchange.request_id = is_request_id(given) ? std::string(given) : new_request_id();
  return exchange;
}

WebResponse Service::dispatch(const WebRequest& request, WebExchange& exchange, std::function<void()> wake) {
  const Route* route = nullptr;
  if (std::optional<WebResponse> answer = answer_at_door(request, exchange, route)) return *std::move(answer);
  if (request.refusal) return error_response(*request.refusal);
  if (request.answer) return *request.answer;
  if (route->needs_model && backend_ == nullptr)
    return error_response({503, fleet_ != nullptr ? "The model is not loaded." : "The model is still loading.", "",
                           fleet_ != nullptr ? "not_loaded" : "loading", 1});
  if (request.path() == "/predict") return predict(request, exchange, wake);
  if (route->handler == nullptr) return generate(request, exchange, std::move(wake));
  WebResponse response = (this->*route->handler)(request, exchange);
  const bool is_of_users = route->needs_model && request.method == "POST";
  if (is_of_users || exchange.route == std::string_view("responses")) return counted(std::move(response), exchange);
  return response;
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
    if (!generation.finished() || generation.ends_early()) cancel(id);
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
  insist([&] { backend_.load()->cancel(id); });
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
