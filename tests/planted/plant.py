#!/usr/bin/env python3
"""Writes copies of the product's sources with the faults of faults.txt in them, for the program that shows that tests would
find them (docs/developers/planted_faults.md).

  plant.py SOURCE_DIR FAULTS OUT_DIR       OUT_DIR/src/... for each file that has faults

FAULTS has a section for each file, `file src/...`, with changes that are separated by blank lines: lines after `-`, as they
stand in the source, and lines after `+` that take their place, in which PLANTED("name") is true while the fault of that
name is switched on. The lines after `-` must occur in the file exactly once, one after the other; spaces around a line do
not count. Lines after `#` are comments.
"""
import pathlib
import re
import sys


def read(faults):
    """[(file, [(number of the line in FAULTS, lines before, lines after)])]"""
    files, before, after, start = [], [], [], 0

    def end_change():
        nonlocal before, after
        if before or after:
            files[-1][1].append((start, before, after))
            before, after = [], []

    for n, line in enumerate(faults.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("file "):
            end_change()
            files.append((line.removeprefix("file ").strip(), []))
        elif line.startswith("-"):
            if after:
                end_change()
            start = start if before else n
            before.append(line[1:])
        elif line.startswith("+"):
            after.append(line[1:])
        elif not line:
            end_change()
        elif not line.startswith("#"):
            sys.exit(f"{faults}:{n}: a line begins with file, -, + or #: {line}")
    end_change()
    return files


def planted(source, name, changes, faults):
    """The source with its changes; each stretch names the line that it stands for, so that a compiler names it too."""
    lines = source.splitlines()
    stripped = [line.strip() for line in lines]
    places = []
    for n, before, after in changes:
        wanted = [line.strip() for line in before]
        found = [i for i in range(len(lines) - len(wanted) + 1) if stripped[i:i + len(wanted)] == wanted]
        if not wanted or len(found) != 1:
            planted_here = ", ".join(re.findall(r'PLANTED\("(\w+)"\)', "\n".join(after))) or "a part of one"
            sys.exit(f"{faults}:{n}: these lines stand {len(found)} times in {name}, and must stand there once. A change of them "
                     f"changes the fault too ({planted_here}):\n" + "\n".join(before))
        places.append((found[0], len(wanted), after))
    places.sort()
    out, at = ['#include "planted/planted.h"', f'#line 1 "{name}"'], 0
    for place, n_before, after in places:
        if place < at:
            sys.exit(f"{faults}: two changes of {name} overlap at its line {place + 1}")
        out += [*lines[at:place], *after, f'#line {place + n_before + 1} "{name}"']
        at = place + n_before
    return "\n".join([*out, *lines[at:]]) + "\n"


def main():
    root, faults, out = (pathlib.Path(argument) for argument in sys.argv[1:4])
    for name, changes in read(faults):
        text = planted((root / name).read_text(encoding="utf-8"), name, changes, faults)
        copy = out / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:  # what is unchanged is not compiled again
            copy.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
