// Each API's own terms: the form of its errors, the names of its fields in them, and where its answers report the seed.
#include <regex>
#include <set>

#include "conformance/server_fixture.h"

namespace ibid {
namespace {

struct Dialect {
  const char* path;
  const char* body;                  // a good one
  std::vector<const char*> wrong;    // members that are wrong, in the place of those of the good one or beside them
  std::set<std::string> documented;  // members of the API's bodies that an error may name
  enum class Form { kOpenAi, kAnthropic, kOllama } form = Form::kOpenAi;
};

const std::vector<Dialect>& dialects() {
  using Form = Dialect::Form;
  static const std::set<std::string> kSampling = {"temperature", "top_p", "seed", "stream", "model", "cache_salt"};
  static const std::set<std::string> kOllama = {"options",
                                                "num_predict",
                                                "temperature",
                                                "top_k",
                                                "top_p",
                                                "min_p",
                                                "typical_p",
                                                "repeat_last_n",
                                                "repeat_penalty",
                                                "presence_penalty",
                                                "frequency_penalty",
                                                "stop",
                                                "mirostat",
                                                "mirostat_tau",
                                                "mirostat_eta",
                                                "seed",
                                                "format",
                                                "think",
                                                "messages",
                                                "role",
                                                "content",
                                                "tools",
                                                "function",
                                                "name",
                                                "description",
                                                "parameters",
                                                "prompt",
                                                "stream",
                                                "model",
                                                "num_ctx",
                                                "keep_alive",
                                                "tool_calls",
                                                "arguments",
                                                "system",
                                                "images",
                                                "template",
                                                "context",
                                                "suffix",
                                                "logprobs",
                                                "raw"};
  static const std::vector<Dialect> all = {
      {"/v1/messages",
       R"({"model":"fake-1","max_tokens":4,"messages":[{"role":"user","content":"hi"}]})",
       {R"("max_tokens":0)",
        R"("max_tokens":-1)",
        R"("max_tokens":"4")",
        R"("stop_sequences":7)",
        R"("stop_sequences":[""])",
        R"("stop_sequences":[7])",
        R"("temperature":-1)",
        R"("top_p":7)",
        R"("top_k":-7)",
        R"("messages":[])",
        R"("messages":[{"role":"user"}])",
        R"("messages":[{"role":"nobody","content":"x"}])",
        R"("messages":[{"role":"user","content":[{"type":"text"}]}])",
        R"("tools":7)",
        R"("tools":[{"name":"a b","input_schema":{}}])",
        R"("tools":[{"name":"","input_schema":{}}])",
        R"("tools":[{"name":"a","input_schema":7}])",
        R"("tools":[{"name":"a","description":7,"input_schema":{}}])",
        R"("tools":[{"name":"a","input_schema":{}}],"tool_choice":{"type":"tool","name":"b"})",
        R"("tool_choice":{"type":"any"})",
        R"("thinking":{"type":"maybe"})",
        R"("thinking":{"type":"enabled","budget_tokens":-1})",
        R"("output_config":{"effort":"huge"})",
        R"("output_config":{"format":{"type":"json_schema"}})",
        R"("output_config":{"format":{"type":"json_schema","schema":{"type":7}}})",
        R"("seed":"x")",
        R"("stream":7)",
        R"("model":7)"},
       {"max_tokens",  "stop_sequences", "temperature",   "top_p",
        "top_k",       "messages",       "role",          "content",
        "text",        "tools",          "name",          "input_schema",
        "description", "tool_choice",    "type",          "disable_parallel_tool_use",
        "thinking",    "budget_tokens",  "output_config", "effort",
        "format",      "schema",         "json_schema",   "stream",
        "model",       "system",         "seed",          "cache_salt"},
       Form::kAnthropic},
      {"/v1/messages/count_tokens",
       R"({"model":"fake-1","messages":[{"role":"user","content":"hi"}]})",
       {R"("messages":7)", R"("tools":[{"name":"a b","input_schema":{}}])", R"("stop_sequences":[""])"},
       {"messages", "tools", "name", "input_schema", "stop_sequences"},
       Form::kAnthropic},
      {"/v1/responses",
       R"({"model":"fake-1","input":"hi"})",
       {R"("max_output_tokens":0)",
        R"("max_output_tokens":"x")",
        R"("input":7)",
        R"("input":[])",
        R"("input":[{"role":"nobody","content":"x"}])",
        R"("temperature":-1)",
        R"("top_p":7)",
        R"("stream":7)",
        R"("tools":7)",
        R"("tools":[{"type":"function","name":"a b","parameters":{}}])",
        R"("tools":[{"type":"function","name":"a","parameters":7}])",
        R"("tool_choice":"required")",
        R"("text":{"format":{"type":"json_schema","name":"x"}})",
        R"("text":{"format":{"type":"json_schema","name":"x","schema":{"type":7}}})",
        R"("reasoning":{"effort":"huge"})",
        R"("top_logprobs":-1)",
        R"("top_logprobs":1000000)",
        R"("previous_response_id":"resp_none")",
        R"("include":["nothing"])",
        R"("parallel_tool_calls":7)",
        R"("metadata":7)"},
       {"max_output_tokens",
        "input",
        "role",
        "content",
        "tools",
        "name",
        "parameters",
        "description",
        "tool_choice",
        "text",
        "format",
        "schema",
        "json_schema",
        "reasoning",
        "effort",
        "top_logprobs",
        "include",
        "previous_response_id",
        "parallel_tool_calls",
        "metadata",
        "temperature",
        "top_p",
        "stream",
        "type",
        "function",
        "instructions",
        "response_id"}},
      {"/api/chat",
       R"({"model":"fake-1","stream":false,"messages":[{"role":"user","content":"hi"}]})",
       {R"("messages":7)",
        R"("messages":[{"role":"nobody","content":"x"}])",
        R"("messages":[{"content":"x"}])",
        R"("options":7)",
        R"("options":{"temperature":-1})",
        R"("options":{"top_p":7})",
        R"("options":{"top_k":-7})",
        R"("options":{"num_predict":"x"})",
        R"("options":{"num_predict":0})",
        R"("options":{"num_predict":-7})",
        R"("options":{"stop":[""]})",
        R"("options":{"stop":7})",
        R"("options":{"repeat_penalty":0})",
        R"("options":{"mirostat":9})",
        R"("options":{"seed":"x"})",
        R"("options":{"num_ctx":100000000})",
        R"("format":7)",
        R"("format":{"type":7})",
        R"("think":7)",
        R"("think":"huge")",
        R"("tools":7)",
        R"("tools":[{"type":"function","function":{"name":"a b"}}])",
        R"("stream":7)",
        R"("messages":[{"role":"user","content":"x"},{"role":"assistant","content":""}],"options":{"top_p":9})"},
       kOllama,
       Form::kOllama},
      {"/api/generate",
       R"({"model":"fake-1","stream":false,"prompt":"hi"})",
       {R"("prompt":7)", R"("system":7)", R"("options":{"temperature":-1})", R"("options":{"stop":[""]})",
        R"("options":{"num_predict":0})", R"("format":{"type":7})", R"("raw":true,"options":{"num_predict":0})"},
       kOllama,
       Form::kOllama},
      {"/completion",
       R"({"prompt":"hi","n_predict":4})",
       {R"("n_predict":-7)", R"("n_predict":"x")", R"("prompt":7)", R"("prompt":[])", R"("temperature":-1)",
        R"("n_probs":-1)", R"("n_probs":1000000)", R"("repeat_penalty":0)", R"("stop":[""])", R"("grammar":7)",
        R"("grammar":"root ::= nothing")", R"("json_schema":{"type":7})", R"("logit_bias":7)", R"("stream":7)"},
       {"n_predict", "prompt", "temperature", "n_probs", "repeat_penalty", "stop", "grammar", "json_schema",
        "logit_bias", "stream"}},
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"hi"}]})",
       {R"("messages":7)", R"("messages":[{"role":"user"}])", R"("max_tokens":0)", R"("max_completion_tokens":-7)",
        R"("stop":[""])", R"("n":0)", R"("response_format":{"type":"x"})", R"("tools":[{"type":"function"}])",
        R"("tools":[{"type":"function","function":{"name":"a b"}}])", R"("tool_choice":"required")", R"("logprobs":7)",
        R"("top_logprobs":3)", R"("stream_options":{"include_usage":true})", R"("reasoning_effort":"huge")"},
       {"messages",
        "content",
        "role",
        "max_tokens",
        "max_completion_tokens",
        "echo",
        "stop",
        "n",
        "response_format",
        "type",
        "tools",
        "function",
        "name",
        "tool_choice",
        "logprobs",
        "top_logprobs",
        "stream_options",
        "stream",
        "reasoning_effort",
        "parameters",
        "json_schema",
        "json_object",
        "structural_tag"}},
      {"/v1/completions",
       R"({"prompt":"hi"})",
       {R"("prompt":7)", R"("prompt":[])", R"("max_tokens":0)", R"("logprobs":-1)", R"("best_of":0)", R"("echo":7)"},
       {"prompt", "max_tokens", "echo", "logprobs", "best_of"}},
      {"/v1/embeddings",
       R"({"input":"hi"})",
       {R"("input":7)", R"("input":[])", R"("dimensions":0)", R"("encoding_format":"x")", R"("input":[[100000]])",
        R"("truncate_prompt_tokens":-7)"},
       {"input", "dimensions", "encoding_format", "truncate_prompt_tokens"}},
  };
  return all;
}

