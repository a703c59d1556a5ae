// The paths of the server, and what a request is refused for before its body is read.
#include <algorithm>
#include <span>
#include <vector>

#include "base/quoted.h"
#include "server/routes/front_door.h"
#include "server/routes/page_files.h"
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

std::span<const FrontDoor::Route> FrontDoor::handled_routes() {
  static constexpr Route kHandled[] = {
      {"POST", "/predict", "predict"},
      {"GET", "/health", "health", &FrontDoor::health},
      {"GET", "/v1/health", "health", &FrontDoor::health},
      {"GET", "/ping", "health", &FrontDoor::health},
      {"GET", "/v1/models", "models", &FrontDoor::models, nullptr, true},
      {"GET", "/models", "models", &FrontDoor::models, nullptr, true},
      {"POST", "/models/load", "models", &FrontDoor::change_model},
      {"POST", "/models/unload", "models", &FrontDoor::change_model},
      {"POST", "/v1/load_lora_adapter", "adapters", &FrontDoor::change_adapter},
      {"POST", "/v1/unload_lora_adapter", "adapters", &FrontDoor::change_adapter},
      {"GET", "/lora-adapters", "adapters", &FrontDoor::lora_adapters},
      {"POST", "/lora-adapters", "adapters", &FrontDoor::lora_adapters},
      {"GET", "/v1/responses/{id}", "responses", &FrontDoor::response_by_id},
      {"DELETE", "/v1/responses/{id}", "responses", &FrontDoor::delete_response},
      {"GET", "/v1/responses/{id}/input_items", "responses", &FrontDoor::response_input},
      {"POST", "/v1/responses/{id}/cancel", "responses", &FrontDoor::cancel_response},
      {"POST", "/v1/requests/{id}/move", "move", &FrontDoor::move_request},
      {"GET", "/api/tags", "ollama", &FrontDoor::ollama_tags},
      {"GET", "/api/ps", "ollama", &FrontDoor::ollama_tags},
      {"POST", "/api/show", "ollama", nullptr, &ModelService::ollama_show},
      {"GET", "/api/version", "other", &FrontDoor::ollama_version},
      {"POST", "/api/pull", "ollama", &FrontDoor::ollama_manage},
      {"POST", "/api/push", "ollama", &FrontDoor::ollama_manage},
      {"POST", "/api/create", "ollama", &FrontDoor::ollama_manage},
      {"POST", "/api/copy", "ollama", &FrontDoor::ollama_manage},
      {"DELETE", "/api/delete", "ollama", &FrontDoor::ollama_manage},
      {"POST", "/api/blobs", "ollama", &FrontDoor::ollama_manage, nullptr, true},
      {"POST", "/v1/files", "files", &FrontDoor::create_file},
      {"GET", "/v1/files", "files", &FrontDoor::list_files},
      {"GET", "/v1/files/{id}", "files", &FrontDoor::file_by_id},
      {"DELETE", "/v1/files/{id}", "files", &FrontDoor::delete_file},
      {"GET", "/v1/files/{id}/content", "files", &FrontDoor::file_content},
      {"POST", "/v1/batches", "batches", &FrontDoor::create_batch},
      {"GET", "/v1/batches", "batches", &FrontDoor::list_batches},
      {"GET", "/v1/batches/{id}", "batches", &FrontDoor::batch_by_id},
      {"POST", "/v1/batches/{id}/cancel", "batches", &FrontDoor::cancel_batch},
      {"POST", "/v1/chat/completions/input_tokens", "text", nullptr, &ModelService::chat_tokens},
      {"POST", "/chat/completions/input_tokens", "text", nullptr, &ModelService::chat_tokens},
      {"POST", "/v1/responses/input_tokens", "text", nullptr, &ModelService::response_tokens},
      {"POST", "/v1/messages/count_tokens", "text", nullptr, &ModelService::count_tokens},
      {"POST", "/tokenize", "text", nullptr, &ModelService::tokenize},
      {"POST", "/detokenize", "text", nullptr, &ModelService::detokenize},
      {"POST", "/apply-template", "text", nullptr, &ModelService::apply_template},
      {"GET", "/tokenizer_info", "text", nullptr, &ModelService::tokenizer_info},
      {"GET", "/props", "other", nullptr, &ModelService::props},
      {"GET", "/slots", "other", nullptr, &ModelService::slots},
      {"GET", "/load", "other", nullptr, &ModelService::load},
      {"GET", "/engine", "engine", nullptr, &ModelService::engine_view},
      {"GET", "/metrics", "metrics", &FrontDoor::metrics_text},
      {"GET", "/kv_event_sources", "other", &FrontDoor::kv_event_sources},
      {"GET", "/server_info", "other", &FrontDoor::server_info},
      {"GET", "/version", "other", &FrontDoor::version},
      {"GET", "/openapi.json", "other", &FrontDoor::openapi},
  };
  return kHandled;
}

