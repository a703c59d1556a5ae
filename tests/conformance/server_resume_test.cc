// Answers that are cut and resumed, and requests that are moved, over HTTP: what a client has heard, with what follows,
// is the answer that was never cut.
#include "conformance/two_replicas.h"
#include "kernels/arithmetic_version.h"

namespace ibid {
namespace {

TEST(ServerResume, AnAnswerOfAnyApiGoesOnWhereverItWasCut) {
  TwoReplicas servers;
  for (const Api& api : apis()) {
    SCOPED_TRACE(api.path);
    const std::string whole = with_long_answer(servers.one.port(), api);
    const std::string all = whole_text(servers.one.port(), api, whole);
    EXPECT_EQ(streamed_text(servers.one.port(), api, whole), all);
    for (size_t n = 1; n <= all.size(); n += 3) {
      const std::string body = with(whole, resume_of(all.substr(0, n)));
      EXPECT_EQ(whole_text(servers.two.port(), api, body), all.substr(n)) << "cut after " << n;
      EXPECT_EQ(streamed_text(servers.two.port(), api, body), all.substr(n)) << "cut after " << n;
    }
  }
}

TEST(ServerResume, AStopStringIsFoundAcrossTheCut) {
  TwoReplicas servers;
  const Api api = apis().front();
  const std::string all = whole_text(servers.one.port(), api, api.body);
  for (size_t from = 5; from < 30; from += 7) {
    const std::string stop = all.substr(from, 4);
    ASSERT_EQ(all.find(stop), from) << "each stands once";
    const std::vector<std::string> stops = {stop, all.substr(2, 2) + "~"};
    const Json::Array list = {Json(stops[0]), Json(stops[1])};
    const std::string stopping = with(api.body, "\"stop\":" + Json(list).text());
    EXPECT_EQ(whole_text(servers.one.port(), api, stopping), all.substr(0, from));
    for (size_t n = 1; n < from + 4; ++n) {
      RawClient client(servers.two.port());
      const Json rest = post_json(client, api.path, with(stopping, resume_of(all.substr(0, n))));
      // What was sent: all but the longest end that a stop string begins with.
      size_t n_held = 0;
      for (const std::string& one : stops) {
        for (size_t len = 1; len < one.size(); ++len)
          if (std::string_view(all).substr(0, n).ends_with(one.substr(0, len))) n_held = std::max(n_held, len);
      }
      const size_t n_sent = n - n_held;
      EXPECT_EQ(text_in(rest), n_sent < from ? all.substr(n_sent, from - n_sent) : "") << stop << " cut after " << n;
      EXPECT_EQ(text_of(list_of(rest, "choices")[0], "stop_reason"), stop);
    }
  }
}

TEST(ServerResume, UsageHasBothPartsAndLogprobsTheSecond) {
  TwoReplicas servers;
  const Api api = apis().front();
  const std::string body = with(api.body, R"("logprobs":2,"return_token_ids":true)");
  RawClient one(servers.one.port()), two(servers.two.port());
  const Json all = post_json(one, api.path, body);
  const Json& whole = at(list_of(all, "choices")[0], "logprobs");
  const std::string text = text_in(all);
  const Json rest = post_json(two, api.path, with(body, resume_of(text.substr(0, 13))));
  const Json& part = at(list_of(rest, "choices")[0], "logprobs");
  for (const char* column : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    Json::Array expected = list_of(whole, column);
    expected.erase(expected.begin(), expected.begin() + 13);
    EXPECT_EQ(Json(list_of(part, column)).text(), Json(expected).text()) << column;
  }
  EXPECT_EQ(
      at(rest, "usage").text(),
      R"({"prompt_tokens":5,"completion_tokens":40,"total_tokens":45,"prompt_tokens_details":{"cached_tokens":0},)"
      R"("completion_tokens_details":{"resumed_tokens":13}})");
  EXPECT_EQ(list_of(list_of(rest, "choices")[0], "token_ids").size(), 27u);
  EXPECT_EQ(at(all, "usage").find("completion_tokens_details"), nullptr);
  // The end of all of it.
  const Json over = post_json(two, api.path, with(body, resume_of(text)));
  EXPECT_EQ(text_in(over), "");
  EXPECT_EQ(text_of(list_of(over, "choices")[0], "finish_reason"), "length");
}

TEST(ServerResume, MirostatGoesOnWithItsMu) {
  TwoReplicas servers;
  const std::string body =
      R"({"prompt":"HELLO","max_tokens":30,"seed":5,"mirostat":2,"mirostat_tau":3,"return_token_ids":true})";
  RawClient one(servers.one.port()), two(servers.two.port());
  const std::string all = text_in(post_json(one, "/v1/completions", body));
  const HttpAnswer stream = one.post("/v1/completions", with(body, R"("stream":true)"));
  std::string heard;
  for (const auto& [type, event] : events_of(stream.body)) {
    const Json& choice = list_of(event, "choices")[0];
    heard += text_of(choice, "text");
    if (heard.empty() || heard.size() == all.size()) continue;
    const std::string mu = at(choice, "mirostat_mu").text();
    const std::string resume = "\"resume\":{\"token_ids\":" + ids_of(heard) + ",\"mirostat_mu\":" + mu + "}";
    EXPECT_EQ(text_in(post_json(two, "/v1/completions", with(body, resume))), all.substr(heard.size())) << mu;
  }
  EXPECT_EQ(heard, all);
  const HttpAnswer without = two.post("/v1/completions", with(body, resume_of("AB")));
  EXPECT_EQ(without.status, 400);
  EXPECT_NE(without.body.find("mirostat_mu"), std::string::npos) << without.body;
}

TEST(ServerResume, WhatCannotBeResumedIsRefusedByName) {
  TwoReplicas servers;
  RawClient client(servers.two.port());
  const std::string own = "ibid-" IBID_VERSION "-" + arithmetic_id() + "-00ff";
  const auto refused = [&](const std::string& members, const std::string& param, const std::string& sentence,
                           const char* path = "/v1/completions") {
    const bool is_chat = path != std::string_view("/v1/completions");
    const HttpAnswer answer =
        client.post(path, is_chat ? chat_body("HI", members) : R"({"prompt":"HI",)" + members + "}");
    EXPECT_EQ(answer.status, 400) << members << answer.body;
    EXPECT_EQ(error_param(answer), param) << members;
    EXPECT_NE(answer.body.find(sentence), std::string::npos) << answer.body;
  };
  const std::string ids = R"("resume":{"token_ids":[5,6]})";
  refused(ids, "seed", "resume needs seed");
  refused(ids + R"(,"seed":1,"n":2)", "resume", "one choice");
  refused(ids + R"(,"seed":1,"best_of":2)", "resume", "one choice");
  refused(R"("seed":1,"resume":[5])", "resume", "must be an object");
  refused(R"("seed":1,"resume":{})", "resume.token_ids", "is missing");
  refused(R"("seed":1,"resume":{"token_ids":[-1]})", "resume.token_ids[0]", "token id");
  refused(R"("seed":1,"resume":{"token_ids":[5,64]})", "resume.token_ids[1]", "go from 0 to 63");
  refused(R"("seed":1,"resume":{"token_ids":[5],"kv":1})", "resume.kv", "not served");
  refused(R"("seed":1,"resume":{"token_ids":[5],"model_digest":"00fe"})", "resume.model_digest", "00fe");
  refused(R"("seed":1,"resume":{"token_ids":[5],"system_fingerprint":"ibid-0.0.9-portable-1-00ff"})",
          "resume.system_fingerprint", own);
  refused(R"("seed":1,"max_tokens":2,"resume":{"token_ids":[5,6,7]})", "resume", "may have 2");
  refused(R"("seed":1,"resume":{"token_ids":[5,0,7]})", "resume.token_ids", "ends with the first 2");
  refused(R"("seed":1,"num_beams":2,"temperature":0,)" + ids, "num_beams", "search");
  refused(R"("seed":1,"regex":"A+",)" + ids, "resume", "grammar allows");
  const HttpAnswer several = client.post("/v1/completions", R"({"prompt":["A","B"],"seed":1,)" + ids + "}");
  EXPECT_EQ(several.status, 400);
  EXPECT_EQ(error_param(several), "resume") << several.body;
  refused(R"("seed":1,"resume":{"token_ids":[5,6],"model_digest":"x"})", "resume.model_digest", "\\\"x\\\"",
          "/v1/chat/completions");
  const HttpAnswer taken = client.post(
      "/v1/completions",
      R"({"prompt":"HI","max_tokens":4,"seed":1,"resume":{"token_ids":[5],"model_digest":"00ff","system_fingerprint":")" +
          own + "\"}}");
  EXPECT_EQ(taken.status, 200) << taken.body;
}

// Of a snapshot: its request with a member that is another.
std::string request_in(const Json& snapshot, const char* name, const Json& value) {
  Json request = at(snapshot, "request");
  for (auto& [key, own] : *request.object()) {
    if (key == name) own = value;
  }
  return request.text();
}

TEST(ServerResume, AMovedRequestEndsHereAndGoesOnElsewhere) {
  for (const Api& api : apis()) {
    SCOPED_TRACE(api.path);
    TwoReplicas servers(12);
    std::string body = with_long_answer(servers.two.port(), api);
    // Of one that ends by its length alone the server chooses the seed.
    if (const size_t seed = body.find("\"seed\":"); api.path == std::string_view("/v1/completions"))
      body.erase(seed, body.find(',', seed) + 1 - seed);
    const size_t stream = body.find(R"("stream":false)");
    stream == std::string::npos ? static_cast<void>(body = with(body, R"("stream":true)"))
                                : static_cast<void>(body.replace(stream, 14, R"("stream":true)"));
    RawClient client(servers.one.port()), mover(servers.one.port());
    client.send(RawClient::post_text(api.path, body, "X-Request-Id: the-one\r\n"));
    ASSERT_TRUE(client.receive_until("\r\n\r\n"));
    // Some of its tokens are there.
    ASSERT_TRUE(eventually([&] { return servers.one.stats().generated_tokens >= 6; }));
    const HttpAnswer moved = mover.post("/v1/requests/the-one/move", "");
    EXPECT_EQ(mover.post("/v1/requests/the-one/move", "").status, 404) << "it is moved once";
    const HttpAnswer first = client.answer();
    servers.open();
    ASSERT_EQ(moved.status, 200) << moved.body;
    EXPECT_NE(first.body.find("was moved"), std::string::npos) << first.body;
    const Result<Json> snapshot = parse_json(moved.body);
    ASSERT_TRUE(snapshot.ok()) << moved.body;
    EXPECT_EQ(text_of(*snapshot, "path"), api.path);
    const Json& resume = at(at(*snapshot, "request"), "resume");
    EXPECT_EQ(text_of(resume, "model_digest"), "00ff");
    std::string so_far;
    for (const Json& id : list_of(resume, "token_ids")) so_far += static_cast<char>('@' + *id.integer() - 1);
    EXPECT_GE(so_far.size(), 5u);
    const Json whole = *parse_json(R"({"request":)" + request_in(*snapshot, "stream", Json(false)) + "}");
    const std::string rest = whole_text(servers.two.port(), api, at(whole, "request").text());
    EXPECT_EQ(so_far + rest, whole_text(servers.two.port(), api, request_in(whole, "resume", Json())));
    EXPECT_GE(rest.size(), 5u);
  }
}

TEST(ServerResume, ARequestIsMovedByItsOwnTenantAlone) {
  TwoReplicas servers(12, "red:secret-key-1\nblue:secret-key-2\n");
  RawClient client(servers.one.port()), mover(servers.one.port());
  const std::string red = "X-Api-Key: secret-key-1\r\n", blue = "X-Api-Key: secret-key-2\r\n";
  client.send(RawClient::post_text("/v1/completions",
                                   R"({"prompt":"HELLO","max_tokens":400,"ignore_eos":true,"stream":true})",
                                   red + "X-Request-Id: mine\r\n"));
  RawClient other(servers.one.port());
  other.send(RawClient::post_text("/v1/completions",
                                  R"({"prompt":"HELLO","n":2,"max_tokens":400,"ignore_eos":true,"stream":true})",
                                  red + "X-Request-Id: two\r\n"));
  ASSERT_TRUE(client.receive_until("\n\n") && other.receive_until("\r\n\r\n"));
  EXPECT_EQ(mover.post("/v1/requests/mine/move", "", blue).status, 404);
  EXPECT_EQ(mover.post("/v1/requests/mine/move", "").status, 401);
  EXPECT_EQ(mover.post("/v1/requests/none/move", "", red).status, 404);
  EXPECT_EQ(mover.post("/v1/requests/two/move", "", red).status, 404) << "of several choices none is moved";
  EXPECT_EQ(mover.post("/v1/requests/mine/move", "", red).status, 200);
  EXPECT_EQ(mover.post("/v1/requests/mine/move", "", red).status, 404);
}

TEST(ServerResume, MovesAreServedWhereTheyAreAllowed) {
  EngineServer server({}, 0);
  const HttpAnswer answer = RawClient(server.port()).post("/v1/requests/any/move", "");
  EXPECT_EQ(answer.status, 501);
  EXPECT_NE(answer.body.find("--allow-moves"), std::string::npos);
}

// Reasoning and calls of tools, of a script.
constexpr const char* kTools =
    R"("stream":true,"return_token_ids":true,"seed":1,"tools":[{"type":"function","function":{"name":"get_weather",)"
    R"("parameters":{"type":"object","properties":{"place":{"type":"string"}},"required":["place"]}}},)"
    R"({"type":"function","function":{"name":"find"}}])";
constexpr const char* kSaid =
    "<think>\nWhere?\n</think>\n\nI look it up.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": "
    "\"Bern\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"find\", \"arguments\": {}}\n</tool_call>";

// As a client puts a stream of chunks together.
struct Message {
  std::string content, reasoning, finish;
  std::map<int64_t, std::pair<std::string, std::string>> calls;  // names and arguments
  std::vector<int64_t> ids;
  int64_t n_reasoning = -1;

