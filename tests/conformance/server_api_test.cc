// The API through sockets, with a scripted engine.
#include <set>

#include "conformance/server_fixture.h"
#include "kernels/arithmetic_version.h"
#include "sample/sampling_digest.h"

namespace ibid {
namespace {

TEST(ServerApi, AnswersAConversationAtOnceOrAsAStreamWithTheSameBytes) {
  TestServer server;
  RawClient client(server.port());
  const std::string expected = FakeBackend::answer(FakeBackend::chat_prompt("hi"), 7, 12);
  HttpAnswer whole = client.post("/v1/chat/completions", chat_body("hi", R"("seed":7,"max_tokens":12)"));
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(content_of(whole), expected);
  HttpAnswer stream = client.post("/v1/chat/completions", chat_body("hi", R"("seed":7,"max_tokens":12,"stream":true)"));
  EXPECT_NE(stream.head.find("text/event-stream"), std::string::npos);
  const SseText events = read_events(stream.body);
  EXPECT_EQ(events.text, expected);
  EXPECT_EQ(events.finish, "length");
  EXPECT_TRUE(events.done);
}

TEST(ServerApi, UsageAddsUpAndComesLastInAStreamThatAsksForIt) {
  TestServer server;
  RawClient client(server.port());
  const HttpAnswer a = client.post(
      "/v1/completions",
      R"({"prompt":["abc",[97,98]],"n":2,"seed":1,"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}})");
  const size_t usage = a.body.rfind("\"usage\":{");
  ASSERT_NE(usage, std::string::npos);
  EXPECT_TRUE(
      a.body.substr(usage).starts_with("\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":20,\"total_tokens\":25,"
                                       "\"prompt_tokens_details\":{\"cached_tokens\":0}}"))
      << a.body;
  EXPECT_EQ(read_events(a.body, 3).text, FakeBackend::answer("ab", 2, 5));
  EXPECT_EQ(read_events(a.body, 1).text, FakeBackend::answer("abc", 2, 5));
}

TEST(ServerApi, RequestWithoutASeedGetsOneThatReproducesItsBytes) {
  TestServer server;
  RawClient client(server.port());
  const HttpAnswer first = client.post("/v1/chat/completions", chat_body("hi", "\"max_tokens\":9"));
  const int64_t seed = *parse_json(first.body)->find("seed")->integer();
  const HttpAnswer again =
      client.post("/v1/chat/completions", chat_body("hi", "\"max_tokens\":9,\"seed\":" + std::to_string(seed)));
  EXPECT_EQ(content_of(first), content_of(again));
  const HttpAnswer other = client.post("/v1/chat/completions", chat_body("hi", "\"max_tokens\":9"));
  EXPECT_NE(*parse_json(other.body)->find("seed")->integer(), seed);
}

TEST(ServerApi, ChoicesDrawWithSeedPlusTheirIndex) {
  TestServer server;
  RawClient client(server.port());
  const HttpAnswer a = client.post("/v1/chat/completions", chat_body("x", R"("n":3,"seed":10,"max_tokens":6)"));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(content_of(a, i), FakeBackend::answer(FakeBackend::chat_prompt("x"), 10 + i, 6));
}

TEST(ServerApi, StopsAndEchoesAndNamesTheStop) {
  TestServer server;
  RawClient client(server.port());
  const std::string all = FakeBackend::answer("abc", 3, 40);
  const std::string stop = all.substr(10, 2);
  const HttpAnswer a = client.post(
      "/v1/completions", "{\"prompt\":\"abc\",\"seed\":3,\"max_tokens\":40,\"echo\":true,\"stop\":[\"" + stop + "\"]}");
  EXPECT_EQ(content_of(a), "abc" + all.substr(0, all.find(stop)));
  EXPECT_NE(a.body.find("\"finish_reason\":\"stop\",\"stop_reason\":\"" + stop + "\""), std::string::npos) << a.body;
}

