// Programs that people work with: agents and editors. The bodies that they send (agent_bodies.json: recorded, with
// texts of our own) are answered, and what is theirs alone comes back in their form.
#include <map>

#include "conformance/json_events.h"
#include "conformance/server_fixture.h"
#include "source_paths.h"

namespace ibid {
namespace {

std::string json_text(std::string_view text) {
  std::string out;
  JsonWriter(out).string(text);
  return out;
}

std::string call_of(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
}

std::string response_body(const std::string& tools, const char* more = "") {
  return R"({"input":"go","tools":)" + tools + more + "}";
}

TEST(ServerAgents, BodiesOfProgramsAreAnswered) {
  std::stringstream content;
  content << std::ifstream(source_dir() + "/tests/conformance/agent_bodies.json").rdbuf();
  const Result<Json> fixtures = parse_json(content.str());
  ASSERT_TRUE(fixtures.ok()) << fixtures.error().message;
  FakeBackend::Options engine;
  engine.context_len = 1 << 20;
  engine.fills_in = true;
  engine.step_seconds = 0.00002;
  TestServer server({}, engine);
  RawClient client(server.port());
  std::map<std::string, int> seen;
  for (const Json& fixture : *fixtures->array()) {
    std::string headers;
    for (const auto& [name, value] : *at(fixture, "headers").object())
      headers += name + ": " + *value.string() + "\r\n";
    const std::string body = at(fixture, "body").text(), path = text_of(fixture, "path");
    const std::string who = text_of(fixture, "client") + " " + path;
    const HttpAnswer a =
        at(fixture, "body").is_null() ? client.get(path, headers) : client.post(path.c_str(), body, headers);
    EXPECT_EQ(a.status, 200) << who << a.body;
    EXPECT_EQ(a.body.find("\"error\":{"), std::string::npos) << who << a.body.substr(0, 1000);
    ++seen[text_of(fixture, "client")];
  }
  for (const char* program : {"Claude Code", "Codex", "Open WebUI", "aider", "llama.vim", "llama.vscode", "SillyTavern",
                              "strands-agents", "Zed", "Continue"})
    EXPECT_GT(seen[program], 0) << program;
}

TEST(ServerAgents, SystemMessagesStandAnywhereInMessages) {
  TestServer server;
  RawClient client(server.port());
  for (const auto& [messages, prompt] : {
           std::pair(R"([{"role":"user","content":"a"},{"role":"system","content":"E"}])",
                     "<user>a<|end|><system>E<|end|><assistant>"),
           std::pair(
               R"([{"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":"E"},)"
               R"({"type":"text","text":"F"}]},{"role":"assistant","content":"b"},{"role":"user","content":"c"}])",
               "<user>a<|end|><system>E\nF<|end|><assistant>b<|end|><user>c<|end|><assistant>"),
       }) {
    size_t n_tokens = std::string_view(prompt).size();
    for (size_t i = 0; (i = std::string_view(prompt).find("<|end|>", i)) != std::string::npos; ++i) n_tokens -= 6;
    const std::string body = std::string(R"({"max_tokens":4,"messages":)") + messages + "}";
    const Json told = post_json(client, "/v1/messages", body);
    const Json& usage = at(told, "usage");
    EXPECT_EQ(*at(usage, "input_tokens").integer() + *at(usage, "cache_read_input_tokens").integer(),
              static_cast<int64_t>(n_tokens));
  }
}

// A tool choice that names a tool which the prompt does not list is an error.
TEST(ServerAgents, DeferredToolIsShownOnceTheConversationNamesIt) {
  TestServer server;
  server.backend.say("go", call_of("near", "{}"));
  RawClient client(server.port());
  const auto is_told = [&](const std::string& name, const std::string& messages, const std::string& more_tools) {
    const HttpAnswer a = client.post(
        "/v1/messages", R"({"max_tokens":500,"tools":[{"name":"near"},{"name":"far","defer_loading":true})" +
                            more_tools + R"(],"tool_choice":{"type":"tool","name":")" + name + R"("},"messages":[)" +
                            messages + R"({"role":"user","content":"go"}]})");
    EXPECT_TRUE(a.status == 200 || a.body.find("which is none of the tools") != std::string::npos) << a.body;
    return a.status == 200;
  };
  EXPECT_TRUE(is_told("near", "", ""));
  EXPECT_FALSE(is_told("far", "", ""));
  EXPECT_TRUE(is_told("far", "", R"(,{"type":"tool_search_tool_regex_20251119","name":"search"})"))
      << "nobody else searches";
  EXPECT_TRUE(is_told(
      "far",
      R"({"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"near",)"
      R"("input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":)"
      R"([{"type":"tool_reference","tool_name":"far"}]}]},)",
      ""));
  const std::string changes = R"({"role":"system","content":[{"type":"tool_)";
  EXPECT_TRUE(is_told("far", changes + R"(addition","tool":{"type":"tool_reference","name":"far"}}]},)", ""));
  EXPECT_TRUE(
      is_told("new", changes + R"(addition","tool":{"type":"tool_definition","definition":{"name":"new"}}}]},)", ""));
  EXPECT_FALSE(is_told("near",
                       changes + R"(removal","tool":{"type":"tool_reference","name":"near"}}]},)" + changes +
                           R"(addition","tool":{"type":"tool_reference","name":"far"}}]},)",
                       ""));
}

