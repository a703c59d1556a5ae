#include "server/wire/api_error.h"

#include "base/json_writer.h"

namespace ibid {

ApiError ApiError::of(const Error& error) {
  switch (error.kind) {
    case ErrorKind::kInvalid:
      return {400, error.message, error.where, "invalid_value"};
    case ErrorKind::kUnsupported:
      return {400, error.message, error.where, "unsupported_value"};
    case ErrorKind::kNotFound:
      return {404, error.message, error.where, error.where == "model" ? "model_not_found" : "not_found"};
    case ErrorKind::kExhausted:
      return {429, error.message, error.where, "queue_full", 1};
    case ErrorKind::kUnavailable:
      return {503, error.message, error.where, "unavailable", 1};
    case ErrorKind::kNoMemory:
      return {503, "The server has no memory left for this request; try again.", "", "out_of_memory", 1};
  }
  return {500, "The server failed.", "", "internal"};
}

ApiError ApiError::of_generation(const Error& error) {
  ApiError out = of(error);
  if (error.kind == ErrorKind::kInvalid) out.code = "generation_failed";
  return out;
}

namespace {

std::string_view error_type(const ApiError& error) {
  if (error.n_ctx > 0) return "exceed_context_size_error";
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return error.status >= 500 && error.status != 501 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

std::string error_json(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("error").begin_object();
  json.field("message", error.message).field("type", error_type(error));
  json.key("param");
  error.param.empty() ? json.null() : json.string(error.param);
  json.key("code");
  error.code.empty() ? json.null() : json.string(error.code);
  if (error.n_ctx > 0) json.field("n_prompt_tokens", error.n_prompt_tokens).field("n_ctx", error.n_ctx);
  write_resume(error, json);
  json.end_object().end_object();
  return out;
}

void write_resume(const ApiError& error, JsonWriter& json) {
  if (!error.resume.empty()) json.key("resume").raw(error.resume).key("seed").large_integer(error.seed);
}

std::string too_long_message(const ApiError& error, std::string_view sentence) {
  std::string out(sentence);
  for (const auto& [mark, n] : {std::pair{"{N}", error.n_prompt_tokens}, std::pair{"{M}", error.n_ctx}})
    out.replace(out.find(mark), 3, std::to_string(n));
  return error.hint.empty() ? out : out + ". " + error.hint;
}

std::string messages_error_members(const ApiError& error) {
  const char* type = error.status == 401   ? "authentication_error"
                     : error.status == 403 ? "permission_error"
                     : error.status == 404 ? "not_found_error"
                     : error.status == 413 ? "request_too_large"
                     : error.status == 429 ? "rate_limit_error"
                     : error.status == 503 ? "overloaded_error"
                     : error.status >= 500 ? "api_error"
                                           : "invalid_request_error";
  std::string out = "\"error\":";
  const bool too_long = error.n_ctx > 0;
  const std::string message =
      too_long ? too_long_message(error, "prompt is too long: {N} tokens > {M} maximum") : error.message;
  JsonWriter json(out);
  json.begin_object().field("type", type).field("message", message);
  write_resume(error, json);
  json.end_object();
  return out;
}

WebResponse error_response(const ApiError& error) {
  WebResponse response;
  response.error = std::make_shared<const ApiError>(error);
  response.status = error.status;
  response.body = error_json(error);
  if (error.retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::string_view error_kind(int status) {
  switch (status) {
    case 400:
    case 501:
      return "bad_request";
    case 401:
    case 403:
      return "forbidden";
    case 404:
    case 405:
      return "not_found";
    case 408:
      return "timeout";
    case 413:
    case 431:
      return "too_large";
    case 429:
      return "too_many";
    case 499:  // in the log alone
      return "client_gone";
    case 503:
      return "unavailable";
    default:
      return status >= 500 ? "internal" : "bad_request";
  }
}

}  // namespace ibid
