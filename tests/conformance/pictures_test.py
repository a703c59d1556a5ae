"""Pictures of a real server: a golden chat by each API, hits, refusals, beside other answers. pictures_test.py BUILD_DIR."""
import base64
import concurrent.futures
import http.server
import json
import random
import re
import struct
import threading
import urllib.error
import zlib

from harness import IBID, ROOT, Server, main

MODEL = ROOT / "tests" / "golden" / "qwen3vl_chat"
CHAT = json.loads((MODEL / "chat.json").read_text())
N_PROMPT, N_ANSWER = len(CHAT["prompt"]), len(CHAT["answer"])
CELL = max(CHAT["prompt"], key=CHAT["prompt"].count)
LIMITS = {"max_tokens": N_ANSWER, "temperature": 0, "ignore_eos": True}


def data(name, model=MODEL):
    return base64.b64encode((model / name).read_bytes()).decode()


def part(encoded, kind="png"):
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{encoded}"}}


def text(said):
    return {"type": "text", "text": said}


def question(one="one.png", two="two.png", model=MODEL):
    return [{"role": "user", "content": [text("Compare "), part(data(one, model)), text(" with "), part(data(two, model)),
                                         text(".")]}]


def serve(*flags, model=MODEL):
    return Server([IBID, "serve", model, "--port", 0, *flags])


def ask(server, messages, **more):
    return server.post("/v1/chat/completions", {"messages": messages, "return_token_ids": True, **LIMITS, **more})


def ids(answer):
    return answer["choices"][0]["token_ids"]


def refusal(server, path, body):
    try:
        server.post(path, body)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]
    raise AssertionError("it was not refused")


def png(width, height, seed):
    """A small picture of noise."""
    draw = random.Random(seed)
    rows = b"".join(b"\0" + bytes(draw.randrange(256) for _ in range(3 * width)) for _ in range(height))
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")).decode()


def metric(server, name):
    return float(re.search(rf"^ibid_{re.escape(name)} (\S+)$", server.get("/metrics"), re.M)[1])


def test_a_chat_with_two_pictures_is_that_of_transformers():
    with serve() as server:
        answer = ask(server, question())
        assert answer["prompt_token_ids"] == CHAT["prompt"], answer["prompt_token_ids"]
        assert ids(answer) == CHAT["answer"], ids(answer)
        assert answer["usage"]["prompt_tokens"] == N_PROMPT, answer["usage"]
        assert metric(server, 'pictures_total{how="encoded"}') == 2 and metric(server, "picture_seconds_total") > 0
        again = ask(server, question())
        assert ids(again) == CHAT["answer"] and again["usage"]["prompt_tokens_details"]["cached_tokens"] == N_PROMPT - 1, again
        assert metric(server, 'pictures_total{how="found"}') == 2
        other = ask(server, question("two.png", "one.png"))
        # What is before the first picture, and none of its cells, although their tokens are the same.
        assert other["usage"]["prompt_tokens_details"]["cached_tokens"] < CHAT["prompt"].index(CELL) + 1, other["usage"]
        assert ids(other) != CHAT["answer"]
        assert "vision" in json.loads(server.get("/v1/models"))["data"][0]["capabilities"]
        assert json.loads(server.get("/props"))["modalities"]["vision"] is True


def test_gemma_4s_is_that_of_transformers():
    """Its marker and its budget, answers with rows that a token has for each layer, and whole pictures in a step or not."""
    model = ROOT / "tests" / "golden" / "gemma4_chat"
    chat = json.loads((model / "chat.json").read_text())
    for flags in ([], ["--max-sequences", 8, "--max-tokens-per-step", 16, "--threads", 1]):
        with serve(*flags, model=model) as server:
            answer = ask(server, question(model=model))
            assert answer["prompt_token_ids"] == chat["prompt"], answer["prompt_token_ids"]
            assert ids(answer) == chat["answer"], ids(answer)
            again = ask(server, question(model=model))
            assert ids(again) == chat["answer"] and again["usage"]["prompt_tokens_details"]["cached_tokens"] == len(chat["prompt"]) - 1
    with serve("--image-max-tokens", 30, model=model) as server:
        assert ask(server, question(model=model))["usage"]["prompt_tokens"] < len(chat["prompt"]) - 60


