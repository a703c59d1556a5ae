"""The official OpenAI client against a running server: openai_client_test.py URL. Checks nothing about the model's answers; only
that each call means what OpenAI's API defines, and that ibid keeps its promises over it. Prints one line a test."""
import json
import sys
import time
import urllib.request

import openai
from openai import OpenAI
from openapi_spec_validator import validate

URL = sys.argv[1].rstrip("/")
client = OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=120)
MODEL = client.models.list().data[0].id
ASK = [{"role": "system", "content": "Answer shortly."}, {"role": "user", "content": "Say something about the sea."}]


def get(path):
    with urllib.request.urlopen(URL + path, timeout=600) as answer:
        return json.load(answer)


def chat(**more):
    return client.chat.completions.create(**{"model": MODEL, "messages": ASK, "max_tokens": 24, **more})


def complete(prompt, **more):
    return client.completions.create(**{"model": MODEL, "prompt": prompt, "max_tokens": 16, **more})


def joined(stream):
    texts, last, usage = {}, {}, None
    for event in stream:
        usage = event.usage or usage
        for choice in event.choices:
            piece = choice.delta.content if hasattr(choice, "delta") else choice.text
            texts[choice.index] = texts.get(choice.index, "") + (piece or "")
            last[choice.index] = choice.finish_reason or last.get(choice.index)
    return texts, last, usage


def test_models():
    model = client.models.retrieve(MODEL)
    assert model.id == MODEL and model.object == "model" and model.max_model_len > 0


def test_a_model_that_is_served_alone_answers_to_any_name():
    assert chat(model="gpt-9", seed=5).model == MODEL


def test_a_stream_ends_with_its_reason_after_the_last_text():
    events = [event.choices[0] for event in chat(seed=5, stream=True) if event.choices]
    assert events[0].delta.role == "assistant" and not any(e.finish_reason for e in events[:-1])
    assert events[-1].finish_reason and not events[-1].delta.content and not events[-1].delta.role
    texts = [event.choices[0] for event in complete("The sea", seed=5, stream=True)]
    assert texts[-1].finish_reason and texts[-1].text == "" and not any(e.finish_reason for e in texts[:-1])


def test_the_same_request_gives_the_same_bytes_streamed_or_not():
    whole = chat(seed=5)
    texts, last, usage = joined(chat(seed=5, stream=True, stream_options={"include_usage": True}))
    assert texts[0] == whole.choices[0].message.content, (texts, whole)
    assert last[0] == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_seed_that_the_server_chose_gives_its_answer_again():
    first = chat()
    assert chat(seed=first.seed).choices[0].message.content == first.choices[0].message.content


def test_choices_are_the_request_with_the_next_seeds():
    many = chat(n=3, seed=11)
    for choice in many.choices:
        assert choice.message.content == chat(seed=11 + choice.index).choices[0].message.content
    texts, _, _ = joined(chat(n=3, seed=11, stream=True))
    assert [texts[i] for i in range(3)] == [c.message.content for c in many.choices]


def test_completions_take_texts_ids_and_lists_of_either():
    ids = json.load(urllib.request.urlopen(urllib.request.Request(URL + "/tokenize", json.dumps({"prompt": "The sea"}).encode()), timeout=600))["tokens"]
    by_text, by_ids = complete("The sea", seed=3), complete(ids, seed=3)
    assert by_text.choices[0].text == by_ids.choices[0].text
    both = complete(["The sea", "A hill"], seed=3)
    assert both.choices[0].text == by_text.choices[0].text and len(both.choices) == 2
    assert both.usage.prompt_tokens > by_text.usage.prompt_tokens
    lists = complete([ids, ids[:1]], seed=3)
    assert lists.choices[0].text == by_text.choices[0].text and lists.usage.prompt_tokens == len(ids) + 1
    mixed = client.post("/completions", body={"prompt": ["A hill", ids], "seed": 3, "max_tokens": 16}, cast_to=dict)
    assert [c["text"] for c in mixed["choices"]] == [both.choices[1].text, by_text.choices[0].text]
    assert complete("The sea", seed=3, echo=True).choices[0].text == "The sea" + by_text.choices[0].text


