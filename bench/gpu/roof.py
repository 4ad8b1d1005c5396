"""The roof of a run of many requests: Σ over its steps of max(bytes / read bandwidth, flops / measured rate).

Steps are those of a schedule that wastes nothing: all prompts first, in steps that are full, then one token for every
row in each step. Bytes are weights, and keys and values, once for each step; flops are those of products and attention.
"""
import json
import math

FP8_SCALE_BYTES = 4  # one for each token, KV head, and of keys and values


# What makers say of dense products of bfloat16, in FLOP/s, by a part of the device's name; the longest part counts.
DENSE_BF16 = {"A100": 312e12, "A10": 125e12, "A40": 150e12, "L4": 121e12, "L40S": 362e12, "RTX 4090": 165e12,
              "H100": 989e12, "H100 PCIe": 756e12, "H200": 989e12, "GH200": 989e12, "B200": 2250e12, "GB200": 2250e12,
              "emulated": 1e12}  # any number: a rehearsal's figures are none


def dense_rate(device):
    """None for a device that is not in the table."""
    known = [part for part in DENSE_BF16 if part in device]
    return DENSE_BF16[max(known, key=len)] if known else None


class Shape:
    def __init__(self, folder, weight_bytes, head_elements):
        config = json.loads((folder / "config.json").read_text())
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.weight_bytes = weight_bytes
        self.head = head_elements  # of the product with the vocabulary, which sampled rows alone need
        self.body = weight_bytes / 2 - head_elements

    def kv_bytes(self, fp8):
        """Of one token's keys and values."""
        head = self.head_dim + FP8_SCALE_BYTES if fp8 else 2 * self.head_dim
        return 2 * self.layers * self.kv_heads * head

    def attention_flops(self, context):
        """Of one token that sees so many."""
        return 4 * self.layers * self.heads * self.head_dim * context


def seconds(shape, *, rows, prompt, tokens, step_tokens, fp8, bandwidth, rate):
    """Least time for `rows` requests of `prompt` tokens that are answered with `tokens`."""
    kv, total = shape.kv_bytes(fp8), 0.0
    for _ in range(math.ceil(rows * prompt / step_tokens)):
        flops = step_tokens * (2 * shape.body + shape.attention_flops(prompt / 2))
        total += max((shape.weight_bytes + step_tokens * kv) / bandwidth, flops / rate)
    for step in range(tokens - 1):
        context = prompt + step + 1
        flops = rows * (2 * shape.body + 2 * shape.head + shape.attention_flops(context))
        total += max((shape.weight_bytes + rows * context * kv) / bandwidth, flops / rate)
    return total
