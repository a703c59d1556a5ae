// Vertex AI's one path for all that a model does: a request has several instances, each the body of another route.
#include <algorithm>
#include <array>

#include "base/quoted.h"
#include "server/fields/body_parts.h"
#include "server/fields/parse_body.h"
#include "server/fields/read_fields.h"
#include "server/routes/front_door.h"

namespace ibid {
namespace {

constexpr size_t kMaxInstances = 128;  // as llama.cpp's server
constexpr const char* kFormat = "@requestFormat";

// By the name that llama.cpp makes of the path; the path itself works, too.
constexpr std::array<std::pair<std::string_view, const char*>, 12> kFormats = {{
    {"chatCompletions", "/v1/chat/completions"},
    {"completions", "/v1/completions"},
    {"responses", "/v1/responses"},
    {"messages", "/v1/messages"},
    {"embeddings", "/v1/embeddings"},
    {"rerank", "/v1/rerank"},
    {"score", "/v1/score"},
    {"completion", "/completion"},
    {"embedding", "/embedding"},
    {"tokenize", "/tokenize"},
    {"detokenize", "/detokenize"},
    {"applyTemplate", "/apply-template"},
}};

struct Instance {
  const char* path = nullptr;
  Json body;
};

Result<Instance> read_instance(const Json& given, const std::string& where) {
  if (given.object() == nullptr) return wrong_value(where, "an object", given);
  Instance out;
  Json::Object body;
  std::string known;
  for (const auto& [name, path] : kFormats) known += (known.empty() ? "" : ", ") + std::string(name);
  for (const auto& [name, value] : *given.object()) {
    if (name == "stream" && value.boolean() != nullptr && *value.boolean())
      return unsupported(where + ".stream: predictions come whole; leave it out.", where + ".stream");
    if (name != kFormat) {
      body.emplace_back(name, value);
      continue;
    }
    const auto is_asked = [&](const auto& format) {
      return value.string() != nullptr && (*value.string() == format.first || *value.string() == format.second);
    };
    const auto* found = std::ranges::find_if(kFormats, is_asked);
    if (found == kFormats.end()) return wrong_value(where + "." + kFormat, "one of " + known, value);
    out.path = found->second;
  }
  if (out.path == nullptr)
    return invalid(where + "." + kFormat + " is missing; it must be one of " + known + ".", where + "." + kFormat);
  out.body = Json(std::move(body));
  return out;
}

}  // namespace

const std::string* FrontDoor::model_of_instances(const Json& body) {
  const Json* instances = body.object() != nullptr ? body.find("instances") : nullptr;
  if (instances == nullptr || instances->array() == nullptr || instances->array()->empty()) return nullptr;
  return text_at(instances->array()->front(), "model");
}

// An error of the request as a whole refuses it; a route's error for an instance stands in that one's place.
WebResponse FrontDoor::predict(const WebRequest& request, WebExchange& exchange, const std::function<void()>& wake) {
  std::vector<Instance> instances;
  const auto read = [&]() -> Status {
    ASSIGN_OR_RETURN(const Json body, parse_body(request.body, options_.api.json));
    if (body.object() == nullptr)
      return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
    const Json* given = body.find("instances");
    if (given == nullptr || given->array() == nullptr)
      return invalid("instances is missing; it must be an array of objects.", "instances");
    const size_t n = given->array()->size();
    if (n == 0 || n > kMaxInstances) {
      return invalid("instances has " + std::to_string(n) + " of them; 1 to " + std::to_string(kMaxInstances) +
                         " fit into one request.",
                     "instances");
    }
    for (size_t i = 0; i < n; ++i) {
      const std::string where = "instances[" + std::to_string(i) + "]";
      ASSIGN_OR_RETURN(Instance instance, read_instance((*given->array())[i], where));
      const std::string* model = text_at(instance.body, "model");
      const std::vector<std::string> names = service_of(request.model).names();
      if (request.model != nullptr && model != nullptr && std::ranges::find(names, *model) == names.end()) {
        return unsupported(where + ".model is " + in_quotes(*model, 64) + " and the first instance's is " +
                               in_quotes(names.front(), 64) + "; the instances of a request go to one model.",
                           where + ".model");
      }
      instances.push_back(std::move(instance));
    }
    return {};
  };
  if (const Status status = read(); !status) return error_response(ApiError::of(status.error()));
  exchange.instances.reserve(instances.size());
  for (const Instance& instance : instances) {
    WebRequest one;
    one.method = "POST";
    one.target = instance.path;
    one.headers = {
        {"content-type", "application/json"},
        {"x-request-id", exchange.request_id.substr(0, 120) + "." + std::to_string(exchange.instances.size())}};
    one.body = instance.body.text();
    one.arrived = request.arrived;
    one.as_tenant = exchange.tenant;
    one.model = request.model;
    exchange.instances.push_back(handle(one, wake));
  }
  return {};
}

bool FrontDoor::are_predicted(const WebExchange& exchange) {
  return std::ranges::all_of(exchange.instances, [](const WebExchange& instance) {
    return instance.generation == nullptr || instance.generation->finished();
  });
}

WebResponse FrontDoor::predictions(WebExchange& exchange) {
  WebResponse response;
  response.body = "{\"predictions\":[";
  for (WebExchange& instance : exchange.instances) {
    if (&instance != &exchange.instances.front()) response.body += ',';
    if (instance.generation != nullptr) {
      WebResponse answer = instance.generation->response();
      while (answer.status == 200 && !instance.generation->done()) instance.generation->write_part(answer.body);
      answer.headers.insert(answer.headers.end(), instance.response.headers.begin(), instance.response.headers.end());
      instance.response = std::move(answer);
    }
    response.body += instance.response.body;
    instance.response.body = {};
  }
  response.body += "]}";
  // Where none was answered, and for one reason, that is the request's: a client then sees that it may ask again.
  const WebResponse& first = exchange.instances.front().response;
  if (std::ranges::all_of(exchange.instances, [&](const WebExchange& i) { return i.response.status == first.status; }))
    response.status = first.status;
  for (const auto& [name, value] : first.headers) {
    if (response.status != 200 && name == "Retry-After") response.headers.emplace_back(name, value);
  }
  response.headers.insert(response.headers.end(), exchange.response.headers.begin(), exchange.response.headers.end());
  exchange.response.status = response.status;
  return response;
}

}  // namespace ibid
