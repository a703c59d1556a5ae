// Reasoning and calls of tools over HTTP, of answers that a script gives token by token (a byte each).
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","description":"d","parameters":{"type":"object",)"
    R"("properties":{"place":{"type":"string"},"days":{"type":"integer"}},"required":["place"]}}},)"
    R"({"type":"function","function":{"name":"find"}}])";

constexpr const char* kSaid =
    "<think>\nWhere is it?\n</think>\n\nI look it up.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
    "{\"place\": \"Z\\u00fcrich \\\"x\\\"\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"find\", "
    "\"arguments\": {}}\n</tool_call>";

struct Call {
  std::string id, name, arguments;
};
struct Message {
  std::string content, reasoning, finish;
  std::vector<Call> calls;
  int n_roles = 0;
};

std::string text_at(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value != nullptr && value->string() != nullptr ? *value->string() : "";
}

Message whole(const HttpAnswer& answer) {
  Message out;
  const Result<Json> json = parse_json(answer.body);
  if (answer.status != 200) return ADD_FAILURE() << answer.body, out;
  const Json& choice = (*json->find("choices")->array())[0];
  const Json& message = *choice.find("message");
  out.content = text_at(message, "content");
  out.reasoning = text_at(message, "reasoning");
  EXPECT_EQ(out.reasoning, text_at(message, "reasoning_content"));
  out.finish = text_at(choice, "finish_reason");
  if (const Json* calls = message.find("tool_calls")) {
    for (const Json& call : *calls->array()) {
      EXPECT_EQ(text_at(call, "type"), "function");
      out.calls.push_back(
          {text_at(call, "id"), text_at(*call.find("function"), "name"), text_at(*call.find("function"), "arguments")});
    }
  }
  return out;
}

