#include "server/routes/front_door.h"

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

FrontDoor::FrontDoor(const ServerOptions& options, ApiKeys keys, RequestLog& log)
    : options_(options),
      keys_(std::move(keys)),
      hosts_(options.unix_socket.empty() ? options.host : std::string(), options.allowed_hosts, !keys_.empty()),
      log_(log),
      state_(options, keys_),
      model_(options, state_, false),
      id_prefix_(random_bits()),
      started_(steady_clock().now()) {}

std::unique_ptr<ModelService> FrontDoor::make_service(bool has_aliases) {
  ServerOptions options = options_;
  if (!has_aliases) options.aliases.clear();
  return std::make_unique<ModelService>(options, state_, true);
}

std::string FrontDoor::new_request_id() { return "req-" + hex(id_prefix_ + ++n_requests_); }

bool FrontDoor::has_key(const WebRequest& request) const {
  return keys_.empty() || keys_.tenant_of(ApiKeys::key_in(request));
}

WebResponse FrontDoor::refuse(int status, std::string message, std::string code, double arrived) {
  WebResponse response =
      error_response({status, std::move(message), "", std::move(code), status == 429 || status == 503 ? 1 : 0});
  const std::string id = new_request_id();
  response.headers.emplace_back("X-Request-Id", id);
  RequestLine line;
  line.request_id = id;
  line.route = "other";
  line.status = status;
  line.seconds = std::max(0.0, now() - arrived);
  state_.metrics.add_response(line.route, status);
  write(line);
  response.close = true;
  return response;
}

void FrontDoor::add_cors(const WebRequest& request, WebResponse& response) const {
  if (options_.cors_origin.empty() || request.header("origin").empty() || !allowed_origin(request)) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", request.header("origin"));
  response.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, Ibid-Seed");
  response.headers.emplace_back("Vary", "Origin");
}

WebExchange FrontDoor::handle(const WebRequest& request, std::function<void()> wake, Effort effort) {
  WebExchange exchange;
  exchange.model = request.model;
  exchange.arrived = request.arrived;
  exchange.method = request.method;
  if (spans_ != nullptr) exchange.trace = parse_trace_parent(request.header("traceparent"));
  const std::string_view given = request.header("x-request-id");
  exchange.request_id = is_request_id(given) ? std::string(given) : new_request_id();
  try {
    WebResponse response = dispatch(request, exchange, std::move(wake), effort);
    if (exchange.is_put_off) return exchange;
    if (response.error != nullptr && exchange.is_ours) {
      response.error = std::make_shared<const ApiError>(in_own_words(*exchange.api, *response.error));
      response.body = error_json(*response.error);
    }
    restyle_error(response, *exchange.api, exchange.request_id);
    response.headers.emplace_back("X-Request-Id", exchange.request_id);
    add_cors(request, response);
    exchange.response = std::move(response);
  } catch (...) {  // e.g. no memory: the engine has it, and its answer will not be asked for
    ModelService& service = service_of(exchange.model);
    if (exchange.generation) service.abandon(exchange);
    for (WebExchange& instance : exchange.instances) finish(instance, &kNoMemory);
    state_.quotas.leave(exchange.tenant, exchange.n_sequences, service.now());
    throw;
  }
  return exchange;
}

std::pair<std::string, double> FrontDoor::turn_of(const WebRequest& request) const {
  std::string tenant = keys_.tenant_of(ApiKeys::key_in(request)).value_or("");
  const double weight = state_.quotas.terms_of(tenant).weight;
  return {std::move(tenant), weight};
}

WebExchange FrontDoor::unhandled(const WebRequest& request) {
  WebExchange exchange;
  const Route* route = nullptr;
  static_cast<void>(answer_at_door(request, exchange, route));
  exchange.arrived = request.arrived;
  exchange.method = request.method;
  const std::string_view given = request.header("x-request-id");
  exchange.request_id = is_request_id(given) ? std::string(given) : new_request_id();
  return exchange;
}

