// The front door's own routes: health, models, metrics, the page.
#include <algorithm>

#include "base/json_writer.h"
#include "kernels/arithmetic_version.h"
#include "server/dialects/dialects.h"
#include "server/fields/openapi.h"
#include "server/request/model_names.h"
#include "server/routes/front_door.h"
#include "server/routes/page_files.h"
#include "server/wire/query.h"

namespace ibid {
namespace {

void write_texts(JsonWriter& json, const char* name, std::span<const std::string> texts) {
  json.key(name).begin_array();
  for (const std::string& text : texts) json.string(text);
  json.end_array();
}

void write_model(JsonWriter& json, const ModelInfo& model, const std::string& name, bool is_loaded,
                 std::span<const std::string> names, std::span<const std::string> tags,
                 std::span<const std::string> capabilities) {
  json.begin_object()
      .field("id", name)
      .field("object", "model")
      .field("created", model.created)
      .field("owned_by", "ibid")
      .field("root", model.name)
      .field("arithmetic", arithmetic_id())
      .key("loaded")
      .boolean(is_loaded)
      .key("status")
      .begin_object()
      .field("value", is_loaded ? "loaded" : "unloaded")
      .end_object();
  write_texts(json, "aliases", names);
  write_texts(json, "tags", tags);
  if (model.context_len == 0) {  // it was never loaded
    json.end_object();
    return;
  }
  json.field("max_model_len", int64_t{model.context_len});
  json.key("meta")
      .begin_object()
      .field("architecture", model.architecture)
      .field("digest", model.digest)
      .field("n_ctx", int64_t{model.context_len})
      .field("n_embd", int64_t{model.width})
      .field("pooling", pooling_name(model.pooling))
      .end_object();
  write_texts(json, "capabilities", capabilities);
  json.end_object();
}

}  // namespace

std::string_view FrontDoor::health_word() const {
  if (draining_) return "draining";
  if (fleet_ != nullptr) return "ready";
  const Backend* backend = model_.backend();
  if (backend == nullptr) return "loading";
  const EngineStats stats = backend->stats();
  const bool work_waits = stats.n_running + stats.n_waiting > 0 || model_.n_active() > 0;
  return work_waits && backend->clock().now() - backend->heartbeat() > options_.stall_timeout ? "stalled" : "ready";
}

WebResponse FrontDoor::health(const WebRequest&, WebExchange&) {
  const std::string_view word = health_word();
  WebResponse response;
  response.status = word == "ready" ? 200 : 503;
  JsonWriter json(response.body);
  json.begin_object().field("status", word);
  if (const Backend* backend = model_.backend()) {
    const EngineStats stats = backend->stats();
    json.field("running", int64_t{stats.n_running}).field("waiting", int64_t{stats.n_waiting});
    json.key("heartbeat_age").number(std::max(0.0, backend->clock().now() - backend->heartbeat()), 3);
  }
  json.end_object();
  return response;
}

WebResponse FrontDoor::version(const WebRequest&, WebExchange&) {
  return json_response("{\"version\":\"" IBID_VERSION "\"}");
}

WebResponse FrontDoor::models(const WebRequest& request, WebExchange&) {
  const std::vector<ListedModel> models = listed();
  if (models.empty()) return error_response({503, "The model is still loading.", "", "loading", 1});
  WebResponse response;
  JsonWriter json(response.body);
  constexpr std::string_view kBefore = "/models/";
  if (const size_t at = request.path().find(kBefore); at != std::string_view::npos) {
    const std::string name = percent_decoded(request.path().substr(at + kBefore.size()));
    for (const ListedModel& model : models) {
      const auto known = std::ranges::find(model.names, name);
      if (known == model.names.end()) continue;
      write_model(json, model.info, *known, model.is_loaded, model.names, model.tags, model.capabilities);
      return response;
    }
    return error_response(ApiError::of(no_such_model(name)));
  }
  json.begin_object().field("object", "list").key("data").begin_array();
  for (const ListedModel& model : models) {
    const std::span<const std::string> names = model.names;
    for (const std::string& name : options_.list_once ? names.first(1) : names)
      write_model(json, model.info, name, model.is_loaded, names, model.tags, model.capabilities);
  }
  json.end_array().end_object();
  return response;
}

WebResponse FrontDoor::metrics_text(const WebRequest&, WebExchange&) {
  const Backend* backend = model_.backend();
  const Fleet* fleet = fleet_;
  WebResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  const ServerGauges gauges = {connections_,
                               body_bytes_,
                               static_cast<int64_t>(n_active()),
                               steady_clock().now() - started_,
                               ready(),
                               spans_ != nullptr ? spans_->n_sent() : 0,
                               spans_ != nullptr ? spans_->n_dropped() : 0,
                               state_.quotas.figures()};
  response.body = backend != nullptr
                      ? state_.metrics.text(backend->stats(), gauges, options_.metric_names, backend->model().name)
                      : state_.metrics.text(stats(), gauges, options_.metric_names);
  if (fleet != nullptr) response.body += fleet->metrics_text();
  return response;
}

WebResponse FrontDoor::openapi(const WebRequest&, WebExchange&) {
  const Backend* backend = model_.backend();
  return json_response(backend != nullptr ? openapi_json(options_.api, backend->tokenizer().vocab_size() - 1,
                                                         backend->model().sampling, options_.root_path)
                                          : openapi_json(options_.api, INT32_MAX, {}, options_.root_path));
}

WebResponse FrontDoor::page(const WebRequest& request, WebExchange&) {
  const auto file = std::ranges::find(page_files(), request.path(), &PageFile::path);
  if (options_.page && file != page_files().end()) return page_response(*file, request);
  return error_response({404, "The page is switched off on this server.", "", "no_such_path"});
}

}  // namespace ibid
