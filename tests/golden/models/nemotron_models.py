"""The fixtures of Nemotron-H, whose layers are one block each, and how published files call its tensors.

make_model_goldens.py imports this.
"""
import numpy

import recurrent_models

# What the reference adds to small steps before it has a state, and no published code does, is out of reach.
LEAST_STEP = 1e-30
MAMBA = {"mamba_num_heads": 4, "mamba_head_dim": 24, "ssm_state_size": 20, "n_groups": 2, "conv_kernel": 4,
         "chunk_size": 16, "mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "time_step_min": LEAST_STEP,
         "time_step_max": 0.1, "time_step_limit": [0.0, float("inf")], "layer_norm_epsilon": 1e-5}


def nemotron(base, **settings):
    return {**base, "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 24, "tie_word_embeddings": False, "pad_token_id": 0, **MAMBA,
            **settings}


def checkpoints(base, dtypes):
    """name: (config.json, element type of the file, shards)"""
    short, full = dtypes
    return {
        # As published first: a letter for each layer, and Infinity.
        "nemotron-h": (nemotron(base, hybrid_override_pattern="M-M*-M-", num_hidden_layers=7, mlp_bias=True,
                                use_conv_bias=True), short, 1),
        "nemotron-h-tied": (nemotron(base, hybrid_override_pattern="*M-", num_hidden_layers=3, use_conv_bias=False,
                                     tie_word_embeddings=True, mamba_num_heads=6, n_groups=1), full, 1),
        # A list of layers, groups of experts, a bias for the choice and a shared expert.
        "nemotron-h-moe": (
            {**nemotron(base, layers_block_type=["mamba", "moe", "attention", "moe", "mamba", "mlp"],
                        n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, n_shared_experts=1,
                        moe_shared_expert_intermediate_size=40, n_group=3, topk_group=2, norm_topk_prob=True,
                        routed_scaling_factor=2.5), "num_hidden_layers": 6}, short, 2),
    }


def published(name, tensor):
    """A parameter under the names that files have: a tensor for each expert."""
    name = name.replace("model.", "backbone.", 1) if name.startswith("model.") else name
    if not name.endswith((".experts.up_proj", ".experts.down_proj")):
        return {name: tensor}
    prefix, part = name.rsplit(".", 1)
    return {f"{prefix}.{expert}.{part}.weight": own for expert, own in enumerate(tensor)}


# --- GGUF ---------------------------------------------------------------------------------------

def gguf_models(base, types):
    """name: (config of the reference, types cycled over the matrices of each layer, type of the embedding)"""
    sizes = {"head_dim": 32, "mamba_num_heads": 4, "mamba_head_dim": 32, "time_step_limit": [0.0, 1e30]}
    return {
        "gguf-nemotron-h": (nemotron(base, layers_block_type=["mamba", "mlp", "attention", "mamba", "mlp"], **sizes)
                            | {"num_hidden_layers": 5}, [[types.Q8_0, types.Q5_0, types.Q4_1]] * 5, types.Q8_0),
        "gguf-nemotron-h-moe": (
            nemotron(base, layers_block_type=["mamba", "moe", "attention", "moe"], n_routed_experts=6,
                     num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=1,
                     moe_shared_expert_intermediate_size=64, n_group=1, topk_group=1, norm_topk_prob=True,
                     routed_scaling_factor=2.5, tie_word_embeddings=False, **sizes)
            | {"num_hidden_layers": 4, "num_nextn_predict_layers": 1}, [[types.Q8_0, types.Q5_1]] * 4, types.Q8_0),
    }


def architecture(config):
    return "nemotron_h_moe" if "n_routed_experts" in config else "nemotron_h"


def state_sizes(config):
    heads = config["mamba_num_heads"]
    return config["conv_kernel"], config["ssm_state_size"], config["n_groups"], heads * config["mamba_head_dim"], heads