// The good body with some members in the place of its own.
std::string with(const Dialect& dialect, const char* wrong) {
  const Json good = *parse_json(dialect.body), more = *parse_json("{" + std::string(wrong) + "}");
  Json::Object out = *more.object();
  for (const Json::Member& member : *good.object())
    if (more.find(member.first) == nullptr) out.push_back(member);
  return Json(std::move(out)).text();
}

// Names of members anywhere in a body, and its texts.
void add_names(const Json& value, std::set<std::string>& names) {
  if (value.string() != nullptr) names.insert(*value.string());
  if (value.array() != nullptr) {
    for (const Json& item : *value.array()) add_names(item, names);
  }
  if (value.object() != nullptr) {
    for (const auto& [name, member] : *value.object()) names.insert(name), add_names(member, names);
  }
}

// Names of fields in a text: what has an underscore, a place after it or a point in it.
std::vector<std::string> fields_in(const std::string& text) {
  static const std::regex kField(R"([a-z]+(_[a-z]+)+|[a-z_]+(?=\[\d)|[a-z_]+(?=\.[a-z])|\.[a-z_]+)");
  std::vector<std::string> out;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), kField); at != std::sregex_iterator(); ++at) {
    std::string name = at->str();
    if (name.front() == '.') name.erase(0, 1);
    out.push_back(name);
  }
  return out;
}

