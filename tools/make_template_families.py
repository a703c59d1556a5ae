#!/usr/bin/env python3
"""Renders conversations as clients send them, with Python's jinja2, over templates shaped like the field's families.

    python3 tools/make_template_families.py > tests/conformance/template_family_goldens.jsonl

Clients send arguments as a JSON text, null contents, developer messages and texts in parts; templates read some of
these and not others. Each family below states what it needs, by a person's reading of the template: `fit` gives it the
conversation in that form, and Python renders it. The renderer has to find the form by itself.
Needs what make_template_goldens.py needs.
"""
import copy
import json

from make_template_goldens import m, render

ARGUMENTS = {"place": "Zürich <b> & 'x' \"y\"", "days": [1, 2], "exact": True, "none": None, "x": 1.5, "big": 12345678901234567890123}


def call(arguments, name="get_weather", call_id="call12345"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


TEXT = json.dumps(ARGUMENTS, ensure_ascii=False)
ANSWER = m("tool", "21 °C", tool_call_id="call12345", name="get_weather")
CONVERSATIONS = {
    "plain": [m("user", "Hello"), m("assistant", "Hi."), m("user", "So?")],
    "system": [m("system", "Be brief."), m("user", "Hi")],
    "developer": [m("developer", "Be brief."), m("user", "Hi")],
    "call": [m("user", "Weather?"), m("assistant", "", tool_calls=[call(TEXT)]), ANSWER, m("assistant", "Warm."), m("user", "Thanks")],
    "call_object": [m("user", "Weather?"), m("assistant", "", tool_calls=[call(ARGUMENTS)]), ANSWER],
    "call_null": [m("user", "Weather?"), m("assistant", None, tool_calls=[call(TEXT)]), ANSWER],
    "call_absent": [m("user", "Weather?"), {"role": "assistant", "tool_calls": [call(TEXT)]}, ANSWER],
    "call_unanswered": [m("user", "Weather?"), m("assistant", None, tool_calls=[call(TEXT)]), m("user", "Well?")],
    "call_said": [m("user", "Weather?"), m("assistant", "Let me see.", tool_calls=[call(TEXT)]), ANSWER],
    "call_empty_arguments": [m("user", "Time?"), m("assistant", "", tool_calls=[call("{}", "now")]), ANSWER],
    "calls": [m("user", "Weather?"), m("assistant", "", tool_calls=[call(TEXT), call("{\"q\": \"a\"}", "find", "abcdefghi")]), ANSWER,
              m("tool", "none", tool_call_id="abcdefghi", name="find")],
    "parts": [m("user", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])],
    "parts_everywhere": [m("system", [{"type": "text", "text": "S"}]), m("user", [{"type": "text", "text": "U"}]),
                         m("assistant", [{"type": "text", "text": "A"}]), m("user", [{"type": "text", "text": "V"}])],
    "parts_of_tool": [m("user", "Weather?"), m("assistant", "", tool_calls=[call(TEXT)]),
                      {**ANSWER, "content": [{"type": "text", "text": "21"}, {"type": "text", "text": "22"}]}],
}
ROLES = ("system", "user", "assistant", "tool")


def fit(messages, needs):
    out = copy.deepcopy(messages)
    for message in out:
        role = "system" if message["role"] == "developer" else message["role"]
        if "developer" not in needs:
            message["role"] = role
        if message.get("tool_calls"):
            for tool_call in message["tool_calls"]:
                function = tool_call["function"]
                if needs.get("arguments") == "object" and isinstance(function["arguments"], str):
                    function["arguments"] = json.loads(function["arguments"])
                if needs.get("arguments") == "text" and not isinstance(function["arguments"], str):
                    function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
            given = "absent" if "content" not in message else "null" if message["content"] is None else message["content"]
            if given in ("absent", "null", "") and given in needs.get("no_content", {}):
                message["content"] = needs["no_content"][given]
        content = message.get("content")
        form = needs.get("content", {}).get(role)
        if form == "text" and isinstance(content, list):
            message["content"] = "\n".join(part["text"] for part in content)
        if form == "parts" and isinstance(content, str):
            message["content"] = [{"type": "text", "text": content}]
    return out