// As clients put a stream together: what comes again is added.
Message streamed(const HttpAnswer& answer) {
  Message out;
  size_t at = 0;
  for (size_t end; (end = answer.body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string event = answer.body.substr(at, end - at);
    if (!event.starts_with("data: {")) continue;
    const Result<Json> json = parse_json(event.substr(6));
    if (!json || json->find("choices") == nullptr) return ADD_FAILURE() << event, out;
    if (json->find("choices")->array()->empty()) continue;
    const Json& choice = (*json->find("choices")->array())[0];
    const Json& delta = *choice.find("delta");
    out.n_roles += delta.find("role") != nullptr;
    out.content += text_at(delta, "content");
    out.reasoning += text_at(delta, "reasoning");
    out.finish += text_at(choice, "finish_reason");
    const Json* calls = delta.find("tool_calls");
    for (size_t i = 0; calls != nullptr && i < calls->array()->size(); ++i) {
      const Json& call = (*calls->array())[i];
      const auto index = static_cast<size_t>(*call.find("index")->integer());
      if (index >= out.calls.size()) out.calls.resize(index + 1);
      out.calls[index].id += text_at(call, "id");
      out.calls[index].name += text_at(*call.find("function"), "name");
      out.calls[index].arguments += text_at(*call.find("function"), "arguments");
    }
  }
  return out;
}

std::string told(const Message& m) {
  std::string out = "(" + m.reasoning + ")" + m.content;
  for (const Call& call : m.calls) out += "<" + call.name + " " + call.arguments + ">";
  return out + " " + m.finish;
}

TEST(ServerTools, ReasoningAndCallsAreToldApart) {
  TestServer server;
  server.backend.say("Weather?", kSaid);
  RawClient client(server.port());
  const Message once = whole(client.post("/v1/chat/completions", chat_body("Weather?", kTools)));
  EXPECT_EQ(told(once),
            "(Where is it?)I look it up.<get_weather {\"place\":\"Z\\u00fcrich \\\"x\\\"\",\"days\":2}><find {}> "
            "tool_calls");
  EXPECT_TRUE(once.calls[0].id.starts_with("call_") && once.calls[0].id != once.calls[1].id);
  const Message stream =
      streamed(client.post("/v1/chat/completions", chat_body("Weather?", std::string(kTools) + ",\"stream\":true")));
  EXPECT_EQ(told(stream), told(once));
  EXPECT_EQ(stream.n_roles, 1);
  EXPECT_EQ(stream.calls[0].id.size(), once.calls[0].id.size()) << "the id comes once";
  // Nobody asked for tools: the markup is the answer.
  EXPECT_EQ(whole(client.post("/v1/chat/completions", chat_body("Weather?"))).content,
            std::string(kSaid).substr(std::string(kSaid).find("I look")));
}

TEST(ServerTools, AnAnswerCutAtAnyTokenIsTheSameStreamedOrNot) {
  FakeBackend::Options engine;
  engine.step_seconds = 0.00002;
  TestServer server({}, engine);
  server.backend.say("Weather?", kSaid);
  RawClient client(server.port());
  const auto n = static_cast<int>(std::string_view(kSaid).size());
  for (int len = 1; len <= n; ++len) {
    const std::string more = std::string(kTools) + ",\"max_tokens\":" + std::to_string(len);
    const Message once = whole(client.post("/v1/chat/completions", chat_body("Weather?", more)));
    const Message stream =
        streamed(client.post("/v1/chat/completions", chat_body("Weather?", more + ",\"stream\":true")));
    ASSERT_EQ(told(stream), told(once)) << len;
    ASSERT_EQ(once.finish, len < n ? "length" : "tool_calls") << len;
  }
}

TEST(ServerTools, WhatARequestDoesNotWantIsLeftOut) {
  TestServer server;
  server.backend.say("Weather?", kSaid);
  RawClient client(server.port());
  const auto ask = [&](const std::string& more) {
    return told(whole(client.post("/v1/chat/completions", chat_body("Weather?", std::string(kTools) + more))));
  };
  const std::string first = "<get_weather {\"place\":\"Z\\u00fcrich \\\"x\\\"\",\"days\":2}>";
  EXPECT_EQ(ask(R"(,"include_reasoning":false,"parallel_tool_calls":false)"),
            "()I look it up." + first + " tool_calls");
  EXPECT_TRUE(ask(R"(,"tool_choice":"none","reasoning_format":"none")").starts_with("()<think>\nWhere is it?"));
  EXPECT_TRUE(ask(R"(,"reasoning_format":"none")").starts_with("()<think>\nWhere is it?\n</think>\n\nI look it up.<"));
}

TEST(ServerTools, TokensOfReasoningAreCountedHoweverTheyCome) {
  TestServer server;
  server.backend.say("Weather?", kSaid);
  server.backend.say("Plain?", "Nothing to think of.");
  RawClient client(server.port());
  const auto counted = [&](const char* asked) {
    const Result<Json> json = parse_json(client.post("/v1/chat/completions", chat_body(asked)).body);
    const Json* details = json->find("usage")->find("completion_tokens_details");
    return details == nullptr ? -1 : *details->find("reasoning_tokens")->integer();
  };
  EXPECT_EQ(counted("Weather?"), static_cast<int64_t>(std::string_view("<think>\nWhere is it?\n</think>").size()));
  EXPECT_EQ(counted("Plain?"), 0);
}

TEST(ServerTools, MalformedCallsStayText) {
  TestServer server;
  RawClient client(server.port());
  for (const std::string said :
       {"<tool_call>no</tool_call>", "<tool_call>{\"name\": 1}</tool_call>", "a <tool_call>"}) {
    server.backend.say("Weather?", said);
    EXPECT_EQ(told(whole(client.post("/v1/chat/completions", chat_body("Weather?", kTools)))), "()" + said + " stop");
  }
  // Arguments that break off are no call that may be carried out.
  server.backend.say("Weather?", "<tool_call>{\"name\": \"find\", \"arguments\": {\"a\": ]}");
  EXPECT_EQ(told(whole(client.post("/v1/chat/completions", chat_body("Weather?", kTools)))), "()]}<find {\"a\":> stop");
}

TEST(ServerTools, WrongToolsAreRefusedByName) {
  TestServer server;
  RawClient client(server.port());
  for (const auto& [more, param] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"("tools":5)", "tools"},
           {R"("tools":[5])", "tools[0]"},
           {R"("tools":[{"type":"web_search"}])", "tools[0].type"},
           {R"("tools":[{"type":"function"}])", "tools[0].function"},
           {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
           {R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}])",
            "tools[1].function.name"},
           {R"("tools":[{"type":"function","function":{"name":"a","parameters":[]}}])", "tools[0].function.parameters"},
           {R"("tool_choice":"required")", "tool_choice"},
           {std::string(kTools) + R"(,"tool_choice":"maybe")", "tool_choice"},
           {std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"nobody"}})", "tool_choice"},
           {std::string(kTools) + R"(,"tool_choice":"required","guided_regex":"[a-z]+")", "tool_choice"},
           {R"("functions":[{"name":"a"}])", "functions"}}) {
    const HttpAnswer a = client.post("/v1/chat/completions", chat_body("x", more));
    EXPECT_EQ(a.status, 400) << more << a.body;
    EXPECT_EQ(error_param(a), param) << a.body;
  }
}

}  // namespace
}  // namespace ibid
