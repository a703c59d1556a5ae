"""tests/house/if_changed.py runs a suite again when one of its inputs changed, or it failed, and not otherwise.
if_changed_test.py SOURCE_DIR."""
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(sys.argv[1], "tests/house/if_changed.py").resolve()


def main():
    with tempfile.TemporaryDirectory() as folder:
        root, runs = pathlib.Path(folder, "tree"), pathlib.Path(folder, "runs")
        for name in ("src/kernels/linear.cc", "src/server/routes/front_door.cc", "tests/parity/a_test.cc", "README.md"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
        runs.write_text("")
        environment = {**os.environ, "IBID_PASSED": folder + "/passed"}
        environment.pop("IBID_ALL", None)

        def run(suite="arm64", code=0, **more):
            before = len(runs.read_text())
            done = subprocess.run([sys.executable, SCRIPT, root, suite, "sh", "-c", f"printf x >>{runs}; exit {code}"],
                                  env={**environment, **more}, capture_output=True, text=True)
            has_run = len(runs.read_text()) > before
            assert done.returncode == (code if has_run else 77), done
            return has_run

        def change(name):
            (root / name).write_text((root / name).read_text() + "\n")

        assert run(code=3) and run(), "what failed runs again"
        assert not run(), "what passed does not"
        assert run(IBID_ALL="1") and not run()
        change("README.md")
        change("src/server/routes/front_door.cc")
        assert not run(), "what it cannot see does not count"
        change("src/kernels/linear.cc")
        assert run() and not run()
        (root / "tests/parity/b_test.cc").write_text("new")
        assert run() and not run(), "a new file counts"
        (root / "tests/parity/a_test.cc").rename(root / "tests/parity/c_test.cc")
        assert run() and not run(), "and another name"
        bare = pathlib.Path(folder, "bin")
        bare.mkdir()
        (bare / "sh").symlink_to("/bin/sh")
        assert run("sanitized", PATH=str(bare)), "without git or a compiler cache"
        assert run("sanitized") and not run("sanitized"), "each suite passes for itself"
        change("src/server/routes/front_door.cc")
        assert run("sanitized") and not run()
    print("7 kinds of changes")


if __name__ == "__main__":
    main()
