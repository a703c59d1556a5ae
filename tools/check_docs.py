#!/usr/bin/env python3
"""Fails where a page says what is not so: a path that does not exist, or a row whose test does not exist.

Paths: everything in `backticks` in README.md and docs/ that looks like a path of this repository.
Rows: every `Suite.Test` (or `path::name` for scripts) in docs/rows.md must be a test in the sources.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
TOP = ("src/", "tests/", "tools/", "docs/", "bench/", "scripts/", "packaging/", "cmake/", ".ci/")


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def wrong_paths():
    for page in pages():
        for n, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for word in re.findall(r"`([^`\s]+)`", line) + re.findall(r"\]\(([^)#:\s]+)\)", line):
                target = word.split(":")[0].rstrip("/")
                if target.startswith(TOP) and not any(c in target for c in "*{<$"):
                    found = (ROOT / target).exists()
                elif re.fullmatch(r"\.{0,2}[\w./-]+\.md", target) and "/" not in word.lstrip("./"):
                    found = (page.parent / target).exists() or (ROOT / target).exists()
                else:
                    continue
                if not found:
                    yield f"{page.relative_to(ROOT)}:{n}: there is no {word}"


def tests():
    names = set()
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("*.cc"):
            text = path.read_text(encoding="utf-8")
            for kind, suite, name in re.findall(r"\b(TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\s*(\w+),\s*(\w+)", text):
                names.add(f"{suite}.{name}")
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M):
                names.add(f"{path.relative_to(ROOT)}::{name}")
        for path in (ROOT / folder / "scenario").rglob("*.txt"):
            names.add(str(path.relative_to(ROOT)))
    return names


def wrong_rows():
    known = tests()
    seen = set()
    for n, line in enumerate((ROOT / "docs/rows.md").read_text(encoding="utf-8").splitlines(), 1):
        if not re.match(r"\|\s*[A-Z]+\d+", line):
            continue
        row = line.split("|")[1].strip()
        if row in seen:
            yield f"docs/rows.md:{n}: the row {row} stands twice"
        seen.add(row)
        named = re.findall(r"`([^`]+)`", line.split("|", 2)[2])
        for name in named:
            if (re.fullmatch(r"\w+\.\w+", name) or "::" in name or name.endswith(".txt")) and name not in known:
                yield f"docs/rows.md:{n}: row {row} names {name}, and there is no such test"
        if not named:
            yield f"docs/rows.md:{n}: row {row} names no test"


found = [*wrong_paths(), *wrong_rows()]
print("\n".join(found) if found else "every path and every test that the pages name exists")
sys.exit(1 if found else 0)
