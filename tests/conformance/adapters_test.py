"""Adapters of a real server: by name, loaded and unloaded, beside each other, in recordings. adapters_test.py BUILD_DIR."""
import concurrent.futures
import json
import pathlib
import random
import struct
import subprocess
import tempfile
import urllib.error

import tiny_model
from harness import IBID, Server, main

PROMPT = "A beginning that all of these requests share, longer than one block of the cache."


def adapter(folder, seed, rank=4, modules=("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"), **config):
    """One in PEFT's form, of random matrices, for a tiny model."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    draw, header, data = random.Random(seed), {}, bytearray()
    shapes = dict(tiny_model.shapes(32))
    for layer in range(tiny_model.LAYERS):
        for module in modules:
            outputs, inputs = shapes.get(f"model.layers.{layer}.{module}.weight", (32, 32))
            for side, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                values = struct.pack(f"<{shape[0] * shape[1]}f", *(draw.gauss(0, 0.4) for _ in range(shape[0] * shape[1])))
                name = f"base_model.model.model.layers.{layer}.{module}.lora_{side}.weight"
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
                data += values
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 8, **config}))
    return folder


def serve(model, *flags):
    return Server([IBID, "serve", model, "--port", 0, "--ctx", 512, *flags])


def ask(server, model, **more):
    body = {"model": model, "prompt": PROMPT, "max_tokens": 24, "temperature": 0.8, "seed": 3, "ignore_eos": True, "logprobs": 1}
    answer = server.post("/v1/completions", {**body, **more})
    return answer["choices"][0]["text"], json.dumps(answer["choices"][0]["logprobs"]), answer


def refusal(server, path, body):
    try:
        server.post(path, body)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]
    raise AssertionError("it was not refused")


def test_requests_of_adapters_together_answer_as_each_alone():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = tiny_model.make(folder / "tiny")
        a, b = adapter(folder / "a", 1), adapter(folder / "b", 2)
        names = ("tiny", "one", "two")
        with serve(model, "--max-sequences", 1, "--lora-modules", f"one={a}", f"two={b}") as server:
            alone = {n: ask(server, n)[:2] for n in names}
            assert len({text for text, _ in alone.values()}) == 3, alone
            prints = {n: ask(server, n)[2]["system_fingerprint"] for n in names}
            assert len(set(prints.values())) == 3 and prints["one"].startswith(prints["tiny"] + "+"), prints
            listed = {m["id"]: m for m in json.loads(server.get("/v1/models"))["data"]}
            assert listed["one"]["parent"] == "tiny" and listed["one"]["root"] == str(a), listed
            assert listed["one"]["meta"]["digest"].startswith(listed["tiny"]["meta"]["digest"] + "+"), listed
            assert [m["name"] for m in json.loads(server.get("/lora-adapters"))] == ["one", "two"]
            header = ask(server, "two", trace=True)[2]["trace_header"]
            assert listed["two"]["meta"]["digest"].endswith("+" + header["adapter"]), header
            code, message = refusal(server, "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": str(a)})
            assert code == 403 and "--lora-updates" in message, message
        with serve(model, "--max-sequences", 8, "--max-tokens-per-step", 16, f"--lora-modules=two={b}",
                   f'--lora-modules={{"name": "one", "path": "{a}"}}') as server:
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                asked = [names[i % 3] for i in range(36)]
                for n, answer in zip(asked, pool.map(lambda n: ask(server, n), asked)):
                    assert answer[:2] == alone[n], n
            chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
            answers = {n: server.post("/v1/chat/completions", {"model": n, **chat}) for n in names}
            assert {a["model"] for a in answers.values()} == set(names), answers
            assert len({a["choices"][0]["message"]["content"] for a in answers.values()}) == 3, answers


def test_adapters_are_loaded_replaced_and_unloaded():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = tiny_model.make(folder / "tiny")
        a, b = adapter(folder / "a", 1), adapter(folder / "b", 2)
        with serve(model, "--lora-updates", "--max-loras", 2, "--strict-model") as server:
            load = lambda **body: server.connect(
                f"POST /v1/load_lora_adapter HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(json.dumps(body))}\r\n\r\n{json.dumps(body)}".encode())
            def text(connection):
                out = b""
                while piece := connection.recv(4096):
                    out += piece
                connection.close()
                return out.decode()
            assert refusal(server, "/v1/completions", {"model": "x", "prompt": "a"})[0] == 404
            assert "Success: LoRA adapter 'x' added successfully." in text(load(lora_name="x", lora_path=str(a)))
            first = ask(server, "x")[:2]
            cached = lambda n, **more: ask(server, n, **more)[2]["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached("x") > 0  # of what was asked before
            assert cached("tiny") == 0  # of the same prompt without the adapter
            assert "400" in text(load(lora_name="x", lora_path=str(b))).split("\r\n")[0]
            assert "200" in text(load(lora_name="x", lora_path=str(b), load_inplace=True)).split("\r\n")[0]
            assert cached("x") == 0  # another content under the same name
            assert ask(server, "x")[:2] != first
            assert "200" in text(load(lora_name="y", lora_path=str(a))).split("\r\n")[0]
            assert ask(server, "y")[:2] == first and cached("y") > 0  # the content that was x
            full = text(load(lora_name="z", lora_path=str(a)))
            assert "503" in full.split("\r\n")[0] and "--max-loras" in full, full
            for body, said in (({"lora_name": "x"}, "lora_path"), ({}, "lora_name"), ({"lora_name": "tiny", "lora_path": str(a)}, "model itself"),
                               ({"lora_name": "n", "lora_path": str(folder / "none")}, "none")):
                code, message = refusal(server, "/v1/load_lora_adapter", body)
                assert code in (400, 404) and said in message, (code, message)
            assert refusal(server, "/v1/unload_lora_adapter", {"lora_name": "q"})[0] == 404
            assert refusal(server, "/lora-adapters", [{"id": 0, "scale": 0.5}])[0] in (400, 501)


def test_one_that_does_not_fit_the_model_is_refused_at_the_start():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = tiny_model.make(folder / "tiny")
        bad = adapter(folder / "bad", 1, modules=("self_attn.q_proj", "self_attn.qq_proj"))
        big = adapter(folder / "big", 1, rank=70)
        for flags, said in ((("--lora-modules", f"x={bad}"), "qq_proj"), (("--lora-modules", f"x={big}"), "--max-lora-rank"),
                            (("--lora-modules", f"x={folder / 'none'}"), "none"), (("--lora-modules", "x"), "expected NAME=PATH")):
            done = subprocess.run([IBID, "serve", model, "--port", "0", *flags], capture_output=True, text=True, timeout=600)
            assert done.returncode != 0 and said in done.stderr, done
        done = subprocess.run([IBID, "serve", model, "--port", "0", "--lora-modules", f"x={big}", "--max-lora-rank", "80", "--memory", "1M"],
                              capture_output=True, text=True, timeout=600)
        assert done.returncode != 0 and "adapters" in done.stderr, done


def test_run_and_replay_have_them():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model, record = tiny_model.make(folder / "tiny"), folder / "record"
        a = adapter(folder / "a", 1)
        run = lambda *flags: subprocess.run([IBID, "run", model, "--raw", "-p", "abc", "-n", "16", "--temp", "0", *flags],
                                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=True).stdout
        assert run("--lora", a) != run()
        with serve(model, "--lora", a, "--record", record) as server:
            assert ask(server, "tiny")[:2] == ask(server, "a")[:2]
            assert server.end()[0] == 0
        replay = lambda *flags: subprocess.run([IBID, "replay", record, *flags], capture_output=True, text=True, timeout=600)
        for flags in ((), ("--model", model, "--lora-modules", f"other-name={a}")):
            done = replay(*flags)
            assert done.returncode == 0 and "every step is the same" in done.stderr, done
        done = replay("--model", model)
        assert done.returncode != 0 and "adapter that is not loaded" in done.stderr, done


if __name__ == "__main__":
    main(test_requests_of_adapters_together_answer_as_each_alone, test_adapters_are_loaded_replaced_and_unloaded,
         test_one_that_does_not_fit_the_model_is_refused_at_the_start, test_run_and_replay_have_them)
