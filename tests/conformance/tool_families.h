// Templates in the shape of the field's families: how each prints the calls of an assistant's message. Written for
// tests: a message begins with <u> or <a> and ends with <e>, whatever it is in the family's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ibid {

struct ToolTemplate {
  const char* name;
  std::string calls;  // prints `c`, a call's function, with its `id` and `loop`; around it `before` and `after`
  std::string before = {}, following = {};
  bool is_typed = false;  // marks for each value whether it is a string
  bool has_one_call = false;
  bool has_ids = false;
  bool spells_python = false;  // values that are no strings

  // The markers of what it prints name the format; if a template renders no tools, the server describes them.
  std::string source(bool shows_tools = true) const {
    return std::string(shows_tools ? "{% if tools %}<u>You have tools: {{ tools | tojson }}<e>{% endif %}" : "") +
           "{% for m in messages %}{% if m.role == 'assistant' %}<a>{{ m.content or '' }}"
           "{% if m.tool_calls %}" +
           before + "{% for t in m.tool_calls %}{% set c = t.function %}{% set id = t.id %}" + calls + "{% endfor %}" +
           following +
           "{% endif %}<e>{% else %}<u>{{ m.content }}<e>{% endif %}{% endfor %}"
           "{% if add_generation_prompt %}<a>{% endif %}";
  }
};

