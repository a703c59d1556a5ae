// What the server makes of a model's chat template, and of one that it cannot use.
#include "conformance/engine_server.h"

namespace ibid {
namespace {

TEST(ServerTemplate, ATemplateThatDoesNotCompileSwitchesOffChatAlone) {
  EngineServer server({}, 0, 2000, "", "{% frobnicate %}");
  RawClient client(server.port());
  for (const char* path : {"/v1/chat/completions", "/apply-template", "/tokenize"}) {
    const HttpAnswer refused = client.post(path, chat_body("HI"));
    EXPECT_EQ(refused.status, 400) << path;
    EXPECT_EQ(*parse_json(refused.body)->find("error")->find("message")->string(),
              "Chat is switched off, because the model's chat template cannot be used: The chat template is wrong at "
              "line 1, column 4: the tag 'frobnicate' is unknown or out of place. Completions are served.")
        << path;
  }
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"HI","max_tokens":2})").status, 200);
  EXPECT_EQ(client.post("/tokenize", R"({"content":"HI"})").body.substr(0, 10), R"({"tokens":)");
}

// What clients send, and what the template reads.
TEST(ServerTemplate, AHistoryWithToolCallsIsHandedOverAsTheTemplateReadsIt) {
  const std::string history =
      R"({"messages":[{"role":"developer","content":"D"},{"role":"user","content":"W?"},{"role":"assistant",)"
      R"("content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f",)"
      R"("arguments":"{\"k\": [1, \"v\"]}"}}]},{"role":"tool","tool_call_id":"1","content":"21"}]})";
  const auto prompt_of = [&](const std::string& calls) {
    EngineServer server({}, 0, 2000, "",
                        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for t in m.tool_calls or [] %}" +
                            calls + "{% endfor %}{% endfor %}");
    const Result<Json> answer = parse_json(RawClient(server.port()).post("/apply-template", history).body);
    const Json* prompt = answer.ok() ? answer->find("prompt") : nullptr;
    return prompt != nullptr ? *prompt->string() : answer->text();
  };
  EXPECT_EQ(prompt_of("{{ t.function.arguments|tojson }}"), R"(<system>D<user>W?<assistant>{"k": [1, "v"]}<tool>21)");
  EXPECT_EQ(prompt_of("{% for k, v in t.function.arguments.items() %}{{ k }}={{ v|tojson }}{% endfor %}"),
            R"(<system>D<user>W?<assistant>k=[1, "v"]<tool>21)");
  EXPECT_EQ(prompt_of("{{ '(' + t.function.arguments + ')' }}"),
            R"(<system>D<user>W?<assistant>({"k": [1, "v"]})<tool>21)");
}

}  // namespace
}  // namespace ibid
