"""Compiles files of kernels/ for GPUs and for the plugin, each once: what comes out is kept in .cache/cuda-gate by the
hash of all that it comes from.

Kernel files (.cu) go through nvcc, host files (.cc) through g++; all of it may stand in a shared library.
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
KEPT = ROOT / ".cache" / "cuda-gate"
KEPT_DAYS = 7
ARCHITECTURES = ("90a", "80")  # what CI compiles
ALL_ARCHITECTURES = ("80", "89", "90a", "100", "120")
MACHINE_CODE_ARCHITECTURE = "90a"
FLAGS = ["-std=c++20", "-fmad=false", "-Werror", "all-warnings", "-Xcompiler",
         "-Wall,-Wextra,-Wno-unused-parameter,-fPIC,-fvisibility=hidden"]
# Kernels are made for the two that CI compiles, and must not spill there. On another one a few bytes may, which
# tests/kernels/cuda/plugin_test.py --long bounds.
GATED_PTXAS, PTXAS = "-v,-warn-spills,-warn-lmem-usage", "-v"
# As the rest of the tree is compiled (cmake/settings.cmake), but for a shared library.
HOST_FLAGS = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-restrict", "-Wno-maybe-uninitialized",
              "-Wno-stringop-overflow", "-Wno-dangling-pointer", "-Wno-array-bounds", "-Wno-stringop-overread",
              "-Wno-psabi", "-fno-strict-aliasing", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden"]


def sources_of(path, more=(), found=None):
    """A file and all of the tree, or of the folders `more`, that it includes, sorted."""
    found = set() if found is None else found
    if path not in found and path.is_file():
        found.add(path)
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.M):
            for folder in (ROOT, *more):
                sources_of(folder / name, more, found)
    return sorted(found)


def key_of(source, more, *words):
    read = [f"{path.relative_to(ROOT)}\0{path.read_text()}" for path in sources_of(source, more)]
    return hashlib.sha256("\0".join([*read, *words]).encode()).hexdigest()


def release_of(program):
    """What a compiler says it is: another release may stand at the same path tomorrow."""
    return subprocess.run([str(program), "--version"], capture_output=True, text=True).stdout


def key_of_kernels(tools, source, more, *words):
    return key_of(source, more, str(tools), release_of(tools / "bin/nvcc"), release_of("g++"), *words)


def compile_file(tools, source, architectures=ARCHITECTURES, more=()):
    """A kernel file, once for all architectures: [error text or None, ptxas text, machine code text, object file]."""
    gated = set(architectures) <= set(ARCHITECTURES)
    flags = [*FLAGS, "-Xptxas", GATED_PTXAS if gated else PTXAS, "-ccbin", "g++",
             *(part for folder in more for part in ("-I", str(folder)))]
    key = key_of_kernels(tools, source, more, *flags, *architectures)
    kept, made = KEPT / f"{key}.json", KEPT / f"{key}.o"
    if kept.exists() and made.exists():
        os.utime(kept), os.utime(made)
        return [*json.loads(kept.read_text()), made]
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        out = pathlib.Path(folder) / "out.o"
        done = subprocess.run([str(tools / "bin/nvcc"), *flags, "-I", str(ROOT), "-c", "-t", "2",
                               *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures),
                               str(source), "-o", str(out)], capture_output=True, text=True, cwd=folder)
        said = done.stdout + done.stderr
        if done.returncode != 0:
            return [said, said, "", None]
        dump = subprocess.run([str(tools / "bin/cuobjdump"), "-sass", "-arch", f"sm_{MACHINE_CODE_ARCHITECTURE}",
                               str(out)], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{tools}/bin:{os.environ['PATH']}"})
        told = pathlib.Path(folder) / "told.json"
        told.write_text(json.dumps([None, said, dump.stdout]))
        out.rename(made)
        told.rename(kept)  # whoever else compiles the same file finds nothing or all of it
    return [None, said, dump.stdout, made]


def compile_host_file(source):
    """(error text or None, object file)."""
    made = KEPT / f"{key_of(source, (), release_of('g++'), *HOST_FLAGS)}.o"
    if made.exists():
        os.utime(made)
        return None, made
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        out = pathlib.Path(folder) / "out.o"
        done = subprocess.run(["g++", *HOST_FLAGS, "-I", str(ROOT), "-c", str(source), "-o", str(out)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            return done.stdout + done.stderr, None
        out.rename(made)
    return None, made


def forget_old():
    """What a week has not used."""
    for old in KEPT.glob("*"):
        if old.is_file() and time.time() - old.stat().st_mtime > KEPT_DAYS * 86400:
            old.unlink()