def test_stop_ends_before_its_text():
    text = chat(seed=5).choices[0].message.content
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    cut = chat(seed=5, stop=[stop])
    assert cut.choices[0].message.content == text[: text.index(stop)] and cut.choices[0].finish_reason == "stop"


def test_logprobs_of_chat_and_completions():
    choice = chat(seed=5, logprobs=True, top_logprobs=3, max_tokens=6).choices[0]
    content = choice.logprobs.content
    assert 0 < len(content) <= 6
    for entry in content:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[-1].logprob
    told = bytes(b for entry in content for b in entry.bytes or []).decode("utf-8", "replace")
    assert told.startswith(choice.message.content), (told, choice.message.content)
    scored = complete("The sea is", logprobs=2, echo=True, max_tokens=2, seed=1).choices[0].logprobs
    assert scored.token_logprobs[0] is None and all(lp <= 0 for lp in scored.token_logprobs[1:])
    assert len(scored.tokens) == len(scored.token_logprobs) == len(scored.top_logprobs) == len(scored.text_offset)


def test_max_completion_tokens_and_finish_reason():
    short = client.chat.completions.create(model=MODEL, messages=ASK, max_completion_tokens=3, extra_body={"ignore_eos": True})
    assert short.usage.completion_tokens == 3 and short.choices[0].finish_reason == "length"


def test_content_in_parts():
    parts = [{"role": "user", "content": [{"type": "text", "text": "Say something"}, {"type": "text", "text": "about the sea."}]}]
    plain = [{"role": "user", "content": "Say something\nabout the sea."}]
    assert chat(messages=parts, seed=2).choices[0].message.content == chat(messages=plain, seed=2).choices[0].message.content


def test_every_role_is_read():
    asked = [{"role": "developer", "content": "Answer shortly."}, {"role": "user", "content": [{"type": "text", "text": "Is it 7?"}]},
             {"role": "assistant", "content": "I look."}, {"role": "tool", "tool_call_id": "1", "content": "7"},
             {"role": "user", "content": "So?"}]
    as_system = [{**asked[0], "role": "system"}, *asked[1:]]
    answer = chat(messages=asked, seed=4)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == chat(messages=as_system, seed=4).choices[0].message.content


def test_a_text_is_scored_without_an_answer():
    scored = complete("The sea is wide", echo=True, logprobs=1, max_tokens=0).choices[0]
    assert scored.text == "The sea is wide" and scored.finish_reason == "length"
    logprobs = scored.logprobs
    assert logprobs.token_logprobs[0] is None and "".join(logprobs.tokens).endswith("The sea is wide")
    for chosen, logprob, top in zip(logprobs.tokens[1:], logprobs.token_logprobs[1:], logprobs.top_logprobs[1:], strict=True):
        assert top[chosen] == logprob <= max(top.values())


def test_fields_that_change_nothing_are_taken_and_those_that_would_are_named():
    plain = chat(seed=6).choices[0].message.content
    for more in ({"user": "me"}, {"metadata": {"k": "v"}}, {"safety_identifier": "x"}, {"prompt_cache_key": "x"}, {"store": True},
                 {"service_tier": "flex"}, {"verbosity": "low"}, {"prediction": {"type": "content", "content": "x"}}, {"response_format": {"type": "text"}}, {"modalities": ["text"]}, {"tool_choice": "none"},
                 {"extra_body": {"a_name_of_tomorrow": 1, "use_beam_search": False, "spaces_between_special_tokens": True}}):
        assert chat(seed=6, **more).choices[0].message.content == plain, more
    verified = chat(seed=6, extra_body={"speculation": {"verifier": "rejection"}})
    assert verified.model_extra["exact"] == "distribution" and "exact" not in chat(seed=6).model_extra
    assert chat(seed=6, extra_body={"speculation": {"verifier": "typical"}}).model_extra["exact"] is False
    for more in ({"response_format": {"type": "yaml"}}, {"functions": [{"name": "f"}]}, {"audio": {"voice": "x", "format": "wav"}},
                 {"modalities": ["audio"]}, {"reasoning_effort": "huge"}, {"web_search_options": {}}, {"tool_choice": "required"}):
        refused(openai.BadRequestError, next(iter(more)), lambda: chat(**more))
    for more in ({"best_of": 3, "n": 4}, {"suffix": "x"}):
        refused(openai.BadRequestError, next(iter(more)), lambda: complete("x", **more))
    for name, value in {"guided_json": {"type": "objekt"}, "samplers": 7, "grammar": "root ::= x", "detokenize": False}.items():
        refused(openai.BadRequestError, name, lambda: chat(extra_body={name: value}))


