"""Clients see the same bytes from a server with drafts as from one without, except for the reports about drafts.
speculation_test.py BUILD_DIR: a tiny model; speculation_default_test.py: the default one, with ibid's own head."""
import json
import pathlib
import re
import tempfile
import urllib.error

import tiny_model
from harness import IBID, Server, main

WORDS = "the cat sat on the mat and the dog sat on the cat and the cat sat on the dog "
# Of each answer: what its clock, its name and the load beside it say.
VOLATILE = {"id", "created", "timings", "x_timing"}
ASKS = {
    "greedy": {"temperature": 0, "max_tokens": 48, "ignore_eos": True},
    "drawn": {"temperature": 0.8, "seed": 7, "max_tokens": 48, "ignore_eos": True},
    "log-probabilities": {"temperature": 0, "max_tokens": 32, "ignore_eos": True, "logprobs": 3},
    "drawn log-probabilities": {"temperature": 0.9, "seed": 2, "max_tokens": 32, "ignore_eos": True, "logprobs": 2, "top_p": 0.9},
    "trace": {"temperature": 0.8, "seed": 3, "max_tokens": 32, "ignore_eos": True, "trace": True},
    "stop": {"temperature": 0, "max_tokens": 64, "ignore_eos": True, "stop": ["the stop comes here"]},  # filled in below
    "its own end": {"temperature": 1.3, "seed": 5, "max_tokens": 200},
    "one token": {"temperature": 0, "max_tokens": 1},
    "five tokens": {"temperature": 0, "max_tokens": 5, "ignore_eos": True, "return_token_ids": True},
    "choices": {"temperature": 0.7, "seed": 4, "n": 3, "max_tokens": 24, "ignore_eos": True},
    "penalties": {"temperature": 0.7, "seed": 6, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "max_tokens": 40,
                  "ignore_eos": True},
    "banned pairs": {"temperature": 0, "no_repeat_ngram_size": 3, "max_tokens": 40, "ignore_eos": True},
    "grammar": {"temperature": 0.8, "seed": 8, "max_tokens": 60, "grammar": 'root ::= ("yes, certainly " | "no, never "){1,6}'},
    "prediction": {"temperature": 0, "max_tokens": 40, "ignore_eos": True, "prediction": {"type": "content", "content": WORDS}},
    "echo": {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "echo": True, "logprobs": 1},
}


def without_volatile(answer):
    """And without the counts of drafts, which requests get that ask for them."""
    if isinstance(answer, dict):
        return {key: without_volatile(value) for key, value in answer.items()
                if key not in VOLATILE and key not in ("accepted_prediction_tokens", "rejected_prediction_tokens")}
    return [without_volatile(value) for value in answer] if isinstance(answer, list) else answer


def events(server, path, body):
    """The stream's events, the last one being [DONE]."""
    text = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    with server.connect(head.encode() + text) as s:
        s.settimeout(120)
        raw = b""
        while piece := s.recv(65536):
            raw += piece
    assert raw.startswith(b"HTTP/1.1 200"), raw[:500]
    body = raw.split(b"\r\n\r\n", 1)[1]
    if b"chunked" in raw.split(b"\r\n\r\n", 1)[0].lower():
        whole = b""
        while body:
            size, body = body.split(b"\r\n", 1)
            n = int(size, 16)
            whole, body = whole + body[:n], body[n + 2:]
        body = whole
    told = [line.removeprefix("data: ") for line in body.decode().split("\n") if line.startswith("data: ")]
    assert told[-1] == "[DONE]", told[-3:]
    return [json.loads(line) for line in told[:-1]]


def joined(all_events):
    """What a stream contains for each choice: its text, its tokens' records in their order, its end; and the usage. A step may say
    several tokens, so that where events begin and end is the only thing left out."""
    choices, usage, rest = {}, None, None
    for event in all_events:
        event = without_volatile(event)
        usage = event.pop("usage", None) or usage
        for choice in event.pop("choices"):
            whole = choices.setdefault(choice.pop("index"), {"lists": {}, "ends": []})
            assert not whole["ends"] or not choice.get("text"), "text after an end"
            delta = choice.pop("delta", {"content": choice.pop("text", "")})
            for key, value in delta.items():
                whole[key] = whole.get(key, "") + (value or "")
            if choice.get("finish_reason"):
                whole["ends"].append((choice["finish_reason"], choice.get("stop_reason")))
            gather(whole["lists"], {key: value for key, value in choice.items() if key not in ("finish_reason", "stop_reason")})
        rest = {**(rest or {}), **event}
    return choices, usage, rest


