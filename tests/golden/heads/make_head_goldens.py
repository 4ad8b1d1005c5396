#!/usr/bin/env python3
"""Writes the drafts that draft heads must propose, as the published definitions compute them.

Needs torch 2.15.0, transformers 5.23.0, numpy 2.4.6. Run it from anywhere:
    python3 tests/golden/heads/make_head_goldens.py [name …]

A fixture is one file: the configurations of a target and of its head, the names and shapes of their tensors, a
prompt, the target's 48 greedy tokens, and the drafts behind each of them. The weights are in no file: a tensor's
element i is a hash of its name and i, which the test computes as well.

Medusa: Cai et al., arXiv 2401.10774. EAGLE-3: Li et al., arXiv 2503.01840. MTP: DeepSeek-V3, arXiv 2412.19437.
"""
import json
import pathlib
import sys

import numpy
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
PROMPT = 40
GENERATED = 48
DRAFTS = 4
MIN_GAP = 1e-4  # between the two best logits of what is kept
VOCAB = 128

TARGET = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": 32,
          "intermediate_size": 48, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
          "bos_token_id": 1, "eos_token_id": 2}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": VOCAB,
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 2, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8, "v_head_dim": 16, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "tie_word_embeddings": False, "n_routed_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 16, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
            "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
            "scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
            "bos_token_id": 1, "eos_token_id": 2}
GLM = {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "vocab_size": VOCAB, "hidden_size": 32,
       "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
       "head_dim": 16, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
       "partial_rotary_factor": 0.5, "attention_bias": True, "use_qk_norm": True, "tie_word_embeddings": False,
       "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1,
       "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": True,
       "routed_scaling_factor": 1.5, "num_nextn_predict_layers": 1, "bos_token_id": 1, "eos_token_id": 2}


def values(name, shape, scale, offset):
    """Elements offset + scale · u, u in [−1, 1) with 24 bits: SplitMix64 behind an FNV-1a hash of the name."""
    seed = 0xcbf29ce484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001b3) % 2**64
    count = int(numpy.prod(shape))
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
        z ^= z >> numpy.uint64(31)
    unit = (z >> numpy.uint64(40)).astype(numpy.float64) / 2.0**23 - 1.0
    return torch.from_numpy((offset + scale * unit).astype(numpy.float32)).reshape(shape)


class Tensors:
    """The tensors of one model: makes them, and lists them for the test."""

    def __init__(self):
        self.listed = []
        self.made = {}

    def add(self, name, *shape):
        is_norm = "norm" in name and len(shape) == 1
        scale = 0.25 if is_norm else 0.05 if len(shape) == 1 else 3.0 / shape[-1] ** 0.5
        offset = 1.0 if is_norm else 0.0
        self.listed.append([name, list(shape), scale, offset])
        self.made[name] = values(name, shape, scale, offset)
        return self.made[name]

    def ids(self, name, numbers):
        self.listed.append([name, [len(numbers)], "I64", numbers])
        self.made[name] = numbers

    def __getitem__(self, name):
        return self.made[name]


def load_target(config, tensors):
    """The target with weights of its names; checkpoints list experts one by one, transformers stacks them."""
    kind = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager").eval().float()
    hidden, inner = config["hidden_size"], config.get("moe_intermediate_size", 0)
    state = {}
    for name, value in model.state_dict().items():
        if name.endswith(".experts.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            both = [[tensors.add(f"{base}{e}.{part}.weight", inner, hidden) for part in ("gate_proj", "up_proj")]
                    for e in range(value.shape[0])]
            state[name] = torch.stack([torch.cat(pair) for pair in both])
        elif name.endswith(".experts.down_proj"):
            base = name.removesuffix("down_proj")
            state[name] = torch.stack([tensors.add(f"{base}{e}.down_proj.weight", hidden, inner)
                                       for e in range(value.shape[0])])
        else:
            state[name] = tensors.add(name, *value.shape)
    model.load_state_dict(state)
    return model


