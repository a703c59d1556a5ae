#include "text/output/answer_format.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ibid {
namespace {

struct ToolFamily {
  std::vector<std::string_view> signs;  // all of them stand in the template
  ToolFormat tools;
};

// The first whose signs are there. Markers of which one begins another stand in no list together.
const std::vector<ToolFamily>& tool_families() {
  using Kind = ToolFormat::Kind;
  static const std::vector<ToolFamily> kFamilies = {
      // gpt-oss
      {{"<|channel|>", "to=functions"}, {.kind = Kind::kChannels}},
      // Kimi K2
      {{"<|tool_call_argument_begin|>"},
       {.kind = Kind::kNamed,
        .begins = {"<|tool_call_begin|>"},
        .ends = {"<|tool_call_end|>"},
        .around = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
        .name_ends = {"<|tool_call_argument_begin|>"},
        .is_id_name = true}},
      // DeepSeek V3.2, V4
      {{"<｜DSML｜"},
       {.kind = Kind::kTagged,
        .begins = {"<｜DSML｜invoke name=\""},
        .ends = {"</｜DSML｜invoke>"},
        .around = {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>",
                   "</｜DSML｜tool_calls>"},
        .name_ends = {"\">"},
        .key_begins = {"<｜DSML｜parameter name=\""},
        .key_ends = {"\" string=\"true\">", "\" string=\"false\">"},
        .value_ends = {"</｜DSML｜parameter>"}}},
      // DeepSeek R1
      {{"<｜tool▁calls▁begin｜>", "```json"},
       {.kind = Kind::kNamed,
        .begins = {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>"},
        .ends = {"```<｜tool▁call▁end｜>"},
        .around = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
        .name_ends = {"\n```json\n"}}},
      // DeepSeek V3.1
      {{"<｜tool▁calls▁begin｜>"},
       {.kind = Kind::kNamed,
        .begins = {"<｜tool▁call▁begin｜>"},
        .ends = {"<｜tool▁call▁end｜>"},
        .around = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
        .name_ends = {"<｜tool▁sep｜>"}}},
      // Gemma 4
      {{"<|tool_call>call:"}, {.kind = Kind::kGemma, .begins = {"<|tool_call>call:"}, .ends = {"<tool_call|>"}}},
      // LFM2
      {{"<|tool_list_start|>"},
       {.kind = Kind::kPython, .begins = {"<|tool_call_start|>"}, .ends = {"<|tool_call_end|>"}}},
      {{"<|tool_call_start|>"},
       {.kind = Kind::kPython, .begins = {"<|tool_call_start|>"}, .ends = {"<|tool_call_end|>"}}},
      // MiniMax M2
      {{"<minimax:tool_call>"},
       {.kind = Kind::kTagged,
        .begins = {"<invoke name=\""},
        .ends = {"</invoke>"},
        .around = {"<minimax:tool_call>", "</minimax:tool_call>"},
        .name_ends = {"\">"},
        .key_begins = {"<parameter name=\""},
        .key_ends = {"\">"},
        .value_ends = {"</parameter>"}}},
      // Seed-OSS, Qwen3-Coder, Qwen 3.5 and their like
      {{"<function=", "<parameter="},
       {.kind = Kind::kTagged,
        .begins = {"<function="},
        .ends = {"</function>"},
        .around = {"<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>"},
        .name_ends = {">"},
        .key_begins = {"<parameter="},
        .key_ends = {">"},
        .value_ends = {"\n</parameter>", "</parameter>"}}},
      // GLM
      {{"<arg_key>"},
       {.kind = Kind::kTagged,
        .begins = {"<tool_call>"},
        .ends = {"</tool_call>"},
        .name_ends = {"\n", "<arg_key>", "</tool_call>"},
        .key_begins = {"<arg_key>"},
        .key_ends = {"</arg_key>\n<arg_value>", "</arg_key><arg_value>"},
        .value_ends = {"</arg_value>"}}},
      // Mistral Small 3.2, Ministral, Magistral, Devstral
      {{"[TOOL_CALLS]", "[ARGS]"},
       {.kind = Kind::kNamed,
        .begins = {"[TOOL_CALLS]"},
        .name_ends = {"[ARGS]", "[CALL_ID]"},
        .id_begin = "[CALL_ID]",
        .has_short_ids = true}},
      // Mistral Nemo
      {{"[TOOL_CALLS]"}, {.kind = Kind::kObjects, .begins = {"[TOOL_CALLS]"}, .has_short_ids = true}},
      // Functionary 3.1
      {{"<function="}, {.kind = Kind::kNamed, .begins = {"<function="}, .ends = {"</function>"}, .name_ends = {">"}}},
      // Command-R7B, Command-R+
      {{"<|START_ACTION|>"},
       {.kind = Kind::kObjects,
        .begins = {"<|START_ACTION|>"},
        .ends = {"<|END_ACTION|>"},
        .name_key = "tool_name",
        .arguments_key = "parameters"}},
      {{"Action:", "tool_name"},
       {.kind = Kind::kObjects,
        .begins = {"Action: ```json", "Action:```json", "Action: [", "Action:\n```json"},
        .ends = {"```"},
        .name_key = "tool_name",
        .arguments_key = "parameters"}},
      // Nemotron, Granite 3, Phi-4, Firefunction
      {{"<TOOLCALL>"}, {.kind = Kind::kObjects, .begins = {"<TOOLCALL>"}, .ends = {"</TOOLCALL>"}}},
      {{"<|tool_call|>"}, {.kind = Kind::kObjects, .begins = {"<|tool_call|>"}, .ends = {"<|/tool_call|>"}}},
      {{"functools["}, {.kind = Kind::kObjects, .begins = {"functools["}}},
      // Apriel
      {{"<tool_calls>"}, {.kind = Kind::kObjects, .begins = {"<tool_calls>"}, .ends = {"</tool_calls>"}}},
      // Hermes, Qwen 2.5 and 3, Granite 4 and many others
      {{"<tool_call>"}, {.kind = Kind::kObjects, .begins = {"<tool_call>"}, .ends = {"</tool_call>"}}},
      // Llama 3.1 to 3.3
      {{"tools", "\"parameters\""},
       {.kind = Kind::kObjects, .begins = {"<|python_tag|>"}, .arguments_key = "parameters", .is_bare = true}},
      // The generic one.
      {{}, {.kind = Kind::kObjects, .begins = {"<tool_call>"}, .ends = {"</tool_call>"}}},
  };
  return kFamilies;
}

}  // namespace

AnswerFormat AnswerFormat::of_template(std::string_view source) {
  const auto has = [&](std::string_view sign) { return source.find(sign) != std::string_view::npos; };
  AnswerFormat format;
  for (const ToolFamily& family : tool_families()) {
    if (!std::ranges::all_of(family.signs, has)) continue;
    format.tools = family.tools;
    break;
  }
  for (const auto& [begin, end] :
       {std::pair{"<seed:think>", "</seed:think>"}, std::pair{"<mm:think>", "</mm:think>"},
        std::pair{"<|START_THINKING|>", "<|END_THINKING|>"}, std::pair{"[THINK]", "[/THINK]"},
        std::pair{"<|channel>thought", "<channel|>"}, std::pair{"<think>", "</think>"}}) {
    if (!has(begin) && !has(end)) continue;
    format.reasoning = {begin, end, format.tools.kind == ToolFormat::Kind::kTagged};
    break;
  }
  if (has("<|START_RESPONSE|>")) format.hidden = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"};
  return format;
}

}  // namespace ibid
