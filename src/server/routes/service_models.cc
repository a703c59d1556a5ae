// What a Service knows of the models that are served: its own, or those of its fleet.
#include <algorithm>
#include <array>

#include "base/quoted.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/parse_body.h"
#include "server/request/model_names.h"
#include "server/routes/service.h"
#include "server/wire/api_error.h"
#include "server/wire/query.h"

namespace ibid {
namespace {

constexpr std::string_view kUnload = "/models/unload";

// Of routes whose bodies are read with the model's vocabulary, the members of which one must be there.
struct Wanted {
  std::string_view path;
  std::array<const char*, 4> names;
};
constexpr auto kWanted = std::to_array<Wanted>({{"/predict", {"instances"}},
                                                {"/tokenize", {"content", "prompt", "messages"}},
                                                {"/detokenize", {"tokens"}},
                                                {"/apply-template", {"messages"}},
                                                {"/completion", {"prompt"}},
                                                {"/v1/embeddings", {"input", "messages"}},
                                                {"/embeddings", {"input", "content", "messages"}},
                                                {"/pooling", {"input", "messages"}},
                                                {"/embedding", {"input", "content"}},
                                                {"/v2/embed", {"texts", "images", "inputs"}},
                                                {"/v1/rerank", {"query"}},
                                                {"/v2/rerank", {"query"}},
                                                {"/rerank", {"query"}}});

// Ollama's word for a model that is to go at once.
bool lets_model_go(const WebRequest& request, const Json& body) {
  const Json* keep = request.path().starts_with("/api/") ? given(body, "keep_alive") : nullptr;
  return keep != nullptr && ends_at_once(*keep);
}

ApiError stays_for_others(const std::string& model) {
  return {403,
          "The model " + in_quotes(model) +
              " stays loaded: others have used it too, and a key whose terms have admin=yes "
              "may unload it all the same.",
          "model", "model_in_use"};
}

}  // namespace

std::unique_ptr<Service> Service::make_service(bool has_aliases) {
  ServerOptions options = options_;
  if (!has_aliases) options.aliases.clear();
  auto out = std::unique_ptr<Service>(new Service(options, keys_, log_, shared_));
  out->spans_ = spans_;
  out->is_of_fleet_ = true;
  return out;
}

void Service::set_fleet(Fleet* fleet) { fleet_ = fleet; }

void Service::set_draining() {
  draining_ = true;
  if (Fleet* fleet = fleet_) fleet->stop();
}

size_t Service::n_active() const {
  size_t n = router_.size();
  if (const Fleet* fleet = fleet_) {
    for (const FleetFacts& model : fleet->facts()) n += static_cast<size_t>(model.n_users);
  }
  return n;
}

EngineStats Service::stats() const {
  EngineStats sum;
  if (const Backend* backend = backend_) sum = backend->stats();
  if (const Fleet* fleet = fleet_) {
    for (const FleetFacts& model : fleet->facts()) add_stats(model.stats, sum);
  }
  return sum;
}

std::vector<Service::ListedModel> Service::listed() const {
  std::vector<ListedModel> out;
  if (const Fleet* fleet = fleet_) {
    for (FleetFacts& model : fleet->facts()) {
      std::vector<std::string> names = {model.name};
      const bool is_first = out.empty();  // the aliases and tags are its
      if (is_first) names.insert(names.end(), options_.aliases.begin(), options_.aliases.end());
      out.push_back({std::move(model.info), std::move(names), std::move(model.capabilities), model.is_loaded,
                     is_first ? options_.tags : std::vector<std::string>()});
    }
  } else if (const Backend* backend = backend_) {
    out.push_back({backend->model(), model_names(backend->model(), options_), capabilities(), true, options_.tags});
  }
  return out;
}

namespace {

// `has_model`: it must name one.
Result<Json> read_object(const WebRequest& request, const JsonLimits& limits, bool has_model) {
  ASSIGN_OR_RETURN(Json body, parse_body(request.body, limits));
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  if (has_model && text_at(body, "model") == nullptr)
    return invalid("model is missing; it must be a model's name.", "model");
  return body;
}

std::string model_named_in(const WebRequest& request, const Json& body, const std::string* of_instances) {
  const std::string* name = text_at(body, "model");
  if (name == nullptr && request.path() == "/api/show") name = text_at(body, "name");
  if (request.path() == "/predict") name = of_instances;
  return name != nullptr ? *name : std::string();
}

}  // namespace

// The faults that the route will find, as far as that needs no model: none is unloaded for a request that is refused.
std::optional<ApiError> Service::fault_in_body(const WebRequest& request, const WebExchange& exchange,
                                               const Route& route, Json body, const ModelInfo& model) {
  int64_t n_sequences = 1;
  bool is_ours = false;  // so that errors have our names of fields
  const auto check = [&]() -> Status {
    const auto* wanted = std::ranges::find(kWanted, request.path(), &Wanted::path);
    if (wanted != kWanted.end() && std::ranges::none_of(wanted->names, [&](const char* name) {
          return name != nullptr && given(body, name) != nullptr;
        }))
      return invalid(std::string(wanted->names[0]) + " is missing.", wanted->names[0]);
    const bool is_any = request.path() == "/invocations" || request.path() == "/predict";
    if (is_any || route.handler != nullptr || !reads_unloaded(*exchange.api, body)) return {};
    ASSIGN_OR_RETURN(DialectBody own, read_dialect(exchange, std::move(body), model, nullptr));
    is_ours = true;
    if (own.answer) return {};
    ASSIGN_OR_RETURN(const ApiRequest api, read_request(*exchange.api, own, model, nullptr));
    n_sequences = sequences_of(api);
    return {};
  };
  if (const Status status = check(); !status) {
    const ApiError error = ApiError::of(status.error());
    return is_ours ? in_own_words(*exchange.api, error) : error;
  }
  return route.handler == nullptr ? quotas_.refusal(exchange.tenant, n_sequences, now()) : std::nullopt;
}

bool Service::choose_model(WebRequest& request) {
  Fleet* fleet = fleet_;
  if (fleet == nullptr) return true;
  WebExchange exchange;
  const Route* route = nullptr;
  if (answer_at_door(request, exchange, route)) return true;  // handle() comes to the same
  const auto refuse = [&](const ApiError& error) {
    request.refusal = std::make_shared<ApiError>(error);
    return true;
  };
  const bool changes_model = route->handler == &Service::change_model;
  const bool is_read = std::string_view(route->method) == "GET";  // which loads nothing
  if (!route->needs_model() && !changes_model) return true;
  Result<Json> read = is_read ? Json() : read_object(request, options_.api.json, changes_model);
  if (!read) return refuse(ApiError::of(read.error()));
  Json& body = *read;
  const std::string named = is_read ? percent_decoded(query_value(request.query(), "model").value_or(""))
                                    : model_named_in(request, body, model_of_instances(body));
  request.tenant = exchange.tenant;
  request.model_name = fleet->model_for(named);
  if (request.model_name.empty()) return refuse(ApiError::of(no_such_model(named)));
  const bool is_admin = !quotas_.is_shared() || quotas_.terms_of(exchange.tenant).is_admin;
  if (request.path() == kUnload) {  // which is no reason to load it
    const bool goes = fleet->let_go(request.model_name, exchange.tenant, is_admin);
    return goes || refuse(stays_for_others(request.model_name));
  }
  request.lets_model_go = !is_read && lets_model_go(request, body);
  request.model = fleet->use(request.model_name, exchange.tenant);
  if (is_read) return true;
  ModelInfo info = request.model ? request.model->service->backend_.load()->model() : fleet->info(request.model_name);
  if (info.context_len == 0) info.context_len = INT32_MAX;  // it was never loaded
  bool is_all = false;                                      // that is asked for: Ollama's way to unload
  if (request.lets_model_go && route->handler == nullptr && reads_unloaded(*exchange.api, body)) {
    Result<DialectBody> own = read_dialect(exchange, body, info, nullptr);
    if (!own) return refuse(ApiError::of(own.error()));
    is_all = own->answer.has_value();
    if (is_all && !request.model) {
      WebResponse response;
      response.body = *std::move(own->answer);
      request.answer = std::make_shared<WebResponse>(std::move(response));
      return true;
    }
  }
  if (request.model) {
    const bool is_asked = request.lets_model_go && !fault_in_body(request, exchange, *route, std::move(body), info);
    const bool goes = !is_asked || fleet->let_go(request.model_name, exchange.tenant, is_admin);
    return goes || !is_all || refuse(stays_for_others(request.model_name));
  }
  if (draining_) return refuse(ApiError::of(unavailable("The server is shutting down.")));
  if (const std::optional<Error> fault = fleet->known_fault(request.model_name)) return refuse(ApiError::of(*fault));
  if (const std::optional<ApiError> fault = fault_in_body(request, exchange, *route, std::move(body), info))
    return refuse(*fault);
  if (options_.autoload || changes_model) return false;
  return refuse(ApiError{400,
                         "The model " + in_quotes(request.model_name) +
                             " is not loaded, and this server loads none unasked; /models/load does.",
                         "model", "model_not_loaded"});
}

void Service::wait_for_model(WebRequest& request) {
  Fleet& fleet = *fleet_.load();
  Result<std::shared_ptr<ModelUse>> use = fleet.load(request.model_name, {request.tenant, request.is_gone});
  if (use) {
    request.model = *std::move(use);
    const bool is_admin = !quotas_.is_shared() || quotas_.terms_of(request.tenant).is_admin;
    if (request.lets_model_go) fleet.let_go(request.model_name, request.tenant, is_admin);
  } else {
    request.refusal = std::make_shared<ApiError>(ApiError::of(use.error()));
  }
}

// llama.cpp's: loads the requested model, or lets it go.
WebResponse Service::change_model(const WebRequest& request, WebExchange&) {
  WebResponse response;
  if (fleet_ == nullptr && !is_of_fleet_) {
    const Result<Json> body = parse_body(request.body, options_.api.json);
    if (!body) return error_response(ApiError::of(body.error()));
    const Json* model = body->object() == nullptr ? nullptr : body->find("model");
    if (model == nullptr || model->string() == nullptr)
      return error_response(ApiError::of(invalid("model is missing; it must be a model's name.", "model")));
    if (request.path() == kUnload)
      return error_response(ApiError::of(unsupported("A server of one model keeps it.", "model")));
  }
  response.body = R"({"success":true})";
  return response;
}

void Service::post_to_loader(const std::string& model, const std::string& tenant, std::function<void()> work) {
  fleet_.load()->post(model, tenant, std::move(work));
}

void Service::on_gone() {
  ++n_gone_;
  if (Fleet* fleet = fleet_) fleet->on_gone();
}

}  // namespace ibid