@torch.no_grad()
def run_target(model, prompt):
    """Greedy tokens, and the residual streams that enter each layer and leave the last, by position."""
    tokens = list(prompt)
    for _ in range(GENERATED):
        logits = model(torch.tensor([tokens])).logits[0, -1]
        best = torch.topk(logits, 2)
        assert best.values[0] - best.values[1] > MIN_GAP, "two tokens are as good"
        tokens.append(int(best.indices[0]))
    streams = []
    hooks = [layer.register_forward_pre_hook(lambda _, args, kwargs: streams.append(
        (args[0] if args else kwargs["hidden_states"])[0]), with_kwargs=True) for layer in model.model.layers]
    hooks.append(model.model.norm.register_forward_pre_hook(lambda _, args: streams.append(args[0][0])))
    model(torch.tensor([tokens]))
    for hook in hooks:
        hook.remove()
    return tokens, streams


def norm(x, weight, epsilon):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)


def best_of(logits):
    best = torch.topk(logits, 2)
    assert best.values[0] - best.values[1] > MIN_GAP, "two drafts are as good"
    return int(best.indices[0])


# --- Medusa ---------------------------------------------------------------------------------------
def medusa(layout):
    target, head = Tensors(), Tensors()
    model = load_target(TARGET, target)
    hidden, heads, blocks = 32, DRAFTS, 2
    token_map = list(range(3, VOCAB, 2)) if layout == "vllm" else []
    rows = len(token_map) or VOCAB
    for h in range(heads):
        for b in range(blocks):
            if layout == "vllm":
                head.add(f"blocks.{h}.layers.{b}.weight", hidden, hidden)
            else:
                head.add(f"{h}.{b}.linear.weight", hidden, hidden)
                head.add(f"{h}.{b}.linear.bias", hidden)
        head.add(f"lm_heads.{h}.weight" if layout == "vllm" else f"{h}.{blocks}.weight", rows, hidden)
    if token_map:
        head.ids("token_map", token_map)
    config = ({"model_type": "medusa", "architectures": ["MedusaModel"], "num_heads": heads,
               "num_hidden_layers": blocks, "hidden_size": hidden, "vocab_size": VOCAB,
               "truncated_vocab_size": rows} if layout == "vllm" else
              {"medusa_num_heads": heads, "medusa_num_layers": blocks, "base_model_name_or_path": "a/target"})

    def draft(tokens, streams, length):
        state = norm(streams[-1][length - 2], model.model.norm.weight, TARGET["rms_norm_eps"])
        drafts = []
        for h in range(heads):
            x = state
            for b in range(blocks):
                if layout == "vllm":
                    y = head[f"blocks.{h}.layers.{b}.weight"] @ x
                else:
                    y = head[f"{h}.{b}.linear.weight"] @ x + head[f"{h}.{b}.linear.bias"]
                x = x + torch.nn.functional.silu(y)
            one = best_of(head[f"lm_heads.{h}.weight" if layout == "vllm" else f"{h}.{blocks}.weight"] @ x)
            drafts.append(token_map[one] if token_map else one)
        return drafts

    return "medusa", TARGET, target, model, config, head, draft


# --- one more layer -------------------------------------------------------------------------------
def rotate(x, position, base, dims):
    """x: [heads, dims …]; pairs (i, i + dims / 2) turn."""
    half = dims // 2
    angle = position / base ** (torch.arange(half, dtype=torch.float32) / half)
    a, b, rest = x[:, :half], x[:, half:dims], x[:, dims:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest], -1)


class Layer:
    """One layer over a list of inputs, which it computes again for each: plain, and slow enough."""

    def drafts(self, tokens, length, first):
        """`first`: what the layer reads at the positions 0 … length − 2."""
        states, words, drafts = list(first), tokens[1:length], []
        for _ in range(DRAFTS):
            shown, logits = self.run(states, words)
            drafts.append(self.target_id(best_of(logits)))
            states.append(shown)
            words = words + [drafts[-1]]
        return drafts

    def target_id(self, own):
        return own


