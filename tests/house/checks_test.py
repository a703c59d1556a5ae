"""The checks of the house see what is wrong: faults are planted in a copy. checks_test.py SOURCE_DIR."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
COPIED = ("docs", "src", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CMakeLists.txt")
LINKED = ("include", "tests", "bench", "cmake", "scripts", "packaging", ".ci")

# Check, page, what stands there, what is planted instead, what must be reported. All are planted at once.
NEXT = "# What is next"
FAULTS = (
    ("docs", "docs/design.md", "| 6 | `spec/` |", "| 6 | `spec/` `comm/` |", "floor 6 has ['comm', 'spec']"),
    ("docs", "docs/design.md", "| 1 | `tensor/` `image/` |", "| 9 | `tensor/` |", "floor 9 has ['tensor']"),
    ("docs", "docs/design.md", "`comm/` `text/` `kernels/`", "`text/` `kernels/`", "the walls are"),
    ("docs", "docs/design.md", "Empty seats: `comm/`, ", "Empty seats: ", "the empty seats are ['cluster', 'comm'"),
    ("docs", "docs/design.md", "## 6. Errors", "## Errors", "src/base/result.h: docs/design.md has no section 6"),
    ("docs", "docs/design.md", "9. **One end.**", "**One end.**",
     "src/text/output/finish_reason.h: docs/design.md section 5 has no law 9"),
    ("docs", "docs/next.md", NEXT, NEXT + " docs/design.md " "section 5, laws 1 and 12",
     "docs/next.md: docs/design.md section 5 has no law 12"),
    ("docs", "docs/next.md", NEXT, NEXT + " `src/engine/nothing.cc`", "there is no src/engine/nothing.cc"),
    ("docs", "docs/next.md", NEXT, NEXT + " ![a](pictures/nothing.svg)", "the link pictures/nothing.svg leads nowhere"),
    ("docs", "src/engine/step/settle.h", "#pragma once", "#pragma once\n// (engine/nothing.h)", "there is no engine/nothing.h"),
    ("docs", "src/base/clock.h", "#pragma once", "#pragma once\n// Whoever reads it.",
     ": 'Whoever': states"),
    ("docs", "src/base/check.cc", "namespace ibid {\n", "namespace ibid {\nconstexpr char kSaid[] = \"1 would do\";\n",
     ": 'would do': states"),
    ("docs", "src/base/quoted_test.cc", "TEST(Quoted, EndsAfterEightyBytes)", "TEST(Quoted, SaysEightyBytes)",
     "src/base/quoted_test.cc: Quoted.SaysEightyBytes: "),
    ("docs", "docs/how_it_works.md", "  speculation_.propose(); ", "  propose(); ",
     "docs/how_it_works.md: src/engine/engine.cc does not have the code that is shown as its own"),
    ("docs", "docs/rows.md", "| T4 |", "| T44 |", "tests/conformance/server_trace_test.cc: docs/rows.md has no row T4"),
    ("docs", "docs/rows.md", "| X4 |", "| X3 |", "the row X3 stands twice"),
    ("docs", "docs/rows.md", "`PrefixTree.RandomSequencesAgreeWithBruteForce`", "`PrefixTree.NoSuch`",
     "row X3 names PrefixTree.NoSuch, and there is no such test"),
    ("docs", "docs/rows.md", "`Batch.PositionsFindTheirSlotForEveryBlockLength`", "none", "row P2 names no test"),
    ("docs", "docs/README.md", "| [Next](next.md) | ", "| [Next](nix.md) | ", "docs/README.md does not name docs/next.md"),
    ("docs", "docs/README.md", "(users/api.md) | ", "(users/api.md) | 1 | ", "docs/users/api.md has "),
    ("docs", "docs/pictures/floors.svg", ">spec</text>", ">speculation</text>", "docs/pictures/floors.svg shows ["),
    ("docs", "docs/users/models.md", "| `gemma3` | `gemma3_text`, `gemma3` |", "| | `gemma3_text` |",
     "docs/users/models.md does not say that `gemma3` runs"),
    ("docs", "docs/users/models.md", "| IQ4_NL, IQ4_XS, MXFP4 | yes |", "| IQ4_NL, MXFP4 | yes |",
     "docs/users/models.md does not say that IQ4_XS runs"),
    ("includes", "CMakeLists.txt", "ibid_module(cache   DEPENDS base)", "ibid_module(cache   DEPENDS base engine)",
     "CMakeLists.txt: cache links engine, which is not below it"),
    ("includes", "CMakeLists.txt", "ibid_module(sample  DEPENDS kernels text)", "ibid_module(sample  DEPENDS kernels)",
     "sample includes text/output, which CMakeLists.txt does not link to it"),
    ("includes", "src/server/request/engine_backend.h", '"text/jinja/chat_template.h"', '"text/jinja/machine.h"',
     "of text/jinja others include chat_template.h alone"),
    ("includes", "src/text/output/breaker_set.cc", '"text/tokenizer/tokenizer.h"', '"text/jinja/chat_template.h"',
     "text/output (floor 2.02) includes text/jinja (floor 2.03)"),
    ("docs", "docs/design.md", "| `chat_template.h` |", "| `machine.h` |", "the doors are {'text/jinja': 'machine.h'}"),
    ("includes", "src/sample/score_row.cc", "#include <algorithm>", '#include <algorithm>\n#include "kernels/cpu/table.h"',
     "src/sample/score_row.cc:2: sample looks into kernels/cpu, which is kernels's own"),
    ("includes", "src/cli/options/server_host.cc", '#include "server/request/server_memory.h"', '#include "cli/messages_file.h"',
     "cli/options (floor 10.02) includes cli (floor 10.05)"),
    ("includes", "src/cli/terminal/progress.cc", '#include "cli/terminal/progress.h"', '#include "cli/options/options.h"',
     "cli/terminal (floor 10.01) includes cli/options (floor 10.02)"),
    ("includes", "src/host/loading.cc", '#include "kernels/reference.h"', '#include "kernels/reference/reference.h"',
     "host looks into kernels/reference, which is kernels's own"),
)


def plant_refuses_lines_that_changed():
    """tests/planted/plant.py: lines that a fault replaces stand in their file once, or the build fails and names the fault."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        source, table = root / "src/a.cc", root / "faults.txt"
        source.parent.mkdir()
        table.write_text('file src/a.cc\n-  b = a;\n+  b = PLANTED("wrong") ? 0 : a;\n')

        def plant(text):
            source.write_text(text)
            done = subprocess.run([sys.executable, SOURCE / "tests/planted/plant.py", root, table, root / "out"],
                                  capture_output=True, text=True)
            return done.returncode, done.stderr

        assert plant("a = 1;\n    b = a;\nc = b;\n") == (0, "")
        assert (root / "out/src/a.cc").read_text().endswith(
            '#line 1 "src/a.cc"\na = 1;\n  b = PLANTED("wrong") ? 0 : a;\n#line 3 "src/a.cc"\nc = b;\n')
        for text, times in (("b = c;\n", 0), ("b = a;\nb = a;\n", 2)):
            code, said = plant(text)
            assert code != 0 and f"faults.txt:2: these lines stand {times} times in src/a.cc" in said, said


