#include "server/fields/api_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <type_traits>

#include "base/json_writer.h"
#include "sample/parameter_rows.h"
#include "server/fields/parameters.h"

namespace ibid {
namespace {

Result<ApiRequest> chat(const std::string& fields, ApiLimits limits = {}) {
  Result<Json> body =
      parse_json(R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}");
  EXPECT_TRUE(body.ok()) << fields;
  return parse_api_request(Endpoint::kChat, *body, limits);
}
Result<ApiRequest> complete(const std::string& fields, ApiLimits limits = {}) {
  Result<Json> body = parse_json("{" + fields + "}");
  EXPECT_TRUE(body.ok()) << fields;
  return parse_api_request(Endpoint::kCompletions, *body, limits);
}
std::string fault(const Result<ApiRequest>& request) { return request.ok() ? "none" : request.error().where; }
std::string sentence(const Result<ApiRequest>& request) { return request.ok() ? "none" : request.error().message; }

TEST(ApiRequest, ReadsTheNamesOfAllThreeWorlds) {
  Result<ApiRequest> r =
      chat(R"("temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"repeat_penalty":1.1,"dry_multiplier":0.8,
    "max_completion_tokens":7,"seed":42,"stop":["a","b"],"stop_token_ids":[3],"logit_bias":{"5":-100},"logprobs":true,"top_logprobs":4)");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->sampling.temperature, 0.5f);
  EXPECT_EQ(r->sampling.top_p, 0.9f);
  EXPECT_EQ(r->sampling.top_k, 0);
  EXPECT_EQ(r->sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(r->sampling.dry_multiplier, 0.8f);
  EXPECT_EQ(r->max_tokens, 7);
  EXPECT_EQ(r->sampling.seed, 42u);
  EXPECT_EQ(r->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r->sampling.logprobs, 4);
  EXPECT_EQ(r->sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{TokenId{5}, -100.0f}}));
}

TEST(ApiRequest, ReadsNumbersByTheirValueNotTheirSpelling) {
  Result<ApiRequest> r = complete(R"("prompt":[1.0,2e0],"max_tokens":7.0,"stop_token_ids":[3.0])");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(std::get<std::vector<TokenId>>(r->prompts[0]), (std::vector<TokenId>{TokenId{1}, TokenId{2}}));
  EXPECT_EQ(r->stop_ids, (std::vector<TokenId>{TokenId{3}}));
  EXPECT_EQ(fault(complete(R"("prompt":[1.5])")), "prompt[0]");
  // Above 0, and still so as a float.
  r = chat(R"("typical_p":5e-324)");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_GT(r->sampling.typical_p, 0.0f);
}

TEST(ApiRequest, ADefaultBodyAsksForTheDefaults) {
  Result<ApiRequest> r = chat("");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->sampling.temperature, 0.7f);
  EXPECT_EQ(r->sampling.top_p, 0.95f);
  EXPECT_EQ(r->sampling.logprobs, -1);
  EXPECT_EQ(r->max_tokens, -1);
  EXPECT_FALSE(r->has_seed);
  EXPECT_FALSE(r->stream);
}

TEST(ApiRequest, NullMeansAbsentForEveryField) {
  for (const Parameter& p : parameters()) {
    if (std::string(p.default_text) == "required") continue;
    const std::string field = std::string("\"") + p.name + "\":null";
    EXPECT_TRUE((p.endpoints & kChatOnly) == 0 || chat(field).ok()) << p.name;
    EXPECT_TRUE((p.endpoints & kCompletionsOnly) == 0 || complete("\"prompt\":\"x\"," + field).ok()) << p.name;
  }
}

