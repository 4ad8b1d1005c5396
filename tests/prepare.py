#!/usr/bin/env python3
"""Fetches what the tests of the normal tier need into .cache/: real tokenizers, the real model, clients, tools in Go,
compilers and headers for GPUs. ./dev test runs it beside the builds.

Each item is quick when it is already there. What cannot be fetched fails here; the tests that need it then say SKIP and
why. What became of each item is left in .cache/prepared.json, where tests/run.py reads it.
"""
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOLD = ROOT / ".cache" / "prepared.json"
DECLARED_S = 420
TOOLKIT = "kernels/cuda/toolchain/toolkit.py"
ITEMS = [
    ("clients", ["bash", "tests/conformance/setup.sh"]),
    ("the hub's client, MLflow, a registry", ["python3", "tests/supply/client.py"]),
    ("deploy tools", ["python3", "tests/deploy/tools.py"]),
    ("prose checker", ["python3", "tests/prose/prose.py", "--fetch"]),
    ("node agent", ["python3", "tests/plane/programs.py"]),
    ("CUDA compiler", ["python3", TOOLKIT]),
    ("NCCL", ["python3", TOOLKIT, "nccl"]),
    ("headers of NVML", ["python3", TOOLKIT, "nvml"]),
    ("headers of cuBLAS", ["python3", TOOLKIT, "cublas"]),
    ("schema suite", ["python3", "tests/common/grammar/suite.py"]),
    ("real tokenizers", ["bash", "tests/golden/text/fetch_tokenizers.sh"]),
    ("templates of many families", ["python3", "tests/golden/text/fetch_templates.py"]),
    ("gemma3-270m", ["python3", "models/fetch/fetch_model.py", "gemma3-270m"]),
]


def fetched(name, command):
    begin = time.monotonic()
    if not (ROOT / command[1]).exists():
        return {"name": name, "here": False, "seconds": 0, "said": f"{command[1]} is gone"}
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL)
    said = done.stdout.decode(errors="replace")
    return {"name": name, "here": done.returncode == 0, "seconds": round(time.monotonic() - begin, 1),
            "said": f"{' '.join(command)}\n{said[-2000:]}" if done.returncode else ""}


def main():
    TOLD.parent.mkdir(exist_ok=True)
    TOLD.unlink(missing_ok=True)
    items = []
    for item in ITEMS:
        items.append(fetched(*item))
        print(f"{items[-1]['name']}: {'here' if items[-1]['here'] else 'not here: ' + items[-1]['said']} "
              f"({items[-1]['seconds']:.0f} s)", flush=True)
    TOLD.write_text(json.dumps({"declared_s": DECLARED_S, "items": items}, indent=1) + "\n")
    return 0 if all(item["here"] for item in items) else 1


if __name__ == "__main__":
    sys.exit(main())
