"""What the scripts of this folder share: the version, the date, the libraries of the binary, files that are the same in
every build. Standard library alone, and Debian's dpkg, binutils and ninja.

The version is the one of CMakeLists.txt. The date of every file is SOURCE_DATE_EPOCH, else the last commit's. Files belong
to root and stand in the order of their names, so that two builds give the same bytes.
"""
import argparse
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "inference and serving engine for large language models"
DESCRIPTION = ("ibid loads a GGUF or safetensors model and serves many users at once, on CPUs. The same request gives the same "
               "bytes, whatever the batch, the cache or the number of threads.")
# The machines of ELF headers, as Debian, the OCI and the kernel call them.
MACHINES = {62: ("amd64", "amd64", "x86_64"), 183: ("arm64", "arm64", "aarch64")}
# What every system has: the C library. All else travels with an archive.
OF_THE_SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv))\.so\.\d+$")


def fail(sentence):
    sys.exit(f"error: {sentence}")


def need(*programs):
    """Ends with the Debian package to install where a program is missing."""
    packages = {"dpkg-shlibdeps": "dpkg-dev", "dpkg-deb": "dpkg", "readelf": "binutils", "strip": "binutils",
                "ninja": "ninja-build"}
    for program in programs:
        if shutil.which(program) is None:
            fail(f"{program} is missing; it is in the package {packages.get(program, program)}.")


def run(*command, **more):
    """What the command writes to standard output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def version():
    """The version number of the project, which CMakeLists.txt has."""
    found = re.search(r"^project\(ibid VERSION (\d+(?:\.\d+)*)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    return found[1] if found else fail("CMakeLists.txt has no version.")


def epoch():
    """Seconds since 1970 that every file of a package carries."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        asked = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True)
        given = asked.stdout.strip()
        if asked.returncode != 0 or not given:
            fail("There is no commit whose date the files could have. Set SOURCE_DATE_EPOCH to seconds since 1970.")
    if not re.fullmatch(r"\d{1,11}", given):
        fail(f"SOURCE_DATE_EPOCH is {given!r}; expected seconds since 1970.")
    return int(given)


def date_text(date):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(date))


class Binary:
    """build/ibid as it is packed: its bytes without symbols, its machine, its libraries."""

    def __init__(self, build):
        need("readelf", "strip", "ldd")
        self.build = pathlib.Path(build).resolve()
        self.path = self.build / "ibid"
        if not self.path.is_file():
            fail(f"There is no {self.path}. Build it: ./quickstart, or ninja -C build ibid.")
        head = self.path.open("rb").read(20)
        machine = int.from_bytes(head[18:20], "little")
        if head[:4] != b"\x7fELF" or machine not in MACHINES:
            fail(f"{self.path} is no program for Linux on x86-64 or ARM64.")
        self.debian, self.oci, self.kernel = MACHINES[machine]
        said = run(self.path, "--version").split()
        if said[:2] != ["ibid", version()]:
            fail(f"{self.path} is {' '.join(said[:2])}, and CMakeLists.txt has {version()}. Build it again.")
        self.also = []  # libraries that it opens when it is asked for what they do

    def stripped(self, to):
        """Writes the binary without symbols to the path `to`."""
        to.parent.mkdir(parents=True, exist_ok=True)
        run("strip", "--strip-unneeded", "-o", to, self.path)
        to.chmod(0o755)

    def stripped_library(self, to):
        """Writes libibid.so without symbols other than its own functions to the path `to`."""
        made = self.build / "libibid.so.1"
        if not made.is_file():
            fail(f"There is no {made}. Build it: ninja -C build libibid.")
        to.parent.mkdir(parents=True, exist_ok=True)
        run("strip", "--strip-unneeded", "-o", to, made)
        to.chmod(0o644)

    def libraries(self):
        """Name -> path of every shared library that the loader maps, the loader itself included; and what `also` needs."""
        out = {pathlib.Path(path).name: str(path) for path in self.also}
        for line in "".join(run("ldd", path) for path in (self.path, *self.also)).splitlines():
            words = line.split()
            if "not found" in line:
                fail(f"The library {words[0]} of {self.path} is not installed.")
            if "=>" in words:
                out[words[0]] = words[2]
            elif words[0].startswith("/"):
                out[words[0].rsplit("/", 1)[1]] = words[0]
        return dict(sorted(out.items()))

    def glibc(self):
        """The oldest version of the C library on which it starts."""
        found = re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "--dyn-syms", "--wide", self.path))
        return "%d.%d" % max((int(major), int(minor)) for major, minor in found)


