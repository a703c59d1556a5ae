#!/usr/bin/env python3
"""Writes an OCI image of build/ibid: ibid-VERSION-oci-ARCHITECTURE, a layout, and the same as a .tar that podman and docker load.

The image has the binary, the libraries that its loader maps, the root certificates of Debian's ca-certificates and nothing
else: no shell, no package manager. It runs as the user 10001 on a read-only root; /cache is a volume for models and disk
caches. With --events yes it has libzmq too, for `ibid serve --kv-events`. Its health check is `ibid health`. The same binary,
packages and date give the same bytes.
"""
import hashlib
import json
import pathlib
import sys

import common
import sbom

USER = 10001
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


def certificates():
    """The roots of Debian's package, as one text; what this machine trusts besides is not in it."""
    folder = pathlib.Path("/usr/share/ca-certificates/mozilla")
    files = sorted(folder.glob("*.crt"))
    if not files:
        common.fail(f"There are no certificates in {folder}; they are in the package ca-certificates.")
    return b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in files)


def zmq(binary):
    path = pathlib.Path(f"/usr/lib/{binary.kernel}-linux-gnu/libzmq.so.5")
    return path if path.is_file() else common.fail(f"There is no {path}; it is in the package libzmq5.")


def fill(tree, binary):
    packages = sbom.collect(binary)
    binary.stripped(tree.path("usr/bin/ibid"))
    for name, path in binary.libraries().items():
        # Where the loader looks: its own place, as the binary names it, and its standard folder.
        place = path.lstrip("/") if name.startswith("ld-") else f"usr/lib/{binary.kernel}-linux-gnu/{name}"
        tree.copy(path, place, 0o755)
    roots = sbom.Package("ca-certificates", ways={"data"})
    sbom.described({roots.name: roots})
    packages = sorted([*packages, roots], key=lambda p: p.name)
    tree.write(CERTIFICATES, certificates())
    tree.write("etc/passwd", f"root:x:0:0:root:/:/sbin/nologin\nibid:x:{USER}:{USER}:ibid:/cache:/sbin/nologin\n")
    tree.write("etc/group", f"root:x:0:\nibid:x:{USER}:\n")
    tree.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    for folder in ("cache", "tmp", "models"):
        (tree.root / folder).mkdir()
    # As images without dpkg have it, for programs that look for known faults in packages.
    for package in packages:
        if package.ways & {"shared", "data"}:
            tree.write(f"var/lib/dpkg/status.d/{package.name}", common.run("dpkg-query", "-s", package.name))
    tree.copy("/etc/debian_version", "etc/debian_version")
    tree.copy("/usr/lib/os-release", "usr/lib/os-release")
    tree.path("etc/os-release").symlink_to("../usr/lib/os-release")
    sbom.write(binary, packages, tree, "usr/share/doc/ibid", (tree.root / "usr/bin/ibid").read_bytes())
    tree.copy(common.ROOT / "LICENSE", "usr/share/doc/ibid/LICENSE")


def owner(name):
    return (USER, USER) if name == "cache" else (0, 0)


def config(binary, diff_id, date):
    return {
        "created": common.date_text(date), "architecture": binary.oci, "os": "linux",
        "config": {
            "User": f"{USER}:{USER}", "ExposedPorts": {"8080/tcp": {}}, "Volumes": {"/cache": {}}, "WorkingDir": "/",
            "Env": ["PATH=/usr/bin", "HOME=/cache", "XDG_CACHE_HOME=/cache", f"SSL_CERT_FILE=/{CERTIFICATES}"],
            # In a container loopback is not reachable from outside; keys are wanted, so that nobody else may ask.
            "Entrypoint": ["/usr/bin/ibid"],
            "Cmd": ["serve", "--host", "0.0.0.0", "--port", "8080", "--api-key-file", "/keys"],
            "StopSignal": "SIGTERM",
            "Healthcheck": {"Test": ["CMD", "/usr/bin/ibid", "health"], "Interval": 30_000_000_000, "Timeout": 10_000_000_000,
                            "StartPeriod": 120_000_000_000, "Retries": 3},
            "Labels": {"org.opencontainers.image.title": "ibid", "org.opencontainers.image.version": common.version(),
                       "org.opencontainers.image.licenses": "Apache-2.0",
                       "org.opencontainers.image.description": common.SUMMARY}},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": common.date_text(date), "created_by": "packaging/make_oci.py"}]}


class Layout:
    """The files of an OCI layout, by name."""

    def __init__(self):
        self.files = {"oci-layout": text({"imageLayoutVersion": "1.0.0"})}

    def add(self, kind, content, **more):
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content), **more}

    def put(self, tree):
        for name, content in self.files.items():
            tree.write(name, content)


def text(value):
    return json.dumps(value, separators=(",", ":")).encode()


def layout(binary, layer, date):
    out, version = Layout(), common.version()
    packed = out.add(LAYER, common.gzipped(layer))
    described = out.add(CONFIG, text(config(binary, "sha256:" + hashlib.sha256(layer).hexdigest(), date)))
    manifest = out.add(MANIFEST, text({"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": [packed]}),
                       annotations={"org.opencontainers.image.ref.name": version},
                       platform={"architecture": binary.oci, "os": "linux"})
    out.files["index.json"] = text({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]})
    # What `docker load` of older versions reads in place of the index.
    blob = lambda entry: "blobs/sha256/" + entry["digest"].removeprefix("sha256:")
    out.files["manifest.json"] = text([{"Config": blob(described), "RepoTags": [f"ibid:{version}"], "Layers": [blob(packed)]}])
    return out


def main():
    options = common.arguments(__doc__, events=("no", "yes: with libzmq.so.5 of libzmq5, 1.7 MB more"))
    binary, date = common.Binary(options.build), common.epoch()
    name = f"ibid-{common.version()}-oci-{binary.oci}" + ("-events" if options.events == "yes" else "")
    if options.events == "yes":
        binary.also = [zmq(binary)]
    with common.Tree() as tree:
        fill(tree, binary)
        tree.settle(date)
        (tree.root / "tmp").chmod(0o1777)
        layer = common.archive(tree.root, date, owner=owner)
    image = layout(binary, layer, date)
    with common.Tree() as tree:
        image.put(tree)
        tree.settle(date)
        content = common.archive(tree.root, date)
        common.replace_folder(tree.root, options.out / name)
    common.written(options.out / f"{name}.tar", content)
    print(f"{options.out / name}  the same as a folder")


if __name__ == "__main__":
    sys.exit(main())
