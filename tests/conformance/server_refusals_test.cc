// The order of a server's checks: a request with two faults gets the error of the check that comes first. Each row
// breaks two neighbouring rules; the last ones break one.
#include <span>

#include "conformance/server_fixture.h"

namespace ibid {
namespace {

// A front door without sockets.
class Handler {
 public:
  explicit Handler(ServerOptions options = {}, FakeBackend::Options engine = {}, const std::string& keys = "",
                   bool has_model = true)
      : backend(engine),
        log_(*RequestLog::open("/dev/null", true, true)),
        front(options, keys.empty() ? ApiKeys() : *ApiKeys::parse(keys), *log_) {
    if (has_model) front.set_backend(&backend);
  }
  ~Handler() {
    backend.frozen = false;
    backend.stop();
  }

  WebExchange handle(const std::string& path, std::string body, const char* method = "POST",
                     std::vector<std::pair<std::string, std::string>> headers = {}) {
    WebRequest request{.method = method, .target = path, .headers = std::move(headers), .body = std::move(body)};
    if (request.header("host").empty()) request.headers.emplace_back("host", "localhost");
    if (request.header("content-type").empty()) request.headers.emplace_back("content-type", "application/json");
    return front.handle(request, [] {});
  }
  // "status code param" of a refusal; "200" of what is answered or begun.
  std::string outcome(const std::string& path, std::string body, const char* method = "POST",
                      std::vector<std::pair<std::string, std::string>> headers = {}) {
    WebExchange exchange = handle(path, std::move(body), method, std::move(headers));
    std::string out = std::to_string(exchange.response.status);
    if (const ApiError* error = exchange.response.error.get())
      out += " " + error->code + (error->param.empty() ? "" : " " + error->param);
    if (exchange.response.status == 200 && exchange.response.body.find("response.failed") != std::string::npos)
      out += " response.failed";
    const Abort gone = Abort::kClientGone;
    front.finish(exchange, exchange.generation ? &gone : nullptr);
    return out;
  }

  FakeBackend backend;

 private:
  std::unique_ptr<RequestLog> log_;

