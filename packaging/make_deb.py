#!/usr/bin/env python3
"""Writes ibid_VERSION-REVISION_ARCHITECTURE.deb from build/ibid, for the Debian release that the binary was built on.

Binary, library and header for C, unit, man pages, completions for bash, zsh and fish, bill of materials and licences. Needs
dpkg-dev. The same
binary, sources and date give the same bytes.
"""
import re
import sys
import textwrap
import time

import common
import help_pages
import sbom

HERE = common.ROOT / "packaging"
MAINTAINER = "ibid authors <ibid@ibid.invalid>"
PKG_CONFIG = """Name: ibid
Description: an inference engine for large language models
Version: {version}
Cflags: -I/usr/include
Libs: -L/{folder} -libid
"""


def unit():
    """packaging/ibid.service as the package has it: its own path, a user that stays, flags from /etc/default/ibid."""
    text = (HERE / "ibid.service").read_text()
    text = text[text.index("[Unit]"):]
    for old, new in ((r"^DynamicUser=yes$", "User=ibid\nGroup=ibid"),
                     (r"^LoadCredential=.*$", "EnvironmentFile=-/etc/default/ibid"),
                     (r"^ExecStart=/usr/local/bin/ibid serve .*$", "ExecStart=/usr/bin/ibid serve $IBID_OPTIONS")):
        text, n = re.subn(old, new, text, flags=re.M)
        if n != 1:
            common.fail(f"packaging/ibid.service has {n} lines like {old}; expected 1.")
    return text.replace("Description=ibid, LLM inference server",
                        "Description=ibid, LLM inference server\nDocumentation=man:ibid-serve(1)")


def copyright_file(packages):
    parts = "".join(f"  {p.name} ({p.source} {p.source_version})\n" for p in packages if p.ways & {"static", "headers"})
    return f"""Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ibid
Comment: The binary contains code of these Debian packages, whose copyright files are in /usr/share/doc/ibid/licences:
{parts}
Files: *
Copyright: 2026 the ibid authors
License: Apache-2.0
 On Debian systems the text of this licence is in /usr/share/common-licenses/Apache-2.0.
"""


def dependencies(tree, architecture):
    """What dpkg-shlibdeps finds that the binary needs."""
    common.need("dpkg-shlibdeps")
    with common.Tree() as source:
        source.write("debian/control", f"Source: ibid\n\nPackage: ibid\nArchitecture: {architecture}\n")
        found = common.run("dpkg-shlibdeps", "-O", tree.root / "usr/bin/ibid", *tree.root.glob("usr/lib/*/libibid.so.1"),
                           cwd=source.root)
    depends = re.search(r"^shlibs:Depends=(.*)$", found, re.M)
    return depends[1] if depends else common.fail("dpkg-shlibdeps finds no dependencies.")


def control(tree, version, architecture):
    size = sum((path.stat().st_size + 1023) // 1024 for path in tree.root.rglob("*") if path.is_file() and not path.is_symlink())
    described = textwrap.fill(common.DESCRIPTION, 78, initial_indent=" ", subsequent_indent=" ")
    return f"""Package: ibid
Version: {version}
Architecture: {architecture}
Maintainer: {MAINTAINER}
Installed-Size: {size}
Depends: {dependencies(tree, architecture)}, adduser, init-system-helpers (>= 1.54)
Recommends: ca-certificates
Suggests: python3-pip
Section: science
Priority: optional
Description: {common.SUMMARY}
{described}
"""


def changelog(version, date):
    stamp = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(date))
    return f"ibid ({version}) stable; urgency=medium\n\n  * Version {common.version()}; see changelog.gz.\n\n -- {MAINTAINER}  {stamp}\n"


def fill(tree, binary, version, date):
    binary.stripped(tree.path("usr/bin/ibid"))
    folder = f"usr/lib/{binary.kernel}-linux-gnu"
    binary.stripped_library(tree.path(f"{folder}/libibid.so.1"))
    tree.path(f"{folder}/libibid.so").symlink_to("libibid.so.1")
    tree.copy(common.ROOT / "include/ibid.h", "usr/include/ibid.h")
    tree.write(f"{folder}/pkgconfig/ibid.pc", PKG_CONFIG.format(version=common.version(), folder=folder))
    packages = sbom.collect(binary)
    doc = "usr/share/doc/ibid"
    sbom.write(binary, packages, tree, doc, (tree.root / "usr/bin/ibid").read_bytes(),
               licences_of={"static", "headers"})
    tree.write(f"{doc}/copyright", copyright_file(packages))
    tree.write(f"{doc}/changelog.gz", common.gzipped((common.ROOT / "CHANGELOG.md").read_bytes()))
    tree.write(f"{doc}/changelog.Debian.gz", common.gzipped(changelog(version, date)))
    # libtinfo is static like all but the C library and OpenSSL; the bill of materials has its version.
    tree.write("usr/share/lintian/overrides/ibid", "ibid: embedded-library ncurses [usr/bin/ibid]\n"
               "ibid: package-name-doesnt-match-sonames libibid1\nibid: lacks-unversioned-link-to-shared-library *\n"
               f"ibid: link-to-shared-library-in-wrong-package {folder}/libibid.so.1 [{folder}/libibid.so]\n")
    tree.write("lib/systemd/system/ibid.service", unit())
    tree.copy(HERE / "debian/default", "etc/default/ibid")
    help_pages.write(binary.path, tree, man="usr/share/man/man1", bash="usr/share/bash-completion/completions/ibid",
                     zsh="usr/share/zsh/vendor-completions/_ibid", fish="usr/share/fish/vendor_completions.d/ibid.fish",
                     compress=True)


def main():
    options = common.arguments(__doc__, revision=("1", "Debian's revision of this version (default: 1)"))
    if not re.fullmatch(r"[0-9A-Za-z.+~]+", options.revision):
        common.fail(f"The revision is {options.revision!r}; expected digits, letters, '.', '+' and '~'.")
    common.need("dpkg-deb")
    binary, date = common.Binary(options.build), common.epoch()
    version = f"{common.version()}-{options.revision}"
    with common.Tree() as tree:
        fill(tree, binary, version, date)
        text = control(tree, version, binary.debian)
        sums = "".join(f"{common.digest(path, 'md5')}  {path.relative_to(tree.root)}\n"
                       for path in sorted(tree.root.rglob("*")) if path.is_file() and not path.is_symlink())
        tree.write("DEBIAN/control", text)
        tree.write("DEBIAN/triggers", "activate-noawait ldconfig\n")
        tree.write("DEBIAN/conffiles", "/etc/default/ibid\n")
        tree.write("DEBIAN/md5sums", sums)
        for script in ("postinst", "prerm", "postrm"):
            tree.copy(HERE / "debian" / script, f"DEBIAN/{script}", 0o755)
        tree.settle(date)
        out = options.out / f"ibid_{version}_{binary.debian}.deb"
        # One thread: how a file is cut for several is written into it.
        common.run("dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--threads-max=1", "--build", tree.root, out,
                   env=common.environment(date))
    common.written(out)


if __name__ == "__main__":
    sys.exit(main())
