"""`ibid run` as a person at a terminal has it: a pseudo-terminal, keys, and what is seen. terminal_test.py BUILD_DIR."""
import codecs
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import tempfile
import termios
import time

import tiny_model
from harness import IBID, main
from screen import Screen

COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Bonn", "Rome"]}}, "required": ["city"],
                                             "additionalProperties": False}}
SCHEMA = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"], "additionalProperties": False}


class Terminal:
    """A process whose terminal this is; what it shows is kept with and without its colours."""

    def __init__(self, *arguments, size=None, **environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                if size:
                    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
                os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", "IBID_HISTFILE": "", **environment})
                os.execv(IBID, [IBID, "run", *(str(a) for a in arguments)])
            finally:  # a child that starts nothing must not go on with the tests
                os._exit(127)
        self.raw, self.seen = "", 0
        self.screen = Screen(*size) if size else None
        self.decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode  # a read may end within a character

    def look(self, seconds=0.1):
        end = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            try:
                more = self.decode(os.read(self.fd, 65536))
            except OSError:
                return False
            self.raw += more
            if self.screen:
                self.screen.feed(more)
        return True

    def until_screen(self, pattern, seconds=600):
        """What is to be seen now, once it has the pattern."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.screen.text(), re.S):
            assert time.monotonic() < end and self.look(0.05), (pattern, self.screen.text())
        return self.screen.text()

    @property
    def text(self):
        return COLORS.sub("", self.raw)

    def until(self, pattern, seconds=600):
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
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self.look(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"it does not end:\n{self.text}")


@contextlib.contextmanager
def terminal(*arguments, width=32, size=None, **environment):
    with tempfile.TemporaryDirectory() as folder:
        made = Terminal(tiny_model.make(f"{folder}/tiny", width), *arguments, size=size, **environment)
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
        assert "is unknown to /set" in t.say("/set n 5")
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
    # Of a wider model and without drafts, so that it cannot have come to the context's end before it is stopped.
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
    more = more if "input" in more else {"stdin": subprocess.DEVNULL, **more}
    done = subprocess.run([IBID, "run", *(str(a) for a in arguments)], capture_output=True, timeout=600, text=True, **more)
    assert done.returncode == code, done
    return done.stdout, done.stderr


def test_once_and_refusals():
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_model.make(f"{folder}/tiny")
        said, _ = run(made, "-p", "A colour?", "--json-schema", json.dumps(SCHEMA), "--seed", 2)
        assert json.loads(said)["colour"] in ("red", "blue"), said
        pathlib.Path(f"{folder}/schema.json").write_text(json.dumps(SCHEMA))
        assert run(made, "-p", "A colour?", "--json-schema", f"{folder}/schema.json", "--seed", 2)[0] == said
        for wrong, sentence in ((("--image", "cat.png"), "There is no file"), (("--json-schema", "{"), "--json-schema"),
                                (("--tools", f"{folder}/none"), "There is no file"), (("--tools", f"{folder}/schema.json"), "tools[0]"),
                                (("--raw", "--history", "x"), "are of conversations")):
            assert sentence in run(made, "-p", "x", *wrong, code=2)[1], wrong
        # A history that goes on, without a terminal; a file that is not one is reported and left alone.
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


def paste(text):
    return f"\x1b[200~{text}\x1b[201~"


def questions(t, folder):
    """What was asked so far."""
    t.say(f"/save {folder}/chat.json")
    return [text for role, text in messages(f"{folder}/chat.json") if role == "user"]


def test_a_paste_is_one_question():
    with tempfile.TemporaryDirectory() as folder, terminal(*ONLY, "--allowed-token-ids", "[65]", size=(60, 24)) as t:
        assert "2004" in t.screen.modes
        t.key("Look: " + paste("def f():\r    return 1\r\r# end\r"))
        t.until_screen("> Look: def f\\(\\):\n    return 1\n\n# end$")
        assert "AAAA" not in t.text  # nothing is sent before Enter
        t.key(" now\n")
        t.until(r"AAAA.*\n> $")
        t.key(paste("/help is\nno command here") + "\n")
        t.until(r"AAAA.*\n> $")
        t.key(paste("one line") + "\x1b[A")  # what was typed before is whole again
        t.until_screen("> /help is\nno command here$")
        t.key("\x15")
        t.say(paste('"""') + " quoted")
        t.say(paste("\x07con\x1btrol\x1b[31m"))  # control characters are no part of it
        asked = questions(t, folder)
        assert asked == ["Look: def f():\n    return 1\n\n# end now", "/help is\nno command here", '""" quoted', "control[31m"], asked
        t.say("/edit", r"control\[31m$")
        t.key("\x15/quit\n")
        assert t.end() == 0 and "2004" not in t.screen.modes
    with terminal(TERM="dumb") as t:
        assert "2004" not in t.raw


def test_a_paste_while_an_answer_runs_is_one_question():
    with tempfile.TemporaryDirectory() as folder, terminal("--ignore-eos", "-n", 40, "--seed", 3, "--allowed-token-ids", "[65]") as t:
        t.key("first\n")
        t.until("A")
        t.key(paste("a\nb\nc"))
        t.until(r"c$")
        t.key("\n")
        t.until(r"\n> $")
        assert questions(t, folder) == ["first", "a\nb\nc"]


def test_lines_are_joined():
    with tempfile.TemporaryDirectory() as folder, terminal(*ONLY, "--allowed-token-ids", "[65]") as t:
        t.say('"""one', r"\.\.\. $")
        t.say("two", r"\.\.\. $")
        t.say("", r"\.\.\. $")
        t.say('three"""')
        t.say("four \\", r"\.\.\. $")
        t.say("five")
        t.say('"""six"""')
        t.say('"""seven', r"\.\.\. $")
        t.key("\x03")
        t.until(r"> $")
        asked = questions(t, folder)
        assert asked == ["one\ntwo\n\nthree", "four \nfive", "six"], asked
        piped, _ = run(folder_model(folder), *ONLY, "--history", f"{folder}/piped.json", input='"""a\nb\n"""\nc \\\nd\n')
        assert [m[1] for m in messages(f"{folder}/piped.json") if m[0] == "user"] == ["a\nb", "c \nd"]


def folder_model(folder):
    return tiny_model.make(f"{folder}/tiny-of-its-own")


def test_a_line_longer_than_the_window_is_seen_as_it_is_sent():
    for term in ("xterm", "xterm-256color", "screen"):
        with tempfile.TemporaryDirectory() as folder, terminal(*ONLY, size=(40, 24), TERM=term) as t:
            line = " ".join(f"word{i}" for i in range(14))
            t.key(line)
            t.until_screen("word13$")
            t.key("\x01\x1bf\x1bfINSERTED ")
            wanted = "> word0 word1INSERTED " + line[len("word0 word1"):]
            rows = [wanted[i:i + 40] for i in range(0, len(wanted), 40)]
            t.until_screen(re.escape("\n".join(row.rstrip() for row in rows)) + "$")
            t.key("\x1bd\x1bd")  # and what is taken out again
            wanted = "> word0 word1INSERTED " + line[len("word0 word1 word2 word3"):]
            rows = [wanted[i:i + 40] for i in range(0, len(wanted), 40)]
            t.until_screen(re.escape("\n".join(row.rstrip() for row in rows)) + "$")
            t.key("\x15")
            t.key("\x03")


def test_words_are_not_cut_at_the_edge():
    with terminal(size=(30, 60)) as t:
        t.key("/help\n")
        shown = t.until_screen(r"stops an answer\.\n\n>$")
        words = set(re.findall(r"[A-Za-z]+", shown))
        assert {"forget", "message", "END", "begins", "whatever"} <= words, shown
        assert all(len(row) <= 30 for row in shown.split("\n"))


def test_what_is_no_command_is_refused_or_sent():
    with tempfile.TemporaryDirectory() as folder, terminal(*ONLY) as t:
        told = t.say("/helo")
        assert "/helo is no command; did you mean /help?" in told and "/regen" not in told, told
        assert "/zzzz is no command; /help lists them" in t.say("/zzzz and more")
        t.say("/etc/hosts is what?")
        t.say(" /help is a question")
        t.say("/ is the root?")
        assert questions(t, folder) == ["/etc/hosts is what?", " /help is a question", "/ is the root?"]
        assert "forget the conversation" in t.say("/help")
        t.key("/quit \n")  # as Tab completes it
        assert t.end() == 0


def test_a_full_context_states_what_to_do():
    with terminal("--ignore-eos", "--seed", 3, "--allowed-token-ids", "[65]", "-c", 48) as t:
        assert re.search(r"\[cut: the context is full, 4[89] of 48 tokens; /clear begins a new conversation, --ctx N gives more", t.say("long"))
        told = t.say("And then?")
        assert "The conversation does not fit into the context: " in told and "/clear begins a new one, --ctx N gives more, up to " in told, told
        t.say("/clear")
        assert "AAAA" in t.say("x")
    with terminal(*ONLY, "--allowed-token-ids", "[65]") as t:
        assert "AAAA\n[cut: 4 tokens are the most of an answer here" in t.say("long")
        assert t.raw.count("\x1b[2m[cut: ") == 1
    with terminal(*ONLY, "--allowed-token-ids", "[65]", size=(30, 24)) as t:
        t.key("long\n")
        shown = t.until_screen(r"gives more\]\n\n>$")
        assert "AAAA\n[cut: 4 tokens are the most of\nan answer here; " in shown, shown


def test_lines_are_kept_for_the_next_time():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "state/history")
        with terminal(*ONLY, IBID_HISTFILE=str(file)) as t:
            t.say("once asked")
            t.say(" not kept")
            t.key("/quit\n")
            t.end()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and "not kept" not in file.read_text()
        with terminal(*ONLY, IBID_HISTFILE=str(file)) as t:
            t.key("\x1b[A\x1b[A")
            t.until("once asked$")
        before = file.read_text()
        with terminal(*ONLY, "--no-history", IBID_HISTFILE=str(file)) as t:
            t.key("\x1b[A")
            t.say("nothing")
            assert "once asked" not in t.text
        assert file.read_text() == before


