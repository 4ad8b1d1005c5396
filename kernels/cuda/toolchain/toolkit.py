#!/usr/bin/env python3
"""Finds a CUDA toolkit of version 13 or newer, or fetches the compiler's pinned Python wheels into .cache/.

Usage: toolkit.py [nccl|nvml|cublas] prints the folder that holds bin/nvcc, or that of the library or the headers that it
names, and says on stderr what it does. Ends with 3 when there is none and none can be fetched. Only what compiles and reads machine code is fetched (about 280 MiB unpacked), by nccl() the
pinned NCCL, by nvml() NVML's header and by cublas() cuBLAS' ones: no driver, no library of cuBLAS.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import wheel_headers

ROOT = pathlib.Path(__file__).resolve().parents[3]
WHEELS = ["cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]==13.0.2", "nvidia-cuda-cuobjdump==13.5.37",
          "nvidia-cuda-nvdisasm==13.5.37"]
FOLDER = ROOT / ".cache" / "cuda-13.0.2"
NCCL_WHEELS = ["nvidia-nccl-cu13==2.28.9"]  # about 210 MiB unpacked; for the gate and the image worker-cuda
NCCL_FOLDER = ROOT / ".cache" / "nccl-2.28.9"
NVML_WHEELS = ["nvidia-nvml-dev==13.0.87"]  # a header, below 1 MiB
NVML_FOLDER = ROOT / ".cache" / "nvml-13.0.87"
CUBLAS = "nvidia-cublas", "13.0.2.14"  # its headers alone, below 1 MiB: the wheel has 400
CUBLAS_FOLDER = ROOT / ".cache" / "cublas-13.0.2.14"
OLDEST = 13


def version(nvcc):
    try:
        said = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True).stdout
    except OSError:
        return 0
    found = re.search(r"release (\d+)\.", said)
    return int(found.group(1)) if found else 0


def system_toolkit():
    for nvcc in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if nvcc and version(nvcc) >= OLDEST:
            root = pathlib.Path(nvcc).resolve().parents[1]
            if (root / "bin" / "cuobjdump").exists() and (root / "bin" / "nvdisasm").exists():
                return root
    return None


def fetch(wheels, folder, more=()):
    print(f"cuda: fetching {' '.join(wheels)}", file=sys.stderr, flush=True)
    making = folder.with_name(folder.name + ".part")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", str(making / "venv")], check=True)
    done = subprocess.run([str(making / "venv/bin/pip"), "install", "-q", "--disable-pip-version-check", "--target",
                           str(making / "wheels"), *more, *wheels], stdout=sys.stderr)
    if done.returncode != 0:
        shutil.rmtree(making, ignore_errors=True)
        return False
    shutil.rmtree(making / "venv")
    (making / "complete").write_text("\n".join(wheels))
    shutil.rmtree(folder, ignore_errors=True)
    making.rename(folder)
    return True


def fetched(wheels, folder, more=()):
    """Whether the wheels are in the folder, fetched now if need be."""
    complete = folder / "complete"
    return (complete.exists() and complete.read_text() == "\n".join(wheels)) or fetch(wheels, folder, more)


def toolkit():
    """The toolkit's folder, or None."""
    found = system_toolkit()
    if found:
        return found
    return FOLDER / "wheels" / "nvidia" / "cu13" if fetched(WHEELS, FOLDER) else None


def nccl():
    """The folder of NCCL's include/ and lib/ in the pinned version, or None."""
    return NCCL_FOLDER / "wheels" / "nvidia" / "nccl" if fetched(NCCL_WHEELS, NCCL_FOLDER, ["--no-deps"]) else None


def nvml():
    """The folder of NVML's header in the pinned version, or None."""
    here = NVML_FOLDER / "wheels" / "nvidia" / "cu13" / "include"
    return here if fetched(NVML_WHEELS, NVML_FOLDER, ["--no-deps"]) else None


def cublas():
    """The folder of cuBLAS' headers: the toolkit's, or those of the pinned version; or None."""
    tools = toolkit()
    if tools is not None and (tools / "include" / "cublasLt.h").exists():
        return tools / "include"
    if (CUBLAS_FOLDER / "cublasLt.h").exists():
        return CUBLAS_FOLDER
    making = CUBLAS_FOLDER.with_name(CUBLAS_FOLDER.name + ".part")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    print(f"cuda: fetching the headers of {'=='.join(CUBLAS)}", file=sys.stderr, flush=True)
    try:
        wheel_headers.fetch(*CUBLAS, making)
    except (OSError, zipfile.BadZipFile) as why:
        print(f"cuda: the headers of cuBLAS cannot be fetched: {why}", file=sys.stderr, flush=True)
        return None
    making.rename(CUBLAS_FOLDER)
    return CUBLAS_FOLDER


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "toolkit"
    at = {"toolkit": toolkit, "nccl": nccl, "nvml": nvml, "cublas": cublas}[name]()
    if at is None:
        what = "toolkit of version 13" if name == "toolkit" else name
        print(f"cuda: no {what} here, and its wheels cannot be fetched", file=sys.stderr)
        sys.exit(3)
    print(at)
