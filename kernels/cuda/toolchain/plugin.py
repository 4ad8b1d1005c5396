#!/usr/bin/env python3
"""Builds libquire_cuda.so, the plugin with which quire-worker computes on GPUs.

Usage: plugin.py [--all-arch] [--out FOLDER]   (./dev cuda calls it; FOLDER is build/bin, beside quire-worker)

Needs a CUDA toolkit of version 13 (the machine's, or the pinned wheels that toolkit.py fetches), g++ and cmake; no GPU and
no driver. Kernels come as machine code for sm_80 and sm_90a, with --all-arch for sm_80, 89, 90a, 100 and 120. The CUDA
runtime is linked statically, the standard library is the machine's, and one symbol is shown. What has been compiled is
kept, for the gate of the tests as well.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import compiler  # noqa: E402
import toolkit  # noqa: E402

ROOT = compiler.ROOT
NAME = "libquire_cuda.so"
GENERATED = ROOT / "build/generated/build_id"  # the same header as the worker's build has
SHOWN = ROOT / "kernels/cuda/plugin/shown_symbols.txt"
KERNEL_FILES = ["kernels/cuda/ops/*/*.cu", "kernels/cuda/runtime/*.cu", "kernels/cuda/backend/*.cu"]
HOST_FILES = ["kernels/*.cc", "kernels/libraries/*.cc", "kernels/cuda/nccl/*.cc", "kernels/cuda/cublaslt/*.cc",
              "kernels/cuda/backend/*.cc"]


def files(patterns):
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def write_build_id():
    done = subprocess.run(["cmake", f"-DROOT={ROOT}", f"-DOUT={GENERATED / 'quire_build_id.h'}", "-P",
                           str(ROOT / "cmake/build_id.cmake")], capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout + done.stderr


def compile_all(tools, architectures):
    """(what went wrong, objects)."""
    kernels, hosts = files(KERNEL_FILES), files(HOST_FILES)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # The build id is the plugin's own: other files are not compiled again because of it.
        jobs = {path: pool.submit(compiler.compile_file, tools, path, architectures,
                                  [GENERATED] if path.name == "plugin.cu" else ()) for path in kernels}
        jobs |= {path: pool.submit(compiler.compile_host_file, path) for path in hosts}
        results = {path: job.result() for path, job in jobs.items()}
    wrong = "".join(f"{path.relative_to(ROOT)}:\n{result[0]}" for path, result in results.items() if result[-1] is None)
    return wrong or None, [result[-1] for result in results.values()]


def build(out, architectures=compiler.ARCHITECTURES):
    """What went wrong, or None; then OUT holds the plugin of this tree."""
    tools = toolkit.toolkit()
    if tools is None:
        return "no CUDA toolkit of version 13 here, and its wheels cannot be fetched"
    wrong = write_build_id()
    objects = []
    if wrong is None:
        wrong, objects = compile_all(tools, architectures)
    if wrong is not None:
        return wrong
    out.mkdir(parents=True, exist_ok=True)
    part = out / f"{NAME}.part"
    done = subprocess.run(["g++", "-shared", "-o", str(part), *map(str, objects), f"-Wl,--version-script={SHOWN}",
                           "-Wl,--no-undefined", "-Wl,--as-needed", "-Wl,-s", f"-Wl,-soname,{NAME}",
                           f"-L{tools}/lib", f"-L{tools}/lib64", "-lcudart_static", "-lpthread", "-ldl", "-lrt"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return (done.stdout + done.stderr)[-3000:]
    part.rename(out / NAME)
    return None


def main():
    parser = argparse.ArgumentParser(prog="./dev cuda", description="Builds libquire_cuda.so.")
    parser.add_argument("--all-arch", action="store_true", help="machine code for every architecture from sm_80 on")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bin")
    args = parser.parse_args()
    wrong = build(args.out, compiler.ALL_ARCHITECTURES if args.all_arch else compiler.ARCHITECTURES)
    if wrong is not None:
        print(f"cuda: {wrong.strip()}", file=sys.stderr)
        return 1
    size = (args.out / NAME).stat().st_size
    print(f"cuda: {args.out / NAME}, {size / 2**20:.1f} MiB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