def test_other_apis_show_pictures_too():
    with serve() as server:
        want = ask(server, question())["choices"][0]["message"]["content"]
        blocks = [text("Compare "), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data("one.png")}},
                  text(" with "), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data("two.png")}},
                  text(".")]
        body = {"model": "x", "max_tokens": N_ANSWER, "temperature": 0, "messages": [{"role": "user", "content": blocks}]}
        anthropic = server.post("/v1/messages", {**body, "ignore_eos": True})
        assert anthropic["content"][0]["text"] == want and anthropic["usage"]["input_tokens"] + anthropic["usage"].get(
            "cache_read_input_tokens", 0) == N_PROMPT, anthropic
        parts = [{"type": "input_text", "text": "Compare "}, {"type": "input_image", "image_url": part(data("one.png"))["image_url"]["url"]},
                 {"type": "input_text", "text": " with "}, {"type": "input_image", "image_url": part(data("two.png"))["image_url"]["url"]},
                 {"type": "input_text", "text": "."}]
        answer = server.post("/v1/responses", {"model": "x", "max_output_tokens": N_ANSWER, "temperature": 0, "ignore_eos": True,
                                               "input": [{"role": "user", "content": parts}]})
        assert answer["output"][0]["content"][0]["text"] == want, answer
        # Ollama's pictures come before a message's text.
        first = [{"role": "user", "content": [part(data("one.png")), text("What is it?")]}]
        same = ask(server, first)["choices"][0]["message"]["content"]
        options = {"num_predict": N_ANSWER, "temperature": 0, "repeat_penalty": 1}
        chat = server.post("/api/chat", {"model": "x", "stream": False, "options": options, "ignore_eos": True, "messages": [
            {"role": "user", "content": "What is it?", "images": [data("one.png")]}]})
        assert same.startswith(chat["message"]["content"]) and chat["prompt_eval_count"] > 20, (same, chat)
        generated = server.post("/api/generate", {"model": "x", "stream": False, "options": options, "prompt": "What is it?",
                                                  "images": [data("one.png")]})
        assert generated["response"] == chat["message"]["content"], generated


def test_pictures_beside_each_other_answer_as_alone():
    asked = [[{"role": "user", "content": [text(f"{i % 3}"), part(png(20 + 4 * (i % 5), 24, i % 4)), text("?" * (i % 4))]}]
             for i in range(24)]
    sample = {"temperature": 0.8, "seed": 3, "logprobs": True}
    def said(server, messages):
        answer = ask(server, messages, **sample)["choices"][0]
        return answer["token_ids"], json.dumps(answer["logprobs"])
    with serve("--max-sequences", 1) as server:
        alone = [said(server, messages) for messages in asked]
    assert len({str(a) for a in alone}) > 12
    with serve("--max-sequences", 8, "--max-tokens-per-step", 16, "--threads", 1) as server:
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for i, answer in enumerate(pool.map(lambda m: said(server, m), asked)):
                assert answer == alone[i], i


