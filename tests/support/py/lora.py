"""A LoRA adapter of random weights for any folder of safetensors, as `peft` saves it. Standard library only."""
import json
import pathlib
import random
import struct

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def shapes_of(folder):
    """Each tensor's shape by its name."""
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with open(file, "rb") as opened:
            header = json.loads(opened.read(struct.unpack("<Q", opened.read(8))[0]))
        found |= {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
    return found


def make(base, folder, seed, rank=8, alpha=16, size=0.08, modules=MODULES, **config):
    """Writes an adapter of `base` into `folder` and returns it; `config` goes into adapter_config.json."""
    folder, draw = pathlib.Path(folder), random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, shape in shapes_of(base).items():
        module = name.removesuffix(".weight")
        if module.rsplit(".", 1)[-1] not in modules:
            continue
        for side, sides in (("lora_A", [rank, shape[1]]), ("lora_B", [shape[0], rank])):
            values = [draw.uniform(-size, size) for _ in range(sides[0] * sides[1])]
            tensors[f"base_model.model.{module}.{side}.weight"] = (sides, struct.pack(f"<{len(values)}f", *values))
    header, data, at = {}, [], 0
    for name, (shape, blob) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(blob)]}
        data.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(data)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "demo", "r": rank, "lora_alpha": alpha,
        "target_modules": list(modules), "bias": "none", "lora_dropout": 0.0, "inference_mode": True,
        "fan_in_fan_out": False} | config))
    return folder
