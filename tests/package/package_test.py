"""Packages are installed into clean roots: folders that hold nothing of this machine but what each says that it needs."""
import configparser
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv

import pytest
import tree_sitter
import tree_sitter_ruby

from harness import BIN, ROOT, expect

PACKAGE = ROOT / "deploy" / "package" / "package.py"
NOTES = ROOT / "deploy" / "package" / "release_notes.py"
GLIBC = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2")
ASK = ["run", "demo", "Tell me a story", "--max-tokens=8", "--seed=1"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def formula(out):
    """The formula; the tarball that it names stands beside it."""
    return package("formula", out)


def tarball_of(formula):
    (path,) = formula.parent.glob("quire-*.tar.gz")
    return path


def package(kind, out):
    done = subprocess.run([sys.executable, PACKAGE, kind, BIN, out], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr[-2000:])
    return pathlib.Path(done.stdout.strip())


def clean_root(folder, libraries):
    """A root with these libraries of Debian and no program."""
    for name in ("proc", "tmp", "dev", "root", "usr/lib/x86_64-linux-gnu", "usr/lib64", "etc"):
        (folder / name).mkdir(parents=True)
    (folder / "lib").symlink_to("usr/lib")
    (folder / "lib64").symlink_to("usr/lib64")
    shutil.copy(pathlib.Path("/lib64/ld-linux-x86-64.so.2").resolve(), folder / "usr/lib64/ld-linux-x86-64.so.2")
    for path in libraries:
        shutil.copy(pathlib.Path(path).resolve(), folder / "usr/lib/x86_64-linux-gnu" / pathlib.Path(path).name)
    (folder / "etc" / "nsswitch.conf").write_text("hosts: files\n")
    (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n")


def inside(folder, *command):
    """Runs a command with that folder as its root, and no network but loopback."""
    whole = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", f"--mount-proc={folder / 'proc'}", "sh", "-c",
             'ip link set lo up 2>/dev/null || true; exec chroot "$0" "$@"', str(folder), *command]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=120, env={"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "dumb"})
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"a root of its own cannot be made here: {done.stderr.strip()}")
    return done


def asked(folder, quire):
    version = inside(folder, quire, "--version")
    expect(version.returncode == 0 and re.fullmatch(r"quire \d+\.\d+\.\d+\n", version.stdout), (version.stdout, version.stderr))
    answer = inside(folder, quire, *ASK)
    expect(answer.returncode == 0 and len(answer.stdout.split()) > 3, (answer.stdout, answer.stderr))


def whole(share, library="lib/quire"):
    """Licence, bill of materials, manual, demo, and the library with its header are inside."""
    prefix = share.parent
    expect((prefix / "include" / "quire.h").read_text() == (ROOT / "library" / "quire.h").read_text(), "the header")
    expect((prefix / library / "libquire.so").stat().st_size > 10**6, "the library")
    bill = json.loads((share / "quire" / "sbom.spdx.json").read_text())
    expect({"libc6", "minijinja"} - {"libc6"} <= {p["name"] for p in bill["packages"]}, bill["packages"][:5])
    expect((share / "doc" / "quire" / "copyright").read_text().strip(), "the licence")
    expect((share / "quire" / "models" / "demo" / "model.safetensors").stat().st_size > 10**6, "the demo")
    expect(list((share / "man").rglob("quire-serve.1*")), "manual pages")


def providers():
    """Which installed package provides a name that is none itself."""
    told = subprocess.run(["dpkg-query", "-W", "-f", "${Package}|${Provides}\n"], check=True, capture_output=True, text=True).stdout
    return {re.split(r"[ (:]", name.strip())[0]: line.split("|")[0] for line in told.splitlines()
            for name in line.split("|")[1].split(",") if name.strip()}


def glibc_libraries():
    return [f"/lib/x86_64-linux-gnu/{name}" for name in GLIBC]


def test_the_tarball_needs_nothing_but_glibc(formula, folder):
    made = tarball_of(formula)
    clean_root(folder / "root", glibc_libraries())
    subprocess.run(["tar", "-C", folder, "-xf", made], check=True)
    (top,) = folder.glob("quire-*")
    done = subprocess.run([top / "install.sh", folder / "root" / "opt" / "quire"], capture_output=True, text=True)
    expect(done.returncode == 0 and "installed" in done.stdout, done.stderr)
    whole(folder / "root" / "opt" / "quire" / "share")
    asked(folder / "root", "/opt/quire/bin/quire")
    # On an older machine it says what it needs.
    fake = folder / "fake"
    fake.mkdir()
    (fake / "getconf").write_text("#!/bin/sh\necho glibc 2.17\n")
    (fake / "getconf").chmod(0o755)
    done = subprocess.run([top / "install.sh", folder / "other"], capture_output=True, text=True, env={"PATH": f"{fake}:{os.environ['PATH']}"})
    expect(done.returncode == 1 and re.search(r"needs glibc 2\.\d+ or newer .* has 2\.17", done.stderr), done.stderr)
    expect(not (folder / "other").exists(), "nothing is installed")


def test_the_debian_package_installs_with_what_it_depends_on(out, folder):
    made = package("deb", out)
    fields = dict(line.split(": ", 1) for line in subprocess.run(["dpkg-deb", "-f", made], check=True, capture_output=True, text=True)
                  .stdout.splitlines() if ": " in line)
    needed = [re.split(r"[ (|:]", one.strip())[0] for one in fields["Depends"].split(",")]
    expect("libc6" in needed and "libssl3" in needed and fields["Architecture"] == "amd64", fields)
    # The libraries of just those packages, and of those that they depend on.
    closure, left = set(), list(needed)
    provided = providers()
    while left:
        one = left.pop()
        one = provided.get(one, one)
        if one in closure:
            continue
        closure.add(one)
        told = subprocess.run(["dpkg-query", "-W", "-f", "${Depends}, ${Pre-Depends}", one], capture_output=True, text=True).stdout
        left += [re.split(r"[ (|:]", name.strip())[0] for name in told.split(",") if name.strip()]
    listed = subprocess.run(["dpkg-query", "-L", *sorted(closure)], capture_output=True, text=True).stdout.splitlines()
    libraries = [p for p in listed if re.search(r"\.so(\.|$)", p) and pathlib.Path(p).is_file()]
    target = folder / "root"
    clean_root(target, libraries)
    admin = target / "var" / "lib" / "dpkg"
    for name in ("info", "updates", "triggers"):
        (admin / name).mkdir(parents=True)
    (admin / "status").write_text("")
    done = subprocess.run(["dpkg", f"--root={target}", "--force-depends", "--force-not-root", "--force-script-chrootless", "--install", made],
                          capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    state = subprocess.run(["dpkg-query", f"--admindir={admin}", "-W", "-f", "${Status}", "quire"], capture_output=True, text=True).stdout
    expect(state == "install ok installed", state)
    whole(target / "usr" / "share", "lib/x86_64-linux-gnu")
    asked(target, "/usr/bin/quire")
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(target / "usr/lib/systemd/system/quire.service")
    defaults = dict(line.split("=", 1) for line in (target / "etc/default/quire").read_text().splitlines() if not line.startswith("#"))
    command = unit["Service"]["ExecStart"].replace("${MODEL}", defaults["MODEL"]).split()
    # The service's own command, with its configuration file, gets as far as settings that are checked.
    shown = inside(target, *command[:1], "config", "show", *command[1:])
    expect(shown.returncode == 0 and "quire.yaml" in shown.stdout, (shown.stdout[-300:], shown.stderr))
    expect(unit["Service"]["DynamicUser"] == "yes" and unit["Service"]["ProtectSystem"] == "strict", "hardened")
    if shutil.which("systemd-analyze"):
        (folder / "quire.service").write_text((target / "usr/lib/systemd/system/quire.service").read_text().replace("/usr/bin/quire", "/bin/true"))
        told = subprocess.run(["systemd-analyze", "verify", "--man=no", folder / "quire.service"], capture_output=True, text=True)
        expect(not [line for line in told.stderr.splitlines() if "quire.service" in line], told.stderr)
    removed = subprocess.run(["dpkg", f"--root={target}", "--force-not-root", "--force-script-chrootless", "--purge", "quire"], capture_output=True, text=True)
    expect(removed.returncode == 0 and not (target / "usr/bin/quire").exists() and not (target / "etc/quire").exists(), removed.stderr)


def test_the_wheel_brings_the_command_into_an_environment(out, folder):
    made = package("wheel", out)
    expect(re.fullmatch(r"quire_llm-\d+\.\d+\.\d+-py3-none-manylinux_2_\d+_x86_64\.whl", made.name), made.name)
    with contextlib.suppress(subprocess.CalledProcessError):
        venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", made], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    code = "import quire, subprocess; print(quire.__version__); print(quire.program('quire-worker'))"
    told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    expect(re.fullmatch(r"\d+\.\d+\.\d+", told[0]) and os.access(told[1], os.X_OK), told)
    whole(pathlib.Path(told[1]).parents[1] / "share")
    # The model answers inside Python, with the package's own library and demo.
    code = ("from quire import LLM, SamplingParams\n"
            "with LLM(model='demo') as llm:\n"
            "    (output,) = llm.generate('Once upon a time', SamplingParams(temperature=0, max_tokens=8))\n"
            "    print(output.outputs[0].text)\n"
            "print([line.split()[-1] for line in open('/proc/self/maps') if 'libquire.so' in line][0])")
    told = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120, cwd=folder,
                          env={"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    expect(told.returncode == 0, told.stderr[-2000:])
    *text, path = told.stdout.splitlines()
    expect(len(" ".join(text).split()) > 3 and pathlib.Path(path).is_relative_to(folder / "env"), told.stdout)
    for command in ([folder / "env" / "bin" / "quire"], [python, "-m", "quire"]):
        answer = subprocess.run([*command, *ASK], capture_output=True, text=True, timeout=120,
                                env={"HOME": str(folder), "PATH": "/usr/bin:/bin"})
        expect(answer.returncode == 0 and len(answer.stdout.split()) > 3, (answer.stdout, answer.stderr))


def test_the_formula_is_ruby_and_names_the_tarball(formula):
    text = formula.read_bytes()
    tree = tree_sitter.Parser(tree_sitter.Language(tree_sitter_ruby.language())).parse(text)
    expect(formula.name == "quire.rb" and not tree.root_node.has_error, text.decode())
    tarball = tarball_of(formula)
    lines = text.decode()
    expect(f'url "{tarball.as_uri()}"' in lines and hashlib.sha256(tarball.read_bytes()).hexdigest() in lines, lines)
    expect("# Untested" in lines, lines)


def test_release_notes_sort_what_commits_say(folder):
    def git(*args):
        subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@localhost", *args], check=True, capture_output=True)

    def commit(subject, *files):
        for file in files:
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(subject)
        git("add", "-A")
        git("commit", "-qm", subject)

    def notes(*args):
        return subprocess.run([sys.executable, NOTES, f"--repository={folder}", *args], capture_output=True, text=True)
    git("init", "-q")
    commit("The first", "CMakeLists.txt")
    (folder / "CMakeLists.txt").write_text("project(quire VERSION 1.2.3 LANGUAGES CXX)\n")
    git("commit", "-qam", "A version")
    git("tag", "v1.2.2")
    commit("Streams are faster", "router/a.cc", "tests/router/a_test.cc", "tests/router/b_test.cc")
    commit("A test more", "tests/router/c_test.cc")
    commit("A licence", "LICENSE")
    (folder / "packages").mkdir()
    (folder / "packages" / "quire.deb").write_bytes(b"x")
    done = notes(f"--packages={folder / 'packages'}")
    expect(done.returncode == 0, done.stderr)
    expect(done.stdout.startswith("# Quire 1.2.3\n") and "3 changes since v1.2.2." in done.stdout, done.stdout)
    for text in ("## Router\n- Streams are faster\n", "## Tests and figures\n- A test more\n", "## The rest\n- A licence\n",
                 f"| quire.deb | 1 | {hashlib.sha256(b'x').hexdigest()} |"):
        expect(text in done.stdout, (text, done.stdout))
    expect("0 changes since HEAD." in notes("--since=HEAD").stdout, "nothing since now")
    git("tag", "-d", "v1.2.2")
    expect("5 changes since the beginning." in notes().stdout, "without a tag")
    wrong = notes("--since=nowhere")
    expect(wrong.returncode == 1 and wrong.stderr.startswith("release_notes.py: git log: ") and len(wrong.stderr.splitlines()) == 1, wrong.stderr)
