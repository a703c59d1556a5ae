// The front door's own routes: health, models, metrics, the page.
#include <algorithm>
#include <chrono>

#include "base/json_writer.h"
#include "base/quoted.h"
#include "kernels/arithmetic_version.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/openapi.h"
#include "server/fields/parse_body.h"
#include "server/observe/metric_table.h"
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

void write_adapter(JsonWriter& json, const ModelInfo& model, const AdapterShelf::Entry& entry) {
  const Adapter& adapter = *entry.placed->adapter;
  json.begin_object()
      .field("id", entry.name)
      .field("object", "model")
      .field("created", entry.created)
      .field("owned_by", "ibid")
      .field("root", entry.path)
      .field("parent", model.name)
      .field("arithmetic", arithmetic_id())
      .field("max_model_len", int64_t{model.context_len});
  json.key("meta")
      .begin_object()
      .field("architecture", model.architecture)
      .field("digest", model.digest + "+" + adapter.digest())
      .field("max_rank", adapter.max_rank())
      .field("n_products", static_cast<int64_t>(adapter.n_products()))
      .field("bytes", adapter.bytes())
      .end_object();
  json.end_object();
}

void write_event_source(JsonWriter& json, const KvEventOptions& events) {
  json.begin_object().key("enable_kv_cache_events").boolean(events.on());
  json.field("publisher", events.on() ? "zmq" : "null").field("endpoint", events.endpoint).key("replay_endpoint");
  events.replay_endpoint.empty() ? json.null() : json.string(events.replay_endpoint);
  json.field("buffer_steps", static_cast<int64_t>(events.max_replayed)).field("hwm", int64_t{100'000});
  json.field("max_queue_size", static_cast<int64_t>(events.max_queued)).field("topic", events.topic);
  json.end_object();
}

ReplicaFacts replica_facts(const Backend& backend) {
  const EngineStats stats = backend.stats();
  const ModelInfo& model = backend.model();
  ReplicaFacts facts = {.block_len = model.block_len,
                        .n_blocks = stats.blocks_total,
                        .n_host_blocks = stats.host_blocks_total,
                        .kv_dtype = model.kv_dtype,
                        .shares_prefixes = model.shares_prefixes};
  if (const AdapterShelf* shelf = backend.adapters(); shelf != nullptr) {
    facts.max_adapters = shelf->n_slots();
    for (AdapterShelf::Entry& entry : shelf->list()) {
      if (entry.is_in_use) facts.adapters_in_use.push_back(std::move(entry.name));
    }
    facts.now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  return facts;
}

std::vector<AdapterShelf::Entry> adapters_of(const Backend* backend) {
  const AdapterShelf* shelf = backend != nullptr ? backend->adapters() : nullptr;
  return shelf != nullptr ? shelf->list() : std::vector<AdapterShelf::Entry>();
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
    for (const AdapterShelf::Entry& entry : adapters_of(model_.backend())) {
      if (entry.name != name) continue;
      write_adapter(json, models.front().info, entry);
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
  for (const AdapterShelf::Entry& entry : adapters_of(model_.backend()))
    write_adapter(json, models.front().info, entry);
  json.end_array().end_object();
  return response;
}

// vLLM's: {lora_name, lora_path, load_inplace}, {lora_name}.
WebResponse FrontDoor::change_adapter(const WebRequest& request, WebExchange&) {
  const Backend* backend = model_.backend();
  AdapterShelf* shelf = backend != nullptr ? backend->adapters() : nullptr;
  if (shelf == nullptr || !options_.lora_updates) {
    return error_response(
        {403, "This server loads no adapters for clients; --lora-updates lets it.", "", "lora_updates_off"});
  }
  const Result<Json> body = parse_body(request.body, options_.api.json);
  if (!body) return error_response(ApiError::of(body.error()));
  const auto text = [&](const char* key) {
    const std::string* found = body->object() == nullptr ? nullptr : text_at(*body, key);
    return found != nullptr ? *found : std::string();
  };
  const bool loads = request.path() == "/v1/load_lora_adapter";
  const std::string name = text("lora_name"), path = text("lora_path");
  if (name.empty() || (loads && path.empty())) {
    const char* what = name.empty() ? "lora_name" : "lora_path";
    return error_response(ApiError::of(invalid(std::string(what) + " is missing.", what)));
  }
  const ModelInfo& model = backend->model();
  const std::vector<std::string> names = model_names(model, options_);
  if (loads && std::ranges::find(names, name) != names.end())
    return error_response(ApiError::of(invalid("The model itself has the name " + in_quotes(name) + ".", "lora_name")));
  const Json* in_place = loads ? body->find("load_inplace") : nullptr;
  const bool replaces = in_place != nullptr && in_place->boolean() != nullptr && *in_place->boolean();
  const Status done = loads ? shelf->load(name, path, replaces) : shelf->unload(name);
  if (!done) return error_response(ApiError::of(done.error()));
  WebResponse response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = "Success: LoRA adapter '" + name + "' " + (loads ? "added" : "removed") + " successfully.";
  return response;
}

// llama.cpp's list.
WebResponse FrontDoor::lora_adapters(const WebRequest& request, WebExchange&) {
  if (request.method == "POST") {
    return error_response(ApiError::of(unsupported(
        "One scale for all requests would change what they mean; a request names its adapter as its model.", "scale")));
  }
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_array();
  int64_t id = 0;
  for (const AdapterShelf::Entry& entry : adapters_of(model_.backend())) {
    json.begin_object().field("id", id++).field("name", entry.name).field("path", entry.path);
    json.key("scale").number(entry.name == options_.default_adapter ? 1 : 0, 1);
    json.end_object();
  }
  json.end_array();
  return response;
}

// By rank, as vLLM's engines answer its routers: there is one.
WebResponse FrontDoor::kv_event_sources(const WebRequest&, WebExchange&) {
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_object().key("0");
  write_event_source(json, options_.kv_events);
  json.end_object();
  return response;
}

// SGLang's, which its router and smg ask workers for: what it is called, how many ranks it has, its cache and its
// events.
WebResponse FrontDoor::server_info(const WebRequest&, WebExchange&) {
  const Backend* backend = model_.backend();
  if (backend == nullptr)
    return error_response({503, "One model is described here, and none is loaded.", "", "loading", 1});
  const ModelInfo& model = backend->model();
  const EngineStats stats = backend->stats();
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_object()
      .field("version", IBID_VERSION)
      .field("arithmetic", arithmetic_id())
      .field("model_path", model.name)
      .field("served_model_name", model.name)
      .field("digest", model.digest)
      .field("context_length", int64_t{model.context_len})
      .field("status", health_word());
  for (const char* ranks : {"tp_size", "pp_size", "dp_size"}) json.field(ranks, int64_t{1});
  json.field("page_size", int64_t{model.block_len})
      .field("max_total_num_tokens", int64_t{stats.blocks_total} * model.block_len)
      .field("kv_cache_dtype", model.kv_dtype);
  json.key("disable_radix_cache").boolean(!model.shares_prefixes);
  json.key("enable_lora").boolean(backend->adapters() != nullptr).key("kv_events_config");
  options_.kv_events.on() ? write_event_source(json, options_.kv_events) : static_cast<void>(json.null());
  json.end_object();
  return response;
}

WebResponse FrontDoor::move_request(const WebRequest& request, WebExchange& exchange) {
  if (!options_.allow_moves)
    return error_response({501, "This server moves no requests; --allow-moves enables it.", "", "not_supported"});
  constexpr std::string_view kBefore = "/v1/requests/", kAfter = "/move";
  std::string_view id = request.path().substr(kBefore.size());
  id.remove_suffix(kAfter.size());
  Result<std::string> snapshot = state_.movable.move(percent_decoded(id), exchange.tenant, options_.api.json);
  if (!snapshot) return error_response({404, snapshot.error().message, "id", "not_found"});
  return json_response(*std::move(snapshot));
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
  if (backend != nullptr) append_replica_facts(response.body, replica_facts(*backend));
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
