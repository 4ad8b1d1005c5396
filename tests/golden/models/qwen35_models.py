"""The fixtures of Qwen3.5 and Qwen3-Next in GGUF, and what their tensors are in the reference.

make_model_goldens.py imports this. llama.cpp's converter puts value heads of Qwen3.5 into another order: those of one
key head are as far apart as there are key heads. Those of Qwen3-Next stay as they are, and it takes z out of their
tensor.
"""
import numpy

SIZES = {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 32, "linear_value_head_dim": 32}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
           "shared_expert_intermediate_size": 64}


def gguf_models(model, delta, types):
    """name: (config of the reference, types cycled over the matrices of each layer, type of the embedding)"""
    kinds = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
    return {
        "gguf-qwen35": (model("Qwen3_5ForCausalLM", "qwen3_5_text", **delta(**SIZES, layer_types=kinds))
                        | {"mtp_num_hidden_layers": 1}, [[types.Q8_0, types.Q5_0, types.Q4_1]] * 4, types.Q8_0),
        # As many value heads as key heads, and the layers follow from the interval.
        "gguf-qwen35moe": (
            model("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text",
                  **delta(**{**SIZES, "linear_num_key_heads": 6}, **EXPERTS, full_attention_interval=2))
            | {"num_hidden_layers": 2}, [[types.Q8_0, types.Q5_1]] * 2, types.Q8_0),
        "gguf-qwen3next": (qwen3_next(model, delta), [[types.Q8_0, types.Q5_1]] * 2, types.Q8_0),
        # As older converters wrote them: q, k, v and z of each key head in one tensor.
        "gguf-qwen3next-packed": (qwen3_next(model, delta) | {"packed": True}, [[types.Q5_0, types.Q8_0]] * 2,
                                  types.Q8_0),
    }


def qwen3_next(model, delta):
    sizes = {**SIZES, **EXPERTS, "linear_num_value_heads": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
             "num_experts": 3, "shared_expert_intermediate_size": 32}
    return model("Qwen3NextForCausalLM", "qwen3_next",
                 **delta(**sizes, norm_topk_prob=True, layer_types=["linear_attention", "full_attention"])) | {
        "num_hidden_layers": 2, "tie_word_embeddings": True}


def is_next(config):
    return config["model_type"] == "qwen3_next"


def architecture(config):
    if is_next(config):
        return "qwen3next"
    return "qwen35moe" if "num_experts" in config else "qwen35"


def recurs(config, index):
    if "layer_types" in config:
        return config["layer_types"][index] == "linear_attention"
    return (index + 1) % config["full_attention_interval"] != 0


def add_metadata(writer, config):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([2, 1, 1, 0])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    if "layer_types" in config:
        writer.add_array(f"{architecture(config)}.attention.recurrent_layers",
                         [recurs(config, index) for index in range(config["num_hidden_layers"])])
    writer.add_uint32(f"{architecture(config)}.full_attention_interval", config.get("full_attention_interval", 4))
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def add_layer(writer, index, config, kinds, floats):
    """The tensors of one layer; `kinds` is cycled over its matrices, `floats` is the type of the others."""
    hidden, prefix, width = config["hidden_size"], f"blk.{index}.", config["head_dim"]
    heads, size = config["linear_num_value_heads"], config["linear_value_head_dim"]
    keys, values = config["linear_num_key_heads"] * config["linear_key_head_dim"], heads * size
    for norm in ("attn_norm", "post_attention_norm"):
        writer.add(f"{prefix}{norm}.weight", (hidden,), floats, 1.0, 0.2)
    if recurs(config, index):
        mixed = 2 * keys + values
        matrices = [("ssm_in", (mixed + values, hidden))] if config.get("packed") else [
            ("attn_qkv", (mixed, hidden)), ("attn_gate", (values, hidden))]
        matrices += [("ssm_out", (hidden, values))]
        matrices += ([("ssm_ba", (2 * heads, hidden))] if is_next(config) else
                     [("ssm_beta", (heads, hidden)), ("ssm_alpha", (heads, hidden))])
        writer.add(f"{prefix}ssm_conv1d.weight", (mixed, config["linear_conv_kernel_dim"]), floats)
        writer.add(f"{prefix}ssm_dt.bias", (heads,), floats, 0.0, 0.1)
        writer.add(f"{prefix}ssm_a", (heads,), floats, -0.08, 0.02)
        writer.add(f"{prefix}ssm_norm.weight", (size,), floats, 1.0, 0.2)
    else:
        q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
        matrices = [("attn_q", (2 * q, hidden)), ("attn_k", (kv, hidden)), ("attn_v", (kv, hidden)),
                    ("attn_output", (hidden, q))]
        for norm in ("attn_q_norm", "attn_k_norm"):
            writer.add(f"{prefix}{norm}.weight", (width,), floats, 1.0, 0.2)
    if "num_experts" in config:
        count, inner = config["num_experts"], config["moe_intermediate_size"]
        shared = config["shared_expert_intermediate_size"]
        writer.add(f"{prefix}ffn_gate_inp.weight", (count, hidden), floats, 0.0, 6.0 / hidden ** 0.5)
        writer.add(f"{prefix}ffn_gate_inp_shexp.weight", (hidden,), floats)
        matrices += [("ffn_gate_exps", (count, inner, hidden)), ("ffn_up_exps", (count, inner, hidden)),
                     ("ffn_down_exps", (count, hidden, inner)), ("ffn_gate_shexp", (shared, hidden)),
                     ("ffn_up_shexp", (shared, hidden)), ("ffn_down_shexp", (hidden, shared))]
    else:
        inner = config["intermediate_size"]
        matrices += [("ffn_gate", (inner, hidden)), ("ffn_up", (inner, hidden)), ("ffn_down", (hidden, inner))]
    for place, (name, shape) in enumerate(matrices):
        writer.add(f"{prefix}{name}.weight", shape, kinds[place % len(kinds)])