def mend(messages, needs):
    """What a template that refuses a history needs done to it."""
    out = copy.deepcopy(messages)
    if "no system" in needs.get("history", ()) and out[0]["role"] == "system":
        system = out.pop(0)["content"]
        texts = [c if isinstance(c, str) else "\n".join(p["text"] for p in c) for c in (system, out[0]["content"])]
        both_are_texts = isinstance(system, str) and isinstance(out[0]["content"], str)
        out[0]["content"] = ("\n\n" if both_are_texts else "\n").join(texts)
    if "one call" in needs.get("history", ()):
        split = []
        for message in out:
            calls = message.get("tool_calls", [])
            if message["role"] != "tool" or not any(len(m.get("tool_calls", [])) > 1 for m in out):
                split += [{**message, "tool_calls": [c], "content": message.get("content") if i == 0 else ""} for i, c in enumerate(calls)] or [message]
            else:  # after the call that it answers
                at = [c["id"] for m in split for c in m.get("tool_calls", [])].index(message["tool_call_id"])
                split.insert([i for i, m in enumerate(split) if m.get("tool_calls")][at] + 1, message)
        out = split
    if "alternate" in needs.get("history", ()):
        turns = []
        for message in out:
            roles = [m["role"] for m in turns if m["role"] in ("user", "assistant") and not m.get("tool_calls")]
            if message["role"] == "user" and roles and roles[-1] == "user":
                turns.append({"role": "assistant", "content": ""})
            turns.append(message)
        out = turns
    return out


def every(form):
    return {role: form for role in ROLES}


