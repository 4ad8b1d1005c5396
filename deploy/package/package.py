#!/usr/bin/env python3
"""Packages of what is built: a Debian package, a tarball that needs nothing but glibc, a Python wheel, and a Homebrew formula.

  package.py deb|tarball|wheel BUILD/bin OUT
  package.py formula BUILD/bin OUT [URL]

Prints the file's path. A formula installs the tarball that is made beside it, from the folder URL (file://OUT without one).
Each of the others holds quire, its router and its worker, libquire.so with its header, the demo model, manual
pages, licences and a bill of materials (SPDX 2.3). Tarball and wheel carry their libraries in lib/quire, where the programs
look first and libquire.so is; the Debian package names Debian's. The wheel has the Python package on top.
"""
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "deploy" / "docker"))
import root  # noqa: E402

PROGRAMS = root.PROGRAMS["worker"]
LIBRARY = "libquire.so"
PYTHON = ROOT / "library" / "python" / "quire"
# What glibc consists of: it comes from the machine.
GLIBC = re.compile(r"/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec|nss_[a-z]+)\.so[^/]*)$")
DISTRIBUTION = "quire_llm"
EPOCH = (1980, 1, 1, 0, 0, 0)
SUMMARY = "Serves large language models: OpenAI's API and gRPC, streams that outlive their workers"


def version_of(programs):
    return root.told(programs / "quire", "--version").split()[-1]


