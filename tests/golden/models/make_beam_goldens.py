#!/usr/bin/env python3
"""Writes tests/golden/models/beam_search.json: what the reference's beam search answers on two of the tiny models.

Needs torch 2.15.0 and transformers 5.23.0. Run it from anywhere, after make_model_goldens.py:
    python3 tests/golden/models/make_beam_goldens.py

End-of-sequence ids are drawn from what the models say often, so that answers end at all lengths. A case is kept
only if float32 and float64 agree in every token: no decision hangs on the last bits of a sum.
"""
import json
import pathlib
import random

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ["llama-tied-mha", "gemma3-pattern"]
CASES_PER_MODEL = 12


def search(network, case):
    stopping = {"heuristic": False, "when_full": True, "never": "never"}[case["early_stopping"]]
    prompt = torch.tensor([case["prompt"]])
    with torch.no_grad():
        found = network.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, num_beams=case["width"],
            num_return_sequences=case["width"], max_new_tokens=case["max_tokens"],
            min_new_tokens=case["min_tokens"] or None, length_penalty=case["length_penalty"],
            early_stopping=stopping, eos_token_id=case["ends"], pad_token_id=0,
            return_dict_in_generate=True, output_scores=True)
    answers = []
    for row, score, beams in zip(found.sequences, found.sequences_scores, found.beam_indices):
        length = int((beams >= 0).sum())
        answers.append({"tokens": row[len(case["prompt"]):][:length].tolist(), "score": float(score)})
    return answers


def draw(rng, network, index):
    prompt = [rng.randrange(3, 256) for _ in range(rng.randrange(1, 40))]
    with torch.no_grad():
        said = network.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)),
                                do_sample=True, max_new_tokens=30, min_new_tokens=30, pad_token_id=0)[0].tolist()
    ends = sorted(set(rng.sample(said[len(prompt):], rng.randrange(1, 4))))
    return {"prompt": prompt, "width": [2, 3, 4, 6, 10, 16][index % 6],
            "max_tokens": rng.randrange(1, 24), "min_tokens": 0 if index % 4 else 3,
            "length_penalty": [1.0, 0.0, 2.0, -0.5, 0.6][index % 5],
            "early_stopping": ["heuristic", "when_full", "never"][index % 3], "ends": ends}


def main():
    cases = []
    for name in MODELS:
        torch.manual_seed(5)
        rng = random.Random(name)
        network = transformers.AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float32).eval()
        exact = transformers.AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float64).eval()
        kept = 0
        while kept < CASES_PER_MODEL:
            case = draw(rng, network, kept)
            if case["min_tokens"] > case["max_tokens"]:
                continue
            answers = search(network, case)
            if [a["tokens"] for a in answers] != [a["tokens"] for a in search(exact, case)]:
                continue
            cases.append({"model": name, **case, "answers": answers})
            kept += 1
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "beam_search.json").write_text("[\n" + text + "\n]\n")


main()