TEST(ServerAgents, ACustomToolGetsItsTextAndComesBackAsOne) {
  TestServer server;
  const std::string patch = "*** Begin \"Patch\"\nline\n";
  server.backend.say("go", call_of("apply_patch", "{\"input\": " + json_text(patch) + "}"));
  RawClient client(server.port());
  const std::string tools =
      R"([{"type":"custom","name":"apply_patch","description":"d","format":{"type":"grammar","syntax":"lark","definition":"start: /x/"}},)"
      R"({"type":"web_search"}])";
  const Json whole = post_json(client, "/v1/responses", response_body(tools));
  const Json& item = list_of(whole, "output").at(0);
  EXPECT_EQ(text_of(item, "type"), "custom_tool_call");
  EXPECT_EQ(text_of(item, "name"), "apply_patch");
  EXPECT_EQ(text_of(item, "input"), patch);
  EXPECT_EQ(item.find("arguments"), nullptr);
  std::string deltas, done, last;
  for (const auto& [type, event] :
       events_of(client.post("/v1/responses", response_body(tools, R"(,"stream":true)")).body)) {
    EXPECT_NE(type, "response.function_call_arguments.delta");
    if (type == "response.custom_tool_call_input.delta") deltas += text_of(event, "delta");
    if (type == "response.custom_tool_call_input.done") done = text_of(event, "input");
    if (type == "response.output_item.done") last = text_of(at(event, "item"), "input");
  }
  EXPECT_EQ(deltas, patch);
  EXPECT_EQ(done, patch);
  EXPECT_EQ(last, patch);
  // Its call and result in the next request, and the choice of it by name.
  server.backend.say("done", "Good.");
  const std::string next = R"({"input":[{"role":"user","content":"go"},)" + item.text() +
                           R"(,{"type":"custom_tool_call_output","call_id":)" + json_text(text_of(item, "call_id")) +
                           R"(,"output":"done"}],"tools":)" + tools + "}";
  EXPECT_NE(client.post("/v1/responses", next).body.find("Good."), std::string::npos);
  EXPECT_EQ(
      client.post("/v1/responses", response_body(tools, R"(,"tool_choice":{"type":"custom","name":"apply_patch"})"))
          .status,
      200);
  EXPECT_EQ(client.post("/v1/responses", response_body(tools, R"(,"tool_choice":{"type":"web_search"})")).status, 400);
}