def test_the_banner_names_the_model_and_set_lists():
    with terminal("-t", 1, "-c", 64, size=(100, 24)) as t:
        assert re.search(r"tiny \(tiny\): \S+ \S+ \S+, 64 tokens of context, 1 threads\. /help", t.screen.text()), t.screen.text()
        listed = t.say("/set")
        assert "seed " in listed and "Nothing else is set" in listed, listed
        assert "temperature is 0" in t.say("/set temperature 0")
        t.say("/system Be brief.")
        listed = t.say("/set")
        assert "temperature 0\n" in listed and 'system "Be brief."' in listed and "Nothing else" not in listed, listed
        assert "as it was" in t.say("/set temperature null")
        assert "Nothing else is set" in t.say("/set")


def test_a_long_prompt_tells_how_far_it_is():
    with terminal("-n", 2, "--ignore-eos", width=256, size=(80, 24)) as t:
        t.key(paste("word " * 500) + "\n")
        t.until(r"\n> $", 60)
        told = re.findall(r"reading (\d+) of (\d+) tokens", t.text)
        assert told and all(int(done) < int(of) for done, of in told), told
        assert "reading" not in t.screen.text()


def test_a_backspace_takes_what_a_reader_takes_for_one_character():
    family = "\U0001F469\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466"
    with tempfile.TemporaryDirectory() as folder, terminal(*ONLY, size=(60, 24)) as t:
        t.key(f"a {family}")
        t.until_screen("\U0001F466")
        t.key("\x7f")
        t.until_screen("> a$")
        t.key("e\u0301\x7f\U0001F1E9\U0001F1EA\x7fx")
        t.until_screen("> a x$")
        t.key(f"{family}b\x1b[D\x1b[D\x1b[3~")  # back over both, and the family goes
        t.until_screen("> a xb$")
        t.key("\n")
        t.until(r"\n> $")
        assert questions(t, folder) == ["a xb"]



if __name__ == "__main__":
    main(test_lines_are_edited_and_brought_back, test_tab_completes, test_commands, test_an_answer_is_stopped,
         test_tools_are_answered_by_hand_or_refused, test_once_and_refusals, test_what_a_model_writes_commands_no_terminal,
         test_a_paste_is_one_question, test_a_paste_while_an_answer_runs_is_one_question, test_lines_are_joined,
         test_a_line_longer_than_the_window_is_seen_as_it_is_sent, test_words_are_not_cut_at_the_edge,
         test_what_is_no_command_is_refused_or_sent, test_a_full_context_states_what_to_do, test_lines_are_kept_for_the_next_time,
         test_the_banner_names_the_model_and_set_lists, test_a_long_prompt_tells_how_far_it_is,
         test_a_backspace_takes_what_a_reader_takes_for_one_character)