TEST(ServerWords, ErrorsNameTheFieldInTheFormOfTheApi) {
  TestServer server;
  for (const Dialect& dialect : dialects()) {
    RawClient client(server.port());
    const HttpAnswer good = client.post(dialect.path, dialect.body);
    EXPECT_EQ(good.status, 200) << dialect.path << good.body;
    for (const char* wrong : dialect.wrong) {
      const std::string body = with(dialect, wrong);
      const HttpAnswer answer = client.post(dialect.path, body);
      const std::string shown = std::string(dialect.path) + " " + wrong + " " + answer.body;
      EXPECT_TRUE(answer.status == 400 || answer.status == 404) << answer.status << shown;
      const Result<Json> json = parse_json(answer.body);
      ASSERT_TRUE(json.ok()) << shown;
      const Json* error = json->find("error");
      ASSERT_NE(error, nullptr) << shown;
      std::string message, param;
      switch (dialect.form) {
        case Dialect::Form::kOllama:
          ASSERT_NE(error->string(), nullptr) << shown;
          EXPECT_EQ(json->object()->size(), 1u) << shown;
          message = *error->string();
          break;
        case Dialect::Form::kAnthropic:
          ASSERT_NE(json->find("type"), nullptr) << shown;
          EXPECT_EQ(*json->find("type")->string(), "error") << shown;
          EXPECT_NE(json->find("request_id"), nullptr) << shown;
          EXPECT_EQ(error->object()->size(), 2u) << shown;
          EXPECT_NE(error->find("type"), nullptr) << shown;
          message = *error->find("message")->string();
          break;
        case Dialect::Form::kOpenAi:
          for (const char* name : {"message", "type", "param", "code"}) EXPECT_NE(error->find(name), nullptr) << shown;
          message = *error->find("message")->string();
          if (error->find("param")->string() != nullptr) param = *error->find("param")->string();
      }
      std::set<std::string> known = dialect.documented;
      add_names(*parse_json(body), known);
      for (const std::string& name : fields_in(message)) EXPECT_TRUE(known.contains(name)) << name << ": " << shown;
      const std::string first = param.substr(0, param.find_first_of(".["));
      EXPECT_TRUE(param.empty() || known.contains(first)) << param << ": " << shown;
      for (const std::string& name : fields_in(param)) EXPECT_TRUE(known.contains(name)) << name << ": " << shown;
    }
  }
}

TEST(ServerWords, EarlyRefusalsHaveTheFormOfTheApi) {
  TestServer server({}, {}, "a:key-of-tenant-a");
  for (const Dialect& dialect : dialects()) {
    for (const auto& [body, headers, status] :
         {std::tuple(dialect.body, "", 401), std::tuple("{\"", "X-Api-Key: key-of-tenant-a\r\n", 400),
          std::tuple("[]", "X-Api-Key: key-of-tenant-a\r\n", 400)}) {
      RawClient client(server.port());
      const HttpAnswer answer = client.post(dialect.path, body, headers);
      EXPECT_EQ(answer.status, status) << dialect.path << answer.body;
      const char* begin = dialect.form == Dialect::Form::kOllama      ? "{\"error\":\""
                          : dialect.form == Dialect::Form::kAnthropic ? "{\"type\":\"error\",\"error\":{\"type\":\""
                                                                      : "{\"error\":{\"message\":\"";
      EXPECT_TRUE(answer.body.starts_with(begin)) << dialect.path << answer.body;
    }
  }
}

