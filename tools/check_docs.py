#!/usr/bin/env python3
"""Fails where a page states what is not so, and where a source cites what no page has.

Paths: everything in `backticks` in the pages that looks like a path of this repository, and every link between pages.
Rows: docs/rows.md names each row once; a row that is done, wholly or in part, names tests that exist in the sources
(`Suite.Test`, `path::name` for scripts and ctest, or a scenario), a row that is not done yet names none.
Citations: each "docs/design.md section N, law M" and each "row X3" of sources and pages leads to a section, law or row.
Floors: the tables of docs/design.md section 1 are those of tools/check_includes.py, its empty seats are empty, and the
picture shows the same folders.
Comments: a header or source that a comment names exists.
Quoted code: a block that names a source (```cpp src/engine/engine.cc) stands in it, line by line.
Models: docs/users/models.md names each architecture and each weight type of the sources.
Budgets: docs/README.md names every page but decisions, with the words that it may have.
Words: none that the field has another word for (WORDS below), and no code that speaks like a person (PERSONS).
Modes: a script with #! may be executed, as pages' commands do.
"""
import fnmatch
import pathlib
import re
import sys

import check_includes

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
TOP = ("src/", "tests/", "tools/", "docs/", "bench/", "scripts/", "packaging/", "cmake/", ".ci/")
SOURCES = {".h", ".cc", ".inl", ".cu", ".py", ".txt", ".cmake", ".md"}
ROW = r"[A-Z][1-9]\d*\b"


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def pages():
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def below(*folders):
    """All files of these folders, in order."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]


def wrong_paths():
    for page in pages():
        for n, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for word in re.findall(r"`([^`\s]+)`", line):
                target = word.split(":")[0].rstrip("/")
                if target.startswith(TOP) and not any(c in target for c in "*{<$"):
                    found = (ROOT / target).exists()
                elif re.fullmatch(r"\.{0,2}[\w./-]+\.md", target) and "/" not in word.lstrip("./"):
                    found = (page.parent / target).exists() or (ROOT / target).exists()
                else:
                    continue
                if not found:
                    yield f"{page.relative_to(ROOT)}:{n}: there is no {word}"
            for link in re.findall(r"\]\(([^)#:\s]+)[^)]*\)", line):
                if not (page.parent / link).exists():
                    yield f"{page.relative_to(ROOT)}:{n}: the link {link} leads nowhere"


def tests():
    names = set()
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("*.cc"):
            text = path.read_text(encoding="utf-8")
            for _, suite, name in re.findall(r"\b(TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\s*(\w+),\s*(\w+)", text):
                names.add(f"{suite}.{name}")
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M):
                names.add(f"{path.relative_to(ROOT)}::{name}")
        for path in (ROOT / folder).rglob("tests.cmake"):
            for name in re.findall(r"^add_test\(NAME (\w+)", path.read_text(encoding="utf-8"), re.M):
                names.add(f"{path.relative_to(ROOT)}::{name}")
        for path in (ROOT / folder / "scenario").rglob("*.txt"):
            names.add(str(path.relative_to(ROOT)))
    return names


def rows():
    """Line number, row, whether it is done (wholly or in part), and what its last column names in backticks."""
    done = True
    for n, line in enumerate(read("docs/rows.md").splitlines(), 1):
        if line.startswith("## "):
            done = line != "## Not yet"
        if re.match(r"\|\s*" + ROW, line):
            columns = [column.strip() for column in line.strip().strip("|").split("|")]
            yield n, columns[0], done, re.findall(r"`([^`]+)`", columns[-1]) if done else []


def wrong_rows():
    known = tests()
    seen = set()
    for n, row, done, named in rows():
        if row in seen:
            yield f"docs/rows.md:{n}: the row {row} stands twice"
        seen.add(row)
        for name in named:
            if name not in known:
                yield f"docs/rows.md:{n}: row {row} names {name}, and there is no such test"
        if done and not named:
            yield f"docs/rows.md:{n}: row {row} names no test"
    if not seen:
        yield "docs/rows.md has no rows"


def cited_texts():
    """Every file that may cite, as one line: a citation goes on after the end of a comment's line."""
    for path in [*below("src", "tests", "bench", "tools", "cmake"), *pages(), ROOT / "CMakeLists.txt"]:
        if path.suffix in SOURCES:
            text = path.read_text(encoding="utf-8", errors="replace")
            if "docs/design.md" in text or "row " in text.lower() or "rows " in text.lower():
                yield path.relative_to(ROOT), re.sub(r"\s*\n\s*(?://+|#+)?\s*", " ", text)


