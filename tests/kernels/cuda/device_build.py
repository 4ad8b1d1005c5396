#!/usr/bin/env python3
"""Links the tests of kernels and backend for a GPU: the same objects as test_kernels_cuda and test_kernels_cuda_backend,
with kernels that nvcc has compiled and a real device in place of the emulated one. Writes build/gpu/gpu_tests, or says in
a line why it could not. Needs both tests built, and a CUDA toolkit; no GPU.
"""
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "kernels/cuda/toolchain"))
import compiler  # noqa: E402
import plugin  # noqa: E402
import toolkit  # noqa: E402

BUILD = ROOT / "build"
TARGET = BUILD / "gpu/gpu_tests"
TESTS = ("test_kernels_cuda", "test_kernels_cuda_backend")
# A test that includes one of these is about the emulated device, and stays out.
EMULATED_HEADERS = {ROOT / "kernels/cuda/emulate/emulated_runtime.h", ROOT / "tests/kernels/cuda/planted/planted.h",
                    ROOT / "tests/kernels/cuda/planted/moe_planted.h"}
EMULATED_LIBRARIES = {"libquire_cuda_ops.a", "libquire_cuda_ops_plain.a", "libquire_cuda_planted.a",
                      "libquire_cuda_timing.a", "libquire_kernels_cuda_emulate.a"}
KERNEL_FILES = ["kernels/cuda/ops/*/*.cu", "kernels/cuda/runtime/*.cu", "tests/kernels/cuda/timing/*.cu"]


def source_of(word):
    """Of an object in a link line, CMakeFiles/NAME.dir/PATH.cc.o, the source's path; else the word."""
    parts = word.split(".dir/", 1)
    return parts[1].removesuffix(".o") if len(parts) == 2 and word.endswith(".cc.o") else word


def is_emulated(word):
    """Whether a word of a link line is an object of such a test."""
    source = source_of(word)
    return source != word and bool(EMULATED_HEADERS.intersection(compiler.sources_of(ROOT / source)))


def link_line(target):
    """The words of the command that links a target of CMake's; None when it is not known."""
    done = subprocess.run(["ninja", "-C", str(BUILD), "-t", "commands", "-s", f"tests/{target}"], capture_output=True,
                          text=True)
    if done.returncode != 0 or not done.stdout.strip():
        return None
    words = shlex.split(done.stdout.strip().splitlines()[-1])
    begin = next((i for i, word in enumerate(words) if word.endswith(("c++", "g++"))), None)
    return None if begin is None else [word for word in words[begin:] if word not in (":", "&&")]


def compile_all(tools):
    """(what went wrong, objects)."""
    results = [(path, compiler.compile_file(tools, path)) for path in plugin.files(KERNEL_FILES)]
    own = plugin.files(["tests/kernels/cuda/on_device/*.cc", "kernels/cuda/nccl/*.cc", "kernels/libraries/*.cc"])
    results += [(path, compiler.compile_host_file(path)) for path in own]
    wrong = "".join(f"{path.relative_to(ROOT)}: {result[0]}" for path, result in results if result[-1] is None)
    return wrong or None, [str(result[-1]) for _, result in results]


def build():
    """What went wrong, in a line; None when the binary is there."""
    tools = toolkit.toolkit()
    if tools is None:
        return "no CUDA toolkit of version 13 here, and its wheels cannot be fetched"
    lines = [link_line(target) for target in TESTS]
    if None in lines:
        return f"build first: ninja -C build {' '.join(TESTS)}"
    ops, backend = ([word for word in line if not is_emulated(word)] for line in lines)
    words = [word for word in backend if pathlib.Path(word).name not in EMULATED_LIBRARIES]
    have = {source_of(word) for word in words}  # what both tests compile is linked once
    more = [word for word in ops if word.endswith(".cc.o") and source_of(word) not in have]
    absent = [word for word in words + more if word.endswith(".cc.o") and not (BUILD / word).exists()]
    if absent:
        return f"build first: ninja -C build {' '.join(TESTS)}"
    wrong, objects = compile_all(tools)
    if wrong is not None:
        return wrong
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    words[words.index("-o") + 1] = str(TARGET)
    words += [*more, *objects, f"-L{tools}/lib", f"-L{tools}/lib64", "-lcudart_static", "-lpthread", "-ldl", "-lrt"]
    # Libraries are in the order of their own needs; what the kernels' files need stands before them.
    libraries = [word for word in words if word.endswith(".a")]
    done = subprocess.run([*words, *libraries], capture_output=True, text=True, cwd=BUILD)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()[-1500:]


if __name__ == "__main__":
    wrong = build()
    print(f"gpu: {wrong}" if wrong else f"gpu: {TARGET.relative_to(ROOT)} is built", file=sys.stderr)
    sys.exit(1 if wrong else 0)
