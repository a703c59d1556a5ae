#!/usr/bin/env python3
"""What src/server/bundle_page.py makes of the page's files, and what it refuses: bundle_test.py REPOSITORY"""
import contextlib
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "src" / "server"))
import bundle_page  # noqa: E402

PAGE = ROOT / "src" / "server" / "page"


@contextlib.contextmanager
def changed(name, change):
    """The page with one file changed."""
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent) / "page"
        shutil.copytree(PAGE, folder)
        path = folder / name
        path.write_text(change(path.read_text() if path.exists() else ""))
        yield folder


def refusal(name, change):
    with changed(name, change) as folder:
        try:
            bundle_page.files(folder)
        except SystemExit as error:
            return str(error)
    return None


def main():
    made = {name: content for name, _, content in bundle_page.files(PAGE)}
    assert sorted(made) == ["", "app.css", "app.js", "icon.svg"], sorted(made)
    assert made == {name: content for name, _, content in bundle_page.files(PAGE)}
    for path in PAGE.glob("*.js"):  # nothing is lost
        line = path.read_text().splitlines()[0].encode()
        assert made["app.js"].count(line) == 1, path.name
    for name in ("app.js", "app.css", "icon.svg"):
        assert f'="{name}?{bundle_page.version(made[name])}"'.encode() in made[""], name
    with changed("tokens.js", lambda text: text.replace("(nothing)", "(none)")) as folder:
        other = {name: content for name, _, content in bundle_page.files(folder)}
        assert {name for name in made if made[name] != other[name]} == {"", "app.js"}
    # What the bundler cannot do is refused, and no file is left out unseen.
    assert "imports itself" in refusal("tree.js", lambda text: 'import { render } from "./markdown.js";\nimport { startChat } from "./chat.js";\n' + text)
    for line in ('import * as all from "./tree.js";', 'import tree from "./tree.js";', "export default 3;", "export let n = 3;", "export { x };",
                 'const other = await import("./tree.js");', 'import { add } from "https://x.example/a.js";'):
        assert "is not bundled" in refusal("tokens.js", lambda text: f"{text}\n{line}\n"), line
    assert "not so" in refusal("tokens.js", lambda text: 'import { add as plus } from "./tree.js";\n' + text)
    for name in ("further.js", "further.css", "notes.txt"):
        assert name in refusal(name, lambda text: "/* */\n"), name
    print("the page's files make one script and one style sheet")


main()
