#!/usr/bin/env python3
"""One archive of all that ./dev gpu needs on a machine without this tree, without a compiler and without a network.

Usage: ./dev gpu --pack FILE.tar.xz [--plugin libquire_cuda.so]

It holds the worker, the router, the command line, the load generator, the test binary and the plugin for GPUs, all libraries
that they need but libc, and the fixtures of the model tests, laid out as in the tree. `quire-gpu/run` there
is ./dev gpu. At most 24 MiB.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import run

ROOT = run.ROOT
MOST_BYTES = 24 << 20
PROGRAMS = ["build/bin/quire", "build/bin/quire-router", "build/bin/quire-worker", "build/bin/load_generator",
            "build/gpu/gpu_tests"]
PLUGIN = "build/bin/libquire_cuda.so"
FILES = [*(f"bench/gpu/{name}.py" for name in ("run", "asked", "gtest", "programs", "roof", "smoke", "torch_decode")), "tests/golden/models"]
LIBC = re.compile(r"(libc|libm|libdl|librt|libpthread|libresolv|libanl|ld-linux.*)\.so")
RUN = """#!/bin/sh
# ./dev gpu of the tree that this archive was packed from.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec python3 "$here/bench/gpu/run.py" --out "$here/results/gpu.json" "$@"
"""


def libraries_of(program):
    """What a program needs beside libc, by path."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True)
    return [path for path in re.findall(r"=> (/\S+)", done.stdout) if not LIBC.match(os.path.basename(path))]


def strip(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", str(target), str(source)], check=True)


def fill(folder, plugin):
    for name, source in [*((name, ROOT / name) for name in PROGRAMS), (PLUGIN, plugin)]:
        strip(source, folder / name)
        for library in libraries_of(source):
            if not (folder / "lib" / os.path.basename(library)).exists():
                strip(library, folder / "lib" / os.path.basename(library))
    for name in FILES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    (folder / "COMMIT").write_text(run.commit() + "\n")
    (folder / "run").write_text(RUN)
    (folder / "run").chmod(0o755)


def main():
    parser = argparse.ArgumentParser(prog="./dev gpu")
    parser.add_argument("--pack", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--plugin", type=pathlib.Path, default=ROOT / PLUGIN)
    args = parser.parse_args()
    target = args.pack.resolve()
    absent = [str(path) for path in [*(ROOT / name for name in PROGRAMS), args.plugin] if not path.exists()]
    if absent:
        sys.exit(f"gpu: not built: {' '.join(absent)}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "quire-gpu"
        fill(folder, args.plugin)
        part = target.with_name(target.name + ".part")
        done = subprocess.run(["tar", "-C", name, "-I", "xz -T0 -6", "-cf", str(part), folder.name])
    if done.returncode != 0:
        sys.exit("gpu: the archive could not be written")
    size = part.stat().st_size
    if size > MOST_BYTES:
        part.unlink()
        sys.exit(f"gpu: the archive would have {size} bytes; at most {MOST_BYTES} are carried")
    part.rename(target)
    print(f"gpu: {target}: {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
