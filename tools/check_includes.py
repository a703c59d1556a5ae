#!/usr/bin/env python3
"""Fails on an include that climbs the floors of the house (docs/how_it_works.md names them).

A folder may include itself and folders on lower floors; never another folder of its own floor. The one arrow inside a
floor that is allowed is named below.
"""
import pathlib
import re
import sys

FLOORS = [
    ["base"],
    ["tensor"],
    ["comm", "text"],
    ["kernels", "format"],
    ["model", "cache", "sample"],
    ["spec"],
    ["engine"],
    ["server", "cluster"],
    ["cli", "python"],
]
FLOOR_OF = {folder: i for i, floor in enumerate(FLOORS) for folder in floor}
SAME_FLOOR_ARROWS = set()
# Walls: what these folders may not name even on a lower floor.
WALLS = {
    "cache": {"text", "format", "kernels", "tensor", "comm"},
}
NO_SYSTEM_HEADERS = {
    "engine": re.compile(r"boost/(beast|asio|json)|sys/socket"),
}


def faults(root):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".cc", ".inl", ".cu", ".cuh"}:
            continue
        folder = path.relative_to(root / "src").parts[0]
        if folder not in FLOOR_OF:
            yield f"{path.relative_to(root)}: the folder {folder} is on no floor"
            continue
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"{path.relative_to(root)}:{n}"
            system = re.match(r'\s*#\s*include\s*<([^>]+)>', line)
            if system and folder in NO_SYSTEM_HEADERS and NO_SYSTEM_HEADERS[folder].search(system[1]):
                yield f"{where}: {folder} knows nothing of <{system[1]}>"
            match = re.match(r'\s*#\s*include\s*"([^"/]+)/[^"]+"', line)
            if not match or match[1] == folder or match[1] not in FLOOR_OF:
                continue
            other = match[1]
            if other in WALLS.get(folder, ()):
                yield f"{where}: {folder} may not know {other}"
            elif FLOOR_OF[other] >= FLOOR_OF[folder] and (folder, other) not in SAME_FLOOR_ARROWS:
                yield f"{where}: {folder} (floor {FLOOR_OF[folder]}) includes {other} (floor {FLOOR_OF[other]})"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(faults(root))
    print("\n".join(found) if found else "every include goes down")
    return 1 if found else 0


sys.exit(main())