 public:
  FrontDoor front;
};

struct Row {
  const char* faults;  // the first one answers
  const char* path;
  std::string body;
  const char* outcome;
};

void check(Handler& handler, std::span<const Row> rows) {
  for (const Row& row : rows) EXPECT_EQ(handler.outcome(row.path, row.body), row.outcome) << row.faults;
}

const std::string kChat = "/v1/chat/completions";
const std::string kUser = R"("messages":[{"role":"user","content":"hi"}])";

TEST(ServerRefusals, TheDoorChecksHostOriginKeyPathMethodAndTypeInThisOrder) {
  Handler handler({}, {}, "a:key-of-a-123456789");
  using Headers = std::vector<std::pair<std::string, std::string>>;
  const std::pair<std::string, std::string> host{"host", "evil.example"}, origin{"origin", "http://evil.example"},
      key{"authorization", "Bearer key-of-a-123456789"}, type{"content-type", "multipart/form-data"};
  struct DoorRow {
    const char* method;
    std::string path;
    Headers headers;
    const char* outcome;
  };
  // A key makes the name of the host no matter.
  EXPECT_EQ(Handler().outcome("/none", "", "POST", {host, origin}), "403 host_refused");
  const std::vector<DoorRow> rows = {
      {"POST", "/none", {origin}, "403 origin_refused"},     {"POST", "/none", {}, "401 invalid_api_key"},
      {"PUT", kChat, {type}, "401 invalid_api_key"},         {"PUT", "/none", {key, type}, "404 no_such_path"},
      {"PUT", kChat, {key, type}, "405 method_not_allowed"}, {"POST", kChat, {key, type}, "415 unsupported_media_type"},
  };
  for (const DoorRow& row : rows)
    EXPECT_EQ(handler.outcome(row.path, "no json", row.method, row.headers), row.outcome) << row.method << row.path;
}

TEST(ServerRefusals, MissingCapabilityIsReportedBeforeTheBodysFaults) {
  Handler loading({}, {}, "", false), draining;
  EXPECT_EQ(loading.outcome(kChat, "no json"), "503 loading");
  EXPECT_EQ(loading.outcome("/health", "", "GET"), "503");
  loading.front.set_draining();
  EXPECT_EQ(loading.outcome(kChat, "no json"), "503 loading");
  draining.front.set_draining();
  EXPECT_EQ(draining.outcome(kChat, "no json"), "503 shutting_down");
}

TEST(ServerRefusals, ABodyIsCheckedFromItsApiToItsModel) {
  ServerOptions strict;
  strict.strict_model = true;
  Handler handler(strict);
  const std::vector<Row> rows = {
      {"the API's own field, then one of ours", "/v1/messages", "{" + kUser + R"(,"temperature":[]})",
       "400 invalid_value max_tokens"},
      {"a place in the API's messages keeps its number: the body is not ours yet", "/v1/messages",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"user","content":5}],"temperature":[]})",
       "400 invalid_value messages[1].content"},
      {"one of ours has the API's name", "/v1/messages",
       R"({"max_tokens":5,)" + kUser + R"(,"stop_sequences":5,"model":"other"})", "400 invalid_value stop_sequences"},
      {"a field, then the model's name", kChat.c_str(), "{" + kUser + R"(,"temperature":[],"model":"other"})",
       "400 invalid_value temperature"},
      {"a field, then a suffix that the model has no tokens for", "/v1/completions",
       R"({"prompt":"a","suffix":"b","temperature":[]})", "400 invalid_value temperature"},
      {"a suffix, then the model's name", "/v1/completions", R"({"prompt":"a","suffix":"b","model":"other"})",
       "400 unsupported_value suffix"},
      {"a field, then a further conversation", "/v1/chat/completions/batch",
       R"({"messages":[[{"role":"user","content":"a"}],[]],"temperature":[]})", "400 invalid_value temperature"},
      {"a further conversation, then choices", "/v1/chat/completions/batch",
       R"({"messages":[[{"role":"user","content":"a"}],[]],"n":2})", "400 invalid_value messages[1]"},
      {"choices, then the model's name", "/v1/chat/completions/batch",
       R"({"messages":[[{"role":"user","content":"a"}]],"n":2,"model":"other"})", "400 unsupported_value n"},
      {"an answer that needs no model still needs its name", "/api/chat", R"({"model":"other"})",
       "404 model_not_found model"},
      {"a wrong field beside no messages: the answer needs none", "/api/chat", R"({"think":7,"model":"fake-1"})",
       "400 invalid_value think"},
      {"the model's name, then a grammar", kChat.c_str(), "{" + kUser + R"(,"model":"other","guided_regex":"("})",
       "404 model_not_found model"},
      {"n of a chat is served", kChat.c_str(), "{" + kUser + R"(,"n":2})", "200"},
      {"an answer that needs no model", "/api/chat", R"({"model":"fake-1:latest"})", "200"},
  };
  check(handler, rows);
  FakeBackend::Options encoder;
  encoder.is_encoder = true;
  Handler vectors(strict, encoder);
  EXPECT_EQ(vectors.outcome(kChat, "{" + kUser + R"(,"temperature":[]})"), "400 unsupported_value model");
  EXPECT_EQ(vectors.outcome("/v1/messages", "{" + kUser + "}"), "400 invalid_value max_tokens");
  EXPECT_EQ(vectors.outcome("/v1/embeddings", R"({"input":"a","model":"other"})"), "404 model_not_found model");
  EXPECT_EQ(vectors.outcome("/invocations", "{" + kUser + "}"), "200");
}

