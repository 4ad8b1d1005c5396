"""Quantised checkpoints as the hub ships them beside GGUF files of the same shape: products, start and memory.

The weights are made up (`quire make-weights`, Llama-3.2-1B's shape) and quantised by `quire quantize`. A checkpoint keeps
its head in bfloat16, and a GGUF file's is quantised: in decode, "the layers alone" are the time of 16 layers less that of one.
"""
import json
import os
import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = ROOT / "build" / "bin"
MODELS = ROOT / ".cache" / "models" / "quantised-1b-shape"
SHAPE = "Llama-3.2-1B"
CELLS = {"prefill 512": {"mode": "prefill", "tokens": 512, "repeats": 1, "warmups": 0},
         "decode batch 1": {"mode": "decode", "batch": 1, "tokens": 32, "repeats": 1, "warmups": 0},
         "decode batch 16": {"mode": "decode", "batch": 16, "context": 16, "tokens": 12, "repeats": 1, "warmups": 0}}
# name: (format and activations, those that it is compared with, the least ratio that is asked for in each cell)
PAIRS = {
    "w8a8 over q8_0, both with int8 activations": (("w8a8", "w8a8"), ("q8_0", "int8"), {"prefill 512": 1.2}),
    "w4a16 over q4_k_m, both with int8 activations": (
        ("w4a16", "int8"), ("q4_k_m", "int8"), {"prefill 512": 0.95, "decode batch 1": 0.95, "decode batch 16": 0.95}),
    "fp8 over q8_0, both with float32 activations": (
        ("fp8", "float32"), ("q8_0", "float32"), {"prefill 512": 0.9, "decode batch 1": 0.9, "decode batch 16": 0.9}),
}


def quire(*command):
    subprocess.run([str(c) for c in (BIN / "quire", *command)], check=True, stdout=subprocess.DEVNULL)


def model(kind, layers=16):
    """A folder, or a GGUF file; made once."""
    folder = MODELS / f"{kind}-{layers}"
    if not folder.exists():
        gguf = kind.startswith("q")
        source = MODELS / f"{'gguf' if gguf else 'floats'}-{layers}"
        if not source.exists():
            source.parent.mkdir(parents=True, exist_ok=True)
            quire("make-weights", f"--dtype={'gguf_f16' if gguf else 'bf16'}", f"--layers={layers}", SHAPE, source)
        part = folder.with_name(f"{folder.name}.part")
        if kind != "floats":
            quire("quantize", next(source.glob("*.gguf")) if gguf else source, part, f"--format={kind}")
            part.rename(folder)
    return next(folder.glob("*.gguf"), folder)


def rate(kind, activations, cell, layers=16):
    options = {"model": model(kind, layers), "activation-dtype": activations, "threads": os.cpu_count(), **CELLS[cell]}
    command = [BIN / "engine_bench", *(f"--{name}={value}" for name, value in options.items())]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])["tokens_per_second"]


def layers_alone(kind, activations, cell):
    """Tokens per second of 15 layers: the time of 16 less that of one."""
    return 1 / (1 / rate(kind, activations, cell) - 1 / rate(kind, activations, cell, layers=1))


def compare(cycles, spread):
    table = {}
    for name, (mine, other, goals) in PAIRS.items():
        for cell, goal in goals.items():
            rows = {"tokens/s": [], "of the other": [], "ratio": []}
            for cycle in range(cycles):
                ours, theirs = rate(*mine, cell), rate(*other, cell)
                for key, value in zip(rows, (ours, theirs, ours / theirs)):
                    rows[key].append(value)
                print(f"cycle {cycle + 1}: {name}, {cell}: {ours:.1f} and {theirs:.1f} tokens/s, {ours / theirs:.2f}x", flush=True)
            if cell.startswith("decode"):
                rows["ratio of the layers alone"] = [layers_alone(*mine, cell) / layers_alone(*other, cell)]
                print(f"{name}, {cell}, the layers alone: {rows['ratio of the layers alone']}", flush=True)
            found = {key: spread(values) for key, values in rows.items()}
            table.setdefault(name, {})[cell] = {"asked for": goal, **found}
    return table


def read_seconds(files):
    begin = time.perf_counter()
    for file in files:
        with open(file, "rb", buffering=0) as stream:
            while stream.read(1 << 22):
                pass
    return time.perf_counter() - begin


def peak_bytes(process):
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) * 1024


def start(kind, activations):
    """Seconds to ready less those of reading, and the peak of memory over what the plan counts."""
    folder = model(kind)
    flags = [f"--model={folder}", f"--activation-dtype={activations}", "--kv-cache-memory-bytes=256MiB", "--max-model-len=2048"]
    plan = subprocess.run([str(c) for c in (BIN / "quire", "plan", folder, *flags[1:], "--json", "--bandwidth=10GB")],
                          capture_output=True, text=True, check=True)
    plan = json.loads(plan.stdout)
    reading = read_seconds(folder.glob("*.safetensors"))
    begin = time.perf_counter()
    command = [BIN / "quire-worker", *flags, "--listen=127.0.0.1:0", "--http-port=0"]
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if not process.stdout.readline().startswith("ready:"):
            raise SystemExit(f"quire-worker did not start: {command}")
        seconds, peak = time.perf_counter() - begin, peak_bytes(process)
    finally:
        process.terminate()
        process.communicate()
    counted = plan["weight_bytes"] + plan["workspace_bytes"] + plan["kv_bytes"]
    # Pages of keys and values that no request has used are not resident.
    return {"s without reading": seconds - reading, "reading s": reading,
            "peak over weights and plan": peak / (counted - plan["kv_bytes"]), "peak MiB": peak / 2**20}


def starts(cycles, spread):
    table = {}
    for kind, activations in (("w8a8", "w8a8"), ("fp8", "float32"), ("w4a16", "float32")):
        rows = [start(kind, activations) for _ in range(cycles)]
        table[kind] = {key: spread([row[key] for row in rows]) for key in rows[0]}
        print(kind, json.dumps(table[kind]), flush=True)
    return table
