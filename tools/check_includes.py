#!/usr/bin/env python3
"""Fails on an include or a link that climbs the floors of the house (docs/design.md section 1 has the same tables).

A folder may include itself and folders on lower floors; never another folder of its own floor, and never another's
subfolders. CMakeLists.txt links the folders' libraries: what a folder includes it must link, by one arrow or several.
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
# Walls: what these folders may not name even on a lower floor.
WALLS = {
    "cache": {"text", "format", "kernels", "tensor", "comm"},
}
# A folder's subfolders are its own: others see what lies in the folder itself. Except these, each for a reason.
OPEN_SUBFOLDERS = {
    "model/testing",  # tiny models with known answers: the selftest's, too
}
NO_SYSTEM_HEADERS = {
    "engine": re.compile(r"boost/(beast|asio|json)|sys/socket"),
}


def links(root):
    """What each ibid_module of CMakeLists.txt names."""
    text = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    modules = re.findall(r"^ibid_module\((\w+)\s+DEPENDS([^)]*)\)", text, re.M)
    return {name: depends.split() for name, depends in modules}


def linked(folder, modules):
    """Everything that it links, by one arrow or several."""
    found, ahead = set(), [folder]
    while ahead:
        for other in modules.get(ahead.pop(), ()):
            if other not in found:
                found.add(other)
                ahead.append(other)
    return found


def climbing_links(modules):
    for folder, others in modules.items():
        for other in [folder, *others]:
            if other not in FLOOR_OF:
                yield f"CMakeLists.txt: {folder} links {other}, which is on no floor"
            elif other != folder and FLOOR_OF[other] >= FLOOR_OF.get(folder, 0):
                yield f"CMakeLists.txt: {folder} links {other}, which is not below it"


def faults(root):
    modules = links(root)
    yield from climbing_links(modules)
    reach = {folder: linked(folder, modules) for folder in modules}
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
            subfolder = re.match(r'\s*#\s*include\s*"([^"/]+/[^"/]+)/', line)
            if subfolder and subfolder[1] not in OPEN_SUBFOLDERS:
                yield f"{where}: {folder} looks into {subfolder[1]}, which is {other}'s own"
            if other in WALLS.get(folder, ()):
                yield f"{where}: {folder} may not know {other}"
            elif FLOOR_OF[other] >= FLOOR_OF[folder]:
                yield f"{where}: {folder} (floor {FLOOR_OF[folder]}) includes {other} (floor {FLOOR_OF[other]})"
            elif other not in reach.get(folder, ()):
                yield f"{where}: {folder} includes {other}, which CMakeLists.txt does not link to it"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(faults(root))
    print("\n".join(found) if found else "every include and every link goes down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