def check(name, root):
    done = subprocess.run([sys.executable, SOURCE / "tools" / f"check_{name}.py", root], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def plant(root):
    for _, page, there, instead, _ in FAULTS:
        text = (root / page).read_text(encoding="utf-8")
        assert text.count(there) == 1, f"{page} has {there!r} {text.count(there)} times"
        (root / page).write_text(text.replace(there, instead), encoding="utf-8")


def main():
    with tempfile.TemporaryDirectory(prefix="ibid-checks-") as folder:
        root = pathlib.Path(folder)
        for name in LINKED:
            (root / name).symlink_to(SOURCE / name)
        shutil.copytree(SOURCE / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        for name in COPIED:
            (shutil.copytree if (SOURCE / name).is_dir() else shutil.copy)(SOURCE / name, root / name)
        for name in ("docs", "includes"):
            code, said = check(name, root)
            assert code == 0, said
        plant(root)
        (root / "tools" / "pack_eagle.py").chmod(0o644)
        said = {name: check(name, root) for name in ("docs", "includes")}
        for name, page, there, instead, told in FAULTS:
            code, text = said[name]
            assert code == 1 and told in text, f"{there!r} became {instead!r} in {page}; check_{name}.py said:\n{text}"
        assert "tools/pack_eagle.py begins with #!" in said["docs"][1], said["docs"][1]
    plant_refuses_lines_that_changed()
    print(f"{len(FAULTS) + 2} planted faults were seen")


main()
