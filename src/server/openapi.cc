#include "server/openapi.h"

#include "server/json.h"
#include "server/parameters.h"

namespace ibid {
namespace {

void write_range(JsonWriter& json, const Parameter& p) {
  if (p.min == p.max) return;
  const bool whole = p.type == FieldType::kInteger;
  const auto bound = [&](const char* name, double value) {
    json.key(name);
    whole ? json.integer(static_cast<int64_t>(value)) : json.number(value);
  };
  bound(p.above_min ? "exclusiveMinimum" : "minimum", p.min);
  bound("maximum", p.max);
}

void write_type(JsonWriter& json, const Parameter& p) {
  switch (p.type) {
    case FieldType::kInteger:
      json.field("type", "integer");
      return write_range(json, p);
    case FieldType::kNumber:
      json.field("type", "number");
      return write_range(json, p);
    case FieldType::kBoolean:
      json.field("type", "boolean");
      return;
    case FieldType::kString:
      json.field("type", "string");
      if (p.min != p.max) json.field("maxLength", static_cast<int64_t>(p.max));
      return;
    case FieldType::kStrings:
      json.key("oneOf").raw(
          R"([{"type":"string","minLength":1},{"type":"array","items":{"type":"string","minLength":1}}])");
      return;
    case FieldType::kTokenIds:
      json.field("type", "array").key("items").raw(R"({"type":"integer","minimum":0})");
      return;
    case FieldType::kOther:
      return;
  }
}

void write_body_schema(JsonWriter& json, unsigned endpoint, const char* required) {
  json.begin_object().field("type", "object").key("required").begin_array().string(required).end_array();
  json.key("properties").begin_object();
  for (const Parameter& p : parameters()) {
    if ((p.endpoints & endpoint) == 0) continue;
    const bool is_required = std::string_view(p.default_text) == "required";
    json.key(p.name).begin_object().field("description", p.meaning);
    // Null means absent, for every field that may be absent.
    json.key(is_required ? "allOf" : "anyOf").begin_array();
    if (p.type == FieldType::kOther) {
      json.raw(p.schema);
    } else {
      json.begin_object();
      write_type(json, p);
      json.end_object();
    }
    if (!is_required) json.raw(R"({"type":"null"})");
    json.end_array();
    if (!is_required) json.key("default").raw(p.default_text);
    json.end_object();
  }
  for (const IgnoredField& field : ignored_fields()) {
    if ((field.endpoints & endpoint) == 0) continue;
    json.key(field.name).begin_object();
    json.field("description", std::string("Accepted, without effect: ") + field.why + ".").end_object();
  }
  for (const UnservedField& field : unserved_fields()) {
    if ((field.endpoints & endpoint) == 0) continue;
    json.key(field.name).begin_object().field("description", "Not served yet, but for values that ask for nothing.");
    // The allowed values are a JSON array; null is always one of them.
    const std::string_view allowed(field.allowed);
    json.key("enum").raw(allowed == "[]" ? std::string("[null]")
                                         : std::string(allowed.substr(0, allowed.size() - 1)) + ",null]");
    json.end_object();
  }
  json.end_object().end_object();
}

constexpr const char* kError =
    R"({"description":"Refused; the error names the field and what would be right.","content":{"application/json":{"schema":{"$ref":"#/components/schemas/Error"}}}})";

struct Operation {
  const char* path;
  const char* method;
  const char* id;
  const char* summary;
  const char* content_type;  // of the 200
  const char* body;          // name of the body's schema, or nullptr
};

constexpr Operation kOperations[] = {
    {"/v1/chat/completions", "post", "createChatCompletion", "Answer a conversation.", "application/json",
     "ChatRequest"},
    {"/v1/completions", "post", "createCompletion", "Continue texts.", "application/json", "CompletionRequest"},
    {"/v1/models", "get", "listModels", "The model that is served.", "application/json", nullptr},
    {"/v1/models/{model}", "get", "getModel", "A model by its name.", "application/json", nullptr},
    {"/tokenize", "post", "tokenize", "Text or messages to token ids.", "application/json", "TokenizeRequest"},
    {"/detokenize", "post", "detokenize", "Token ids to text.", "application/json", "DetokenizeRequest"},
    {"/apply-template", "post", "applyTemplate", "Messages to the text that the model reads.", "application/json",
     "TemplateRequest"},
    {"/health", "get", "health", "200 when ready; 503 while loading, draining or stalled.", "application/json",
     nullptr},
    {"/version", "get", "version", "The version.", "application/json", nullptr},
    {"/metrics", "get", "metrics", "Prometheus metrics.", "text/plain", nullptr},
    {"/engine", "get", "engine", "The last steps and what is under way.", "application/json", nullptr},
    {"/openapi.json", "get", "openapi", "This description.", "application/json", nullptr},
};

constexpr const char* kSchemas = R"(
"Error":{"type":"object","required":["error"],"properties":{"error":{"type":"object","required":["message","type","param","code"],
  "properties":{"message":{"type":"string"},"type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}},
"TextPart":{"type":"object","required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}},
"Message":{"type":"object","required":["role","content"],"properties":{"role":{"enum":["system","developer","user","assistant","tool"]},
  "content":{"oneOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/components/schemas/TextPart"}}]},"name":{"type":["string","null"]}}},
"Bias":{"oneOf":[{"type":"number","minimum":-100,"maximum":100},{"const":false}]},
"Prompt":{"oneOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},
  {"type":"array","minItems":1,"items":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"integer","minimum":0}}]}}]},
