"""Batches on the real server: every line is answered or has an error of its own, a server that is killed goes on where
it was, tenants see nothing of each other. batch_test.py BUILD_DIR. IBID_BATCH_LINES=100000 for as many lines."""
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import tiny_model
from harness import IBID, Server, main

N_LINES = int(os.environ.get("IBID_BATCH_LINES", 1200))
ALPHA, BETA = "alpha-key-1", "beta-key-22"


def call(server, method, path, body=None, key=ALPHA, kind="application/json"):
    """Status and body, JSON where it is."""
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    request = urllib.request.Request(server.url + path, data, {"X-Api-Key": key, "Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def upload(server, content, key=ALPHA, purpose="batch"):
    form = (b'--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n' + purpose.encode() +
            b'\r\n--xyz\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n'
            b"Content-Type: application/jsonl\r\n\r\n" + content + b"\r\n--xyz--\r\n")
    return call(server, "POST", "/v1/files", form, key, "multipart/form-data; boundary=xyz")


def begin(server, content, endpoint="/v1/completions", key=ALPHA):
    status, file = upload(server, content, key)
    assert status == 200, file
    status, batch = call(server, "POST", "/v1/batches", {"input_file_id": file["id"], "endpoint": endpoint,
                                                         "completion_window": "24h", "metadata": {"of": "a test"}}, key)
    assert status == 200 and batch["status"] == "validating" and batch["metadata"] == {"of": "a test"}, batch
    return batch["id"]


def wait(server, batch_id, seconds=600, key=ALPHA):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        status, batch = call(server, "GET", "/v1/batches/" + batch_id, key=key)
        assert status == 200, batch
        if batch["status"] in ("completed", "failed", "cancelled"):
            return batch
        time.sleep(0.05)
    raise AssertionError(f"the batch did not end: {batch}")


def lines_of(server, file_id):
    if file_id is None:
        return []
    status, content = call(server, "GET", f"/v1/files/{file_id}/content")
    assert status == 200
    if isinstance(content, dict):
        return [content]
    return [json.loads(line) for line in content.splitlines()]


def body_of(i):
    return {"prompt": f"question {i % 97}", "max_tokens": 1 + i % 3, "temperature": 0.7, "seed": i}


def line_of(i):
    """Every eleventh is broken, in one of several ways."""
    whole = {"custom_id": f"q{i}", "method": "POST", "url": "/v1/completions", "body": body_of(i)}
    if i % 11 != 5:
        return json.dumps(whole), None
    kind = i // 11 % 8
    broken = [
        ("{" * (i % 60 + 1), "invalid_line"), ('"a text"', "invalid_line"), ("[]", "invalid_line"),
        (json.dumps({**whole, "url": "/v1/chat/completions"}), "invalid_line"),
        (json.dumps({**whole, "custom_id": "q0"}), "invalid_line"),
        (json.dumps({**whole, "body": {**whole["body"], "temperature": "hot"}}), 400),
        (json.dumps({**whole, "body": {**whole["body"], "stream": True}}), "invalid_line"),
        ("\xff\x00" + json.dumps(whole), "invalid_line"),
    ]
    return broken[kind]


def serve(folder, model, *flags):
    return Server([IBID, "serve", model, "--port", 0, "--ctx", 512, "--files-dir", folder / "files", "--max-waiting", 64,
                   "--no-request-log", "--max-body-bytes", "256M", "--api-key", f"alpha:{ALPHA}", "--api-key",
                   f"beta:{BETA}", *flags])


def test_every_line_is_answered_once_although_the_server_is_killed():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = tiny_model.make(str(folder / "tiny"))
        wanted = [line_of(i) for i in range(N_LINES)]
        content = "\n".join(text for text, _ in wanted).encode("latin-1")
        draw = random.Random(3)
        n_kills, begun = 0, time.monotonic()
        with serve(folder, model) as server:
            batch_id = begin(server, content)
            kill_at = N_LINES // 5
            while call(server, "GET", "/v1/batches/" + batch_id)[1]["request_counts"]["completed"] < kill_at:
                time.sleep(0.01)
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait()
            n_kills += 1
        lines = folder / "files" / "batches" / (batch_id + ".out")
        assert lines.read_bytes().count(b"\n") >= kill_at
        with open(lines, "ab") as torn:  # as a power cut would leave it
            torn.write(b'{"id":"batch_req_7","custom_id":"q7","resp')
        for _ in range(2):
            with serve(folder, model) as server:
                time.sleep(0.1 + 0.2 * draw.random())
                os.kill(server.process.pid, signal.SIGKILL)
                server.process.wait()
                n_kills += 1
        with serve(folder, model) as server:
            batch = wait(server, batch_id, 3000)
            seconds = time.monotonic() - begun
            assert batch["status"] == "completed", batch
            answers = {line["id"]: line for line in lines_of(server, batch["output_file_id"])}
            errors = {line["id"]: line for line in lines_of(server, batch["error_file_id"])}
            n_broken = sum(kind is not None for _, kind in wanted)
            counts = batch["request_counts"]
            wrong = [i for i, (_, kind) in enumerate(wanted) if (kind is None) != (f"batch_req_{i}" in answers)]
            assert not wrong, [wanted[i] for i in wrong[:5]]
            assert counts == {"total": N_LINES, "completed": N_LINES - n_broken, "failed": n_broken}, counts
            assert len(lines_of(server, batch["output_file_id"])) == len(answers), "a line is answered twice"
            for i, (_, kind) in enumerate(wanted):
                line_id = f"batch_req_{i}"
                if kind is None:
                    line = answers[line_id]
                    assert line["custom_id"] == f"q{i}" and line["error"] is None, line
                    assert line["response"]["status_code"] == 200, line
                elif kind == "invalid_line":
                    assert errors[line_id]["error"]["code"] == kind and errors[line_id]["response"] is None, errors[line_id]
                    assert errors[line_id]["error"]["message"].startswith(f"Line {i + 1}: ")
                else:
                    response = errors[line_id]["response"]
                    assert response["status_code"] == kind and response["body"]["error"]["param"] == "temperature"
            for i in [i for i in range(N_LINES) if wanted[i][1] is None][:: max(1, N_LINES // 20)]:
                alone = call(server, "POST", "/v1/completions", body_of(i))[1]["choices"]
                assert answers[f"batch_req_{i}"]["response"]["body"]["choices"] == alone, i
            # What is over stays over.
            assert not list((folder / "files" / "batches").glob("*.out"))
        return f"{N_LINES} lines, {n_kills} kills, {seconds:.1f} s"


def test_tenants_see_nothing_of_each_other():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = tiny_model.make(str(folder / "tiny"))
        with serve(folder, model) as server:
            batch_id = begin(server, line_of(0)[0].encode())
            batch = wait(server, batch_id)
            ids = [batch["input_file_id"], batch["output_file_id"]]
            assert [f["id"] for f in call(server, "GET", "/v1/files")[1]["data"]].sort() == ids.sort()
            assert call(server, "GET", "/v1/files", key=BETA)[1]["data"] == []
            assert call(server, "GET", "/v1/batches", key=BETA)[1]["data"] == []
            for file_id in ids:
                for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
                    assert call(server, method, f"/v1/files/{file_id}{path}", key=BETA)[0] == 404
            for path in ("", "/cancel"):
                assert call(server, "POST" if path else "GET", f"/v1/batches/{batch_id}{path}", key=BETA)[0] == 404
            stolen = {"input_file_id": ids[0], "endpoint": "/v1/completions", "completion_window": "24h"}
            assert call(server, "POST", "/v1/batches", stolen, BETA)[0] == 400
            assert len({len(i) for i in ids}) == 1 and len(ids[0]) == len("file-") + 32
            assert call(server, "GET", "/v1/files", key="nobody-knows-it")[0] == 401
            assert call(server, "DELETE", "/v1/files/" + ids[0])[1]["deleted"]
            assert call(server, "GET", "/v1/files/" + ids[0])[0] == 404


def test_wrong_forms_and_requests_are_refused_by_their_field():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = tiny_model.make(str(folder / "tiny"))
        with serve(folder, model, "--max-files-bytes", "1M") as server:
            for form, kind in ((b"", "multipart/form-data; boundary=x"), (b"--x\r\n\r\n", "multipart/form-data; boundary=x"),
                               (b"--x--", "multipart/form-data; boundary=x"), (b"{}", "application/json"),
                               (b"--x\r\n\r\nhey\r\n--x--", "multipart/form-data; boundary=x"),
                               (b"--x", "multipart/form-data"), (b"--" + b"y" * 80, "multipart/form-data; boundary=" + "y" * 80),
                               (b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhey", "multipart/form-data; boundary=x"),
                               (b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\r\n--x" * 50,
                                "multipart/form-data; boundary=x")):
                status, answer = call(server, "POST", "/v1/files", form, kind=kind)
                assert status == 400 and answer["error"]["message"], (form, answer)
            assert upload(server, b"x", purpose="fine-tune")[1]["error"]["param"] == "purpose"
            assert upload(server, b"x" * (2 << 20))[0] == 429
            file_id = upload(server, b"x")[1]["id"]
            good = {"input_file_id": file_id, "endpoint": "/v1/completions", "completion_window": "24h"}
            for field, value in (("endpoint", "/v1/files"), ("endpoint", None), ("input_file_id", "file-../../etc/passwd"),
                                 ("input_file_id", 7), ("completion_window", "1h"), ("metadata", {"a": 1}),
                                 ("metadata", {"a": "b" * 600}), ("metadata", [])):
                status, answer = call(server, "POST", "/v1/batches", {**good, field: value})
                assert status == 400 and answer["error"]["param"] == field, (field, answer)
            for path in ("/v1/files/..%2f..%2fetc%2fpasswd", "/v1/files/../batches/content", "/v1/batches/x", "/v1/files/x/y"):
                assert call(server, "GET", path)[0] == 404, path
            assert call(server, "GET", "/v1/files?limit=0")[0] == 400
            assert call(server, "GET", "/v1/files?after=x")[0] == 404
            batch = wait(server, begin(server, b""))
            assert batch["status"] == "failed" and batch["errors"]["data"][0]["message"]
            second = subprocess.run([IBID, "serve", model, "--port", "0", "--files-dir", folder / "files"], timeout=600,
                                    capture_output=True, text=True)
            assert second.returncode == 2 and "another server" in second.stderr, second
        with Server([IBID, "serve", model, "--port", 0]) as server:
            assert call(server, "GET", "/v1/files")[0] == 404


def test_a_batch_that_is_cancelled_keeps_what_it_has():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = tiny_model.make(str(folder / "tiny"))
        line = {"method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 300, "ignore_eos": True}}
        with serve(folder, model) as server:
            batch_id = begin(server, "\n".join(json.dumps({**line, "custom_id": str(i)}) for i in range(3000)).encode())
            while call(server, "GET", "/v1/batches/" + batch_id)[1]["request_counts"]["completed"] < 5:
                time.sleep(0.02)
            status, batch = call(server, "POST", f"/v1/batches/{batch_id}/cancel")
            assert status == 200 and batch["status"] == "cancelling", batch
            batch = wait(server, batch_id)
            n = batch["request_counts"]["completed"]
            assert batch["status"] == "cancelled" and 5 <= n < 3000, batch
            assert len(lines_of(server, batch["output_file_id"])) == n
            assert call(server, "POST", f"/v1/batches/{batch_id}/cancel")[1]["status"] == "cancelled"


if __name__ == "__main__":
    main(test_every_line_is_answered_once_although_the_server_is_killed, test_tenants_see_nothing_of_each_other,
         test_wrong_forms_and_requests_are_refused_by_their_field, test_a_batch_that_is_cancelled_keeps_what_it_has)