def owners(paths):
    """Path -> installed Debian package (with its architecture where dpkg names it) that has this file."""
    need("dpkg-query")
    # dpkg knows a file by the name that its package has, before or after the merge of / and /usr.
    names = {}
    for path in map(str, paths):
        for real in {path, os.path.realpath(path)}:
            names[real] = path
            names[real.removeprefix("/usr") if real.startswith("/usr/lib") else "/usr" + real] = path
    out, wanted = {}, sorted(names)
    for begin in range(0, len(wanted), 500):
        asked = subprocess.run(["dpkg-query", "-S", *wanted[begin:begin + 500]], capture_output=True, text=True)
        for line in asked.stdout.splitlines():
            package, _, path = line.partition(": ")
            if path in names and not package.startswith("diversion by"):
                out[names[path]] = package.split(", ")[0]
    return out


class Tree:
    """Files of a package in a folder of its own, removed at the end: `with Tree() as tree`."""

    def __enter__(self):
        self.holder = tempfile.TemporaryDirectory(prefix="ibid-package-")
        self.root = pathlib.Path(self.holder.name)
        self.root.chmod(0o755)
        return self

    def __exit__(self, *_):
        self.holder.cleanup()

    def path(self, name):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name, content, mode=0o644):
        path = self.path(name)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)

    def copy(self, source, name, mode=0o644):
        self.write(name, pathlib.Path(source).read_bytes(), mode)

    def settle(self, date):
        """Gives all files and folders this date, and folders the mode 755."""
        for path in [self.root, *self.root.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
            os.utime(path, (date, date), follow_symlinks=False)


def environment(date):
    """Of programs that write dates and sort names."""
    return {**os.environ, "SOURCE_DATE_EPOCH": str(date), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def digest(path, kind="sha256"):
    return hashlib.new(kind, path.read_bytes()).hexdigest()


def replace_folder(source, to):
    """Copies a folder with its dates; what `to` was is removed."""
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(source, to, symlinks=True)


def gzipped(content):
    return gzip.compress(content.encode() if isinstance(content, str) else content, compresslevel=9, mtime=0)


def archive(root, date, prefix="", owner=lambda name: (0, 0)):
    """The folder `root` as bytes of a tar archive. `owner` gives user and group of a name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(pathlib.Path(root).rglob("*")):
            name = str(path.relative_to(root))
            entry = tar.gettarinfo(path, prefix + name)
            if entry.islnk():  # a second name of a file: its own bytes, whatever came first
                entry.type, entry.size = tarfile.REGTYPE, path.stat().st_size
            entry.uid, entry.gid = owner(name)
            entry.uname = entry.gname = ""
            entry.mtime = date
            if entry.isreg():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)
    return out.getvalue()


def arguments(text, **more):
    """--build and --out, and what the script adds (name -> its default and its help)."""
    parser = argparse.ArgumentParser(description=text.strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path, help="folder with the binary (default: build)")
    parser.add_argument("--out", default=None, type=pathlib.Path, help="folder to write to (default: dist in the build folder)")
    for name, (default, told) in more.items():
        parser.add_argument("--" + name, default=default, help=told)
    got = parser.parse_args()
    got.out = got.out or got.build / "dist"
    got.out.mkdir(parents=True, exist_ok=True)
    return got


def written(path, content=None):
    """Writes the file if there is content, and reports its name and size."""
    if content is not None:
        path.write_bytes(content)
    print(f"{path}  {path.stat().st_size / 1e6:.2f} MB")
