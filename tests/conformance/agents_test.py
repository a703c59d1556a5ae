"""The programs that people work with, unchanged, from their wheels: Claude Code, Codex CLI (also as of Ollama) and aider, offline, against
a scripted model that plays a task turn by turn: read a file, edit it, run a command, say what was done. agents_test.py BUILD_DIR.
With IBID_TRANSCRIPTS=FILE what was asked, called and answered is appended to that file."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

from harness import FAKE, ROOT, Server, Skip, main, venv

PROGRAMS = {"claude": ("claude-agent-sdk==0.2.189", "site-packages/claude_agent_sdk/_bundled/claude"),
            "codex": ("openai-codex-cli-bin==0.163.0", "site-packages/codex_cli_bin/bin/codex")}
BEFORE, AFTER = 'print("helo")\n', 'print("hello")\n'
TASK = "TASK-GREET: greet.py misspells its greeting. Read it, mend it, run it and say what it prints."
LONG = 1 << 20  # tokens, which are bytes of the scripted model
NO_OTHER_HOSTS = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
                  "DISABLE_ERROR_REPORTING": "1"}


def settings(program, n=0):
    """The n-th block of docs/users/clients.md for a program."""
    section = re.search(rf"^## {program}\n(.*?)(?=^## )", (ROOT / "docs/users/clients.md").read_text(), re.M | re.S)[1]
    return re.findall(r"^```\w+\n(.*?)^```$", section, re.M | re.S)[n]


def variables(block):
    """What its `export` lines set."""
    return dict(pair.split("=", 1) for line in re.findall(r"^export (.*)$", block, re.M) for pair in line.split())


def program(name):
    package, path = PROGRAMS[name]
    found = next(venv(f"venv-{name}", package).parent.glob(f"lib/python*/{path}"), None)
    if found is None:
        raise Skip(f"{package} has no program for this machine")
    return found


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Stage:
    """A folder with greet.py, a home, and a scripted server beside them."""

    def __init__(self, turns, context=LONG, own_context=0):
        self.turns, self.context, self.own_context = turns, context, own_context

    def __enter__(self):
        self.root = tempfile.TemporaryDirectory(prefix="ibid-agents-")
        root = pathlib.Path(self.root.name)
        self.work, self.home, script = root / "work", root / "home", root / "play.json"
        self.work.mkdir(), self.home.mkdir()
        self.file = self.work / "greet.py"
        self.file.write_text(BEFORE)
        plays = [{"words": TASK, "turns": self.turns(self.work)}, {"words": "Say hello.", "turns": ["Hello from ibid."]}]
        script.write_text(json.dumps({"context": self.context, "own_context": self.own_context, "plays": plays}))
        self.server = Server([FAKE, 0, 0.01, 0, "", script])
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.root.cleanup()

    def here(self, text):
        return text.replace("http://127.0.0.1:8080", self.server.url).replace("smollm2", "fake-1")

    def run(self, title, command, **more):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb", **more}
        done = subprocess.run([str(c) for c in command], cwd=self.work, env=environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        tell(f"\n==== {title}: {' '.join(map(str, command[1:]))}\n(ended with {done.returncode})")
        return done

    def claude(self, title, *arguments):
        own = variables(self.here(settings("Claude Code")))
        own["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(LONG)  # a token of the scripted model is a byte
        return self.run(title, [program("claude"), "-p", *arguments, "--output-format", "stream-json", "--verbose"],
                        CLAUDE_CODE_MAX_RETRIES="0", **NO_OTHER_HOSTS, **own)

    def codex(self, title, *arguments, model="fake-1", oss=False):
        if oss:
            block = self.here(settings("Codex", 1))
            how = re.search(r"^codex (.*)$", block, re.M)[1].split()
        else:
            block, how = "", ["-m", model, "-c", "model_providers.ibid.request_max_retries=0"]
            (self.home / "config.toml").write_text(self.here(settings("Codex")))
        return self.run(title, [program("codex"), "exec", *how, "--json", "--skip-git-repo-check",
                                "--dangerously-bypass-approvals-and-sandbox", "-c", "check_for_update_on_startup=false", *arguments],
                        CODEX_HOME=str(self.home), **variables(block))


def tell(text):
    if path := os.environ.get("IBID_TRANSCRIPTS"):
        with open(path, "a") as file:
            file.write(text + "\n")


def events(done):
    out = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for event in out:
        for line in reported(event):
            tell(line)
    return out


def reported(event):
    """A line for each item in an event of either program."""
    if event.get("type") in ("user", "assistant"):
        content = event["message"]["content"]
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            text = block.get("text") or json.dumps(block.get("input") or block.get("content") or "")
            yield f"{event['type']:10} {block['type']:12} {block.get('name', '')} {text[:300]}"
    elif event.get("type") == "result":
        yield f"result     {str(event.get('result'))[:300]}"
    elif event.get("type") == "item.completed":
        item = event["item"]
        yield f"{item['type']:20} " + json.dumps({k: v for k, v in item.items() if k not in ("id", "type")})[:400]
    elif event.get("type") in ("error", "turn.failed"):
        yield json.dumps(event)[:400]


def claude_turns(work):
    path = str(work / "greet.py")
    return ["I read it first.\n" + call("Read", file_path=path),
            "It says helo.\n" + call("Edit", file_path=path, old_string="helo", new_string="hello"),
            call("Bash", command="python3 greet.py", description="Run it"), "It prints hello now."]


def codex_turns(work):
    return ["I read it first.\n" + call("exec_command", cmd="cat greet.py"),
            "It says helo.\n" + call("exec_command", cmd="sed -i s/helo/hello/ greet.py"),
            call("exec_command", cmd="python3 greet.py") + "\n" + call("multi_agent_v1.close_agent", target="nobody"),
            "It prints hello now."]


def codex_patch_turns(work):
    patch = '*** Begin Patch\n*** Update File: greet.py\n@@\n-print("helo")\n+print("hello")\n*** End Patch\n'
    return [call("apply_patch", input=patch), call("exec_command", cmd="python3 greet.py"), "It prints hello now."]


def test_claude_code_gets_a_first_answer():
    with Stage(claude_turns) as stage:
        done = stage.claude("Claude Code, a first answer", "Say hello.")
        result = [e for e in events(done) if e["type"] == "result"]
        assert done.returncode == 0 and result[0]["result"] == "Hello from ibid.", done.stdout[-2000:] + done.stderr[-2000:]


def test_claude_code_does_a_task_by_calls():
    with Stage(claude_turns) as stage:
        done = stage.claude("Claude Code, a task", TASK, "--allowedTools", "Read", "Edit", "Bash")
        said = events(done)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        calls = [b["name"] for e in said if e["type"] == "assistant" for b in e["message"]["content"] if b["type"] == "tool_use"]
        assert calls == ["Read", "Edit", "Bash"], calls
        assert stage.file.read_text() == AFTER and said[-1]["result"] == "It prints hello now.", said[-1]
        results = json.dumps([e["message"] for e in said if e["type"] == "user"])
        assert "hello" in results and "is_error\": true" not in results, results


def test_claude_code_stops_at_a_context_that_is_full():
    with Stage(claude_turns, context=4096, own_context=131072) as stage:
        done = stage.claude("Claude Code, beyond the context", "Say hello.")
        said = events(done)
        assert "Prompt is too long" in said[-1]["result"], said[-1]


def test_codex_gets_a_first_answer():
    with Stage(codex_turns) as stage:
        done = stage.codex("Codex, a first answer", "Say hello.")
        assert done.returncode == 0 and "Hello from ibid." in json.dumps(events(done)), done.stdout + done.stderr[-2000:]


def codex_task(title, turns, **how):
    with Stage(turns) as stage:
        done = stage.codex(title, TASK, **how)
        said = json.dumps(events(done))
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        assert stage.file.read_text() == AFTER and "It prints hello now." in said, said
        assert "unsupported call" not in said, said
        return said


def test_codex_does_a_task_by_calls():
    codex_task("Codex, a task", codex_turns)


def test_codex_patches_by_a_custom_tool():
    codex_task("Codex, a custom tool", codex_patch_turns, model="gpt-5.5")


def test_codex_works_as_of_ollama():
    codex_task("Codex --oss, a task over Ollama's routes", codex_turns, oss=True)


def test_codex_stops_at_a_context_that_is_full():
    with Stage(codex_turns, context=4096, own_context=131072) as stage:
        done = stage.codex("Codex, beyond the context", "Say hello.")
        said = json.dumps(events(done))
        assert "context window" in said, said + done.stderr[-2000:]


def test_aider_edits_a_file():
    def turns(work):
        return ["greet.py\n```python\n<<<<<<< SEARCH\nprint(\"helo\")\n=======\nprint(\"hello\")\n>>>>>>> REPLACE\n```\n"]
    programs = venv("venv-aider", "aider-chat==0.86.2")
    with Stage(turns) as stage:
        done = stage.run("aider", [programs / "aider", *re.search(r"^aider (.*)$", stage.here(settings("aider")), re.M)[1].split(), "--edit-format", "diff", "--no-git", "--yes-always",
                                   "--no-check-update", "--no-analytics", "--no-show-model-warnings", "--no-pretty", "--map-tokens", "0",
                                   "--message", TASK, "greet.py"],
                         **variables(stage.here(settings("aider"))))
        tell(done.stdout[-1500:])
        assert stage.file.read_text() == AFTER, done.stdout[-2000:] + done.stderr[-2000:]


if __name__ == "__main__":
    main(test_claude_code_gets_a_first_answer, test_claude_code_does_a_task_by_calls, test_claude_code_stops_at_a_context_that_is_full,
         test_codex_gets_a_first_answer, test_codex_does_a_task_by_calls, test_codex_patches_by_a_custom_tool,
         test_codex_works_as_of_ollama, test_codex_stops_at_a_context_that_is_full, test_aider_edits_a_file)
