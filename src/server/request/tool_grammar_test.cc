#include "server/request/tool_grammar.h"

#include <gtest/gtest.h>

#include "conformance/fake_backend.h"
#include "sample/grammar/matcher.h"
#include "sample/grammar/states.h"
#include "server/request/build_grammar.h"
#include "server/request/tools.h"
#include "text/output/schema_check.h"

namespace ibid {
namespace {

constexpr const char* kBody =
    R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required","tools":[{"type":"function","function":)"
    R"({"name":"get_weather","parameters":{"type":"object","properties":{"place":{"type":"string"},"days":{"type":)"
    R"("integer"},"unit":{"enum":["C","F"]},"at":{"$ref":"#/$defs/point"}},"required":["place","at"],)"
    R"("additionalProperties":false,"$defs":{"point":{"type":"object","properties":{"x":{"type":"number"}},)"
    R"("required":["x"],"additionalProperties":false}}}}},{"type":"function","function":{"name":"now"}}]})";

// A text that the grammar allows and that begins so, drawn byte by byte, with up to n tokens more.
std::string draw(const std::shared_ptr<grammar::Compiled>& compiled, const Backend& backend, uint64_t seed,
                 std::string_view begin, int n) {
  grammar::Matcher matcher(compiled, {}, 1, true);
  std::string text;
  grammar::StateId state = grammar::kInitial;
  std::vector<uint32_t> mask(matcher.mask_words());
  std::vector<TokenId> given;
  backend.tokenizer().encode(begin, {.parse_special = true}, given);
  for (const TokenId token : given) {
    text += backend.tokenizer().token_bytes(token, true);
    state = matcher.after(0, state, token);
    matcher.hold(0, state);
    if (state == grammar::kDead) return "refused after " + text;
  }
  for (int n_left = n; n_left > 0 && !matcher.is_closed(state); --n_left) {
    matcher.fill(state, n_left, mask);
    std::vector<TokenId> allowed;
    for (int32_t t = 0; t < 257; ++t) {
      if ((mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) != 0) allowed.push_back(TokenId{t});
    }
    if (allowed.empty()) return ADD_FAILURE() << "nothing may follow " << text, text;
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    const TokenId token = allowed[(seed >> 33) % allowed.size()];
    text += backend.tokenizer().token_bytes(token, true);
    state = matcher.after(0, state, token);
    matcher.hold(0, state);
  }
  return text;
}

std::string draw(const grammar::Grammar& rules, const Backend& backend, uint64_t seed, std::string_view begin = {},
                 int n = 500) {
  const auto automaton = grammar::compile(rules, *backend.grammars().trie());
  if (!automaton) return ADD_FAILURE() << automaton.error().message, "";
  const auto compiled = std::make_shared<grammar::Compiled>(grammar::Source(), *automaton, backend.grammars().trie());
  return draw(compiled, backend, seed, begin, n);
}

TEST(ToolGrammar, AllowsExactlyOneWholeCallInEveryFormat) {
  const FakeBackend backend;
  Result<ApiRequest> api = parse_api_request(Endpoint::kChat, *parse_json(kBody), {});
  ASSERT_TRUE(api.ok()) << api.error().message;
  for (const char* signs : {"",
                            "<tool_call> <think>",
                            "tools \"parameters\"",
                            "[TOOL_CALLS] [ARGS]",
                            "[TOOL_CALLS]",
                            "<function= <parameter=",
                            "<arg_key>",
                            "<｜DSML｜",
                            "<minimax:tool_call>",
                            "<｜tool▁calls▁begin｜>",
                            "<｜tool▁calls▁begin｜> ```json",
                            "<|tool_call_argument_begin|>",
                            "<function=",
                            "<|tool_call_start|>",
                            "<|tool_call>call:",
                            "<|START_ACTION|>",
                            "Action: tool_name",
                            "<TOOLCALL>",
                            "functools[",
                            "<|channel|> to=functions"}) {
    const auto format = required_format(std::make_shared<AnswerFormat>(AnswerFormat::of_template(signs)));
    grammar::Fuel fuel;
    grammar::Grammar rules(fuel);
    const Status read = read_required_calls(callable_tools(*api), *format, backend.tokenizer(), rules);
    ASSERT_TRUE(read.ok()) << signs << read.error().message;
    const bool is_reasoning = std::string_view(signs).find("think") != std::string_view::npos;
    const AnswerParser::Options options{format, declared_tools(*api), true, is_reasoning};
    allow_reasoning(*options.format, options.is_reasoning, backend.tokenizer(), rules);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const std::string text = draw(rules, backend, seed * 7919 + 1);
      AnswerParser parser(options);
      std::vector<AnswerPart> parts;
      Utf8Mender mender;  // strings are whole code points, but for reasoning
      std::string mended;
      mender.push(text, mended), mender.finish(mended);
      parser.push(mended, parts);
      parser.finish(parts);
      std::string name, arguments;
      for (const AnswerPart& part : parts) {
        ASSERT_NE(part.kind, AnswerPart::Kind::kText) << signs << ": " << text;
        if (part.kind == AnswerPart::Kind::kCall) name += part.name, arguments += part.text;
      }
      ASSERT_EQ(parser.n_calls(), 1) << signs << ": " << text;
      ASSERT_TRUE(parser.are_calls_whole()) << signs << ": " << text;
      const Result<Json> json = parse_json(arguments);
      ASSERT_TRUE(json.ok()) << signs << ": " << arguments << " of " << text;
      ASSERT_TRUE(name == "now" || name == "get_weather") << name;
      if (name != "get_weather") continue;
      ASSERT_NE(json->find("place"), nullptr) << text;
      ASSERT_NE(json->find("place")->string(), nullptr) << text;
      ASSERT_NE(json->find("at"), nullptr) << text;
      ASSERT_TRUE(json->find("at")->find("x")->is_number()) << text;
    }
  }
}

// Parameters as servers of tools publish them, and what is odd about schemas. Whatever is accepted gives a whole call
// every time, with arguments that are valid.
const char* const kSchemas[] = {
    R"({"type":"object","properties":{"q":{"type":"string"}},"required":["q","zz"]})",
    R"({"type":"object","required":["a","b"]})",
    R"({"required":["only"]})",
    "{}",
    R"({"type":"object"})",
    R"({"type":"object","properties":{}})",
    R"({"type":["object","null"],"properties":{"a":{"type":"integer"}},"required":["a"]})",
    R"({"type":"object","additionalProperties":true,"required":["x"]})",
    R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"required":["n"]})",
    R"({"type":"object","additionalProperties":false})",
    R"({"type":"object","properties":{"path":{"type":"string"},"head":{"anyOf":[{"type":"number"},{"type":"null"}],"default":null},)"
    R"("tail":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["path","head","tail"],"additionalProperties":false,)"
    R"("$schema":"http://json-schema.org/draft-07/schema#"})",
    R"({"type":"object","properties":{"edits":{"type":"array","items":{"type":"object","properties":{"oldText":{"type":"string"},)"
    R"("newText":{"type":"string"}},"required":["oldText","newText"],"additionalProperties":false}},"dryRun":{"type":"boolean",)"
    R"("default":false}},"required":["edits"]})",
    R"({"$defs":{"Unit":{"enum":["C","F"],"title":"Unit","type":"string"},"Point":{"properties":{"x":{"type":"number"}},"required":["x"],)"
    R"("type":"object"}},"properties":{"unit":{"$ref":"#/$defs/Unit"},"at":{"anyOf":[{"$ref":"#/$defs/Point"},{"type":"null"}]},)"
    R"("maybe":{"anyOf":[{"$ref":"#/$defs/Unit"},{"type":"null"}]}},"required":["unit","at","maybe"],"title":"args","type":"object"})",
    R"({"$ref":"#/$defs/Args","$defs":{"Args":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}}})",
    R"({"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"integer"}},)"
    R"("required":["b"]}]})",
    R"({"type":"object","anyOf":[{"properties":{"url":{"type":"string"}},"required":["url"]},{"properties":{"file":{"type":"string"}},)"
    R"("required":["file"]}]})",
    R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"}},"required":["kind"],"additionalProperties":false},)"
    R"({"type":"array"}]})",
    R"({"type":"object","properties":{"code":{"type":"string","pattern":"^[A-Z]{2}[0-9]{3}$"},"short":{"type":"string","maxLength":4,)"
    R"("minLength":1},"long":{"type":"string","minLength":2}},"required":["code","short","long"]})",
    R"({"type":"object","properties":{"when":{"type":"string","format":"date"},"mail":{"type":"string","format":"email"}},)"
    R"("required":["when"]})",
    R"({"type":"object","properties":{"mode":{"enum":["fast","12",3,true,null,"null","true"]},"one":{"const":"x y"}},)"
    R"("required":["mode","one"]})",
    R"({"type":"object","properties":{"n":{"type":["integer","string"]},"any":{},"yes":true,"no":false},"required":["n","any","yes"]})",
    R"({"type":"object","properties":{"owner":{"type":"string","description":"o"},"labels":{"type":"array","items":{"type":"string"}},)"
    R"("per_page":{"type":"number","minimum":1,"maximum":100}},"required":["owner","per_page"],"x-order":1})",
    R"({"type":"object","properties":{"env":{"type":"object","additionalProperties":{"type":"string"}}},"required":["env"]})",
    R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}},"required":["x-a"]})",
    R"({"type":"object","properties":{"a":{"type":"integer"}},"if":{"required":["a"]},"then":{"required":["a"]}})",
};

