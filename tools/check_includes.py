#!/usr/bin/env python3
"""Fails on an include or a link that climbs the floors of the house (docs/design.md section 1 has the same tables).

A folder may include itself and folders on lower floors; never another folder of its own floor, and never another's
subfolders. The rooms of a folder are ordered too, and one that has a door is entered by it alone. CMakeLists.txt links
the folders' libraries: what a folder includes it must link, by one arrow or several.
"""
import pathlib
import re
import sys

FLOORS = [
    ["base"],
    ["tensor", "image"],
    ["comm", "text"],
    ["kernels", "format"],
    ["model", "cache", "sample"],
    ["worker"],
    ["spec"],
    ["engine"],
    ["host"],
    ["server", "cluster"],
    ["cli"],
    ["capi"],
]
# Folders within a folder, rising: a room may include those before it. "." are the files that lie in no room; where it is
# not in the list, they lie below all rooms.
ROOMS = {
    "cli": ["terminal", "options", "chat", "measure", "."],
    "engine": ["state", "schedule", "step", ".", "record"],
    "server": ["wire", "fields", "access", "observe", "request", "dialects", "answer", "routes", "net", "."],
    "text": ["tokenizer", "output", "jinja"],
    "sample": ["grammar"],
    "spec": ["lookup", "drawn", "model", "heads", "experimental"],
}
# Rooms of which all others include one header.
DOORS = {
    "text/jinja": "chat_template.h",
}
FLOOR_OF = {folder: i for i, floor in enumerate(FLOORS) for folder in floor}
FLOOR_OF |= {house if room == "." else f"{house}/{room}": int(FLOOR_OF[house]) + i / 100
             for house in ROOMS for i, room in enumerate(ROOMS[house], 1)}
# Walls: what these folders may not name even on a lower floor.
WALLS = {
    "cache": {"text", "format", "kernels", "tensor", "comm"},
}
# A folder's subfolders are its own: others see what lies in the folder itself. Except these, each for a reason.
OPEN_SUBFOLDERS = {
    "model/testing",  # tiny models with known answers: the selftest's, too
    "model/vision",   # towers, beside the models: what requests show goes through them
}
NO_SYSTEM_HEADERS = {
    "engine": re.compile(r"boost/(beast|asio|json)|sys/socket"),
}


def links(root):
    """What each ibid_module of CMakeLists.txt names."""
    text = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    modules = re.findall(r"^ibid_module\(([\w/]+)\s+DEPENDS([^)]*)\)", text, re.M)
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


def climbs(folder, other):
    """Whether `other` is not below `folder`: in a house by its rooms, elsewhere by whole floors."""
    if folder.split("/")[0] == other.split("/")[0]:
        return FLOOR_OF[other] >= FLOOR_OF[folder]
    return int(FLOOR_OF[other]) >= int(FLOOR_OF[folder])


def climbing_links(modules):
    for folder, others in modules.items():
        for other in [folder, *others]:
            if other not in FLOOR_OF:
                yield f"CMakeLists.txt: {folder} links {other}, which is on no floor"
            elif folder in FLOOR_OF and other != folder and climbs(folder, other):
                yield f"CMakeLists.txt: {folder} links {other}, which is not below it"


def folder_of(path):
    """Of a path below src/: its room where it lies in one, else the folder at the top."""
    parts = path.split("/")
    return "/".join(parts[:2]) if "/".join(parts[:2]) in FLOOR_OF else parts[0]


def lines(root, *folders):
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*")):
        if path.suffix in {".h", ".cc", ".inl", ".cu", ".cuh"}:
            name = str(path.relative_to(root))
            for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if n == 1 or "include" in line:
                    yield name, n, line


def past_doors(root):
    for path, n, line in lines(root, "src", "tests", "bench"):
        match = re.match(r'\s*#\s*include\s*"([^"]+)/([^"/]+)"', line)
        door = DOORS.get(match[1]) if match else None
        if door and match[2] != door and not path.startswith(f"src/{match[1]}/"):
            yield f"{path}:{n}: of {match[1]} others include {door} alone"


def faults(root):
    modules = links(root)
    yield from climbing_links(modules)
    yield from past_doors(root)
    reach = {folder: linked(folder, modules) for folder in modules}
    module_of = lambda folder: folder if folder in modules else folder.split("/")[0]
    for path, n, line in lines(root, "src"):
        folder = folder_of(path.removeprefix("src/"))
        where = f"{path}:{n}"
        if folder not in FLOOR_OF:
            if n == 1:
                yield f"{path}: the folder {folder} is on no floor"
            continue
        system = re.match(r'\s*#\s*include\s*<([^>]+)>', line)
        if system and folder in NO_SYSTEM_HEADERS and NO_SYSTEM_HEADERS[folder].search(system[1]):
            yield f"{where}: {folder} may not include <{system[1]}>"
        match = re.match(r'\s*#\s*include\s*"([^"/]+/[^"]+)"', line)
        other = folder_of(match[1]) if match else folder
        if other == folder or other not in FLOOR_OF:
            continue
        subfolder = re.match(r'\s*#\s*include\s*"([^"/]+/[^"/]+)/', line)
        if subfolder and other.split("/")[0] != folder.split("/")[0]:
            if subfolder[1] not in OPEN_SUBFOLDERS and subfolder[1] not in FLOOR_OF:
                yield f"{where}: {folder} looks into {subfolder[1]}, which is {other}'s own"
        if other.split("/")[0] in WALLS.get(folder, ()):
            yield f"{where}: {folder} may not include {other}"
        elif climbs(folder, other):
            yield f"{where}: {folder} (floor {FLOOR_OF[folder]}) includes {other} (floor {FLOOR_OF[other]})"
        elif module_of(other) not in {module_of(folder), *reach.get(module_of(folder), ())}:
            yield f"{where}: {folder} includes {other}, which CMakeLists.txt does not link to it"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(faults(root))
    print("\n".join(found) if found else "every include and every link goes down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