  void hear(const Json& event) {
    const Json& details = at(at(event, "usage"), "completion_tokens_details");
    if (at(details, "reasoning_tokens").integer() != nullptr) n_reasoning = *at(details, "reasoning_tokens").integer();
    if (list_of(event, "choices").empty()) return;
    const Json& choice = list_of(event, "choices")[0];
    const Json& delta = at(choice, "delta");
    content += text_of(delta, "content");
    reasoning += text_of(delta, "reasoning");
    finish += text_of(choice, "finish_reason");
    for (const Json& id : list_of(choice, "token_ids")) ids.push_back(*id.integer());
    for (const Json& call : list_of(delta, "tool_calls")) {
      auto& [name, arguments] = calls[*at(call, "index").integer()];
      name += text_of(at(call, "function"), "name");
      arguments += text_of(at(call, "function"), "arguments");
    }
  }
  bool operator==(const Message&) const = default;
};

TEST(ServerResume, ReasoningAndCallsGoOnWhereverTheyWereCut) {
  FakeBackend::Options engine;
  engine.step_seconds = 0.0002;
  TestServer server({}, engine);
  server.backend.say("Weather?", kSaid);
  RawClient client(server.port());
  const std::string body = chat_body("Weather?", std::string(kTools) + R"(,"stream_options":{"include_usage":true})");
  const auto events = events_of(client.post("/v1/chat/completions", body).body);
  Message all;
  for (const auto& [type, event] : events) all.hear(event);
  ASSERT_EQ(all.calls.size(), 2u);
  ASSERT_EQ(all.finish, "tool_calls");
  Message heard;
  int n_cuts = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    heard.hear(events[i].second);
    // Events of one token follow each other; the tokens are with the first.
    const bool is_cut = i + 1 < events.size() && !list_of(events[i + 1].second, "choices").empty() &&
                        !list_of(list_of(events[i + 1].second, "choices")[0], "token_ids").empty();
    if (!is_cut || heard.ids.empty()) continue;
    std::string ids;
    for (const int64_t id : heard.ids) ids += (ids.empty() ? "" : ",") + std::to_string(id);
    const HttpAnswer rest = client.post("/v1/chat/completions", with(body, R"("resume":{"token_ids":[)" + ids + "]}"));
    Message joined = heard;
    for (const auto& [type, event] : events_of(rest.body)) joined.hear(event);
    EXPECT_EQ(joined, all) << "cut after " << heard.ids.size() << rest.body;
    ++n_cuts;
  }
  EXPECT_GT(n_cuts, 2);  // a slow machine sends several tokens in one event
  // A whole answer has a call that was open all of it, as what is asked for it must be JSON.
  const std::string said = kSaid;
  const std::string cut = said.substr(0, said.find("Bern"));
  std::string ids;
  for (const char c : cut) ids += (ids.empty() ? "" : ",") + std::to_string(static_cast<unsigned char>(c));
  std::string whole = body;
  whole.replace(whole.find(R"("stream":true)"), 13, R"("stream":false)");
  const std::string with_usage = R"(,"stream_options":{"include_usage":true})";
  whole.erase(whole.find(with_usage), with_usage.size());
  const Json answer = post_json(client, "/v1/chat/completions", with(whole, R"("resume":{"token_ids":[)" + ids + "]}"));
  const Json& message = at(list_of(answer, "choices")[0], "message");
  ASSERT_EQ(list_of(message, "tool_calls").size(), 2u) << message.text();
  EXPECT_EQ(at(list_of(message, "tool_calls")[0], "function").text(),
            R"({"name":"get_weather","arguments":"{\"place\":\"Bern\"}"})");
  EXPECT_EQ(text_of(message, "content"), "");
}

}  // namespace
}  // namespace ibid
