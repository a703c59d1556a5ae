"""Anthropic's, OpenAI's (Responses) and Ollama's own clients against the scripted server: apis_client_test.py URL. The script
answers "tools" with reasoning, a text and two calls, and "plain" with a text. Prints one line a test."""
import json
import sys
import time
import urllib.error
import urllib.request

import anthropic
import ollama
import openai
import open_responses

URL = sys.argv[1].rstrip("/")
claude = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=600)
gpt = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=600)
llama = ollama.Client(host=URL)
REASONING, TEXT = "Where is it?", "I look it up."
CALLS = [("get_weather", {"place": "Zürich"}), ("now", {})]
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}}
CLAUDE_TOOLS = [{"name": "get_weather", "input_schema": SCHEMA}, {"name": "now", "input_schema": {"type": "object"}}]
GPT_TOOLS = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}, {"type": "function", "name": "now", "parameters": {}, "strict": False}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}, {"type": "function", "function": {"name": "now"}}]


def ask(what="tools"):
    return [{"role": "user", "content": what}]


def check_message(message):
    kinds = [block.type for block in message.content]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"], kinds
    assert message.content[0].thinking == REASONING and message.content[1].text == TEXT
    assert [(b.name, b.input) for b in message.content[2:]] == CALLS and message.stop_reason == "tool_use"
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0


def test_messages_whole_and_streamed():
    check_message(claude.messages.create(model="m", max_tokens=2000, messages=ask(), tools=CLAUDE_TOOLS))
    with claude.messages.stream(model="m", max_tokens=2000, messages=ask(), tools=CLAUDE_TOOLS) as stream:
        text = "".join(stream.text_stream)
        check_message(stream.get_final_message())
    assert text == TEXT


def test_messages_go_round_with_results():
    first = claude.messages.create(model="m", max_tokens=2000, messages=ask(), tools=CLAUDE_TOOLS)
    results = [{"type": "tool_result", "tool_use_id": b.id, "content": "21 °C"} for b in first.content if b.type == "tool_use"]
    second = claude.messages.create(model="m", max_tokens=20, tools=CLAUDE_TOOLS, system=[{"type": "text", "text": "Be short."}],
                                    messages=[*ask(), {"role": "assistant", "content": first.content}, {"role": "user", "content": results}])
    assert second.type == "message" and second.stop_reason in ("end_turn", "max_tokens")
    assert claude.messages.count_tokens(model="m", messages=ask("abc")).input_tokens > 3
    stopped = claude.messages.create(model="m", max_tokens=200, messages=ask("plain"), stop_sequences=["sea"])
    assert (stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text) == ("stop_sequence", "sea", "The ")


def test_messages_refusals_are_the_clients_errors():
    for error, more in [(anthropic.BadRequestError, {"max_tokens": 0}), (anthropic.BadRequestError, {"extra_body": {"temperature": -1}}),
                        (anthropic.BadRequestError, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]})]:
        try:
            claude.messages.create(**{"model": "m", "max_tokens": 5, "messages": ask(), **more})
        except error as e:
            assert e.body["type"] == "error" and e.body["error"]["type"] == "invalid_request_error", e.body
        else:
            raise AssertionError(more)