NAMES = {"ssm_in": "linear_attn.in_proj_qkvz", "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
         "attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z",
         "ssm_ba": "linear_attn.in_proj_ba", "ssm_beta": "linear_attn.in_proj_b", "ssm_alpha": "linear_attn.in_proj_a", "ssm_out": "linear_attn.out_proj",
         "ssm_conv1d": "linear_attn.conv1d", "ssm_norm": "linear_attn.norm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
         "ffn_gate_inp_shexp": "mlp.shared_expert_gate", "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
         "ffn_up_shexp": "mlp.shared_expert.up_proj", "ffn_down_shexp": "mlp.shared_expert.down_proj"}
WHOLE_NAMES = {"ssm_dt.bias": "linear_attn.dt_bias", "ssm_a": "linear_attn.A_log",
               "ffn_down_exps.weight": "mlp.experts.down_proj"}


REORDERED = ("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha", "ssm_out", "ssm_conv1d", "ssm_dt", "ssm_a")


def grouped(value, config, size):
    """Rows of value heads, of `size` each, with those of a key head side by side."""
    groups = config["linear_num_key_heads"]
    rows = value.reshape(config["linear_num_value_heads"] // groups, groups, size, *value.shape[1:])
    return rows.swapaxes(0, 1).reshape(value.shape)


def packed_by_key_head(qkv, z, config):
    """q, k, v and z of each key head in turn."""
    groups, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
    keys = groups * size
    parts = (qkv[:keys], qkv[keys:2 * keys], qkv[2 * keys:], z)
    return numpy.concatenate([part.reshape(groups, -1, part.shape[1]) for part in parts], 1).reshape(-1, qkv.shape[1])


def in_reference_order(part, value, config):
    size, keys = config["linear_value_head_dim"], config["linear_num_key_heads"] * config["linear_key_head_dim"]
    if part in ("attn_qkv", "ssm_conv1d"):
        return numpy.concatenate([value[:2 * keys], grouped(value[2 * keys:], config, size)])
    if part == "ssm_out":
        return grouped(value.T, config, size).T
    return grouped(value, config, size if part == "attn_gate" else 1)


def hugging_face_weights(values, config):
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    result = {}
    for name, value in values.items():
        base = name.removesuffix(".weight").removesuffix(".bias").rsplit(".", 1)[-1]
        if base.endswith("norm") and base != "ssm_norm":
            value = value - 1.0  # the file has one added
        if name in whole:
            result[whole[name]] = value
            continue
        _, index, part = name.split(".", 2)
        prefix = f"model.layers.{index}."
        if is_next(config) and base == "attn_qkv":
            z = values[f"blk.{index}.attn_gate.weight"]
            result[prefix + "linear_attn.in_proj_qkvz.weight"] = packed_by_key_head(value, z, config)
            continue
        if is_next(config) and base == "attn_gate":
            continue
        if not is_next(config) and base in REORDERED:
            value = in_reference_order(base, value, config)
        if base == "ssm_conv1d":
            value = value[:, None, :]
        if base == "ssm_a":
            value = numpy.log(-value)
        if base == "ffn_gate_inp_shexp":
            value = value.reshape(1, -1)
        if base == "ffn_gate_exps":
            up = values[f"blk.{index}.ffn_up_exps.weight"]
            result[prefix + "mlp.experts.gate_up_proj"] = numpy.concatenate([value, up], 1)
        elif part in WHOLE_NAMES:
            result[prefix + WHOLE_NAMES[part]] = value
        elif base != "ffn_up_exps":
            result[f"{prefix}{NAMES[base]}.weight"] = value
    return result
