// What a Service knows of the models that are served: its own, or those of a fleet behind it.
#include <algorithm>
#include <array>

#include "base/quoted.h"
#include "server/api_error.h"
#include "server/dialects.h"
#include "server/model_names.h"
#include "server/parse_body.h"
#include "server/query.h"
#include "server/service.h"

namespace ibid {
namespace {

// Reads that are about a model; it may be named behind "?model=", and is not loaded for them.
constexpr std::array<std::string_view, 5> kReadsOfModel = {"/props", "/slots", "/load", "/engine", "/tokenizer_info"};

constexpr std::string_view kLoad = "/models/load", kUnload = "/models/unload";

// Ollama's word for a model that is to go at once.
bool lets_model_go(const WebRequest& request, const Json& body) {
  const Json* keep =
      request.path().starts_with("/api/") && body.object() != nullptr ? given(body, "keep_alive") : nullptr;
  return keep != nullptr && ends_at_once(*keep);
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

// Whose requests may make a model be loaded: those that are answered.
bool Service::is_welcome(const WebRequest& request) const {
  if (request.as_tenant) return true;
  return hosts_.allows(request.header("host")) && allowed_origin(request) &&
         (keys_.empty() || keys_.tenant_of(ApiKeys::key_in(request)));
}

// None where the request is for no model; a body that cannot be read is refused.
std::optional<std::string> Service::model_named_in(WebRequest& request) const {
  if (request.method == "GET") {
    if (std::ranges::find(kReadsOfModel, request.path()) == kReadsOfModel.end()) return std::nullopt;
    return percent_decoded(query_value(request.query(), "model").value_or(""));
  }
  const bool is_upload = request.path().starts_with("/v1/files") || request.path().starts_with("/v1/batches");
  if (request.method != "POST" || request.path().ends_with("/cancel") || is_upload) return std::nullopt;
  const Result<Json> body = parse_body(request.body, options_.api.json);
  if (!body) {
    request.refusal = std::make_shared<ApiError>(ApiError::of(body.error()));
    return std::nullopt;
  }
  request.lets_model_go = lets_model_go(request, *body);
  const std::string* name = body->object() != nullptr ? text_at(*body, "model") : nullptr;
  if (name == nullptr && request.path() == "/api/show" && body->object() != nullptr) name = text_at(*body, "name");
  if (request.path() == "/predict") name = model_of_instances(*body);
  return name != nullptr ? *name : std::string();
}

bool Service::choose_model(WebRequest& request) {
  Fleet* fleet = fleet_;
  if (fleet == nullptr || !is_welcome(request)) return true;
  const std::optional<std::string> named = model_named_in(request);
  if (!named) return true;
  request.model_name = fleet->model_for(*named);
  if (request.model_name.empty()) {
    request.refusal = std::make_shared<ApiError>(ApiError::of(no_such_model(*named)));
    return true;
  }
  if (request.path() == kUnload) {  // which is no reason to load it
    fleet->let_go(request.model_name);
    return true;
  }
  request.model = fleet->use(request.model_name);
  if (request.model != nullptr && request.lets_model_go) fleet->let_go(request.model_name);
  if (request.model == nullptr && draining_)
    request.refusal = std::make_shared<ApiError>(ApiError::of(unavailable("The server is shutting down.")));
  if (request.model == nullptr && request.refusal == nullptr && !options_.autoload && request.method != "GET" &&
      request.path() != kLoad) {
    request.refusal = std::make_shared<ApiError>(ApiError{400,
                                                          "The model " + in_quotes(request.model_name) +
                                                              " is not loaded, and this server loads none unasked; "
                                                              "/models/load does.",
                                                          "model", "model_not_loaded"});
  }
  return request.model != nullptr || request.refusal != nullptr || request.method == "GET";
}

void Service::wait_for_model(WebRequest& request) {
  Result<std::shared_ptr<ModelUse>> use = fleet_.load()->load(request.model_name);
  if (use) {
    request.model = *std::move(use);
    if (request.lets_model_go) fleet_.load()->let_go(request.model_name);
  } else {
    request.refusal = std::make_shared<ApiError>(ApiError::of(use.error()));
  }
}

// llama.cpp's: who comes here has its model loaded, or has told it to go.
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

void Service::post_to_loader(const std::string& model, std::function<void()> work) {
  fleet_.load()->post(model, std::move(work));
}

}  // namespace ibid