def check_response(response):
    kinds = [item.type for item in response.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"], kinds
    assert response.output_text == TEXT and response.output[0].content[0].text == REASONING and response.status == "completed"
    assert [(i.name, json.loads(i.arguments)) for i in response.output[2:]] == CALLS


def test_responses_whole_and_streamed():
    check_response(gpt.responses.create(model="m", input="tools", tools=GPT_TOOLS))
    with gpt.responses.stream(model="m", input="tools", tools=GPT_TOOLS) as stream:
        numbers = [event.sequence_number for event in stream]
        check_response(stream.get_final_response())
    assert numbers == list(range(len(numbers)))


def test_responses_are_kept_and_gone_on_from():
    first = gpt.responses.create(model="m", input="plain", metadata={"k": "v"})
    again = gpt.responses.retrieve(first.id)
    assert again.output_text == first.output_text == "The sea is wide." and again.metadata == {"k": "v"}
    assert gpt.responses.input_items.list(first.id).data[0].content[0].text == "plain"
    second = gpt.responses.create(model="m", input="plain", previous_response_id=first.id, max_output_tokens=5)
    assert second.usage.input_tokens > first.usage.input_tokens and second.previous_response_id == first.id
    assert second.status == "incomplete" and second.incomplete_details.reason == "max_output_tokens"
    gpt.responses.delete(first.id)
    for call in (lambda: gpt.responses.retrieve(first.id), lambda: gpt.responses.cancel(first.id)):
        try:
            call()
        except openai.NotFoundError:
            continue
        raise AssertionError("it is still there")


def post_response(**body):
    """The raw answer, or the raw events, of a request that is not checked on its way."""
    request = urllib.request.Request(URL + "/v1/responses", json.dumps({"model": "m", **body}).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        if not body.get("stream"):
            return json.load(answer)
        lines = answer.read().decode().split("\n")
        assert [line for line in lines if line.startswith("data:")][-1] == "data: [DONE]"
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_responses_are_open_responses():
    """Its compliance cases but for the picture, which a model without a tower refuses: a text, a system prompt, several turns, tools, streams."""
    one = [{"type": "message", "role": "user", "content": "plain"}]
    turns = [{"type": "message", "role": "user", "content": "My name is Alice."},
             {"type": "message", "role": "assistant", "content": "Hello Alice!"}, *one]
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    for body in ({"input": one}, {"input": [{"type": "message", "role": "system", "content": "Be a pirate."}, *one]}, {"input": turns},
                 {"input": one, "reasoning": {"effort": "low"}, "text": {"format": schema, "verbosity": "low"}, "metadata": {"a": "b"}},
                 {"input": one, "top_logprobs": 2, "include": ["message.output_text.logprobs"]}):
        response = post_response(**body)
        open_responses.check_response(response)
        assert response["status"] == "completed" and response["output"][0]["content"][0]["text"] == "The sea is wide.", response
    tools = [{"type": "function", "name": "get_weather", "description": "d", "parameters": SCHEMA}, {"type": "function", "name": "now"}]
    response = post_response(input=[{"type": "message", "role": "user", "content": "tools"}], tools=tools)
    open_responses.check_response(response)
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call", "function_call"]
    for body in ({"input": one}, {"input": "tools", "tools": tools}, {"input": one, "max_output_tokens": 3}):
        events = post_response(stream=True, **body)
        for i, event in enumerate(events):
            open_responses.check_event(event)
            assert event["sequence_number"] == i, event
        kinds = [event["type"] for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-1] == ("response.incomplete" if "max_output_tokens" in body else "response.completed")
        if "tools" in body:
            added = [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"]
            assert added.count("function_call") == 2 and "response.function_call_arguments.delta" in kinds
            assert kinds.count("response.function_call_arguments.done") == 2
    try:
        post_response(input=[{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}])
        raise AssertionError("a picture is no text")
    except urllib.error.HTTPError as error:
        assert error.code == 400 and "reads no pictures" in error.read().decode()


def test_chat_tools_and_parse():
    whole = gpt.chat.completions.create(model="m", messages=ask(), tools=CHAT_TOOLS).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content == TEXT and whole.message.reasoning_content == REASONING
    assert [(c.function.name, json.loads(c.function.arguments)) for c in whole.message.tool_calls] == CALLS
    with gpt.chat.completions.stream(model="m", messages=ask(), tools=CHAT_TOOLS) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    assert final.message.content == TEXT and [c.function.name for c in final.message.tool_calls] == [name for name, _ in CALLS]


def check_ollama(message):
    assert message.content == TEXT and message.thinking == REASONING
    assert [(c.function.name, dict(c.function.arguments)) for c in message.tool_calls] == CALLS


def test_ollama():
    whole = llama.chat(model="m", messages=ask(), tools=CHAT_TOOLS)
    check_ollama(whole.message)
    assert whole.done and whole.done_reason == "stop" and whole.eval_count > 0
    parts = list(llama.chat(model="m", messages=ask(), tools=CHAT_TOOLS, stream=True))
    assert "".join(p.message.content or "" for p in parts) == TEXT and "".join(p.message.thinking or "" for p in parts) == REASONING
    assert [c.function.name for p in parts for c in p.message.tool_calls or []] == [name for name, _ in CALLS]
    assert "".join(p.response for p in llama.generate(model="m", prompt="plain", stream=True)) == "The sea is wide."
    assert llama.generate(model="m", prompt="plain", options={"num_predict": 3}).response == "The"
    assert llama.list().models[0].model and llama.ps().models[0].model and "tools" in llama.show("m").capabilities
    try:
        llama.chat(model="m", messages=ask(), options={"num_ctx": 10**7})
    except ollama.ResponseError as e:
        assert e.status_code == 400 and "num_ctx" in e.error
    else:
        raise AssertionError("no error")


def test_ollamas_embeddings():
    many = llama.embed(model="m", input=["hey", "a"])
    assert len(many.embeddings) == 2 and many.prompt_eval_count == 4
    assert all(abs(sum(x * x for x in v) - 1) < 1e-5 for v in many.embeddings)
    assert len(llama.embeddings(model="m", prompt="hey").embedding) == len(many.embeddings[0])


failed = 0
for name, test in [(n, f) for n, f in list(globals().items()) if n.startswith("test_")]:
    begin = time.monotonic()
    try:
        test()
        print(f"ok      {name[5:].replace('_', ' ')} ({time.monotonic() - begin:.1f} s)", flush=True)
    except Exception as e:  # a test that fails must not hide the others
        failed += 1
        print(f"FAILED  {name[5:].replace('_', ' ')}: {type(e).__name__}: {str(e)[:500]}", flush=True)
sys.exit(failed > 0)
