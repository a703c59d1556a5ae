#include "server/routes/batch_lines.h"

#include "base/json_writer.h"
#include "server/fields/parse_body.h"
#include "server/routes/batches.h"

namespace ibid {
namespace {

JsonWriter& begin_line(JsonWriter& json, int64_t number, const std::string& custom_id) {
  json.begin_object().field("id", "batch_req_" + std::to_string(number)).key("custom_id");
  return custom_id.empty() ? json.null() : json.string(custom_id);
}

}  // namespace

bool is_blank_line(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

Result<BatchLine> read_batch_line(const std::string& text, const std::string& endpoint, size_t max_line,
                                  std::string& custom_id) {
  if (text.size() > max_line)
    return invalid("It has " + std::to_string(text.size()) + " bytes; " + std::to_string(max_line) + " are the most.");
  ASSIGN_OR_RETURN(const Json json, parse_body(text));
  if (json.object() == nullptr) return invalid(std::string("It must be a JSON object, not ") + json.kind() + ".");
  const Json* id = json.find("custom_id");
  if (id == nullptr || id->string() == nullptr || id->string()->empty() || id->string()->size() > 512)
    return invalid("custom_id is missing; it must be a text of 1 to 512 bytes.");
  custom_id = *id->string();
  const Json* method = json.find("method");
  if (method == nullptr || method->string() == nullptr || *method->string() != "POST")
    return invalid("method must be POST.");
  const Json* url = json.find("url");
  if (url == nullptr || url->string() == nullptr || *url->string() != endpoint)
    return invalid("url must be the batch's endpoint, " + endpoint + ".");
  const Json* body = json.find("body");
  if (body == nullptr || body->object() == nullptr) return invalid("body is missing; it must be an object.");
  if (const Json* stream = body->find("stream");
      stream != nullptr && stream->boolean() != nullptr && *stream->boolean())
    return invalid("stream is not for batches; leave it out.");
  return BatchLine{custom_id, body->text()};
}

std::string batch_error_line(int64_t number, const std::string& custom_id, const Error& error) {
  std::string out;
  JsonWriter json(out);
  begin_line(json, number, custom_id).key("response").null().key("error").begin_object();
  json.field("code", "invalid_line").field("message", "Line " + std::to_string(number + 1) + ": " + error.message);
  json.end_object().end_object();
  return out + "\n";
}

std::string batch_answer_line(int64_t number, const std::string& custom_id, const std::string& request_id, int status,
                              const std::string& body) {
  std::string out;
  JsonWriter json(out);
  begin_line(json, number, custom_id).key("response").begin_object();
  json.field("status_code", int64_t{status}).field("request_id", request_id).key("body").raw(body).end_object();
  json.key("error").null().end_object();
  return out + "\n";
}

std::string batch_json(const Batch& batch) {
  std::string out;
  JsonWriter json(out);
  const auto time = [&](const char* name, int64_t at) {
    json.key(name);
    at > 0 ? json.integer(at) : json.null();
  };
  const auto id = [&](const char* name, const std::string& of) {
    json.key(name);
    of.empty() ? json.null() : json.string(of);
  };
  json.begin_object().field("id", batch.id).field("object", "batch").field("endpoint", batch.endpoint).key("errors");
  if (batch.error.empty()) {
    json.null();
  } else {
    json.begin_object().field("object", "list").key("data").begin_array().begin_object();
    json.field("code", "failed").field("message", batch.error).key("param").null().key("line").null();
    json.end_object().end_array().end_object();
  }
  json.field("input_file_id", batch.input_file).field("completion_window", batch.window).field("status", batch.status);
  const bool is_over = batch.is_over();  // the files are there
  id("output_file_id", is_over ? batch.output_file : "");
  id("error_file_id", is_over ? batch.error_file : "");
  json.field("created_at", batch.created);
  time("in_progress_at", batch.begun);
  time("expires_at", 0);
  time("finalizing_at", batch.finalizing);
  time("completed_at", batch.status == "completed" ? batch.ended : 0);
  time("failed_at", batch.status == "failed" ? batch.ended : 0);
  time("expired_at", 0);
  time("cancelling_at", batch.cancelling);
  time("cancelled_at", batch.status == "cancelled" ? batch.ended : 0);
  json.key("request_counts").begin_object().field("total", batch.n_total).field("completed", batch.n_completed);
  json.field("failed", batch.n_failed).end_object().key("metadata").raw(batch.metadata).end_object();
  return out;
}

}  // namespace ibid
