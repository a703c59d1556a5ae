// One scripted answer over four APIs, streamed and not, cut at each of its tokens (a byte each): all clients put the
// same content together. And what each API has of its own.
#include <map>

#include "conformance/json_events.h"
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

constexpr const char* kSaid =
    "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": \"a \\\"b\\\"\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"find\", \"arguments\": {}}\n</tool_call>";

// The contents of an answer, in any API's form.
struct Told {
  std::string reasoning, text, reason;
  std::vector<std::pair<std::string, std::string>> calls;  // name and arguments
  std::string joined() const {
    std::string out = "(" + reasoning + ")" + text;
    for (const auto& [name, arguments] : calls) out += "<" + name + arguments + ">";
    return out + " " + reason;
  }
};

class Api {
 public:
  explicit Api(RawClient& client) : client_(client) {}
  virtual ~Api() = default;
  virtual const char* name() const = 0;
  virtual Told ask(int max_tokens, bool stream) = 0;

 protected:
  Json post(const char* path, const std::string& body) {
    const HttpAnswer a = client_.post(path, body);
    EXPECT_EQ(a.status, 200) << body << a.body;
    Result<Json> json = parse_json(a.body);
    return json ? *std::move(json) : Json();
  }
  std::string stream(const char* path, const std::string& body) {
    const HttpAnswer a = client_.post(path, body);
    EXPECT_EQ(a.status, 200) << body << a.body;
    return a.body;
  }
  RawClient& client_;
};

class Chat final : public Api {
 public:
  using Api::Api;
  const char* name() const override { return "chat"; }
  Told ask(int max_tokens, bool streamed) override {
    const std::string body = R"({"messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":)"
                             R"({"name":"find"}}],"max_tokens":)" +
                             std::to_string(max_tokens) + (streamed ? ",\"stream\":true}" : "}");
    Told told;
    if (!streamed) {
      const Json choice = list_of(post("/v1/chat/completions", body), "choices")[0];
      take(at(choice, "message"), told);
      told.reason = text_of(choice, "finish_reason");
      return told;
    }
    for (const auto& [type, event] : events_of(stream("/v1/chat/completions", body))) {
      const Json& choice = list_of(event, "choices")[0];
      take(at(choice, "delta"), told);
      told.reason += text_of(choice, "finish_reason");
    }
    return told;
  }

 private:
  static void take(const Json& delta, Told& told) {
    told.text += text_of(delta, "content");
    told.reasoning += text_of(delta, "reasoning_content");
    for (const Json& call : list_of(delta, "tool_calls")) {
      const Json& function = at(call, "function");
      if (call.find("id") != nullptr) told.calls.emplace_back();
      told.calls.back().first += text_of(function, "name");
      told.calls.back().second += text_of(function, "arguments");
    }
  }
};

class Messages final : public Api {
 public:
  using Api::Api;
  const char* name() const override { return "messages"; }
  Told ask(int max_tokens, bool streamed) override {
    const std::string body = R"({"model":"m","messages":[{"role":"user","content":"go"}],"tools":[{"name":"find",)"
                             R"("input_schema":{"type":"object"}}],"max_tokens":)" +
                             std::to_string(max_tokens) + (streamed ? ",\"stream\":true}" : "}");
    Told told;
    if (!streamed) {
      const Json message = post("/v1/messages", body);
      for (const Json& block : list_of(message, "content")) {
        told.reasoning += text_of(block, "thinking");
        told.text += text_of(block, "text");
        if (text_of(block, "type") == "tool_use")
          told.calls.emplace_back(text_of(block, "name"), at(block, "input").text());
      }
      told.reason = text_of(message, "stop_reason");
      return told;
    }
    // The order of events is the API's.
    std::string last = "";
    int64_t index = -1;
    for (const auto& [type, event] : events_of(stream("/v1/messages", body))) {
      EXPECT_EQ(type, text_of(event, "type"));
      if (type == "message_start") {
        EXPECT_EQ(last, "");
      }
      if (type == "content_block_start") {
        EXPECT_TRUE(last == "message_start" || last == "content_block_stop") << last;
        EXPECT_EQ(*at(event, "index").integer(), ++index);
        const Json& block = at(event, "content_block");
        if (text_of(block, "type") == "tool_use") told.calls.emplace_back(text_of(block, "name"), "");
      }
      if (type == "content_block_delta") {
        EXPECT_TRUE(last == "content_block_start" || last == "content_block_delta") << last;
        EXPECT_EQ(*at(event, "index").integer(), index);
        const Json& delta = at(event, "delta");
        told.reasoning += text_of(delta, "thinking");
        told.text += text_of(delta, "text");
        if (text_of(delta, "type") == "input_json_delta") told.calls.back().second += text_of(delta, "partial_json");
      }
      if (type == "message_delta") {
        EXPECT_TRUE(last == "content_block_stop" || last == "message_start") << last;
        told.reason = text_of(at(event, "delta"), "stop_reason");
      }
      last = type;
    }
    EXPECT_EQ(last, "message_stop");
    return told;
  }
};