TEST(ApiRequest, EveryFieldRefusesAWrongTypeAndIsNamed) {
  const std::set<std::string> of_text = {"prompt",         "json_schema", "guided_json", "guided_regex",
                                         "guided_grammar", "regex",       "ebnf",        "samplers"};
  const std::set<std::string> of_object = {"chat_template_kwargs", "stream_options", "json_schema", "guided_json",
                                           "kv_transfer_params"};
  for (const Parameter& p : parameters()) {
    for (const char* wrong : {R"({"x":{"y":1}})", "[[[1]]]", R"("text")", "-3.5"}) {
      const bool fits = (std::string(wrong) == R"("text")" &&
                         (p.type == FieldType::kString || p.type == FieldType::kStrings || of_text.contains(p.name))) ||
                        (std::string(wrong) == R"({"x":{"y":1}})" && of_object.contains(p.name)) ||
                        p.type == FieldType::kBoolean;
      if (fits) continue;
      const std::string body = std::string("\"") + p.name + "\":" + wrong;
      const bool is_prompt = std::string(p.name) == "prompt", is_messages = std::string(p.name) == "messages";
      if (is_messages) continue;
      const Result<ApiRequest> r =
          (p.endpoints & kChatOnly) != 0 ? chat(body) : complete((is_prompt ? "" : "\"prompt\":\"x\",") + body);
      const std::string name = p.name;
      EXPECT_EQ(fault(r).substr(0, name.size()), name) << body;
    }
    if (p.type == FieldType::kBoolean) {
      const std::string body = std::string("\"") + p.name + "\":1";
      EXPECT_EQ(fault((p.endpoints & kChatOnly) != 0 ? chat(body) : complete("\"prompt\":\"x\"," + body)), p.name);
    }
  }
}

TEST(ApiRequest, RangesOfTheTableAreKeptAtBothEnds) {
  for (const Parameter& p : parameters()) {
    if (p.type != FieldType::kInteger && p.type != FieldType::kNumber) continue;
    const auto with = [&](double value) {
      std::string number;
      p.type == FieldType::kInteger ? JsonWriter(number).integer(static_cast<int64_t>(value))
                                    : JsonWriter(number).number(value);
      const std::string body = std::string("\"") + p.name + "\":" + number;
      return (p.endpoints & kChatOnly) != 0 ? chat(body) : complete("\"prompt\":\"x\"," + body);
    };
    const bool zero_length = p.field == std::string("Request::max_tokens") && p.min == 0;
    EXPECT_TRUE(with(p.max).ok()) << p.name;
    // The sampler's own ranges are no narrower, so that no value is refused with another sentence after the table.
    if (std::string(p.field).starts_with("SamplingParams")) {
      EXPECT_TRUE(validate(with(p.max)->sampling, 100).ok()) << p.name;
      EXPECT_TRUE(p.above_min || validate(with(p.min)->sampling, 100).ok()) << p.name;
    }
    EXPECT_EQ(with(p.min).ok(), !p.above_min && !zero_length) << p.name;
    EXPECT_EQ(fault(with(p.min - 1)), p.name);
    EXPECT_EQ(fault(with(p.max + 1)), p.name);
  }
}

// What a field's value makes of a request, as far as anything can be seen of it.
std::string outcome(const Result<ApiRequest>& request) {
  if (!request.ok()) return "refused";
  std::string out = std::to_string(request->max_tokens) + " " + std::to_string(request->n) + " " +
                    std::to_string(request->reasoning_budget) + " " + std::to_string(request->want_logprobs) + " " +
                    std::to_string(request->top_logprobs) + " " + std::to_string(request->sampling.logprobs) + " " +
                    request->grammar.text + " " + request->gbnf + " ";
  for (const std::string& choice : request->grammar.choices) out += choice + ",";
  for_each_parameter(request->sampling, [&]<typename T>(std::string_view, const T& value) {
    if constexpr (std::is_arithmetic_v<T>) out += std::to_string(value) + " ";
  });
  return out;
}

