#!/usr/bin/env python3
"""Fetches what the tests of the normal tier need into .cache/: real tokenizers, the real model, clients.

Each item is quick when it is already there. An item that cannot be had is told; the tests that need it then
say SKIP and why.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ITEMS = [
    ("real tokenizers", ["bash", "tests/golden/text/fetch_tokenizers.sh"]),
    ("gemma3-270m", ["python3", "models/fetch/fetch_model.py", "gemma3-270m"]),
    ("clients", ["bash", "tests/conformance/setup.sh"]),
    ("CUDA compiler", ["python3", "kernels/cuda/toolchain/toolkit.py"]),
    ("deploy tools", ["python3", "tests/deploy/tools.py"]),
    ("node agent", ["python3", "tests/plane/programs.py"]),
]

passed = failed = 0
for name, command in ITEMS:
    if not (ROOT / command[1]).exists():
        continue
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        passed += 1
        print(f"{name}: here")
    else:
        failed += 1
        print(f"{name}: could not be had: {' '.join(command)}")
        print(done.stdout.decode(errors="replace")[-2000:])
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
