// Answers in the markups of model families: the first byte selects the family and how the text is cut; the rest is the
// text. Whatever it is, the parts add up to the same for every slicing, and the arguments of a call that has ended are
// JSON.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/utf8.h"
#include "text/output/answer_parser.h"

namespace {

using namespace ibid;

std::string read(const std::shared_ptr<const AnswerFormat>& format, std::string_view text, size_t len,
                 bool is_reasoning) {
  const auto schema = [](const char* json) { return std::make_shared<const Json>(*parse_json(json)); };
  static const auto tools = std::make_shared<const std::vector<DeclaredTool>>(std::vector<DeclaredTool>{
      {"get_weather", schema(R"({"properties":{"place":{"type":"string"},"days":{"type":["integer","null"]}}})")},
      {"find", schema(R"({"properties":{"q":{"anyOf":[{"type":"string","maxLength":3},{"type":"object"}]}}})")},
      {"f", nullptr}});
  AnswerParser parser({format, tools, true, is_reasoning});
  std::vector<AnswerPart> parts;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + std::min(len, text.size() - begin);
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;  // between code points
    parser.push(text.substr(begin, end - begin), parts);
    begin = end;
  }
  parser.finish(parts);
  std::string told;
  std::string arguments;
  const AnswerPart* last = nullptr;
  for (const AnswerPart& part : parts) {
    const bool goes_on = last != nullptr && last->kind == part.kind && last->call == part.call && !part.begins;
    if (!goes_on) told += "\n<" + std::to_string(static_cast<int>(part.kind)) + " " + part.name + " " + part.id + ">";
    told += part.text;
    last = &part;
    if (part.kind != AnswerPart::Kind::kCall) continue;
    if (part.begins) arguments.clear();
    arguments += part.text;
    if (!part.ends) continue;
    told += "<end>";
    // A model may give an argument twice; the last one counts.
    const Result<Json> json = parse_json(arguments, "the arguments", {.max_depth = 1 << 16, .last_key_counts = true});
    if (!json || json->object() == nullptr) std::abort();
  }
  return told + (parser.are_calls_whole() ? "" : " cut");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Templates by the signs that their families are known by.
  static const std::array kFormats = [] {
    const auto of = [](const char* signs) { return std::make_shared<AnswerFormat>(AnswerFormat::of_template(signs)); };
    return std::array{of("tools <tool_call> <think>"),
                      of("tools \"parameters\""),
                      of("[TOOL_CALLS] [ARGS] [THINK]"),
                      of("<function= <parameter= <think>"),
                      of("<arg_key> <think>"),
                      of("<|channel|> to=functions."),
                      of("<|tool_call>call:"),
                      of("<|tool_call_argument_begin|>"),
                      of("<|tool_call_start|>"),
                      of("functools["),
                      of("<｜DSML｜"),
                      of("<|START_ACTION|>")};
  }();
  if (size == 0) return 0;
  const auto& format = kFormats[data[0] % kFormats.size()];
  const bool is_reasoning = data[0] >= 128;
  // As it comes from a detokenizer: UTF-8.
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (size_t i = 0; i < text.size();) {
    const utf8::CodePoint c = utf8::decode(text.data() + i, text.data() + text.size());
    for (size_t k = i; k < i + c.len && !c.valid; ++k) text[k] = '?';
    i += c.len;
  }
  const std::string whole = read(format, text, text.size(), is_reasoning);
  for (const size_t len : {1, 3, 7})
    if (read(format, text, len, is_reasoning) != whole) std::abort();
  return 0;
}
