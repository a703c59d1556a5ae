"""The examples of README.md and docs/ against the default model, as a reader would run them. examples_test.py BUILD_DIR.

A fenced block that calls curl must end well. In a ```console block what stands below a command is what it must print, where
... stands for anything; an error is one only where it is written there. In a ```python block the comment after a print() is what it
must print. A server at THINKS has the template of the page's ```jinja block."""
import contextlib
import functools
import json
import re
import shutil
import subprocess
import tempfile
import tomllib

from harness import HERE, IBID, ROOT, Server, Skip, default_model, fake, main, venv

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/users").glob("*.md"))]
ADDRESS = "http://127.0.0.1:8080"
THINKS = "http://127.0.0.1:8081"
COMPLETE = ("structured.md", "tools.md", "search.md")  # each field of their first tables has an example that is run


@functools.cache
def blocks():
    """(page, language, text) of every fenced block."""
    return [(page.name, language, text) for page in PAGES
            for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)]


def commands(text):
    """(command, what it must print) of a console block; a command goes on where a quote is open."""
    for example in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = example.split("\n")
        n = next(n for n in range(1, len(lines) + 1) if "\n".join(lines[:n]).count("'") % 2 == 0)
        yield "\n".join(lines[:n]), "\n".join(lines[n:])


@contextlib.contextmanager
def served(*flags):
    if shutil.which("curl") is None:
        raise Skip("there is no curl")
    with Server([IBID, "serve", *default_model(), "--port", 0, *flags], seconds=600) as server:
        yield server


@contextlib.contextmanager
def served_for(text):
    """The servers that a text calls, by the addresses that stand in it."""
    with contextlib.ExitStack() as stack:
        urls = {}
        if ADDRESS in text:
            urls[ADDRESS] = stack.enter_context(served()).url
        if THINKS in text:
            (template,) = [template for _, language, template in blocks() if language == "jinja"]
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".jinja"))
            file.write(template)
            file.flush()
            urls[THINKS] = stack.enter_context(served("--chat-template", file.name)).url
        yield urls


def shell(command, urls):
    """What it prints, and the statuses of the answers that curl had."""
    for address, url in urls.items():
        command = command.replace(address, url)
    script = "curl() { command curl -sS -w '%{stderr}status=%{http_code}\\n' \"$@\"; }\n" + command
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (command, done)
    return done.stdout, [int(s) for s in re.findall(r"status=(\d+)", done.stderr)]


def test_curl_of_the_readme():
    n = 0
    with served() as server:
        urls = {ADDRESS: server.url}
        for page, language, text in blocks():
            if language in ("", "sh", "bash") and "curl " in text:
                assert ADDRESS in text, (page, text)
                printed, statuses = shell(text, urls)
                assert statuses and set(statuses) == {200}, (page, text, printed)
                answer, body = json.loads(printed), json.loads(re.search(r"-d '(.*?)'", text, re.S)[1])
                assert answer["seed"] == body["seed"] and answer["choices"][0]["message"]["content"], answer
                assert answer["usage"]["completion_tokens"] <= body["max_tokens"]
                again = json.loads(shell(text, urls)[0])  # what README promises above all
                assert again["choices"] == answer["choices"], (again, answer)
                n += 1
    assert n > 0
    return f"{n} blocks"


def matches(printed, expected):
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.S)


def test_console_examples_print_what_the_pages_say():
    examples = [(page, *example) for page, language, text in blocks() if language == "console" for example in commands(text)]
    with served_for("".join(command for _, command, _ in examples)) as urls:
        for page, command, expected in examples:
            assert any(address in command for address in urls), (page, command)
            # Tokens that come while an event is being written share the next one: on a busy machine a stream is cut elsewhere.
            for _ in range(3 if '"stream": true' in command else 1):
                printed, statuses = shell(command, urls)
                if matches(printed, expected):
                    break
            assert '{"error"' in expected or set(statuses) == {200}, (page, command, printed)
            assert matches(printed, expected), (page, command, printed, expected)
    assert len(examples) > 40
    return f"{len(examples)} commands"


def test_python_of_the_pages():
    texts = [text for page, language, text in blocks() if language == "python" and ADDRESS in text]
    assert len(texts) >= 3
    python = venv("venv-conformance", *(HERE / "requirements.txt").read_text().split()) / "python"
    with served() as server:
        for text in texts:
            done = subprocess.run([python, "-c", text.replace(ADDRESS, server.url)], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0 and done.stdout, done
            said = "\n".join(re.findall(r"^\s*print\(.*\)  # (.*)$", text, re.M))
            assert matches(done.stdout, said) if said else len(done.stdout) > 20, (done.stdout, said)
    return f"{len(texts)} programs"


def fields_of(body, before=""):
    """The names of a JSON body's members: "a", and those within objects as "a.b" too."""
    for name, value in body.items() if isinstance(body, dict) else []:
        yield before + name
        yield from fields_of(value, before + name + ".")


def test_pages_on_structured_output_and_tools_show_what_they_name():
    n_fields = 0
    for name in COMPLETE:
        page = (ROOT / "docs/users" / name).read_text()
        own = [(language, text) for of, language, text in blocks() if of == name]
        assert {language for language, _ in own} <= {"console", "python", "jinja"}, "a block of another kind is not run"
        run = [command for language, text in own if language == "console" for command, _ in commands(text)]
        assert len(run) == page.count("$ curl ") == len(re.findall(r"curl http", page)), "an example stands in no console block"
        shown, words = set(), " ".join(run)
        for command in run:
            shown |= set(fields_of(json.loads(re.search(r"-d '(.*)'$", command, re.S)[1])))
        table = re.search(r"^\| field \|.*?\n\n", page, re.M | re.S)[0]
        rows = [row for row in table.splitlines()[2:] if row]
        named = set(re.findall(r"`([a-z_.]+)`", " ".join(row.split("|")[1] for row in rows)))
        assert len(named) >= 6 and named <= shown, (name, named - shown)
        n_fields += len(named)
        for word in {"structured.md": ("json_schema", "json_object", "structural_tag", "strict", "::=", "start:"),
                     "tools.md": ("required", "auto", "allowed_tools", "thinking_token_budget", "thinking_budget",
                                  "reasoning_budget_tokens", '"none"')}.get(name, ()):
            assert word in words, (name, word)
    return f"{n_fields} fields"


def test_settings_of_programs_are_well_formed_and_lead_to_routes():
    """docs/users/clients.md; the agents' own blocks are run by agents_test.py."""
    n = 0
    with fake() as server:
        for page, language, text in blocks():
            if page != "clients.md":
                continue
            if language == "json":
                json.loads(text)
            if language == "toml":
                tomllib.loads(text)
            assert ADDRESS in text, text
            for path in re.findall(re.escape(ADDRESS) + r"([^\s\"']*)", text):
                route = {"": "/api/version", "/v1": "/v1/models"}.get(path, path)
                code = "%{http_code}"
                done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", code, server.url + route], capture_output=True, text=True)
                assert done.stdout in ("200", "405"), (path, done.stdout)  # 405: a route that takes POST
                n += 1
    assert n >= 8
    return f"{n} addresses"


if __name__ == "__main__":
    main(test_curl_of_the_readme, test_console_examples_print_what_the_pages_say, test_python_of_the_pages,
         test_pages_on_structured_output_and_tools_show_what_they_name,
         test_settings_of_programs_are_well_formed_and_lead_to_routes)
