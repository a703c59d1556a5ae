#!/usr/bin/env python3
"""Runs a long suite only when a file that it can see has changed since it last passed on this machine.

  if_changed.py SOURCE_DIR SUITE COMMAND...

A suite's inputs are the files below that match its patterns, as they are in the working tree, and the compilers' versions.
Their digest names an empty file in the folder `ibid-passed` of the compiler cache, which is written when the command ends
with 0. Where that file is there, the command is not run, and this ends with 77 (skipped) and a sentence: the same inputs
have passed here, as build systems with a cache of test results have it. IBID_ALL=1 runs all regardless.
"""
import fnmatch
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

BUILD = ("CMakeLists.txt", "CMakePresets.json", "cmake/*")
# What computes or holds a bit of an answer; the folders above it (server, cli) compute none.
ARITHMETIC = tuple(f"src/{folder}/*" for folder in
                   ("base", "tensor", "kernels", "text", "format", "model", "cache", "sample", "worker", "spec", "engine"))
INPUTS = {
    "arm64": (*BUILD, *ARITHMETIC, "tests/parity/*", "tests/property/*", "tests/*.h", "tests/pinned_bits.txt",
              "tests/house/arm64.sh", "tests/house/tests.cmake"),
    # What installs, configures and links: a source alone cannot need another package.
    "fresh_machine": (*BUILD, "quickstart", "runtests", "scripts/*", "packaging/*", "src/*.cmake", "src/*.py",
                      "tests/*.cmake", "tests/house/*"),
    "sanitized": (*BUILD, "src/*", "tests/*"),
}
COMPILERS = {"arm64": ("aarch64-linux-gnu-g++",), "fresh_machine": (), "sanitized": ("c++",)}


def files(root):
    git = shutil.which("git")
    listed = git and subprocess.run([git, "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                    capture_output=True)
    if listed and listed.returncode == 0:
        names = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    else:  # an unpacked archive, or no git: everything but builds
        names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        names = {name for name in names if not name.startswith(("build", ".git/"))}
    return sorted(name for name in names if (root / name).is_file())


def digest(root, suite):
    """Of the suite's inputs: each name with its bytes, and each compiler with its version."""
    sha = hashlib.sha256(suite.encode())
    for name in files(root):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in INPUTS[suite]):
            content = (root / name).read_bytes()
            sha.update(f"\0{name}\0{len(content)}\0".encode() + content)
    for compiler in COMPILERS[suite]:
        if shutil.which(compiler):
            sha.update(subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout)
    return sha.hexdigest()[:32]


def passed_folder():
    if folder := os.environ.get("IBID_PASSED"):
        return pathlib.Path(folder)
    if shutil.which("ccache"):
        asked = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.strip():
            return pathlib.Path(asked.stdout.strip(), "ibid-passed")
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "ibid-passed")


def main():
    root, suite, command = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    passed = passed_folder() / f"{suite}-{digest(root, suite)}"
    if passed.exists() and os.environ.get("IBID_ALL") != "1":
        print(f"skipped {suite}: nothing that it sees has changed since it last passed here (IBID_ALL=1 runs it)")
        return 77
    code = subprocess.run(command).returncode
    if code == 0:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
