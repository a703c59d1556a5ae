"""What packaging/ makes of the binary: pages and completions, archive, .deb, image, bill of materials; each twice, with the same
bytes. packages_test.py BUILD_DIR. (Their life on a bare Debian is in tests/house/packages.sh.)"""
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile

import tiny_model
from harness import BUILD, IBID, ROOT, Skip, main, venv

OUT = BUILD / "packages-test"
ANSWER = ("-p", "Why is it so?", "--temp", "0", "--seed", "3", "--ignore-eos", "-n", "16")


def run(*command, code=0, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **{"timeout": 300, "stdin": subprocess.DEVNULL, **more})
    assert done.returncode == code, (command, done)
    return done.stdout if code == 0 else done.stderr


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Skip(f"there is no {program}")


def version():
    return re.search(r"^project\(ibid VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]


def help_of(*words):
    plain = run(IBID, *words, "--help")
    return run(IBID, *words, "--help-all") if words in (("serve",), ("run",)) else plain


def commands():
    """Words of every command, in two levels."""
    def below(words):
        part = re.search(r"^Subcommands:\n((?:  .*\n)+)", help_of(*words), re.M)
        return [(*words, name) for name in re.findall(r"^  ([\w-]+)", part[1], re.M)] if part else []
    first = below(())
    return [*first, *(words for command in first for words in below(command))]


def flags_of(*words):
    return {flag for line in help_of(*words).split("\n") if line.startswith("  -") for flag in line.split()[0].split(",")}


def pages():
    """The folder with pages and completions, made once."""
    folder = OUT / "pages"
    if not (folder / "ibid.fish").exists():
        run(ROOT / "packaging/help_pages.py", IBID, folder)
    return folder


def test_each_command_has_a_page_with_all_its_flags():
    made, n = {path.name for path in (pages() / "man1").iterdir()}, 0
    known = commands()
    assert len(known) > 15 and ("spec", "build-store") in known, known
    assert made == {"ibid.1", *("-".join(("ibid", *words)) + ".1" for words in known)}, made
    for words in [(), *known]:
        text = (pages() / "man1" / ("-".join(("ibid", *words)) + ".1")).read_text().replace("\\-", "-")
        missing = {flag for flag in flags_of(*words) if f"\\fB{flag}\\fR" not in text}
        assert not missing, (words, missing)
        n += len(flags_of(*words))
    return f"{len(made)} pages, {n} flags"


def test_pages_are_right_for_troff():
    need("groff")
    for path in sorted((pages() / "man1").iterdir()):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", path], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, (path.name, done.stderr[:500])
        if shutil.which("mandoc"):
            done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", path], capture_output=True, text=True)
            assert not done.stdout, done.stdout[:500]


# What is typed, and some of what is offered.
TYPED = (("ibid s", {"serve", "spec", "selftest"}), ("ibid serve --po", {"--port", "--policy", "--pooling"}),
         ("ibid spec b", {"build-store"}), ("ibid bench c", {"cache"}), ("ibid spec build-store --", {"--help"}),
         ("ibid run --no-", {"--no-history"}), ("ibid quantize --t", {"--threads", "--token-embedding-type", "--tensor-type"}),
         ("ibid serve -m ./a-mod", {"./a-model.gguf"}), ("ibid inspect a-mod", {"a-model.gguf"}))


def shell(program, script):
    """Standard output of the script, with ibid in PATH, in a folder with one file."""
    need(program)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "a-model.gguf").touch()
        path = f"{BUILD}:{os.environ['PATH']}"
        return run(program, *script, cwd=folder, env={"PATH": path, "HOME": folder, "TERM": "dumb", "LC_ALL": "C.UTF-8"})


def check_offers(offers):
    for typed, some in TYPED:
        assert some <= offers(typed), (typed, some, offers(typed))
    assert "smollm2" in offers("ibid serve smo") and "--port" not in offers("ibid spec --"), offers("ibid spec --")


