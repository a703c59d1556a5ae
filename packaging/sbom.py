#!/usr/bin/env python3
"""The bill of materials of build/ibid: every Debian package that a byte of it, or a library that it loads, comes from.

  sbom.py [--build DIR] [--out DIR]     writes ibid-VERSION.cdx.json (CycloneDX 1.5) and licences/

Static archives and headers are those that ninja's own records name for the binary, shared libraries those of the loader.
Licences are the copyright files of these packages.
"""
import hashlib
import json
import pathlib
import re
import shlex
import sys
import uuid
from dataclasses import dataclass, field

import common

NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # of URLs (RFC 4122)
# SPDX identifiers of licences that Debian's copyright files call otherwise.
SPDX = {"Expat": "MIT", "BSD-2-clause": "BSD-2-Clause", "BSD-3-clause": "BSD-3-Clause", "Apache-2": "Apache-2.0", "BSL-1.0": "BSL-1.0",
        "Boost-1.0": "BSL-1.0", "GPL-2": "GPL-2.0-only", "GPL-2+": "GPL-2.0-or-later", "GPL-3": "GPL-3.0-only",
        "GPL-3+": "GPL-3.0-or-later", "LGPL-2.1": "LGPL-2.1-only", "LGPL-2.1+": "LGPL-2.1-or-later",
        "Apache-2.0": "Apache-2.0", "MIT": "MIT", "ISC": "ISC", "Zlib": "Zlib"}


@dataclass
class Package:
    name: str
    version: str = ""
    architecture: str = ""
    source: str = ""
    source_version: str = ""
    ways: set = field(default_factory=set)  # static, headers, shared; data: files beside the binary
    files: set = field(default_factory=set)  # archives and shared libraries

    @property
    def purl(self):
        return f"pkg:deb/debian/{self.name}@{quoted(self.version)}?arch={self.architecture}"

    @property
    def copyright(self):
        """Its copyright file; None where the package has none."""
        path = pathlib.Path("/usr/share/doc", self.name, "copyright")
        return path if path.is_file() else None


def quoted(text):
    return re.sub(r"[^A-Za-z0-9.~_-]", lambda c: f"%{ord(c[0]):02X}", text)


def linked(build):
    """(static archives, headers) of other packages that the binary is made of, from ninja's records."""
    common.need("ninja")
    if not (build / "build.ninja").is_file():
        common.fail(f"{build} was not built with ninja, whose records name what the binary is made of.")
    commands = common.run("ninja", "-n", "-C", build, "-t", "commands", "ibid").splitlines()
    archives = {word for word in shlex.split(commands[-1]) if word.startswith("/") and word.endswith(".a")}
    objects = {word for line in commands for word in re.findall(r"(?<= -o )\S+\.o\b", line)}
    headers, counts = set(), False
    for line in common.run("ninja", "-n", "-C", build, "-t", "deps").splitlines():
        if not line.startswith(" "):
            counts = line.partition(":")[0] in objects
            objects.discard(line.partition(":")[0])
        elif counts and line.strip().startswith("/usr/"):
            headers.add(line.strip())
    if objects:
        common.fail(f"{build} is not fully built: ninja knows no headers of {sorted(objects)[0]}. Run ninja -C {build} ibid.")
    return archives, headers


def described(packages):
    """Fills in what dpkg has about these packages."""
    form = "${binary:Package}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n"
    for line in common.run("dpkg-query", "-W", "-f", form, *packages).splitlines():
        binary, name, version, architecture, source, source_version = line.split("\t")
        for key in (binary, name):
            if key in packages:
                p = packages[key]
                p.name, p.version, p.architecture, p.source, p.source_version = name, version, architecture, source, source_version