def wrong_citations():
    sections = re.split(r"^## (\d+)\. ", read("docs/design.md"), flags=re.M)
    sections = dict(zip(sections[1::2], sections[2::2]))
    laws = set(re.findall(r"^(\d+)\. \*\*", sections.get("5", ""), re.M))
    known = {row for _, row, _, _ in rows()}
    citation = re.compile(r"docs/design\.md`?,? section (\d+)(?:,? laws? (\d+(?:(?:, | and | to )\d+)*))?")
    for path, text in cited_texts():
        for section, cited in citation.findall(text):
            if section not in sections:
                yield f"{path}: docs/design.md has no section {section}"
            for law in re.findall(r"\d+", cited):
                if section != "5" or law not in laws:
                    yield f"{path}: docs/design.md section {section} has no law {law}"
        for cited in re.findall(rf"\b[Rr]ows? ({ROW}(?:(?:, | and |-| to ){ROW})*)", text):
            for row in re.findall(ROW, cited):
                if row not in known:
                    yield f"{path}: docs/rows.md has no row {row}"


def wrong_floors():
    page = re.split(r"^## 2\. ", read("docs/design.md"), flags=re.M)[0]
    folders = lambda text: set(re.findall(r"`(\w+)/`", text))
    stated = {int(floor): folders(text) for floor, text in re.findall(r"^\| (\d+) \|([^|]*)\|", page, re.M)}
    held = {i: set(floor) for i, floor in enumerate(check_includes.FLOORS)}
    for floor in sorted(stated.keys() | held.keys()):
        if stated.get(floor) != held.get(floor):
            yield (f"docs/design.md section 1: floor {floor} has {sorted(stated.get(floor, []))}, "
                   f"tools/check_includes.py has {sorted(held.get(floor, []))}")
    walls = {folder: folders(text) for folder, text in re.findall(r"^\| `(\w+)/` \|([^|]*)\|", page, re.M)}
    if walls != check_includes.WALLS:
        yield f"docs/design.md section 1: the walls are {walls}, tools/check_includes.py has {check_includes.WALLS}"
    rooms = {house: re.findall(r"`(\w+|\.)/`", text) for house, text in re.findall(r"^\| `(\w+)` \|([^|]*)\|", page, re.M)}
    if rooms != check_includes.ROOMS:
        yield f"docs/design.md section 1: the rooms are {rooms}, tools/check_includes.py has {check_includes.ROOMS}"
    doors = dict(re.findall(r"^\| `([\w/]+)/` \| `(\w+\.h)` \|", page, re.M))
    if doors != check_includes.DOORS:
        yield f"docs/design.md section 1: the doors are {doors}, tools/check_includes.py has {check_includes.DOORS}"
    empty = {folder for folder in set().union(*held.values()) if not (ROOT / "src" / folder).is_dir()}
    seats = re.search(r"^Empty seats: (.*)", page, re.M)
    if (folders(seats[1]) if seats else set()) != empty:
        yield f"docs/design.md section 1: the empty seats are {sorted(empty)}"
    drawn = set(re.findall(r'class="name"[^>]*>(\w+)<', read("docs/pictures/floors.svg")))
    if drawn != set().union(*held.values()):
        yield f"docs/pictures/floors.svg shows {sorted(drawn)}"


def wrong_models():
    page = re.search(r"^## What runs\n(.*?)^## ", read("docs/users/models.md"), re.M | re.S)[1]
    rows = re.findall(r'^\s*\{"(\w*)", "(\w+)", \w+_from_gguf', read("src/model/arch/architecture.cc"), re.M)
    types = re.findall(r'\{"(\w*(?:F\d+|Q\d_\w+|IQ\d_\w+|FP4))", \d+, \d+\}', read("src/tensor/dtype.cc"))
    for name in sorted({f"`{name}`" for row in rows for name in row if name} | set(types) - {"F64"}):
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", page):
            yield f"docs/users/models.md does not say that {name} runs"
    if len(rows) < 8 or len(types) < 16:
        yield "docs/users/models.md: tools/check_docs.py no longer finds the architectures or the weight types in the sources"


def wrong_budgets():
    """Rows of docs/README.md: | [page](path) | words that it may have | what it is |"""
    budgets = {}
    for link, words in re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \| ([\d,]+) \|", read("docs/README.md"), re.M):
        budgets[str((ROOT / "docs" / link).resolve().relative_to(ROOT.resolve()))] = int(words.replace(",", ""))
    for page in pages():
        path = str(page.relative_to(ROOT))
        if path.startswith("docs/decisions/") or path == "docs/README.md":
            continue
        words = len(page.read_text(encoding="utf-8").split())
        if path not in budgets:
            yield f"docs/README.md does not name {path}"
        elif words > budgets[path]:
            yield f"{path} has {words} words, docs/README.md allows {budgets[path]}"


# Headers and sources that comments name: "cache/tier.h", "parser*.cc". Names of one letter are expressions (t.h).
NAMED = re.compile(r"(?<![\w/.*<\"])(?:[a-z_0-9]+/)*[a-z][a-z_0-9*]+\.(?:h|cc|inl)\b")