def test_bash_completes():
    def offers(typed):
        words = typed.split(" ")
        script = (f"source {shlex.quote(str(pages() / 'ibid.bash'))}; COMP_WORDS=({' '.join(map(shlex.quote, words))}); "
                  f"COMP_CWORD={len(words) - 1}; _ibid; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        return set(shell("bash", ["--norc", "-c", script]).split("\n"))
    check_offers(offers)
    # The value of a flag is not completed by flags or commands.
    assert offers("ibid serve --port ") == {""}, offers("ibid serve --port ")


def test_fish_completes():
    def offers(typed):
        script = f"source {shlex.quote(str(pages() / 'ibid.fish'))}; complete -C {shlex.quote(typed)}"
        return {line.split("\t")[0] for line in shell("fish", ["-N", "-c", script]).split("\n")}
    check_offers(offers)


# A shell in a pseudo terminal that lists what TAB offers, each with " -- " and its description. What is typed while it lists
# would end the listing, so the rest follows only then.
ZSH = r"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PROMPT=; fpath=('$1' $fpath); autoload -Uz compinit; compinit -u -D; bindkey "^I" list-choices; LISTMAX=10000'
zpty -w z 'stty cols 200; print REA''DY'
zpty -r -m z line '*READY*'
zpty -n -w z $2$'\t'
zpty -r -m z line '* -- *'
print -r -- $line
zpty -w z $'\x15'"print DO''NE"
zpty -r -m z line '*DONE*'
print -r -- $line
"""


def test_zsh_completes():
    need("zsh")
    run("zsh", "-n", pages() / "_ibid")
    def offers(typed):
        told = shell("zsh", ["-f", "-c", ZSH, "zsh", str(pages()), typed])
        return set(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", told.replace(typed, "")).split())
    for typed, some in TYPED:
        if "mod" not in typed:  # files have no descriptions
            assert some <= offers(typed), (typed, some, offers(typed))


def packaged(script, folder, **env):
    """What the script writes, by name; in a folder, a time zone and with a umask of its own."""
    out = OUT / folder
    shutil.rmtree(out, ignore_errors=True)
    environment = {**os.environ, **env}
    environment.pop("SOURCE_DATE_EPOCH", None) if "SOURCE_DATE_EPOCH" not in env else None
    run(ROOT / "packaging" / script, "--build", BUILD, "--out", out, env=environment, umask=0o077 if env.get("TZ") else 0o022)
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.rglob("*")) if path.is_file()}


def same_twice(script):
    first = packaged(script, script + "-one")
    again = packaged(script, script + "-two", TZ="Pacific/Auckland", LC_ALL="C", TMPDIR=str(OUT))
    assert first and first == again, (first, again)
    if script == "make_tar.py":  # one of them is enough: packing takes its time
        later = packaged(script, script + "-later", SOURCE_DATE_EPOCH="1234567890")
        assert first.keys() == later.keys() and set(first.values()) != set(later.values()), "the date is not in the package"
    return OUT / (script + "-one")


def test_the_deb_is_the_same_twice_and_right():
    need("dpkg-deb", "dpkg-shlibdeps")
    (deb,) = same_twice("make_deb.py").glob("*.deb")
    fields = {name: run("dpkg-deb", "-f", deb, name).strip() for name in ("Package", "Version", "Depends", "Recommends")}
    assert (fields["Package"], fields["Version"]) == ("ibid", version() + "-1"), fields
    assert {"libc6", "libstdc++6", "libssl3", "adduser"} <= set(re.findall(r"[a-z][\w+.-]+", fields["Depends"])), fields
    listed = run("dpkg-deb", "-c", deb)
    owners = {line.split()[1] for line in listed.splitlines()}
    modes = {line.split()[0] for line in listed.splitlines()}
    assert owners == {"root/root"} and modes == {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"}, (owners, modes)
    with tempfile.TemporaryDirectory() as folder:
        run("dpkg-deb", "-R", deb, folder)
        root = pathlib.Path(folder)
        assert run(root / "usr/bin/ibid", "--version") == run(IBID, "--version")
        check_library(root)
        assert (root / "DEBIAN/conffiles").read_text() == "/etc/default/ibid\n"
        check_service(root)
        assert gzip.decompress((root / "usr/share/doc/ibid/changelog.gz").read_bytes()) == (ROOT / "CHANGELOG.md").read_bytes()
        for script in ("postinst", "prerm", "postrm"):
            run("sh", "-n", root / "DEBIAN" / script)
    if shutil.which("lintian"):
        told = subprocess.run(["lintian", "--allow-root", deb], capture_output=True, text=True).stdout
        assert not re.search(r"^E:", told, re.M), told
    return f"{deb.stat().st_size / 1e6:.2f} MB"


def check_library(root):
    """A program in C that is compiled against the package's header and library completes a prompt as the command does."""
    (folder,) = root.glob("usr/lib/*-linux-gnu")
    assert (root / "usr/include/ibid.h").read_bytes() == (ROOT / "include/ibid.h").read_bytes()
    flags = re.search(r"^Libs: (.*)$", (folder / "pkgconfig/ibid.pc").read_text(), re.M)[1].replace("-L", f"-L{root}", 1)
    run("cc", "-std=c99", f"-I{root}/usr/include", ROOT / "examples/complete.c", "-o", OUT / "complete", *flags.split())
    model = tiny_model.make(f"{root}/tiny")
    asked = ("Why is it so?",)
    def text(program, **env):
        told = run(program, model, *asked, env={**os.environ, **env}).splitlines()
        return json.loads(told[0])["choices"][0]["message"]["content"]
    told = text(OUT / "complete", LD_LIBRARY_PATH=str(folder))
    assert told and told == text(BUILD / "complete_example"), told


def check_service(root):
    """Its unit and its settings, in which every flag is one of the server's."""
    unit = (root / "lib/systemd/system/ibid.service").read_text()
    settings = dict(re.findall(r'^(\w+)="(.*)"$', (root / "etc/default/ibid").read_text(), re.M))
    assert re.search(r"^User=ibid$", unit, re.M) and not re.search("DynamicUser|LoadCredential|/usr/local", unit), unit
    start = re.search(r"^ExecStart=(.*)$", unit, re.M)[1]
    assert start == "/usr/bin/ibid serve $IBID_OPTIONS", start
    flags = re.findall(r"--[a-z-]+", (root / "etc/default/ibid").read_text().replace("--help-all", ""))
    assert flags and set(flags) <= flags_of("serve"), flags
    # What the server makes of them: the port is tried, the model is not there.
    done = subprocess.run([IBID, "serve", root / "none.gguf", *shlex.split(settings["IBID_OPTIONS"].replace("8080", "0"))], capture_output=True, text=True, timeout=600)
    assert done.returncode in (2, 4) and "none.gguf" in done.stderr, done
    if shutil.which("systemd-analyze"):
        path = root / "ibid.service"
        path.write_text(unit.replace("/usr/bin/ibid", IBID).replace("=man:ibid-serve(1)", "=man:true(1)"))
        told = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=600)
        ours = [line for line in (told.stdout + told.stderr).splitlines() if "ibid.service" in line and "User" not in line]
        assert not ours, ours