TEST(ServerWords, PlacesInMessagesAreTheClientsOwn) {
  TestServer server;
  RawClient client(server.port());
  // After a system text, and after results that become messages of their own.
  const HttpAnswer answer = client.post(
      "/v1/messages",
      R"({"max_tokens":4,"system":"x","messages":[{"role":"user","content":"x"},{"role":"user","content":[{"type":"text"}]}]})");
  EXPECT_NE(answer.body.find("messages[1].content[0].text"), std::string::npos) << answer.body;
}

// An answer's reports of its seed: the header, and each "seed" in its body.
struct Told {
  std::string header;
  std::vector<std::string> members;
};
Told seeds_in(const HttpAnswer& answer) {
  Told out;
  std::smatch found;
  static const std::regex kHeader(R"(ibid-seed: (\d+))"), kMember("\"seed\":(\\d+)");
  if (std::regex_search(answer.head, found, kHeader)) out.header = found[1];
  for (auto at = std::sregex_iterator(answer.body.begin(), answer.body.end(), kMember); at != std::sregex_iterator();
       ++at)
    out.members.push_back((*at)[1]);
  return out;
}

std::string texts_in(const std::string& body) {
  static const std::regex kText("\"(?:content|text|response|delta)\":\"([^\"]*)\"");
  std::string out;
  for (auto at = std::sregex_iterator(body.begin(), body.end(), kText); at != std::sregex_iterator(); ++at)
    out += (*at)[1];
  return out;
}

TEST(ServerWords, EveryApiReportsTheSeedThatReproducesItsAnswer) {
  TestServer server;
  struct Route {
    const char *path, *body;
    bool streams = true;
    bool takes_seed_in_options = false;
  };
  const std::vector<Route> routes = {
      {"/v1/chat/completions", R"("messages":[{"role":"user","content":"hi"}])"},
      {"/v1/chat/completions/batch", R"("messages":[[{"role":"user","content":"hi"}]])", false},
      {"/v1/completions", R"("prompt":"hi")"},
      {"/v1/responses", R"("input":"hi")"},
      {"/v1/messages", R"("max_tokens":20,"messages":[{"role":"user","content":"hi"}])"},
      {"/api/chat", R"("messages":[{"role":"user","content":"hi"}])", true, true},
      {"/api/generate", R"("prompt":"hi")", true, true},
      {"/completion", R"("prompt":"hi")"},
      {"/invocations", R"("prompt":"hi")"},
  };
  for (const Route& route : routes) {
    for (const bool stream : {false, true}) {
      if (stream && !route.streams) continue;
      const std::string begin = std::string("{") +
                                (route.streams ? std::string("\"stream\":") + (stream ? "true," : "false,") : "") +
                                route.body;
      RawClient client(server.port());
      const HttpAnswer first = client.post(route.path, begin + "}");
      EXPECT_EQ(first.status, 200) << route.path << first.body;
      const Told told = seeds_in(first);
      EXPECT_FALSE(told.header.empty()) << route.path << first.head;
      EXPECT_FALSE(told.members.empty()) << route.path << first.body;
      for (const std::string& member : told.members) EXPECT_EQ(member, told.header) << route.path << first.body;
      EXPECT_LT(std::stoull("0" + told.header), uint64_t{1} << 53);
      const std::string seed = route.takes_seed_in_options ? ",\"options\":{\"seed\":" + told.header + "}}"
                                                           : ",\"seed\":" + told.header + "}";
      const HttpAnswer again = client.post(route.path, begin + seed);
      EXPECT_EQ(seeds_in(again).header, told.header);
      EXPECT_FALSE(texts_in(first.body).empty()) << route.path << first.body;
      EXPECT_EQ(texts_in(again.body), texts_in(first.body)) << route.path;
    }
  }
  RawClient client(server.port());
  const HttpAnswer vectors = client.post("/v1/embeddings", R"({"input":"hi"})");
  EXPECT_TRUE(seeds_in(vectors).header.empty());
  EXPECT_TRUE(seeds_in(vectors).members.empty());
  const HttpAnswer predictions = client.post(
      "/predict",
      R"({"instances":[{"@requestFormat":"messages","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}]})");
  EXPECT_EQ(seeds_in(predictions).members.size(), 1u) << predictions.body;
  // Stored answers report it too.
  const HttpAnswer made = client.post("/v1/responses", R"({"input":"hi","store":true})");
  const std::string id = *parse_json(made.body)->find("id")->string();
  EXPECT_EQ(seeds_in(client.get("/v1/responses/" + id)).members, seeds_in(made).members);
}

}  // namespace
}  // namespace ibid
