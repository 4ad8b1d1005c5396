#!/usr/bin/env python3
"""Writes rounded.json: how far rounded activations move the logits of some fixtures, in the reference implementation.

Needs torch (2.15), transformers (5.23), safetensors and compressed-tensors (0.20.0), and the fixtures that
make_quantised_goldens.py writes. Each fixture's float32 model of dequantised weights runs twice: as it is, and with the
inputs of every quantised module rounded and multiplied back, as its configuration asks. compressed-tensors rounds those of
its own fixtures; for the others this is DeepSeek's act_quant (max / 448 for each 128 inputs), and x / input_scale.
"""
import json
import pathlib
import sys

import compressed_tensors
import numpy as np
import safetensors.torch
import torch
import transformers
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "kernels" / "fixtures"))
from make_grid_digests import mix  # noqa: E402

FIXTURES = ["compressed-w8a8-int8", "compressed-fp8-channel", "fp8-blocks", "fp8-static"]
SEQUENCES, LENGTH, VOCAB = 3, 200, 256
KEPT = [(0, 40), (0, 199), (1, 3), (1, 120), (2, 77), (2, 160)]  # whose logits are kept
E4M3 = torch.float8_e4m3fn


def tokens():
    return torch.from_numpy((mix(SEQUENCES * LENGTH) % np.uint64(VOCAB)).astype(np.int64)).view(SEQUENCES, LENGTH)


def cast(x, scale):
    return (x / scale).clamp(-448, 448).to(E4M3).float() * scale


def by_groups(x):
    parts = []
    for part in x.split(128, dim=-1):
        scale = part.abs().amax(-1, keepdim=True) / 448
        parts.append(cast(part, torch.where(scale == 0, 1.0, scale)))
    return torch.cat(parts, -1)


def by_token(settings):
    args = QuantizationArgs(**settings)

    def rounded(x):
        scales, zeros = compute_dynamic_scales_and_zp(x, args, None)
        return fake_quantize(x, scales, zeros, args)
    return rounded


def dequantised(tensors, module):
    weight = tensors[f"{module}.weight"].float()
    if f"{module}.weight_scale_inv" in tensors:
        scale = tensors[f"{module}.weight_scale_inv"].float()
        scale = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:weight.shape[0], :weight.shape[1]]
    elif f"{module}.weight_scale" in tensors:
        scale = tensors[f"{module}.weight_scale"].float()
    else:
        return None
    return weight * scale


def logits_of(name, rounding):
    folder = HERE / name
    config = json.loads((folder / "config.json").read_text())
    asked = config.pop("quantization_config")
    model_type = config.pop("model_type")
    parsed = transformers.AutoConfig.for_model(model_type, **config)
    network = transformers.AutoModelForCausalLM.from_config(parsed, attn_implementation="eager").float().eval()
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            module = key[:-len(".weight")]
            value = dequantised(tensors, module)
            parameter.copy_(tensors[key].float() if value is None else value)
            if value is None or not rounding:
                continue
            if asked["quant_method"] == "compressed-tensors":
                rounded = by_token(asked["config_groups"]["group_0"]["input_activations"])
            elif asked["activation_scheme"] == "static":
                scale = tensors[f"{module}.input_scale"].float()
                rounded = (lambda scale: lambda x: cast(x, scale))(scale)
            else:
                rounded = by_groups
            network.get_submodule(module).register_forward_pre_hook(
                (lambda rounded: lambda _, inputs: (rounded(inputs[0]),))(rounded))
        return network(tokens()).logits


def main():
    if compressed_tensors.__version__ != "0.20.0":
        raise SystemExit(f"compressed-tensors is {compressed_tensors.__version__}, not 0.20.0")
    torch.set_num_threads(1)
    found = {}
    for name in FIXTURES:
        plain, rounded = logits_of(name, False), logits_of(name, True)
        errors = (rounded - plain).norm(dim=-1) / plain.norm(dim=-1)
        quarters = [float(q) for q in torch.quantile(errors.flatten(), torch.tensor([0.25, 0.5, 0.75]))]
        rows = [{"sequence": s, "position": p, "logits": [float(f"{v:.5g}") for v in rounded[s, p].tolist()]}
                for s, p in KEPT]
        found[name] = {"error_quarters": quarters, "rows": rows}
        print(name, quarters, flush=True)
    text = {"versions": {"torch": torch.__version__, "transformers": transformers.__version__,
                         "compressed-tensors": compressed_tensors.__version__},
            "sequences": SEQUENCES, "length": LENGTH, "vocab": VOCAB, "fixtures": found}
    (HERE / "rounded.json").write_text(json.dumps(text, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
