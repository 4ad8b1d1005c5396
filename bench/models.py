"""Families beyond dense attention on the CPU beside llama.cpp: mixtures of experts, recurrent layers, latent attention.

True widths, made-up weights, few layers, 32,000 ids; both engines read one file. The share of reading is the bytes that a
token needs by what the probe of the machine reads meanwhile: it is above 1 where products read faster than that.
"""
import json
import pathlib
import subprocess

import cpu

LAYERS = 8
LONG = 8192
# name: cells with the least ratio that is asked for; None: none is
SHAPES = {
    "Qwen3-30B-A3B": {"prefill 512": (cpu.prompt(512), 1.3), "decode batch 1": (cpu.ALONE, 1.3),
                      "decode batch 16": (cpu.streams(16, 128), 1.3)},
    "Qwen3.5-4B": {"prefill 512": (cpu.prompt(512), None), "decode batch 1": (cpu.ALONE, None),
                   f"decode batch 1 at {LONG}": (cpu.streams(1, LONG), 1.3)},
    "DeepSeek-V2-Lite": {"prefill 512": (cpu.prompt(512), None), "decode batch 1": (cpu.ALONE, None),
                         f"decode batch 1 at {LONG}": (cpu.streams(1, LONG), 1.5)},
}
FACTS = ("weight_bytes", "expert_bytes", "step_weight_bytes", "cache_bytes_per_token", "head_bytes_per_token", "state_bytes")


def facts(model):
    """What the plan says of a file: bytes of weights, of a token in the cache, of a sequence's state."""
    command = [cpu.BIN / "quire-worker", "--plan", "--log-level=error", "--plan-bandwidth=1B", f"--model={model}",
               f"--max-model-len={LONG}"]
    plan = json.loads(subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout)
    return {key: plan[key] for key in FACTS if key in plan}


def kept_states(model, cycles, spread):
    """Of a prompt's steps: what recurrences take, as states are kept by default and as nearly none is, in turns."""
    rows = {}
    for _ in range(cycles):
        for name, blocks in (("by default", 0), ("of none", 1 << 20)):
            shares = cpu.step_shares(model, "prefill", tokens=2048, state_interval=blocks)
            if "recurrence" not in shares:
                return {}
            rows.setdefault(name, []).append(shares["recurrence"] + shares.get("causal_conv", 0))
    return {"share of recurrences in a prompt of 2048, states kept": {name: spread(row) for name, row in rows.items()}}


def run(folder, args, spread):
    """One shape after the other: name to facts and cells."""
    for name, asked in SHAPES.items():
        model = pathlib.Path(cpu.made_up(folder, name, LAYERS))
        table = {cell: run_cell for cell, (run_cell, _) in asked.items() if not (args.small and str(LONG) in cell)}
        title = f"{name}'s shape, {LAYERS} layers, Q4_K_M"
        found = cpu.against_peer(folder, title, model, args, spread, table)
        about = facts(model)
        for cell, row in found.items():
            row["asked for"] = asked[cell][1]
            if cell == "decode batch 1":
                row["share of reading"] = round(row["quire"]["median"] * about["step_weight_bytes"] / 1e9
                                                / row["read GB/s"]["median"], 3)
        yield title, {**about, "cells": found, "shares of a step": cpu.step_table(model), **kept_states(model, args.cycles, spread)}