// Clients of one server send its names to another, with the values that they have there.
TEST(ApiRequest, NamesOfOneFieldTakeTheSameValues) {
  const std::vector<std::string> values = {"null",  "-3",   "-2",    "-1",    "0",   "1",          "2",          "5",
                                           "64",    "0.5",  "1.0",   "1.5",   "100", "2147483647", "2147483648", "true",
                                           "false", "\"\"", "\"1\"", "\"a\"", "[]",  "[1]",        "[\"a\"]",    "{}"};
  int n_pairs = 0;
  for (const Parameter& p : parameters()) {
    // llama.cpp's n_probs is 0 for none, and a chat's is a switch and a number in one.
    if (p.alias_of == nullptr || std::string_view(p.name) == "n_probs") continue;
    ++n_pairs;
    for (const std::string& value : values) {
      // llama.cpp's editors send it to have a prompt computed before it is needed.
      if (std::string_view(p.name) == "n_predict" && value == "0") continue;
      for (const unsigned endpoint : {kChatOnly, kCompletionsOnly}) {
        if ((p.endpoints & endpoint) == 0) continue;
        const auto with = [&](const char* name) {
          const std::string field = "\"" + std::string(name) + "\":" + value;
          return outcome(endpoint == kChatOnly ? chat(field) : complete("\"prompt\":\"x\"," + field));
        };
        EXPECT_EQ(with(p.name), with(p.alias_of)) << p.name << ' ' << value;
      }
    }
  }
  EXPECT_GE(n_pairs, 5);
  // Older names of a member of another field.
  const auto of_member = [](const std::string& name) {
    return [name](const std::string& value) { return R"("structured_outputs":{")" + name + "\":" + value + "}"; };
  };
  const auto of_field = [](const std::string& name) {
    return [name](const std::string& value) { return "\"" + name + "\":" + value; };
  };
  using Write = std::function<std::string(const std::string&)>;
  const std::vector<std::pair<Write, Write>> pairs = {{of_field("guided_json"), of_member("json")},
                                                      {of_field("guided_regex"), of_member("regex")},
                                                      {of_field("regex"), of_member("regex")},
                                                      {of_field("guided_choice"), of_member("choice")},
                                                      {of_field("guided_grammar"), of_member("grammar")},
                                                      {of_field("ebnf"), of_member("grammar")}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (const std::string& value : values) {
      EXPECT_EQ(outcome(chat(pairs[i].first(value))), outcome(chat(pairs[i].second(value)))) << i << ' ' << value;
    }
  }
}

TEST(ApiRequest, MinusOneMeansUpToTheContextUnderEachName) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    const Result<ApiRequest> request = chat("\"" + std::string(name) + "\":-1");
    ASSERT_TRUE(request.ok()) << name << request.error().message;
    EXPECT_EQ(request->max_tokens, -1);
    EXPECT_EQ(fault(chat("\"" + std::string(name) + "\":-2")), name);
  }
}

TEST(ApiRequest, ErrorsNameTheExpectedValues) {
  EXPECT_EQ(sentence(chat(R"("temperature":"hot")")), "temperature must be a number from 0 to 100, not \"hot\".");
  EXPECT_EQ(sentence(chat(R"("top_k":2.5)")), "top_k must be a whole number from -1 to 2147483647, not 2.5.");
  EXPECT_EQ(sentence(chat(R"("repetition_penalty":0)")),
            "repetition_penalty must be a number from 0.001 to 100, not 0.");
  EXPECT_EQ(sentence(chat(R"("max_tokens":5,"max_completion_tokens":6)")),
            "max_completion_tokens and max_tokens are two names of one field and differ; give one of them.");
  EXPECT_EQ(fault(chat(R"("top_logprobs":3)")), "top_logprobs");
  EXPECT_EQ(fault(chat(R"("min_tokens":5,"max_tokens":4)")), "min_tokens");
  EXPECT_EQ(fault(chat(R"("n":65)")), "n");
  EXPECT_EQ(fault(complete(R"("prompt":["a","b","c","d","e"],"n":64)")), "n");
  EXPECT_EQ(fault(complete("")), "prompt");
}

