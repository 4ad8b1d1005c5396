#!/usr/bin/env python3
"""Writes the tiny quantised checkpoints of tests/golden/quantised and what they must compute.

Needs what tests/golden/models/make_model_goldens.py needs, compressed-tensors 0.20.0 and bitsandbytes 0.50.2.
Run it from anywhere:
    python3 tests/golden/quantised/make_quantised_goldens.py [name …]

Each fixture is a folder as it would be published: config.json with its quantization_config, and
model.safetensors. golden.json has the tokens and logits of the float32 reference on the dequantised weights:
compressed-tensors and bitsandbytes pack and unpack their own, the other formats are written and read back here,
bit by bit as their descriptions say. make_gptqmodel_goldens.py has the fixtures that gptqmodel writes.
"""
import json
import pathlib
import shutil
import sys

import bitsandbytes
import compressed_tensors
import numpy
import safetensors.torch
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.quant_scheme import MXFP4, NVFP4
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "models"))
import make_model_goldens as goldens  # noqa: E402
import routed_models  # noqa: E402

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0
SHAPE = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 10000.0}


def llama(**settings):
    return goldens.llama(tie_word_embeddings=True) | SHAPE | settings


def qwen3(**settings):
    return goldens.model("Qwen3ForCausalLM", "qwen3", rms_norm_eps=1e-6, attention_bias=False,
                         tie_word_embeddings=False) | SHAPE | settings


# --- FP8 ----------------------------------------------------------------------------------------

def to_e4m3(weight, scale):
    return (weight / scale).clamp(-LARGEST, LARGEST).to(E4M3)


def fp8_blocks(weight, name):
    """128 × 128, the last blocks of rows and columns cut short."""
    rows, cols = weight.shape
    grid = [-(-rows // 128), -(-cols // 128)]
    padded = torch.zeros(grid[0] * 128, grid[1] * 128)
    padded[:rows, :cols] = weight
    largest = padded.view(grid[0], 128, grid[1], 128).abs().amax(dim=(1, 3))
    scale = (largest / LARGEST).to(torch.bfloat16)
    spread = scale.float().repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :cols]
    codes = to_e4m3(weight, spread)
    return {"weight": codes, "weight_scale_inv": scale}, codes.float() * spread


def fp8_tensor(weight, name):
    scale = weight.abs().max() / LARGEST
    codes = to_e4m3(weight, scale)
    return ({"weight": codes, "weight_scale": scale.reshape(()), "input_scale": torch.tensor(0.05)},
            codes.float() * scale)


# --- compressed-tensors -------------------------------------------------------------------------

def compressed(format, bits, kind="int", group=None, symmetric=True, scale_type=torch.bfloat16):
    strategy = "group" if group else "channel"
    args = QuantizationArgs(num_bits=bits, type=kind, strategy=strategy, group_size=group,
                            symmetric=symmetric)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(format)

    def quantise(weight, name):
        grouped = weight.reshape(weight.shape[0], -1, group or weight.shape[1])
        scale, zero = calculate_qparams(grouped.amin(-1), grouped.amax(-1), args)
        scale = scale.to(scale_type).float()
        state = compressor.compress(
            {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}, scheme)
        value = compressor.decompress(dict(state), scheme)["weight"]
        state["weight_scale"] = scale.to(scale_type)
        return state, value.float()
    return quantise


def compressed_config(format, inputs=None, **weights):
    return {"quant_method": "compressed-tensors", "format": format,
            "quantization_status": "compressed", "ignore": ["lm_head", "re:.*layers.1.self_attn.v_proj"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                          "input_activations": inputs}}}


# --- Numbers of e2m1 ----------------------------------------------------------------------------

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def compressed_fp4(format, preset):
    args = preset["weights"]
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(format)

    def quantise(weight, name):
        grouped = weight.reshape(weight.shape[0], -1, args.group_size)
        state, outer = {"weight": weight}, None
        if format.startswith("nvfp4"):
            outer = generate_gparam(weight.min(), weight.max())
            state["weight_global_scale"] = outer
        scale, _ = calculate_qparams(grouped.amin(-1), grouped.amax(-1), args, outer)
        state["weight_scale"] = scale.float()
        state = compressor.compress(state, scheme)
        codes = unpack_fp4_from_uint8(state["weight_packed"], *weight.shape, dtype=torch.float32)
        scale = compressor._decompress_scale(state["weight_scale"], torch.float32)
        value = dequantize(codes, scale, args=args, dtype=torch.float32, global_scale=outer)
        coarse = compressor.decompress(dict(state), scheme)["weight"]
        assert torch.equal(coarse, value.to(coarse.dtype)), "float32 and bfloat16 of the package disagree"
        return state, value
    return quantise


