"""The `ibid` command: the program in this package."""

from __future__ import annotations

import os
import sys

from .llm import program


def main() -> None:
    command = str(program())
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
