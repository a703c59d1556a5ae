#include "server/tool_grammar.h"

#include <gtest/gtest.h>

#include "conformance/fake_backend.h"
#include "sample/grammar/matcher.h"
#include "sample/grammar/states.h"
#include "server/build_grammar.h"
#include "server/tools.h"

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
    if (state == grammar::kDead) return "refused behind " + text;
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

TEST(ToolGrammar, WhatItAllowsIsOneWholeCallInEveryFormat) {
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

TEST(ToolGrammar, CallsThatAModelBeginsByItselfAreHeldBehindTheirOpening) {
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

// A format says what a text must be, and tools that may be called may be called instead of one; a call that must be
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
