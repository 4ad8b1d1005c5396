#!/usr/bin/env python3
"""Assembles the root file system of an image: programs, the libraries that they load, and nothing to run besides: no
shell, no compiler, no package manager. With it comes a bill of materials (SPDX 2.3) of what it holds.

  root.py router|worker|worker-cuda BUILD/bin OUT

worker-cuda is the worker with libquire_cuda.so out of BUILD/bin, where ./dev cuda puts it, and NCCL in its pinned version.
"""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "kernels" / "cuda" / "toolchain"))
import toolkit  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {
    "router": ["quire-router", "quire"],
    # `quire serve` of a KServe pod is a router and a worker.
    "worker": ["quire-worker", "quire-router", "quire"],
    "worker-cuda": ["quire-worker", "quire-router", "quire"],
}
PLUGIN = "libquire_cuda.so"
DEMO = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
        "model.safetensors", "README.md"]
# Where manifests mount something.
MOUNT_POINTS = ["dev", "proc", "sys", "run", "var/run", "models", "mnt/models", "etc/quire/keys", "etc/quire/tls",
                "etc/quire/worker-tls"]
FILES = {
    "etc/passwd": "quire:x:65532:65532:quire:/:/sbin/nologin\n",
    "etc/group": "quire:x:65532:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


def told(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries(programs):
    """Paths by which the loader finds what the programs load, the loader itself included."""
    found = set()
    for program in programs:
        for line in told("ldd", program).splitlines():
            if "not found" in line:
                raise SystemExit(f"root.py: {program}: {line.strip()}")
            path = re.search(r"(/\S+) \(0x", line)
            if path:
                found.add(path[1])
    return sorted(found)


def put(source, to, executable=False):
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to)  # the file itself, whatever links lead to it
    to.chmod(0o755 if executable else 0o644)


def packages_of(found):
    """(name, version) of Debian's packages that hold these libraries."""
    paths = {p for x in found for p in (x, "/usr" + x, str(pathlib.Path(x).resolve()))}
    # It knows each by one of its paths, and says of the others that it does not.
    lines = subprocess.run(["dpkg", "-S", *sorted(paths)], capture_output=True, text=True).stdout.splitlines()
    holds = {path: package for package, path in (line.split(": ", 1) for line in lines)}
    for library in found:
        if not holds.keys() & {library, "/usr" + library, str(pathlib.Path(library).resolve())}:
            raise SystemExit(f"root.py: no package holds {library}")
    names = sorted(set(holds.values()))
    versions = told("dpkg-query", "-W", "-f", "${Package} ${Version}\n", *names, "ca-certificates")
    return {tuple(line.split()) for line in versions.splitlines()}


def crates():
    """(name, version) of each crate that is linked into the programs."""
    lock = (ROOT / "common" / "text" / "bridge" / "Cargo.lock").read_text()
    return re.findall(r'\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"\nsource', lock)


def add_cuda(programs, out):
    """The plugin and NCCL, beside the program that looks for them there; the driver is the node's. NCCL's (name, version)."""
    plugin, beside = programs / PLUGIN, out / "usr" / "local" / "bin"
    if not plugin.exists():
        raise SystemExit(f"root.py: {plugin} is not there: ./dev cuda builds it")
    put(plugin, beside / PLUGIN, executable=True)
    nccl = toolkit.nccl()
    if nccl is None:
        raise SystemExit("root.py: NCCL cannot be fetched")
    put(nccl / "lib" / "libnccl.so.2", beside / "libnccl.so.2", executable=True)
    name, version = toolkit.NCCL_WHEELS[0].split("==")
    texts = [p.read_text(errors="replace") for p in sorted(nccl.parents[1].glob("*.dist-info/**/[Ll][Ii][Cc][Ee][Nn][Ss]*")) if p.is_file()]
    about = out / "usr" / "share" / "doc" / name
    about.mkdir(parents=True)
    (about / "copyright").write_text("\n".join(texts) or f"{name} {version} of PyPI, by NVIDIA, under the licence that it names there\n")
    # NVIDIA's runtime puts the driver where Debian has its libraries.
    (out / "etc" / "debian_version").write_text("12\n")
    return name, version


def bill(name, version, packages, wheels=()):
    entries = [{"SPDXID": "SPDXRef-image", "name": f"quire-{name}", "versionInfo": version,
                "downloadLocation": "NOASSERTION", "licenseConcluded": "Apache-2.0"}]
    for kind, listed in (("deb/debian", packages), ("cargo", crates()), ("pypi", wheels)):
        for package, of in sorted(listed):
            entries.append({
                "SPDXID": f"SPDXRef-{kind.split('/')[0]}-{re.sub('[^A-Za-z0-9.-]', '-', package)}-{len(entries)}",
                "name": package, "versionInfo": of, "downloadLocation": "NOASSERTION",
                "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": f"pkg:{kind}/{package}@{of}"}]})
    digest = hashlib.sha256(json.dumps(entries).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"quire-{name}",
            "documentNamespace": f"urn:quire:sbom:{digest}",
            "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: deploy/docker/root.py"]},
            "packages": entries,
            "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                               "relatedSpdxElement": "SPDXRef-image"}] +
            [{"spdxElementId": "SPDXRef-image", "relationshipType": "CONTAINS", "relatedSpdxElement": e["SPDXID"]}
             for e in entries[1:]]}


def make(name, programs, out):
    for folder in MOUNT_POINTS:
        (out / folder).mkdir(parents=True, exist_ok=True)
    (out / "tmp").mkdir(mode=0o1777)
    (out / "tmp").chmod(0o1777)
    # As Debian lays them out: the loader's own path is under /lib64.
    (out / "usr" / "lib").mkdir(parents=True)
    (out / "usr" / "lib64").mkdir()
    (out / "lib").symlink_to("usr/lib")
    (out / "lib64").symlink_to("usr/lib64")
    sources = [programs / p for p in PROGRAMS[name]]
    for source in sources:
        to = out / "usr" / "local" / "bin" / source.name
        put(source, to, executable=True)
        subprocess.run(["strip", to], check=True)
    found = libraries(sources)
    for library in found:
        put(library, out / library.lstrip("/"), executable=True)
    packages = packages_of(found)
    for path, text in FILES.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text)
    put(f"/{CERTIFICATES}", out / CERTIFICATES)
    share = out / "usr" / "share"
    wheels = [add_cuda(programs, out)] if name == "worker-cuda" else []
    if name != "router":
        for file in DEMO:
            put(ROOT / "models" / "demo" / file, share / "quire" / "models" / "demo" / file)
    put(ROOT / "LICENSE", share / "doc" / "quire" / "LICENSE")
    for package, _ in packages:
        put(f"/usr/share/doc/{package}/copyright", share / "doc" / package / "copyright")
    version = told(sources[0], "--version").split()[-1]
    (share / "quire").mkdir(exist_ok=True)
    (share / "quire" / "sbom.spdx.json").write_text(json.dumps(bill(name, version, packages, wheels), indent=1) + "\n")


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in PROGRAMS:
        raise SystemExit(__doc__)
    make(sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]))


if __name__ == "__main__":
    main()
