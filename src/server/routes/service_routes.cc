// The paths of the server, and what a request is refused for before its body is read.
#include <algorithm>
#include <vector>

#include "base/quoted.h"
#include "server/routes/page_files.h"
#include "server/routes/service.h"
#include "server/wire/content_type.h"

namespace ibid {
namespace {

// Whether the route takes a path that is no route's own: a name after it, or in the place of its "{id}".
bool is_below(std::string_view path, std::string_view own, bool takes_rest) {
  if (takes_rest) return path.starts_with(own) && path.substr(own.size()).starts_with('/');
  const size_t at = own.find("{id}");
  if (at == std::string_view::npos || !path.starts_with(own.substr(0, at))) return false;
  const std::string_view end = own.substr(at + 4), rest = path.substr(at);
  const size_t n = rest.find('/');
  return n != 0 && !rest.empty() && (n == std::string_view::npos ? end.empty() : rest.substr(n) == end);
}

}  // namespace

// Those of api_dialects.h and these.
const std::vector<Service::Route>& Service::routes() {
  static constexpr auto kNoModel = Route::Needs::kNothing;
  static constexpr Route kHandled[] = {
      {"POST", "/predict", "predict", nullptr},
      {"GET", "/health", "health", &Service::health, kNoModel},
      {"GET", "/v1/health", "health", &Service::health, kNoModel},
      {"GET", "/ping", "health", &Service::health, kNoModel},
      {"GET", "/v1/models", "models", &Service::models, kNoModel, true},
      {"GET", "/models", "models", &Service::models, kNoModel, true},
      {"POST", "/models/load", "models", &Service::change_model, kNoModel},
      {"POST", "/models/unload", "models", &Service::change_model, kNoModel},
      {"GET", "/v1/responses/{id}", "responses", &Service::response_by_id, kNoModel},
      {"DELETE", "/v1/responses/{id}", "responses", &Service::delete_response, kNoModel},
      {"GET", "/v1/responses/{id}/input_items", "responses", &Service::response_input, kNoModel},
      {"POST", "/v1/responses/{id}/cancel", "responses", &Service::cancel_response, kNoModel},
      {"GET", "/api/tags", "ollama", &Service::ollama_tags, kNoModel},
      {"GET", "/api/ps", "ollama", &Service::ollama_tags, kNoModel},
      {"POST", "/api/show", "ollama", &Service::ollama_show},
      {"GET", "/api/version", "other", &Service::ollama_version, kNoModel},
      {"POST", "/api/pull", "ollama", &Service::ollama_manage, kNoModel},
      {"POST", "/api/push", "ollama", &Service::ollama_manage, kNoModel},
      {"POST", "/api/create", "ollama", &Service::ollama_manage, kNoModel},
      {"POST", "/api/copy", "ollama", &Service::ollama_manage, kNoModel},
      {"DELETE", "/api/delete", "ollama", &Service::ollama_manage, kNoModel},
      {"POST", "/api/blobs", "ollama", &Service::ollama_manage, kNoModel, true},
      {"POST", "/v1/files", "files", &Service::create_file, kNoModel},
      {"GET", "/v1/files", "files", &Service::list_files, kNoModel},
      {"GET", "/v1/files/{id}", "files", &Service::file_by_id, kNoModel},
      {"DELETE", "/v1/files/{id}", "files", &Service::delete_file, kNoModel},
      {"GET", "/v1/files/{id}/content", "files", &Service::file_content, kNoModel},
      {"POST", "/v1/batches", "batches", &Service::create_batch, kNoModel},
      {"GET", "/v1/batches", "batches", &Service::list_batches, kNoModel},
      {"GET", "/v1/batches/{id}", "batches", &Service::batch_by_id, kNoModel},
      {"POST", "/v1/batches/{id}/cancel", "batches", &Service::cancel_batch, kNoModel},
      {"POST", "/v1/chat/completions/input_tokens", "text", &Service::chat_tokens},
      {"POST", "/chat/completions/input_tokens", "text", &Service::chat_tokens},
      {"POST", "/v1/responses/input_tokens", "text", &Service::response_tokens},
      {"POST", "/v1/messages/count_tokens", "text", &Service::count_tokens},
      {"POST", "/tokenize", "text", &Service::tokenize},
      {"POST", "/detokenize", "text", &Service::detokenize},
      {"POST", "/apply-template", "text", &Service::apply_template},
      {"GET", "/tokenizer_info", "text", &Service::tokenizer_info},
      {"GET", "/props", "other", &Service::props},
      {"GET", "/slots", "other", &Service::slots},
      {"GET", "/load", "other", &Service::load},
      {"GET", "/engine", "engine", &Service::engine_view},
      {"GET", "/metrics", "metrics", &Service::metrics_text, kNoModel},
      {"GET", "/version", "other", &Service::version, kNoModel},
      {"GET", "/openapi.json", "other", &Service::openapi, kNoModel},
  };
  static const std::vector<Route> kAll = [] {
    std::vector<Route> out;
    for (const ApiDialect& api : api_dialects()) {
      for (const char* path : api.paths) {
        if (path != nullptr) out.push_back({"POST", path, api.route, nullptr, Route::Needs::kModel, false, &api});
      }
    }
    for (Route route : kHandled) {
      route.api = &dialect_above(route.path);
      out.push_back(route);
    }
    return out;
  }();
  return kAll;
}

Service::Found Service::find_route(const WebRequest& request) {
  static const Route kPage = {
      "GET", "", "page", &Service::page, Route::Needs::kNothing, false, &dialect_of(ApiStyle::kChat)};
  const std::string_view path = request.path();
  Found found;
  if (std::ranges::find(page_files(), path, &PageFile::path) != page_files().end()) found = {&kPage, kPage.method};
  const bool is_own = std::ranges::find(routes(), path, &Route::path) != routes().end();
  for (const Route& route : routes()) {
    if (is_own ? path != route.path : !is_below(path, route.path, route.takes_rest)) continue;
    // A path may have a route for each method.
    found.methods += (found.methods.empty() ? "" : ", ") + std::string(route.method);
    if (found.route == nullptr || request.method == route.method) found.route = &route;
  }
  return found;
}

std::optional<WebResponse> Service::answer_at_door(const WebRequest& request, WebExchange& exchange,
                                                   const Route*& route) const {
  const Found found = find_route(request);
  route = found.route;
  if (request.path().starts_with("/api/")) exchange.api = &dialect_of(ApiStyle::kOllamaChat);  // of unknown paths, too
  if (route != nullptr) exchange.route = route->name, exchange.api = route->api;
  if (request.as_tenant) exchange.tenant = *request.as_tenant;
  using Gate = std::optional<WebResponse> (Service::*)(const WebRequest&, const Found&, WebExchange&) const;
  static constexpr Gate kGates[] = {&Service::check_site, &Service::answer_preflight, &Service::check_key,
                                    &Service::check_path};
  for (const Gate gate : kGates) {
    if (std::optional<WebResponse> answer = (this->*gate)(request, found, exchange)) return answer;
  }
  return std::nullopt;
}

// By which name it asks, and from which site's page.
std::optional<WebResponse> Service::check_site(const WebRequest& request, const Found&, WebExchange&) const {
  if (request.as_tenant) return std::nullopt;
  if (!hosts_.allows(request.header("host"))) {
    return error_response({403,
                           "This server does not answer to the name " + in_quotes(request.header("host"), 128) +
                               "; --allow-host gives it further names.",
                           "", "host_refused"});
  }
  // A page of another site must not use a server that trusts its network.
  if (!allowed_origin(request))
    return error_response({403,
                           "This server does not answer pages of other sites; "
                           "--cors-origin allows one.",
                           "", "origin_refused"});
  return std::nullopt;
}

std::optional<WebResponse> Service::answer_preflight(const WebRequest& request, const Found&, WebExchange&) const {
  if (request.method != "OPTIONS" || options_.cors_origin.empty()) return std::nullopt;
  WebResponse response;
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id"},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

// Notes whose key it is.
std::optional<WebResponse> Service::check_key(const WebRequest& request, const Found&, WebExchange& exchange) const {
  const bool is_health = exchange.route == std::string_view("health");
  if (keys_.empty() || is_health || request.as_tenant) return std::nullopt;
  std::optional<std::string> tenant = keys_.tenant_of(ApiKeys::key_in(request));
  if (tenant) return exchange.tenant = *std::move(tenant), std::nullopt;
  WebResponse response = error_response({401, ApiKeys::kWanted, "", "invalid_api_key"});
  // A browser asks its user for the key (as password) and then sends it by itself.
  if (exchange.route == std::string_view("page"))
    response.headers.back().second = "Basic realm=\"ibid: the API key is the password\"";
  return response;
}

// Whether there is such a path, with this method, for a body of this type.
std::optional<WebResponse> Service::check_path(const WebRequest& request, const Found& found, WebExchange&) const {
  const Route* route = found.route;
  if (route == nullptr)
    return error_response({404,
                           "There is no such path here; /openapi.json lists "
                           "those that there are.",
                           "", "no_such_path"});
  const bool is_read = request.method == "GET" || request.method == "HEAD";
  if (std::string_view(route->method) == "GET" ? !is_read : request.method != route->method) {
    WebResponse response =
        error_response({405, "This path takes " + found.methods + " alone.", "", "method_not_allowed"});
    response.headers.emplace_back("Allow", found.methods);
    return response;
  }
  if (request.method != "POST") return std::nullopt;
  const bool is_upload = route->handler == &Service::create_file || route->handler == &Service::ollama_manage;
  const std::optional<ApiError> wrong = is_upload ? std::nullopt : check_content_type(request);
  if (wrong) return error_response(*wrong);
  return std::nullopt;
}

bool Service::is_answered_at_door(const WebRequest& request) const {
  WebExchange exchange;
  const Route* route = nullptr;
  return answer_at_door(request, exchange, route).has_value();
}

bool Service::allowed_origin(const WebRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (options_.cors_origin == "*") return true;
  if (origin.empty()) return !asks_for_another_site(request);
  if (origin == options_.cors_origin) return true;
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && origin.substr(scheme + 3) == request.header("host");
}

}  // namespace ibid