class Responses final : public Api {
 public:
  using Api::Api;
  const char* name() const override { return "responses"; }
  Told ask(int max_tokens, bool streamed) override {
    const std::string body = R"({"model":"m","input":"go","tools":[{"type":"function","name":"find",)"
                             R"("parameters":{"type":"object"}}],"max_output_tokens":)" +
                             std::to_string(max_tokens) + (streamed ? ",\"stream\":true}" : "}");
    if (!streamed) return whole(post("/v1/responses", body));
    Told told;
    int64_t number = 0;
    std::vector<std::string> open;
    std::string added_up;
    Json last;
    for (const auto& [type, event] : events_of(stream("/v1/responses", body))) {
      EXPECT_EQ(type, text_of(event, "type"));
      EXPECT_EQ(*at(event, "sequence_number").integer(), number) << type;
      if (number == 0) {
        EXPECT_EQ(type, "response.created");
      }
      ++number;
      const int64_t* index = at(event, "output_index").integer();
      if (type == "response.output_item.added") {
        EXPECT_EQ(*index, static_cast<int64_t>(open.size()));
        open.push_back(text_of(at(event, "item"), "id"));
        if (text_of(at(event, "item"), "type") == "function_call")
          told.calls.emplace_back(text_of(at(event, "item"), "name"), "");
        added_up.clear();
      } else if (index != nullptr && type != "response.output_item.done") {
        EXPECT_EQ(text_of(event, "item_id"), open[static_cast<size_t>(*index)]) << type;
      }
      if (type.ends_with(".delta")) added_up += text_of(event, "delta");
      if (type == "response.output_text.delta") told.text += text_of(event, "delta");
      if (type == "response.reasoning_text.delta") told.reasoning += text_of(event, "delta");
      if (type == "response.function_call_arguments.delta") told.calls.back().second += text_of(event, "delta");
      if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
        EXPECT_EQ(text_of(event, "text"), added_up);
      }
      if (type == "response.function_call_arguments.done") {
        EXPECT_EQ(text_of(event, "arguments"), added_up);
      }
      last = event;
    }
    const Told at_end = whole(at(last, "response"));
    told.reason = at_end.reason;
    EXPECT_EQ(told.joined(), at_end.joined()) << "deltas add up to the whole";
    return told;
  }

 private:
  static Told whole(const Json& response) {
    Told told;
    for (const Json& item : list_of(response, "output")) {
      const std::string type = text_of(item, "type");
      if (type == "function_call") told.calls.emplace_back(text_of(item, "name"), text_of(item, "arguments"));
      for (const Json& part : list_of(item, "content"))
        (type == "reasoning" ? told.reasoning : told.text) += text_of(part, "text");
    }
    told.reason = text_of(response, "status");
    return told;
  }
};