def compressed_fp4_config(format, preset):
    settings = {key: json.loads(args.model_dump_json(exclude={"scale_dtype", "zp_dtype"}))
                for key, args in preset.items()}
    return compressed_config(format, settings["input_activations"], **settings["weights"])


def modelopt_nvfp4(weight, name):
    outer = weight.abs().max() / (6 * LARGEST)
    grouped = weight.reshape(weight.shape[0], -1, 16)
    scale = (grouped.abs().amax(-1) / 6 / outer).to(E4M3)
    step = (scale.float() * outer)[..., None]
    ratio = (grouped / step).abs()
    codes = (ratio[..., None] - E2M1).abs().argmin(-1)
    codes = (codes + 8 * (grouped < 0)).reshape(weight.shape[0], -1)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    sign = 1.0 - 2.0 * (codes >> 3 & 1)
    value = (E2M1[codes & 7] * sign).reshape(grouped.shape) * step
    return ({"weight": packed, "weight_scale": scale, "weight_scale_2": outer.reshape(()),
             "input_scale": torch.tensor(0.05)}, value.reshape(weight.shape))


# --- bitsandbytes -------------------------------------------------------------------------------

def bnb_four(type, nested):
    def quantise(weight, name):
        codes, state = bitsandbytes.functional.quantize_4bit(
            weight.float().contiguous(), blocksize=64, compress_statistics=nested, quant_type=type)
        value = bitsandbytes.functional.dequantize_4bit(codes, state)
        tensors = {"weight": codes}
        tensors.update({f"weight.{part}": t for part, t in state.as_dict(packed=True).items()})
        return tensors, value
    return quantise


def bnb_eight(weight, name):
    codes, scale, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.half())
    value = codes.float() * (scale.float() / 127)[:, None]
    read = bitsandbytes.functional.int8_vectorwise_dequant(codes, scale)
    assert torch.allclose(value, read, rtol=1e-6, atol=0)
    return {"weight": codes, "SCB": scale, "weight_format": torch.tensor(0, dtype=torch.uint8)}, value


def bnb_config(**settings):
    return {"quant_method": "bitsandbytes", "llm_int8_skip_modules": ["lm_head"],
            "llm_int8_threshold": 6.0, "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_quant_storage": "uint8", **settings}


# --- GPTQ ---------------------------------------------------------------------------------------------

def round_to_groups(weight, bits, group, symmetric):
    """Codes [rows, cols], scales [groups, rows] of float16, zeros [groups, rows]."""
    rows, cols = weight.shape
    group_of = torch.arange(cols) // group
    groups = int(group_of.max()) + 1
    top = 2 ** bits - 1
    scales = torch.empty(groups, rows, dtype=torch.float16)
    zeros = torch.empty(groups, rows, dtype=torch.int64)
    codes = torch.empty(rows, cols, dtype=torch.int64)
    for index in range(groups):
        part = weight[:, group_of == index]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        if symmetric:
            scales[index] = (2 * torch.maximum(-low, high) / top).half()
            zeros[index] = 2 ** (bits - 1)
        else:
            scales[index] = ((high - low) / top).half()
            zeros[index] = (-low / scales[index].float()).round().clamp(0, top).long()
        scale = scales[index].float()[:, None]
        codes[:, group_of == index] = (
            (part / scale).round().long() + zeros[index][:, None]).clamp(0, top)
    return codes, scales, zeros, group_of


def to_words(codes, bits):
    """Along the first axis: `bits` bits of each, one after another, into words of 32."""
    numbers = codes.numpy().astype(numpy.uint64)
    stream = ((numbers[:, None, :] >> numpy.arange(bits, dtype=numpy.uint64)[None, :, None]) & 1)
    stream = stream.reshape(-1, 32, numbers.shape[1])
    weights = numpy.uint64(1) << numpy.arange(32, dtype=numpy.uint64)
    words = (stream * weights[None, :, None]).sum(1).astype(numpy.uint32)
    return torch.from_numpy(words.view(numpy.int32).copy())