def glibc_needed(paths):
    """The newest GLIBC_x.y that any of these files asks for."""
    found = {(2, 17)}
    for path in paths:
        text = root.told("objdump", "-T", path)
        found |= {(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", text)}
    return max(found)


def binaries(programs):
    """The programs and the library of a build."""
    return [*[programs / one for one in PROGRAMS], programs.parent / "lib" / LIBRARY]


def lay_out(programs, prefix, name, with_libraries):
    """bin, include, lib and share below `prefix`, lib/quire for packages that stand alone. Returns (libraries, Debian's
    packages)."""
    sources = binaries(programs)
    for source in sources:
        to = prefix / "bin" / source.name
        if source.name == LIBRARY:
            to = prefix / "lib" / ("quire" if with_libraries else "x86_64-linux-gnu") / LIBRARY
        root.put(source, to, executable=True)
        subprocess.run(["strip", "--strip-unneeded", to], check=True)
    root.put(ROOT / "library" / "quire.h", prefix / "include" / "quire.h")
    found = [one for one in root.libraries(sources) if not GLIBC.search(one)]
    if with_libraries:
        for one in found:
            root.put(one, prefix / "lib" / "quire" / pathlib.Path(one).name, executable=True)
    packages = root.packages_of(found)
    share = prefix / "share"
    for file in root.DEMO:
        root.put(ROOT / "models" / "demo" / file, share / "quire" / "models" / "demo" / file)
    root.put(ROOT / "LICENSE", share / "doc" / "quire" / "copyright")
    root.put(ROOT / "kernels" / "grid_tables.LICENSE", share / "doc" / "quire" / "licences" / "llama.cpp")
    if with_libraries:
        for package, _ in packages:
            notice = pathlib.Path(f"/usr/share/doc/{package}/copyright")
            if notice.exists():
                root.put(notice, share / "doc" / "quire" / "licences" / package)
    bill = root.bill(name, version_of(programs), packages)
    (share / "quire" / "sbom.spdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    subprocess.run([programs / "quire", "man", "--folder", share / "man"], check=True, stdout=subprocess.DEVNULL)
    for shell, path in (("bash", "bash-completion/completions/quire"), ("zsh", "zsh/vendor-completions/_quire"),
                        ("fish", "fish/vendor_completions.d/quire.fish")):
        (share / path).parent.mkdir(parents=True, exist_ok=True)
        (share / path).write_text(root.told(programs / "quire", "completion", shell))
    return found, packages


def files_below(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def control(version, depends, kilobytes):
    return (f"Package: quire\nVersion: {version}\nArchitecture: amd64\nMaintainer: The Quire authors <quire@localhost>\n"
            f"Installed-Size: {kilobytes}\nDepends: {depends}\nSection: misc\nPriority: optional\n"
            f"Description: {SUMMARY}\n A router and workers that supervise each other on one machine, or that make a fleet.\n")


def depends_of(programs):
    """What dpkg-shlibdeps reads off the programs."""
    with tempfile.TemporaryDirectory() as name:
        (pathlib.Path(name) / "debian").mkdir()
        (pathlib.Path(name) / "debian" / "control").write_text("Source: quire\n\nPackage: quire\nArchitecture: amd64\n")
        told = subprocess.run(["dpkg-shlibdeps", "-O", *[str(one) for one in binaries(programs)]], cwd=name, check=True,
                              capture_output=True, text=True).stdout
    return told.split("shlibs:Depends=", 1)[1].strip()


def make_deb(programs, out):
    version = version_of(programs)
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name)
        lay_out(programs, tree / "usr", "deb", False)
        for page in files_below(tree / "usr" / "share" / "man"):
            page.with_name(page.name + ".gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
            page.unlink()
        for source, to in (("quire.service", "usr/lib/systemd/system/quire.service"), ("quire.yaml", "etc/quire/quire.yaml"),
                           ("default", "etc/default/quire")):
            root.put(HERE / source, tree / to)
        sums = [f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(tree)}\n" for p in files_below(tree / "usr")]
        kilobytes = sum(p.stat().st_size for p in files_below(tree)) // 1024
        debian = tree / "DEBIAN"
        debian.mkdir()
        (debian / "control").write_text(control(version, depends_of(programs), kilobytes))
        (debian / "conffiles").write_text("/etc/quire/quire.yaml\n/etc/default/quire\n")
        (debian / "md5sums").write_text("".join(sums))
        for folder in tree.rglob("*"):
            if folder.is_dir():
                folder.chmod(0o755)
        tree.chmod(0o755)
        made = out / f"quire_{version}_amd64.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, made], check=True, stdout=subprocess.DEVNULL)
    return made


INSTALL = """#!/bin/sh
# Installs Quire below PREFIX (/usr/local without one), or says why this machine cannot run it.
set -eu
prefix=${{1:-/usr/local}}
here=$(cd "$(dirname "$0")" && pwd)
have=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/glibc //') || have=
oldest=$(printf '%s\\n%s\\n' "{glibc}" "${{have:-0}}" | sort -V | head -n 1)
if [ "$oldest" != "{glibc}" ]; then
  echo "install.sh: Quire needs glibc {glibc} or newer (Debian 12, Ubuntu 22.10); this machine has ${{have:-another libc}}" >&2
  exit 1
fi
mkdir -p "$prefix"
cp -R "$here/bin" "$here/include" "$here/lib" "$here/share" "$prefix/"
echo "installed; $prefix/bin/quire run demo"
"""


def make_tarball(programs, out):
    version = version_of(programs)
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name) / f"quire-{version}-linux-x86_64"
        lay_out(programs, top, "tarball", True)
        glibc = "%d.%d" % glibc_needed([*files_below(top / "bin"), *files_below(top / "lib")])
        (top / "install.sh").write_text(INSTALL.format(glibc=glibc))
        (top / "install.sh").chmod(0o755)
        for source in ("quire.service", "quire.yaml", "default"):
            root.put(HERE / source, top / "share" / "quire" / "systemd" / source)
        made = out / f"{top.name}.tar.gz"

        def plain(member):
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = "root"
            return member

        with open(made, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in [top, *sorted(top.rglob("*"))]:
                archive.add(path, str(path.relative_to(name)), recursive=False, filter=plain)
    return made


def make_wheel(programs, out):
    version = version_of(programs)
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name)
        home = tree / "quire" / "_quire"
        lay_out(programs, home, "wheel", True)
        glibc = glibc_needed([*files_below(home / "bin"), *files_below(home / "lib")])
        tag = "py3-none-manylinux_%d_%d_x86_64" % glibc
        for source in sorted(PYTHON.glob("*.py")):
            root.put(source, tree / "quire" / source.name)
        (tree / "quire" / "_version.py").write_text(f'__version__ = "{version}"\n')
        (tree / "quire" / "__main__.py").write_text("from quire import main\n\nmain()\n")
        info = tree / f"{DISTRIBUTION}-{version}.dist-info"
        (info / "licenses").mkdir(parents=True)
        root.put(ROOT / "LICENSE", info / "licenses" / "LICENSE")
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {DISTRIBUTION.replace('_', '-')}\nVersion: {version}\n"
                                       f"Summary: {SUMMARY}\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.8\n")
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: quire\nRoot-Is-Purelib: false\nTag: {tag}\n")
        (info / "entry_points.txt").write_text("[console_scripts]\nquire = quire:main\n")
        made = out / f"{DISTRIBUTION}-{version}-{tag}.whl"
        record = io.StringIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files_below(tree):
                data, place = path.read_bytes(), str(path.relative_to(tree))
                entry = zipfile.ZipInfo(place, EPOCH)
                entry.external_attr = (0o100755 if os.access(path, os.X_OK) else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                record.write(f"{place},sha256={digest},{len(data)}\n")
            record.write(f"{info.name}/RECORD,,\n")
            entry = zipfile.ZipInfo(f"{info.name}/RECORD", EPOCH)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, record.getvalue())
    return made


FORMULA = """# Quire for Homebrew on Linux: the tarball that needs nothing but glibc.
# Untested: no Homebrew has run this formula; a parser of Ruby has read it.
class Quire < Formula
  desc "{summary}"
  homepage "{url}"
  url "{url}/{file}"
  version "{version}"
  sha256 "{digest}"
  license "Apache-2.0"

  depends_on arch: :x86_64
  depends_on :linux

  def install
    prefix.install "bin", "include", "lib", "share"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/quire --version")
  end
end
"""


def make_formula(programs, out, url=None):
    tarball = make_tarball(programs, out)
    made = out / "quire.rb"
    made.write_text(FORMULA.format(summary=SUMMARY, url=(url or out.as_uri()).rstrip("/"), file=tarball.name,
                                   version=version_of(programs), digest=hashlib.sha256(tarball.read_bytes()).hexdigest()))
    return made


KINDS = {"deb": make_deb, "tarball": make_tarball, "wheel": make_wheel, "formula": make_formula}


def main():
    if len(sys.argv) not in ((4, 5) if sys.argv[1:2] == ["formula"] else (4,)) or sys.argv[1] not in KINDS:
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[3]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for tool in ("strip", "objdump", "dpkg-shlibdeps" if sys.argv[1] == "deb" else "strip"):
        if shutil.which(tool) is None:
            raise SystemExit(f"package.py: needs {tool}; install the Debian packages binutils and dpkg-dev")
    print(KINDS[sys.argv[1]](pathlib.Path(sys.argv[2]).resolve(), out, *sys.argv[4:]))


if __name__ == "__main__":
    main()
