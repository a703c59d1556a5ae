// /v1/files and /v1/batches, as OpenAI has them.
#include <algorithm>
#include <array>
#include <charconv>

#include "base/json_writer.h"
#include "base/quoted.h"
#include "base/utf8.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/parse_body.h"
#include "server/fields/read_fields.h"
#include "server/routes/batches.h"
#include "server/routes/front_door.h"
#include "server/wire/multipart.h"
#include "server/wire/query.h"

namespace ibid {
namespace {

constexpr std::array<std::string_view, 4> kEndpoints = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                                                        "/v1/responses"};
constexpr int64_t kMostListed = 10'000;

WebResponse not_served() {
  return error_response({404, "This server keeps no files; --files-dir lets it.", "", "not_supported"});
}

WebResponse no_such(const char* what, const char* param) {
  return error_response({404, std::string("There is no such ") + what + ".", param, "not_found"});
}

// The third part of the path: /v1/files/ID/content.
std::string_view id_in(const WebRequest& request) {
  std::string_view rest = request.path();
  for (int i = 0; i < 3; ++i) rest.remove_prefix(std::min(rest.size(), rest.find('/') + 1));
  return rest.substr(0, rest.find('/'));
}

// A page of a list: `limit` of those after `after`.
template <typename Item, typename Write>
WebResponse page_of(const WebRequest& request, const std::vector<Item>& all, int64_t limit, Write write) {
  if (const auto given = query_value(request.query(), "limit")) {
    const auto read = std::from_chars(given->data(), given->data() + given->size(), limit);
    if (read.ec != std::errc() || read.ptr != given->data() + given->size() || limit < 1 || limit > kMostListed)
      return error_response(ApiError::of(invalid("limit must be a whole number from 1 to 10000.", "limit")));
  }
  size_t begin = 0;
  if (const auto after = query_value(request.query(), "after")) {
    const auto found = std::ranges::find(all, *after, &Item::id);
    if (found == all.end()) return no_such("item to go on after", "after");
    begin = static_cast<size_t>(found - all.begin()) + 1;
  }
  const size_t end = std::min(all.size(), begin + static_cast<size_t>(limit));
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("object", "list").key("data").begin_array();
  for (size_t i = begin; i < end; ++i) json.raw(write(all[i]));
  json.end_array();
  const auto id = [&](const char* name, size_t i) {
    json.key(name);
    begin < end ? json.string(all[i].id) : json.null();
  };
  id("first_id", begin);
  id("last_id", end - 1);
  json.key("has_more").boolean(end < all.size()).end_object();
  return json_response(std::move(out));
}

Result<StoredFile> upload(const WebRequest& request, const std::string& tenant, FileStore& files) {
  ASSIGN_OR_RETURN(const std::vector<FormPart> parts, parse_multipart(request.header("content-type"), request.body));
  const FormPart *file = nullptr, *purpose = nullptr;
  for (const FormPart& part : parts) {
    if (part.name == "file") file = &part;
    if (part.name == "purpose") purpose = &part;
  }
  if (file == nullptr) return invalid("file is missing; it must be a part of the form.", "file");
  if (purpose == nullptr || purpose->content != "batch")
    return unsupported("purpose must be \"batch\"; files are kept for nothing else here.", "purpose");
  const bool is_name = file->filename.size() <= 255 && utf8::is_valid(file->filename);
  return files.create(tenant, is_name && !file->filename.empty() ? file->filename : "upload.jsonl", "batch",
                      file->content);
}

Result<Batch> read_batch(const Json& body, const std::string& tenant, const FileStore& files) {
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  Batch batch;
  batch.tenant = tenant;
  const std::string* endpoint = text_at(body, "endpoint");
  if (endpoint == nullptr || std::ranges::find(kEndpoints, *endpoint) == kEndpoints.end())
    return invalid("endpoint must be /v1/chat/completions, /v1/completions, /v1/embeddings or /v1/responses.",
                   "endpoint");
  batch.endpoint = *endpoint;
  const std::string* input = text_at(body, "input_file_id");
  if (input == nullptr || !files.find(*input, tenant))
    return invalid("input_file_id must be the id of a file that was uploaded.", "input_file_id");
  batch.input_file = *input;
  const std::string* window = text_at(body, "completion_window");
  if (window == nullptr || *window != "24h")
    return invalid("completion_window must be \"24h\"; a batch takes as long as it takes.", "completion_window");
  batch.window = *window;
  if (const Json* metadata = given(body, "metadata")) {
    const bool is_map = metadata->object() != nullptr && metadata->object()->size() <= 16 &&
                        std::ranges::all_of(*metadata->object(), [](const Json::Member& member) {
                          return member.first.size() <= 64 && member.second.string() != nullptr &&
                                 member.second.string()->size() <= 512;
                        });
    if (!is_map) return invalid("metadata must be an object of at most 16 short texts.", "metadata");
    batch.metadata = metadata->text();
  }
  return batch;
}

}  // namespace

WebResponse FrontDoor::create_file(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  const Result<StoredFile> file = upload(request, exchange.tenant, batches_->files());
  return file ? json_response(file_json(*file)) : error_response(ApiError::of(file.error()));
}

WebResponse FrontDoor::list_files(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  return page_of(request, batches_->files().list(exchange.tenant), kMostListed, file_json);
}

WebResponse FrontDoor::file_by_id(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  const std::optional<StoredFile> file = batches_->files().find(id_in(request), exchange.tenant);
  return file ? json_response(file_json(*file)) : no_such("file", "file_id");
}

WebResponse FrontDoor::delete_file(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  const std::string id(id_in(request));
  if (!batches_->files().remove(id, exchange.tenant)) return no_such("file", "file_id");
  std::string out;
  JsonWriter(out).begin_object().field("id", id).field("object", "file").key("deleted").boolean(true).end_object();
  return json_response(std::move(out));
}

WebResponse FrontDoor::file_content(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  const std::optional<StoredFile> file = batches_->files().find(id_in(request), exchange.tenant);
  if (!file) return no_such("file", "file_id");
  if (const std::optional<ApiError> refusal = state_.reserve(exchange, 2 * file->bytes, "id"))
    return error_response(*refusal);
  Result<std::string> content = read_whole(batches_->files().path_of(file->id));
  if (!content) return error_response(ApiError::of(content.error()));
  WebResponse response;
  response.content_type = "application/octet-stream";
  response.body = *std::move(content);
  return response;
}

WebResponse FrontDoor::create_batch(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  if (draining_) return error_response({503, "The server is shutting down.", "", "shutting_down", 5});
  const auto batch = [&]() -> Result<Batch> {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    ASSIGN_OR_RETURN(Batch read, read_batch(body, exchange.tenant, batches_->files()));
    return batches_->create(std::move(read));
  }();
  return batch ? json_response(batch_json(*batch)) : error_response(ApiError::of(batch.error()));
}

WebResponse FrontDoor::list_batches(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  return page_of(request, batches_->list(exchange.tenant), 20, batch_json);
}

WebResponse FrontDoor::batch_by_id(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  const std::optional<Batch> batch = batches_->find(id_in(request), exchange.tenant);
  return batch ? json_response(batch_json(*batch)) : no_such("batch", "batch_id");
}

WebResponse FrontDoor::cancel_batch(const WebRequest& request, WebExchange& exchange) {
  if (batches_ == nullptr) return not_served();
  const std::optional<Batch> batch = batches_->cancel(id_in(request), exchange.tenant);
  return batch ? json_response(batch_json(*batch)) : no_such("batch", "batch_id");
}

}  // namespace ibid