constexpr const char* kFormats[] = {"",
                                    "[TOOL_CALLS] [ARGS]",
                                    "<function= <parameter=",
                                    "<seed:tool_call> <parameter=",
                                    "<arg_key>",
                                    "<function name= <param name=",
                                    "<|open|>call tool=\"",
                                    "<｜DSML｜",
                                    "<minimax:tool_call>",
                                    "<|tool_call:args|>",
                                    "<|tool_call_start|>",
                                    "<|tools_prefix|>"};

TEST(ToolGrammar, EverySchemaThatIsAcceptedGivesAWholeCallInEveryFormat) {
  const FakeBackend backend;
  for (const char* schema : kSchemas) {
    const std::string body =
        std::string(
            R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required","tools":[{"type":"function",)"
            R"("function":{"name":"do_it","parameters":)") +
        schema + "}}]}";
    const Result<ApiRequest> api = parse_api_request(Endpoint::kChat, *parse_json(body), {});
    ASSERT_TRUE(api.ok()) << schema << api.error().message;
    const Json& parameters = *(*api->chat.tools.array())[0].find("function")->find("parameters");
    for (const char* signs : kFormats) {
      const auto format = required_format(std::make_shared<AnswerFormat>(AnswerFormat::of_template(signs)));
      grammar::Fuel fuel;
      grammar::Grammar rules(fuel);
      const Status made = read_required_calls(callable_tools(*api), *format, backend.tokenizer(), rules);
      ASSERT_TRUE(made.ok()) << signs << schema << made.error().message;
      const auto automaton = grammar::compile(rules, *backend.grammars().trie());
      ASSERT_TRUE(automaton.ok()) << signs << schema << automaton.error().message;
      const auto compiled =
          std::make_shared<grammar::Compiled>(grammar::Source(), *automaton, backend.grammars().trie());
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const std::string text = draw(compiled, backend, seed * 7919 + 1, {}, 900);
        AnswerParser parser({format, declared_tools(*api), true, false});
        std::vector<AnswerPart> parts;
        Utf8Mender mender;
        std::string mended;
        mender.push(text, mended), mender.finish(mended);
        parser.push(mended, parts);
        parser.finish(parts, true);
        std::string name, arguments;
        for (const AnswerPart& part : parts) {
          ASSERT_EQ(part.kind, AnswerPart::Kind::kCall) << signs << ": " << text;
          name += part.name, arguments += part.text;
        }
        ASSERT_TRUE(parser.are_calls_whole() && parser.n_calls() == 1) << signs << schema << ": " << text;
        ASSERT_EQ(name, "do_it");
        const Result<Json> json = parse_json(arguments);
        ASSERT_TRUE(json.ok()) << signs << ": " << arguments << " of " << text;
        ASSERT_TRUE(SchemaCheck(parameters).accepts(parameters, *json)) << signs << "\n"
                                                                        << schema << "\n"
                                                                        << arguments << "\n"
                                                                        << text;
      }
    }
  }
}