def test_what_is_no_picture_is_refused_by_name_and_harms_no_other():
    with serve("--image-max-tokens", 64) as server:
        whole = (MODEL / "one.png").read_bytes()
        def with_url(url):
            return refusal(server, "/v1/chat/completions", {"messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]})
        for url, words in [("http://example.com/a.png", "not fetch"), ("file:///etc/passwd", "not fetch"), ("data:image/png,xx", "base64"),
                           ("data:image/png;base64,@@@@", "base64"), ("data:image/png;base64,", "base64"),
                           (f"data:image/png;base64,{base64.b64encode(b'GIF89a' + whole).decode()}", ""),
                           (f"data:image/png;base64,{base64.b64encode(whole[:200]).decode()}", "")]:
            code, error = with_url(url)
            assert code == 400 and error["param"] == "messages[0].content[0].image_url" and words in error["message"], (url[:40], error)
        bomb = bytearray(base64.b64decode(png(8, 8, 1)))
        bomb[16:24] = struct.pack(">II", 60000, 60000)
        bomb[29:33] = struct.pack(">I", zlib.crc32(bytes(bomb[12:29])))
        code, error = with_url("data:image/png;base64," + base64.b64encode(bomb).decode())
        assert code == 400 and "pixels" in error["message"], error
        draw, n_read = random.Random(5), 0
        for i in range(60):  # a thousand of each format are src/image's
            changed = bytearray(whole)
            for _ in range(1 + i % 4):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            try:
                ask(server, [{"role": "user", "content": [part(base64.b64encode(changed).decode())]}], max_tokens=1)
                n_read += 1
            except urllib.error.HTTPError as failed:
                assert failed.code == 400, failed.code
        many = [{"role": "user", "content": [part(data("one.png"))] * 65}]
        code, error = refusal(server, "/v1/chat/completions", {"messages": many})
        assert code == 400 and "64 pictures" in error["message"], error
        code, error = refusal(server, "/v1/chat/completions", {"messages": [{"role": "system", "content": [part(data("one.png"))]}]})
        assert code == 400, error
        assert ids(ask(server, question())) == CHAT["answer"]
    with serve("--mmproj", "none") as server:
        code, error = refusal(server, "/v1/chat/completions", {"messages": question()})
        assert code == 400 and "no pictures" in error["message"], error


class Pictures(http.server.BaseHTTPRequestHandler):
    """What is at these paths: a picture, none, a redirect, too much, and an answer that never comes."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path == "/never":
            return self.server.ended.wait(60)
        body = {"/one.png": (MODEL / "one.png").read_bytes(), "/text": b"no picture"}.get(self.path, b"")
        status = 302 if self.path == "/redirect" else 200 if body or self.path == "/large" else 404
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/one.png")
        self.send_header("Content-Length", str(30_000_000 if self.path == "/large" else len(body)))
        self.end_headers()
        self.wfile.write(body)
        try:
            for _ in range(30 if self.path == "/large" else 0):
                self.wfile.write(bytes(1_000_000))
        except OSError:  # the server has had enough
            self.close_connection = True

    def log_message(self, *_):
        pass


def test_addresses_are_fetched_from_hosts_that_are_named():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as pictures:
        pictures.asked, pictures.ended, port = [], threading.Event(), pictures.server_port
        threading.Thread(target=pictures.serve_forever, daemon=True).start()
        at = lambda path: f"http://127.0.0.1:{port}{path}"
        show = lambda url: {"type": "image_url", "image_url": {"url": url}}
        one = lambda url: [{"role": "user", "content": [show(url), text("What is it?")]}]
        def refused(server, url):
            code, error = refusal(server, "/v1/chat/completions", {"messages": one(url)})
            assert error["param"] == "messages[0].content[0].image_url", error
            return code, error["message"]
        with serve("--allowed-media-domains", f"127.0.0.1:{port}", "--media-timeout", 1) as server:
            asked = question()
            want = ids(ask(server, asked))
            asked[0]["content"][1] = show(at("/one.png"))
            assert ids(ask(server, asked)) == want == CHAT["answer"]
            asked[0]["content"].append({"type": "text", "text": "", "cache_control": {"x": "y" * 40_000}})  # handled apart from the first
            assert ids(ask(server, asked)) == CHAT["answer"]
            anthropic = server.post("/v1/messages", {"model": "x", "max_tokens": 3, "messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": at("/one.png")}}, text("What?")]}]})
            assert anthropic["usage"]["output_tokens"] > 0
            with concurrent.futures.ThreadPoolExecutor(8) as pool:  # one that hangs holds up no other
                hanging = pool.submit(refused, server, at("/never"))
                answers = list(pool.map(lambda i: ids(ask(server, one(at("/one.png")))), range(12)))
                assert len({str(a) for a in answers}) == 1
                code, message = hanging.result()
                assert code == 400 and "within 1 s" in message or "nothing came for 1 s" in message, message
            pictures.asked.clear()
            for url, words in [(at("/none"), "answered 404"), (at("/redirect"), "redirects"), (at("/large"), "20000000 bytes"),
                               (at("/text"), "PNG"), (f"http://localhost:{port}/one.png", "allowed-media-domains"),
                               ("http://127.0.0.1:1/one.png", "allowed-media-domains"), ("https://127.0.0.1:1/a", "allowed-media"),
                               (f"http://127.0.0.1:{port}@169.254.169.254/one.png", "")]:
                code, message = refused(server, url)
                assert code == 400 and words in message, (url, message)
            assert pictures.asked == ["/none", "/redirect", "/large", "/text"], pictures.asked
            code, message = refused(server, "file:///etc/passwd")
            assert code == 400 and "not fetch" in message
            assert ids(ask(server, question())) == CHAT["answer"]
        with serve() as server:
            code, message = refused(server, at("/one.png"))
            assert code == 400 and "--allowed-media-domains" in message, message
        pictures.ended.set()
        pictures.shutdown()


main(test_a_chat_with_two_pictures_is_that_of_transformers, test_gemma_4s_is_that_of_transformers,
     test_other_apis_show_pictures_too,
     test_pictures_beside_each_other_answer_as_alone, test_what_is_no_picture_is_refused_by_name_and_harms_no_other,
     test_addresses_are_fetched_from_hosts_that_are_named)
