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

TEST(ServerTools, ReasoningAndCallsAreSeparated) {
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

TEST(ServerTools, PartsThatARequestExcludesAreLeftOut) {
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

// Stop texts are of the answer's text: one that occurs in its reasoning or in a call changes no byte, in no API.
TEST(ServerTools, StopsThatOccurInReasoningAndCallsAloneChangeNothing) {
  TestServer server;
  const std::string said =
      "<think>\nThe sea is wet.\n</think>\n\nIt is wet. Look:\n<tool_call>\n{\"name\": \"find\", "
      "\"arguments\": {\"q\": \"sea is\"}}\n</tool_call>";
  server.backend.say("Sea?", said);
  RawClient client(server.port());
  const auto body_of = [&](const char* path, const std::string& stop, bool stream) {
    const std::string route = path, more = stream ? ",\"stream\":true" : ",\"stream\":false";
    const std::string messages = R"("messages":[{"role":"user","content":"Sea?"}],"seed":1)";
    const std::string function = R"({"type":"function","function":{"name":"find"}})";
    if (route == "/v1/messages") {
      return "{\"model\":\"m\",\"max_tokens\":500," + messages.substr(0, messages.rfind(",\"seed\"")) +
             R"(,"tools":[{"name":"find","input_schema":{"type":"object"}}])" +
             (stop.empty() ? "" : ",\"stop_sequences\":[\"" + stop + "\"]") + more + "}";
    }
    if (route == "/api/chat") {
      return "{\"model\":\"m\"," + messages.substr(0, messages.rfind(",\"seed\"")) + ",\"tools\":[" + function +
             "],\"options\":{\"seed\":1" + (stop.empty() ? "" : ",\"stop\":[\"" + stop + "\"]") + "}" + more + "}";
    }
    return "{" + messages + ",\"tools\":[" + function + "]" + (stop.empty() ? "" : ",\"stop\":[\"" + stop + "\"]") +
           more + "}";
  };
  // Without what differs from one answer to the next: ids, times, lengths of chunks.
  const auto text_of = [](const std::string& body) {
    std::string out;
    for (const char* key :
         {"\"reasoning_content\":\"", "\"thinking\":\"", "\"content\":\"", "\"text\":\"", "\"arguments\":\"",
          "\"partial_json\":\"", "\"finish_reason\":\"", "\"stop_reason\":\"", "\"done_reason\":\""}) {
      out += key;
      for (size_t at = 0; (at = body.find(key, at)) != std::string::npos;) {
        at += std::string_view(key).size();
        for (; at < body.size() && body[at] != '"'; ++at) {
          if (body[at] == '\\') ++at;  // a text is cut into events anywhere
          out += body[at];
        }
      }
    }
    return out;
  };
  for (const char* path : {"/v1/chat/completions", "/v1/messages", "/api/chat"}) {
    for (const bool stream : {false, true}) {
      const std::string without = client.post(path, body_of(path, "", stream)).body;
      for (const char* stop : {"sea is", "The sea", "name", "</tool_call>", "think"}) {
        const HttpAnswer a = client.post(path, body_of(path, stop, stream));
        EXPECT_EQ(a.status, 200) << path << a.body;
        EXPECT_EQ(text_of(a.body), text_of(without)) << path << stream << " " << stop;
      }
      EXPECT_NE(text_of(client.post(path, body_of(path, "It is", stream)).body), text_of(without)) << path << stream;
    }
  }
  const Message cut = whole(client.post("/v1/chat/completions", body_of("/v1/chat/completions", "Look", false)));
  EXPECT_EQ(told(cut), "(The sea is wet.)It is wet.  stop");
  const HttpAnswer raw = client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Sea?"}],)"
                                                             R"("reasoning_format":"none","stop":["sea is"]})");
  EXPECT_EQ(told(whole(raw)), "()<think>\nThe  stop") << "reasoning that stays in the text is text";
}

TEST(ServerTools, ParametersThatAllowNoObjectAreRefusedByTheToolsName) {
  TestServer server;
  RawClient client(server.port());
  for (const char* schema :
       {R"({"type":"array","items":{}})", R"({"type":["string","null"]})", R"({"enum":["a"]})", R"({"const":1})",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array"}}})", R"({"anyOf":[{"type":"string"},{"type":"integer"}]})",
        R"({"allOf":[{"type":"object"},{"type":"array"}]})"}) {
    const std::string more =
        std::string(R"("tools":[{"type":"function","function":{"name":"fetch_it","parameters":)") + schema + "}}]";
    const HttpAnswer a = client.post("/v1/chat/completions", chat_body("x", more));
    EXPECT_EQ(a.status, 400) << schema << a.body;
    EXPECT_EQ(error_param(a), "tools[0].function.parameters") << a.body;
    EXPECT_NE(a.body.find("fetch_it"), std::string::npos) << a.body;
  }
  for (const char* schema : {"{}", "null", R"({"type":["object","null"]})", R"({"properties":{}})",
                             R"({"anyOf":[{"type":"object"},{"type":"null"}]})", R"({"$ref":"#/$defs/nothing"})"}) {
    const std::string more =
        std::string(R"("max_tokens":3,"tools":[{"type":"function","function":{"name":"f","parameters":)") + schema +
        "}}]";
    EXPECT_EQ(client.post("/v1/chat/completions", chat_body("x", more)).status, 200) << schema;
  }
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
