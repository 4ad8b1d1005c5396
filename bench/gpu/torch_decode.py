#!/usr/bin/env python3
"""The peer of decode at batch 1: the same weights in plain PyTorch, one token a step, replayed as a CUDA graph.

Usage: torch_decode.py FOLDER --tokens 512 [--prompt 1,2,3] [--show]

FOLDER is a Llama or Qwen2 in bfloat16 safetensors, as `quire make-weights` writes it. Keys and values lie in buffers of
the whole length, attention is PyTorch's own with a mask, the next token is the argmax, which stays on the device. Without
a GPU, steps run on the CPU in float32 and no graph is there: that shows the arithmetic. Ends with 0; without PyTorch it
says that it is not here.
"""
import argparse
import json
import math
import pathlib
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"not here: torch is not here ({error})")
    sys.exit(0)


def read_weights(folder, device, dtype):
    weights = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
        length = int.from_bytes(bytes(data[:8].tolist()), "little")
        header = json.loads(bytes(data[8:8 + length].tolist()))
        for name, about in header.items():
            if name == "__metadata__":
                continue
            if about["dtype"] != "BF16":
                sys.exit(f"torch_decode: {path}: {name} is {about['dtype']}, bfloat16 is needed")
            begin, end = (8 + length + offset for offset in about["data_offsets"])
            part = data[begin:end].clone().view(torch.bfloat16).reshape(about["shape"])
            weights[name] = part.to(device=device, dtype=dtype)
    return weights


def inverse_frequencies(config, head_dim):
    inverse = 1.0 / config["rope_theta"] ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    scaling = config.get("rope_scaling")
    if not scaling:
        return inverse
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * inverse / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return inverse * (smooth + (1 - smooth) / factor)


class Decoder:
    """One sequence. All that a step reads or writes has one place, so that a graph can replay it."""

    def __init__(self, folder, length, device, dtype):
        self.config = config = json.loads((folder / "config.json").read_text())
        self.w = read_weights(folder, device, dtype)
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.layers = config["num_hidden_layers"]
        angles = torch.outer(torch.arange(length, dtype=torch.float64), inverse_frequencies(config, self.head_dim))
        self.cos = torch.cat([angles.cos()] * 2, -1).to(device, dtype)
        self.sin = torch.cat([angles.sin()] * 2, -1).to(device, dtype)
        shape = (self.layers, 1, self.kv_heads, length, self.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.positions = torch.arange(length, device=device)
        self.position = torch.zeros(1, device=device, dtype=torch.long)
        self.token = torch.zeros(1, device=device, dtype=torch.long)
        # Joined as a serving engine would join them.
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            for joined, parts in (("self_attn.qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
                                  ("mlp.gate_up", ("mlp.gate_proj", "mlp.up_proj"))):
                for kind in ("weight", "bias"):
                    if f"{at}{parts[0]}.{kind}" in self.w:
                        self.w[f"{at}{joined}.{kind}"] = torch.cat([self.w.pop(f"{at}{part}.{kind}") for part in parts])

    def norm(self, x, name):
        return F.rms_norm(x, x.shape[-1:], self.w[name], self.config["rms_norm_eps"])

    def linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def turn(self, x):
        cos, sin = self.cos.index_select(0, self.position), self.sin.index_select(0, self.position)
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    def step(self):
        """The token at the position; then `token` is the next one, and `position` its place."""
        x = F.embedding(self.token, self.w["model.embed_tokens.weight"])
        mask = (self.positions <= self.position)[None, None, None]
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            qkv = self.linear(self.norm(x, at + "input_layernorm.weight"), at + "self_attn.qkv")
            q, k, v = (part.reshape(1, 1, -1, self.head_dim).transpose(1, 2) for part in qkv.split(
                [self.heads * self.head_dim] + [self.kv_heads * self.head_dim] * 2, -1))
            self.keys[layer].index_copy_(2, self.position, self.turn(k))
            self.values[layer].index_copy_(2, self.position, v)
            seen = F.scaled_dot_product_attention(self.turn(q), self.keys[layer], self.values[layer], attn_mask=mask,
                                                  enable_gqa=True)
            x = x + self.linear(seen.transpose(1, 2).reshape(1, -1), at + "self_attn.o_proj")
            gate, up = self.linear(self.norm(x, at + "post_attention_layernorm.weight"), at + "mlp.gate_up").chunk(2, -1)
            x = x + self.linear(F.silu(gate) * up, at + "mlp.down_proj")
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        self.token.copy_(F.linear(self.norm(x, "model.norm.weight"), head).argmax(-1))
        self.position += 1


def replayed(decoder):
    """A step as a graph, behind runs that warm up what PyTorch makes on first use."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            decoder.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step()
    return graph.replay


def run(folder, prompt, count):
    """(tokens, seconds of a token)."""
    gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
    with torch.inference_mode():
        decoder = Decoder(folder, len(prompt) + count + 8, device, dtype)
        step = replayed(decoder) if gpu else decoder.step
        decoder.position.zero_()
        for token in prompt:
            decoder.token.fill_(token)
            step()
        tokens = [decoder.token.clone()]
        if gpu:
            torch.cuda.synchronize()
        begin = time.monotonic()
        for _ in range(count - 1):
            step()
            tokens.append(decoder.token.clone())
        if gpu:
            torch.cuda.synchronize()
        return [int(token) for token in tokens], (time.monotonic() - begin) / max(1, count - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--prompt", default=",".join(str(10 + i) for i in range(32)))
    parser.add_argument("--show", action="store_true", help="the tokens too")
    args = parser.parse_args()
    tokens, seconds = run(args.folder, [int(token) for token in args.prompt.split(",")], args.tokens)
    print(json.dumps({"tokens_per_second": 1 / seconds, **({"tokens": tokens} if args.show else {})}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
