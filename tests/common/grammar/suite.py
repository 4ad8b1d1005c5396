#!/usr/bin/env python3
"""Fetches the JSON-Schema-Test-Suite, as the source distribution of the Python package jsonschema has it, into
.cache/json-schema-suite/. Does nothing if it is there."""
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = "4.26.0"
SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
FOLDER = ROOT / ".cache" / "json-schema-suite"
TESTS = FOLDER / f"jsonschema-{VERSION}" / "json" / "tests" / "draft2020-12"


def fetch():
    if TESTS.is_dir():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", work,
                        f"jsonschema=={VERSION}"], check=True)
        archive = next(pathlib.Path(work).glob("*.tar.gz"))
        if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
            sys.exit(f"{archive.name} is not the file whose checksum is known; expected {SHA256}")
        with tarfile.open(archive) as tar:
            tar.extractall(pathlib.Path(work) / "out", filter="data")
        whole = pathlib.Path(work) / "out" / f"jsonschema-{VERSION}"
        shutil.copytree(whole / "json" / "tests", TESTS.parent, dirs_exist_ok=True)
        shutil.copy(whole / "json" / "LICENSE", FOLDER / "LICENSE")


if __name__ == "__main__":
    fetch()
    print(TESTS)
