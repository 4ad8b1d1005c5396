"""A model of random weights over a real tokenizer: it writes any token with nearly the same probability, so that only what is
enforced holds. Standard library only."""
import json
import pathlib
import random
import shutil
import struct

TOKENIZERS = pathlib.Path(__file__).resolve().parents[3] / ".cache" / "npm-tokenizers"
ENDS = {"qwen3": [151645], "gptoss": [200002, 200012], "llama3": [128009], "deepseek_v3": [1], "gemma3": [106]}
HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 64, 2, 1, 128, 1
# The high byte of a bfloat16: its sign, and an exponent that makes it about 0.02.
SIGNS = bytes(0x3C if value % 2 else 0xBC for value in range(256))
ONE = b"\x80\x3f"


def weights(draw, count):
    low, high = draw.randbytes(count), draw.randbytes(count).translate(SIGNS)
    both = bytearray(2 * count)
    both[0::2], both[1::2] = low, high
    return bytes(both)


def make(tokenizer, folder, seed=1):
    """Writes the model into `folder` and returns it."""
    source, folder = TOKENIZERS / tokenizer, pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder)
    known = json.loads((source / "tokenizer.json").read_text())
    ids = [*known["model"]["vocab"].values(), *(token["id"] for token in known["added_tokens"])]
    vocab = (max(ids) + 64) // 64 * 64
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "vocab_size": vocab,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "eos_token_id": ENDS[tokenizer]}))
    rows = HIDDEN // HEADS * KV_HEADS
    shapes = {"model.embed_tokens.weight": [vocab, HIDDEN], "model.norm.weight": [HIDDEN]}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        shapes |= {f"{name}self_attn.q_proj.weight": [HIDDEN, HIDDEN], f"{name}self_attn.k_proj.weight": [rows, HIDDEN],
                   f"{name}self_attn.v_proj.weight": [rows, HIDDEN], f"{name}self_attn.o_proj.weight": [HIDDEN, HIDDEN],
                   f"{name}mlp.gate_proj.weight": [INNER, HIDDEN], f"{name}mlp.up_proj.weight": [INNER, HIDDEN],
                   f"{name}mlp.down_proj.weight": [HIDDEN, INNER], f"{name}input_layernorm.weight": [HIDDEN],
                   f"{name}post_attention_layernorm.weight": [HIDDEN]}
    draw, header, data, at = random.Random(seed), {}, [], 0
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data.append(ONE * count if len(shape) == 1 else weights(draw, count))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * count]}
        at += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(data)
    return folder