TEST(ServerAgents, ACallOfANamespaceComesBackInItsForm) {
  TestServer server;
  server.backend.say("go", call_of("agents.spawn", "{\"a\": 1}"));
  RawClient client(server.port());
  const std::string tools =
      R"([{"type":"function","name":"spawn"},{"type":"namespace","name":"agents","description":"d","tools":)"
      R"([{"type":"function","name":"spawn","parameters":{"type":"object"}},{"type":"web_search"}]}])";
  const Json whole = post_json(client, "/v1/responses", response_body(tools));
  const Json& item = list_of(whole, "output").at(0);
  EXPECT_EQ(text_of(item, "type"), "function_call");
  EXPECT_EQ(text_of(item, "name"), "spawn");
  EXPECT_EQ(text_of(item, "namespace"), "agents");
  EXPECT_EQ(text_of(item, "arguments"), R"({"a":1})");
  // What goes on from it, kept here or sent again, is the same conversation.
  server.backend.say("done", "Good.");
  const std::string output =
      R"({"type":"function_call_output","call_id":)" + json_text(text_of(item, "call_id")) + R"(,"output":"done"})";
  const Json sent = post_json(client, "/v1/responses",
                              R"({"input":[{"role":"user","content":"go"},)" + item.text() + "," + output + "]}");
  const Json kept =
      post_json(client, "/v1/responses",
                R"({"previous_response_id":)" + json_text(text_of(whole, "id")) + R"(,"input":[)" + output + "]}");
  EXPECT_EQ(at(at(sent, "usage"), "input_tokens").text(), at(at(kept, "usage"), "input_tokens").text());
}

TEST(ServerAgents, TooLongPromptHasEachApisError) {
  FakeBackend::Options engine;
  engine.trained_context_len = 32768;
  TestServer server({}, engine);
  RawClient client(server.port());
  const std::string text = json_text(std::string(3000, 'a'));
  const std::string n = std::to_string(FakeBackend::chat_prompt("").size() - 6 + 3000), hint = "--ctx";
  const std::string chat = R"("messages":[{"role":"user","content":)" + text + "}]";
  const HttpAnswer messages = client.post("/v1/messages", R"({"max_tokens":9,)" + chat + "}");
  EXPECT_EQ(messages.status, 400);
  const Json error = at(*parse_json(messages.body), "error");
  EXPECT_EQ(text_of(error, "type"), "invalid_request_error");
  EXPECT_TRUE(text_of(error, "message").starts_with("prompt is too long: " + n + " tokens > 2048 maximum"))
      << error.text();
  for (const auto& [path, body] : {std::pair<const char*, std::string>("/v1/chat/completions", "{" + chat + "}"),
                                   {"/v1/responses", R"({"input":)" + text + "}"},
                                   {"/v1/completions", R"({"prompt":)" + text + "}"},
                                   {"/completion", R"({"prompt":)" + text + "}"}}) {
    const HttpAnswer a = client.post(path, body);
    EXPECT_EQ(a.status, 400) << path;
    const Json told = at(*parse_json(a.body), "error");
    EXPECT_EQ(text_of(told, "code"), "context_length_exceeded") << path;
    EXPECT_EQ(*at(told, "n_ctx").integer(), 2048) << path;
    EXPECT_NE(a.body.find(hint), std::string::npos) << path;
  }
  const HttpAnswer ollama = client.post("/api/chat", "{" + chat + "}");
  EXPECT_EQ(ollama.status, 400);
  EXPECT_TRUE(text_of(*parse_json(ollama.body), "error").starts_with("the input length exceeds the context length"))
      << ollama.body;
  // A stream of Responses fails in an event, by which its clients know it.
  const HttpAnswer stream = client.post("/v1/responses", R"({"stream":true,"input":)" + text + "}");
  EXPECT_EQ(stream.status, 200);
  std::vector<std::string> types;
  for (const auto& [type, event] : events_of(stream.body)) {
    types.push_back(type);
    if (type != "response.failed") continue;
    EXPECT_EQ(text_of(at(event, "response"), "status"), "failed");
    EXPECT_EQ(text_of(at(at(event, "response"), "error"), "code"), "context_length_exceeded");
  }
  ASSERT_FALSE(types.empty());
  EXPECT_EQ(types.front(), "response.created");
  EXPECT_EQ(types.back(), "response.failed");
  // No flag helps beyond what the model reads.
  const std::string far = json_text(std::string(40'000, 'a'));
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":)" + far + "}").body.find(hint), std::string::npos);
}

