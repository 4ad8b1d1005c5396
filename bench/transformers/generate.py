#!/usr/bin/env python3
"""The peer of the batching bench: transformers, float32, one request after the other.

  generate.py export FILE.gguf FOLDER    writes the file's weights, de-quantised, as a float32 model folder
  generate.py run FOLDER THREADS         answers [{"prompt": ids, "tokens": count}, ...] from stdin greedily

`run` prints one line of JSON: output tokens per second, prompts included, and the tokens.
"""
import json
import pathlib
import sys
import time

import torch
import transformers

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "models"


def export(file, folder):
    sys.path.insert(0, str(GOLDENS))
    import make_gemma_golden
    make_gemma_golden.load(file).save_pretrained(folder)


def answer(network, request):
    ids = torch.tensor([request["prompt"]])
    out = network.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                           max_new_tokens=request["tokens"], min_new_tokens=request["tokens"])
    return out[0, ids.shape[1]:].tolist()


def run(folder, threads):
    torch.set_num_threads(threads)
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    network.generation_config.eos_token_id = None  # answers have the length that is asked for
    requests = json.load(sys.stdin)
    with torch.no_grad():
        answer(network, {"prompt": requests[0]["prompt"], "tokens": 4})  # warm
        begin = time.monotonic()
        outputs = [answer(network, request) for request in requests]
        seconds = time.monotonic() - begin
    print(json.dumps({"tokens_per_second": sum(map(len, outputs)) / seconds, "outputs": outputs}))


if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(sys.argv[2], sys.argv[3])
    else:
        run(sys.argv[2], int(sys.argv[3]))
