"""Tokens per second of requests that each name an adapter over those that name the base, on one server in turns: 32
adapters in 32 rows, and one in one row. Adapters are random, of rank 16, on all seven projections of each layer."""
import asyncio
import json
import pathlib
import random
import statistics
import struct
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "process"))
from harness import Server  # noqa: E402
from speculation import together  # noqa: E402

RANK, ADAPTERS = 16, 32


class Shape:
    """Layers, and inputs and outputs of each projection."""

    def __init__(self, layers, width, queries, keys, inner):
        self.layers = layers
        self.projections = {
            "self_attn.q_proj": (width, queries), "self_attn.k_proj": (width, keys), "self_attn.v_proj": (width, keys),
            "self_attn.o_proj": (queries, width), "mlp.gate_proj": (width, inner), "mlp.up_proj": (width, inner),
            "mlp.down_proj": (inner, width)}


GEMMA_270M = Shape(18, 640, 1024, 256, 2048)
LLAMA_1B = Shape(16, 2048, 2048, 512, 8192)


def numbers(draw, count, high):
    """float16 numbers of either sign and about one size, which the high byte of one of them says."""
    packed = bytearray(2 * count)
    packed[0::2] = draw.randbytes(count)
    packed[1::2] = draw.randbytes(count).translate(bytes(high | (byte & 0x80) for byte in range(256)))
    return bytes(packed)


def write_adapter(folder, shape, seed):
    """A folder as PEFT saves it."""
    folder.mkdir()
    draw = random.Random(seed)
    header, pieces, at = {}, [], 0
    for layer in range(shape.layers):
        for projection, (inputs, outputs) in shape.projections.items():
            name = f"base_model.model.model.layers.{layer}.{projection}"
            for matrix, sides, high in (("A", [RANK, inputs], 0x28), ("B", [outputs, RANK], 0x20)):
                pieces.append(numbers(draw, sides[0] * sides[1], high))
                header[f"{name}.lora_{matrix}.weight"] = {"dtype": "F16", "shape": sides,
                                                          "data_offsets": [at, at + len(pieces[-1])]}
                at += len(pieces[-1])
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "bias": "none",
        "target_modules": sorted(name.split(".")[1] for name in shape.projections)}))
    return folder


def requests_of(names, tokens, salt):
    return [{"model": name, "prompt": f"A story of number {i}, told on a cold day, begins with", "max_tokens": tokens,
             "ignore_eos": True, "temperature": 0, "cache_salt": salt} for i, name in enumerate(names)]


def seconds_to_ready(model, *flags):
    begin = time.perf_counter()
    with Server(*flags, model=model):
        return time.perf_counter() - begin


def run(model, shape, cycles, tokens=96):
    with tempfile.TemporaryDirectory() as scratch:
        folders = [write_adapter(pathlib.Path(scratch) / f"a{i}", shape, i) for i in range(ADAPTERS)]
        flags = ["--enable-lora", f"--max-loras={ADAPTERS}", f"--max-lora-rank={RANK}"]
        named = [*flags, *(f"--lora-modules={folder.name}={folder}" for folder in folders)]
        table = {}
        with Server(*named, model=model) as server:
            for rows in (ADAPTERS, 1):
                base, adapted, ratios = [], [], []
                for cycle in range(cycles + 1):
                    sides = {"base": [server.model] * rows, "adapters": [folder.name for folder in folders[:rows]]}
                    found = {}
                    for side in (("base", "adapters") if cycle % 2 else ("adapters", "base")):
                        found[side] = asyncio.run(together(server.port, requests_of(sides[side], tokens, f"{side}{cycle}")))
                    if cycle == 0:
                        first = found
                        continue
                    if any(found[side][1] != first[side][1] for side in sides):
                        raise SystemExit("adapters: other tokens than in the first cycle: the run is void")
                    if found["base"][1][0] == found["adapters"][1][0]:
                        raise SystemExit("adapters: an adapter changes nothing: the run is void")
                    base.append(found["base"][0])
                    adapted.append(found["adapters"][0])
                    ratios.append(adapted[-1] / base[-1])
                    print(f"{rows} rows: {adapted[-1]:.1f} over {base[-1]:.1f} tokens/s, {ratios[-1]:.2f}", flush=True)
                table[f"{rows} adapters in {rows} rows"] = {
                    "base": statistics.median(base), "adapters": statistics.median(adapted),
                    "ratio": {"median": round(statistics.median(ratios), 3), "min": round(min(ratios), 3),
                              "max": round(max(ratios), 3), "n": len(ratios)}}
        starts = [(seconds_to_ready(model, *named) - seconds_to_ready(model, *flags)) / ADAPTERS for _ in range(max(3, cycles))]
        table["milliseconds that one adapter adds to a start"] = round(1000 * statistics.median(starts), 1)
        return table