def collect(binary):
    """The packages, by name."""
    archives, headers = linked(binary.build)
    shared = set(binary.libraries().values())
    where = common.owners(archives | headers | shared)
    packages = {}
    for way, paths in (("static", archives), ("headers", headers), ("shared", shared)):
        for path in sorted(paths):
            if path not in where:
                common.fail(f"No installed package has {path}, of which {binary.path} is made.")
            package = packages.setdefault(where[path], Package(where[path]))
            package.ways.add(way)
            if way != "headers":
                package.files.add(path)
    described(packages)
    return sorted(packages.values(), key=lambda p: p.name)


def licences(package):
    """Names of licences in its copyright file, in order; empty where that is in no machine's form."""
    if package.copyright is None:
        return []
    text = package.copyright.read_text(errors="replace")
    if not text.startswith("Format:"):
        return []
    names = re.findall(r"^License: *(\S.*)$", text, re.M)
    return sorted({SPDX.get(name.strip(), name.strip()) for name in names})


def component(package):
    names = licences(package)
    known = set(SPDX.values())
    out = {"type": "library", "bom-ref": package.purl, "name": package.name, "version": package.version, "purl": package.purl,
           "licenses": [{"license": {"id" if name in known else "name": name}} for name in names]
           or [{"license": {"name": f"see licences/{package.name}"}}],
           "properties": [{"name": "ibid:linked", "value": way} for way in sorted(package.ways)]
           + [{"name": "debian:source", "value": f"{package.source} {package.source_version}"}]}
    if package.files:
        out["components"] = [
            {"type": "file", "bom-ref": f"{package.purl}#{pathlib.Path(path).name}", "name": pathlib.Path(path).name,
             "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()}]}
            for path in sorted(package.files, key=lambda path: pathlib.Path(path).name)]
    return out


def document(binary, packages, content):
    """The bill as JSON text. `content`: the bytes of the binary as it is packed."""
    version, date = common.version(), common.epoch()
    digest = hashlib.sha256(content).hexdigest()
    ibid = {"type": "application", "bom-ref": f"ibid@{version}", "name": "ibid", "version": version,
            "licenses": [{"license": {"id": "Apache-2.0"}}], "hashes": [{"alg": "SHA-256", "content": digest}],
            "description": common.SUMMARY}
    components = [component(package) for package in packages]
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"timestamp": common.date_text(date), "component": ibid},
            "components": components,
            "dependencies": [{"ref": ibid["bom-ref"], "dependsOn": [c["bom-ref"] for c in components]}]}
    number = uuid.uuid5(NAMESPACE, hashlib.sha256(json.dumps(bill, sort_keys=True).encode()).hexdigest())
    bill = {"bomFormat": bill.pop("bomFormat"), "specVersion": bill.pop("specVersion"), "serialNumber": f"urn:uuid:{number}", **bill}
    return json.dumps(bill, indent=1, ensure_ascii=False) + "\n"


def write(binary, packages, tree, folder, content, licences_of=frozenset({"static", "headers", "shared", "data"})):
    """Puts the bill and the licences of the packages that are linked in one of these ways into `folder` of the tree."""
    tree.write(f"{folder}/ibid-{common.version()}.cdx.json", document(binary, packages, content))
    for package in packages:
        if not package.ways & licences_of:
            continue
        if package.copyright is None:
            common.fail(f"The package {package.name} has no copyright file under /usr/share/doc; install it again.")
        tree.copy(package.copyright, f"{folder}/licences/{package.name}")


def main():
    options = common.arguments(__doc__)
    binary = common.Binary(options.build)
    packages = collect(binary)
    with common.Tree() as tree:
        binary.stripped(tree.path("ibid"))
        write(binary, packages, tree, "sbom", (tree.root / "ibid").read_bytes())
        for path in sorted((tree.root / "sbom").rglob("*")):
            if path.is_file():
                to = options.out / path.relative_to(tree.root / "sbom")
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(path.read_bytes())
    common.written(options.out / f"ibid-{common.version()}.cdx.json")
    for package in packages:
        print(f"  {package.name} {package.version} ({', '.join(sorted(package.ways))})")


if __name__ == "__main__":
    sys.exit(main())
