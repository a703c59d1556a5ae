#!/usr/bin/env python3
"""Writes ibid-VERSION-linux-MACHINE.tar.gz from build/ibid: a folder that runs wherever it is unpacked.

Libraries other than the C library are in lib/ibid, where the binary looks first; so it runs on any distribution whose glibc
is as new as the one named in README. Man pages, completions, bill of materials and licences are in share/. Needs patchelf.
The same binary, sources and date give the same bytes.
"""
import sys

import common
import help_pages
import sbom


def readme(binary, bundled):
    return f"""ibid {common.version()} for Linux on {binary.kernel}: {common.SUMMARY}.

  bin/ibid run                 chat in the terminal
  bin/ibid serve               serve a model; then open http://127.0.0.1:8080
  man -l share/man/man1/ibid.1

This folder may lie anywhere; to remove ibid, remove it. It needs glibc {binary.glibc()} or newer and nothing else:
lib/ibid has {', '.join(bundled)}.
The certificates of https are the system's: set SSL_CERT_FILE where they are not in Debian's place, for example to
/etc/pki/tls/certs/ca-bundle.crt. `ibid pull default` runs python3 -m pip.

share/doc/ibid has the licence of ibid, those of the libraries in it, and the bill of materials.
"""


def fill(tree, binary):
    common.need("patchelf")
    packages = sbom.collect(binary)
    bundled = {name: path for name, path in binary.libraries().items() if not common.OF_THE_SYSTEM.match(name)}
    binary.stripped(tree.path("bin/ibid"))
    common.run("patchelf", "--set-rpath", "$ORIGIN/../lib/ibid", tree.root / "bin/ibid")
    for name, path in bundled.items():
        tree.copy(path, f"lib/ibid/{name}", 0o644)
        # Those of a library's own libraries are looked for beside it.
        common.run("patchelf", "--set-rpath", "$ORIGIN", tree.root / "lib/ibid" / name)
    sbom.write(binary, packages, tree, "share/doc/ibid", (tree.root / "bin/ibid").read_bytes())
    tree.copy(common.ROOT / "LICENSE", "share/doc/ibid/LICENSE")
    tree.copy(common.ROOT / "CHANGELOG.md", "share/doc/ibid/CHANGELOG.md")
    tree.copy(common.ROOT / "packaging/ibid.service", "share/doc/ibid/ibid.service")
    tree.write("README", readme(binary, bundled))
    help_pages.write(binary.path, tree)


def main():
    options = common.arguments(__doc__)
    binary, date = common.Binary(options.build), common.epoch()
    name = f"ibid-{common.version()}-linux-{binary.kernel}"
    with common.Tree() as tree:
        fill(tree, binary)
        tree.settle(date)
        content = common.archive(tree.root, date, prefix=name + "/")
    common.written(options.out / f"{name}.tar.gz", common.gzipped(content))


if __name__ == "__main__":
    sys.exit(main())
