#!/usr/bin/env python3
"""Makes of the page's plain files what the binary serves: bundle_page.py PAGE_DIR OUT.cc

One script of theme.js and the modules that app.js imports, one style sheet, index.html and the pictures; each as it is and,
where that is shorter, compressed; with a version that changes with its bytes. The same files give the same bytes.
"""
import gzip
import hashlib
import pathlib
import re
import sys

STYLES = ("app.css", "chat.css", "engine.css")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.M)
EXPORT = re.compile(r"^export (?:async )?(?:const|function\*?|class) (\w+)", re.M)


class Bundle:
    """Modules as functions that return what they export, each after those that it imports."""

    def __init__(self, folder):
        self.folder, self.order, self.on_the_way, self.parts = folder, [], [], []

    def add(self, name):
        if name in self.order:
            return
        if name in self.on_the_way:
            sys.exit(f"{name} imports itself, by way of {', '.join(self.on_the_way)}")
        self.on_the_way.append(name)
        text = (self.folder / name).read_text()
        imports = IMPORT.findall(text)
        for _, other in imports:
            self.add(other)
        body = IMPORT.sub("", text)
        names = EXPORT.findall(body)
        body = re.sub(EXPORT, lambda found: found[0].removeprefix("export "), body)
        if wrong := re.search(r"^\s*(?:import|export)\b.*|\bimport\(.*|\bimport\.meta\b.*", body, re.M):
            sys.exit(f"{name}: this form of import or export is not bundled: {wrong[0]}")
        if wrong := next((given for given, _ in imports if " as " in given), None):
            sys.exit(f"{name}: a name is imported as it is exported, not so: {wrong}")
        head = "".join(f"const {{{given}}} = {variable(other)};\n" for given, other in imports)
        self.parts.append(f"// ---- {name}\nconst {variable(name)} = (() => {{\n{head}{body}return {{ {', '.join(names)} }};\n}})();\n")
        self.on_the_way.pop()
        self.order.append(name)


def variable(name):
    return "module_" + name.removesuffix(".js")


def modules(folder, name):
    """A strict script that defines variable(name) for this module and those that it imports; and the names of their files."""
    bundle = Bundle(pathlib.Path(folder))
    bundle.add(name)
    return '"use strict";\n' + "".join(bundle.parts), bundle.order


def files(folder):
    """What is served: path, type, bytes."""
    folder = pathlib.Path(folder)
    # It stands in the page's head, so that the theme is known before anything is painted.
    bundled, names = modules(folder, "app.js")
    forgotten = {path.name for path in folder.iterdir()} - {*names, *STYLES, "theme.js", "index.html", *(path.name for path in folder.glob("*.svg"))}
    if forgotten:
        sys.exit(f"nothing of the page takes {', '.join(sorted(forgotten))}")
    script = (folder / "theme.js").read_text() + 'addEventListener("DOMContentLoaded", () => {\n' + bundled + "});\n"
    made = {"app.js": script.encode(), "app.css": b"".join((folder / name).read_bytes() for name in STYLES)}
    for path in folder.glob("*.svg"):
        made[path.name] = path.read_bytes()
    page = (folder / "index.html").read_text()
    for name, content in made.items():  # an address of its own for each version: it may be kept for ever
        page = page.replace(f'="{name}"', f'="{name}?{version(content)}"')
    made[""] = page.encode()
    return [(name, TYPES[pathlib.Path(name or "index.html").suffix], content) for name, content in sorted(made.items())]


def version(content):
    return hashlib.sha256(content).hexdigest()[:16]


def array(symbol, content):
    lines = [content[i:i + 24] for i in range(0, len(content), 24)]
    body = "\n".join("".join(f"'\\x{byte:02x}'," for byte in line) for line in lines)
    return f"constexpr char {symbol}[] = {{{body}'\\0'}};\n\n"


def main(folder, out):
    text, rows = '#include "server/routes/page_files.h"\n\nnamespace ibid {\nnamespace {\n\n', ""
    for i, (name, kind, content) in enumerate(files(folder)):
        packed = gzip.compress(content, 9, mtime=0)
        packed = packed if len(packed) < len(content) else b""
        text += array(f"kPlain{i}", content) + (array(f"kPacked{i}", packed) if packed else "")
        views = [f"{{k{which}{i}, sizeof k{which}{i} - 1}}" for which in ("Plain", "Packed")[:2 if packed else 1]]
        rows += f'    {{"/{name}", "{kind}", "{version(content)}", {", ".join(views)}}},\n'
    text += f"constexpr PageFile kFiles[] = {{\n{rows}}};\n\n}}  // namespace\n\n"
    text += "std::span<const PageFile> page_files() { return kFiles; }\n\n}  // namespace ibid\n"
    pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(out).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