TEST(ServerRefusals, RoomIsCheckedBetweenTheModelsNameAndTheRequest) {
  ServerOptions options;
  options.strict_model = true;
  FakeBackend::Options full;
  full.max_waiting = 0;
  const std::string keys = "a:key-of-a-123456789 sequences=2";
  const std::vector<std::pair<std::string, std::string>> key = {{"authorization", "Bearer key-of-a-123456789"}};
  const std::string wrong_grammar = "{" + kUser + R"(,"guided_regex":"("})";
  const std::string three = "{" + kUser + R"(,"n":3})";
  {
    Handler handler(options, full, keys);
    EXPECT_EQ(handler.outcome(kChat, "{" + kUser + R"(,"model":"other"})", "POST", key), "404 model_not_found model");
    EXPECT_EQ(handler.outcome(kChat, three, "POST", key), "429 queue_full") << "the queue, then the tenant's terms";
    EXPECT_EQ(handler.outcome("/api/chat", "{}", "POST", key), "200") << "an answer that needs no model";
  }
  Handler handler(options, {}, keys);
  EXPECT_EQ(handler.outcome(kChat, "{" + kUser + R"(,"n":3,"guided_regex":"("})", "POST", key),
            "400 tenant_sequences n")
      << "the tenant's terms, then the grammar";
  handler.backend.frozen = true;
  WebExchange first = handler.handle(kChat, "{" + kUser + "}", "POST", key);
  ASSERT_EQ(first.response.status, 200);
  // What is refused before it counts is not taken off when it ends; what is refused after is.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(handler.outcome(kChat, "{" + kUser + R"(,"n":2,"guided_regex":"("})", "POST", key),
              "429 tenant_sequences");
    EXPECT_EQ(handler.outcome(kChat, wrong_grammar, "POST", key), "400 invalid_value guided_regex");
  }
  handler.front.finish(first, nullptr);
  WebExchange two = handler.handle(kChat, "{" + kUser + R"(,"n":2})", "POST", key);
  EXPECT_EQ(two.response.status, 200) << "all places of the tenant are free again";
  handler.front.finish(two, nullptr);
}

TEST(ServerRefusals, ARequestIsBuiltThenMeasuredThenGivenMemory) {
  ServerOptions options;
  options.max_answers_bytes = 1 << 10;
  Handler handler(options);
  const std::string words(4000, 'a');
  const std::string user = R"("messages":[{"role":"user","content":")" + words + "\"}]";
  const std::vector<Row> rows = {
      {"a grammar, then a prompt that is too long", kChat.c_str(), "{" + user + R"(,"guided_regex":"("})",
       "400 invalid_value guided_regex"},
      {"a prompt that is too long, then an answer that is", kChat.c_str(), "{" + user + "}",
       "400 context_length_exceeded messages"},
      {"the same, of a completion", "/v1/completions", R"({"prompt":")" + words + "\"}",
       "400 context_length_exceeded prompt"},
      {"the same, of Messages", "/v1/messages", R"({"max_tokens":5,)" + user + "}",
       "400 context_length_exceeded messages"},
      {"the same, of Responses", "/v1/responses", R"({"input":")" + words + "\"}", "400 context_length_exceeded input"},
      {"the same, of a stream of Responses, which begins and fails", "/v1/responses",
       R"({"stream":true,"input":")" + words + "\"}", "200 response.failed"},
      {"the same, of a text for a vector", "/v1/embeddings", R"({"input":")" + words + "\"}",
       "400 context_length_exceeded input"},
      {"an answer that is too large", kChat.c_str(), "{" + kUser + "}", "400 answer_too_large max_tokens"},
      {"the same, of Ollama's API", "/api/chat", "{" + kUser + "}", "400 answer_too_large options.num_predict"},
      {"the same, of Responses", "/v1/responses", R"({"input":"hi"})", "400 answer_too_large max_output_tokens"},
  };
  check(handler, rows);
}

}  // namespace
}  // namespace ibid
