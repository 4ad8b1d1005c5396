#!/usr/bin/env python3
"""Fetches the chat templates that llama.cpp keeps for its own tests, out of the source package of llama-cpp-python, into
.cache/chat-templates/. Does nothing if they are there."""
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
PACKAGE = f"llama_cpp_python-{VERSION}.tar.gz"
FOLDER = ROOT / ".cache" / "chat-templates"
THERE = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/models/templates/"


def package(work):
    """What the benches have fetched, or a copy of its own."""
    if (kept := ROOT / ".cache" / "llama.cpp" / PACKAGE).exists():
        return kept
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python", "-d", work,
                    f"llama-cpp-python=={VERSION}"], check=True)
    return pathlib.Path(work) / PACKAGE


def fetch():
    marker = FOLDER / "version"
    if marker.exists() and marker.read_text() == VERSION:
        return
    with tempfile.TemporaryDirectory() as work:
        archive = package(work)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
            sys.exit(f"{archive.name} is not the file whose checksum is known; expected {SHA256}")
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and member.name.startswith(THERE) and member.name.endswith(".jinja"):
                    (FOLDER / pathlib.Path(member.name).name).write_bytes(tar.extractfile(member).read())
    marker.write_text(VERSION)


if __name__ == "__main__":
    fetch()
    print(FOLDER)
