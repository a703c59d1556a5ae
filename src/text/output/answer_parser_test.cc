#include "text/output/answer_parser.h"

#include <gtest/gtest.h>

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

std::shared_ptr<const std::vector<DeclaredTool>> tools() {
  return std::make_shared<std::vector<DeclaredTool>>(std::vector<DeclaredTool>{
      {"get_weather", {{"place", true}, {"days", false}, {"exact", false}}}, {"find", {{"q", true}}}});
}

std::string told(const std::vector<AnswerPart>& parts, const AnswerParser& parser) {
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

// As it is told when it comes at once; and where it comes in pieces of any length, what they add up to is the same.
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
    return told(parts, parser);
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

TEST(AnswerParser, WhatIsNoCallStaysText) {
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
            "<call get_weather: {\"days\":[1,2]}><call find: {}>");
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

// Of any text whatever: no slicing changes it, and nothing of a text without markers is lost.
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

// Of a model with channels, whose prompt ends within a message.
TEST(AnswerParser, AnAnswerGoesOnWithinAMessage) {
  const auto read_on = [](std::string_view text, bool is_reasoning) {
    AnswerParser::Options options{std::make_shared<AnswerFormat>(AnswerFormat::of_template(kGptOss)), tools()};
    options.is_in_message = true;
    options.is_reasoning = is_reasoning;
    AnswerParser parser(options);
    std::vector<AnswerPart> parts;
    for (const char c : text) parser.push(std::string_view(&c, 1), parts);
    parser.finish(parts);
    return told(parts, parser);
  };
  EXPECT_EQ(read_on("it is so.<|return|>", false), "it is so.");
  EXPECT_EQ(read_on("Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>", true),
            read(kGptOss, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."));
}

}  // namespace
}  // namespace ibid