TEST(ToolGrammar, ASchemaWithoutAnyValueIsRefusedByTheToolsName) {
  const FakeBackend backend;
  const Result<ApiRequest> api = parse_api_request(
      Endpoint::kChat,
      *parse_json(
          R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required","tools":[{"type":"function","function":)"
          R"({"name":"never_ever","parameters":{"type":"object","properties":{"a":false},"required":["a"]}}}]})"),
      {});
  ASSERT_TRUE(api.ok()) << api.error().message;
  const AnswerParser::Options parser{.format = backend.answer_format(), .tools = declared_tools(*api)};
  const auto made = build_grammar(*api, backend, "", &parser);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("never_ever"), std::string::npos) << made.error().message;
}

TEST(ToolGrammar, CallsThatAModelBeginsByItselfAreHeldAfterTheirOpening) {
  const FakeBackend backend;
  std::string body = kBody;
  body.replace(body.find("\"required\""), 10, "\"auto\"");
  Result<ApiRequest> loose = parse_api_request(Endpoint::kChat, *parse_json(body), {});
  ASSERT_TRUE(loose.ok()) << loose.error().message;
  body.replace(body.find("\"name\":\"get_weather\""), 0, "\"strict\":true,");
  Result<ApiRequest> api = parse_api_request(Endpoint::kChat, *parse_json(body), {});
  ASSERT_TRUE(api.ok()) << api.error().message;
  int n_formats = 0;
  for (const char* signs :
       {"", "[TOOL_CALLS] [ARGS]", "[TOOL_CALLS]", "<function= <parameter=", "<arg_key>", "<minimax:tool_call>",
        "<|tool_call_argument_begin|>", "<|tool_call_start|>", "<|START_ACTION|>", "<TOOLCALL>"}) {
    const auto format = std::make_shared<AnswerFormat>(AnswerFormat::of_template(signs));
    EXPECT_FALSE(holds_auto_calls(*loose, *format)) << signs;
    if (!holds_auto_calls(*api, *format)) continue;
    ++n_formats;
    grammar::Fuel fuel;
    grammar::Grammar rules(fuel);
    const Status read = read_auto_calls(callable_tools(*api), *format, backend.tokenizer(), rules);
    ASSERT_TRUE(read.ok()) << signs << read.error().message;
    const std::string opening = format->tools.begins[0];
    EXPECT_EQ(draw(rules, backend, 1, "No call here, {not even} one.", 0), "No call here, {not even} one.");
    EXPECT_TRUE(draw(rules, backend, 1, "So: " + opening + "nobody knows it", 0).starts_with("refused")) << signs;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const std::string text = draw(rules, backend, seed * 7919 + 1, "So: " + opening, 300);
      AnswerParser parser({format, declared_tools(*api), true, false});
      std::vector<AnswerPart> parts;
      Utf8Mender mender;
      std::string mended;
      mender.push(text, mended), mender.finish(mended);
      parser.push(mended, parts);
      parser.finish(parts);
      ASSERT_GE(parser.n_calls(), 1) << signs << ": " << text;
      ASSERT_TRUE(parser.are_calls_whole()) << signs << ": " << text;
      std::string name, arguments;
      for (const AnswerPart& part : parts) {
        if (part.kind == AnswerPart::Kind::kCall && part.call == 0) name += part.name, arguments += part.text;
      }
      const Result<Json> json = parse_json(arguments);
      ASSERT_TRUE(json.ok()) << signs << ": " << arguments << " of " << text;
      if (name != "get_weather") continue;
      ASSERT_NE(json->find("place"), nullptr) << text;
      ASSERT_NE(json->find("at"), nullptr) << text;
      ASSERT_TRUE(json->find("at")->find("x")->is_number()) << text;
    }
  }
  EXPECT_GE(n_formats, 7);
}