def wrong_quotes():
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for name, block in re.findall(r"^```\w+ (\S+)\n(.*?)^```$", text, re.S | re.M):
            if not (ROOT / name).is_file() or block not in read(name):
                yield f"{page.relative_to(ROOT)}: {name} does not have the code that is shown as its own"


def wrong_comments():
    known = [path for path in below("include", "src", "tests", "bench") if path.suffix in {".h", ".cc", ".inl"}]
    tails = {"/".join(path.parts[-n:]) for path in known for n in range(1, len(path.relative_to(ROOT).parts) + 1)}
    for path in known:
        for n, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for name in NAMED.findall(line.partition("// ")[2]):
                if name not in tails and not fnmatch.filter(tails, name):
                    yield f"{path.relative_to(ROOT)}:{n}: there is no {name}"


# Words of ours for what the field has a word for, and that word. They may not return, in pages, comments, names or messages.
WORDS = {
    r"guess(es|ed|er|ers|ing)?": "draft token, draft, proposer; of a cost: estimate",
    r"drafters?": "proposer",
    r"anew": "again",
    r"dear(er|est)?": "costly",
    r"behind": "after, beyond, with",
    r"longest gap|gaps? between tokens": "inter-token latency",
}
# What stays behind is left, far or out of sight; a history of decisions keeps its words.
SAID_RIGHT = re.compile(
    r"(far|left|falls?|fell|falling|lags?|lagging|stays?|from|is|are|was|were) behind\b|(leave|leaves|leaving|left)\b[^.,;]{0,40}\bbehind\b"
    r"|behind (a|the) (proxy|router|flag|pointer|seam|door|keyed)|(nothing|much)[_ ]?behind", re.I)
WORDLESS = re.compile(r"generated|_tables?\.cc$|_data\.cc$|corpus|golden|/data/|tools/suites|tests/scenario|check_docs\.py$")


# Words for people, of code: in comments and texts of src, but for its tests.
PERSONS = re.compile(r"(?<![A-Za-z_\"`])(told|tells?|says?|said|whoever|nobody|wants|would do)(?![A-Za-z_\"`])", re.I)
TEXTS = re.compile(r'"(?:\\.|[^"\\])*"|//.*')


def wrong_persons():
    for path in below("src"):
        if path.suffix not in {".h", ".cc", ".inl"} or path.stem.endswith("_test"):
            continue
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for text in TEXTS.findall(line):
                if found := PERSONS.search(text.strip('"')):
                    yield (f"{path.relative_to(ROOT)}:{n}: '{found[1]}': states, contains, returns, reports, needs, no one; "
                           "an error is \"X; expected A or B\"")


# The same in names of tests, which are plain statements.
PERSONS_TESTED = re.compile(r"^\s*(?:TYPED_TEST|TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\s*(\w+),\s*"
                            r"(\w*?(?:Told|Tells?|Says?|Said|Whoever|Nobody|Wants?|Wanted)(?![a-z])\w*)", re.M)


def wrong_test_names():
    for path in below("src", "tests"):
        if path.suffix == ".cc":
            for suite, name in PERSONS_TESTED.findall(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(ROOT)}: {suite}.{name}: a test's name is a plain statement: gives, reports, needs, no"


def wrong_words():
    words = {re.compile(rf"(?<![A-Za-z]){word}(?![A-Za-z])", re.I): better for word, better in WORDS.items()}
    stem = re.compile(r"guess|drafter|anew|dear|behind|gap", re.I)  # of each word: most lines have none
    for path in [*pages(), *(path for path in below("src", "tests", "bench", "tools", "scripts") if path.suffix in SOURCES)]:
        name = str(path.relative_to(ROOT))
        if name.startswith("docs/decisions/") or name == "docs/developers/glossary.md" or WORDLESS.search(name):
            continue
        for n, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if not stem.search(line):
                continue
            # Names are words too: AGuessIsRight, n_behind.
            plain = SAID_RIGHT.sub("", re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", line))
            for word, better in words.items():
                if (found := word.search(plain)) and found[0][1:].islower():
                    yield f"{name}:{n}: '{found[0]}' is no word of the field: {better}"


def wrong_modes():
    for path in below("bench", "tools", "tests", "scripts"):
        if path.read_bytes()[:2] == b"#!" and not path.stat().st_mode & 0o111:
            yield f"{path.relative_to(ROOT)} begins with #! and may not be executed, so no page's command runs it"


found = [*wrong_paths(), *wrong_rows(), *wrong_citations(), *wrong_floors(), *wrong_models(), *wrong_budgets(),
         *wrong_quotes(), *wrong_comments(), *wrong_words(), *wrong_persons(),
         *wrong_test_names(), *wrong_modes()]
print("\n".join(found) if found else "every path, test, row and section that is named exists")
sys.exit(1 if found else 0)
