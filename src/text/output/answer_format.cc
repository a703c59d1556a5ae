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

// The first family whose signs are found. No list holds two markers of which one is a prefix of the other.
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
      // Kimi K3
      {{"<|open|>call tool=\""},
       {.kind = Kind::kTagged,
        .begins = {"<|open|>call tool=\""},
        .ends = {"<|close|>call<|sep|>"},
        .around = {"<|open|>tools<|sep|>", "<|close|>tools<|sep|>"},
        .name_ends = {"\""},
        .key_begins = {"<|open|>argument key=\""},
        .key_ends = {"\" type=\"string\"<|sep|>", "\" type=\"number\"<|sep|>", "\" type=\"boolean\"<|sep|>",
                     "\" type=\"object\"<|sep|>", "\" type=\"array\"<|sep|>", "\" type=\"null\"<|sep|>", "\"<|sep|>"},
        .value_ends = {"<|close|>argument<|sep|>"},
        .head_end = "<|sep|>",
        .is_inline = true}},
      // DeepSeek V3.2, V4
      {{"<｜DSML｜"},
       {.kind = Kind::kTagged,
        .begins = {"<｜DSML｜invoke name=\""},
        .ends = {"</｜DSML｜invoke>"},
        .around = {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>",
                   "</｜DSML｜tool_calls>"},
        .name_ends = {"\">", ">", "\"\n"},
        .key_begins = {"<｜DSML｜parameter name=\""},
        .key_ends = {"\" string=\"true\">", "\" string=\"false\">", "\">", ">"},
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
        .name_ends = {"\">", ">", "\"\n"},
        .key_begins = {"<parameter name=\""},
        .key_ends = {"\">", ">"},
        .value_ends = {"</parameter>"}}},
      // MiniCPM 5
      {{"<function name=", "<param name="},
       {.kind = Kind::kTagged,
        .begins = {"<function name=\""},
        .ends = {"</function>"},
        .name_ends = {"\">", ">"},
        .key_begins = {"<param name=\""},
        .key_ends = {"\">", ">"},
        .value_ends = {"</param>"},
        .is_inline = true,
        .has_cdata = true}},
      // Seed-OSS
      {{"<seed:tool_call>", "<parameter="},
       {.kind = Kind::kTagged,
        .begins = {"<function="},
        .ends = {"</function>"},
        .around = {"<seed:tool_call>", "</seed:tool_call>"},
        .name_ends = {">", "\n"},
        .key_begins = {"<parameter="},
        .key_ends = {">"},
        .value_ends = {"</parameter>"}}},
      // Qwen3-Coder, Qwen 3.5 and their like
      {{"<function=", "<parameter="},
       {.kind = Kind::kTagged,
        .begins = {"<function="},
        .ends = {"</function>"},
        .around = {"<tool_call>", "</tool_call>"},
        .name_ends = {">", "\n"},
        .key_begins = {"<parameter="},
        .key_ends = {">", "\n"},
        .value_ends = {"\n</parameter>", "</parameter>"}}},
      // Hy3
      {{"<arg_key:opensource>"},
       {.kind = Kind::kTagged,
        .begins = {"<tool_call:opensource>"},
        .ends = {"</tool_call:opensource>"},
        .around = {"<tool_calls:opensource>", "</tool_calls:opensource>"},
        .name_ends = {"<tool_sep:opensource>", "\n"},
        .key_begins = {"<arg_key:opensource>"},
        .key_ends = {"</arg_key:opensource>\n<arg_value:opensource>", "</arg_key:opensource><arg_value:opensource>",
                     "</arg_key:opensource>", "<arg_value:opensource>"},
        .value_ends = {"</arg_value:opensource>"},
        .is_inline = true}},
      // GLM
      {{"<arg_key>"},
       {.kind = Kind::kTagged,
        .begins = {"<tool_call>"},
        .ends = {"</tool_call>"},
        .name_ends = {"\n"},
        .key_begins = {"<arg_key>"},
        .key_ends = {"</arg_key>\n<arg_value>", "</arg_key><arg_value>", "</arg_key>", "<arg_value>"},
        .value_ends = {"</arg_value>"},
        .is_inline = true}},
      // Solar
      {{"<|tool_call:args|>"},
       {.kind = Kind::kNamed,
        .begins = {"<|tool_call:begin|>"},
        .ends = {"<|tool_call:end|>"},
        .around = {"<|tool_calls|>", "<|calls|>"},
        .name_ends = {"<|tool_call:args|>", "<|tool_call:name|>"},
        .name_begin = "<|tool_call:name|>"}},
      // Mistral Small 3.2, Ministral, Magistral, Devstral
      {{"[TOOL_CALLS]", "[ARGS]"},
       {.kind = Kind::kNamed,
        .begins = {"[TOOL_CALLS]"},
        .name_ends = {"[ARGS]", "[CALL_ID]"},
        .id_begin = "[CALL_ID]",
        .has_ids_after = true,
        .has_short_ids = true}},
      // Mistral Nemo
      {{"[TOOL_CALLS]"},
       {.kind = Kind::kObjects, .begins = {"[TOOL_CALLS]"}, .has_ids_after = true, .has_short_ids = true}},
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
      // Apertus
      {{"<|tools_prefix|>"},
       {.kind = Kind::kObjects, .begins = {"<|tools_prefix|>"}, .ends = {"<|tools_suffix|>"}, .is_name_key = true}},
      // GigaChat 3 and 3.1
      {{"function call<|role_sep|>"},
       {.kind = Kind::kObjects,
        .begins = {"<|message_sep|>\n\nfunction call<|role_sep|>\n", "function call<|role_sep|>\n"},
        .ends = {"<|message_sep|>"}}},
      {{"<|function_call|>"}, {.kind = Kind::kObjects, .begins = {"<|function_call|>"}, .ends = {"<|message_sep|>"}}},
      // Nemotron, Granite 3, Phi-4, Firefunction
      {{"<TOOLCALL>"}, {.kind = Kind::kObjects, .begins = {"<TOOLCALL>"}, .ends = {"</TOOLCALL>"}}},
      {{"<|tool_call|>"}, {.kind = Kind::kObjects, .begins = {"<|tool_call|>"}, .ends = {"<|/tool_call|>"}}},
      {{"functools["}, {.kind = Kind::kObjects, .begins = {"functools["}}},
      // Apriel, MiniMax M1
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

