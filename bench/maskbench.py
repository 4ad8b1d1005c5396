#!/usr/bin/env python3
"""MaskBench's schemas (github.com/guidance-ai/jsonschemabench, the folder maskbench/data of a clone) through the compiled
grammar: which instances are taken, which are refused, and why schemas are not compiled. No invalid instance may be taken.

  python3 bench/maskbench.py FOLDER [--schemas=900] [--tokenizer=llama3]
"""
import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench")]
import record as recording  # noqa: E402

ENDS = {"llama3": ("<|eot_id|>", "<|end_of_text|>"), "qwen3": ("<|im_end|>",), "gemma3": ("<end_of_turn>", "<eos>")}


def checked(tokenizer, lines):
    """What tests/common/grammar/program/constraint_check answers to each line."""
    path = ROOT / ".cache" / "npm-tokenizers" / tokenizer / "tokenizer.json"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([str(ROOT / "build" / "bin" / "constraint_check"), str(path), *ENDS[tokenizer]], input=text,
                          capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def cause(error):
    """The kind of a refusal, without the path and the values in it."""
    text = re.sub(r"^constraint: (/\S*: )?", "", error.split(";")[0])
    return re.sub(r"[\"'`].*?[\"'`]|\[.*\]|\d+", "…", text)[:80]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--schemas", type=int, default=900)
    parser.add_argument("--tokenizer", default="llama3", choices=ENDS)
    args = parser.parse_args()
    run = recording.Run()
    files = sorted(args.folder.glob("*.json"))
    files = random.Random(20).sample(files, min(args.schemas, len(files)))
    cases = [json.loads(file.read_text()) for file in files]
    lines = [{"kind": 1, "source": json.dumps(case["schema"], ensure_ascii=False), "walks": [],
              "texts": [json.dumps(test["data"], ensure_ascii=False) for test in case["tests"]]} for case in cases]
    counts, causes = collections.Counter(), collections.Counter()
    refused, taken = [], []
    for file, case, answer in zip(files, cases, checked(args.tokenizer, lines)):
        counts["schemas"] += 1
        if "error" in answer:
            counts["schemas refused"] += 1
            causes[cause(answer["error"])] += 1
            continue
        for number, (test, found) in enumerate(zip(case["tests"], answer["taken"])):
            kind = "valid" if test["valid"] else "invalid"
            counts[f"{kind} instances"] += 1
            counts[f"{kind} instances {'taken' if found else 'refused'}"] += 1
            if found != test["valid"]:
                (taken if found else refused).append(f"{file.stem} {number}: {', '.join(case['meta']['features'])}")
    recording.record("maskbench", {
        "what": "a sample of MaskBench's schemas and their instances, in the order of properties that it has",
        "tokenizer": args.tokenizer, "results": dict(counts), "causes of refused schemas": dict(causes.most_common(40)),
        "invalid instances that are taken": taken, "valid instances that are refused, and what their schemas use": refused}, run)
    print(json.dumps(counts, indent=1))
    sys.exit(1 if taken else 0)


if __name__ == "__main__":
    main()
