#include "text/output/answer_parser.h"

#include <gtest/gtest.h>

#include <array>

#include "base/json.h"

namespace ibid {
namespace {

// Templates by the signs that they are known by.
constexpr const char* kHermes = "tools <tool_call> <think>";
constexpr const char* kLlama = "tools {\"name\": ..., \"parameters\": ...}";
constexpr const char* kMistral = "[TOOL_CALLS] [ARGS] [THINK]";
constexpr const char* kCoder = "<function= <parameter= <think>";
constexpr const char* kGlm = "<tool_call> <arg_key> <think>";
constexpr const char* kGptOss = "<|channel|> to=functions.";

std::shared_ptr<const Json> schema(const char* json) { return std::make_shared<const Json>(*parse_json(json)); }

std::shared_ptr<const std::vector<DeclaredTool>> tools() {
  static const auto weather = schema(
      R"({"type":"object","properties":{"place":{"type":"string"},"days":{"type":"array"},"exact":{"type":"boolean"}}})");
  static const auto find = schema(R"({"type":"object","properties":{"q":{"type":"string"}}})");
  return std::make_shared<std::vector<DeclaredTool>>(
      std::vector<DeclaredTool>{{"get_weather", weather}, {"find", find}});
}

std::string printed(const std::vector<AnswerPart>& parts, const AnswerParser& parser) {
  std::string out, open;
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kCall) {
      if (part.begins)
        out += (open.empty() ? "" : ">") + std::string("<call ") + part.name + (part.id.empty() ? "" : " " + part.id) +
               ": ";
      out += part.text;
      open = "call";
      if (part.ends) out += ">", open.clear();
      continue;
    }
    const std::string kind = part.kind == AnswerPart::Kind::kReasoning ? "(" : "";
    out += kind + part.text + (kind.empty() ? "" : ")");
  }
  if (!parser.are_calls_whole()) out += " CUT";
  return out;
}

AnswerParser parser_of(const char* source, bool is_reasoning = false, bool with_tools = true) {
  return AnswerParser({std::make_shared<AnswerFormat>(AnswerFormat::of_template(source)),
                       with_tools ? tools() : nullptr, true, is_reasoning});
}

// The parts of the text pushed at once; pieces of any length must add up to the same.
std::string read(const char* source, std::string_view text, bool is_reasoning = false, bool with_tools = true) {
  std::vector<size_t> borders;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] & 0xC0) != 0x80) borders.push_back(i);
  }
  const auto in_pieces = [&](size_t first, size_t len) {
    AnswerParser parser = parser_of(source, is_reasoning, with_tools);
    std::vector<AnswerPart> parts;
    size_t from = 0;
    for (size_t b = first; b < borders.size(); b += len) {
      parser.push(text.substr(from, borders[b] - from), parts);
      from = borders[b];
    }
    parser.push(text.substr(from), parts);
    parser.finish(parts);
    return printed(parts, parser);
  };
  const std::string whole = in_pieces(borders.size() - 1, borders.size());
  for (const size_t len : {size_t{1}, size_t{2}, size_t{3}, size_t{7}})
    EXPECT_EQ(in_pieces(0, len), whole) << "in pieces of " << len;
  for (size_t cut = 0; cut < borders.size(); ++cut)
    EXPECT_EQ(in_pieces(cut, borders.size()), whole) << "cut at " << borders[cut];
  return whole;
}

TEST(AnswerParser, TextIsText) {
  EXPECT_EQ(read(kHermes, "Hello, <b>you</b> {\"a\": 1} < tool_call>\n"),
            "Hello, <b>you</b> {\"a\": 1} < tool_call>\n");
  EXPECT_EQ(read(kHermes, " \n "), " \n ");
  EXPECT_EQ(read(kHermes, "<tool_cal"), "<tool_cal");
  EXPECT_EQ(read(kGptOss, "Hello"), "Hello");
  EXPECT_EQ(read(kLlama, "{\"a\": [1, 2]} and so on"), "{\"a\": [1, 2]} and so on");
}