NULL_IS_EMPTY = {"null": "", "absent": ""}
FAMILIES = {
    # Hermes, Qwen 2.5: JSON in tags, the content added to.
    "hermes": ({"arguments": "object", "no_content": NULL_IS_EMPTY, "content": every("text")}, """{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content }}
        {%- for t in m.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + t.function.name + '", "arguments": ' }}{{- t.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""),
    # Llama 3.1: one bare call, contents trimmed.
    "llama31": ({"history": ("one call",), "arguments": "object", "content": every("text")}, """{{- bos_token }}
{%- for m in messages %}
    {%- if m.tool_calls is defined %}
        {%- if m.tool_calls | length != 1 %}{{- raise_exception('one call at once') }}{%- endif %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + m.tool_calls[0].function.name + '", ' }}
        {{- '"parameters": ' }}{{- m.tool_calls[0].function.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- elif m.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if m.content is mapping %}{{- m.content | tojson }}{%- else %}{{- m.content }}{%- endif %}{{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}"""),
    # Mistral: calls as one JSON list, ids of nine letters, roles that alternate.
    "mistral": ({"history": ("alternate",), "arguments": "object", "content": every("text")}, """{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{%- set ns = namespace(index=0) %}
{%- for m in rest %}
    {%- if not (m.role == 'tool' or m.tool_calls is defined) %}
        {%- if (m.role == 'user') != (ns.index % 2 == 0) %}{{- raise_exception('roles must alternate') }}{%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in rest %}
    {%- if m.role == 'user' %}
        {{- '[INST]' }}{%- if loop.last and rest | length < messages | length %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
        {{- m.content + '[/INST]' }}
    {%- elif m.tool_calls is defined %}
        {{- '[TOOL_CALLS][' }}
        {%- for t in m.tool_calls %}
            {%- if t.id | length != 9 %}{{- raise_exception('ids have nine letters') }}{%- endif %}
            {%- set out = t.function | tojson %}{{- out[:-1] + ', "id": "' + t.id + '"}' }}{{- ', ' if not loop.last }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- elif m.role == 'assistant' %}{{- m.content + eos_token }}
    {%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS]{"content": ' + m.content ~ ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"""),
    # DeepSeek R1: a text that is added to, calls only where the content is none.
    "deepseek_r1": ({"arguments": "text", "no_content": {"": None, "absent": None}, "content": every("text")}, """{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}{% elif m['role'] == 'user' %}{{ '<User>' + m['content'] }}{% elif m['role'] == 'assistant' and 'content' in m and m['content'] is none %}{% for t in m['tool_calls'] %}{{ '<calls>' + t['type'] + '<sep>' + t['function']['name'] + '\\n```json\\n' + t['function']['arguments'] + '\\n```' }}{% endfor %}{% elif m['role'] == 'assistant' %}{{ '<Assistant>' + (m['content'] or '') + '<end>' }}{% elif m['role'] == 'tool' %}{{ '<output>' + m['content'] + '</output>' }}{% endif %}{% endfor %}"""),
    # DeepSeek V3.2: reads a text by a filter that Python does not have.
    "deepseek_v32": ({"arguments": "object", "content": every("text")}, """{%- for m in messages -%}
{%- if m.role == 'tool' -%}{{- '<result>' + m.content + '</result>' -}}
{%- else -%}{{- '<' + m.role + '>' }}{{- m.content or '' }}
{%- for t in m.tool_calls or [] -%}
{%- set args = t.function.arguments -%}{%- if args is string -%}{%- set args = args | from_json -%}{%- endif -%}
{{- '<invoke name="' + t.function.name + '">' -}}
{%- for k, v in args.items() -%}{{- '<parameter name="' + k + '" string="' ~ ('true' if v is string else 'false') + '">' }}{{- v if v is string else v | tojson }}{{- '</parameter>' }}{%- endfor -%}
{{- '</invoke>' -}}
{%- endfor -%}{%- endif -%}
{%- endfor -%}"""),
    # Functionary: a text that is added to, filters over tool_calls that may be absent.
    "functionary": ({"arguments": "text", "content": every("text")}, """{%- for m in messages -%}
{%- if m.role == 'assistant' -%}<|assistant|>
{%- if m.content %}{{ '>>>all\\n' + m.content }}{% endif -%}
{%- for t in m.tool_calls | default(none) | selectattr('function') | list -%}{{ '>>>' + t.function.name + '\\n' + t.function.arguments }}{%- endfor -%}
{%- else -%}{{ '<|' + m.role + '|>' + m.content }}{%- endif -%}
{%- endfor -%}"""),
    # MiniMax: reads inside, contents as parts or as a text.
    "minimax": ({"arguments": "object", "no_content": {"null": ""}}, """{%- macro visible(content) -%}
{%- if content is string -%}{{ content }}{%- elif content is iterable and content is not mapping -%}{%- for p in content -%}{{ p.text if p is mapping else p }}{%- endfor -%}{%- else -%}{{ content }}{%- endif -%}
{%- endmacro -%}
{%- for m in messages -%}
{{ ']~b]' ~ m.role ~ '\\n' ~ visible(m.content) }}
{%- for t in m.tool_calls | selectattr('function') | map(attribute='function') -%}
<invoke name="{{ t.name }}">{% for k, v in t.arguments.items() %}<parameter name="{{ k }}">{{ v | tojson if v is not string else v }}</parameter>{% endfor %}</invoke>
{%- endfor -%}[e~[
{% endfor -%}"""),
    # Command-R: actions as a JSON list made by hand.
    "command_r": ({"arguments": "object", "no_content": {"null": ""}, "content": every("text")}, """{%- for m in messages -%}
{%- if m.tool_calls -%}
<|CHATBOT|>{{ m.content }}Action: [
{%- for t in m.tool_calls %}{"tool_name": {{ t.function.name | tojson }}, "parameters": {{ t.function.arguments | tojson(indent=4) }}}{{ ', ' if not loop.last }}{%- endfor -%}
]
{%- elif m.role == 'tool' -%}<results>{{ m.content | trim }}</results>
{%- else -%}<|{{ m.role | upper }}|>{{ m.content | trim }}
{%- endif -%}
{%- endfor -%}"""),
    # GLM: keys and values in tags, contents through a macro that takes parts.
    "glm": ({"arguments": "object", "no_content": {"null": ""}, "content": {"tool": "text"}}, """{%- macro visible(c) -%}{%- if c is string -%}{{ c }}{%- elif c is iterable and c is not mapping -%}{%- for p in c -%}{{ p.text if p is mapping and p.type == 'text' }}{%- endfor -%}{%- else -%}{{ c }}{%- endif -%}{%- endmacro -%}
[gMASK]<sop>
{%- for m in messages -%}
{%- if m.role == 'tool' -%}<|observation|><tool_response>{{ m.content }}</tool_response>
{%- else -%}<|{{ m.role }}|>
{{ visible(m.content) }}
{%- for t in m.tool_calls or [] -%}
<tool_call>{{ t.function.name }}{% set args = t.function.arguments %}{% for k, v in args.items() %}<arg_key>{{ k }}</arg_key><arg_value>{{ v | tojson if v is not string else v }}</arg_value>{% endfor %}</tool_call>
{%- endfor -%}
{%- endif -%}
{%- endfor -%}"""),
    # Kimi K2: takes both forms of everything, and has the developer role.
    "kimi": ({"developer": True}, """{%- macro body(m) -%}{%- if m.content is string -%}{{ m.content }}{%- elif m.content is not none and m.content is defined -%}{%- for p in m.content -%}{{ p.text }}{%- endfor -%}{%- endif -%}{%- endmacro -%}
{%- for m in messages -%}
<|im_{{ 'system' if m.role in ('system', 'developer') else m.role }}|>{{ m.name or m.role if m.role != 'developer' else 'developer' }}<|im_middle|>{{ body(m) }}
{%- for t in m.tool_calls or [] -%}
<|call|>{{ t.id }}<|args|>{% if t.function.arguments is string %}{{ t.function.arguments }}{% else %}{{ t.function.arguments | tojson }}{% endif %}
{%- endfor -%}<|im_end|>
{%- endfor -%}"""),
    # gpt-oss: has the developer role, reads the content for its channels.
    "gpt_oss": ({"arguments": "object", "developer": True, "no_content": NULL_IS_EMPTY, "content": every("text")}, """{%- for m in messages -%}
{%- if m.role == 'developer' or m.role == 'system' -%}{{- '<|start|>developer<|message|># Instructions\\n\\n' + m.content + '<|end|>' }}
{%- elif m.role == 'assistant' -%}
{%- if '<|channel|>analysis' in m.content -%}{{- raise_exception('analysis belongs into thinking') }}{%- endif -%}
{%- if m.tool_calls -%}{{- '<|start|>assistant to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' }}{{- m.tool_calls[0].function.arguments | tojson }}{{- '<|call|>' }}
{%- else -%}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{%- endif -%}
{%- elif m.role == 'tool' -%}{{- '<|start|>functions<|message|>' + m.content + '<|end|>' }}
{%- elif m.role == 'user' -%}{{- '<|start|>user<|message|>' + m.content + '<|end|>' }}
{%- endif -%}
{%- endfor -%}"""),
    # Granite: takes both forms of arguments and of texts.
    "granite": ({}, """{%- for m in messages %}
{%- set ns = namespace(text='') %}
{%- if m.content is string %}{%- set ns.text = m.content %}{%- elif m.content %}{%- for p in m.content %}{%- if p.type == 'text' %}{%- set ns.text = ns.text + p.text %}{%- endif %}{%- endfor %}{%- endif %}
{{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + ns.text }}
{%- for t in m.tool_calls or [] %}{{- '\\n<tool_call>{"name": "' + t.function.name + '", "arguments": ' }}{{- t.function.arguments if t.function.arguments is string else t.function.arguments | tojson }}{{- '}</tool_call>' }}{%- endfor %}
{{- '<|end_of_text|>\\n' }}
{%- endfor %}"""),
    # Gemma 2: two roles that alternate, no calls.
    "gemma2": ({"history": ("no system",), "no_content": {"null": ""}, "content": {"user": "text", "assistant": "text"}}, """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}
{{ m['content'] | trim }}<end_of_turn>
{% endfor %}"""),
    # Gemma 4: a syntax of its own for objects, a text as it is.
    "gemma4": ({"arguments": "object", "developer": True, "content": {"system": "text"}}, """{%- macro value(v) -%}{%- if v is string -%}{{ '<|"|>' + v + '<|"|>' }}{%- elif v is mapping -%}{{ '{' }}{%- for k, x in v | dictsort -%}{{ k }}:{{ value(x) }}{{ ',' if not loop.last }}{%- endfor -%}{{ '}' }}{%- elif v is none -%}null{%- elif v is boolean -%}{{ 'true' if v else 'false' }}{%- elif v is iterable -%}[{%- for x in v -%}{{ value(x) }}{{ ',' if not loop.last }}{%- endfor -%}]{%- else -%}{{ v }}{%- endif -%}{%- endmacro -%}
{{- bos_token -}}
{%- if messages[0].role in ['system', 'developer'] -%}{{- '<|turn>system\\n' + messages[0].content | trim + '<turn|>' -}}{%- set messages = messages[1:] -%}{%- endif -%}
{%- for m in messages -%}
<|turn>{{ 'model' if m.role == 'assistant' else m.role }}
{%- for t in m.tool_calls or [] -%}<|tool_call>call:{{ t.function.name }}{% if t.function.arguments is mapping %}{{ value(t.function.arguments) }}{% else %}{{ '{' + t.function.arguments + '}' }}{% endif %}<tool_call|>{%- endfor -%}
{%- if m.content is string -%}{{ m.content | trim }}{%- elif m.content -%}{%- for p in m.content -%}{{ p.text | trim }}{%- endfor -%}{%- endif -%}<turn|>
{%- endfor -%}"""),
    # Qwen3-Coder: parameters in tags, by the filter items.
    "qwen_coder": ({"arguments": "object", "content": every("text")}, """{%- for m in messages %}
{{- '<|im_start|>' + m.role }}
{%- if m.content is string and m.content | trim | length > 0 %}{{- '\\n' + m.content | trim + '\\n' }}{%- elif m.content is not string and m.content %}{{- m.content | string }}{%- endif %}
{%- if m.tool_calls is defined and m.tool_calls is iterable and m.tool_calls | length > 0 %}
{%- for t in m.tool_calls %}
{{- '\\n<tool_call>\\n<function=' + t.function.name + '>\\n' }}
{%- if t.function.arguments is defined %}{%- for k, v in t.function.arguments | items %}{{- '<parameter=' + k + '>\\n' }}{{- v | tojson | safe if v is mapping or (v is sequence and v is not string) else v | string }}{{- '\\n</parameter>\\n' }}{%- endfor %}{%- endif %}
{{- '</function>\\n</tool_call>' }}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}"""),
    # A vision model's: parts and nothing else.
    "parts_only": ({"no_content": {"null": ""}, "content": every("parts")}, """{% for m in messages %}{{ m.role | capitalize }}:{% for p in m.content %}{% if p.type == 'image' %}<image>{% elif p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% for t in m.tool_calls or [] %}{{ t.function.name }}({{ t.function.arguments if t.function.arguments is string else t.function.arguments | tojson }}){% endfor %}<end>
{% endfor %}"""),
}


def main():
    for name, messages in CONVERSATIONS.items():
        print(json.dumps({"conversation": name, "messages": json.dumps(messages, ensure_ascii=False)}, ensure_ascii=False))
    for name, (needs, template) in FAMILIES.items():
        def text(messages):
            return render(template, {"messages": messages, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"})
        given = {c: text(messages) for c, messages in CONVERSATIONS.items()}
        if "from_json" in template:  # where ours goes further than Python
            given = {c: t for c, t in given.items() if t is not None}
        fitted = {c: text(mend(fit(messages, needs), needs)) for c, messages in CONVERSATIONS.items()}
        print(json.dumps({"family": name, "template": template, "given": given, "fitted": fitted}, ensure_ascii=False))


if __name__ == "__main__":
    main()