def refused(error, param, call):
    try:
        call()
    except error as e:
        assert e.param == param, (e.param, param)
        assert e.response.headers["x-request-id"]
    else:
        raise AssertionError(f"no error for {param}")


def test_errors_are_those_of_the_client():
    for error, param, call in [
        (openai.BadRequestError, "temperature", lambda: chat(temperature=-1)),
        (openai.BadRequestError, "tools[1]", lambda: chat(tools=[{"type": "function", "function": {"name": "f"}}, {"function": {"name": "g"}}])),
        (openai.BadRequestError, "messages", lambda: chat(messages=[])),
        (openai.BadRequestError, "prompt", lambda: complete([10**9])),
        (openai.BadRequestError, "top_logprobs", lambda: chat(logprobs=True, top_logprobs=21)),
    ]:
        refused(error, param, call)


def test_a_client_that_goes_away_leaves_nothing_behind():
    stream = chat(stream=True, max_tokens=1000, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    impatient = OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=0.3)
    try:
        impatient.chat.completions.create(model=MODEL, messages=ASK, max_tokens=1000, extra_body={"ignore_eos": True})
    except openai.APITimeoutError:
        pass
    for _ in range(300):
        engine = get("/engine")
        if engine["running"] == 0 and engine["waiting"] == 0 and engine["requests_total"] == 0:
            return
        time.sleep(0.02)
    raise AssertionError(engine)


def test_openapi_is_valid():
    validate(get("/openapi.json"))


def test_embeddings_in_either_form_alone_and_among_others():
    texts = ["The cat sat on the mat.", "A feline rested.", "Stock markets fell today."]
    many = client.embeddings.create(model=MODEL, input=texts)
    vectors = [item.embedding for item in many.data]  # which the client asks for in base64
    assert [item.index for item in many.data] == [0, 1, 2] and many.usage.total_tokens == many.usage.prompt_tokens > 0
    assert client.embeddings.create(model=MODEL, input=texts[1]).data[0].embedding == vectors[1]
    plain = client.embeddings.create(model=MODEL, input=texts[1], encoding_format="float").data[0].embedding
    assert max(abs(a - b) for a, b in zip(plain, vectors[1])) < 1e-7
    assert all(abs(sum(x * x for x in v) - 1) < 1e-5 for v in vectors)


def test_a_batch_from_upload_to_answers():
    line = {"method": "POST", "url": "/v1/chat/completions", "body": {"messages": ASK, "max_tokens": 4, "seed": 7}}
    lines = "\n".join(json.dumps({**line, "custom_id": f"q{i}"}) for i in range(5))
    try:
        file = client.files.create(file=("in.jsonl", lines.encode()), purpose="batch")
    except openai.NotFoundError:
        return  # a server without a folder for files
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    while batch.status not in ("completed", "failed"):
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed" and batch.request_counts.completed == 5
    answers = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    alone = chat(max_tokens=4, seed=7).choices[0].message.content
    assert sorted(a["custom_id"] for a in answers) == [f"q{i}" for i in range(5)]
    assert all(a["response"]["body"]["choices"][0]["message"]["content"] == alone for a in answers)
    assert client.files.delete(file.id).deleted and batch.id in [b.id for b in client.batches.list().data]


failures = 0
for name, test in list(globals().items()):
    if not name.startswith("test_"):
        continue
    try:
        test()
        print("ok    ", name[5:].replace("_", " "))
    except Exception as error:  # a test that fails must not hide the others
        failures += 1
        print("FAILED", name[5:].replace("_", " "), "--", type(error).__name__, str(error)[:600])
sys.exit(1 if failures else 0)