def from_words(words, bits):
    numbers = words.numpy().view(numpy.uint32)
    stream = (numbers[:, None, :] >> numpy.arange(32, dtype=numpy.uint32)[None, :, None]) & 1
    stream = stream.reshape(-1, bits, numbers.shape[1]).astype(numpy.int64)
    return torch.from_numpy((stream << numpy.arange(bits)[None, :, None]).sum(1))


def gptq(bits, group, symmetric=True, version=1):
    def quantise(weight, name):
        codes, scales, zeros, group_of = round_to_groups(weight, bits, group, symmetric)
        # Symmetric files of some writers hold zeros of the other version; no reader may use them.
        stored = (zeros - (1 if version == 1 and not symmetric else 0)) % 2 ** bits
        state = {"qweight": to_words(codes.T, bits), "scales": scales,
                 "qzeros": to_words(stored.T, bits).T.contiguous(), "g_idx": group_of.int()}
        read = from_words(state["qweight"], bits).T
        read_zeros = from_words(state["qzeros"].T.contiguous(), bits).T
        read_zeros = zeros if symmetric else (read_zeros + (version == 1)) % 2 ** bits
        index = state["g_idx"].long()
        value = (read - read_zeros[index].T).float() * state["scales"][index].T.float()
        return state, value
    return quantise


def gptq_config(bits, group, **settings):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True,
            "desc_act": False, **settings}