TEST(ServerApi, LogprobsHaveTheShapeOfTheirEndpoint) {
  TestServer server;
  RawClient client(server.port());
  const HttpAnswer chat = client.post(
      "/v1/chat/completions",
      chat_body("x", R"("logprobs":true,"top_logprobs":2,"max_tokens":3,"seed":1,"processed_logprobs":true)"));
  Result<Json> json = parse_json(chat.body);
  const Json* content = (*json->find("choices")->array())[0].find("logprobs")->find("content");
  ASSERT_EQ(content->array()->size(), 3u);
  EXPECT_EQ((*content->array())[1].find("logprob")->number(), -0.5);
  EXPECT_EQ((*content->array())[1].find("processed_logprob")->number(), -0.125);
  EXPECT_EQ((*content->array())[1].find("top_logprobs")->array()->size(), 2u);
  EXPECT_EQ((*content->array())[1].find("bytes")->array()->size(), 1u);

  const HttpAnswer text =
      client.post("/v1/completions", R"({"prompt":"héy","logprobs":1,"echo":true,"max_tokens":2,"seed":1})");
  json = parse_json(text.body);
  const Json& logprobs = *(*json->find("choices")->array())[0].find("logprobs");
  ASSERT_EQ(logprobs.find("tokens")->array()->size(), 6u);  // four bytes of prompt, two of answer
  EXPECT_TRUE((*logprobs.find("token_logprobs")->array())[0].is_null());
  EXPECT_EQ((*logprobs.find("token_logprobs")->array())[1].number(), -0.5);
  EXPECT_EQ((*logprobs.find("token_logprobs")->array())[4].number(), -0.25);
  EXPECT_EQ(*(*logprobs.find("text_offset")->array())[5].integer(), 4);  // the prompt has three letters
  // The likeliest, and the one that was drawn.
  EXPECT_EQ((*logprobs.find("top_logprobs")->array())[4].object()->size(), 2u);
}

TEST(ServerApi, AMaskedTokenHasTheNumberThatClientsKnowForMinusInfinity) {
  TestServer server;
  RawClient client(server.port());
  // The scripted engine reports that "b" is masked.
  const HttpAnswer chat = client.post(
      "/v1/chat/completions",
      chat_body("x", R"("logprobs":true,"top_logprobs":2,"max_tokens":1,"seed":1,"processed_logprobs":true)"));
  Result<Json> json = parse_json(chat.body);
  ASSERT_TRUE(json.ok()) << chat.body;
  const Json& entry = (*(*json->find("choices")->array())[0].find("logprobs")->find("content")->array())[0];
  const Json& masked = (*entry.find("top_logprobs")->array())[1];
  EXPECT_EQ(*masked.find("token")->string(), "b");
  EXPECT_EQ(masked.find("logprob")->number(), -1.0);
  EXPECT_EQ(masked.find("processed_logprob")->number(), -9999.0);
  const HttpAnswer text =
      client.post("/v1/completions",
                  R"({"prompt":"xy","logprobs":2,"echo":true,"max_tokens":1,"seed":1,"processed_logprobs":true})");
  json = parse_json(text.body);
  ASSERT_TRUE(json.ok()) << text.body;
  const Json& logprobs = *(*json->find("choices")->array())[0].find("logprobs");
  EXPECT_EQ((*logprobs.find("processed_top_logprobs")->array())[2].find("b")->number(), -9999.0);
  EXPECT_EQ((*logprobs.find("processed_logprobs")->array())[2].number(), -0.125);
  // No stage touched the prompt.
  EXPECT_TRUE((*logprobs.find("processed_logprobs")->array())[1].is_null());
  EXPECT_TRUE((*logprobs.find("processed_top_logprobs")->array())[1].is_null());
  EXPECT_EQ((*logprobs.find("top_logprobs")->array())[1].find("b")->number(), -1.0);
}