TEST(ApiRequest, KnownButUnservedFieldsAreNamedUnlessTheyAskForNothing) {
  for (const UnservedField& field : unserved_fields()) {
    const bool on_chat = (field.endpoints & kChatOnly) != 0;
    const auto with = [&](const std::string& value) {
      const std::string body = std::string("\"") + field.name + "\":" + value;
      return on_chat ? chat(body) : complete("\"prompt\":\"x\"," + body);
    };
    EXPECT_TRUE(with("null").ok()) << field.name;
    EXPECT_EQ(fault(with(R"({"something":[1,2]})")), field.name);
    Result<Json> allowed = parse_json(field.allowed);
    ASSERT_TRUE(allowed.ok() && allowed->array() != nullptr) << field.name;
    for (const Json& value : *allowed->array()) EXPECT_TRUE(with(value.text()).ok()) << field.name << value.text();
  }
  EXPECT_TRUE(chat(R"("something_new":{"a":1},"user":"me","metadata":{"k":"v"})").ok());
}

TEST(ApiRequest, MessagesReachTheTemplateUnchanged) {
  const std::string said =
      R"([{"role":"developer","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
      R"("function":{"name":"f","arguments":"{\"a\": 12345678901234567890123}"}}]},{"role":"tool","content":"y",)"
      R"("tool_call_id":"1"},{"role":"assistant","tool_calls":[{"id":"2"}]}])";
  EXPECT_EQ(check_messages(*parse_json(said), {})->text(), parse_json(said)->text());
}

TEST(ApiRequest, ContentIsATextOrTextParts) {
  Result<Json> messages = check_messages(
      *parse_json(R"([{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","content":"x","tool_call_id":"1"}])"),
      {});
  ASSERT_TRUE(messages.ok()) << messages.error().message;
  EXPECT_EQ(*(*messages->array())[0].find("content")->string(), "a\nb");
  EXPECT_EQ(*(*messages->array())[0].find("role")->string(), "system");
  const auto where = [](const char* text) {
    Result<Json> m = check_messages(*parse_json(text), {});
    return m.ok() ? "none" : m.error().where;
  };
  EXPECT_EQ(where(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
            "messages[0].content[0].type");
  EXPECT_EQ(where(R"([{"role":"king","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(where(R"([{"role":"user","content":"x"},{"role":"user"}])"), "messages[1].content");
  EXPECT_EQ(where(R"([{"role":"user","content":5}])"), "messages[0].content");
  EXPECT_EQ(where(R"([5])"), "messages[0]");
  EXPECT_EQ(where(R"([])"), "messages");
}

TEST(ApiRequest, EmptyContentIsAcceptedInEveryForm) {
  const auto fault_of = [](const std::string& message) {
    const Result<Json> messages = check_messages(*parse_json(R"([{"role":"user","content":"x"},)" + message + "]"), {});
    return messages ? std::string() : messages.error().message;
  };
  for (const char* role : {"system", "developer", "user", "assistant", "tool"}) {
    for (const char* content : {R"(,"content":null)", R"(,"content":"")", R"(,"content":[])"})
      EXPECT_EQ(fault_of(R"({"role":")" + std::string(role) + "\"" + content + "}"), "") << role << content;
  }
  for (const char* message :
       {R"({"role":"tool","tool_call_id":"1"})", R"({"role":"assistant","reasoning_content":"r"})"})
    EXPECT_EQ(fault_of(message), "");
  for (const char* nothing : {"null", "\"\"", "[]", "{}"}) {
    for (const char* member : {"name", "tool_calls", "tool_call_id", "reasoning_content"}) {
      const std::string message =
          R"({"role":"assistant","content":"x",")" + std::string(member) + "\":" + nothing + "}";
      EXPECT_EQ(fault_of(message), "") << message;
    }
  }
  EXPECT_NE(fault_of(R"({"role":"assistant","content":"x","tool_calls":"f"})"), "");
  EXPECT_NE(fault_of(R"({"role":"user","content":"x","name":[1]})"), "");
}

TEST(ApiRequest, AToolsNameMayBeAsLongAsAnyApiAllows) {
  const auto tools = [](size_t n) {
    return R"("tools":[{"type":"function","function":{"name":")" + std::string(n, 'n') + "\"}}]";
  };
  EXPECT_TRUE(chat(tools(128)).ok());
  EXPECT_EQ(fault(chat(tools(129))), "tools[0].function.name");
}

