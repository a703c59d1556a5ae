"""What Open Responses (its specification of 2026-01) requires of a response and of a stream's events, as a check in the standard
library: check_response(value) and check_event(value) raise AssertionError with the place. A member of every object is
required unless its name ends with "?"; what is there besides is not looked at."""

NULL = type(None)
TEXT, INTEGER, NUMBER, BOOLEAN = (str,), (int,), (int, float), (bool,)
OR_NULL = lambda *kinds: (*kinds, NULL)  # noqa: E731

LOGPROB = {"token": TEXT, "logprob": NUMBER, "bytes": [INTEGER], "top_logprobs": [{"token": TEXT, "logprob": NUMBER, "bytes": [INTEGER]}]}
OUTPUT_TEXT = {"type": {"output_text"}, "text": TEXT, "annotations": [{}], "logprobs": [LOGPROB]}
REASONING_TEXT = {"type": {"reasoning_text"}, "text": TEXT}
STATUS = {"in_progress", "completed", "incomplete"}
ITEMS = {
    "message": {"id": TEXT, "status": STATUS, "role": {"assistant"}, "content": [OUTPUT_TEXT]},
    "function_call": {"id": TEXT, "call_id": TEXT, "name": TEXT, "arguments": TEXT, "status": STATUS},
    "reasoning": {"id": TEXT, "content?": [REASONING_TEXT], "summary": [{}], "encrypted_content?": TEXT},
}
TOOL = {"type": {"function"}, "name": TEXT, "description": OR_NULL(str), "parameters": OR_NULL(dict), "strict": OR_NULL(bool)}
FORMATS = {"text": {}, "json_object": {}, "json_schema": {"name": TEXT, "description": OR_NULL(str), "strict": BOOLEAN}}
USAGE = {"input_tokens": INTEGER, "output_tokens": INTEGER, "total_tokens": INTEGER, "input_tokens_details": {"cached_tokens": INTEGER},
         "output_tokens_details": {"reasoning_tokens": INTEGER}}
RESPONSE = {
    "id": TEXT, "object": {"response"}, "created_at": INTEGER, "completed_at": OR_NULL(int), "status": TEXT, "model": TEXT,
    "previous_response_id": OR_NULL(str), "instructions": OR_NULL(str), "truncation": {"auto", "disabled"}, "parallel_tool_calls": BOOLEAN,
    "top_p": NUMBER, "temperature": NUMBER, "presence_penalty": NUMBER, "frequency_penalty": NUMBER, "top_logprobs": INTEGER,
    "max_output_tokens": OR_NULL(int), "max_tool_calls": OR_NULL(int), "store": BOOLEAN, "background": BOOLEAN, "service_tier": TEXT,
    "metadata": (dict,), "safety_identifier": OR_NULL(str), "prompt_cache_key": OR_NULL(str),
}  # and what check_response looks at
PLACE = {"output_index": INTEGER}
PART = {**PLACE, "item_id": TEXT, "content_index": INTEGER}
EVENTS = {
    "response.created": {}, "response.in_progress": {}, "response.completed": {}, "response.incomplete": {}, "response.failed": {},
    "response.output_item.added": PLACE, "response.output_item.done": PLACE,
    "response.content_part.added": PART, "response.content_part.done": PART,
    "response.output_text.delta": {**PART, "delta": TEXT, "logprobs": [LOGPROB]},
    "response.output_text.done": {**PART, "text": TEXT, "logprobs": [LOGPROB]},
    "response.function_call_arguments.delta": {**PLACE, "item_id": TEXT, "delta": TEXT},
    "response.function_call_arguments.done": {**PLACE, "item_id": TEXT, "arguments": TEXT},
    # OpenAI's names; those of Open Responses are response.reasoning.delta and .done, with the same members
    "response.reasoning_text.delta": {**PART, "delta": TEXT}, "response.reasoning_text.done": {**PART, "text": TEXT},
}


def check(value, wanted, where):
    if isinstance(wanted, dict):
        assert isinstance(value, dict), f"{where} is no object"
        for name, what in wanted.items():
            own = name.rstrip("?")
            assert own in value or name.endswith("?"), f"{where}.{own} is missing"
            if own in value:
                check(value[own], what, f"{where}.{own}")
    elif isinstance(wanted, list):
        assert isinstance(value, list), f"{where} is no list"
        for i, one in enumerate(value):
            check(one, wanted[0], f"{where}[{i}]")
    elif isinstance(wanted, set):
        assert value in wanted, f"{where} is {value!r}"
    else:
        is_kind = isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))
        assert is_kind, f"{where} is {value!r}"


def check_item(item, where):
    check(item, ITEMS[item["type"]], where)


def check_response(response, where="response"):
    check(response, RESPONSE, where)
    for i, item in enumerate(response["output"]):
        check_item(item, f"{where}.output[{i}]")
    check(response["tools"], [TOOL], f"{where}.tools")
    check(response["text"]["format"], FORMATS[response["text"]["format"]["type"]], f"{where}.text.format")
    choice = response["tool_choice"]
    assert choice in ("none", "auto", "required") or choice["type"] in ("function", "allowed_tools"), f"{where}.tool_choice is {choice!r}"
    for name, what in (("incomplete_details", {"reason": TEXT}), ("error", {"code": TEXT, "message": TEXT}), ("usage", USAGE),
                       ("reasoning", {"effort": OR_NULL(str), "summary": OR_NULL(str)})):
        assert name in response, f"{where}.{name} is missing"
        if response[name] is not None:
            check(response[name], what, f"{where}.{name}")


def check_event(event):
    where = event["type"]
    check(event, {"sequence_number": INTEGER, **EVENTS[event["type"]]}, where)
    if "response" in event:
        check_response(event["response"], where + ".response")
    if "item" in event:
        check_item(event["item"], where + ".item")
    if "part" in event:
        check(event["part"], OUTPUT_TEXT if event["part"]["type"] == "output_text" else REASONING_TEXT, where + ".part")