// The names in a schema of openapi.json: all of them, and those that must be there.
std::pair<std::set<std::string>, std::set<std::string>> names_of_schema(RawClient& client, const char* name) {
  const Result<Json> api = parse_json(client.get("/openapi.json").body);
  const Json* schema = api->find("components")->find("schemas")->find(name);
  std::pair<std::set<std::string>, std::set<std::string>> names;
  for (const Json::Member& member : *schema->find("properties")->object()) names.first.insert(member.first);
  for (const Json& required : *schema->find("required")->array()) names.second.insert(*required.string());
  return names;
}
std::set<std::string> names_of(const Json& object) {
  std::set<std::string> names;
  for (const Json::Member& member : *object.object()) names.insert(member.first);
  return names;
}

TEST(ServerApi, TraceRecordsHowEachTokenWasDrawn) {
  TestServer server;
  RawClient client(server.port());
  const HttpAnswer a = client.post(
      "/v1/chat/completions",
      chat_body(
          "x",
          R"("trace":true,"max_tokens":2,"seed":5,"n":2,"temperature":0.5,"top_p":1,"logit_bias":{"97":1,"b":false})"));
  const Result<Json> json = parse_json(a.body);
  const Json& header = *json->find("trace_header");
  const Json& record = (*(*json->find("choices")->array())[1].find("trace")->array())[1];
  for (const auto& [object, schema] : {std::pair{&header, "TraceHeader"}, std::pair{&record, "TraceRecord"}}) {
    auto [all, required] = names_of_schema(client, schema);
    all.erase("grammar_digest");  // of an answer that a grammar held
    EXPECT_EQ(names_of(*object), all) << schema;
    EXPECT_EQ(all, required) << schema;
  }
  EXPECT_EQ(*record.find("seed")->integer(), 6);  // choice 1's
  EXPECT_EQ(*record.find("support")->integer(), 32);
  EXPECT_EQ(*record.find("position")->integer(), static_cast<int64_t>(FakeBackend::chat_prompt("x").size() - 6 + 1));
  EXPECT_EQ(record.find("parameters")->text(), R"({"temperature":0.5,"top_k":0,"top_p":1})");
  EXPECT_EQ(*record.find("model_digest")->string(), "0123456789abcdef0123");
  EXPECT_EQ(*header.find("model_digest")->string(), "0123456789abcdef0123");
  EXPECT_EQ(header.find("sampling_digest")->text(), record.find("sampling_digest")->text());
  EXPECT_TRUE(header.find("adapter")->is_null());
  EXPECT_EQ(header.find("parameters")->find("logit_bias")->text(), "[[97,1]]");
  EXPECT_EQ(header.find("parameters")->find("banned_token_ids")->text(), "[98]");
  for (const auto& [name, source] : {std::pair{"temperature", "request"}, std::pair{"min_p", "default"},
                                     std::pair{"logit_bias", "request"}, std::pair{"banned_token_ids", "request"}})
    EXPECT_EQ(*header.find("sources")->find(name)->string(), source) << name;
  std::vector<std::string> stages;
  for (const Json& stage : *header.find("stages")->array()) stages.push_back(*stage.string());
  ASSERT_EQ(stages.size(), stage_order().size());
  for (size_t i = 0; i < stages.size(); ++i) EXPECT_EQ(stages[i], stage_name(stage_order()[i]));
  EXPECT_EQ(*header.find("order_digest")->string(), sampling_digest(spell_stages()));
  EXPECT_EQ(*header.find("arithmetic")->string(), kArithmeticName);
  EXPECT_EQ(*header.find("arithmetic_version")->integer(), kArithmeticVersion);
  const std::string& fingerprint = *json->find("system_fingerprint")->string();
  EXPECT_NE(fingerprint.find("-" + arithmetic_id() + "-0123456789ab"), std::string::npos) << fingerprint;
}