TEST(ApiRequest, PromptsAreTextsOrIdsOrListsOfEither) {
  EXPECT_EQ(complete(R"("prompt":"x")")->prompts.size(), 1u);
  EXPECT_EQ(std::get<1>(complete(R"("prompt":[1,2,3])")->prompts[0]).size(), 3u);
  Result<ApiRequest> mixed = complete(R"("prompt":["a",[1,2],"b"])");
  ASSERT_TRUE(mixed.ok());
  EXPECT_EQ(mixed->prompts.size(), 3u);
  EXPECT_EQ(std::get<1>(mixed->prompts[1])[1], TokenId{2});
  EXPECT_EQ(fault(complete(R"("prompt":[1,"a"])")), "prompt[1]");
  EXPECT_EQ(fault(complete(R"("prompt":["a",1])")), "prompt[1]");
  EXPECT_EQ(fault(complete(R"("prompt":[["a"]])")), "prompt[0][0]");
  EXPECT_EQ(fault(complete(R"("prompt":[])")), "prompt");
  EXPECT_EQ(fault(complete(R"("prompt":[-1])")), "prompt[0]");
}

TEST(ApiRequest, KnownFieldsWithoutEffectMayHaveAnyValue) {
  for (const IgnoredField& field : ignored_fields()) {
    for (const char* value : {"null", "5", "\"x\"", R"({"a":[1]})"}) {
      const std::string body = std::string("\"") + field.name + "\":" + value;
      EXPECT_TRUE((field.endpoints & kChatOnly) == 0 || chat(body).ok()) << body;
      EXPECT_TRUE((field.endpoints & kCompletionsOnly) == 0 || complete("\"prompt\":\"x\"," + body).ok()) << body;
    }
  }
}

TEST(ApiRequest, EveryNameStandsInOneTableOnly) {
  for (const unsigned endpoint : {kChatOnly, kCompletionsOnly}) {
    std::set<std::string> names;
    for (const Parameter& p : parameters()) {
      EXPECT_TRUE((p.endpoints & endpoint) == 0 || names.insert(p.name).second) << p.name;
    }
    for (const IgnoredField& f : ignored_fields()) {
      EXPECT_TRUE((f.endpoints & endpoint) == 0 || names.insert(f.name).second) << f.name;
    }
    for (const UnservedField& f : unserved_fields()) {
      EXPECT_TRUE((f.endpoints & endpoint) == 0 || names.insert(f.name).second) << f.name;
    }
  }
}

TEST(ApiRequest, LogprobsAreABooleanInChatAndANumberInCompletions) {
  EXPECT_EQ(chat(R"("logprobs":true)")->sampling.logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":3)")->sampling.logprobs, 3);
  EXPECT_EQ(chat(R"("logprobs":false)")->sampling.logprobs, -1);
  EXPECT_EQ(fault(chat(R"("logprobs":3)")), "logprobs");
  EXPECT_EQ(complete(R"("prompt":"x","logprobs":0)")->sampling.logprobs, 0);
  EXPECT_EQ(complete(R"("prompt":"x","logprobs":5)")->sampling.logprobs, 5);
  EXPECT_EQ(fault(complete(R"("prompt":"x","logprobs":true)")), "logprobs");
  EXPECT_EQ(fault(complete(R"("prompt":"x","logprobs":21)")), "logprobs");
  EXPECT_EQ(fault(complete(R"("prompt":"x","top_logprobs":true)")), "none");  // not a name of this endpoint
  // llama.cpp's name of both, where 0 is none.
  EXPECT_EQ(chat(R"("n_probs":4)")->sampling.logprobs, 4);
  EXPECT_EQ(chat(R"("n_probs":0)")->sampling.logprobs, -1);
  EXPECT_EQ(complete(R"("prompt":"x","n_probs":4)")->sampling.logprobs, 4);
  EXPECT_EQ(complete(R"("prompt":"x","n_probs":0)")->sampling.logprobs, -1);
}