TEST(ServerAgents, OllamasClientsSeeItsApi) {
  TestServer server;
  RawClient client(server.port());
  int major = 0, minor = 0, patch = 0;
  const std::string version = text_of(*parse_json(client.get("/api/version").body), "version");
  ASSERT_EQ(std::sscanf(version.c_str(), "%d.%d.%d", &major, &minor, &patch), 3) << version;
  EXPECT_GE(std::tuple(major, minor, patch), std::tuple(0, 13, 4));
  EXPECT_EQ(text_of(*parse_json(client.get("/version").body), "version"), IBID_VERSION);
  for (const auto& [method, path] :
       {std::pair("POST", "/api/pull"), std::pair("POST", "/api/push"), std::pair("POST", "/api/create"),
        std::pair("POST", "/api/copy"), std::pair("DELETE", "/api/delete"), std::pair("POST", "/api/blobs/sha256:00"),
        std::pair("POST", "/api/unknown"), std::pair("GET", "/api/pull")}) {
    const std::string body = R"({"model":"m","source":"a","destination":"b"})";
    client.send(std::string(method) + " " + path +
                " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    const HttpAnswer a = client.answer(3);
    EXPECT_GE(a.status, 400) << path;
    EXPECT_LT(a.status, 500) << path;
    const Result<Json> json = parse_json(a.body);
    ASSERT_TRUE(json.ok()) << path << a.body;
    EXPECT_FALSE(text_of(*json, "error").empty()) << path << a.body;
  }
}

TEST(ServerAgents, ASuffixIsFilledInByModelsThatCan) {
  FakeBackend::Options engine;
  engine.fills_in = true;
  TestServer server({}, engine);
  RawClient client(server.port());
  const std::string prompt = "<|fim_prefix|>int a = <|fim_suffix|>;<|fim_middle|>";
  server.backend.say(prompt, "42");
  const Json openai = post_json(client, "/v1/completions", R"({"prompt":"int a = ","suffix":";","max_tokens":9})");
  EXPECT_EQ(text_of(list_of(openai, "choices").at(0), "text"), "42");
  const Json ollama =
      post_json(client, "/api/generate", R"({"model":"m","prompt":"int a = ","suffix":";","stream":false})");
  EXPECT_EQ(text_of(ollama, "response"), "42");
  const Json infill = post_json(client, "/infill", R"({"input_prefix":"int a","prompt":" = ","input_suffix":";"})");
  EXPECT_EQ(text_of(infill, "content"), "42");
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":[1,2],"suffix":";"})").status, 400);
  EXPECT_NE(client.post("/api/show", R"({"model":"m"})").body.find("\"insert\""), std::string::npos);
  const Json both = post_json(client, "/v1/completions", R"({"prompt":["int a = ","b"],"suffix":";","max_tokens":9})");
  EXPECT_EQ(text_of(list_of(both, "choices").at(0), "text"), "42");
  TestServer plain;
  RawClient other(plain.port());
  for (const auto& [path, body] : {std::pair("/v1/completions", R"({"prompt":"a","suffix":"b"})"),
                                   std::pair("/api/generate", R"({"prompt":"a","suffix":"b"})")}) {
    const HttpAnswer a = other.post(path, body);
    EXPECT_EQ(a.status, 400) << path;
    EXPECT_NE(a.body.find("no tokens for filling in"), std::string::npos) << a.body;
  }
  EXPECT_EQ(other.post("/v1/completions", R"({"prompt":"a","suffix":"","max_tokens":1})").status, 200);
}

TEST(ServerAgents, SamplersThatAreNotListedAreOff) {
  TestServer server;
  RawClient client(server.port());
  const auto settings = [&](const std::string& more) {
    const Json told = post_json(client, "/completion",
                                R"({"prompt":"x","n_predict":1,"top_k":40,"top_p":0.9,"min_p":0.1,)"
                                R"("temperature":0.5,"repeat_penalty":1.2)" +
                                    more + "}");
    const Json& s = at(told, "generation_settings");
    std::string out;
    for (const char* name : {"top_k", "top_p", "min_p", "temperature", "repetition_penalty"})
      out += at(s, name).text() + " ";
    return out;
  };
  EXPECT_EQ(settings(""), "40 0.9 0.1 0.5 1.2 ");
  EXPECT_EQ(settings(R"(,"samplers":["top_k","top_p","infill"])"), "40 0.9 0 1 1 ");
  EXPECT_EQ(settings(R"(,"samplers":["infill","top_p","top_k"])"), "40 0.9 0 1 1 ") << "a set";
  EXPECT_EQ(settings(R"(,"samplers":[])"), "0 1 0 1 1 ");
  EXPECT_EQ(settings(R"(,"samplers":"edkypmxt")"), "40 0.9 0.1 0.5 1.2 ");
  EXPECT_EQ(settings(R"(,"samplers":"kt")"), "40 1 0 0.5 1 ");
  EXPECT_EQ(client.post("/completion", R"({"prompt":"x","samplers":[7]})").status, 400);
}