AnswerFormat AnswerFormat::of_template(std::string_view source, bool shows_tools) {
  const auto has = [&](std::string_view sign) { return source.find(sign) != std::string_view::npos; };
  AnswerFormat format;
  for (const ToolFamily& family : tool_families()) {
    if (!std::ranges::all_of(family.signs, has)) continue;
    format.tools = family.tools;
    break;
  }
  // A model follows its prompt: if the template does not describe the tools, the server does, in the generic format.
  if (!shows_tools && format.tools.kind != ToolFormat::Kind::kChannels) format.tools = tool_families().back().tools;
  for (const auto& [begin, end] :
       {std::pair{"<seed:think>", "</seed:think>"}, std::pair{"<mm:think>", "</mm:think>"},
        std::pair{"<|START_THINKING|>", "<|END_THINKING|>"}, std::pair{"[THINK]", "[/THINK]"},
        std::pair{"<|channel>thought", "<channel|>"}, std::pair{"<|open|>think<|sep|>", "<|close|>think<|sep|>"},
        std::pair{"<think>", "</think>"}}) {
    if (!has(begin) && !has(end)) continue;
    format.reasoning = {begin, end, format.tools.kind == ToolFormat::Kind::kTagged};
    break;
  }
  if (has("<|START_RESPONSE|>")) format.hidden = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"};
  if (has("<|START_TEXT|>")) format.hidden = {"<|START_TEXT|>", "<|END_TEXT|>"};
  if (has("<|open|>response<|sep|>")) format.hidden = {"<|open|>response<|sep|>", "<|close|>response<|sep|>"};
  return format;
}

}  // namespace ibid