TEST(ApiRequest, SeedsAreNumbersOf64Bits) {
  EXPECT_EQ(chat(R"("seed":0)")->sampling.seed, 0u);
  EXPECT_TRUE(chat(R"("seed":0)")->has_seed);
  EXPECT_FALSE(chat(R"("seed":-1)")->has_seed);
  EXPECT_EQ(chat(R"("seed":-5)")->sampling.seed, ~uint64_t{0} - 4);
  EXPECT_TRUE(chat(R"("seed":-5)")->has_seed);
  // What an answer reports of it is a seed too.
  EXPECT_EQ(chat(R"("seed":18446744073709551611)")->sampling.seed, chat(R"("seed":-5)")->sampling.seed);
  EXPECT_EQ(chat(R"("seed":-9223372036854775808)")->sampling.seed, uint64_t{1} << 63);
  EXPECT_EQ(fault(chat(R"("seed":18446744073709551616)")), "seed");
  EXPECT_EQ(fault(chat(R"("seed":1.5)")), "seed");
}

TEST(ApiRequest, PrefillContinuesTheLastAssistantMessage) {
  ApiLimits limits;
  const auto read = [&](const std::string& messages, const std::string& fields = "") {
    return parse_api_request(Endpoint::kChat, *parse_json("{\"messages\":[" + messages + "]" + fields + "}"), limits);
  };
  const std::string user = R"({"role":"user","content":"x"})", said = R"({"role":"assistant","content":"On"})";
  EXPECT_FALSE(read(user + "," + said)->chat.continues_final);
  limits.defaults.prefill = true;
  EXPECT_TRUE(read(user + "," + said)->chat.continues_final);
  EXPECT_FALSE(read(user)->chat.continues_final);
  EXPECT_FALSE(read(user + "," + said, R"(,"continue_final_message":false)")->chat.continues_final);
  EXPECT_FALSE(read(user + "," + said, R"(,"add_generation_prompt":true)")->chat.continues_final);
  EXPECT_EQ(fault(read(user + "," + said + "," + said)), "messages");
}

TEST(ApiRequest, RequestValuesOverrideDefaults) {
  ApiLimits limits;
  limits.defaults.max_tokens = 9;
  limits.defaults.seed = 5;
  limits.defaults.template_kwargs = *parse_json(R"({"a":1,"b":2})");
  limits.defaults.template_dates = true;
  const auto read = [&](const std::string& fields) {
    const std::string body = R"({"messages":[{"role":"user","content":"x"}])" + fields + "}";
    return parse_api_request(Endpoint::kChat, *parse_json(body), limits);
  };
  EXPECT_EQ(read("")->max_tokens, 9);
  EXPECT_EQ(read(R"(,"max_tokens":3)")->max_tokens, 3);
  EXPECT_EQ(read(R"(,"min_tokens":12)")->max_tokens, 12);
  EXPECT_EQ(read("")->sampling.seed, 5u);
  EXPECT_TRUE(read(R"(,"seed":null)")->has_seed);
  EXPECT_EQ(read(R"(,"seed":6)")->sampling.seed, 6u);
  EXPECT_FALSE(read(R"(,"seed":-1)")->has_seed);
  const Json kwargs = read(R"(,"chat_template_kwargs":{"b":3,"date_string":"D"})")->chat.template_kwargs;
  EXPECT_EQ(*kwargs.find("a")->integer(), 1);
  EXPECT_EQ(*kwargs.find("b")->integer(), 3);
  EXPECT_EQ(*kwargs.find("date_string")->string(), "D");
  EXPECT_EQ(kwargs.find("datetime")->string()->size(), 11u);  // "Nov 22 2026"
}

TEST(ApiRequest, ScoringEchoesThePromptAndGeneratesNothing) {
  Result<ApiRequest> r = complete(R"("prompt":"x","echo":true,"logprobs":2,"max_tokens":0)");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->max_tokens, 0);
  EXPECT_EQ(r->prompt_logprobs, 2);
  EXPECT_EQ(fault(complete(R"("prompt":"x","max_tokens":0)")), "max_tokens");
  EXPECT_EQ(fault(chat(R"("max_completion_tokens":0)")), "max_tokens");
}

