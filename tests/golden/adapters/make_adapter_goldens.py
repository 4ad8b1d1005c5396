#!/usr/bin/env python3
"""Writes the tiny adapters of tests/golden/adapters and what models of tests/golden/models compute with them.

Needs peft 0.21.2 beside what make_model_goldens.py needs. Run it from anywhere:
    python3 tests/golden/adapters/make_adapter_goldens.py [name …]

Each fixture is a folder as PEFT saves it, and golden.json: the model, a prompt, 64 greedy tokens of PEFT in
float32, and logits of some rows. The reference of a GGUF model is its weights, expanded.
"""
import json
import pathlib
import shutil
import sys

import gguf
import numpy
import peft
import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent / "models"
sys.path.insert(0, str(MODELS))
import make_model_goldens as models  # noqa: E402

KEPT_ROWS = [models.PROMPT - 1, models.PROMPT + 23, models.PROMPT + models.GENERATED - 2]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]

# name: (model, type of the file's numbers, settings of LoraConfig)
ADAPTERS = {
    "llama-all-linear": ("llama-tied-mha", torch.bfloat16,
                         dict(r=8, lora_alpha=16, target_modules="all-linear")),
    "llama-patterns": ("llama3-gqa8-bias", torch.float32, dict(
        r=4, lora_alpha=6, target_modules=ATTENTION + MLP, use_rslora=True,
        rank_pattern={"layers.0.self_attn.q_proj": 2, r"^model\.layers\.1\.mlp\.(up|gate)_proj": 7, "k_proj": 1},
        alpha_pattern={r".*\.1\.self_attn\.[qv]_proj": 12, "down_proj": 3.5})),
    "qwen3-rank-64": ("qwen3-tied-gqa8", torch.bfloat16,
                      dict(r=64, lora_alpha=64, use_rslora=True, target_modules=["q_proj", "v_proj"])),
    "gemma3-regex": ("gemma3-pattern", torch.bfloat16, dict(
        r=4, lora_alpha=8, target_modules=r"model\.layers\.[0-4]\.(self_attn|mlp)\.(q|o|down|up)_proj")),
    "gemma2": ("gemma2", torch.float16, dict(r=2, lora_alpha=4, target_modules=ATTENTION + MLP)),
    "phi3-fused": ("phi3-window", torch.bfloat16, dict(
        r=5, lora_alpha=10, target_modules=["qkv_proj", "gate_up_proj", "o_proj", "down_proj"])),
    "cohere-pairs": ("cohere", torch.bfloat16, dict(r=16, lora_alpha=16, target_modules=["q_proj", "k_proj", "up_proj"])),
    "glm4-partial-pairs": ("glm4", torch.bfloat16, dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "mixtral-attention": ("mixtral", torch.bfloat16, dict(r=8, lora_alpha=8, target_modules=ATTENTION)),
    # PEFT reads targets among the names of experts as parameters (target_parameters): attention alone.
    "qwen2-moe-attention": ("qwen2-moe", torch.bfloat16, dict(r=4, lora_alpha=8, target_modules=ATTENTION)),
    "deepseek-v3": ("deepseek-v3", torch.bfloat16, dict(
        r=4, lora_alpha=8, target_modules=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"])),
    "opt-relu": ("opt-pre-norm", torch.bfloat16,
                 dict(r=6, lora_alpha=6, target_modules=["q_proj", "v_proj", "out_proj", "fc1", "fc2"])),
    "granite-scales": ("granite", torch.bfloat16, dict(r=8, lora_alpha=4, target_modules=ATTENTION + MLP)),
    "granite-hybrid": ("granite-hybrid-dense", torch.float32, dict(r=4, lora_alpha=4, target_modules=[
        "in_proj", "out_proj", "q_proj", "o_proj", "input_linear", "output_linear"])),
    "nemotron-h": ("nemotron-h", torch.bfloat16, dict(r=4, lora_alpha=4, target_modules=[
        "in_proj", "q_proj", "o_proj", "up_proj", "down_proj"])),
    "qwen3-next": ("qwen3-next", torch.bfloat16, dict(r=2, lora_alpha=2, target_modules=[
        "in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj"])),
    "qwen35-text": ("qwen35-text", torch.bfloat16, dict(r=2, lora_alpha=2, target_modules="all-linear")),
    "lfm2": ("lfm2", torch.bfloat16, dict(r=4, lora_alpha=4, target_modules="all-linear")),
    "gemma4-keys-are-values": ("gemma4", torch.bfloat16, dict(r=4, lora_alpha=8, target_modules=ATTENTION + MLP)),
    "gpt-oss-attention": ("gpt-oss", torch.bfloat16, dict(r=8, lora_alpha=8, target_modules=ATTENTION)),
    # Quantised bases, one whose file has rows of q and k in another order than the adapter.
    "gguf-smollm3": ("gguf-smollm3", torch.bfloat16, dict(r=8, lora_alpha=16, target_modules=ATTENTION + MLP)),
    "gguf-qwen2": ("gguf-qwen2", torch.float16, dict(r=16, lora_alpha=16, target_modules=ATTENTION + MLP)),
    "gguf-phi3-fused": ("gguf-phi3", torch.bfloat16, dict(
        r=4, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj", "down_proj"])),
}


def gguf_reference(name):
    """A network with the values of a GGUF file."""
    config = models.GGUF_MODELS[name][0]
    values = {}
    for tensor in gguf.GGUFReader(MODELS / name / "model.gguf").tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values[tensor.name] = numpy.asarray(data, numpy.float32).reshape(shape)
    settings = {key: value for key, value in config.items() if key != "architectures"}
    network = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**settings), attn_implementation="eager")
    missing = network.load_state_dict(models.hugging_face_weights(values, config), strict=False)
    allowed = {"lm_head.weight"} if config["tie_word_embeddings"] else set()
    assert set(missing.missing_keys) <= allowed and not missing.unexpected_keys, missing
    network.tie_weights()
    return network.float().eval()


def reference(name):
    return gguf_reference(name) if name in models.GGUF_MODELS else models.reference(MODELS / name)


def draw(network, generator, dtype):
    """A and B of a size that changes most tokens, as the file's type holds them."""
    for name, parameter in network.named_parameters():
        if "lora_" not in name:
            continue
        spread = 1.0 / parameter.shape[-1] ** 0.5 if "lora_A" in name else 0.12
        value = torch.randn(parameter.shape, generator=generator) * spread
        parameter.data = value.to(dtype).to(torch.float32)


def save(network, folder, dtype):
    shutil.rmtree(folder, ignore_errors=True)
    network.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_model.safetensors"
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = None
    for key in ("target_modules", "exclude_modules"):
        if isinstance(config.get(key), list):
            config[key] = sorted(config[key])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=False) + "\n")


def make(name):
    base, dtype, settings = ADAPTERS[name]
    for seed in range(1, 60):
        generator = torch.Generator().manual_seed(1000 + seed)
        plain = reference(base)
        prompt = torch.randint(3, models.VOCAB, (models.PROMPT,), generator=generator).tolist()
        without, _ = models.greedy(plain, prompt)
        network = peft.get_peft_model(plain, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
        draw(network, generator, dtype)
        gaps = models.RouterGaps(network)
        tokens, smallest = models.greedy(network, prompt)
        if smallest < models.MIN_GAP or gaps.smallest < models.MIN_ROUTER_GAP or len(set(tokens[models.PROMPT:])) < 6:
            continue
        if sum(a != b for a, b in zip(tokens, without)) < 16:
            continue
        save(network, HERE / name, dtype)
        full = models.all_logits(network, tokens[:-1])
        assert all(int(full[at].argmax()) == tokens[at + 1] for at in range(models.PROMPT - 1, len(tokens) - 1))
        rows = [{"position": at, "logits": models.pack(full[at]), "gap": float(full[at].topk(2).values.diff().abs()),
                 "bfloat16_error": 0.0} for at in KEPT_ROWS]
        golden = {"versions": models.VERSIONS | {"peft": peft.__version__}, "model": base,
                  "prompt_length": models.PROMPT, "tokens": tokens, "rows": rows}
        (HERE / name / "golden.json").write_text(json.dumps(golden) + "\n")
        return seed
    raise SystemExit(f"{name}: no seed keeps the two best logits apart")


if __name__ == "__main__":
    assert peft.__version__ == "0.21.2", peft.__version__
    torch.set_num_threads(1)
    for each in sys.argv[1:] or ADAPTERS:
        print(each, "seed", make(each), flush=True)