"TokenizeRequest":{"type":"object","properties":{"content":{"type":"string"},"prompt":{"type":"string"},
  "messages":{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Message"}},"add_special":{"type":"boolean"},
  "add_special_tokens":{"type":"boolean"},"parse_special":{"type":"boolean"},"with_pieces":{"type":"boolean"}}},
"DetokenizeRequest":{"type":"object","required":["tokens"],"properties":{"tokens":{"type":"array","items":{"type":"integer","minimum":0}}}},
"TemplateRequest":{"type":"object","required":["messages"],"properties":{"messages":{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Message"}},
  "add_generation_prompt":{"type":"boolean"},"chat_template_kwargs":{"type":"object"}}})";

}  // namespace

std::string openapi_json() {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("openapi", "3.1.0");
  json.key("info").begin_object().field("title", "ibid").field("version", IBID_VERSION);
  json.field("description", "The same request gives the same bytes.").end_object();
  json.key("paths").begin_object();
  for (const Operation& op : kOperations) {
    const bool one_model = std::string_view(op.path).find('{') != std::string_view::npos;
    json.key(op.path).begin_object().key(op.method).begin_object();
    json.field("operationId", op.id).field("summary", op.summary);
    if (one_model) {
      json.key("parameters")
          .raw(R"([{"name":"model","in":"path","required":true,"schema":{"type":"string","minLength":1}}])");
    }
    if (op.body != nullptr) {
      json.key("requestBody")
          .begin_object()
          .key("required")
          .boolean(true)
          .key("content")
          .begin_object()
          .key("application/json")
          .begin_object();
      json.key("schema").begin_object().field("$ref", std::string("#/components/schemas/") + op.body).end_object();
      json.end_object().end_object().end_object();
    }
    json.key("responses").begin_object().key("200").begin_object().field("description", "The answer.");
    json.key("content")
        .begin_object()
        .key(op.content_type)
        .begin_object()
        .key("schema")
        .begin_object()
        .end_object()
        .end_object();
    if (std::string_view(op.body == nullptr ? "" : op.body).ends_with("Request") && op.id[0] == 'c') {
      json.key("text/event-stream").begin_object().key("schema").begin_object().end_object().end_object();
    }
    json.end_object().end_object();
    if (op.body != nullptr) {
      for (const char* status : {"400", "404", "413", "429"}) json.key(status).raw(kError);
    }
    if (one_model) json.key("404").raw(kError);
    json.key("401").raw(kError).key("503").raw(kError);
    json.end_object().end_object().end_object();
  }
  json.end_object()
      .key("components")
      .begin_object()
      .key("securitySchemes")
      .raw(R"({"key":{"type":"http","scheme":"bearer"}})");
  json.key("schemas").begin_object();
  json.key("ChatRequest");
  write_body_schema(json, kChatOnly, "messages");
  json.key("CompletionRequest");
  write_body_schema(json, kCompletionsOnly, "prompt");
  out += ",";
  out += kSchemas + 1;  // after the newline
  json.end_object().end_object().key("security").raw(R"([{"key":[]},{}])").end_object();
  return out;
}

}  // namespace ibid
