#include "server/fields/openapi.h"

#include <concepts>

#include "base/json_writer.h"
#include "sample/sampling_digest.h"
#include "server/fields/openapi_schemas.h"
#include "server/fields/parameters.h"

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
      json.field("$ref", "#/components/schemas/TokenIds");
      return;
    case FieldType::kOther:
      return;
  }
}

// A schema of the table with the operator's bounds in it.
std::string bounded(std::string schema, const ApiLimits& limits, int32_t max_token) {
  for (const auto& [mark, bound] :
       {std::pair{"@max_n", limits.max_n}, std::pair{"@max_token", max_token},
        std::pair{"@max_logprobs", limits.max_logprobs}, std::pair{"@max_priority", limits.allow_priority ? 100 : 0},
        std::pair{"@min_priority", limits.allow_priority ? -100 : 0}, std::pair{"@max_drafts", limits.max_drafts}}) {
    for (size_t at; (at = schema.find(mark)) != std::string::npos;)
      schema.replace(at, std::string_view(mark).size(), std::to_string(bound));
  }
  if (const size_t at = schema.find("@modes"); at != std::string::npos) {
    std::string modes = R"("auto","off")";
    if (limits.max_drafts > 0) modes += R"(,"ngram")";
    if (!limits.proposer.empty()) modes += ",\"" + limits.proposer + '"';
    schema.replace(at, std::string_view("@modes").size(), modes);
  }
  return schema;
}

// What the field has where a request does not name it.
std::string default_of(const Parameter& p, const SamplingDefaults& defaults) {
  std::string out = p.default_text;
  if (!is_sampler_number(p)) return out;
  for_each_parameter(defaults.params, [&]<typename T>(std::string_view name, const T& value) {
    if (name != own_name(p)) return;
    out.clear();
    if constexpr (std::same_as<T, float>) JsonWriter(out).single(value);
    if constexpr (std::same_as<T, int32_t>) JsonWriter(out).integer(value);
  });
  return out;
}