TEST(AnswerParser, ReasoningIsFoundAtTheBeginningAlone) {
  EXPECT_EQ(read(kHermes, "<think>\nWell, well.\n</think>\n\nYes."), "(Well, well.)Yes.");
  EXPECT_EQ(read(kHermes, "Say <think> no </think>."), "Say <think> no </think>.");
  EXPECT_EQ(read(kHermes, "Well.</think>Yes.", true), "(Well.)Yes.");
  EXPECT_EQ(read(kHermes, "Never closed", true), "(Never closed)");
  EXPECT_EQ(read(kHermes, "<think></think>\nYes"), "Yes");
  EXPECT_EQ(read(kMistral, "[THINK]Ähm[/THINK]Ja"), "(Ähm)Ja");
  EXPECT_EQ(read("tools <tool_call>", "<think>a</think>b"), "<think>a</think>b");
}

TEST(AnswerParser, Hermes) {
  EXPECT_EQ(
      read(kHermes,
           "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Zürich \\\"x\\\"\"}}\n</tool_call>"),
      "<call get_weather: {\"place\":\"Zürich \\\"x\\\"\"}>");
  EXPECT_EQ(read(kHermes,
                 "<think>\nHm\n</think>\n\nI look.\n\n<tool_call>\n{\"arguments\": {\"q\": \"a\"}, \"name\": "
                 "\"find\"}\n</tool_call>\n"
                 "<tool_call>{\"name\": \"find\", \"arguments\": {\"q\": [1, {}]}}</tool_call> Done."),
            "(Hm)I look.<call find: {\"q\":\"a\"}><call find: {\"q\":[1,{}]}>Done.");
  EXPECT_EQ(read(kHermes, "<tool_call>{\"name\": \"find\"}</tool_call>"), "<call find: {}>");
  EXPECT_EQ(read(kHermes, "<tool_call>{\"name\": \"find\", \"arguments\": \"{\\\"q\\\": 1}\"}</tool_call>"),
            "<call find: {\"q\": 1}>");
  EXPECT_EQ(read(kHermes, "<tool_call>{\"name\": \"find\", \"arguments\": {\"q\": \"two\nlines\"}}"),
            "<call find: {\"q\":\"two\\nlines\"}>");
  EXPECT_EQ(read(kHermes, "<tool_call>{\"name\": \"find\"}</tool_call>", false, false),
            "<tool_call>{\"name\": \"find\"}</tool_call>");
}

TEST(AnswerParser, MalformedCallStaysText) {
  for (const char* text :
       {"<tool_call>hello</tool_call>", "<tool_call>{\"name\": 3}</tool_call>",
        "<tool_call>{\"name\": \"f\", }</tool_call>", "<tool_call>{}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", "<tool_call>\n[]", "<tool_call>",
        "<tool_call>{\"name\": \"a b\"}", "<tool_call>{\"a\" 1}", "<tool_call>{\"x\": {\"name\": \"find\"}}"})
    EXPECT_EQ(read(kHermes, text), text);
  for (const char* text : {"[TOOL_CALLS]say hello", "[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]1", "[TOOL_CALLS]f[CALL_ID]"})
    EXPECT_EQ(read(kMistral, text), text);
  for (const char* text : {"<function=f", "<function=>x", "<tool_call>\nnothing"}) EXPECT_EQ(read(kCoder, text), text);
  EXPECT_EQ(read(kLlama, "{\"name\": \"nobody\", \"parameters\": {}}"), "{\"name\": \"nobody\", \"parameters\": {}}");
}

TEST(AnswerParser, ACallThatBreaksOffStaysIncomplete) {
  EXPECT_EQ(read(kHermes, "<tool_call>{\"name\": \"find\", \"arguments\": {\"q\": \"ab"),
            "<call find: {\"q\":\"ab CUT");
  EXPECT_EQ(read(kHermes, "<tool_call>{\"name\": \"find\", \"arguments\": {\"q\": ]} then"),
            "<call find: {\"q\":]} then CUT");
  EXPECT_EQ(read(kCoder, "<tool_call>\n<function=find>\n<parameter=q>\nab"), "<call find: {\"q\":\"ab CUT");
  EXPECT_EQ(read(kCoder, "<tool_call>\n<function=find>\noops"), "<call find: \noops CUT");
}

