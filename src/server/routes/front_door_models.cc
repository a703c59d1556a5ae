// The models that are served, the one or those of the fleet, and which of them a request is for.
#include <algorithm>
#include <array>

#include "base/quoted.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/parse_body.h"
#include "server/request/model_names.h"
#include "server/routes/front_door.h"
#include "server/wire/api_error.h"
#include "server/wire/query.h"

namespace ibid {
namespace {

constexpr std::string_view kUnload = "/models/unload";

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

void FrontDoor::set_draining() {
  draining_ = true;
  model_.set_draining();
  if (Fleet* fleet = fleet_) fleet->stop();
}

size_t FrontDoor::n_active() const {
  size_t n = model_.n_active();
  if (const Fleet* fleet = fleet_) {
    for (const FleetFacts& model : fleet->facts()) n += static_cast<size_t>(model.n_users);
  }
  return n;
}

EngineStats FrontDoor::stats() const {
  EngineStats sum;
  if (const Backend* backend = model_.backend()) sum = backend->stats();
  if (const Fleet* fleet = fleet_) {
    for (const FleetFacts& model : fleet->facts()) add_stats(model.stats, sum);
  }
  return sum;
}

std::vector<FrontDoor::ListedModel> FrontDoor::listed() const {
  std::vector<ListedModel> out;
  if (const Fleet* fleet = fleet_) {
    for (FleetFacts& model : fleet->facts()) {
      std::vector<std::string> names = {model.name};
      const bool is_first = out.empty();  // the aliases and tags are its
      if (is_first) names.insert(names.end(), options_.aliases.begin(), options_.aliases.end());
      out.push_back({std::move(model.info), std::move(names), std::move(model.capabilities), model.is_loaded,
                     is_first ? options_.tags : std::vector<std::string>()});
    }
  } else if (const Backend* backend = model_.backend()) {
    out.push_back({backend->model(), model_.names(), model_.capabilities(), true, options_.tags});
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

bool FrontDoor::choose_model(WebRequest& request) {
  Fleet* fleet = fleet_;
  if (fleet == nullptr) return true;
  WebExchange exchange;
  const Route* route = nullptr;
  if (answer_at_door(request, exchange, route)) return true;  // handle() comes to the same
  if (!route->needs_model() && route->handler != &FrontDoor::change_model) return true;
  Choice choice = name_model(*fleet, request, exchange, *route);
  if (choice.refusal) request.refusal = std::make_shared<ApiError>(*std::move(choice.refusal));
  return !choice.must_load;
}

FrontDoor::Choice FrontDoor::name_model(Fleet& fleet, WebRequest& request, const WebExchange& exchange,
                                        const Route& route) {
  const bool is_read = std::string_view(route.method) == "GET";  // which loads nothing
  Result<Json> body = is_read ? Json() : read_object(request, options_.api.json, !route.needs_model());
  if (!body) return {.refusal = ApiError::of(body.error())};
  const std::string named = is_read ? percent_decoded(query_value(request.query(), "model").value_or(""))
                                    : model_named_in(request, *body, model_of_instances(*body));
  request.tenant = exchange.tenant;
  request.model_name = fleet.model_for(named);
  if (request.model_name.empty()) return {.refusal = ApiError::of(no_such_model(named))};
  if (request.path() == kUnload) {  // which is no reason to load it
    if (let_go(fleet, request)) return {};
    return {.refusal = stays_for_others(request.model_name)};
  }
  request.lets_model_go = !is_read && lets_model_go(request, *body);
  request.model = fleet.use(request.model_name, exchange.tenant);
  return is_read ? Choice() : check_named(fleet, request, exchange, route, *std::move(body));
}

FrontDoor::Choice FrontDoor::check_named(Fleet& fleet, WebRequest& request, const WebExchange& exchange,
                                         const Route& route, Json body) {
  ModelService& service = fleet.service(request.model_name);
  ModelInfo info = request.model ? service.backend()->model() : fleet.info(request.model_name);
  if (info.context_len == 0) info.context_len = INT32_MAX;  // it was never loaded
  const bool makes_sequences = route.makes_sequences();
  bool is_all = false;  // that is asked for: Ollama's way to unload
  if (request.lets_model_go && makes_sequences && reads_unloaded(*exchange.api, body)) {
    Result<DialectBody> own = service.read_dialect(exchange, body, info, nullptr);
    if (!own) return {.refusal = ApiError::of(own.error())};
    is_all = own->answer.has_value();
    if (is_all && !request.model) {
      request.answer = std::make_shared<WebResponse>(json_response(*std::move(own->answer)));
      return {};
    }
  }
  const auto fault = [&] { return service.fault_in_body(request, exchange, makes_sequences, std::move(body), info); };
  if (request.model) {
    const bool is_asked = request.lets_model_go && !fault();
    if (!is_asked || let_go(fleet, request) || !is_all) return {};
    return {.refusal = stays_for_others(request.model_name)};
  }
  if (draining_) return {.refusal = ApiError::of(unavailable("The server is shutting down."))};
  if (const std::optional<Error> known = fleet.known_fault(request.model_name))
    return {.refusal = ApiError::of(*known)};
  if (std::optional<ApiError> found = fault()) return {.refusal = std::move(found)};
  if (options_.autoload || !route.needs_model()) return {.must_load = true};
  return {.refusal = ApiError{400,
                              "The model " + in_quotes(request.model_name) +
                                  " is not loaded, and this server loads none unasked; /models/load does.",
                              "model", "model_not_loaded"}};
}

bool FrontDoor::let_go(Fleet& fleet, const WebRequest& request) const {
  const bool is_admin = !state_.quotas.is_shared() || state_.quotas.terms_of(request.tenant).is_admin;
  return fleet.let_go(request.model_name, request.tenant, is_admin);
}

void FrontDoor::wait_for_model(WebRequest& request) {
  Fleet& fleet = *fleet_.load();
  Result<std::shared_ptr<ModelUse>> use = fleet.load(request.model_name, {request.tenant, request.is_gone});
  if (use) {
    request.model = *std::move(use);
    if (request.lets_model_go) let_go(fleet, request);
  } else {
    request.refusal = std::make_shared<ApiError>(ApiError::of(use.error()));
  }
}

// llama.cpp's: loads the requested model, or lets it go.
WebResponse FrontDoor::change_model(const WebRequest& request, WebExchange&) {
  WebResponse response;
  if (fleet_ == nullptr) {
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

void FrontDoor::post_to_loader(const std::string& model, const std::string& tenant, std::function<void()> work) {
  fleet_.load()->post(model, tenant, std::move(work));
}

void FrontDoor::on_gone() {
  ++n_gone_;
  if (Fleet* fleet = fleet_) fleet->on_gone();
}

}  // namespace ibid