def test_the_archive_is_the_same_twice_and_runs_anywhere():
    need("patchelf")
    (archive,) = same_twice("make_tar.py").glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as tar:
            assert {(m.uid, m.gid, m.uname, m.gname) for m in tar} == {(0, 0, "", "")}
            assert len({m.mtime for m in tar}) == 1
            assert all(m.name.startswith(archive.name.removesuffix(".tar.gz") + "/") for m in tar)
            tar.extractall(folder)
        place = pathlib.Path(folder, "a place with blanks")
        pathlib.Path(folder, archive.name.removesuffix(".tar.gz")).rename(place)
        model = tiny_model.make(f"{folder}/tiny")
        clean = {"PATH": "/nowhere", "HOME": folder}
        assert run(place / "bin/ibid", "--version", env=clean) == run(IBID, "--version")
        assert run(place / "bin/ibid", "run", model, *ANSWER, env=clean) == run(IBID, "run", model, *ANSWER)
        outside = [line.split()[0].rsplit("/", 1)[-1] for line in run("ldd", place / "bin/ibid").splitlines() if str(place) not in line]
        assert all(re.match(r"linux-vdso|ld-linux|lib[cm]\.so", name) for name in outside), outside
        assert f"glibc {glibc()} or newer" in (place / "README").read_text()
        bill = json.loads((place / f"share/doc/ibid/ibid-{version()}.cdx.json").read_text())
        shown = bill["metadata"]["component"]["hashes"][0]["content"]
        assert shown == hashlib.sha256((place / "bin/ibid").read_bytes()).hexdigest()
        without = [c["name"] for c in bill["components"] if not (place / "share/doc/ibid/licences" / c["name"]).stat().st_size]
        assert not without, without
    return f"{archive.stat().st_size / 1e6:.2f} MB"


