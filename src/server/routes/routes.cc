// The routes that answer at once.
#include <algorithm>
#include <charconv>

#include "base/json_writer.h"
#include "base/utf8.h"
#include "kernels/arithmetic_version.h"
#include "server/answer/logprobs_json.h"
#include "server/dialects/dialects.h"
#include "server/fields/openapi.h"
#include "server/fields/parse_body.h"
#include "server/fields/read_fields.h"
#include "server/request/build_requests.h"
#include "server/request/model_names.h"
#include "server/routes/page_files.h"
#include "server/routes/service.h"
#include "server/wire/query.h"

namespace ibid {
namespace {

WebResponse json_response(std::string body) {
  WebResponse response;
  response.body = std::move(body);
  return response;
}

Result<bool> read_flag(const Json& body, const char* name, bool otherwise) {
  const Json* value = body.find(name);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->boolean() == nullptr) return wrong_value(name, "true or false", *value);
  return *value->boolean();
}

// Null where it is absent.
Result<const std::string*> read_text(const Json& body, const char* name) {
  const Json* value = body.find(name);
  if (value == nullptr || value->is_null()) return nullptr;
  if (value->string() == nullptr) return wrong_value(name, "a text", *value);
  return value->string();
}

// As chat reads it, so that the result is about what chat would answer to, and what chat refuses is refused.
Result<ApiRequest> read_conversation(const Json& body, const Backend& backend, const ServerOptions& options,
                                     const ApiDialect& dialect) {
  ApiLimits limits = options.api;
  limits.max_tool_name = dialect.max_tool_name;
  ASSIGN_OR_RETURN(ApiRequest api, parse_api_request(Endpoint::kChat, body, limits));
  TRY(answering_name(api.model, backend.model(), options));
  TRY(build_common(api, backend.tokenizer()));
  return api;
}

WebResponse tokens_response(const Tokenizer& tokenizer, std::span<const TokenId> tokens, bool with_pieces,
                            bool with_strings, int32_t context_len) {
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_object().key("tokens").begin_array();
  for (const TokenId id : tokens) {
    if (!with_pieces) {
      json.integer(raw(id));
      continue;
    }
    json.begin_object().field("id", int64_t{raw(id)}).key("piece");
    const std::string_view bytes = tokenizer.token_bytes(id, true);
    if (utf8::is_valid(bytes)) {
      json.string(bytes);
    } else {
      json.begin_array();
      for (const char c : bytes) json.integer(static_cast<unsigned char>(c));
      json.end_array();
    }
    json.end_object();
  }
  json.end_array().field("count", static_cast<int64_t>(tokens.size()));
  json.field("max_model_len", int64_t{context_len}).key("token_strs");
  if (with_strings) {
    json.begin_array();
    for (const TokenId id : tokens) json.string(tokenizer.vocabulary().tokens[static_cast<size_t>(raw(id))]);
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
  return response;
}

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

std::string_view Service::health_word() const {
  if (draining_) return "draining";
  if (fleet_ != nullptr) return "ready";
  const Backend* backend = backend_;
  if (backend == nullptr) return "loading";
  const EngineStats stats = backend->stats();
  const bool work_waits = stats.n_running + stats.n_waiting > 0 || router_.size() > 0;
  return work_waits && backend->clock().now() - backend->heartbeat() > options_.stall_timeout ? "stalled" : "ready";
}

WebResponse Service::health(const WebRequest&, WebExchange&) {
  const std::string_view word = health_word();
  WebResponse response;
  response.status = word == "ready" ? 200 : 503;
  JsonWriter json(response.body);
  json.begin_object().field("status", word);
  if (const Backend* backend = backend_) {
    const EngineStats stats = backend->stats();
    json.field("running", int64_t{stats.n_running}).field("waiting", int64_t{stats.n_waiting});
    json.key("heartbeat_age").number(std::max(0.0, backend->clock().now() - backend->heartbeat()), 3);
  }
  json.end_object();
  return response;
}

WebResponse Service::version(const WebRequest&, WebExchange&) {
  return json_response("{\"version\":\"" IBID_VERSION "\"}");
}

WebResponse Service::models(const WebRequest& request, WebExchange&) {
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

WebResponse Service::count_tokens(const WebRequest& request, WebExchange& exchange) {
  Backend& backend = *backend_.load();
  const auto count = [&]() -> Result<size_t> {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    ASSIGN_OR_RETURN(const DialectBody own, body_of_messages(body, true));
    exchange.is_ours = true;
    ASSIGN_OR_RETURN(const ApiRequest api, read_conversation(own.body, backend, options_, *exchange.api));
    ASSIGN_OR_RETURN(const RenderedPrompt chat, backend.render_chat(api.chat));
    return encode_chat(chat, backend.tokenizer(), api.add_special).size();
  }();
  if (!count) return error_response(ApiError::of(count.error()));
  return json_response("{\"input_tokens\":" + std::to_string(*count) + "}");
}

// llama.cpp's count of what a chat would read.
WebResponse Service::chat_tokens(const WebRequest& request, WebExchange& exchange) {
  Backend& backend = *backend_.load();
  const auto count = [&]() -> Result<size_t> {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    ASSIGN_OR_RETURN(const ApiRequest api, read_conversation(body, backend, options_, *exchange.api));
    ASSIGN_OR_RETURN(const RenderedPrompt chat, backend.render_chat(api.chat));
    return encode_chat(chat, backend.tokenizer(), api.add_special).size();
  }();
  if (!count) return error_response(ApiError::of(count.error()));
  return json_response(R"({"object":"response.input_tokens","input_tokens":)" + std::to_string(*count) + "}");
}

WebResponse Service::tokenize(const WebRequest& request, WebExchange& exchange) {
  Backend& backend = *backend_.load();
  const Tokenizer& tokenizer = backend.tokenizer();
  bool with_strings = false;
  const auto tokens = [&]() -> Result<std::pair<std::vector<TokenId>, bool>> {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    if (body.object() == nullptr)
      return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
    ASSIGN_OR_RETURN(with_strings, read_flag(body, "return_token_strs", false));
    ASSIGN_OR_RETURN(const bool with_pieces, read_flag(body, "with_pieces", false));
    ASSIGN_OR_RETURN(const bool parse_special, read_flag(body, "parse_special", true));
    TRY(read_flag(body, "add_generation_prompt", true));  // of messages, and wrong beside a text too
    // llama.cpp names it "content" and adds nothing by itself; vLLM names it "prompt" and adds what the model needs.
    ASSIGN_OR_RETURN(const bool add_to_content, read_flag(body, "add_special", false));
    ASSIGN_OR_RETURN(const bool add_to_prompt, read_flag(body, "add_special_tokens", true));
    ASSIGN_OR_RETURN(const std::string* content, read_text(body, "content"));
    ASSIGN_OR_RETURN(const std::string* prompt, read_text(body, "prompt"));
    if (const Json* messages = body.find("messages"); messages != nullptr && !messages->is_null()) {
      ASSIGN_OR_RETURN(const ApiRequest api, read_conversation(body, backend, options_, *exchange.api));
      ASSIGN_OR_RETURN(const RenderedPrompt chat, backend.render_chat(api.chat));
      return std::pair(encode_chat(chat, tokenizer, api.add_special), with_pieces);
    }
    if (content == nullptr && prompt == nullptr)
      return invalid("content is missing; it must be a text (or give messages).", "content");
    const bool add = content != nullptr ? add_to_content : add_to_prompt;
    std::vector<TokenId> ids;
    tokenizer.encode(content != nullptr ? *content : *prompt, {.add_special = add, .parse_special = parse_special},
                     ids);
    return std::pair(std::move(ids), with_pieces);
  }();
  if (!tokens) return error_response(ApiError::of(tokens.error()));
  return tokens_response(tokenizer, tokens->first, tokens->second, with_strings, backend.model().context_len);
}

WebResponse Service::detokenize(const WebRequest& request, WebExchange&) {
  const Tokenizer& tokenizer = backend_.load()->tokenizer();
  const auto text = [&]() -> Result<std::string> {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    if (body.object() == nullptr)
      return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
    const Json* tokens = body.find("tokens");
    if (tokens == nullptr) return invalid("tokens is missing; it must be an array of token ids.", "tokens");
    ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_token_ids(*tokens, "tokens"));
    for (const TokenId id : ids) {
      if (raw(id) >= tokenizer.vocab_size()) {
        return invalid("tokens has the id " + std::to_string(raw(id)) + "; the model's ids go from 0 to " +
                           std::to_string(tokenizer.vocab_size() - 1) + ".",
                       "tokens");
      }
    }
    return decode(tokenizer, ids, true);
  }();
  if (!text) return error_response(ApiError::of(text.error()));
  WebResponse response;
  JsonWriter(response.body).begin_object().field("content", *text).field("prompt", *text).end_object();
  return response;
}

WebResponse Service::apply_template(const WebRequest& request, WebExchange& exchange) {
  Backend& backend = *backend_.load();
  const auto prompt = [&]() -> Result<RenderedPrompt> {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    ASSIGN_OR_RETURN(const ApiRequest api, read_conversation(body, backend, options_, *exchange.api));
    return backend.render_chat(api.chat);
  }();
  if (!prompt) return error_response(ApiError::of(prompt.error()));
  WebResponse response;
  JsonWriter(response.body).begin_object().field("prompt", prompt->text).end_object();
  return response;
}

WebResponse Service::metrics_text(const WebRequest&, WebExchange&) {
  const Backend* backend = backend_;
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
                               quotas_.figures()};
  response.body = backend != nullptr
                      ? metrics_.text(backend->stats(), gauges, options_.metric_names, backend->model().name)
                      : metrics_.text(stats(), gauges, options_.metric_names);
  if (fleet != nullptr) response.body += fleet->metrics_text();
  return response;
}

WebResponse Service::engine_view(const WebRequest& request, WebExchange&) {
  const Backend& backend = *backend_.load();
  int64_t since = -1;
  if (const std::optional<std::string_view> given = query_value(request.query(), "since")) {
    const char* end = given->data() + given->size();
    const auto read = std::from_chars(given->data(), end, since);
    if (read.ec != std::errc() || read.ptr != end || since < -1)
      return error_response(ApiError::of(invalid("since must be the number of a step, or -1.", "since")));
  }
  WebResponse response = json_response(live_.json(backend.stats(), quotas_.figures(), since, backend.clock().now()));
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

WebResponse Service::openapi(const WebRequest&, WebExchange&) {
  const Backend* backend = backend_;
  return json_response(backend != nullptr ? openapi_json(options_.api, backend->tokenizer().vocab_size() - 1,
                                                         backend->model().sampling, options_.root_path)
                                          : openapi_json(options_.api, INT32_MAX, {}, options_.root_path));
}

WebResponse Service::page(const WebRequest& request, WebExchange&) {
  const auto file = std::ranges::find(page_files(), request.path(), &PageFile::path);
  if (options_.page && file != page_files().end()) return page_response(*file, request);
  return error_response({404, "The page is switched off on this server.", "", "no_such_path"});
}

}  // namespace ibid