def gather(into, value, name=""):
    """Lists of records are one, wherever they were cut."""
    if isinstance(value, dict):
        for key, inner in value.items():
            gather(into, inner, f"{name}.{key}")
    elif isinstance(value, list):
        into.setdefault(name, []).extend(value)
    elif value is not None:
        into.setdefault(name, []).append(value) if value not in into.get(name, []) else None


def asks(servers, prompt):
    """Those above; a stop that occurs in the middle of the answer, and predictions that are right for a while."""
    def said(ask):
        """By both, so that both have the same in their caches."""
        texts = [server.post("/v1/completions", ask)["choices"][0]["text"] for server in servers]
        assert texts[0] == texts[1], (ask, texts)
        return texts[0]

    out = {name: {"prompt": prompt, "seed": 9, **ask} for name, ask in ASKS.items()}
    text = said(out["stop"])
    middle = text[len(text) // 2:][:6]
    out["stop"]["stop"] = [middle]
    out["kept stop"] = {**out["stop"], "include_stop_str_in_output": True}
    for name in ("drawn", "log-probabilities", "drawn log-probabilities", "trace", "stop", "penalties"):
        text = said(out[name])
        out[name + ", predicted"] = {**out[name], "prediction": {"type": "content", "content": text[:len(text) * 3 // 4] + " and else."}}
    return out


def compare(plain, drafting, prompt, n_least):
    """Holds all answers equal; n_least: tokens at least that must have come from drafts."""
    for name, ask in asks((plain, drafting), prompt).items():
        a, b = (without_volatile(server.post("/v1/completions", ask)) for server in (plain, drafting))
        assert json.dumps(a) == json.dumps(b), (name, a, b)
        if "echo" in ask:
            continue
        a, b = (joined(events(server, "/v1/completions", ask)) for server in (plain, drafting))
        assert a == b, (name, a, b)
    for name in ("greedy", "drawn", "one token", "its own end", "choices"):
        ask = {"messages": [{"role": "user", "content": prompt}], "seed": 9, **ASKS[name], "logprobs": True, "top_logprobs": 2}
        a, b = (without_volatile(server.post("/v1/chat/completions", ask)) for server in (plain, drafting))
        assert json.dumps(a) == json.dumps(b), (name, a, b)
        a, b = (joined(events(server, "/v1/chat/completions", ask)) for server in (plain, drafting))
        assert a == b, (name, a, b)
    n = int(re.search(r"^ibid_accepted_draft_tokens_total (\d+)", drafting.get("/metrics"), re.M)[1])
    assert n >= n_least, f"of all these answers {n} tokens were drafts, which proves little"
    assert re.search(r"^ibid_draft_tokens_total 0$", plain.get("/metrics"), re.M), "--spec off drafts"
    return n


def refused(server, speculation):
    try:
        server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "speculation": speculation})
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]
    raise AssertionError(f"{speculation} was taken")


def tiny_servers(folder):
    model = tiny_model.make(folder)
    spec = lambda *flags: Server([IBID, "serve", model, "--port", 0, "--ctx", 1024, "--threads", 1, "--max-sequences", 4, *flags])
    return model, spec


def test_every_answer_is_that_of_a_server_that_does_not_draft():
    with tempfile.TemporaryDirectory() as name:
        model, serve = tiny_servers(pathlib.Path(name))
        told = []
        with serve("--spec", "off") as plain:
            for flags in (["--spec", "auto"], ["--spec", f"draft:{model}"], ["--spec", "skip:1", "--spec-k", 3]):
                with serve(*flags) as drafting:
                    n = compare(plain, drafting, WORDS * 3, 100 if "draft" in flags[1] else 1)
                    told.append(f"{flags[1].split(':')[0]} {n}")
        return ", ".join(told)


def drafted_and_accepted(server, **fields):
    """Of an answer at a temperature, where a random model repeats nothing: by the usage."""
    body = {"prompt": "Something of no pattern.", "temperature": 1.5, "seed": 11, "max_tokens": 60, "ignore_eos": True, **fields}
    usage = server.post("/v1/completions", body)["usage"]
    assert usage["completion_tokens"] == 60
    if "completion_tokens_details" not in usage:
        return None
    details = usage["completion_tokens_details"]
    return details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"], details["accepted_prediction_tokens"]


def test_what_answers_tell_of_drafts():
    with tempfile.TemporaryDirectory() as name:
        model, serve = tiny_servers(pathlib.Path(name))
        with serve("--spec", f"draft:{model}", "--spec-k", 5) as server:
            # Only requests that ask for counts get them; the draft model is the target, so no draft is wrong.
            assert drafted_and_accepted(server) is None
            drafted, accepted = drafted_and_accepted(server, speculation={"verifier": "coupled"})
            drafted_pinned, accepted_pinned = drafted_and_accepted(server, speculation={"verifier": "rejection"})
            assert drafted_pinned > 30 and accepted_pinned > 0
            assert drafted_and_accepted(server, speculation={"mode": "off"}) == (0, 0)
            # llama.cpp's route reports it under its names, if there is anything to report.
            body = {"prompt": WORDS * 3, "temperature": 0, "n_predict": 60, "ignore_eos": True, "speculation": {"verifier": "rejection"}}
            timings = server.post("/completion", body)["timings"]
            assert 0 < timings["draft_n_accepted"] <= timings["draft_n"] <= 60 * 5, timings
            assert "draft_n" not in server.post("/completion", {**body, "speculation": {"mode": "off"}})["timings"]
            # k bounds a step's drafts: with one, of 60 tokens half come from drafts at most, and each of them is one step's.
            drafted, accepted = drafted_and_accepted(server, speculation={"verifier": "rejection", "k": 1})
            assert 20 <= accepted <= 30 and drafted <= 59 - accepted, (drafted, accepted)
            assert drafted_and_accepted(server, speculation={"verifier": "rejection", "k": 0}) == (0, 0)
            assert drafted_and_accepted(server, speculation={"verifier": "rejection", "k": 5})[1] > 30
            code, error = refused(server, {"k": 6})
            assert code == 400 and error["param"] == "speculation.k" and "at most 5" in error["message"], error
    return f"{drafted_pinned} drafts, {accepted_pinned} right"


def test_a_requests_mode_selects_the_proposer():
    with tempfile.TemporaryDirectory() as name:
        model, serve = tiny_servers(pathlib.Path(name))
        with serve("--spec", f"draft:{model}") as server:
            ask = lambda mode: drafted_and_accepted(server, speculation={"verifier": "rejection", "mode": mode})
            by_text = ask("ngram")
            assert by_text[1] <= 5, by_text  # what a look-up finds in noise
            assert ask("auto")[1] > 30 and ask("draft")[1] > 30 and ask("off") == (0, 0)
            for mode in ("eagle", "window", "draft+window", "", "nobody"):
                code, error = refused(server, {"mode": mode})
                assert code == 400 and error["param"] == "speculation.mode" and f'"{mode}"' in error["message"], error
                assert "expected auto, off, ngram or draft" in error["message"], error
        with serve("--spec", "off") as server:
            for speculation, param in (({"mode": "ngram"}, "speculation.mode"), ({"k": 1}, "speculation.k")):
                code, error = refused(server, speculation)
                assert code == 400 and error["param"] == param, error
            assert drafted_and_accepted(server, speculation={"mode": "auto"}) == (0, 0)
            modes = json.loads(server.get("/openapi.json"))["components"]["schemas"]
            assert '"ngram"' not in json.dumps(modes), "the schema allows what is refused"


if __name__ == "__main__":
    main(test_every_answer_is_that_of_a_server_that_does_not_draft,
         test_what_answers_tell_of_drafts,
         test_a_requests_mode_selects_the_proposer)