TEST(AnswerParser, Llama) {
  EXPECT_EQ(read(kLlama, "{\"name\": \"find\", \"parameters\": {\"q\": \"a\"}}"), "<call find: {\"q\":\"a\"}>");
  EXPECT_EQ(read(kLlama, "\n{\"type\": \"function\", \"name\": \"find\", \"parameters\": {}}"), "<call find: {}>");
  EXPECT_EQ(read(kLlama, "<|python_tag|>{\"name\": \"find\", \"parameters\": {\"q\": 1.5}}"),
            "<call find: {\"q\":1.5}>");
}

TEST(AnswerParser, Mistral) {
  EXPECT_EQ(read(kMistral,
                 "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"days\": [1, 2]}, \"id\": \"call12345\"}, "
                 "{\"name\": \"find\", \"arguments\": {}}]"),
            "<call get_weather call12345: {\"days\":[1,2]}><call find: {}>");
  EXPECT_EQ(read(kMistral, "I look.[TOOL_CALLS]find[CALL_ID]abcdefghi[ARGS]{\"q\": \"a\"}"),
            "I look.<call find abcdefghi: {\"q\":\"a\"}>");
  EXPECT_EQ(read(kMistral, "[TOOL_CALLS]find[ARGS]{\"q\": \"a\"}[TOOL_CALLS]find[ARGS]{\"q\": \"b\"}"),
            "<call find: {\"q\":\"a\"}><call find: {\"q\":\"b\"}>");
}

