#include "server/routes/service.h"

#include <algorithm>
#include <new>
#include <string>

#include "base/insist.h"
#include "base/json.h"
#include "server/dialects/dialects.h"
#include "server/routes/file_store.h"
#include "server/routes/request_span.h"
#include "server/wire/random_id.h"

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
      hosts_(options.unix_socket.empty() ? options.host : std::string(), options.allowed_hosts, !keys_.empty()),
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
      response.error = std::make_shared<const ApiError>(in_own_words(*exchange.api, *response.error));
      response.body = error_json(*response.error);
    }
    restyle_error(response, *exchange.api, exchange.request_id);
    response.headers.emplace_back("X-Request-Id", exchange.request_id);
    add_cors(request, response);
    exchange.response = std::move(response);
  } catch (...) {  // e.g. no memory: the engine has it, and its answer will not be asked for
    if (exchange.generation) abandon(*exchange.generation);
    for (WebExchange& instance : exchange.instances) finish(instance, &kNoMemory);
    quotas_.leave(exchange.tenant, exchange.n_sequences, now());
    throw;
  }
  return exchange;
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
  if (route->needs_model() && backend_ == nullptr)
    return error_response({503, fleet_ != nullptr ? "The model is not loaded." : "The model is still loading.", "",
                           fleet_ != nullptr ? "not_loaded" : "loading", 1});
  if (request.path() == "/predict") return predict(request, exchange, wake);
  if (route->handler == nullptr) return generate(request, exchange, std::move(wake));
  WebResponse response = (this->*route->handler)(request, exchange);
  const bool is_of_users = route->needs_model() && request.method == "POST";
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

// Giving up must not fail for want of memory: these blocks would never be freed.
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
    line.stream = generation->info().asked.stream;
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