TEST(ApiRequest, StreamOptionsNeedAStream) {
  EXPECT_TRUE(
      chat(R"("stream":true,"stream_options":{"include_usage":true,"include_obfuscation":true})")->include_usage);
  EXPECT_TRUE(chat(R"("stream":true,"stream_options":{"continuous_usage_stats":true})")->continuous_usage);
  EXPECT_TRUE(chat(R"("stream_options":{"include_usage":false})").ok());
  EXPECT_EQ(fault(chat(R"("stream_options":{"include_usage":true})")), "stream_options");
  EXPECT_EQ(fault(chat(R"("stream":true,"stream_options":{"include_usage":1})")), "stream_options.include_usage");
  EXPECT_EQ(fault(chat(R"("stream_options":{"include_obfuscation":"x"})")), "stream_options.include_obfuscation");
}

TEST(ApiRequest, UsageThatIsDeclinedIsInNoEvent) {
  const auto asked = [](const std::string& options) {
    const Result<ApiRequest> r = chat("\"stream\":true,\"stream_options\":{" + options + "}");
    return !r.ok() ? r.error().message
                   : std::string(r->include_usage ? "last" : "") + (r->continuous_usage ? "each" : "");
  };
  EXPECT_EQ(asked(R"("include_usage":false,"continuous_usage_stats":true)"), "");
  EXPECT_EQ(asked(R"("continuous_usage_stats":true,"include_usage":false)"), "");
  EXPECT_EQ(asked(R"("include_usage":true,"continuous_usage_stats":true)"), "lasteach");
  EXPECT_EQ(asked(R"("include_usage":true,"continuous_usage_stats":false)"), "last");
  EXPECT_EQ(asked(R"("continuous_usage_stats":true)"), "lasteach");  // as vLLM
  EXPECT_EQ(asked(R"("include_usage":null,"continuous_usage_stats":true)"), "lasteach");
  EXPECT_EQ(asked(""), "");
  // Nothing is asked for, so there need be no stream.
  EXPECT_TRUE(chat(R"("stream_options":{"include_usage":false,"continuous_usage_stats":true})").ok());
}

TEST(ApiRequest, PromptsAreTruncatedToOneTokenAtLeast) {
  EXPECT_EQ(complete(R"("prompt":"x","truncate_prompt_tokens":3)")->truncate_prompt, 3);
  EXPECT_EQ(chat(R"("truncate_prompt_tokens":-1)")->truncate_prompt, -1);
  EXPECT_EQ(fault(chat(R"("truncate_prompt_tokens":0)")), "truncate_prompt_tokens");
  EXPECT_EQ(fault(chat(R"("truncate_prompt_tokens":-2)")), "truncate_prompt_tokens");
}

TEST(ApiRequest, LogitBiasTakesIdsAndTextsAndBans) {
  Result<ApiRequest> r = chat(R"("logit_bias":[[5,1.5],["hello",-2],[7,false]])");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->sampling.logit_bias.size(), 1u);
  EXPECT_EQ(r->sampling.banned, (std::vector<TokenId>{TokenId{7}}));
  ASSERT_EQ(r->text_bias.size(), 1u);
  EXPECT_EQ(r->text_bias[0].text, "hello");
  // An object's key is an id where it is a whole number, and a text otherwise.
  r = chat(R"("logit_bias":{"5":1," the":-3,"-7":false,"7":false})");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{TokenId{5}, 1.0f}}));
  EXPECT_EQ(r->sampling.banned, (std::vector<TokenId>{TokenId{7}}));
  ASSERT_EQ(r->text_bias.size(), 2u);
  EXPECT_EQ(r->text_bias[0].text, " the");
  EXPECT_EQ(r->text_bias[0].bias, -3.0f);
  EXPECT_TRUE(r->text_bias[1].ban);
  EXPECT_EQ(fault(chat(R"("logit_bias":{"x":true})")), "logit_bias.x");
  EXPECT_EQ(fault(chat(R"("logit_bias":{"":1})")), "logit_bias.");
  EXPECT_EQ(fault(chat(R"("logit_bias":{"5000000000":1})")), "logit_bias");
  EXPECT_EQ(fault(chat("\"logit_bias\":{\"" + std::string(5000, 'x') + "\":1}")), "logit_bias");
  EXPECT_EQ(fault(chat(R"("logit_bias":{"5":101})")), "logit_bias.5");
  EXPECT_EQ(fault(chat(R"("logit_bias":[[5]])")), "logit_bias[0]");
}

