#!/usr/bin/env python3
"""Writes prompt_logprobs.json: what `transformers` makes of every token of the goldens' sequences.

Needs torch 2.15.0, transformers 5.23.0, and make_model_goldens.py beside it with what that needs. Run it from
anywhere:
    python3 tests/golden/models/make_prompt_logprobs.py

For each checkpoint, with its golden tokens as one prompt: the float32 reference's logprob of every token but the
first, its rank among all, and the three best tokens of that place, ids only. Values keep six decimals. Places
where two of the four best logits, or the token's and another's, are closer than GAP have rank and ids null.
"""
import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import make_model_goldens as goldens  # noqa: E402

VERSIONS = {"torch": "2.15.0", "transformers": "5.23.0"}
GAP = 2e-4


def place(logits, token):
    """logprob, rank and best ids of one row of logits, in float64."""
    row = logits.double()
    best = torch.topk(row, 4)
    others = torch.cat([row[:token], row[token + 1:]])
    sure = float((others - row[token]).abs().min()) > GAP and float((best.values[:-1] - best.values[1:]).min()) > GAP
    logprob = round(float(torch.log_softmax(row, 0)[token]), 6)
    return [logprob, int((row > row[token]).sum()) + 1, best.indices[:3].tolist()] if sure else [logprob, None, None]


def main():
    for module, name in ((torch, "torch"), (transformers, "transformers")):
        if module.__version__.split("+")[0] != VERSIONS[name]:
            sys.exit(f"needs {name} {VERSIONS[name]}, this is {module.__version__}")
    lines = []
    for name in goldens.CHECKPOINTS:
        folder = HERE / name
        tokens = json.loads((folder / "golden.json").read_text())["tokens"]
        logits = goldens.all_logits(goldens.reference(folder), tokens[:-1])
        places = [place(logits[i], token) for i, token in enumerate(tokens[1:])]
        lines.append(f"{json.dumps(name)}: {json.dumps(places, separators=(',', ':'))}")
    (HERE / "prompt_logprobs.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    with torch.no_grad():
        main()
