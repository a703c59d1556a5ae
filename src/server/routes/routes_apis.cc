// Routes of other servers' APIs that answer at once.
#include <algorithm>
#include <array>
#include <cstdio>

#include "base/json_writer.h"
#include "base/quoted.h"
#include "server/answer/logprobs_json.h"
#include "server/fields/body_parts.h"
#include "server/fields/parse_body.h"
#include "server/request/build_requests.h"
#include "server/request/model_names.h"
#include "server/routes/front_door.h"
#include "server/routes/model_service.h"

namespace ibid {
namespace {

constexpr std::string_view kResponsesPath = "/v1/responses/";

WebResponse no_response(std::string_view id) {
  return error_response(
      {404,
       "Response with id " + in_quotes(id, 64) + " not found. It was never stored, was deleted, or had to make room.",
       "response_id", "not_found"});
}

// The response that the path names.
std::string_view response_in(const WebRequest& request) {
  const std::string_view rest = request.path().substr(kResponsesPath.size());
  return rest.substr(0, rest.find('/'));
}

// The version of Ollama's API that is spoken; clients refuse to talk to an older one. ibid's own is in /version.
constexpr std::string_view kOllamaVersion = "0.13.5";

// As Ollama prints it: "134.52M"; empty where it is not known.
std::string parameter_size(int64_t n) {
  if (n <= 0) return "";
  constexpr std::array<std::pair<double, char>, 4> kUnits = {{{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}}};
  const auto value = static_cast<double>(n);
  char text[32];
  for (const auto& [unit, letter] : kUnits) {
    if (value >= unit)
      return {text, static_cast<size_t>(std::snprintf(text, sizeof text, "%.2f%c", value / unit, letter))};
  }
  return std::to_string(n);
}

void write_details(JsonWriter& json, const ModelInfo& model) {
  const bool is_folder = !model.file.empty() && !model.file.ends_with(".gguf");
  json.key("details").begin_object().field("parent_model", "").field("format", is_folder ? "safetensors" : "gguf");
  json.field("family", model.architecture).key("families").begin_array().string(model.architecture).end_array();
  json.field("parameter_size", parameter_size(model.n_parameters)).field("quantization_level", model.weights);
  json.end_object();
}

}  // namespace

WebResponse FrontDoor::response_by_id(const WebRequest& request, WebExchange& exchange) {
  const auto found = state_.stored.find(response_in(request), exchange.tenant, now());
  return found == nullptr ? no_response(response_in(request)) : json_response(found->response);
}

WebResponse FrontDoor::response_input(const WebRequest& request, WebExchange& exchange) {
  const std::string_view id = response_in(request);
  const auto found = state_.stored.find(id, exchange.tenant, now());
  if (found == nullptr) return no_response(response_in(request));
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_object().field("object", "list").key("data").begin_array();
  const auto item_id = [&](size_t i) { return "item_" + std::string(id.substr(5)) + "_" + std::to_string(i); };
  for (size_t i = 0; i < found->input.size(); ++i) {
    Json item = found->input[i];
    if (item.find("id") == nullptr) set(item, "id", Json(item_id(i)));
    json.value(item);
  }
  json.end_array().key("first_id");
  found->input.empty() ? json.null() : json.string(item_id(0));
  json.key("last_id");
  found->input.empty() ? json.null() : json.string(item_id(found->input.size() - 1));
  json.key("has_more").boolean(false).end_object();
  return response;
}

WebResponse FrontDoor::delete_response(const WebRequest& request, WebExchange& exchange) {
  const std::string_view id = response_in(request);
  if (!state_.stored.erase(id, exchange.tenant)) return no_response(response_in(request));
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_object().field("id", id).field("object", "response").key("deleted").boolean(true).end_object();
  return response;
}

WebResponse FrontDoor::cancel_response(const WebRequest& request, WebExchange& exchange) {
  if (state_.stored.find(response_in(request), exchange.tenant, now()) == nullptr)
    return no_response(response_in(request));
  return error_response(
      {400,
       "Cannot cancel a synchronous response. None is served in the background: one that is under way "
       "ends with its connection.",
       "response_id", "unsupported_value"});
}

// /api/tags, and of those what is loaded in /api/ps.
WebResponse FrontDoor::ollama_tags(const WebRequest& request, WebExchange&) {
  const std::vector<ListedModel> models = listed();
  if (models.empty()) return error_response({503, "The model is still loading.", "", "loading", 1});
  const bool is_ps = request.path() == "/api/ps";
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_object().key("models").begin_array();
  for (const ListedModel& model : models) {
    if (is_ps && !model.is_loaded) continue;
    for (const std::string& name : model.names) {
      json.begin_object().field("name", name).field("model", name);
      json.field("size", model.info.file_bytes).field("digest", model.info.digest);
      if (is_ps) {
        json.field("expires_at", "9999-12-31T23:59:59Z").field("size_vram", int64_t{0});
        json.field("context_length", int64_t{model.info.context_len});
      } else {
        json.field("modified_at", rfc3339(model.info.created));
      }
      write_details(json, model.info);
      json.end_object();
    }
  }
  json.end_array().end_object();
  return response;
}

WebResponse ModelService::ollama_show(const WebRequest& request, WebExchange&) {
  Backend& backend = *backend_.load();
  const ModelInfo& model = backend.model();
  const auto name = [&]() -> Result<std::string> {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    const std::string* asked = text_at(body, "model");
    if (asked == nullptr) asked = text_at(body, "name");
    if (asked == nullptr) return invalid("model is missing; it must be a text.", "model");
    const std::string known = asked->ends_with(":latest") ? asked->substr(0, asked->size() - 7) : *asked;
    return answering_name(known, model, options_);
  }();
  if (!name) return error_response(ApiError::of(name.error()));
  WebResponse response;
  JsonWriter json(response.body);
  const std::string context = std::to_string(model.context_len);
  json.begin_object().field("license", model.license);
  json.field("modelfile", "FROM " + model.file + "\nPARAMETER num_ctx " + context + "\n");
  json.field("parameters", "num_ctx                        " + context);
  json.field("template", backend.chat_template()).field("modified_at", rfc3339(model.created));
  write_details(json, model);
  json.key("model_info").begin_object().field("general.architecture", model.architecture);
  if (model.n_parameters > 0) json.field("general.parameter_count", model.n_parameters);
  if (!model.license.empty()) json.field("general.license", model.license);
  json.field(model.architecture + ".context_length", int64_t{model.context_len});
  json.field(model.architecture + ".embedding_length", int64_t{model.width}).end_object();
  json.key("capabilities").begin_array();
  for (const std::string& capability : capabilities()) json.string(capability);
  json.end_array().end_object();
  return response;
}

WebResponse FrontDoor::ollama_version(const WebRequest&, WebExchange&) {
  WebResponse response;
  JsonWriter(response.body).begin_object().field("version", kOllamaVersion).end_object();
  return response;
}

// What changes the models of an Ollama.
WebResponse FrontDoor::ollama_manage(const WebRequest& request, WebExchange&) {
  return error_response(ApiError::of(
      unsupported("Models are not changed over the network here, so " + std::string(request.path()) +
                      " is not served: this server has the models that it was started with (/api/tags lists them); "
                      "`ibid pull` fetches others.",
                  "model")));
}

WebResponse ModelService::props(const WebRequest&, WebExchange&) {
  Backend& backend = *backend_.load();
  const ModelInfo& model = backend.model();
  ApiRequest defaults;
  defaults.sampling = model.sampling.params;
  defaults.sampling.seed = options_.api.defaults.seed.value_or(0);
  defaults.max_tokens = options_.api.defaults.max_tokens;
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_object().key("default_generation_settings").begin_object().field("n_ctx", int64_t{model.context_len});
  json.key("params").raw(settings_json(defaults, backend.tokenizer().vocabulary())).end_object();
  json.field("total_slots", int64_t{options_.n_slots}).field("model_path", model.file).field("model_alias", model.name);
  json.field("chat_template", backend.chat_template());
  const Vocabulary& vocabulary = backend.tokenizer().vocabulary();
  for (const auto& [name, id] : {std::pair{"bos_token", vocabulary.bos}, std::pair{"eos_token", vocabulary.eos}})
    json.field(name, id == TokenId::kNone ? "" : token_text(backend.tokenizer(), id));
  json.key("modalities")
      .begin_object()
      .key("vision")
      .boolean(backend.pictures() != nullptr)
      .key("audio")
      .boolean(false)
      .end_object();
  json.key("chat_template_caps").begin_object().key("supports_tools").boolean(true).end_object();
  json.field("build_info", "ibid-" IBID_VERSION).key("is_sleeping").boolean(false).end_object();
  return response;
}

// How many are under way, and nothing of whose they are or what they contain.
WebResponse ModelService::slots(const WebRequest&, WebExchange&) {
  if (!options_.slots)
    return error_response({501, "This server does not show its slots; --slots enables it.", "", "not_supported"});
  const Backend& backend = *backend_.load();
  const EngineStats stats = backend.stats();
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_array();
  for (int32_t i = 0; i < options_.n_slots; ++i) {
    json.begin_object().field("id", int64_t{i}).field("n_ctx", int64_t{backend.model().context_len});
    json.key("is_processing").boolean(i < stats.n_running).end_object();
  }
  json.end_array();
  return response;
}

WebResponse ModelService::load(const WebRequest&, WebExchange&) {
  return json_response("{\"server_load\":" + std::to_string(router_.size()) + "}");
}

}  // namespace ibid
