"""What openapi.json promises: that it knows every parameter of the official client, and that a trace fits its schema and is
enough to make each draw again. contract_test.py BUILD_DIR."""
import json
import math
import subprocess
import tempfile
import urllib.request

import tiny_model
from harness import HERE, IBID, Server, main, venv

ASK = {"messages": [{"role": "user", "content": "Say something."}], "max_tokens": 60, "ignore_eos": True}
# Run by the venv's Python: the names of the client's parameters, by endpoint, with those of stream_options and messages.
NAMES = """
import json, typing
from openai.types import chat, completion_create_params as text
from openai.types.chat import completion_create_params as chats
from openai.types.chat.chat_completion_stream_options_param import ChatCompletionStreamOptionsParam as options
def names(module):
    kinds = [k for n, k in vars(module).items() if n.startswith("CompletionCreateParams") and hasattr(k, "__annotations__")]
    return sorted({name for kind in kinds for name in kind.__annotations__})
roles = [typing.get_args(typing.get_type_hints(kind)["role"])[0] for kind in typing.get_args(chat.ChatCompletionMessageParam)]
print(json.dumps({"ChatRequest": names(chats), "CompletionRequest": names(text), "options": sorted(options.__annotations__),
                  "roles": roles}))
"""
# Run by the venv's Python: validates each of the documents of standard input.
VALIDATE = """
import json, sys
from jsonschema import Draft202012Validator
given = json.load(sys.stdin)
for name, documents in given["documents"].items():
    schema = {"$ref": "#/components/schemas/" + name, "components": given["components"]}
    Draft202012Validator.check_schema(schema)
    for document in documents:
        Draft202012Validator(schema).validate(document)
"""


def python(program, given=None):
    programs = venv("venv-conformance", *(HERE / "requirements.txt").read_text().split())
    done = subprocess.run([programs / "python", "-c", program], input=json.dumps(given), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def api():
    return json.loads(SERVER.get("/openapi.json"))


def test_every_parameter_of_the_official_client_is_known():
    names, schemas = json.loads(python(NAMES)), api()["components"]["schemas"]
    for schema in ("ChatRequest", "CompletionRequest"):
        unknown = set(names[schema]) - set(schemas[schema]["properties"])
        assert len(names[schema]) > 15 and not unknown, f"{schema} has no {sorted(unknown)}"
    options = schemas["ChatRequest"]["properties"]["stream_options"]["anyOf"][0]["properties"]
    assert set(names["options"]) <= set(options), names["options"]
    # "function" was the role of a tool's answer before there were tools.
    assert set(names["roles"]) - {"function"} == set(schemas["Message"]["properties"]["role"]["enum"]), names["roles"]
    return f"{len(names['ChatRequest'])} of chat, {len(names['CompletionRequest'])} of completions"


def traced(path="/v1/chat/completions", **more):
    ask = {**ASK, "trace": True, "seed": 9, **more}
    if path == "/v1/completions":
        ask["prompt"] = "Say"
        del ask["messages"]
    return SERVER.post(path, ask)


def streamed(**more):
    """The events of a traced stream."""
    request = urllib.request.Request(SERVER.url + "/v1/chat/completions",
                                     json.dumps({**ASK, "trace": True, "seed": 9, "stream": True, **more}).encode())
    with urllib.request.urlopen(request, timeout=600) as answer:
        lines = answer.read().decode().split("\n\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_traces_fit_their_schema():
    answers = [traced(temperature=1, top_p=1), traced(), traced("/v1/completions", n=2), traced(temperature=0), traced(mirostat=1), traced(seed=2**63 - 1, n=2),
               traced(temperature=0.6, top_k=40, top_p=0.9, dry_multiplier=0.8, bad_words=["a"], logit_bias={"5": 2, "x": False},
                      allowed_token_ids=list(range(256)))]
    records = [record for answer in answers for choice in answer["choices"] for record in choice["trace"]]
    headers = [answer["trace_header"] for answer in answers]
    assert len(records) == 60 * sum(len(answer["choices"]) for answer in answers)
    events = streamed(n=2)
    headers += [event["trace_header"] for event in events if "trace_header" in event]
    assert len(headers) == len(answers) + 1
    pieces = [record for event in events for choice in event["choices"] for record in choice["trace"] if choice["index"] == 1]
    assert pieces == traced(n=2)["choices"][1]["trace"]
    python(VALIDATE, {"components": api()["components"], "documents": {"TraceRecord": records + pieces, "TraceHeader": headers}})
    # A validator that lets anything pass would prove nothing.
    for wrong in ({**records[0], "more": 1}, {**records[0], "support": 0}, {k: v for k, v in records[0].items() if k != "seed"}):
        try:
            python(VALIDATE, {"components": api()["components"], "documents": {"TraceRecord": [wrong]}})
        except AssertionError as error:
            assert "ValidationError" in str(error)
        else:
            raise AssertionError(f"{wrong} fits the schema")
    return f"{len(records) + len(pieces)} records"


def test_the_order_of_a_trace_is_the_one_that_inspect_prints():
    printed = subprocess.run([IBID, "inspect", "--samplers"], capture_output=True, text=True, timeout=600, check=True).stdout
    assert traced()["trace_header"]["stages"] == printed.split()


def philox(key, counter):
    """Philox4x32-10 (Salmon et al. 2011), by its definition."""
    (k0, k1), (a, b, c, d) = key, counter
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k0, q & 0xFFFFFFFF, (p >> 32) ^ d ^ k1, p & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def winner(distribution, seed, position):
    """The token whose exponential time -log(1 - v) / p is the shortest."""
    def time(token):
        word = philox((seed & 0xFFFFFFFF, seed >> 32), (position, 0, token // 4, 0))[token % 4]
        return -math.log1p(-(word + 0.5) * 2.0**-32) / math.exp(distribution[token])
    return min(distribution, key=time)


def test_draws_are_made_again_from_the_trace_alone():
    assert philox((0, 0), (0, 0, 0, 0))[0] == 0x6627E8D5
    answer = traced(top_k=12, top_p=1, temperature=0.8, logprobs=True, top_logprobs=20, processed_logprobs=True, return_token_ids=True)
    choice = answer["choices"][0]
    n_off = 0
    for entry, record in zip(choice["logprobs"]["content"], choice["trace"], strict=True):
        distribution = {other["id"]: other["processed_logprob"] for other in entry["top_logprobs"] if other["processed_logprob"] > -9999}
        assert len(distribution) == record["support"] == 12, (distribution, record)
        assert abs(sum(map(math.exp, distribution.values())) - 1) < 1e-5, distribution
        assert winner(distribution, record["seed"], record["position"]) == record["token"] == entry["id"]
        n_off += winner(distribution, record["seed"], record["position"] + 1) != record["token"]
    assert n_off > 20, n_off
    return f"{len(choice['trace'])} draws; with another counter {n_off} differ"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with Server([IBID, "serve", tiny_model.make(folder + "/tiny"), "--port", 0]) as SERVER:
            main(test_every_parameter_of_the_official_client_is_known, test_traces_fit_their_schema,
                 test_the_order_of_a_trace_is_the_one_that_inspect_prints, test_draws_are_made_again_from_the_trace_alone)