// A format states what a text must be, and tools that may be called may be called instead of one; a call that must be
// made leaves no text to have a format.
TEST(ToolGrammar, AFormatLeavesTheCallsThatToolsAllow) {
  const FakeBackend backend;
  const auto compiled = [&](const char* choice) {
    std::string body = kBody;
    body.replace(body.find("\"required\""), 10, choice);
    body.pop_back();
    body +=
        R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":)"
        R"({"sum":{"type":"integer"}},"required":["sum"],"additionalProperties":false}}}})";
    const Result<ApiRequest> api = parse_api_request(Endpoint::kChat, *parse_json(body), {});
    if (!api) return ADD_FAILURE() << api.error().message, std::shared_ptr<grammar::Compiled>();
    AnswerParser::Options parser{.format = backend.answer_format(), .finds_reasoning = false};
    if (api->tool_choice != ToolChoice::kNone) parser.tools = declared_tools(*api);
    return build_grammar(*api, backend, "", &parser).value();
  };
  const std::string text = R"({"sum": 3})", call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const auto allows = [&](const std::shared_ptr<grammar::Compiled>& grammar, const std::string& begin) {
    return !draw(grammar, backend, 1, begin, 0).starts_with("refused");
  };
  const auto may = compiled("\"auto\""), must = compiled("\"required\""), none = compiled("\"none\"");
  EXPECT_TRUE(allows(may, text));
  EXPECT_TRUE(allows(may, call));
  EXPECT_FALSE(allows(may, R"({"total")"));
  EXPECT_FALSE(allows(may, "<tool_call>\n{\"name\": \"then\""));
  EXPECT_FALSE(allows(may, text + call));
  EXPECT_FALSE(allows(must, text));
  EXPECT_TRUE(allows(must, call));
  EXPECT_TRUE(allows(none, text));
  EXPECT_FALSE(allows(none, call));
}

TEST(ToolGrammar, ANamedToolIsTheOnlyOne) {
  const FakeBackend backend;
  std::string body = kBody;
  body.replace(body.find("\"required\""), 10, R"({"type":"function","function":{"name":"now"}})");
  Result<ApiRequest> api = parse_api_request(Endpoint::kChat, *parse_json(body), {});
  ASSERT_TRUE(api.ok()) << api.error().message;
  const AnswerFormat format = AnswerFormat::of_template("");
  grammar::Fuel fuel;
  grammar::Grammar rules(fuel);
  ASSERT_TRUE(read_required_calls(callable_tools(*api), format, backend.tokenizer(), rules).ok());
  EXPECT_TRUE(draw(rules, backend, 3).starts_with("<tool_call>\n{\"name\": \"now\", \"arguments\": {"));
}

}  // namespace
}  // namespace ibid