WebResponse FrontDoor::dispatch(const WebRequest& request, WebExchange& exchange, std::function<void()> wake,
                                Effort effort) {
  const Route* route = nullptr;
  if (std::optional<WebResponse> answer = answer_at_door(request, exchange, route)) return *std::move(answer);
  if (request.refusal) return error_response(*request.refusal);
  if (request.answer) return *request.answer;
  ModelService& service = service_of(request.model);
  if (route->needs_model() && service.backend() == nullptr)
    return error_response({503, fleet_ != nullptr ? "The model is not loaded." : "The model is still loading.", "",
                           fleet_ != nullptr ? "not_loaded" : "loading", 1});
  if (request.path() == "/predict") {
    exchange.is_put_off = effort == Effort::kBrief;
    return exchange.is_put_off ? WebResponse() : predict(request, exchange, wake);
  }
  if (route->makes_sequences()) return service.generate(request, exchange, std::move(wake), effort);
  WebResponse response = route->handler != nullptr ? (this->*route->handler)(request, exchange)
                                                   : (service.*route->of_model)(request, exchange);
  const bool is_of_users = route->needs_model() && request.method == "POST";
  if (is_of_users || exchange.route == std::string_view("responses")) return counted(std::move(response), exchange);
  return response;
}

// An answer that was made at once: a slow reader holds it for long, and however many ask at the same time.
WebResponse FrontDoor::counted(WebResponse response, WebExchange& exchange) {
  constexpr int64_t kUncounted = 64 << 10;  // about what a connection may hold by itself
  const auto bytes = static_cast<int64_t>(response.body.capacity());
  if (bytes <= kUncounted || exchange.promised) return response;
  const std::optional<ApiError> refusal = state_.reserve(exchange, bytes, "");
  return refusal ? error_response(*refusal) : std::move(response);
}

void FrontDoor::collect(WebExchange& exchange) {
  for (WebExchange& instance : exchange.instances) collect(instance);
  if (exchange.generation) service_of(exchange.model).collect(exchange);
}

void FrontDoor::cancel(WebExchange& exchange) {
  for (WebExchange& instance : exchange.instances) cancel(instance);
  if (exchange.generation) service_of(exchange.model).cancel(exchange);
}

void FrontDoor::finish(WebExchange& exchange, const Abort* cut) {
  ModelService& service = service_of(exchange.model);
  for (WebExchange& instance : exchange.instances) {
    const bool is_cut = cut != nullptr && instance.generation && !instance.generation->finished();
    finish(instance, is_cut ? cut : nullptr);
  }
  const double end = service.now();
  RequestLine line;
  line.request_id = exchange.request_id;
  line.tenant = exchange.tenant;
  line.method = exchange.method;
  line.route = exchange.route;
  line.status = exchange.response.status;
  line.seconds = end - exchange.arrived;
  if (cut != nullptr) {
    state_.metrics.add_abort(*cut);
    line.finish = kAbortNames[static_cast<size_t>(*cut)];
  }
  if (Generation* generation = exchange.generation.get()) {
    service.abandon(exchange);
    if (!generation->finished()) exchange.held.clear();
    try {
      service.collect(exchange);  // what came before its client went counts, here as in the metrics
      line.choices = generation->finishes();
    } catch (const std::bad_alloc&) {
    }
    line.has_times = true;
    line.times = generation->times(end);
    line.prompt_tokens = generation->prompt_tokens();
    line.cached_tokens = generation->cached_tokens();
    line.completion_tokens = generation->completion_tokens() - generation->resumed_tokens();
    line.n_preemptions = generation->n_preemptions();
    if (cut == nullptr) line.finish = generation->finish_word();
    line.stream = generation->info().asked.stream;
    state_.metrics.add_request(line.times, line.prompt_tokens, line.completion_tokens);
    state_.quotas.charge(exchange.tenant, line.completion_tokens, end);
  }
  state_.quotas.leave(exchange.tenant, std::exchange(exchange.n_sequences, 0), end);
  state_.metrics.add_response(exchange.route, exchange.response.status);
  write(line);
  if (spans_ != nullptr) send_span(*spans_, exchange, line, end);
}

void FrontDoor::write(const RequestLine& line) {
  try {
    log_.add(line);
  } catch (const std::bad_alloc&) {
    state_.metrics.add_log_line_lost();
  }
}

}  // namespace ibid
