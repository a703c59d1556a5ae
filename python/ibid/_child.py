"""`ibid serve` as a child of this process, for faces of other programs (ibid.ray, ibid.dynamo)."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from .errors import IbidError
from .llm import program

_PR_SET_PDEATHSIG = 1


class Child:
    """A server on a free port of the loopback device. It ends with this process, however that ends.

    Args:
        model: as of `ibid serve`; "" or "default": the default model.
        flags: further flags of `ibid serve`.
        timeout: seconds in which it must be ready.

    Raises:
        FileNotFoundError: there is no `ibid` program.
        IbidError: it ended, or is not ready in time; with its last line.
    """

    def __init__(self, model: str, flags: Sequence[str] = (), timeout: float = 600) -> None:
        self._log = tempfile.NamedTemporaryFile("rb", prefix="ibid-child-")
        library = ctypes.CDLL(None)  # looked up here: between fork and exec nothing is allocated

        def end_with_parent() -> None:
            library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        command = [str(program()), "serve", *([model] if model not in ("", "default") else []), "--host", "127.0.0.1", "--port", "0",
                   "--no-request-log", *flags]
        with open(self._log.name, "wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                                             preexec_fn=end_with_parent)
        self.pid = self._process.pid
        try:
            self.port = self._wait(timeout)
        except BaseException:
            self.close()
            raise

    def _wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            told = self._told()
            found = re.search(r"http://[^ ]*?:(\d+)/health", told)
            if found and "Serving " in told:
                return int(found[1])
            if not self.is_alive():
                raise IbidError(f"ibid serve ended: {self.last_line()}")
            time.sleep(0.05)
        raise IbidError(f"ibid serve is not ready after {timeout:.0f} s: {self.last_line()}")

    def _told(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def last_line(self) -> str:
        lines = self._told().strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends it at once; answers that run break off."""
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
