"""What scripts/common.sh shows while a long command runs, in a terminal. quickstart_test.py BUILD_DIR."""
import contextlib
import os
import pathlib
import pty
import re
import select
import shutil
import tempfile
import time

from harness import ROOT, main

# A command that prints a line and then waits, so that the output meanwhile comes from that line only.
WAITS = """#!/bin/sh
echo "$SAYS"
read -r go < "$GO"
echo "a.cc:1: warning: odd"
echo "  as it was before"
echo "[2/2] done"
exit "$CODE"
"""


class Shell:
    def __init__(self, folder, command, output, code=0):
        self.folder = folder
        shutil.copytree(ROOT / "scripts", folder / "scripts", dirs_exist_ok=True)
        (folder / "bin").mkdir(exist_ok=True)
        for name in ("ninja", "apt-get", "cmake"):
            (folder / "bin" / name).write_text(WAITS)
            (folder / "bin" / name).chmod(0o755)
        (folder / "bin" / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
        (folder / "bin" / "dpkg-query").chmod(0o755)
        (folder / "bin" / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
        (folder / "bin" / "sudo").chmod(0o755)
        os.mkfifo(folder / "go")
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.environ.update({"PATH": f"{folder}/bin:{os.environ['PATH']}", "SAYS": output, "GO": str(folder / "go"), "CODE": str(code),
                                   "TERM": "xterm"})
                os.execv("/bin/bash", ["bash", "-c", f'. "{folder}/scripts/common.sh"; {command}; echo "the end"'])
            finally:  # a child that starts nothing must not go on with the tests
                os._exit(127)
        self.shown = ""

    def until(self, text):
        end = time.monotonic() + 60
        while not re.search(text, self.shown):
            assert select.select([self.fd], [], [], max(0, end - time.monotonic()))[0], (text, self.shown)
            try:
                self.shown += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                assert re.search(text, self.shown), (text, self.shown)

    def go(self):
        (self.folder / "go").write_text("go\n")

    def end(self):
        with contextlib.suppress(OSError):
            while more := os.read(self.fd, 65536):
                self.shown += more.decode(errors="replace")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def shows(command, output, code=0):
    """A line is shown while the command still runs, and the seconds where no other comes."""
    with tempfile.TemporaryDirectory() as name:
        shell = Shell(pathlib.Path(name), command, output, code)
        shell.until(re.escape(output))
        shell.until(r" \d+ s")
        shell.go()
        if code == 0:
            shell.until("the end")
        return shell.end(), shell.shown


def test_a_line_is_shown_before_the_next_one_comes():
    code, shown = shows("build_targets ibid", "[1/2] Building a.cc")
    assert code == 0 and "a.cc:1: warning: odd\r\n" in shown and "  as it was before\r\n" in shown, shown
    assert "\r\x1b[K[2/2] done" in shown, shown
    assert shows("configure", "-- Looking for threads")[0] == 0
    assert shows("install_packages thing", "Get:1 thing")[0] == 0


def test_a_build_that_fails_ends_with_a_sentence():
    code, shown = shows("build_targets ibid", "[1/2] Building a.cc", 1)
    assert code == 1 and "the build failed; the whole log is build/log/build.txt" in shown and "the end" not in shown, (code, shown)


if __name__ == "__main__":
    main(test_a_line_is_shown_before_the_next_one_comes, test_a_build_that_fails_ends_with_a_sentence)