def glibc():
    found = {tuple(map(int, pair)) for pair in re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", IBID))}
    return ".".join(map(str, max(found)))


def blob(image, entry):
    content = (image / "blobs" / entry["digest"].replace(":", "/")).read_bytes()
    assert (len(content), "sha256:" + hashlib.sha256(content).hexdigest()) == (entry["size"], entry["digest"]), entry
    return content


def test_the_image_is_the_same_twice_and_complete():
    folder = same_twice("make_oci.py")
    (image,) = [path for path in folder.iterdir() if path.is_dir()]
    assert json.loads((image / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads((image / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(image, entry))
    config = json.loads(blob(image, manifest["config"]))
    (layer,) = [blob(image, layer) for layer in manifest["layers"]]
    plain = gzip.decompress(layer)
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(plain).hexdigest()]
    settings = config["config"]
    assert settings["User"] == "10001:10001" and settings["Healthcheck"]["Test"] == ["CMD", "/usr/bin/ibid", "health"]
    flags = {word for word in settings["Cmd"] if word.startswith("--")}
    assert settings["Cmd"][0] == "serve" and flags <= flags_of("serve"), flags
    with tempfile.TemporaryDirectory() as folder:
        (OUT / "layer.tar").write_bytes(plain)
        with tarfile.open(OUT / "layer.tar") as tar:
            members = {m.name: m for m in tar}
            assert {name for name, m in members.items() if m.uid != 0} == {"cache"} and members["tmp"].mode == 0o1777
            assert not [m.name for m in members.values() if m.mode & 0o6000], "something has the rights of its owner"
            tar.extractall(folder)
        root = pathlib.Path(folder)
        roots = (root / "etc/ssl/certs/ca-certificates.crt").read_text()
        assert roots.count("BEGIN CERTIFICATE") == roots.count("END CERTIFICATE") > 100
        # The loader of the image with the libraries of the image, and no other.
        loader = next(root.glob("lib*/ld-linux*"))
        libraries = next(root.glob("usr/lib/*-linux-gnu"))
        told = run(loader, "--inhibit-cache", "--library-path", libraries, "--list", root / "usr/bin/ibid")
        assert all(str(root) in line or "linux-vdso" in line for line in told.splitlines()), told
        assert run(loader, "--inhibit-cache", "--library-path", libraries, root / "usr/bin/ibid", "--version") == run(IBID, "--version")
    for reader in ("oci-archive", "docker-archive"):
        if shutil.which("skopeo"):
            seen = json.loads(run("skopeo", "inspect", f"{reader}:{next(image.parent.glob('*.tar'))}"))
            assert seen["Labels"]["org.opencontainers.image.version"] == version(), seen
    return f"{len(layer) / 1e6:.2f} MB"


def test_the_image_for_events_has_what_libzmq_needs():
    folder = OUT / "events"
    run(ROOT / "packaging/make_oci.py", "--build", BUILD, "--out", folder, "--events", "yes")
    (image,) = [path for path in folder.iterdir() if path.is_dir()]
    (entry,) = json.loads((image / "index.json").read_text())["manifests"]
    (layer,) = json.loads(blob(image, entry))["layers"]
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=io.BytesIO(blob(image, layer))) as tar:
            tar.extractall(place)
        root = pathlib.Path(place)
        loader, libraries = next(root.glob("lib*/ld-linux*")), next(root.glob("usr/lib/*-linux-gnu"))
        told = run(loader, "--inhibit-cache", "--library-path", libraries, "--list", libraries / "libzmq.so.5")
        assert all(str(root) in line or "linux-vdso" in line for line in told.splitlines()), told
        components = json.loads(next(root.glob("usr/share/doc/ibid/*.cdx.json")).read_text())["components"]
        for name in ("libzmq5", "libsodium23"):
            assert name in [c["name"] for c in components], name
            assert (root / "usr/share/doc/ibid/licences" / name).stat().st_size and (root / f"var/lib/dpkg/status.d/{name}").exists(), name
    return f"{(image / layer['digest'].replace('sha256:', 'blobs/sha256/')).stat().st_size / 1e6:.2f} MB"


def bill():
    out = OUT / "sbom"
    run(ROOT / "packaging/sbom.py", "--build", BUILD, "--out", out)
    return json.loads((out / f"ibid-{version()}.cdx.json").read_text()), out


def package_of(path):
    """By dpkg's own list of files, whose names may be those before the merge of / and /usr."""
    for name in (path, os.path.realpath(path), os.path.realpath(path).removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    raise AssertionError(f"no package has {path}")


def test_the_bill_names_all_that_is_linked():
    need("dpkg")
    told, out = bill()
    ways = {c["name"]: {p["value"] for p in c["properties"] if p["name"] == "ibid:linked"} for c in told["components"]}
    shared = {package_of(path) for path in re.findall(r"(/\S+) \(0x", run("ldd", IBID))}
    link = run("ninja", "-C", BUILD, "-t", "commands", "ibid").splitlines()[-1]
    static = {package_of(path) for path in re.findall(r"(?<=\s)/usr/\S+\.a\b", link)}
    assert {name for name, way in ways.items() if "shared" in way} == shared, (ways, shared)
    assert {name for name, way in ways.items() if "static" in way} == static and len(static) > 5, (ways, static)
    # Libraries of headers alone, each of which a source includes.
    header_only = {package_of(f"/usr/include/{path}") for path in ("CLI/CLI.hpp", "spdlog/spdlog.h", "Random123/philox.h", "boost/asio.hpp")}
    assert header_only <= {name for name, way in ways.items() if "headers" in way}, header_only
    for c in told["components"]:
        assert c["version"] == run("dpkg-query", "-W", "-f", "${Version}\n", c["name"]).split("\n")[0], c
        assert (out / "licences" / c["name"]).read_bytes() == pathlib.Path("/usr/share/doc", c["name"], "copyright").read_bytes()
        assert c["licenses"] and c["purl"].startswith("pkg:deb/debian/"), c
    return f"{len(ways)} packages"


def test_the_bill_is_cyclonedx():
    told, out = bill()
    python = venv("venv-cyclonedx", "cyclonedx-python-lib[json-validation]==9.1.0") / "python"
    script = ("import sys; from cyclonedx.validation.json import JsonStrictValidator; from cyclonedx.schema import SchemaVersion; "
              "sys.exit(str(JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read()) or '') or None)")
    run(python, "-c", script, out / f"ibid-{version()}.cdx.json")


def test_a_wrong_version_or_date_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        shutil.copytree(ROOT / "packaging", root / "packaging")
        (root / "CMakeLists.txt").write_text("project(ibid VERSION 9.9.9)\n")
        told = run(root / "packaging/make_tar.py", "--build", BUILD, code=1)
        assert "CMakeLists.txt has 9.9.9" in told, told
        told = run(root / "packaging/make_tar.py", "--build", folder, code=1)
        assert "There is no " in told and "ninja -C build ibid" in told, told
        (root / "CMakeLists.txt").write_text((ROOT / "CMakeLists.txt").read_text())
        environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        told = run(root / "packaging/make_tar.py", "--build", BUILD, "--out", folder, code=1, env={**environment, "GIT_CEILING_DIRECTORIES": folder})
        assert "Set SOURCE_DATE_EPOCH" in told, told
        told = run(root / "packaging/make_tar.py", "--build", BUILD, "--out", folder, code=1, env={**environment, "SOURCE_DATE_EPOCH": "today"})
        assert "expected seconds since 1970" in told, told


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    shutil.rmtree(OUT / "pages", ignore_errors=True)
    main(test_each_command_has_a_page_with_all_its_flags, test_pages_are_right_for_troff, test_bash_completes, test_fish_completes,
         test_zsh_completes, test_the_deb_is_the_same_twice_and_right, test_the_archive_is_the_same_twice_and_runs_anywhere,
         test_the_image_is_the_same_twice_and_complete, test_the_image_for_events_has_what_libzmq_needs,
         test_the_bill_names_all_that_is_linked, test_the_bill_is_cyclonedx, test_a_wrong_version_or_date_is_refused)