TEST(AnswerParser, TaggedArguments) {
  EXPECT_EQ(read(kCoder,
                 "<tool_call>\n<function=get_weather>\n<parameter=place>\nZürich "
                 "\"x\"\n\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n"
                 "<parameter=exact>\nTrue\n</parameter>\n<parameter=other>\nsome "
                 "words\n</parameter>\n</function>\n</tool_call>\n"
                 "<tool_call>\n<function=find>\n</function>\n</tool_call>"),
            "<call get_weather: {\"place\":\"Zürich \\\"x\\\"\\n\",\"days\":[1, 2],\"exact\":true,\"other\":\"some "
            "words\"}><call find: {}>");
  EXPECT_EQ(read(kCoder, "Hm.\n<function=find>\n<parameter=q>\n1\n</parameter>\n</function>", true),
            "(Hm.\n)<call find: {\"q\":\"1\"}>");
  EXPECT_EQ(read(kGlm,
                 "<tool_call>get_weather\n<arg_key>place</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</"
                 "arg_key><arg_value>[1]</arg_value>\n</tool_call>"
                 "<tool_call>find</tool_call>"),
            "<call get_weather: {\"place\":\"Bern\",\"days\":[1]}><call find: {}>");
  EXPECT_EQ(read("<｜DSML｜",
                 "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
                 "string=\"true\">1</｜DSML｜parameter>\n"
                 "<｜DSML｜parameter name=\"b\" "
                 "string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
            "<call f: {\"a\":\"1\",\"b\":1}>");
  EXPECT_EQ(read("<minimax:tool_call>",
                 "<minimax:tool_call>\n<invoke name=\"find\">\n<parameter "
                 "name=\"q\">a</parameter>\n</invoke>\n</minimax:tool_call>"),
            "<call find: {\"q\":\"a\"}>");
}

TEST(AnswerParser, NamesBeforeObjects) {
  const std::string dsk = "<｜tool▁calls▁begin｜>";
  EXPECT_EQ(read("<｜tool▁calls▁begin｜> ```json", dsk + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n```json\n{"
                                                         "\"q\": \"a\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            "<call find: {\"q\":\"a\"}>");
  EXPECT_EQ(read("<｜tool▁calls▁begin｜>", dsk + "<｜tool▁call▁begin｜>find<｜tool▁sep｜>{\"q\": "
                                                 "\"a\"}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>find<｜tool▁sep｜>{}<"
                                                 "｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            "<call find: {\"q\":\"a\"}><call find: {}>");
  EXPECT_EQ(read("<|tool_call_argument_begin|>",
                 "Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>{\"q\":"
                 "1}<|tool_call_end|><|tool_calls_section_end|>"),
            "Ok.<call find functions.find:0: {\"q\":1}>");
  EXPECT_EQ(read("<function=", "<function=find>{\"q\": \"a\"}</function>"), "<call find: {\"q\":\"a\"}>");
}

TEST(AnswerParser, OtherSpellingsOfValues) {
  EXPECT_EQ(read("<|tool_call>call:",
                 "<|tool_call>call:find{q:<|\"|>a \"b\" <c><|\"|>,n:1,l:[true,<|\"|>x<|\"|>],o:{k:null}}<tool_call|>"),
            "<call find: {\"q\":\"a \\\"b\\\" <c>\",\"n\":1,\"l\":[true,\"x\"],\"o\":{\"k\":null}}>");
  EXPECT_EQ(
      read("<|tool_call_start|>", "<|tool_call_start|>[find(q=\"a\", n=-1.5e3, b=None), find()]<|tool_call_end|>Done"),
      "<call find: {\"q\":\"a\",\"n\":-1.5e3,\"b\":null}><call find: {}>Done");
  EXPECT_EQ(read("<|tool_call_start|>",
                 "<|tool_call_start|>[find(q='it\\'s \"x\"', l=[True, {\"a\": 'b'}])]<|tool_call_end|>"),
            "<call find: {\"q\":\"it's \\\"x\\\"\",\"l\":[true,{\"a\":\"b\"}]}>");
  EXPECT_EQ(read("Action: tool_name",
                 "Action: ```json\n[\n    {\n        \"tool_name\": \"find\",\n        \"parameters\": {\"q\": 1}\n    "
                 "}\n]```"),
            "<call find: {\"q\":1}>");
}

TEST(AnswerParser, Channels) {
  EXPECT_EQ(read(kGptOss,
                 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.find "
                 "<|constrain|>json<|message|>{\"q\": \"a\"}<|call|>"),
            "(Hm.)<call find: {\"q\":\"a\"}>");
  EXPECT_EQ(read(kGptOss, " to=functions.find<|channel|>commentary json<|message|>{}"), "<call find: {}>");
  EXPECT_EQ(read(kGptOss,
                 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"),
            "(Hm.)Yes.");
  EXPECT_EQ(read(kGptOss, "<|channel|>commentary<|message|>I look.<|end|>"), "I look.");
}

// What stands beside name, id and arguments of a call's object is text, and never nothing.
TEST(AnswerParser, NothingOfACallsObjectIsLost) {
  const auto call = [](const std::string& members) {
    return read(kHermes, "<tool_call>{" + members + "}</tool_call>");
  };
  const std::string a1 = "<call find: {\"a\":1}>";
  EXPECT_EQ(call(R"("name": "find", "parameters": {"a": 1})"), a1);
  EXPECT_EQ(call(R"("parameters": {"a": 1}, "name": "find")"), a1);
  EXPECT_EQ(call(R"("name": "find", "parameters": "{\"a\":1}")"), a1);
  EXPECT_EQ(read(kLlama, R"({"name": "find", "arguments": {"a": 1}})"), a1);
  EXPECT_EQ(call(R"("type": "function", "function": {"name": "find", "arguments": {"a": 1}})"), a1);
  EXPECT_EQ(call(R"("id": "x1", "type": "function", "name": "find", "arguments": {"a": 1})"),
            "<call find x1: {\"a\":1}>");
  EXPECT_EQ(call(R"("name": "find", "arguments": {"a": 1}, "why": "so")"), a1 + R"("why":"so")");
  EXPECT_EQ(call(R"("why": [1], "name": "find", "arguments": {"a": 1})"), R"("why":[1])" + a1);
  EXPECT_EQ(call(R"("name": "find", "arguments": {"a": 1}, "parameters": {"b": 2})"), a1 + R"("parameters":{"b":2})");
  for (const char* nothing : {"{}", "null", "\"\"", "[]"})
    EXPECT_EQ(call(std::string(R"("name": "find", "arguments": )") + nothing), "<call find: {}>") << nothing;
  for (const char* text :
       {R"("name": "find", "args": {"a": 1})", R"("name": "find", "a": 1)", R"("args": {"a": 1}, "name": "find")",
        R"("args": {}, "name": "find", "arguments": {"a": 1})"})
    EXPECT_EQ(call(text), "<tool_call>{" + std::string(text) + "}" + "</tool_call>") << text;
}

TEST(AnswerParser, SeveralCallsStandInOneAnswer) {
  const std::string f = R"({"name": "find", "arguments": {}})", p = R"({"name": "find", "parameters": {}})";
  const std::string two = "<call find: {}><call find: {}>";
  EXPECT_EQ(read(kHermes, "<tool_call>[" + f + ", " + f + "]</tool_call>"), two);
  EXPECT_EQ(read(kHermes, "<tool_call>\n" + f + "\n" + f + "\n</tool_call>"), two);
  EXPECT_EQ(read(kHermes, "<tool_call>" + f + "</tool_call><tool_call>" + f + "</tool_call>"), two);
  for (const std::string& text :
       {p + "\n" + p, p + "; " + p, "[" + p + ", " + p + "]", "<|python_tag|>" + p + "; " + p})
    EXPECT_EQ(read(kLlama, text), two) << text;
  EXPECT_EQ(read(kLlama, "[1, 2]"), "[1, 2]");
  EXPECT_EQ(read("[TOOL_CALLS]", "[TOOL_CALLS][" + f + "," + f + "]"), two);
  // A repeated id no longer identifies the call of a result.
  const std::string with_id = R"({"id": "7", "name": "find", "arguments": {}})";
  EXPECT_EQ(read(kHermes, "<tool_call>[" + with_id + ", " + with_id + "]</tool_call>"),
            "<call find 7: {}><call find: {}>");
}

TEST(AnswerParser, BracketsThatAreMissingOrTooManyChangeNoCall) {
  const std::string begin = R"(<tool_call>{"name": "find", "arguments": {"a": 1})";
  for (const char* end : {"}</tool_call> Ok.", "\n</tool_call> Ok.", "}} </tool_call> Ok.",
                          "}</tool_call></tool_call> Ok.", "} Ok.", "}]</tool_call> Ok."})
    EXPECT_EQ(read(kHermes, begin + end), "<call find: {\"a\":1}>Ok.") << end;
  const std::string list = R"(<TOOLCALL>[{"name": "find", "arguments": {"a": 1}})";
  for (const char* end : {"]</TOOLCALL>", "</TOOLCALL>", "", "]", ",]</TOOLCALL>"})
    EXPECT_EQ(read("<TOOLCALL>", list + end), "<call find: {\"a\":1}>") << end;
  EXPECT_EQ(read(kMistral, "[TOOL_CALLS]find{\"a\": 1}"), "<call find: {\"a\":1}>");
  EXPECT_EQ(read(kHermes, R"(<tool_call>{"name": "find", "arguments": {"q": "\d+ \\d", "t": True}}</tool_call>)"),
            R"(<call find: {"q":"\\d+ \\d","t":true}>)");
}

// One format with tags: how its markers are spelled.
struct Tags {
  const char* source;
  std::string begin, key, key_end, close, end, following;
};
const std::vector<Tags>& tags() {
  static const std::vector<Tags> kTags = {
      {kCoder, "<tool_call>\n<function=get_weather>\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>\n",
       "</tool_call>"},
      {kGlm, "<tool_call>get_weather\n", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>", ""},
      {kGlm, "<tool_call>get_weather", "<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</tool_call>", ""},
      {"<｜DSML｜", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n", "<｜DSML｜parameter name=\"",
       "\" string=\"true\">", "</｜DSML｜parameter>\n", "</｜DSML｜invoke>\n", "</｜DSML｜function_calls>"},
      {"<minimax:tool_call>", "<minimax:tool_call>\n<invoke name=\"get_weather\">\n", "<parameter name=\"", "\">",
       "</parameter>\n", "</invoke>\n", "</minimax:tool_call>"},
      {"<seed:tool_call> <parameter=", "<seed:tool_call>\n<function=get_weather>\n", "<parameter=", ">",
       "</parameter>\n", "</function>\n", "</seed:tool_call>"},
  };
  return kTags;
}

// The call's arguments as they are read, where the model ended its answer; and that no slicing changes them.
std::string arguments_of(const char* source, const std::string& text) {
  const auto in_pieces = [&](size_t len) {
    AnswerParser parser = parser_of(source);
    std::vector<AnswerPart> parts;
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.size(), at + len);
      while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
      parser.push(std::string_view(text).substr(at, end - at), parts);
      at = end;
    }
    parser.finish(parts, true);
    std::string out = parser.are_calls_whole() ? "" : "CUT ";
    for (const AnswerPart& part : parts)
      if (part.kind == AnswerPart::Kind::kCall) out += part.text;
    return out;
  };
  const std::string whole = in_pieces(text.size());
  for (const size_t len : {size_t{1}, size_t{2}, size_t{5}}) EXPECT_EQ(in_pieces(len), whole) << text;
  return whole;
}

TEST(AnswerParser, AMarkerThatIsMissingDoubledOrMisspelledChangesItsArgumentAlone) {
  const std::string place = R"("place":"Bern")";
  for (const Tags& t : tags()) {
    const auto text = [&](const std::string& close, const std::string& end, const std::string& following) {
      return t.begin + t.key + "place" + t.key_end + "Bern" + close + t.key + "exact" + t.key_end + "true" + t.close +
             end + following;
    };
    const std::string right = R"({"place":"Bern","exact":true})";
    const std::string ends = t.end + t.following;
    EXPECT_EQ(arguments_of(t.source, text(t.close, t.end, t.following)), right);
    std::string misspelled = t.close;
    misspelled.replace(misspelled.rfind('>') - 2, 2, "");
    const std::string own_line = t.close.ends_with('\n') ? "\n" : "";
    for (const std::string& close : {own_line, t.close + t.close, misspelled})
      EXPECT_EQ(arguments_of(t.source, text(close, t.end, t.following)), right) << text(close, t.end, t.following);
    if (!t.following.empty()) {
      EXPECT_EQ(arguments_of(t.source, text(t.close, "", t.following)), right);
    }
    EXPECT_EQ(arguments_of(t.source, text(t.close, t.end, "")), right);
    EXPECT_EQ(arguments_of(t.source, text(t.close, t.end + t.end, t.following)), right);
    EXPECT_EQ(arguments_of(t.source, text(t.close, "", "")), right) << "the model ended";
    // The last value's closing tag.
    const std::string last = t.begin + t.key + "place" + t.key_end + "Bern";
    const std::string line = t.end.ends_with('\n') || t.close.ends_with('\n') ? "\n" : "";
    EXPECT_EQ(arguments_of(t.source, last + line + ends), "{" + place + "}") << last + line + ends;
    EXPECT_EQ(arguments_of(t.source, last + misspelled + ends), "{" + place + "}");
    EXPECT_EQ(arguments_of(t.source, last + t.close + t.close + ends), "{" + place + "}");
    EXPECT_TRUE(arguments_of(t.source, last).starts_with("CUT ")) << "a value that never ends";
    // A key that is none takes itself away, and nothing else.
    std::string bad_key = t.key;
    bad_key.erase(bad_key.size() - 2, 1);
    const std::string strange = t.begin + t.key + "place" + t.key_end + "Bern" + t.close + bad_key + "b" + t.key_end +
                                "two" + t.close + t.key + "exact" + t.key_end + "true" + t.close + ends;
    EXPECT_EQ(arguments_of(t.source, strange), right) << strange;
  }
}

TEST(AnswerParser, TagsWithinAValueAreItsText) {
  for (const Tags& t : tags()) {
    std::string close = t.close, end = t.end;
    while (close.ends_with('\n')) close.pop_back();
    while (close.starts_with('\n')) close.erase(0, 1);
    while (end.ends_with('\n')) end.pop_back();
    for (const std::string& value :
         std::vector<std::string>{"a " + close + " b", close + " b", "a\n" + close + " b", "a\n" + end + " b",
                                  "a\n" + end + "\nb", "a " + t.key + "zz", "\n" + t.key + "zz" + t.key_end + "x",
                                  "a\n" + t.following + " b", "a<b>c</b>\n</div>", "</", "\n\na"}) {
      const std::string text = t.begin + t.key + "place" + t.key_end + value + t.close + t.key + "exact" + t.key_end +
                               "true" + t.close + t.end + t.following;
      std::string want = "{\"place\":\"" + json_escaped(value) + "\",\"exact\":true}";
      EXPECT_EQ(arguments_of(t.source, text), want) << text;
    }
  }
}

TEST(AnswerParser, ACallCutShortIsNotWhole) {
  for (const Tags& t : tags()) {
    const std::string text = t.begin + t.key + "place" + t.key_end + "Bern" + t.close + t.key + "exact" + t.key_end +
                             "true" + t.close + t.end + t.following;
    for (size_t cut = t.begin.size(); cut < text.size() - t.following.size() - 1; ++cut) {
      if ((text[cut] & 0xC0) == 0x80) continue;
      AnswerParser parser = parser_of(t.source);
      std::vector<AnswerPart> parts;
      parser.push(std::string_view(text).substr(0, cut), parts);
      parser.finish(parts);
      const bool has_end = text.substr(0, cut).find(t.end.substr(0, t.end.find('>') + 1)) != std::string::npos;
      EXPECT_EQ(parser.are_calls_whole() && parser.n_calls() > 0, has_end) << text.substr(0, cut);
    }
  }
}

// JSON where that is valid and the string is not, else the string; of a nullable string `null` alone is null.
TEST(AnswerParser, TypesOfValuesBetweenTagsFollowTheSchema) {
  const std::string optional = R"({"anyOf":[{"type":"string"},{"type":"null"}]})";
  const std::string reference = R"({"$ref":"#/$defs/text"})", number = R"({"$ref":"#/$defs/number"})";
  for (const auto& [type, value, want] : std::vector<std::array<std::string, 3>>{
           {optional, "12345", R"("12345")"},
           {optional, "true", R"("true")"},
           {optional, R"({"x": [1]})", R"("{\"x\": [1]}")"},
           {optional, "null", "null"},
           {optional, "nullable", R"("nullable")"},
           {optional, "None", R"("None")"},
           {R"({"type":["string","null"]})", "12345", R"("12345")"},
           {R"({"type":["null","string"]})", "null", "null"},
           {R"({"type":"string","nullable":true})", "1", R"("1")"},
           {R"({"type":"string"})", "null", R"("null")"},
           {reference, "12", R"("12")"},
           {number, "12", "12"},
           {number, "x", R"("x")"},
           {R"({"oneOf":[{"type":"integer"},{"type":"boolean"}]})", "True", "true"},
           {R"({"anyOf":[{"type":"integer"},{"type":"null"}]})", "None", "null"},
           {R"({"allOf":[{"$ref":"#/$defs/text"}]})", "[1]", R"("[1]")"},
           {R"({"enum":["a","12"]})", "12", R"("12")"},
           {R"({"enum":["a",12]})", "12", "12"},
           {R"({"enum":["a"]})", "\"a\"", R"("a")"},
           {R"({"const":"12"})", "12", R"("12")"},
           {R"({"const":12})", "12", "12"},
           {R"({"type":["integer","string"],"pattern":"^[a-z]+$"})", "12", "12"},
           {R"({"anyOf":[{"type":"string","maxLength":2},{"type":"integer"}]})", "123", "123"},
           {R"({"anyOf":[{"type":"string","maxLength":2},{"type":"integer"}]})", "12", R"("12")"},
           {R"({"anyOf":[{"type":"string","format":"uri"},{"type":"object"}]})", "{}", R"("{}")"},
           {R"({"type":"object"})", "{\"a\": 1}", "{\"a\": 1}"},
           {R"({"type":"object"})", "{'a': None}", R"({"a":null})"},
           {R"({"type":"integer","minimum":5})", "3", "3"},
           {R"({"type":"integer"})", "2.5", "2.5"},
           {R"({"type":"array","items":{"type":"integer"}})", "[\"x\"]", "[\"x\"]"},
           {"{}", "[1, 2]", R"("[1, 2]")"},
           {R"({"description":"d"})", "12", R"("12")"},
           {"true", "x", R"("x")"},
           {R"({"properties":{"x":{"type":"integer"}}})", "text", R"("text")"}}) {
    const auto tool = std::make_shared<std::vector<DeclaredTool>>(
        std::vector<DeclaredTool>{{"f", schema((R"({"properties":{"v":)" + type +
                                                R"(},"$defs":{"text":{"type":"string"},"number":{"type":"number"}}})")
                                                   .c_str())}});
    for (const size_t len : {size_t{1}, size_t{3}, size_t{1000}}) {
      AnswerParser parser({std::make_shared<AnswerFormat>(AnswerFormat::of_template(kCoder)), tool, true, false});
      std::vector<AnswerPart> parts;
      const std::string text = "<function=f>\n<parameter=v>\n" + value + "\n</parameter>\n</function>";
      for (size_t at = 0; at < text.size(); at += len) parser.push(std::string_view(text).substr(at, len), parts);
      parser.finish(parts);
      ASSERT_FALSE(parts.empty());
      std::string arguments;
      for (const AnswerPart& part : parts) arguments += part.text;
      EXPECT_EQ(arguments, "{\"v\":" + want + "}") << value << " by " << type;
    }
  }
}

// For any text: no slicing changes the parts, and no byte of a text without markers is lost.
TEST(AnswerParser, AnyTextAddsUp) {
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "{\"name\": \"find\"",
                                          ", \"arguments\": ",
                                          "{\"q\": ",
                                          "\"a\"",
                                          "}",
                                          "}",
                                          " ",
                                          "\n",
                                          "<think>",
                                          "</think>",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "find",
                                          "[",
                                          "]",
                                          "<function=find>",
                                          "<parameter=q>",
                                          "</parameter>",
                                          "</function>",
                                          "<arg_key>",
                                          "</arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "é",
                                          "\"",
                                          "\\",
                                          "<|channel|>",
                                          "<|message|>",
                                          "<|end|>",
                                          "<|tool_call>call:",
                                          "<|\"|>",
                                          "<|tool_call_start|>",
                                          "(q=1)",
                                          ","};
  uint64_t state = 1;
  const auto draw = [&](size_t n) {
    return state = state * 6364136223846793005ull + 1442695040888963407ull, (state >> 33) % n;
  };
  for (const char* source :
       {kHermes, kLlama, kMistral, kCoder, kGlm, kGptOss, "<|tool_call>call:", "<|tool_call_start|>"}) {
    for (int round = 0; round < 150; ++round) {
      std::string text;
      for (size_t n = draw(14); n > 0; --n) text += words[draw(words.size())];
      read(source, text, round % 3 == 0);
      if (HasFailure()) FAIL() << source << " of " << text;
    }
  }
}

// A model with channels whose prompt ends within a message.
TEST(AnswerParser, AnAnswerGoesOnWithinAMessage) {
  const auto read_on = [](std::string_view text, bool is_reasoning) {
    AnswerParser::Options options{std::make_shared<AnswerFormat>(AnswerFormat::of_template(kGptOss)), tools()};
    options.is_in_message = true;
    options.is_reasoning = is_reasoning;
    AnswerParser parser(options);
    std::vector<AnswerPart> parts;
    for (const char c : text) parser.push(std::string_view(&c, 1), parts);
    parser.finish(parts);
    return printed(parts, parser);
  };
  EXPECT_EQ(read_on("it is so.<|return|>", false), "it is so.");
  EXPECT_EQ(read_on("Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>", true),
            read(kGptOss, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."));
}

}  // namespace
}  // namespace ibid
