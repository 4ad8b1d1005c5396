#!/usr/bin/env python3
"""Writes gemma3_270m.json: what Gemma 3 270M (the GGUF that `./dev model gemma3-270m` fetches) computes.

Needs the packages of make_model_goldens.py and tokenizers 0.23.3:
    python3 tests/golden/models/make_gemma_golden.py MODEL.gguf TOKENIZER.json

The reference is transformers' float32 Gemma 3 on the file's weights, de-quantised by the gguf package. For each
prompt it is run greedily for 64 tokens; then, in one pass over all of them, the best token and the distance to
the second best are kept for every position. TOKENIZER.json (of the same model) only makes the prompts' ids.
"""
import json
import pathlib
import sys

import gguf
import tokenizers
import torch
import transformers

import make_model_goldens as goldens

GENERATED = 64
PROMPTS = [
    "The mitochondria is the",
    "The capital of France is",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Once upon a time, in a small village by the sea, there lived",
    "Die Hauptstadt von Deutschland ist Berlin. Die Stadt",
    "A short list of the planets of the solar system:\n1. Mercury\n2. Venus\n3.",
    "Water boils at 100 degrees Celsius because",
    "#include <stdio.h>\n\nint main(void) {\n",
    "Q: What is the difference between a virus and a bacterium?\nA:",
    "In 1969, the Apollo 11 mission",
]


def config_of(reader):
    def value(key):
        return reader.fields[f"gemma3.{key}"].contents()
    return transformers.Gemma3TextConfig(
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
        hidden_size=value("embedding_length"), intermediate_size=value("feed_forward_length"),
        num_hidden_layers=value("block_count"), num_attention_heads=value("attention.head_count"),
        num_key_value_heads=value("attention.head_count_kv"), head_dim=value("attention.key_length"),
        query_pre_attn_scalar=value("attention.key_length"),
        max_position_embeddings=value("context_length"), sliding_window=value("attention.sliding_window"),
        rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": value("rope.freq_base")},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})


def load(path):
    reader = gguf.GGUFReader(path)
    values = {}
    for tensor in reader.tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        values[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
    config = config_of(reader)
    network = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    weights = goldens.hugging_face_weights(
        values, {"model_type": "gemma3_text", "num_hidden_layers": config.num_hidden_layers})
    missing = network.load_state_dict(weights, strict=False)
    assert set(missing.missing_keys) <= {"lm_head.weight"} and not missing.unexpected_keys, missing
    network.tie_weights()
    return network.float().eval()


def main():
    torch.set_num_threads(2)
    network = load(sys.argv[1])
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[2])
    entries, clear = [], 0
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        ids = ids if ids[0] == 2 else [2, *ids]
        out, cache, feed = list(ids), None, torch.tensor([ids])
        with torch.no_grad():
            for _ in range(GENERATED):
                result = network(input_ids=feed, past_key_values=cache, use_cache=True)
                cache = result.past_key_values
                out.append(int(result.logits[0, -1].argmax()))
                feed = torch.tensor([[out[-1]]])
            full = network(input_ids=torch.tensor([out[:-1]])).logits[0]
        best = torch.topk(full, 2, dim=-1)
        gaps = (best.values[:, 0] - best.values[:, 1]).tolist()
        first = len(ids) - 1
        clear += sum(gap >= 0.05 for gap in gaps[first:])
        entries.append({"prompt": prompt, "prompt_length": len(ids), "tokens": out,
                        "best": best.indices[:, 0].tolist(), "gap": [round(gap, 3) for gap in gaps],
                        "continuation": tokenizer.decode(out[len(ids):])})
        print(json.dumps(entries[-1]["continuation"]), flush=True)
    print(f"{clear} generated positions with a gap of at least 0.05")
    golden = {"versions": {**goldens.VERSIONS, "tokenizers": "0.23.3"}, "prompts": entries}
    path = pathlib.Path(__file__).with_name("gemma3_270m.json")
    path.write_text(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
