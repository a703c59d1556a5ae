"""The examples of README.md and docs/ against the default model, as a reader would run them. examples_test.py BUILD_DIR.

A fenced block that calls curl must end well; in a ```console block what stands below a command is what it must print,
where ... stands for anything."""
import contextlib
import functools
import json
import re
import shutil
import subprocess

from harness import HERE, IBID, ROOT, Server, Skip, default_model, main, venv

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ADDRESS = "http://127.0.0.1:8080"


@functools.cache
def blocks():
    """(page, language, text) of every fenced block."""
    return [(page.name, language, text) for page in PAGES
            for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)]


@contextlib.contextmanager
def served():
    if shutil.which("curl") is None:
        raise Skip("there is no curl")
    with Server([IBID, "serve", *default_model(), "--port", 0], seconds=120) as server:
        yield server


def shell(command, server):
    """What it prints, and the statuses of the answers that curl had."""
    script = ("curl() { command curl -sS -w '%{stderr}status=%{http_code}\\n' \"$@\"; }\n"
              + command.replace(ADDRESS, server.url))
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (command, done)
    return done.stdout, [int(s) for s in re.findall(r"status=(\d+)", done.stderr)]


def test_curl_of_the_readme():
    n = 0
    with served() as server:
        for page, language, text in blocks():
            if language in ("", "sh", "bash") and "curl " in text:
                assert ADDRESS in text, (page, text)
                printed, statuses = shell(text, server)
                assert statuses and set(statuses) == {200}, (page, text, printed)
                answer, body = json.loads(printed), json.loads(re.search(r"-d '(.*?)'", text, re.S)[1])
                assert answer["seed"] == body["seed"] and answer["choices"][0]["message"]["content"], answer
                assert answer["usage"]["completion_tokens"] <= body["max_tokens"]
                again = json.loads(shell(text, server)[0])  # what README promises above all
                assert again["choices"] == answer["choices"], (again, answer)
                n += 1
    assert n > 0
    return f"{n} blocks"


def matches(printed, expected):
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.S)


def test_console_examples_print_what_the_pages_say():
    n = 0
    with served() as server:
        for page, language, text in blocks():
            if language != "console":
                continue
            for example in re.split(r"^\$ ", text, flags=re.M)[1:]:
                command, _, expected = example.partition("\n")
                printed, _ = shell(command, server)
                assert matches(printed, expected), (page, command, printed, expected)
                n += 1
    assert n > 5
    return f"{n} commands"


def test_python_of_the_readme():
    texts = [text for page, language, text in blocks() if language == "python" and ADDRESS in text]
    assert texts
    python = venv("venv-conformance", *(HERE / "requirements.txt").read_text().split()) / "python"
    with served() as server:
        for text in texts:
            done = subprocess.run([python, "-c", text.replace(ADDRESS, server.url)], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0 and len(done.stdout) > 20, done
    return f"{len(texts)} programs"


if __name__ == "__main__":
    main(test_curl_of_the_readme, test_console_examples_print_what_the_pages_say, test_python_of_the_readme)