class Ollama final : public Api {
 public:
  using Api::Api;
  const char* name() const override { return "ollama"; }
  Told ask(int max_tokens, bool streamed) override {
    const std::string body = R"({"model":"m","messages":[{"role":"user","content":"go"}],"tools":[{"type":"function",)"
                             R"("function":{"name":"find"}}],"options":{"num_predict":)" +
                             std::to_string(max_tokens) + (streamed ? "}}" : "},\"stream\":false}");
    Told told;
    const std::string lines = streamed ? stream("/api/chat", body) : post("/api/chat", body).text() + "\n";
    for (size_t begin = 0, end; (end = lines.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const Result<Json> line = parse_json(lines.substr(begin, end - begin));
      if (!line) return ADD_FAILURE() << lines, told;
      const Json& message = at(*line, "message");
      told.text += text_of(message, "content");
      told.reasoning += text_of(message, "thinking");
      for (const Json& call : list_of(message, "tool_calls"))
        told.calls.emplace_back(text_of(at(call, "function"), "name"), at(at(call, "function"), "arguments").text());
      told.reason += text_of(*line, "done_reason");
    }
    return told;
  }
};

TEST(ServerApis, OneAnswerIsTheSameOverFourApisWhereverItIsCut) {
  FakeBackend::Options engine;
  engine.step_seconds = 0.00002;
  TestServer server({}, engine);
  server.backend.say("go", kSaid);
  RawClient client(server.port());
  Chat chat(client);
  Messages messages(client);
  Responses responses(client);
  Ollama ollama(client);
  const auto n = static_cast<int>(std::string_view(kSaid).size());
  for (int len = 1; len <= n; ++len) {
    const Told wanted = chat.ask(len, false);
    if (len == n) {
      EXPECT_EQ(wanted.joined(), "(Hm.)I look.<find{\"q\":\"a \\\"b\\\"\"}><find{}> tool_calls");
    }
    const bool ended = len == n;
    for (Api* api : {static_cast<Api*>(&chat), static_cast<Api*>(&messages), static_cast<Api*>(&responses),
                     static_cast<Api*>(&ollama)}) {
      for (const bool streamed : {false, true}) {
        const Told told = api->ask(len, streamed);
        const std::string where =
            std::string(api->name()) + (streamed ? " streamed" : "") + " cut at " + std::to_string(len);
        ASSERT_EQ(told.text, wanted.text) << where;
        ASSERT_EQ(told.reasoning, wanted.reasoning) << where;
        // Where arguments are an object, those of a call that is cut are none.
        const bool object = api == &ollama || (api == &messages && !streamed);
        for (size_t i = 0; i < wanted.calls.size(); ++i) {
          const bool is_whole = parse_json(wanted.calls[i].second).ok();
          if (object && !is_whole) continue;
          ASSERT_LT(i, told.calls.size()) << where;
          ASSERT_EQ(told.calls[i], wanted.calls[i]) << where;
        }
        const std::string reason = api == &chat        ? (ended ? "tool_calls" : "length")
                                   : api == &messages  ? (ended ? "tool_use" : "max_tokens")
                                   : api == &responses ? (ended ? "completed" : "incomplete")
                                                       : (ended ? "stop" : "length");
        ASSERT_EQ(told.reason, reason) << where;
      }
    }
  }
}

// Ollama's answers are lines, and arguments stand in them as the model wrote them.
TEST(ServerApis, ArgumentsOverSeveralLinesStayOneLineOfOllamas) {
  TestServer server;
  server.backend.say(
      "go", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\n  \"q\":\r\n [1,\n \"a\\nb\"]\n}\n}\n</tool_call>");
  RawClient client(server.port());
  Ollama ollama(client);
  for (const bool streamed : {false, true}) {
    const Told told = ollama.ask(500, streamed);
    ASSERT_EQ(told.calls.size(), 1u) << streamed;
    EXPECT_EQ(told.calls[0].second, R"({"q":[1,"a\nb"]})") << streamed;
  }
}

TEST(ServerApis, RefusalsHaveTheFormOfTheApi) {
  TestServer server({}, {}, "a:key-of-tenant-a");
  RawClient client(server.port());
  for (
      const auto& [path, body, wanted] : std::initializer_list<std::tuple<const char*, const char*, const char*>>{
          {"/v1/messages", R"({"messages":[]})", "invalid_request_error"},
          {"/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
           "messages[0].content[0].source"},
          {"/v1/messages",
           R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"type":"bash_20250124","name":"x"}]})",
           "tools[0].type"},
          {"/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"mcp_servers":[{}]})",
           "mcp_servers"},
          {"/v1/responses", R"({"input":"x","background":true})", "background"},
          {"/v1/responses", R"({"input":"x","truncation":"auto"})", "truncation"},
          {"/v1/responses", R"({"input":"x","tools":[{"type":"web_search"}]})", "tools[0].type"},
          {"/v1/responses", R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type"},
          {"/v1/responses", R"({"input":"x","previous_response_id":"resp_1"})", "previous_response_id"},
          {"/v1/responses", R"({})", "input"},
          {"/api/chat", R"({"messages":[{"role":"user","content":"x","images":["a"]}]})", "reads no pictures"},
          {"/api/chat", R"({"messages":[{"role":"user","content":"x"}],"options":{"num_ctx":9999999}})",
           "options.num_ctx"},
          {"/api/generate", R"({"prompt":"x","suffix":"y"})", "suffix"},
          {"/infill", R"({"input_prefix":"x"})", "tokens for filling in"},
          {"/completion", R"({"prompt":{"prompt_string":"a","multimodal_data":"b"}})", "multimodal_data"}}) {
    const HttpAnswer a = client.post(path, body, "Authorization: Bearer key-of-tenant-a\r\n");
    EXPECT_EQ(a.status, 400) << path << body << a.body;
    EXPECT_NE(a.body.find(wanted), std::string::npos) << path << body << a.body;
  }
  EXPECT_TRUE(
      client.post("/v1/messages", "{}").body.starts_with(R"({"type":"error","error":{"type":"authentication_error")"));
  EXPECT_TRUE(client.post("/api/chat", "{}").body.starts_with(R"({"error":")"));
}

