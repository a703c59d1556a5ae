// Routes about tokens, templates and the engine's steps that a model's service answers at once.
#include <algorithm>
#include <charconv>

#include "base/json_writer.h"
#include "base/utf8.h"
#include "server/answer/logprobs_json.h"
#include "server/dialects/dialects.h"
#include "server/fields/parse_body.h"
#include "server/fields/read_fields.h"
#include "server/request/build_requests.h"
#include "server/request/model_names.h"
#include "server/routes/model_service.h"
#include "server/wire/api_error.h"
#include "server/wire/query.h"

namespace ibid {
namespace {

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

}  // namespace

WebResponse ModelService::response_tokens(const WebRequest& request, WebExchange& exchange) {
  Backend& backend = *backend_.load();
  const auto count = [&]() -> Result<size_t> {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    ASSIGN_OR_RETURN(const DialectBody own, body_of_response(body, [&](std::string_view id) {
                       return state_.stored.find(id, exchange.tenant, now());
                     }));
    exchange.is_ours = true;
    ApiLimits limits = options_.api;
    limits.max_tool_name = exchange.api->max_tool_name;
    ASSIGN_OR_RETURN(const ApiRequest api, parse_api_request(Endpoint::kChat, own.body, limits));
    TRY(answering_name(api.model, backend.model(), options_));
    ASSIGN_OR_RETURN(const RenderedPrompt chat, backend.render_chat(api.chat));
    return encode_chat(chat, backend.tokenizer(), api.add_special).size();
  }();
  if (!count) return error_response(ApiError::of(count.error()));
  return json_response("{\"object\":\"response.input_tokens\",\"input_tokens\":" + std::to_string(*count) + "}");
}

WebResponse ModelService::count_tokens(const WebRequest& request, WebExchange& exchange) {
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
WebResponse ModelService::chat_tokens(const WebRequest& request, WebExchange& exchange) {
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

WebResponse ModelService::tokenize(const WebRequest& request, WebExchange& exchange) {
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

WebResponse ModelService::detokenize(const WebRequest& request, WebExchange&) {
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

WebResponse ModelService::apply_template(const WebRequest& request, WebExchange& exchange) {
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

WebResponse ModelService::tokenizer_info(const WebRequest&, WebExchange&) {
  Backend& backend = *backend_.load();
  const Vocabulary& vocabulary = backend.tokenizer().vocabulary();
  WebResponse response;
  JsonWriter json(response.body);
  json.begin_object().field("tokenizer_class", "ibid").field("vocab_size", int64_t{backend.tokenizer().vocab_size()});
  for (const auto& [name, id] : {std::pair{"bos_token", vocabulary.bos}, std::pair{"eos_token", vocabulary.eos}}) {
    json.key(name);
    id == TokenId::kNone ? json.null() : json.string(token_text(backend.tokenizer(), id));
    json.key(std::string(name) + "_id");
    id == TokenId::kNone ? json.null() : json.integer(raw(id));
  }
  json.key("add_bos_token").boolean(vocabulary.add_bos);
  json.field("chat_template", backend.chat_template()).field("max_model_len", int64_t{backend.model().context_len});
  json.end_object();
  return response;
}

WebResponse ModelService::engine_view(const WebRequest& request, WebExchange&) {
  const Backend& backend = *backend_.load();
  int64_t since = -1;
  if (const std::optional<std::string_view> given = query_value(request.query(), "since")) {
    const char* end = given->data() + given->size();
    const auto read = std::from_chars(given->data(), end, since);
    if (read.ec != std::errc() || read.ptr != end || since < -1)
      return error_response(ApiError::of(invalid("since must be the number of a step, or -1.", "since")));
  }
  WebResponse response =
      json_response(live_.json(backend.stats(), state_.quotas.figures(), since, backend.clock().now()));
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

}  // namespace ibid