class Eagle(Layer):
    def __init__(self, head, config, embedding, prefix, d2t):
        self.head, self.c, self.embedding, self.prefix, self.d2t = head, config, embedding, prefix, d2t

    def target_id(self, own):
        return own + self.d2t[own] if self.d2t else own

    def weight(self, name):
        return self.head[f"{self.prefix}{name}.weight"]

    def run(self, states, words):
        c, eps = self.c, self.c["rms_norm_eps"]
        heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        keys, values_ = [], []
        for position, (state, word) in enumerate(zip(states, words)):
            normed = norm(state, self.weight("hidden_norm"), eps)
            both = torch.cat([norm(self.embedding[word], self.weight("input_layernorm"), eps), normed])
            keys.append(rotate((self.weight("self_attn.k_proj") @ both).view(kv, dim), position, c["rope_theta"], dim))
            values_.append((self.weight("self_attn.v_proj") @ both).view(kv, dim))
        query = rotate((self.weight("self_attn.q_proj") @ both).view(heads, dim), position, c["rope_theta"], dim)
        k = torch.stack(keys).repeat_interleave(heads // kv, 1)
        v = torch.stack(values_).repeat_interleave(heads // kv, 1)
        scores = torch.softmax(torch.einsum("hd,thd->ht", query, k) / dim ** 0.5, -1)
        attended = torch.einsum("ht,thd->hd", scores, v).reshape(-1)
        residual = normed if c.get("norm_before_residual") else state
        hidden = residual + self.weight("self_attn.o_proj") @ attended
        x = norm(hidden, self.weight("post_attention_layernorm"), eps)
        hidden = hidden + self.weight("mlp.down_proj") @ (
            torch.nn.functional.silu(self.weight("mlp.gate_proj") @ x) * (self.weight("mlp.up_proj") @ x))
        return hidden, self.head["lm_head.weight"] @ norm(hidden, self.head["norm.weight"], eps)


def eagle3(form):
    target, head = Tensors(), Tensors()
    model = load_target(TARGET, target)
    hidden, inner, heads, kv, dim = 32, 40, 4, 2, 8
    layer = {"model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": 1,
             "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim, "vocab_size": VOCAB,
             "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "hidden_act": "silu"}
    draft_vocab = 96
    usual = [2, 4, 5]  # of 8 layers: 2, n / 2 and n − 3
    if form == "speculators":
        prefix, layers = "layers.0.", [1, 3, 6]
        config = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
                  "draft_vocab_size": draft_vocab, "norm_before_residual": True,
                  "eagle_aux_hidden_state_layer_ids": layers, "transformer_layer_config": layer}
        layer = layer | {"norm_before_residual": True}
        embedding = head.add("embed_tokens.weight", VOCAB, hidden)
    else:
        prefix, layers = "midlayer.", usual
        config = layer | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": draft_vocab}
        embedding = target["model.embed_tokens.weight"]
    d2t = [int(own % 3 == 1) + (VOCAB - draft_vocab - 1) * int(own > 50) for own in range(draft_vocab)]
    head.ids("d2t", d2t)
    head.add("fc.weight", hidden, 3 * hidden)
    head.add("norm.weight", hidden)
    head.add("lm_head.weight", draft_vocab, hidden)
    for name, shape in {"self_attn.q_proj": (heads * dim, 2 * hidden), "self_attn.k_proj": (kv * dim, 2 * hidden),
                        "self_attn.v_proj": (kv * dim, 2 * hidden), "self_attn.o_proj": (hidden, heads * dim),
                        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
                        "mlp.down_proj": (hidden, inner), "hidden_norm": (hidden,), "input_layernorm": (hidden,),
                        "post_attention_layernorm": (hidden,)}.items():
        head.add(f"{prefix}{name}.weight", *shape)
    eagle = Eagle(head, layer, embedding, prefix, d2t)

    def draft(tokens, streams, length):
        first = [head["fc.weight"] @ torch.cat([streams[layer_][t] for layer_ in layers]) for t in range(length - 1)]
        return eagle.drafts(tokens, length, first)

    return "eagle3", TARGET, target, model, config, head, draft


class NextLayer(Layer):
    """The target's own class of layers, with the weights of the layer behind its last."""

    def __init__(self, model, config, tensors):
        self.model, self.c, self.tensors = model, config, tensors
        self.prefix = f"model.layers.{config['num_hidden_layers']}."
        kind = type(model.model.layers[-1])
        self.layer = kind(model.config, config["num_hidden_layers"] - 1).eval().float()
        for name, value in {"enorm": (32,), "hnorm": (32,), "eh_proj": (32, 64), "shared_head.norm": (32,),
                            "shared_head.head": (VOCAB, 32), "embed_tokens": (VOCAB, 32)}.items():
            tensors.add(f"{self.prefix}{name}.weight", *value)
        state, inner = {}, config["moe_intermediate_size"]
        for name, value in self.layer.state_dict().items():
            if name.endswith("experts.gate_up_proj"):
                base = self.prefix + name.removesuffix("gate_up_proj")
                state[name] = torch.stack([torch.cat([tensors.add(f"{base}{e}.{part}.weight", inner, 32)
                                                      for part in ("gate_proj", "up_proj")])
                                           for e in range(value.shape[0])])
            elif name.endswith("experts.down_proj"):
                base = self.prefix + name.removesuffix("down_proj")
                state[name] = torch.stack([tensors.add(f"{base}{e}.down_proj.weight", 32, inner)
                                           for e in range(value.shape[0])])
            else:
                state[name] = tensors.add(self.prefix + name, *value.shape)
        self.layer.load_state_dict(state)

    def weight(self, name):
        return self.tensors[f"{self.prefix}{name}.weight"]

    @torch.no_grad()
    def run(self, states, words):
        eps, count = self.c["rms_norm_eps"], len(states)
        embedding = self.tensors["model.embed_tokens.weight"][words]
        both = torch.cat([norm(embedding, self.weight("enorm"), eps),
                          norm(torch.stack(states), self.weight("hnorm"), eps)], -1)
        hidden = (both @ self.weight("eh_proj").T)[None]
        positions = torch.arange(count)[None]
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        out = self.layer(hidden, attention_mask=mask, position_ids=positions,
                         position_embeddings=self.model.model.rotary_emb(hidden, positions))
        out = (out[0] if isinstance(out, tuple) else out)[0, -1]
        shown = norm(out, self.weight("shared_head.norm"), eps)
        return shown, self.weight("shared_head.head") @ shown


def mtp(config):
    target = Tensors()
    model = load_target(config, target)
    layer = NextLayer(model, config, target)

    def draft(tokens, streams, length):
        first = norm(streams[-1], model.model.norm.weight, config["rms_norm_eps"])[:length - 1]
        return layer.drafts(tokens, length, first)

    return "mtp", config, target, model, None, None, draft


FIXTURES = {"medusa": lambda: medusa("original"), "medusa-vllm": lambda: medusa("vllm"),
            "eagle3": lambda: eagle3("original"), "eagle3-speculators": lambda: eagle3("speculators"),
            "mtp-deepseek": lambda: mtp(DEEPSEEK), "mtp-glm4-moe": lambda: mtp(GLM)}


def main():
    torch.set_grad_enabled(False)
    for name in sys.argv[1:] or FIXTURES:
        method, target_config, target, model, config, head, draft = FIXTURES[name]()
        generator = numpy.random.default_rng(5)
        for _ in range(20):
            prompt = [int(t) for t in generator.integers(3, VOCAB, PROMPT)]
            try:
                tokens, streams = run_target(model, prompt)
                drafts = [draft(tokens, streams, length) for length in range(PROMPT + 1, PROMPT + GENERATED)]
                break
            except AssertionError as error:
                print(f"{name}: {error}, another prompt")
        else:
            sys.exit(f"{name}: no prompt is clear")
        fixture = {"method": method, "target": target_config, "target_tensors": target.listed,
                   "head": config, "head_tensors": head.listed if head else None, "prompt": prompt,
                   "tokens": tokens[PROMPT:], "drafts": drafts}
        text = ",\n".join(f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
                          for key, value in fixture.items())
        (HERE / f"{name}.json").write_text("{\n" + text + "\n}\n")
        right = sum(d[0] == t for d, t in zip(drafts, tokens[PROMPT + 1:]))
        print(f"{name}: {len(drafts)} drafts, {len(set(map(tuple, drafts)))} different, {right} first ones right")


if __name__ == "__main__":
    main()