TEST(ServerApis, AResponseBelongsToTheTenantThatMadeIt) {
  TestServer server({}, {}, "a:key-of-tenant-a\nb:key-of-tenant-b");
  server.backend.say("go", "Gone.");
  RawClient client(server.port());
  const std::string a = "Authorization: Bearer key-of-tenant-a\r\n", b = "Authorization: Bearer key-of-tenant-b\r\n";
  const Result<Json> first =
      parse_json(client.post("/v1/responses", R"({"input":"go","instructions":"Be short."})", a).body);
  const std::string id = text_of(*first, "id");
  EXPECT_EQ(id.size(), 5u + 32);
  EXPECT_EQ(client.get("/v1/responses/" + id, a).body, first->text());
  EXPECT_EQ(client.get("/v1/responses/" + id, b).status, 404);
  EXPECT_EQ(client.get("/v1/responses/" + id).status, 401);
  const Result<Json> items = parse_json(client.get("/v1/responses/" + id + "/input_items", a).body);
  EXPECT_EQ(list_of(*items, "data").size(), 1u);
  EXPECT_EQ(client.post("/v1/responses/" + id + "/cancel", "", a).status, 400);
  // What goes on from it has its question and answer before its own, and not its instructions.
  const std::string next = R"({"input":"more","previous_response_id":")" + id + "\"}";
  server.backend.say("more", "More.");
  const Result<Json> second = parse_json(client.post("/v1/responses", next, a).body);
  const std::string prompt = "<user>go<|end|><assistant>Gone.<|end|><user>more<|end|><assistant>";
  EXPECT_EQ(*at(at(*second, "usage"), "input_tokens").integer(), static_cast<int64_t>(prompt.size() - 3 * 6));
  EXPECT_EQ(client.post("/v1/responses", next, b).status, 400);
  EXPECT_EQ(client.erase("/v1/responses/" + id, b).status, 404);
  EXPECT_EQ(client.erase("/v1/responses/" + id, a).status, 200);
  EXPECT_EQ(client.get("/v1/responses/" + id, a).status, 404);
  const Result<Json> unkept = parse_json(client.post("/v1/responses", R"({"input":"go","store":false})", a).body);
  EXPECT_EQ(client.get("/v1/responses/" + text_of(*unkept, "id"), a).status, 404);
}