def add_metadata(writer, config):
    """As convert_hf_to_gguf.py writes them: zeros where a layer has no heads or no mlp."""
    kinds = config["layers_block_type"] + ["further"] * config.get("num_nextn_predict_layers", 0)
    experts = "n_routed_experts" in config
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(len(kinds))
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([config["num_key_value_heads"] if kind in ("attention", "further") else 0
                              for kind in kinds])
    width = config["moe_intermediate_size" if experts else "intermediate_size"]
    writer.add_feed_forward_length([width if kind in ("mlp", "moe", "further") else 0 for kind in kinds])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    if experts:  # it is there under both names where the checkpoint has both
        writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    recurrent_models.add_state_sizes(writer, *state_sizes(config))
    if not experts:
        return
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])


def add_layer(writer, index, config, kinds, floats):
    """The tensors of one layer; `kinds` is cycled over its matrices, `floats` is the type of the others."""
    hidden, kind = config["hidden_size"], config["layers_block_type"][index]
    prefix = f"blk.{index}."
    writer.add(prefix + "attn_norm.weight", (hidden,), floats, 1.0, 0.2)
    matrices = []
    if kind == "mamba":
        matrices = recurrent_models.add_mamba(writer, prefix, hidden, state_sizes(config), floats)
    elif kind == "attention":
        width = config["head_dim"]
        q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
        matrices = [("attn_q", (q, hidden)), ("attn_k", (kv, hidden)), ("attn_v", (kv, hidden)),
                    ("attn_output", (hidden, q))]
    elif kind == "mlp":
        matrices = [("ffn_up", (config["intermediate_size"], hidden)),
                    ("ffn_down", (hidden, config["intermediate_size"]))]
    else:
        count, width = config["n_routed_experts"], config["moe_intermediate_size"]
        shared = config["moe_shared_expert_intermediate_size"]
        writer.add(prefix + "ffn_gate_inp.weight", (count, hidden), floats, 0.0, 6.0 / hidden ** 0.5)
        writer.add(prefix + "exp_probs_b.bias", (count,), floats, 0.0, 0.2)
        matrices = [("ffn_up_exps", (count, width, hidden)), ("ffn_down_exps", (count, hidden, width)),
                    ("ffn_up_shexp", (shared, hidden)), ("ffn_down_shexp", (hidden, shared))]
    for place, (name, shape) in enumerate(matrices):
        writer.add(f"{prefix}{name}.weight", shape, kinds[place % len(kinds)])


NAMES = {"attn_norm.weight": "norm.weight", "ssm_in": "in_proj", "ssm_out": "out_proj", "ssm_conv1d": "conv1d",
         "ssm_dt.bias": "dt_bias", "ssm_a": "A_log", "ssm_d": "D", "ssm_norm": "norm", "attn_q": "q_proj",
         "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj", "ffn_up": "up_proj",
         "ffn_down": "down_proj", "ffn_gate_inp": "gate", "exp_probs_b.bias": "gate.e_score_correction_bias",
         "ffn_up_exps.weight": "experts.up_proj", "ffn_down_exps.weight": "experts.down_proj",
         "ffn_up_shexp": "shared_experts.up_proj", "ffn_down_shexp": "shared_experts.down_proj"}


def hugging_face_weights(values, config):
    further = f"blk.{config['num_hidden_layers']}."
    return dict(hugging_face_weight(name, value) for name, value in values.items() if not name.startswith(further))


def hugging_face_weight(name, value):
    """A tensor of a GGUF file under the name that the reference has for it, and its value there."""
    whole = {"token_embd.weight": "model.embeddings.weight", "output_norm.weight": "model.norm_f.weight",
             "output.weight": "lm_head.weight"}
    if name in whole:
        return whole[name], value
    _, index, part = name.split(".", 2)
    if part == "attn_norm.weight":
        return f"model.layers.{index}.norm.weight", value
    if part == "ssm_conv1d.weight":
        value = value[:, None, :]
    if part == "ssm_a":
        value = numpy.log(-value)
    if part in ("ssm_a", "ssm_d", "ssm_norm.weight"):
        value = value.reshape(-1)
    if part in NAMES:
        return f"model.layers.{index}.mixer.{NAMES[part]}", value
    base, suffix = part.rsplit(".", 1)
    return f"model.layers.{index}.mixer.{NAMES[base]}.{suffix}", value
