// llguidance's `x-guidance`: which texts a schema has under each of its members, in both directions, and what is
// refused.
#include "sample/grammar/schema_guidance.h"

#include <gtest/gtest.h>

#include "sample/grammar/states.h"

namespace ibid::grammar {
namespace {

struct Guided {
  std::shared_ptr<const Automaton> automaton;  // null where it is refused
  std::string error;
  std::vector<std::string> reported;

  bool has(std::string_view text) const {
    if (automaton == nullptr) return false;
    States states(automaton);
    const StateId end = states.after(kInitial, text);
    return end != kDead && states.accepts(end);
  }
};

Guided guided_by(const std::string& guidance, const std::string& rest, bool is_strict = true) {
  Fuel fuel;
  Grammar grammar(fuel);
  const Result<RuleId> root =
      read_json_schema(R"({"x-guidance":)" + guidance + "," + rest + "}", {.is_strict = is_strict}, grammar);
  if (!root) return {nullptr, root.error().message, {}};
  auto made = Automaton::compile(grammar, {.bytes = std::bitset<256>().set()});
  EXPECT_TRUE(made.ok());
  return {std::make_shared<const Automaton>(*std::move(made)), "", grammar.notes()};
}

const std::string kPair = R"("type":"object","properties":{"a":{},"b":{"type":"array","items":{"type":"integer"}}},)"
                          R"("required":["a","b"],"additionalProperties":false)";

struct Case {
  std::string guidance;
  std::vector<std::string> in, out;
};

TEST(SchemaGuidance, TextsHaveTheSeparatorsAndBlanksThatItNames) {
  const std::vector<Case> cases = {
      {R"({"item_separator":", ","key_separator":": ","whitespace_flexible":false})",
       {R"({"a": 1, "b": [2, 3]})", R"({"a": {"c": [1, "x"]}, "b": []})"},
       {R"({"a":1,"b":[2,3]})", R"({"a": 1,"b": [2]})", R"({"a": 1, "b": [2,3]})", R"({"a":  1, "b": [2]})",
        R"({"a": 1, "b": [ 2]})", "{\n\"a\": 1, \"b\": [2]}", R"({"a": {"c":1}, "b": []})"}},
      {R"({"whitespace_flexible":false})",
       {R"({"a":1,"b":[2,3]})", R"({"a":{"c":[1]},"b":[]})"},
       {R"({"a": 1,"b":[]})", R"({"a":1, "b":[]})", R"({ "a":1,"b":[]})", R"({"a":[1, 2],"b":[]})"}},
      {R"({})", {R"({"a":1,"b":[2,3]})", "{\n  \"a\": 1,\n  \"b\": [2, 3]\n}"}, {R"({"a" :1,"b":[]})"}},
      {R"({"item_separator":", ","key_separator":": ","whitespace_flexible":true})",
       {R"({"a": 1, "b": [2, 3]})", R"({"a":  1, "b": []})", "{\n\"a\": 1, \n  \"b\": [] }"},
       {R"({"a":1, "b": []})", "{\"a\": 1,\n\"b\": []}"}},
      {R"({"item_separator":"\\s{0,2},\\s{0,2}","key_separator":"\\s{0,2}:\\s{0,2}","whitespace_flexible":false})",
       {R"({"a":1,"b":[2  ,  3]})", R"({"a"  :  1 , "b":[]})", "{\"a\"\n:\t1,\"b\":[]}"},
       {R"({"a":1,   "b":[]})", R"({"a":    1,"b":[]})",
        "{\"a\":\xc2\xa0"
        "1,\"b\":[]}",
        "{\"a\":\v1,\"b\":[]}"}},
      {R"({"whitespace_pattern":" {2}"})",
       {R"({"a":1,"b":[2,3]})", R"({  "a"  :  1  ,  "b"  :  [  2  ,  3  ]  })", R"({"a":  1,"b":[]})"},
       {R"({ "a":1,"b":[]})", R"({"a":    1,"b":[]})", "{\n\n\"a\":1,\"b\":[]}"}},
      {R"({"whitespace_pattern":"[ \\n]+","whitespace_flexible":false})",
       {R"({"a":1,"b":[2,3]})", "{" + std::string(22, ' ') + "\"a\":1,\"b\":[]}"},
       {"{" + std::string(23, ' ') + "\"a\":1,\"b\":[]}", "{\t\"a\":1,\"b\":[]}"}},
      {R"({"item_separator":" *, *","key_separator":null,"whitespace_pattern":null,"whitespace_flexible":false})",
       {R"({"a":1 ,"b":[]})", "{\"a\":1" + std::string(44, ' ') + ",\"b\":[]}"},
       {"{\"a\":1" + std::string(45, ' ') + ",\"b\":[]}", R"({"a": 1,"b":[]})"}},
  };
  for (const Case& c : cases) {
    const Guided guided = guided_by(c.guidance, kPair);
    ASSERT_EQ(guided.error, "") << c.guidance;
    EXPECT_EQ(guided.reported, std::vector<std::string>()) << c.guidance;
    for (const std::string& text : c.in) EXPECT_TRUE(guided.has(text)) << c.guidance << " " << text;
    for (const std::string& text : c.out) EXPECT_FALSE(guided.has(text)) << c.guidance << " " << text;
  }
}

TEST(SchemaGuidance, ValuesThatAreListedHaveItsSeparatorsToo) {
  const Guided guided = guided_by(R"({"item_separator":", ","key_separator":": ","whitespace_flexible":false})",
                                  R"("enum":[{"a":[1,2],"b":null}])");
  EXPECT_TRUE(guided.has(R"({"a": [1, 2], "b": null})"));
  EXPECT_FALSE(guided.has(R"({"a":[1,2],"b":null})"));
}

// guidance matches an answer again with llguidance, whose strings have no other escapes.
TEST(SchemaGuidance, StringsEscapeWhatTheyMustAlone) {
  const std::string free = R"("type":"object","additionalProperties":{"type":"string"})";
  const Guided guided = guided_by("{}", free), any = guided_by(R"({"json_allow_general_unicode_escapes":true})", free);
  for (const char* text : {R"({"x":"A\n\u0001\u001f\\\"é"})", R"({"\t":"\u007f\u001F"})"}) {
    EXPECT_TRUE(guided.has(text)) << text;
    EXPECT_TRUE(any.has(text)) << text;
  }
  for (const char* text : {R"({"x":"\u0041"})", R"({"x":"\ud83d\ude00"})", R"({"\u0020":""})", "{\"x\":\"\x7f\"}"}) {
    EXPECT_FALSE(guided.has(text)) << text;
    EXPECT_TRUE(any.has(text)) << text;
  }
}

TEST(SchemaGuidance, SettingsThatMakeNoJsonAreRefusedOrReportedAndIgnored) {
  for (const auto& [name, guidance] : {std::pair{"item_separator", R"({"item_separator":"-"})"},
                                       std::pair{"key_separator", R"({"key_separator":" *"})"},
                                       std::pair{"key_separator", R"({"key_separator":"(:"})"},
                                       std::pair{"whitespace_pattern", R"({"whitespace_pattern":"_+"})"},
                                       std::pair{"whitespace_pattern", R"({"whitespace_pattern":" {23}"})"},
                                       std::pair{"json_allowed_escapes", R"({"json_allowed_escapes":"nrbtf\\\""})"},
                                       std::pair{"indent", R"({"indent":2})"}}) {
    const std::string place = "\"x-guidance/" + std::string(name) + "\" at # cannot be held";
    EXPECT_TRUE(guided_by(guidance, kPair).error.starts_with(place)) << guidance;
    const Guided reported = guided_by(guidance, kPair, false);
    ASSERT_EQ(reported.reported.size(), 1u) << guidance;
    EXPECT_TRUE(reported.reported[0].starts_with(place)) << reported.reported[0];
    EXPECT_TRUE(reported.has(R"({"a":1,"b":[2,3]})")) << guidance;
  }
  for (const char* wrong :
       {"1", "[]", R"({"item_separator":1})", R"({"lenient":"yes"})", R"({"whitespace_flexible":0})"})
    EXPECT_NE(guided_by(wrong, kPair, false).error.find("must be"), std::string::npos) << wrong;
  EXPECT_EQ(guided_by(R"({"json_allowed_escapes":"\"\\utfbnr/"})", kPair).error, "");
}

TEST(SchemaGuidance, LenientSchemasAreNotStrict) {
  const std::string unique = R"("type":"array","uniqueItems":true)";
  EXPECT_NE(guided_by(R"({"lenient":false})", unique).error.find("uniqueItems"), std::string::npos);
  const Guided lenient = guided_by(R"({"lenient":true})", unique);
  EXPECT_TRUE(lenient.has("[1,1]"));
  EXPECT_EQ(lenient.reported.size(), 1u);
}

TEST(SchemaGuidance, OneOfIsReadAsAnyOfOnlyWhereItCannotBeHeld) {
  const std::string cannot = R"("oneOf":[{"enum":[[1],[2]]},{"type":"array"}])";
  EXPECT_NE(guided_by("{}", cannot).error.find("oneOf"), std::string::npos);
  for (const char* guidance : {R"({"coerce_one_of":true})", R"({"lenient":true})"}) {
    const Guided coerced = guided_by(guidance, cannot);
    EXPECT_TRUE(coerced.has("[1]")) << coerced.error;
    EXPECT_FALSE(coerced.has("1"));
    ASSERT_EQ(coerced.reported.size(), 1u);
    EXPECT_TRUE(coerced.reported[0].ends_with(
        "\"enum\" at #/oneOf/0 cannot be held: under a negation, lists and objects cannot be left out."));
  }
  // An alternative that is refused by itself is no matter of the others.
  EXPECT_NE(
      guided_by(R"({"coerce_one_of":true})", R"("oneOf":[{"pattern":"\\bx"},{"type":"array"}])").error.find("pattern"),
      std::string::npos);
  const Guided exact =
      guided_by(R"({"coerce_one_of":true})", R"("oneOf":[{"type":"integer"},{"type":"number","minimum":3}])");
  EXPECT_TRUE(exact.has("2") && exact.has("3.5"));
  EXPECT_FALSE(exact.has("3"));
  EXPECT_EQ(exact.reported.size(), 0u);
}

TEST(SchemaGuidance, SpeaksAtTheRootAlone) {
  const Guided guided =
      guided_by("null", R"("type":"array","items":{"x-guidance":{"item_separator":"-"},"type":"array"})");
  EXPECT_TRUE(guided.has("[[1,2]]") && guided.has(R"(["\u0041"])") == false && guided.has(R"([["\u0041"]])"));
  EXPECT_FALSE(guided.has("[[1-2]]"));
}

}  // namespace
}  // namespace ibid::grammar