TEST(ServerApis, ResponseHasLogProbabilitiesOfItsTextOnRequest) {
  TestServer server;
  server.backend.say("go", "Gone.");
  server.backend.say("think", "<think>\nHm.\n</think>\n\nYes.");
  RawClient client(server.port());
  const auto tokens = [](const Json& logprobs) {
    std::string out;
    for (const Json& entry : logprobs.array() != nullptr ? *logprobs.array() : Json::Array()) {
      EXPECT_LE(at(entry, "logprob").number(), 0);
      out += text_of(entry, "token");
    }
    return out;
  };
  const std::string ask = R"("top_logprobs":2,"include":["message.output_text.logprobs"])";
  for (const auto& [said, text, reasoning] : std::initializer_list<std::tuple<const char*, const char*, const char*>>{
           {"go", "Gone.", ""}, {"think", "Yes.", "Hm"}}) {
    const std::string body = std::string(R"({"input":")") + said + R"(",)" + ask;
    const Result<Json> whole = parse_json(client.post("/v1/responses", body + "}").body);
    const Json& message = list_of(*whole, "output").back();
    const Json& logprobs = at(list_of(message, "content").at(0), "logprobs");
    const std::string told = tokens(logprobs);
    EXPECT_NE(told.find(text), std::string::npos) << told;
    if (*reasoning != 0) {
      EXPECT_EQ(told.find(reasoning), std::string::npos) << "tokens of the reasoning are no text";
    }
    ASSERT_FALSE(logprobs.array()->empty());
    EXPECT_EQ(list_of((*logprobs.array())[0], "top_logprobs").size(), 2u);
    EXPECT_EQ(*at(*whole, "top_logprobs").integer(), 2);
    // Streamed: each text's beside it; together, and in the last events, the same.
    std::string pieces;
    int n_whole = 0;
    for (const auto& [type, event] : events_of(client.post("/v1/responses", body + R"(,"stream":true})").body)) {
      if (type == "response.output_text.delta") pieces += tokens(at(event, "logprobs"));
      const Json* all = nullptr;
      if (type == "response.output_text.done") all = event.find("logprobs");
      if (type == "response.content_part.done" && text_of(at(event, "part"), "type") == "output_text")
        all = at(event, "part").find("logprobs");
      if (type == "response.completed")
        all = list_of(list_of(at(event, "response"), "output").back(), "content").at(0).find("logprobs");
      if (all != nullptr) {
        EXPECT_EQ(all->text(), logprobs.text()) << type;
        ++n_whole;
      }
    }
    EXPECT_EQ(n_whole, 3);
    EXPECT_TRUE(told.starts_with(pieces)) << pieces;
    EXPECT_NE(pieces.find(text), std::string::npos) << pieces;
  }
  const Result<Json> plain = parse_json(client.post("/v1/responses", R"({"input":"go"})").body);
  EXPECT_NE(list_of(*plain, "output").at(0).text().find("\"logprobs\":[]"), std::string::npos);
  const auto refused = [&](const std::string& more) {
    const HttpAnswer wrong = client.post("/v1/responses", R"({"input":"go",)" + more + "}");
    EXPECT_EQ(wrong.status, 400) << wrong.body;
    return error_param(wrong);
  };
  EXPECT_EQ(refused(R"("top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(refused(R"("include":["file_search_call.results"])"), "include");
  EXPECT_EQ(refused(ask + R"(,"tools":[{"type":"function","name":"f"}])"), "top_logprobs");
}

TEST(ServerApis, AResponseGoesOnFromReasoningAlone) {
  TestServer server;
  RawClient client(server.port());
  const HttpAnswer a =
      client.post("/v1/responses",
                  R"({"max_output_tokens":2,"input":[{"role":"user","content":"hi"},)"
                  R"({"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}]})");
  EXPECT_EQ(a.status, 200) << a.body;
}