TEST(ServerApi, StreamHasOneTraceHeaderAndARecordForEachToken) {
  TestServer server;
  RawClient client(server.port());
  const std::string fields = R"("trace":true,"return_token_ids":true,"max_tokens":9,"seed":5)";
  const HttpAnswer stream = client.post("/v1/chat/completions", chat_body("x", fields + ",\"stream\":true"));
  const auto count = [&](const std::string& text) {
    size_t n = 0;
    for (size_t at = stream.body.find(text); at != std::string::npos; at = stream.body.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("\"trace_header\""), 1u);
  EXPECT_LT(stream.body.find("\"trace_header\""), stream.body.find("\"choices\""));
  EXPECT_EQ(count("\"purpose\":\"draw\""), 9u);
  const Result<Json> whole = parse_json(client.post("/v1/chat/completions", chat_body("x", fields)).body);
  EXPECT_EQ((*whole->find("choices")->array())[0].find("token_ids")->array()->size(), 9u);
  for (const Json& record : *(*whole->find("choices")->array())[0].find("trace")->array())
    EXPECT_EQ(count(record.text()), 1u) << record.text();
}

TEST(ServerApi, APromptsLogprobsStandWhereVllmHasThem) {
  TestServer server;
  RawClient client(server.port());
  const size_t len = FakeBackend::chat_prompt("x").size() - 6;  // <|end|> is one token
  for (const char* stream : {"false", "true"}) {
    const HttpAnswer a = client.post(
        "/v1/chat/completions",
        chat_body("x", std::string(R"("prompt_logprobs":1,"max_tokens":3,"n":2,"seed":1,"stream":)") + stream));
    size_t n = 0;
    for (size_t at = 0; (at = a.body.find("\"prompt_logprobs\":", at)) != std::string::npos; ++at) ++n;
    EXPECT_EQ(n, 1u) << a.body;
    const size_t end = a.body.find("\n\n");
    const Result<Json> json =
        parse_json(a.body.starts_with("data: ") ? a.body.substr(6, end - 6) : a.body);  // the first event has them
    ASSERT_TRUE(json.ok()) << a.body;
    const Json* logprobs = json->find("prompt_logprobs");
    ASSERT_NE(logprobs, nullptr) << a.body;
    EXPECT_EQ(logprobs->array()->size(), len);
    EXPECT_TRUE((*logprobs->array())[0].is_null());
  }
  const HttpAnswer text =
      client.post("/v1/completions", R"({"prompt":["ab","c"],"prompt_logprobs":0,"max_tokens":1,"n":2,"seed":1})");
  const Result<Json> json = parse_json(text.body);
  EXPECT_EQ(json->find("prompt_logprobs"), nullptr);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ((*json->find("choices")->array())[i].find("prompt_logprobs") != nullptr, i % 2 == 0) << text.body;
}

TEST(ServerApi, ApplyTemplateRefusesWhatChatRefuses) {
  TestServer server;
  RawClient client(server.port());
  for (const std::string& body :
       {std::string("[]"), std::string("{}"), std::string(R"({"messages":5})"), std::string(R"({"messages":[]})"),
        std::string(R"({"messages":[{"role":"king","content":"x"}]})"),
        std::string(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"),
        chat_body("x", R"("tools":[{"type":"web_search"}])"), chat_body("x", R"("chat_template":"{{ 1 }}")"),
        chat_body("x", R"("continue_final_message":true)"), chat_body("x", R"("documents":[{"a":"b"}])"),
        chat_body("x", R"("chat_template_kwargs":[1])"), chat_body("x", R"("add_special_tokens":1)"),
        chat_body("x", R"("allowed_token_ids":[999])"), chat_body("x", R"("add_generation_prompt":"no")")}) {
    const HttpAnswer chat = client.post("/v1/chat/completions", body);
    EXPECT_EQ(chat.status, 400) << body;
    EXPECT_EQ(client.post("/apply-template", body).body, chat.body) << body;
    if (body.find("messages") == std::string::npos) continue;  // /tokenize takes a text as well
    EXPECT_EQ(client.post("/tokenize", body).body, chat.body) << body;
  }
}

TEST(ServerApi, SmallRoutesAnswer) {
  TestServer server;
  RawClient client(server.port());
  EXPECT_NE(client.get("/v1/models").body.find("\"id\":\"fake-1\""), std::string::npos);
  EXPECT_EQ(client.get("/v1/models/fake-1").status, 200);
  EXPECT_EQ(client.get("/v1/models/other").status, 404);
  EXPECT_EQ(client.post("/tokenize", R"({"content":"ab<|end|>"})").body,
            R"({"tokens":[97,98,256],"count":3,"max_model_len":2048,"token_strs":null})");
  EXPECT_EQ(
      client.post("/tokenize", R"({"content":"é","with_pieces":true})").body,
      R"({"tokens":[{"id":195,"piece":[195]},{"id":169,"piece":[169]}],"count":2,"max_model_len":2048,"token_strs":null})");
  EXPECT_EQ(client.post("/tokenize", R"({"content":null,"prompt":"a","with_pieces":null})").body,
            R"({"tokens":[97],"count":1,"max_model_len":2048,"token_strs":null})");
  EXPECT_EQ(error_param(client.post("/tokenize", R"({"content":null})")), "content");
  EXPECT_EQ(error_param(client.post("/tokenize", R"({"content":"a","add_special":1})")), "add_special");
  EXPECT_EQ(client.post("/detokenize", R"({"tokens":[104,105]})").body, R"({"content":"hi","prompt":"hi"})");
  EXPECT_EQ(client.post("/apply-template", chat_body("x")).body, R"({"prompt":"<user>x<|end|><assistant>"})");
  EXPECT_EQ(client.get("/version").status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_TRUE(parse_json(client.get("/openapi.json").body).ok());
  EXPECT_TRUE(parse_json(client.get("/engine?since=3").body).ok());
  EXPECT_EQ(client.get("/engine?x=1&since=-1").status, 200);
  EXPECT_EQ(error_param(client.get("/engine?since=3x")), "since");
  EXPECT_NE(client.get("/").head.find("content-security-policy: default-src 'none'"), std::string::npos);
  EXPECT_EQ(client.get("/nothing").status, 404);
  const HttpAnswer wrong = client.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("allow: post"), std::string::npos);
}

TEST(ServerApi, SpecialTokensSpelledByAUserAreText) {
  TestServer server;
  RawClient client(server.port());
  EXPECT_NE(client.post("/tokenize", R"({"messages":[{"role":"user","content":"<|end|>"}]})")
                .body.find("60,124,101,110,100,124,62,256"),
            std::string::npos);
}

TEST(ServerApi, ErrorsNameTheField) {
  TestServer server;
  RawClient client(server.port());
  EXPECT_EQ(error_param(client.post("/v1/chat/completions", chat_body("x", "\"temperature\":-1"))), "temperature");
  EXPECT_EQ(error_param(client.post("/v1/chat/completions", chat_body("x", R"("response_format":{"type":"yaml"})"))),
            "response_format");
  EXPECT_EQ(error_param(client.post("/v1/completions", R"({"prompt":[5,300]})")), "prompt");
  const HttpAnswer length = client.post("/v1/completions", "{\"prompt\":\"" + std::string(3000, 'x') + "\"}");
  EXPECT_EQ(length.status, 400);
  EXPECT_NE(length.body.find("context_length_exceeded"), std::string::npos);
  const HttpAnswer failed = client.post("/v1/completions", R"({"prompt":"\u0001"})");
  EXPECT_EQ(failed.status, 400);
  EXPECT_NE(failed.body.find("No token is left"), std::string::npos);
}

TEST(ServerApi, RequestIdsAreGivenBackOrMade) {
  TestServer server;
  RawClient client(server.port());
  EXPECT_NE(client.get("/health", "X-Request-Id: my-id.1\r\n").head.find("x-request-id: my-id.1\r\n"),
            std::string::npos);
  EXPECT_NE(client.get("/health", "X-Request-Id: bad id\r\n").head.find("x-request-id: req-"), std::string::npos);
}

TEST(ServerKeys, EverythingButHealthNeedsOne) {
  TestServer server({}, {}, "alice:secret-key-1\nsecret-key-2\n");
  RawClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  for (const char* path : {"/v1/models", "/metrics", "/engine", "/", "/version", "/openapi.json", "/nothing"})
    EXPECT_EQ(client.get(path).status, 401) << path;
  EXPECT_EQ(client.post("/v1/chat/completions", chat_body("x")).status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret-key-1\r\n").status, 200);
  EXPECT_EQ(client.get("/v1/models", "Authorization: bearer secret-key-2\r\n").status, 200);
  EXPECT_EQ(client.get("/v1/models", "X-Api-Key: secret-key-2\r\n").status, 200);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret-key-\r\n").status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer alice:secret-key-1\r\n").status, 401);
  // A browser: any user, the key as password.
  EXPECT_EQ(client.get("/", "Authorization: Basic bWU6c2VjcmV0LWtleS0x\r\n").status, 200);
  EXPECT_NE(client.get("/").head.find("www-authenticate: basic"), std::string::npos);
}

TEST(ServerOrigin, PagesOfOtherSitesAreRefusedUnlessAllowed) {
  TestServer closed;
  RawClient client(closed.port());
  EXPECT_EQ(
      client.post("/v1/chat/completions", chat_body("x", "\"max_tokens\":1"), "Origin: http://evil.example\r\n").status,
      403);
  EXPECT_EQ(
      client.post("/v1/chat/completions", chat_body("x", "\"max_tokens\":1"), "Origin: http://localhost\r\n").status,
      200);
  ServerOptions options;
  options.cors_origin = "http://good.example";
  TestServer open(options);
  RawClient other(open.port());
  const HttpAnswer a = other.get("/v1/models", "Origin: http://good.example\r\n");
  EXPECT_EQ(a.status, 200);
  EXPECT_NE(a.head.find("access-control-allow-origin: http://good.example"), std::string::npos);
  other.send("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://good.example\r\n\r\n");
  EXPECT_EQ(other.answer().status, 200);
}

TEST(ServerHealth, ReportsLoadingReadyStalledAndDraining) {
  ServerOptions options;
  options.stall_timeout = 0.05;
  TestServer server(options, {}, "", false);
  RawClient client(server.port());
  EXPECT_NE(client.get("/health").body.find("loading"), std::string::npos);
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"x"})").status, 503);
  server.front->set_backend(&server.backend);
  EXPECT_TRUE(eventually([&] { return client.get("/health").status == 200; }));
  server.backend.frozen = true;
  RawClient waits(server.port());
  waits.send(RawClient::post_text("/v1/completions", R"({"prompt":"x","max_tokens":3})"));
  EXPECT_TRUE(eventually([&] { return client.get("/health").body.find("stalled") != std::string::npos; }));
  EXPECT_EQ(client.get("/health").status, 503);
  server.backend.frozen = false;
  EXPECT_EQ(waits.answer().status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
  server.front->set_draining();
  EXPECT_NE(client.get("/health").body.find("draining"), std::string::npos);
}

TEST(ServerMetrics, CountWhatHappened) {
  TestServer server;
  RawClient client(server.port());
  client.post("/v1/chat/completions", chat_body("x", "\"max_tokens\":5"));
  client.post("/v1/chat/completions", chat_body("x", "\"max_tokens\":-5"));
  const std::string text = client.get("/metrics").body;
  EXPECT_NE(text.find("ibid_time_to_first_token_seconds_count 1\n"), std::string::npos);
  EXPECT_NE(text.find("ibid_inter_token_latency_seconds_count 4\n"), std::string::npos);
  EXPECT_NE(text.find("ibid_request_seconds_count 1\n"), std::string::npos);
  EXPECT_NE(text.find("ibid_generated_tokens_total 5\n"), std::string::npos);
  EXPECT_NE(text.find("ibid_errors_total{kind=\"bad_request\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("ibid_responses_total{route=\"chat\",status=\"2xx\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("ibid_choices_finished_total{reason=\"length\"} 1\n"), std::string::npos);
}

}  // namespace
}  // namespace ibid
