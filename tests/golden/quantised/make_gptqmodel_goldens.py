#!/usr/bin/env python3
"""Writes the checkpoints of tests/golden/quantised that gptqmodel quantises, and what they must compute.

Needs what make_quantised_goldens.py needs, and gptqmodel 7.7.0 with its dependencies (accelerate, tokenicer,
logbar, pypcre, device-smi, defuser, torchao and datasets). Run it from anywhere:
    GPTQMODEL_CPU_WORKERS=2 python3 tests/golden/quantised/make_gptqmodel_goldens.py [name …]

gptqmodel calibrates and packs; its files are kept as it writes them. golden.json has the tokens and logits of the
float32 reference, whose weights are those that gptqmodel itself unpacks from its files.
"""
import copy
import json
import os
import pathlib
import shutil
import sys
import tempfile

import gptqmodel
import safetensors.torch
import torch
import transformers
from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
from tokenizers import Tokenizer, models

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "models"))
sys.path.insert(0, str(HERE))
import make_model_goldens as goldens  # noqa: E402
import make_quantised_goldens as quantised  # noqa: E402

CALIBRATION_TEXTS = 32
CALIBRATION_TOKENS = 64
# name: (config of the model, settings of gptqmodel)
FIXTURES = {
    "gptq-4bit-act-order": (quantised.llama(), {"bits": 4, "group_size": 32, "desc_act": True}),
    "gptq-3bit": (quantised.llama(), {"bits": 3, "group_size": 64, "sym": False}),
    # A layer of eight bits, and a projection that stays as it is.
    "gptq-dynamic": (
        quantised.llama(**quantised.SMALL),
        {"bits": 4, "group_size": 32,
         "dynamic": {r"+:.*layers\.1\..*": {"bits": 8, "group_size": 64}, r"-:.*layers\.0\.mlp\.down.*": {}}}),
    "awq-g128": (quantised.qwen3(), {"bits": 4, "group_size": 128, "sym": False, "quant_method": "awq",
                                     "format": "gemm"}),
    # zero_point false: the zeros of the file are all eight.
    "awq-symmetric": (quantised.llama(**quantised.SMALL | {"num_key_value_heads": 2}, num_hidden_layers=1),
                      {"bits": 4, "group_size": 32, "sym": True, "quant_method": "awq", "format": "gemm"}),
}


def write_tokenizer(folder):
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(goldens.VOCAB)}, unk_token="t0"))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="t1", eos_token="t2", unk_token="t0", pad_token="t0").save_pretrained(folder)


def quantise(source, out, settings, generator):
    """gptqmodel's files of the model in `source`."""
    model = gptqmodel.GPTQModel.load(str(source), gptqmodel.QuantizeConfig(**settings), device="cpu")
    shape = (CALIBRATION_TEXTS, CALIBRATION_TOKENS)
    rows = torch.randint(3, goldens.VOCAB, shape, generator=generator).tolist()
    model.quantize([{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows], batch_size=1)
    model.save(str(out))


def unpacked(out):
    """module → the float32 weight [outputs, inputs] that gptqmodel reads from its files."""
    awq = json.loads((out / "config.json").read_text())["quantization_config"]["quant_method"] == "awq"
    backend = gptqmodel.BACKEND.AWQ_TORCH if awq else gptqmodel.BACKEND.TORCH
    model = gptqmodel.GPTQModel.load(str(out), backend=backend, device="cpu")
    weights = {}
    with safetensors.safe_open(out / "model.safetensors", "pt") as file:
        for name, module in model.model.named_modules():
            if not hasattr(module, "qweight"):
                continue
            scales = file.get_tensor(f"{name}.scales").float()
            if awq:
                value = dequantize_gemm(module.qweight, module.qzeros, scales, module.bits, module.group_size)
            else:
                module.scales = scales
                value = type(module).dequantize_weight(module)
            weights[name] = value.reshape(module.in_features, module.out_features).T.contiguous()
            assert weights[name].dtype == torch.float32
    return weights


def make_once(name, seed):
    """The reference network, its tokens and their smallest gap, with the files in the fixture's folder."""
    config, settings = FIXTURES[name]
    generator = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as temporary:
        source, out = pathlib.Path(temporary) / "source", pathlib.Path(temporary) / "out"
        source.mkdir()
        (source / "config.json").write_text(json.dumps(config))
        parsed = transformers.AutoConfig.from_pretrained(source)
        network = transformers.AutoModelForCausalLM.from_config(parsed, attn_implementation="eager")
        goldens.randomise(network, generator, torch.bfloat16)
        copy.deepcopy(network).to(torch.bfloat16).save_pretrained(source)
        write_tokenizer(source)
        quantise(source, out, settings, generator)
        network = network.eval()
        weights = {f"{module}.weight": weight for module, weight in unpacked(out).items()}
        plain = {key: value.float() for key, value in safetensors.torch.load_file(out / "model.safetensors").items()
                 if key.endswith(".weight")}  # AWQ moves scales into norms
        network.load_state_dict(weights | plain, strict=False)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(out / "model.safetensors", folder)
        written = json.loads((out / "config.json").read_text())["quantization_config"]
        written["meta"].pop("offload_to_disk_path")  # a folder of the machine that wrote it
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": written}, indent=1) + "\n")
    prompt = torch.randint(3, goldens.VOCAB, (goldens.PROMPT,), generator=generator).tolist()
    return network, *goldens.greedy(network, prompt)


def make(name):
    for seed in range(1, 30):
        network, tokens, smallest = make_once(name, seed)
        if smallest >= goldens.MIN_GAP and len(set(tokens[goldens.PROMPT:])) >= 8:
            goldens.write_golden(HERE / name, network, tokens, smallest)
            return seed
    raise SystemExit(f"{name}: no seed keeps the two best logits apart")


def main():
    if gptqmodel.__version__ != "7.7.0":
        raise SystemExit(f"gptqmodel is {gptqmodel.__version__}, not 7.7.0")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the package writes a log where it runs
        goldens.make_all(HERE, FIXTURES, make)


if __name__ == "__main__":
    main()