FP8 = {"quant_method": "fp8", "fmt": "e4m3"}
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
TINY = SMALL | {"hidden_size": 32}
DYNAMIC = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
# name: (config of the model, quantization_config, module → tensors and meaning)
FIXTURES = {
    "fp8-blocks": (
        qwen3(intermediate_size=160),
        FP8 | {"activation_scheme": "dynamic", "weight_block_size": [128, 128],
               "modules_to_not_convert": ["lm_head"]}, fp8_blocks),
    # As DeepSeek-V3 is published, in dense layers; blocks end within a head's keys and values.
    "fp8-blocks-latent": (
        routed_models.deepseek(
            goldens.BASE, 3, routed_models.LATENT, q_lora_rank=32,
            **{**routed_models.ROUTED, "first_k_dense_replace": 2})
        | {"hidden_size": 128, "kv_lora_rank": 160, "qk_nope_head_dim": 40, "v_head_dim": 48},
        FP8 | {"activation_scheme": "dynamic", "weight_block_size": [128, 128]}, fp8_blocks),
    "fp8-static": (
        llama(), FP8 | {"activation_scheme": "static", "ignored_layers": ["lm_head"]}, fp8_tensor),
    "compressed-fp8-channel": (
        llama(intermediate_size=150),
        compressed_config("float-quantized", DYNAMIC, num_bits=8, type="float", strategy="channel",
                          symmetric=True), compressed("float-quantized", 8, "float")),
    "compressed-w4a16-g128": (
        qwen3(), compressed_config("pack-quantized", num_bits=4, type="int", strategy="group",
                                   group_size=128, symmetric=True),
        compressed("pack-quantized", 4, group=128)),
    "compressed-w4a16-g32-asymmetric": (
        llama(), compressed_config("pack-quantized", num_bits=4, type="int", strategy="group",
                                   group_size=32, symmetric=False),
        compressed("pack-quantized", 4, group=32, symmetric=False)),
    "compressed-w8a16-channel": (
        llama(), compressed_config("pack-quantized", num_bits=8, type="int", strategy="channel",
                                   symmetric=True), compressed("pack-quantized", 8)),
    "compressed-w8a8-int8": (
        llama(), compressed_config("int-quantized", DYNAMIC | {"type": "int"}, num_bits=8, type="int",
                                   strategy="channel", symmetric=True),
        compressed("int-quantized", 8, scale_type=torch.float32)),
    "gptq-4bit-g128-v1": (
        llama(), gptq_config(4, 128, sym=False, checkpoint_format="gptq"),
        gptq(4, 128, symmetric=False)),
    "gptq-4bit-g64-sym": (qwen3(), gptq_config(4, 64), gptq(4, 64)),
    "gptq-8bit-v2": (
        llama(**SMALL), gptq_config(8, -1, sym=False, checkpoint_format="gptq_v2"),
        gptq(8, 1 << 20, symmetric=False, version=2)),
    "gptq-2bit": (llama(), gptq_config(2, 32), gptq(2, 32)),
    "compressed-nvfp4": (llama(**TINY), compressed_fp4_config("nvfp4-pack-quantized", NVFP4),
                         compressed_fp4("nvfp4-pack-quantized", NVFP4)),
    # Tensors of each expert.
    "compressed-mxfp4-experts": (
        goldens.experts("Qwen3MoeForCausalLM", "qwen3_moe", num_experts=3, num_experts_per_tok=2,
                        moe_intermediate_size=64, norm_topk_prob=True, tie_word_embeddings=True)
        | SHAPE | TINY | {"num_hidden_layers": 1},
        compressed_fp4_config("mxfp4-pack-quantized", MXFP4),
        compressed_fp4("mxfp4-pack-quantized", MXFP4)),
    # Fused projections, and a configuration in ModelOpt's own file.
    "modelopt-nvfp4": (
        goldens.model("Phi3ForCausalLM", "phi3", rms_norm_eps=1e-5, tie_word_embeddings=True,
                      pad_token_id=0) | SHAPE | TINY,
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
         "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}, modelopt_nvfp4),
    # Rows of 96 inputs begin within a block of 64.
    "bnb-nf4-double": (
        llama(**SMALL | {"intermediate_size": 96, "num_hidden_layers": 1}),
        bnb_config(load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type="nf4",
                   bnb_4bit_use_double_quant=True), bnb_four("nf4", True)),
    "bnb-fp4": (
        llama(**SMALL, num_hidden_layers=1),
        bnb_config(load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type="fp4",
                   bnb_4bit_use_double_quant=False), bnb_four("fp4", False)),
    "bnb-int8": (llama(**TINY),
                 bnb_config(load_in_4bit=False, load_in_8bit=True), bnb_eight),
}


def is_quantised(name):
    # One projection beside quantised ones is left alone, as ignore lists may say.
    return "layers." in name and "proj" in name and name.endswith(".weight")


def published(network):
    """The parameters by their names in files; parts of one, as each expert's, are views of it."""
    for name, parameter in network.named_parameters():
        yield from goldens.published(name, parameter.detach(), network.config.model_type).items()


def make(name):
    config, quantisation, quantise = FIXTURES[name]
    folder = HERE / name
    skipped = "layers.1.self_attn.v_proj.weight"
    for seed in range(1, 100):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        parsed = transformers.AutoConfig.from_pretrained(folder)
        network = transformers.AutoModelForCausalLM.from_config(parsed, attn_implementation="eager")
        generator = torch.Generator().manual_seed(seed)
        goldens.randomise(network, generator, torch.bfloat16)
        tensors = {}
        with torch.no_grad():
            for key, parameter in published(network):
                left = skipped in key and quantisation["quant_method"] == "compressed-tensors"
                if not is_quantised(key) or left:
                    tensors[key] = parameter.to(torch.bfloat16).contiguous()
                    continue
                module = key[:-len(".weight")]
                state, value = quantise(parameter.detach().clone(), module)
                parameter.copy_(value)
                tensors.update({f"{module}.{part}": t.contiguous() for part, t in state.items()})
        network = network.float().eval()
        gaps = goldens.RouterGaps(network)
        prompt = torch.randint(3, goldens.VOCAB, (goldens.PROMPT,), generator=generator).tolist()
        tokens, smallest = goldens.greedy(network, prompt)
        if smallest < goldens.MIN_GAP or gaps.smallest < goldens.MIN_ROUTER_GAP:
            continue
        if len(set(tokens[goldens.PROMPT:])) < 8:
            continue
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        settings = {**config, "quantization_config": quantisation}
        if quantisation["quant_method"] == "modelopt":
            inner = {key: value for key, value in quantisation.items() if key != "quant_method"}
            own = {"producer": {"name": "modelopt"}, "quantization": inner}
            (folder / "hf_quant_config.json").write_text(json.dumps(own, indent=1) + "\n")
            settings = config
        (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
        goldens.write_golden(folder, network, tokens, smallest)
        return seed
    raise SystemExit(f"{name}: no seed keeps the two best logits apart")


def main():
    if compressed_tensors.__version__ != "0.20.0":
        raise SystemExit(f"compressed-tensors is {compressed_tensors.__version__}, not 0.20.0")
    if bitsandbytes.__version__ != "0.50.2":
        raise SystemExit(f"bitsandbytes is {bitsandbytes.__version__}, not 0.50.2")
    goldens.make_all(HERE, FIXTURES, make)


if __name__ == "__main__":
    main()