TEST(ApiRequest, ListsHaveEachOnceAndNoMoreThanThereCanBe) {
  const Result<ApiRequest> request = complete(R"("prompt":"x","allowed_token_ids":[7,0,7,0,3,0])");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->sampling.allowed, (std::vector<TokenId>{TokenId{0}, TokenId{3}, TokenId{7}}));
  const auto choose = [](size_t n) {
    std::string names;
    for (size_t i = 0; i < n; ++i) names += std::string(i > 0 ? "," : "") + R"({"function":{"name":"f"}})";
    return chat(R"("tools":[{"type":"function","function":{"name":"f"}}],)"
                R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)" +
                names + "]}}");
  };
  EXPECT_TRUE(choose(512).ok());
  EXPECT_EQ(fault(choose(513)), "tool_choice");
}

TEST(ApiRequest, EchoedValuesAreCut) {
  const std::string key(100'000, 'k');
  ApiLimits limits;
  limits.max_drafts = 4;
  for (const char* field : {"structured_outputs", "speculation"}) {
    const Result<ApiRequest> request = chat("\"" + std::string(field) + "\":{\"" + key + "\":1}", limits);
    EXPECT_LT(fault(request).size(), 200u) << field;
    EXPECT_LT(sentence(request).size(), 300u) << field;
  }
}

TEST(ApiRequest, AnEvictionIsReadWhole) {
  const Result<ApiRequest> r = chat(R"("kv_eviction":{"method":"snapkv","keep":1024,"window":32})");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(*r->kv_eviction, (KvEviction{.method = KvMethod::kSnapKv, .keep = 1024, .window = 32}));
  EXPECT_EQ(chat(R"("kv_eviction":{"method":"streaming","keep_share":0.5,"sinks":8})")->kv_eviction->sinks, 8);
  const auto at = [](const std::string& members) { return fault(chat("\"kv_eviction\":{" + members + "}")); };
  EXPECT_EQ(at(R"("keep":1024)"), "kv_eviction.method");
  EXPECT_EQ(at(R"("method":"pyramidkv","keep":1024)"), "kv_eviction.method");
  EXPECT_EQ(at(R"("method":"h2o")"), "kv_eviction.keep");
  EXPECT_EQ(at(R"("method":"h2o","keep":99,"keep_share":0.5)"), "kv_eviction.keep");
  EXPECT_EQ(at(R"("method":"h2o","keep":63)"), "kv_eviction");
  EXPECT_EQ(at(R"("method":"h2o","keep_share":0)"), "kv_eviction.keep_share");
  EXPECT_EQ(at(R"("method":"h2o","keep":99,"window":257)"), "kv_eviction.window");
  EXPECT_EQ(at(R"("method":"h2o","keep":99,"budget":1)"), "kv_eviction.budget");
}

TEST(ApiRequest, TheServersEvictionIsOfThoseThatMayHaveOne) {
  ApiLimits limits;
  limits.defaults.kv_eviction = {.method = KvMethod::kSnapKv, .keep = 512};
  EXPECT_EQ(chat("", limits)->kv_eviction, limits.defaults.kv_eviction);
  EXPECT_EQ(chat(R"("kv_eviction":{"method":"none"})", limits)->kv_eviction, KvEviction());
  EXPECT_FALSE(chat(R"("prompt_logprobs":1)", limits)->kv_eviction);
  EXPECT_FALSE(chat(R"("num_beams":2)", limits)->kv_eviction);
}

}  // namespace
}  // namespace ibid