TEST(ServerAgents, AnAnswerEndsByItsLines) {
  FakeBackend::Options engine;
  engine.token_seconds = 0.01;  // according to its outputs
  TestServer server({}, engine);
  server.backend.say("go", "if a:\n    b\n\n    c\nd\n    e\n");
  RawClient client(server.port());
  for (const char* stream : {"false", "true"}) {
    const auto content = [&](const std::string& more) {
      const HttpAnswer a = client.post("/completion", R"({"prompt":"go","stream":)" + std::string(stream) + more + "}");
      EXPECT_EQ(a.status, 200) << a.body;
      if (*stream == 'f')
        return text_of(*parse_json(a.body), "content") + "|" + text_of(*parse_json(a.body), "stop_type");
      std::string text, type;
      for (const auto& [kind, event] : events_of(a.body))
        text += text_of(event, "content"), type += text_of(event, "stop_type");
      return text + "|" + type;
    };
    EXPECT_EQ(content(""), "if a:\n    b\n\n    c\nd\n    e\n|eos");
    EXPECT_EQ(content(R"(,"n_indent":4)"), "if a:\n    b\n\n    c\n|limit");
    EXPECT_EQ(content(R"(,"t_max_predict_ms":1)"), "if a:\n|limit");
    EXPECT_EQ(content(R"(,"t_max_predict_ms":65)"), "if a:\n    b\n|limit") << "the line in which the time is over";
    EXPECT_EQ(content(R"(,"t_max_predict_ms":10000)"), "if a:\n    b\n\n    c\nd\n    e\n|eos");
  }
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0; })) << "the engine is told";
}

TEST(ServerAgents, NothingIsPredictedWhereNothingIsAsked) {
  FakeBackend::Options engine;
  engine.fills_in = true;
  TestServer server({}, engine);
  RawClient client(server.port());
  for (const auto& [path, body] :
       {std::pair("/completion", R"({"prompt":"x","n_predict":0,"samplers":[],"t_max_predict_ms":1})"),
        std::pair("/infill", R"({"input_prefix":"","input_suffix":"","prompt":"","n_predict":0,"samplers":[]})")}) {
    const Json told = post_json(client, path, body);
    EXPECT_EQ(text_of(told, "content"), "") << path;
    EXPECT_EQ(*at(told, "tokens_predicted").integer(), 0) << path;
    EXPECT_GT(*at(told, "tokens_evaluated").integer(), 0) << path;
  }
  EXPECT_EQ(client.post("/v1/chat/completions", chat_body("x", R"("n_predict":0)")).status, 200);
  EXPECT_EQ(client.post("/v1/chat/completions", chat_body("x", R"("max_tokens":0)")).status, 400);
}

TEST(ServerAgents, NamesOfToolsAreAsLongAsTheirApiAllows) {
  TestServer server;
  RawClient client(server.port());
  const auto status = [&](const char* path, size_t n, const char* before, const char* following) {
    return client.post(path, before + std::string(n, 'n') + following).status;
  };
  const char* messages = R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"name":")";
  EXPECT_EQ(status("/v1/messages", 128, messages, "\"}]}"), 200);
  EXPECT_EQ(status("/v1/messages", 129, messages, "\"}]}"), 400);
  EXPECT_EQ(status("/v1/messages/count_tokens", 128, messages, "\"}]}"), 200);
  const char* chat = R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":")";
  EXPECT_EQ(status("/v1/chat/completions", 128, chat, "\"}}]}"), 200);
  EXPECT_EQ(status("/v1/chat/completions", 129, chat, "\"}}]}"), 400);
  const char* responses = R"({"input":"x","tools":[{"type":"function","name":")";
  EXPECT_EQ(status("/v1/responses", 128, responses, "\"}]}"), 200);
}

}  // namespace
}  // namespace ibid
