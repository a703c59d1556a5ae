"""`ibid run` as a person at a terminal has it: a pseudo-terminal, keys, and what is seen. terminal_test.py BUILD_DIR."""
import codecs
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import tempfile
import time

import tiny_model
from harness import IBID, main

COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Bonn", "Rome"]}}, "required": ["city"],
                                             "additionalProperties": False}}
SCHEMA = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"], "additionalProperties": False}


class Terminal:
    """A process whose terminal this is; what it shows is kept with and without its colours."""

    def __init__(self, *arguments, **environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
            os.execv(IBID, [IBID, "run", *(str(a) for a in arguments)])
        self.raw, self.seen = "", 0
        self.decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode  # a read may end within a character

    def look(self, seconds=0.1):
        end = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            try:
                self.raw += self.decode(os.read(self.fd, 65536))
            except OSError:
                return False
        return True

    @property
    def text(self):
        return COLORS.sub("", self.raw)

    def until(self, pattern, seconds=20):
        """What was shown since the last of these, up to the pattern."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            alive = self.look(0.05)
            if found := re.compile(pattern, re.S).search(self.text, self.seen):
                shown, self.seen = self.text[self.seen:found.end()], found.end()
                return shown
            assert alive, (pattern, self.text[self.seen:])
        raise AssertionError((pattern, self.text[self.seen:]))

    def key(self, keys):
        os.write(self.fd, keys.encode())

    def say(self, line, pattern=r"\n> $"):
        """Types a line; what is shown up to the next prompt."""
        self.key(line + "\n")
        return self.until(pattern)

    def end(self):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self.look(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"it does not end:\n{self.text}")


@contextlib.contextmanager
def terminal(*arguments, width=32, **environment):
    with tempfile.TemporaryDirectory() as folder:
        made = Terminal(tiny_model.make(f"{folder}/tiny", width), *arguments, **environment)
        made.until(r"> $")
        yield made
        with contextlib.suppress(ProcessLookupError, OSError, ChildProcessError):
            os.kill(made.pid, signal.SIGKILL)
            os.waitpid(made.pid, 0)


ONLY = ("--ignore-eos", "-n", 4, "--seed", 3)


def messages(path):
    return [(m["role"], m["content"]) for m in json.loads(pathlib.Path(path).read_text())["messages"]]


def test_lines_are_edited_and_brought_back():
    with terminal(*ONLY, "--allowed-token-ids", "[65]") as t:
        assert "AAAA" in t.say("hullo\x02\x02\x02\x08e\x05 th\u00e9re\x7fe")  # Ctrl-B, backspace, Ctrl-E
        t.key("\x1b[A")
        t.until("hello th\u00e9re$")
        t.key("\x15")  # Ctrl-U
        t.key("never sent\x03")  # Ctrl-C leaves the line, not the program
        t.until(r"\^C.*> $")
        with tempfile.TemporaryDirectory() as folder:
            t.say(f"/save {folder}/chat.json")
            assert messages(f"{folder}/chat.json") == [("user", "hello th\u00e9re"), ("assistant", "AAAA")], messages(f"{folder}/chat.json")
        t.key("\x04")
        assert t.end() == 0


def test_tab_completes():
    with terminal(*ONLY) as t:
        t.key("/sa\t")
        t.until("/save ")
        t.key("\x15/s\t")
        t.until("/system  /set  /save  /stats")
        t.key("et tempera\t")
        t.until("/set temperature ")
        t.key("\x15/nothing\t")
        t.key("\x03")
        t.until(r"\^C.*> $")


def test_commands():
    with terminal(*ONLY, "--temp", 1) as t, tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/chat.json"
        assert "Nothing was asked yet" in t.say("/regen") and "Nothing was asked yet" in t.say("/edit")
        t.say("one")
        t.say(f"/save {file}")
        first = messages(file)
        t.say("/regen")
        t.say(f"/save {file}")
        again = messages(file)
        assert again[0] == first[0] and again[1] != first[1], (first, again)  # the next seed
        t.say("/set seed 3")
        t.say("/edit one")
        t.say(f"/save {file}")
        assert messages(file) == first  # the same request, the same bytes
        t.key("/edit\n")
        t.until("> one$")
        t.key(" two\n")
        t.until(r"\n> $")
        t.say("/set allowed-token-ids [66]")
        assert "BBBB" in t.say("three")
        assert "temperature must be a number from 0 to 100" in t.say("/set temp hot")
        assert "is nothing that /set knows" in t.say("/set n 5")
        assert "BBBB" in t.say("four")  # what was wrong changed nothing
        assert "there is no parameter" not in t.say("/set allowed_token_ids null")
        t.say(f"/save {file}")
        assert [m for m in messages(file) if m[0] == "user"] == [("user", text) for text in ("one two", "three", "four")]
        t.say("/clear")
        assert "There is no file" in t.say(f"/load {folder}/none.json")
        t.say(f"/load {file}")
        t.say("/edit five")
        t.say(f"/save {file}")
        assert [m for m in messages(file) if m[0] == "user"][-1] == ("user", "five")
        t.key("/quit\n")
        assert t.end() == 0


def test_an_answer_is_stopped():
    # Of a wider model and without guesses, so that it cannot have come to the context's end before it is stopped.
    with terminal("--ignore-eos", "--seed", 3, "--allowed-token-ids", "[65]", "--spec", "off", width=512) as t:
        t.key("long\n")
        t.until("A{20}")
        os.kill(t.pid, signal.SIGINT)
        t.until(r"\[stopped\]\n\n> $")
        t.key("\x04")
        assert t.end() == 0


def test_tools_are_answered_by_hand_or_refused():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(f"{folder}/tools.json").write_text(json.dumps([WEATHER]))
        with terminal("--tools", f"{folder}/tools.json", "--seed", 1, "-n", 200) as t:
            t.say("/set tool_choice required")
            call = r'call weather\(\{"city": ?"(Bonn|Rome)"\}\)\nWhat does weather give\? \(an empty line refuses\)\nresult> $'
            t.say("Weather?", call)
            t.say("rain", call)  # it must call again
            t.say("", call)
            t.key("\x03")
            t.until(r"\n> $")
            t.say("Weather?", call)
            t.key("sun\n")
            t.until(call)
            t.key("\x04")
            t.until(r"\n> $")
        file = f"{folder}/chat.json"
        with terminal("--tools", f"{folder}/tools.json", "--history", file, "--seed", 1, "-n", 200) as t:
            t.say("/set tool_choice required")
            t.say("Weather?", r"result> $")
            t.say("rain", r"result> $")
            t.look(0.2)
            kept = json.loads(pathlib.Path(file).read_text())["messages"]
            assert [m["role"] for m in kept] == ["user", "assistant", "tool", "assistant"] and kept[2]["content"] == "rain", kept
            assert kept[2]["tool_call_id"] == kept[1]["tool_calls"][0]["id"] != kept[3]["tool_calls"][0]["id"], kept


def run(*arguments, code=0, **more):
    done = subprocess.run([IBID, "run", *(str(a) for a in arguments)], capture_output=True, timeout=60, text=True, **more)
    assert done.returncode == code, done
    return done.stdout, done.stderr


def test_once_and_refusals():
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_model.make(f"{folder}/tiny")
        said, _ = run(made, "-p", "A colour?", "--json-schema", json.dumps(SCHEMA), "--seed", 2)
        assert json.loads(said)["colour"] in ("red", "blue"), said
        pathlib.Path(f"{folder}/schema.json").write_text(json.dumps(SCHEMA))
        assert run(made, "-p", "A colour?", "--json-schema", f"{folder}/schema.json", "--seed", 2)[0] == said
        for wrong, sentence in ((("--image", "cat.png"), "--image is not supported"), (("--json-schema", "{"), "--json-schema"),
                                (("--tools", f"{folder}/none"), "There is no file"), (("--tools", f"{folder}/schema.json"), "tools[0]"),
                                (("--raw", "--history", "x"), "--history are of conversations")):
            assert sentence in run(made, "-p", "x", *wrong, code=2)[1], wrong
        # A history that goes on, without a terminal; one that is none is told and left alone.
        file = pathlib.Path(f"{folder}/chat.json")
        ask = (made, *ONLY, "--history", file)
        run(*ask, input="one\ntwo\n")
        run(*ask, "-p", "three")
        assert [m[1] for m in messages(file) if m[0] == "user"] == ["one", "two", "three"], messages(file)
        for broken in ("{", '{"messages": 5}', '{"messages": [{"role": "user"}]}', '[{"role": "king", "content": "x"}]'):
            file.write_text(broken)
            assert run(*ask, "-p", "four", code=1)[1].startswith("error: "), broken
            assert file.read_text() == broken


def test_what_a_model_writes_commands_no_terminal():
    escape, bell = 27, 7
    for environment in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with terminal(*ONLY, "--allowed-token-ids", f"[{escape},{bell}]", **environment) as t:
            t.key("attack\n")
            t.until(r"\n\n> $")
            shown = t.raw[t.raw.index("attack") + 6:]
            assert shown.count("\ufffd") == 4 and "\x07" not in shown, (environment, shown)


if __name__ == "__main__":
    main(test_lines_are_edited_and_brought_back, test_tab_completes, test_commands, test_an_answer_is_stopped,
         test_tools_are_answered_by_hand_or_refused, test_once_and_refusals, test_what_a_model_writes_commands_no_terminal)