TEST(ServerApis, StoredResponsesHaveABound) {
  StoredResponses stored(320'000, 100);
  const auto make = [](const std::string& id, size_t n_bytes) {
    auto r = std::make_shared<StoredResponse>();
    r->id = id, r->tenant = "a", r->response = std::string(n_bytes, 'x');
    return r;
  };
  for (int i = 0; i < 100; ++i) {
    stored.put(make(std::to_string(i), 3000), i);
    EXPECT_LE(stored.bytes(), 320'000);
  }
  EXPECT_NE(stored.find("99", "a", 100), nullptr);
  EXPECT_EQ(stored.find("99", "b", 100), nullptr);
  EXPECT_EQ(stored.find("9", "a", 100), nullptr) << "it had to make room";
  EXPECT_EQ(stored.find("99", "a", 300), nullptr) << "it is too old";
  stored.put(make("large", 30'000), 100);
  EXPECT_EQ(stored.find("large", "a", 100), nullptr);
  EXPECT_NE(stored.find("98", "a", 100), nullptr) << "what cannot be kept makes nobody else go";
}

TEST(ServerApis, TenantWithManyResponsesEvictsItsOwnOnly) {
  StoredResponses stored(320'000, 1e6);
  const auto put = [&](const std::string& id, const std::string& tenant) {
    auto r = std::make_shared<StoredResponse>();
    r->id = id, r->tenant = tenant, r->response = std::string(3000, 'x');
    stored.put(std::move(r), 1);
    EXPECT_LE(stored.bytes(), 320'000);
  };
  for (int i = 0; i < 10; ++i) put("mine" + std::to_string(i), "alice");
  for (int i = 0; i < 500; ++i) put("other" + std::to_string(i), "bob");
  for (int i = 0; i < 10; ++i) EXPECT_NE(stored.find("mine" + std::to_string(i), "alice", 2), nullptr);
  EXPECT_NE(stored.find("other499", "bob", 2), nullptr);
  EXPECT_EQ(stored.find("other0", "bob", 2), nullptr);
}

TEST(ServerApis, LlamaCppsCompletion) {
  TestServer server;
  server.backend.say("go", "Gone.");
  RawClient client(server.port());
  const Result<Json> whole =
      parse_json(client.post("/completion", R"({"prompt":"go","n_predict":3,"return_tokens":true,"n_probs":2})").body);
  EXPECT_EQ(text_of(*whole, "content"), "Gon");
  EXPECT_EQ(text_of(*whole, "stop_type"), "limit");
  EXPECT_EQ(text_of(*whole, "prompt"), "go");
  EXPECT_EQ(list_of(*whole, "tokens").size(), 3u);
  EXPECT_EQ(list_of(*whole, "completion_probabilities").size(), 3u);
  EXPECT_NE(at(*whole, "timings").find("predicted_per_second"), nullptr);
  std::string text;
  bool stopped = false;
  for (const auto& [type, event] :
       events_of(client.post("/completion", R"({"prompt":"go","stream":true,"stop":["e"]})").body)) {
    EXPECT_FALSE(stopped);
    text += text_of(event, "content");
    stopped = *at(event, "stop").boolean();
    if (stopped) {
      EXPECT_EQ(text_of(event, "stopping_word"), "e");
    } else {
      EXPECT_GE(list_of(event, "tokens").size(), text_of(event, "content").size()) << "they are told unasked";
    }
  }
  EXPECT_EQ(text, "Gon");
  EXPECT_TRUE(stopped);
  EXPECT_EQ(
      client
          .post("/completion",
                R"({"prompt":["g",111],"n_predict":2,"response_fields":["content","generation_settings/n_predict"]})")
          .body,
      R"({"content":"Go","generation_settings/n_predict":2})");
  EXPECT_EQ(client.get("/slots").status, 501);
  EXPECT_EQ(client.get("/props").status, 200);
}

TEST(ServerApis, LlamaCppsCompletionOfSeveralPromptsIsAnArray) {
  TestServer server;
  server.backend.say("go", "One.\nTwo");
  RawClient client(server.port());
  const Result<Json> both = parse_json(
      client
          .post("/completion",
                R"({"prompt":["go",[103,111],{"prompt_string":"go"},["g",111]],"n_predict":6,"ignore_eos":true})")
          .body);
  ASSERT_TRUE(both && both->array() != nullptr);
  ASSERT_EQ(both->array()->size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Json& one = (*both->array())[i];
    EXPECT_EQ(*at(one, "index").integer(), static_cast<int64_t>(i));
    EXPECT_EQ(text_of(one, "content"), "One.\nT");
    EXPECT_EQ(text_of(one, "prompt"), "go");
    EXPECT_EQ(*at(one, "tokens_predicted").integer(), 6);
    EXPECT_EQ(*at(one, "tokens_evaluated").integer(), 2);
    EXPECT_TRUE(*at(one, "has_new_line").boolean());
  }
  const Result<Json> one = parse_json(client.post("/completion", R"({"prompt":["go"],"n_predict":3})").body);
  EXPECT_EQ(text_of(*one, "content"), "One");
  EXPECT_FALSE(*at(*one, "has_new_line").boolean());
  EXPECT_TRUE(list_of(at(*one, "generation_settings"), "logit_bias").empty());
  std::map<int64_t, std::string> texts;
  for (const auto& [type, event] :
       events_of(client.post("/completion", R"({"prompt":["go","go"],"stream":true,"n_predict":3})").body))
    texts[*at(event, "index").integer()] += text_of(event, "content");
  EXPECT_EQ(texts, (std::map<int64_t, std::string>{{0, "One"}, {1, "One"}}));
  // Rows of ids and texts are one prompt, here as well.
  const Result<Json> mixed =
      parse_json(client.post("/v1/completions", R"({"prompt":["g",111],"max_tokens":3,"echo":true})").body);
  EXPECT_EQ(text_of(list_of(*mixed, "choices")[0], "text"), "goOne");
  for (const char* wrong :
       {R"([[["a"]]])", R"([[1],{"prompt_string":7}])", R"([{"x":1}])", R"(["a",1,[2]])", R"([1,"a",null])"})
    EXPECT_EQ(client.post("/completion", std::string("{\"prompt\":") + wrong + "}").status, 400) << wrong;
}

TEST(ServerApis, TooLongPromptHasTheErrorThatClientsKnow) {
  TestServer server;
  RawClient client(server.port());
  const std::string text = "\"" + std::string(3000, 'a') + "\"";
  for (const auto& [path, body] :
       {std::pair("/v1/completions", "{\"prompt\":" + text + "}"),
        std::pair("/completion", "{\"prompt\":" + text + "}"),
        std::pair("/v1/chat/completions", R"({"messages":[{"role":"user","content":)" + text + "}]}")}) {
    const HttpAnswer a = client.post(path, body);
    EXPECT_EQ(a.status, 400);
    const Result<Json> error = parse_json(a.body);
    ASSERT_TRUE(error.ok());
    const Json& facts = at(*error, "error");
    EXPECT_EQ(text_of(facts, "code"), "context_length_exceeded");
    EXPECT_EQ(text_of(facts, "type"), "exceed_context_size_error");
    EXPECT_GE(*at(facts, "n_prompt_tokens").integer(), 3000);
    EXPECT_EQ(*at(facts, "n_ctx").integer(), 2048);
    EXPECT_NE(text_of(facts, "message").find("maximum context length is 2048 tokens"), std::string::npos);
  }
}

TEST(ServerApis, PromptIsShownAndCounted) {
  TestServer server;
  server.backend.say("go", "Gone.");
  RawClient client(server.port());
  const std::string chat = R"("messages":[{"role":"user","content":"go"}])";
  const Result<Json> told = parse_json(client.post("/v1/chat/completions", "{\"verbose\":true," + chat + "}").body);
  const std::string prompt = text_of(at(*told, "__verbose"), "prompt");
  EXPECT_NE(prompt.find("go"), std::string::npos);
  EXPECT_EQ(client.post("/v1/chat/completions", "{" + chat + "}").body.find("__verbose"), std::string::npos);
  for (const char* path : {"/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"}) {
    const Result<Json> count = parse_json(client.post(path, "{" + chat + "}").body);
    EXPECT_EQ(*at(*count, "input_tokens").integer(), *at(at(*told, "usage"), "prompt_tokens").integer());
  }
  const HttpAnswer both = client.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"assistant","content":"a"}],"continue_final_message":true,"add_generation_prompt":true})");
  EXPECT_EQ(both.status, 400);
  const Result<Json> tokens = parse_json(client.post("/tokenize", R"({"prompt":"ab","return_token_strs":true})").body);
  EXPECT_EQ(list_of(*tokens, "token_strs").size(), list_of(*tokens, "tokens").size());
}

TEST(ServerApis, OperatorSetsDefaultsOfRequests) {
  ServerOptions options;
  options.n_slots = 3;
  options.slots = true;
  options.api.defaults = {.max_tokens = 2,
                          .seed = 7,
                          .template_kwargs = *parse_json(R"({"shown":"S","enable_thinking":false})"),
                          .include_usage = true,
                          .tokens_as_ids = true,
                          .verbose = true};
  TestServer server(options);
  server.backend.say("go", "Gone.");
  RawClient client(server.port());
  const std::string chat = R"("messages":[{"role":"user","content":"go"}],"logprobs":true)";
  const Result<Json> told = parse_json(client.post("/v1/chat/completions", "{" + chat + "}").body);
  EXPECT_EQ(*at(at(*told, "usage"), "completion_tokens").integer(), 2);
  EXPECT_EQ(*at(*told, "seed").integer(), 7);
  EXPECT_NE(told->find("__verbose"), nullptr);
  const Json& logprobs = at(list_of(*told, "choices")[0], "logprobs");
  EXPECT_EQ(text_of(list_of(logprobs, "content")[0], "token"), "token_id:71");
  const Result<Json> own =
      parse_json(client.post("/v1/chat/completions", "{\"max_tokens\":3,\"seed\":8," + chat + "}").body);
  EXPECT_EQ(*at(at(*own, "usage"), "completion_tokens").integer(), 3);
  EXPECT_EQ(*at(*own, "seed").integer(), 8);
  EXPECT_NE(client.post("/v1/chat/completions", "{\"stream\":true," + chat + "}").body.find("\"usage\":{"),
            std::string::npos);
  EXPECT_EQ(parse_json(client.get("/slots").body)->array()->size(), 3u);
  const Result<Json> props = parse_json(client.get("/props").body);
  EXPECT_EQ(*at(*props, "total_slots").integer(), 3);
  EXPECT_EQ(*at(at(at(*props, "default_generation_settings"), "params"), "seed").integer(), 7);
}

TEST(ServerApis, OthersHealthAndFacts) {
  TestServer server;
  RawClient client(server.port());
  for (const char* path :
       {"/v1/health", "/ping", "/load", "/tokenizer_info", "/api/tags", "/api/ps", "/api/version", "/props"})
    EXPECT_EQ(client.get(path).status, 200) << path;
  EXPECT_EQ(client.post("/api/show", R"({"model":"fake-1:latest"})").status, 200);
  EXPECT_EQ(client.post("/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"abc"}]})").body,
            "{\"input_tokens\":" + std::to_string(FakeBackend::chat_prompt("abc").size() - 6) + "}");
  EXPECT_EQ(client.post("/v1/responses/input_tokens", R"({"input":"abc"})").body,
            "{\"object\":\"response.input_tokens\",\"input_tokens\":" +
                std::to_string(FakeBackend::chat_prompt("abc").size() - 6) + "}");
  EXPECT_EQ(*at(*parse_json(client.post("/api/chat", R"({"model":"x","messages":[]})").body), "done").boolean(), true);
}

}  // namespace
}  // namespace ibid