inline std::vector<ToolTemplate> tool_templates() {
  const std::string raw = "{{ v if v is string else v | tojson }}";
  const std::string args = "{% for k, v in c.arguments | items %}", end = "{% endfor %}";
  const std::string json = R"({"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}})";
  const auto comma = [](const std::string& one) { return one + "{{ ', ' if not loop.last }}"; };
  // Gemma's values.
  const std::string gemma =
      R"({%- macro val(v) -%}{%- if v is string -%}{{ '<|"|>' + v + '<|"|>' }}{%- elif v is mapping -%}{{ '{' }}{%- for k, x in v | items -%}{{ k }}:{{ val(x) }}{{ ',' if not loop.last }}{%- endfor -%}{{ '}' }}{%- elif v is none -%}None{%- elif v is boolean -%}{{ 'true' if v else 'false' }}{%- elif v is iterable -%}[{%- for x in v -%}{{ val(x) }}{{ ',' if not loop.last }}{%- endfor -%}]{%- else -%}{{ v }}{%- endif -%}{%- endmacro -%})";
  return {
      {.name = "Hermes", .calls = "\n<tool_call>\n" + json + "\n</tool_call>"},
      {.name = "Reka", .calls = "<tool_call>" + json + "</tool_call>"},
      {.name = "Qwen3-Coder",
       .calls = "\n<tool_call>\n<function={{ c.name }}>\n" + args + "<parameter={{ k }}>\n" + raw + "\n</parameter>\n" +
                end + "</function>\n</tool_call>"},
      {.name = "Nemotron 3",
       .calls = "\n<tool_call>\n<function={{ c.name }}>\n" + args +
                "<parameter={{ k }}>\n{{ v | tojson if v is mapping or (v is sequence and v is not string) else v | "
                "string }}"
                "\n</parameter>\n" +
                end + "</function>\n</tool_call>",
       .spells_python = true},
      {.name = "Seed-OSS",
       .calls = "\n<seed:tool_call>\n<function={{ c.name }}>\n" + args + "<parameter={{ k }}>{{ v }}</parameter>\n" +
                end + "</function>\n</seed:tool_call>",
       .spells_python = true},
      {.name = "GLM 4.6",
       .calls = "\n<tool_call>{{ c.name }}\n" + args + "<arg_key>{{ k }}</arg_key>\n<arg_value>" + raw +
                "</arg_value>\n" + end + "</tool_call>"},
      {.name = "GLM 4.7",
       .calls = "<tool_call>{{ c.name }}" + args + "<arg_key>{{ k }}</arg_key><arg_value>" + raw + "</arg_value>" +
                end + "</tool_call>"},
      {.name = "Ling 3",
       .calls = "\n<tool_call>{{ c.name }}\n" + args + "<arg_key>{{ k }}</arg_key>\n<arg_value>" + raw +
                "</arg_value>" + end + "\n</tool_call>"},
      {.name = "Hy3",
       .calls = "<tool_call:opensource>{{ c.name }}<tool_sep:opensource>\n" + args +
                "<arg_key:opensource>{{ k }}</arg_key:opensource>\n<arg_value:opensource>" + raw +
                "</arg_value:opensource>\n" + end + "</tool_call:opensource>\n",
       .before = "<tool_calls:opensource>\n",
       .following = "</tool_calls:opensource>"},
      {.name = "DeepSeek V3.2",
       .calls = "<｜DSML｜invoke name=\"{{ c.name }}\">\n" + args +
                "<｜DSML｜parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">" + raw +
                "</｜DSML｜parameter>\n" + end + "</｜DSML｜invoke>\n",
       .before = "\n\n<｜DSML｜function_calls>\n",
       .following = "</｜DSML｜function_calls>",
       .is_typed = true},
      {.name = "DeepSeek V4",
       .calls = "<｜DSML｜invoke name=\"{{ c.name }}\">\n" + args +
                "<｜DSML｜parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">" + raw +
                "</｜DSML｜parameter>\n" + end + "</｜DSML｜invoke>\n",
       .before = "<｜DSML｜tool_calls>\n",
       .following = "</｜DSML｜tool_calls>",
       .is_typed = true},
      {.name = "MiniMax M2",
       .calls = "<invoke name=\"{{ c.name }}\">\n" + args + "<parameter name=\"{{ k }}\">" + raw + "</parameter>\n" +
                end + "</invoke>\n",
       .before = "\n<minimax:tool_call>\n",
       .following = "</minimax:tool_call>"},
      {.name = "MiniCPM 5",
       .calls =
           "<function name=\"{{ c.name }}\">" + args +
           "<param name=\"{{ k }}\">{% if v is string and ('<' in v or '&' in v or '\n' in v) %}<![CDATA[{{ v }}]]>"
           "{% else %}{{ v }}{% endif %}</param>" +
           end + "</function>{{ '\n' if not loop.last }}",
       .spells_python = true},
      {.name = "Kimi K3",
       .calls =
           "<|open|>call tool=\"{{ c.name }}\" index=\"{{ loop.index }}\"<|sep|>" + args +
           "<|open|>argument key=\"{{ k }}\" type=\"{{ 'string' if v is string else 'null' if v is none else 'boolean' "
           "if v is boolean else 'object' if v is mapping else 'array' if v is sequence else 'number' }}\"<|sep|>" +
           raw + "<|close|>argument<|sep|>" + end + "<|close|>call<|sep|>",
       .before = "<|open|>tools<|sep|>",
       .following = "<|close|>tools<|sep|>",
       .is_typed = true},
      {.name = "Llama 3",
       .calls = R"({"name": "{{ c.name }}", "parameters": {{ c.arguments | tojson }}})",
       .has_one_call = true},
      {.name = "Mistral Nemo",
       .calls = comma(R"({"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}, "id": "{{ id }}"})"),
       .before = "[TOOL_CALLS][",
       .following = "]",
       .has_ids = true},
      {.name = "Mistral Small 3.2",
       .calls = "[TOOL_CALLS]{{ c.name }}[CALL_ID]{{ id }}[ARGS]{{ c.arguments | tojson }}",
       .has_ids = true},
      {.name = "Ministral 3", .calls = "[TOOL_CALLS]{{ c.name }}[ARGS]{{ c.arguments | tojson }}"},
      {.name = "DeepSeek R1",
       .calls = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.name }}\n```json\n{{ c.arguments | tojson }}\n```"
                "<｜tool▁call▁end｜>{{ '\n' if not loop.last }}",
       .before = "<｜tool▁calls▁begin｜>",
       .following = "<｜tool▁calls▁end｜>"},
      {.name = "DeepSeek V3.1",
       .calls = "<｜tool▁call▁begin｜>{{ c.name }}<｜tool▁sep｜>{{ c.arguments | tojson }}<｜tool▁call▁end｜>",
       .before = "<｜tool▁calls▁begin｜>",
       .following = "<｜tool▁calls▁end｜>"},
      {.name = "Kimi K2",
       .calls = "<|tool_call_begin|>functions.{{ c.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>"
                "{{ c.arguments | tojson }}<|tool_call_end|>",
       .before = "<|tool_calls_section_begin|>",
       .following = "<|tool_calls_section_end|>"},
      {.name = "Solar",
       .calls = "<|tool_call:begin|>{{ id }}<|tool_call:name|>{{ c.name }}<|tool_call:args|>{{ c.arguments | tojson }}"
                "<|tool_call:end|>",
       .before = "<|tool_calls|>",
       .following = "<|calls|>",
       .has_ids = true},
      {.name = "Gemma 4", .calls = gemma + "<|tool_call>call:{{ c.name }}{{ val(c.arguments) }}<tool_call|>"},
      {.name = "LFM2",
       .calls = comma("{{ c.name }}(" + args + "{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}" + end + ")"),
       .before = "<|tool_call_start|>[",
       .following = "]<|tool_call_end|>"},
      {.name = "Command R7B",
       .calls = comma("\n    {\"tool_call_id\": \"{{ id }}\", \"tool_name\": \"{{ c.name }}\", \"parameters\": "
                      "{{ c.arguments | tojson }}}"),
       .before = "<|START_ACTION|>[",
       .following = "\n]<|END_ACTION|>",
       .has_ids = true},
      {.name = "Command R+",
       .calls = comma("\n    {\n        \"tool_name\": \"{{ c.name }}\",\n        \"parameters\": {{ c.arguments | "
                      "tojson }}\n    }"),
       .before = "Action: ```json\n[",
       .following = "\n]```"},
      {.name = "Functionary 3.1", .calls = "<function={{ c.name }}>{{ c.arguments | tojson }}</function>"},
      {.name = "Nemotron Nano 2", .calls = comma(json), .before = "<TOOLCALL>[", .following = "]</TOOLCALL>"},
      {.name = "Granite 3", .calls = comma(json), .before = "<|tool_call|>[", .following = "]"},
      {.name = "Firefunction", .calls = comma(json), .before = " functools[", .following = "]"},
      {.name = "Apriel", .calls = comma(json), .before = "\n<tool_calls>[", .following = "]</tool_calls>"},
      {.name = "MiniMax M1", .calls = json + "\n", .before = "<tool_calls>\n", .following = "</tool_calls>"},
      {.name = "GigaChat 3", .calls = "<|message_sep|>\n\nfunction call<|role_sep|>\n" + json, .has_one_call = true},
      {.name = "GigaChat 3.1", .calls = "<|function_call|>" + json, .has_one_call = true},
      {.name = "Apertus",
       .calls = comma("{\"{{ c.name }}\": {{ c.arguments | tojson }}}"),
       .before = "<|tools_prefix|>[",
       .following = "]<|tools_suffix|>"},
      {.name = "gpt-oss",
       .calls = "<|start|>assistant<|channel|>commentary to=functions.{{ c.name }} <|constrain|>json<|message|>"
                "{{ c.arguments | tojson }}<|call|>"},
  };
}

}  // namespace ibid