void write_body_schema(JsonWriter& json, unsigned endpoint, const char* required, const ApiLimits& limits,
                       int32_t max_token, const SamplingDefaults& defaults) {
  json.begin_object().field("type", "object").key("required").begin_array().string(required).end_array();
  json.key("properties").begin_object();
  for (const Parameter& p : parameters()) {
    if ((p.endpoints & endpoint) == 0) continue;
    const bool is_required = std::string_view(p.default_text) == "required";
    json.key(p.name).begin_object().field("description", p.meaning);
    // Null means absent, for every field that may be absent.
    json.key(is_required ? "allOf" : "anyOf").begin_array();
    if (p.type == FieldType::kOther) {
      json.raw(bounded(p.schema, limits, max_token));
    } else {
      json.begin_object();
      write_type(json, p);
      json.end_object();
    }
    if (!is_required) json.raw(R"({"type":"null"})");
    json.end_array();
    if (!is_required) json.key("default").raw(default_of(p, defaults));
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

struct Operation {
  const char* path;
  const char* method;
  const char* id;
  const char* summary;
  const char* body;            // name of the body's schema, or nullptr
  const char* answer;          // that of the 200
  const char* busy = "Error";  // that of the 503
  const char* more = nullptr;  // further members of the operation
};

constexpr Operation kOperations[] = {
    {"/v1/chat/completions", "post", "createChatCompletion", "Answer a conversation.", "ChatRequest", "ChatCompletion"},
    {"/v1/completions", "post", "createCompletion", "Continue texts.", "CompletionRequest", "Completion"},
    {"/v1/models", "get", "listModels", "The model that is served.", nullptr, "ModelList"},
    {"/v1/models/{model}", "get", "getModel", "A model by its name.", nullptr, "Model", "Error",
     R"([{"name":"model","in":"path","required":true,"schema":{"type":"string","minLength":1}}])"},
    {"/tokenize", "post", "tokenize", "Text or messages to token ids.", "TokenizeRequest", "Tokens"},
    {"/detokenize", "post", "detokenize", "Token ids to text.", "DetokenizeRequest", "Text"},
    {"/apply-template", "post", "applyTemplate", "Messages to the text that the model reads.", "TemplateRequest",
     "TemplateText"},
    {"/health", "get", "health", "200 when ready; 503 while loading, draining or stalled.", nullptr, "Health",
     "Health"},
    {"/version", "get", "version", "The version.", nullptr, "Version"},
    {"/metrics", "get", "metrics", "Prometheus metrics.", nullptr, nullptr},
    {"/engine", "get", "engine", "The last steps and what is under way.", nullptr, "Engine", "Error",
     R"([{"name":"since","in":"query","description":"Only steps after this one.","schema":{"type":"integer","minimum":-1,"maximum":9223372036854775807}}])"},
    {"/openapi.json", "get", "openapi", "This description.", nullptr, "Description"},
};

void write_content(JsonWriter& json, const char* type, const char* schema) {
  json.key(type).begin_object().key("schema").begin_object();
  schema != nullptr ? json.field("$ref", std::string("#/components/schemas/") + schema) : json.field("type", "string");
  json.end_object().end_object();
}

// Every answer has the request's id.
JsonWriter& begin_response(JsonWriter& json, const char* status, const char* description) {
  json.key(status).begin_object().field("description", description);
  json.key("headers").raw(
      R"({"X-Request-Id":{"required":true,"description":"Yours, or one that was made.","schema":{"type":"string"}}})");
  return json.key("content").begin_object();
}

void write_responses(JsonWriter& json, const Operation& op) {
  const bool generates = op.id[0] == 'c';
  json.key("responses").begin_object();
  begin_response(json, "200", "The answer.");
  write_content(json, op.answer != nullptr ? "application/json" : "text/plain", op.answer);
  if (generates) write_content(json, "text/event-stream", (std::string(op.answer) + "Event").c_str());
  json.end_object();
  if (std::string_view(op.id) == "listModels") {
    json.key("links").raw(R"({"model":{"operationId":"getModel","parameters":{"model":"$response.body#/data/0/id"}}})");
  }
  json.end_object();
  const auto refused = [&](const char* status, const char* description, const char* schema) {
    begin_response(json, status, description);
    write_content(json, "application/json", schema);
    json.end_object().end_object();
  };
  refused("400", "Invalid request; the error names the field and valid values.", "Error");
  refused("401", "The API key is missing or wrong.", "Error");
  refused("403", "A page of another site asks.", "Error");
  if (op.more != nullptr || op.body != nullptr) refused("404", "There is no such model.", "Error");
  if (op.body != nullptr) {
    refused("413", "The body is too large.", "Error");
    refused("415", "The body is no JSON in UTF-8 by its headers.", "Error");
    refused("429", "Too many requests; Retry-After has the seconds to wait.", "Error");
  }
  refused("503", "Loading, shutting down, or standing still.", op.busy);
  json.end_object();
}

void write_operation(JsonWriter& json, const Operation& op) {
  json.key(op.path).begin_object().key(op.method).begin_object();
  json.field("operationId", op.id).field("summary", op.summary);
  if (op.more != nullptr) json.key("parameters").raw(op.more);
  if (op.body != nullptr) {
    json.key("requestBody").begin_object().key("required").boolean(true).key("content").begin_object();
    write_content(json, "application/json", op.body);
    json.end_object().end_object();
  }
  write_responses(json, op);
  json.end_object().end_object();
}

// Other APIs' routes: their bodies are described by those who made them (docs/users/apis.md).
struct OtherOperation {
  const char* path;
  const char* method;
  const char* id;
  const char* summary;
};
constexpr OtherOperation kOtherOperations[] = {
    {"/v1/responses", "post", "makeResponse", "OpenAI's Responses."},
    {"/v1/responses/input_tokens", "post", "countResponse", "The tokens of a response's input."},
    {"/v1/responses/{id}", "get", "getResponse", "A stored response."},
    {"/v1/responses/{id}", "delete", "deleteResponse", "Forget a stored response."},
    {"/v1/responses/{id}/cancel", "post", "cancelResponse", "Refused: none is served in the background."},
    {"/v1/responses/{id}/input_items", "get", "listInputItems", "What a stored response answers."},
    {"/v1/messages", "post", "makeMessage", "Anthropic's Messages."},
    {"/v1/messages/count_tokens", "post", "countMessage", "The tokens of a message's prompt."},
    {"/api/chat", "post", "ollamaChat", "Ollama's chat."},
    {"/api/generate", "post", "ollamaGenerate", "Ollama's generate."},
    {"/api/show", "post", "ollamaShow", "A model, in Ollama's form."},
    {"/api/tags", "get", "ollamaTags", "The models, as Ollama lists them."},
    {"/api/ps", "get", "ollamaPs", "The models that are loaded, as Ollama lists them."},
    {"/v1/files", "post", "uploadFile", "Keep a file, with --files-dir."},
    {"/v1/files", "get", "listFiles", "The files of who asks."},
    {"/v1/files/{id}", "get", "getFile", "A file's facts."},
    {"/v1/files/{id}", "delete", "deleteFile", "Forget a file."},
    {"/v1/files/{id}/content", "get", "fileContent", "A file's bytes."},
    {"/v1/batches", "post", "makeBatch", "Answer a file of requests in the background."},
    {"/v1/batches", "get", "listBatches", "The batches of who asks."},
    {"/v1/batches/{id}", "get", "getBatch", "How far a batch is."},
    {"/v1/batches/{id}/cancel", "post", "cancelBatch", "Begin no more of a batch's lines."},
    {"/v1/embeddings", "post", "makeEmbeddings", "A vector for each text."},
    {"/api/embed", "post", "ollamaEmbed", "A vector for each text, in Ollama's form."},
    {"/api/embeddings", "post", "ollamaEmbeddings", "A text's vector, in Ollama's older form."},
    {"/embedding", "post", "llamaEmbedding", "A vector for each text, in llama.cpp's form."},
    {"/pooling", "post", "poolTexts", "vLLM's: vectors of texts or of their tokens, or scores, by the task."},
    {"/v1/rerank", "post", "rerank", "Documents by relevance to a query, in the form of Cohere and Jina."},
    {"/v2/embed", "post", "embedOfCohere", "Vectors of texts, as Cohere's clients ask for them."},
    {"/v2/rerank", "post", "rerankOfCohere", "The same, as Cohere's clients ask for it."},
    {"/rerank", "post", "rerankOfJina", "The same, as llama.cpp's and vLLM's clients ask for it."},
    {"/v1/score", "post", "scorePairs", "A score for each pair of texts, in vLLM's form."},
    {"/score", "post", "scorePairsOfVllm", "The same."},
    {"/v1/chat/completions/batch", "post", "chatBatch", "vLLM's: several conversations, a choice of each."},
    {"/invocations", "post", "invoke",
     "SageMaker's: a chat, completion, embedding, ranking or scoring, by its fields."},
    {"/predict", "post", "predict", "Vertex AI's: several bodies of other routes, by their @requestFormat."},
    {"/v1/chat/completions/input_tokens", "post", "countChat", "The tokens of a conversation, in llama.cpp's form."},
    {"/completion", "post", "llamaCompletion", "llama.cpp's completion."},
    {"/infill", "post", "llamaInfill", "llama.cpp's infill, of models that have tokens for it."},
    {"/props", "get", "llamaProps", "Settings, in llama.cpp's form."},
    {"/slots", "get", "llamaSlots", "How many requests run, with --slots."},
    {"/models/load", "post", "loadModel", "Load one of several models, as llama.cpp's router does."},
    {"/models/unload", "post", "unloadModel", "Unload a model once it is not in use."},
    {"/load", "get", "load", "How many requests are under way."},
    {"/tokenizer_info", "get", "tokenizerInfo", "The tokenizer's facts."},
};

void write_other_operation(JsonWriter& json, const OtherOperation& op) {
  json.key(op.method).begin_object().field("operationId", op.id).field("summary", op.summary);
  if (std::string_view(op.path).find('{') != std::string_view::npos)
    json.key("parameters")
        .raw(R"([{"name":"id","in":"path","required":true,"schema":{"type":"string","minLength":1}}])");
  const bool has_body = std::string_view(op.method) == "post";
  const std::string_view path = op.path;
  if (has_body && path == "/v1/files") {
    json.key("requestBody")
        .raw(
            R"({"required":true,"content":{"multipart/form-data":{"schema":{"type":"object","required":["file","purpose"],)"
            R"("properties":{"file":{"type":"string","format":"binary"},"purpose":{"const":"batch"}}}}}})");
  } else if (has_body) {
    json.key("requestBody").raw(R"({"required":true,"content":{"application/json":{"schema":{"type":"object"}}}})");
  }
  json.key("responses").begin_object();
  for (const char* status : {"200", "400", "401", "403", "404", "413", "415", "429", "501", "503"}) {
    if (std::string_view(status) == "501" && path != "/slots") continue;  // that may be switched off
    begin_response(json, status, status[0] == '2' ? "The answer." : "The refusal, in the API's form.");
    json.key("application/json").raw(R"({"schema":{"type":["object","array"]}})");
    if (path.ends_with("/content") && status[0] == '2') write_content(json, "application/octet-stream", nullptr);
    if (has_body && status[0] == '2') {
      json.key("text/event-stream").raw(R"({"schema":{"type":"string"}})");
      json.key("application/x-ndjson").raw(R"({"schema":{"type":"string"}})");
    }
    json.end_object().end_object();
  }
  json.end_object().end_object();
}

}  // namespace

std::string openapi_json(const ApiLimits& limits, int32_t max_token, const SamplingDefaults& defaults,
                         std::string_view root_path) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("openapi", "3.1.0");
  json.key("info").begin_object().field("title", "ibid").field("version", IBID_VERSION);
  json.field("description",
             "The same request gives the same bytes. /v1/chat/completions, /v1/completions and /v1/models are served "
             "without /v1 as well.")
      .end_object();
  if (!root_path.empty())
    json.key("servers").begin_array().begin_object().field("url", root_path).end_object().end_array();
  json.key("paths").begin_object();
  for (const Operation& op : kOperations) write_operation(json, op);
  std::string_view last;  // methods of a path stand together
  for (const OtherOperation& op : kOtherOperations) {
    if (op.path != last && !last.empty()) json.end_object();
    if (op.path != last) json.key(op.path).begin_object();
    write_other_operation(json, op);
    last = op.path;
  }
  json.end_object();
  json.end_object().key("components").begin_object();
  json.key("securitySchemes").raw(R"({"key":{"type":"http","scheme":"bearer"}})");
  json.key("schemas").begin_object();
  json.key("ChatRequest");
  write_body_schema(json, kChatOnly, "messages", limits, max_token, defaults);
  json.key("CompletionRequest");
  write_body_schema(json, kCompletionsOnly, "prompt", limits, max_token, defaults);
  out += ',';
  out += bounded(std::string(kFixedSchemas), limits, max_token);
  json.end_object().end_object().key("security").raw(R"([{"key":[]},{}])").end_object();
  return out;
}

}  // namespace ibid
