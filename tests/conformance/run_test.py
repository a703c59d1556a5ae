"""What `ibid run` and `ibid serve` make of a model's own files: how it is sampled, and what goes before a conversation.
run_test.py BUILD_DIR."""
import base64
import json
import pathlib
import subprocess
import tempfile

import tiny_model
from harness import IBID, ROOT, Server, main

ASK = {"messages": [{"role": "user", "content": "Say something."}], "max_tokens": 20, "ignore_eos": True, "seed": 3}


def model(folder, name, generation=None, template=True, bos=False):
    """The tiny model with a generation_config.json, without a chat template, or with a tokenizer that adds BOS."""
    made = tiny_model.make(f"{folder}/{name}")
    if generation is not None:
        (made / "generation_config.json").write_text(json.dumps(generation))
    if not template:
        (made / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|start|>", "eos_token": "<|end|>"}))
    if bos:
        start, text = {"SpecialToken": {"id": "<|start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        tokenizer = json.loads((made / "tokenizer.json").read_text())
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "single": [start, text], "pair": [start, text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|start|>": {"id": "<|start|>", "ids": [tiny_model.START], "tokens": ["<|start|>"]}}}
        (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    return made


def run(*arguments, code=0):
    """Its standard output, as bytes, and its standard error."""
    done = subprocess.run([IBID, "run", *(str(a) for a in arguments)], capture_output=True, timeout=600, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done
    return done.stdout, done.stderr.decode()


PICTURES = ROOT / "tests" / "golden" / "qwen3vl_chat"


def part(name):
    encoded = base64.b64encode((PICTURES / name).read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}


def test_pictures_answer_as_those_of_a_request():
    files, text = ("one.png", "two.png"), {"type": "text", "text": "Compare them."}
    flags = ("-p", text["text"], "-n", 8, "--temp", 0, "--ignore-eos")
    named = [word for file in files for word in ("--image", PICTURES / file)]
    with tempfile.TemporaryDirectory() as folder:
        history = f"{folder}/chat.json"
        said = {order: run(PICTURES, *flags, *words, *more)[0].decode() for order, words, more in (
            ("both", named, ("--history", history)), ("turned", named[2:] + named[:2], ()), ("none", [], ()))}
        kept = json.loads(pathlib.Path(history).read_text())["messages"]
        assert kept[0] == {"role": "user", "content": [*map(part, files), text]}, kept[0]
        # The conversation goes on with its pictures.
        after = run(PICTURES, "-p", "Again.", *flags[2:], "--history", history)[0].decode()
    with Server([IBID, "serve", PICTURES, "--port", 0]) as server:
        def ask(*messages):
            answer = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True})
            return answer["choices"][0]["message"]["content"] + "\n"
        pictures = [part(file) for file in files]
        assert said["both"] == ask({"role": "user", "content": [*pictures, text]}), said
        assert said["turned"] == ask({"role": "user", "content": [*pictures[::-1], text]}), said
        assert said["none"] == ask({"role": "user", "content": "Compare them."}), said
        assert len(set(said.values())) == 3, said
        assert after == ask(*kept, {"role": "user", "content": "Again."}), after


def test_pictures_of_a_chat():
    def chat(*lines, flags=()):
        """Lines of a pipe: its messages afterwards, and what it said on standard error."""
        with tempfile.TemporaryDirectory() as folder:
            history = f"{folder}/chat.json"
            done = subprocess.run([IBID, "run", PICTURES, *flags, "-n", "2", "--ignore-eos", "--history", history], timeout=600,
                                  capture_output=True, input="\n".join((*lines, "")).encode())
            assert done.returncode == 0, done
            kept = pathlib.Path(history)
            messages = json.loads(kept.read_text())["messages"] if kept.exists() else []
            return [m["content"] for m in messages if m["role"] == "user"], done.stderr.decode()
    one, two = part("one.png"), part("two.png")
    text = lambda said: {"type": "text", "text": said}
    at = lambda name: f"/image {PICTURES / name}"
    assert chat("A", "B", flags=("--image", PICTURES / "one.png"))[0] == [[one, text("A")], "B"]
    assert chat(at("one.png"), at("two.png"), "A", "B")[0] == [[one, two, text("A")], "B"]
    assert chat(at("one.png"), "A", "/edit C", "/regen")[0] == [[one, text("C")]]
    assert chat(at("one.png"), "/image", "A", at("two.png"), "/clear", "B")[0] == ["B"]
    asked, said = chat(at("config.json"), at("none.png"), "A")
    assert asked == ["A"] and "config.json" in said and "There is no file" in said, (asked, said)
    asked, said = chat(at("one.png"), "A", flags=("--mmproj", "none"))
    assert asked == ["A"] and "reads no pictures" in said, (asked, said)


def test_what_is_no_picture_and_who_reads_none_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        cut, made = pathlib.Path(folder) / "cut.png", model(folder, "tiny")
        cut.write_bytes((PICTURES / "one.png").read_bytes()[:900])
        for where, flags, sentence in (
                (PICTURES, ("--image", f"{folder}/none.png"), "There is no file"),
                (PICTURES, ("--image", PICTURES / "config.json"), "config.json"),
                (PICTURES, ("--image", PICTURES / "one.png", "--image", cut), "cut.png"),
                (PICTURES, ("--image", PICTURES / "one.png", "--mmproj", "none"), "--mmproj PATH names one"),
                (PICTURES, ("--image", PICTURES / "one.png", "--raw"), "--image are of conversations"),
                (made, ("--image", PICTURES / "one.png"), "reads no pictures")):
            assert sentence in run(where, "-p", "What is it?", *flags, code=2)[1], flags


def traced(server, **more):
    answer = server.post("/v1/chat/completions", {**ASK, "trace": True, **more})
    return answer["choices"][0]["message"]["content"], answer["trace_header"]


def test_a_request_goes_before_a_flag_before_the_model_before_ibid():
    with tempfile.TemporaryDirectory() as folder:
        made = model(folder, "tiny", {"temperature": 0.25, "top_k": 7, "do_sample": True})
        with Server([IBID, "serve", made, "--port", 0, "--top-k", 5, "--min-p", 0.125]) as server:
            _, header = traced(server, min_p=0.5)
            told = {name: (header["parameters"][name], header["sources"][name]) for name in ("temperature", "top_k", "min_p", "top_p")}
            assert told == {"temperature": (0.25, "model"), "top_k": (5, "flag"), "min_p": (0.5, "request"),
                            "top_p": (0.95, "default")}, told
            fields = json.loads(server.get("/openapi.json"))["components"]["schemas"]["ChatRequest"]["properties"]
            assert [fields[name]["default"] for name in told] == [0.25, 5, 0.125, 0.95]
            # The same bytes and the same digest for who names the values.
            own, header = traced(server)
            named, other = traced(server, temperature=0.25, top_k=5, min_p=0.125, top_p=0.95)
            assert own == named and header["sampling_digest"] == other["sampling_digest"]
            assert set(other["sources"][name] for name in told) == {"request"}


def test_run_takes_the_samplers_of_the_api():
    with tempfile.TemporaryDirectory() as folder:
        made = model(folder, "tiny")
        ask = ("--raw", "-p", "Say", "-n", 8, "--seed", 5, "--ignore-eos")
        assert run(made, *ask, "--allowed-token-ids", "[65]")[0] == b"A" * 8 + b"\n"
        assert run(made, *ask, "--allowed-token-ids", "[65]", "--stop", "AAA")[0] == b"\n"
        greedy = run(made, *ask, "--temp", 0)[0]
        assert greedy == run(made, *ask, "--top-k", 1)[0] == run(made, *ask, "--min-p", 1, "--temp", 2)[0]
        assert greedy != run(made, *ask, "--temp", 1, "--top-p", 1)[0]
        assert greedy == run(model(folder, "cold", {"temperature": 0}), *ask)[0]
        for wrong, sentence in ((("--temp", "hot"), "temperature must be a number from 0 to 100"),
                                (("--repeat-penalty", 1.1, "--repetition-penalty", 1.2), "two names of one field"),
                                (("--allowed-token-ids", "[999]"), "the model's ids go from 0 to 257")):
            assert sentence in run(made, *ask, *wrong, code=2)[1], wrong


def test_a_default_out_of_range_is_reported_and_not_used():
    with tempfile.TemporaryDirectory() as folder:
        ask = ("--raw", "-p", "Say", "-n", 8, "--seed", 5)
        plain, silence = run(model(folder, "tiny"), *ask)
        odd = {"temperature": -3, "top_k": 1e30, "top_p": "much", "min_p": [1], "repetition_penalty": 0}
        text, warnings = run(model(folder, "odd", odd), *ask)
        assert text == plain and "generation_config" not in silence, (text, plain, silence)
        for name in odd:
            assert f"The model's generation_config.{name} is not used: {name} must be" in warnings, warnings


def test_a_model_without_a_template_is_spoken_of_where_one_is_used():
    with tempfile.TemporaryDirectory() as folder:
        made = model(folder, "bare", template=False)
        assert "has no chat template" in run(made, "-p", "Say", "-n", 2)[1]
        assert "template" not in run(made, "--raw", "-p", "Say", "-n", 2)[1]


def test_a_conversation_begins_with_the_bos_that_the_vocabulary_wants():
    with tempfile.TemporaryDirectory() as folder:
        counts = {}
        for name, options in {"bare": {"template": False, "bos": True}, "own": {"bos": True}, "none": {"template": False}}.items():
            with Server([IBID, "serve", model(folder, name, **options), "--port", 0]) as server:
                tokens = server.post("/tokenize", ASK)["tokens"]
                used = server.post("/v1/chat/completions", ASK)["usage"]["prompt_tokens"]
                assert used == len(tokens), (used, tokens)
                counts[name] = (len(tokens), tokens.count(tiny_model.START), tokens[0] == tiny_model.START)
        n = counts["none"][0]
        assert counts["none"] == (n, 0, False) and counts["bare"] == (n + 1, 1, True), counts
        assert counts["own"][1:] == (2, True), counts  # the template writes its own, one a turn
        return f"{n} tokens, {n + 1} with BOS"


if __name__ == "__main__":
    main(test_a_request_goes_before_a_flag_before_the_model_before_ibid, test_run_takes_the_samplers_of_the_api,
         test_a_default_out_of_range_is_reported_and_not_used,
         test_a_model_without_a_template_is_spoken_of_where_one_is_used,
         test_a_conversation_begins_with_the_bos_that_the_vocabulary_wants, test_pictures_answer_as_those_of_a_request,
         test_pictures_of_a_chat, test_what_is_no_picture_and_who_reads_none_is_refused)