const std::vector<FrontDoor::Route>& FrontDoor::routes() {
  static const std::vector<Route> kAll = [] {
    std::vector<Route> out;
    for (const ApiDialect& api : api_dialects()) {
      for (const char* path : api.paths) {
        if (path != nullptr) out.push_back({"POST", path, api.route, nullptr, nullptr, false, &api});
      }
    }
    for (Route route : handled_routes()) {
      route.api = &dialect_above(route.path);
      out.push_back(route);
    }
    return out;
  }();
  return kAll;
}

FrontDoor::Found FrontDoor::find_route(const WebRequest& request) {
  static const Route kPage = {"GET", "", "page", &FrontDoor::page, nullptr, false, &dialect_of(ApiStyle::kChat)};
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

std::optional<WebResponse> FrontDoor::answer_at_door(const WebRequest& request, WebExchange& exchange,
                                                     const Route*& route) const {
  const Found found = find_route(request);
  route = found.route;
  if (request.path().starts_with("/api/")) exchange.api = &dialect_of(ApiStyle::kOllamaChat);  // of unknown paths, too
  if (route != nullptr) exchange.route = route->name, exchange.api = route->api;
  if (request.as_tenant) exchange.tenant = *request.as_tenant;
  using Gate = std::optional<WebResponse> (FrontDoor::*)(const WebRequest&, const Found&, WebExchange&) const;
  static constexpr Gate kGates[] = {&FrontDoor::check_site, &FrontDoor::answer_preflight, &FrontDoor::check_key,
                                    &FrontDoor::check_path};
  for (const Gate gate : kGates) {
    if (std::optional<WebResponse> answer = (this->*gate)(request, found, exchange)) return answer;
  }
  return std::nullopt;
}

// By which name it asks, and from which site's page.
std::optional<WebResponse> FrontDoor::check_site(const WebRequest& request, const Found&, WebExchange&) const {
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

std::optional<WebResponse> FrontDoor::answer_preflight(const WebRequest& request, const Found&, WebExchange&) const {
  if (request.method != "OPTIONS" || options_.cors_origin.empty()) return std::nullopt;
  WebResponse response;
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id"},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

// Notes whose key it is.
std::optional<WebResponse> FrontDoor::check_key(const WebRequest& request, const Found&, WebExchange& exchange) const {
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
std::optional<WebResponse> FrontDoor::check_path(const WebRequest& request, const Found& found, WebExchange&) const {
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
  const bool is_upload = route->handler == &FrontDoor::create_file || route->handler == &FrontDoor::ollama_manage;
  const std::optional<ApiError> wrong = is_upload ? std::nullopt : check_content_type(request);
  if (wrong) return error_response(*wrong);
  return std::nullopt;
}

bool FrontDoor::is_answered_at_door(const WebRequest& request) const {
  WebExchange exchange;
  const Route* route = nullptr;
  return answer_at_door(request, exchange, route).has_value();
}

bool FrontDoor::allowed_origin(const WebRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (options_.cors_origin == "*") return true;
  if (origin.empty()) return !asks_for_another_site(request);
  if (origin == options_.cors_origin) return true;
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && origin.substr(scheme + 3) == request.header("host");
}

}  // namespace ibid
