"""The fixtures of Gemma 4 in GGUF, and what their tensors are in the reference. make_model_goldens.py imports this."""
import numpy


def gguf_models(gemma4, types):
    """name: (config of the reference, types cycled over the matrices of each layer, type of the embedding)"""
    vocabulary = {"vocab_size_per_layer_input": 256}
    heads = {"num_attention_heads": 4, "head_dim": 16, "global_head_dim": 32}
    return {
        # Full layers have wider and fewer heads, and no projection of values.
        "gguf-gemma4": (
            gemma4(num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
                   hidden_size_per_layer_input=0, final_logit_softcapping=30.0) | heads,
            [[types.Q8_0, types.Q5_0]] * 4, types.Q8_0),
        # Inputs for each layer; the last two read the keys of others and have a wide mlp.
        "gguf-gemma4-e": (
            gemma4(num_key_value_heads=1, hidden_size_per_layer_input=32, num_kv_shared_layers=2,
                   use_double_wide_mlp=True, layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                                          "sliding_attention", "full_attention"], **vocabulary)
            | {"num_hidden_layers": 5, **heads}, [[types.Q8_0, types.Q5_0]] * 5, types.Q8_0),
        # Experts beside the mlp of every layer.
        "gguf-gemma4-moe": (
            gemma4(num_key_value_heads=1, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=5,
                   top_k_experts=2, moe_intermediate_size=32, layer_types=["sliding_attention", "full_attention"])
            | {"num_hidden_layers": 2, **heads}, [[types.Q8_0, types.Q5_1]] * 2, types.Q8_0),
    }


def architecture(_config):
    return "gemma4"


def is_full(config, index):
    return config["layer_types"][index] == "full_attention"


def is_shared(config, index):
    return index >= config["num_hidden_layers"] - config.get("num_kv_shared_layers", 0)


def kv_heads(config, index):
    many = config["num_key_value_heads"]
    return config.get("num_global_key_value_heads", many) if is_full(config, index) else many


def width(config, index):
    wide = config.get("use_double_wide_mlp") and is_shared(config, index)
    return config["intermediate_size"] * (2 if wide else 1)


def add_metadata(writer, config):
    layers, name = range(config["num_hidden_layers"]), "gemma4"
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(len(layers))
    writer.add_feed_forward_length([width(config, index) for index in layers])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([kv_heads(config, index) for index in layers])
    writer.add_key_length(config["global_head_dim"])
    writer.add_value_length(config["global_head_dim"])
    writer.add_uint32(f"{name}.attention.key_length_swa", config["head_dim"])
    writer.add_uint32(f"{name}.attention.value_length_swa", config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.add_float32(f"{name}.rope.freq_base_swa", config["rope_parameters"]["sliding_attention"]["rope_theta"])
    writer.add_rope_dimension_count(config["global_head_dim"])
    writer.add_uint32(f"{name}.rope.dimension_count_swa", config["head_dim"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_array(f"{name}.attention.sliding_window_pattern", [not is_full(config, index) for index in layers])
    writer.add_uint32(f"{name}.attention.shared_kv_layers", config.get("num_kv_shared_layers", 0))
    writer.add_uint32(f"{name}.embedding_length_per_layer_input", config["hidden_size_per_layer_input"])
    if "final_logit_softcapping" in config:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    half = config["global_head_dim"] // 2
    turning = int(half * config["rope_parameters"]["full_attention"]["partial_rotary_factor"])
    writer.add_tensor("rope_freqs.weight", numpy.array([1.0] * turning + [1e30] * (half - turning), numpy.float32))


def add_whole(writer, config, kind, floats):
    """What belongs to no layer, beside embedding, final norm and head."""
    own = config["hidden_size_per_layer_input"]
    if own == 0:
        return
    all_layers = own * config["num_hidden_layers"]
    writer.add("per_layer_token_embd.weight", (config["vocab_size"], all_layers), kind, 0.0, 0.08)
    writer.add("per_layer_model_proj.weight", (all_layers, config["hidden_size"]), kind)
    writer.add("per_layer_proj_norm.weight", (own,), floats, 1.0, 0.2)


def add_layer(writer, index, config, kinds, floats):
    """The tensors of one layer; `kinds` is cycled over its matrices, `floats` is the type of the others."""
    hidden, prefix, inner = config["hidden_size"], f"blk.{index}.", width(config, index)
    head = config["global_head_dim" if is_full(config, index) else "head_dim"]
    q, kv = config["num_attention_heads"] * head, kv_heads(config, index) * head
    norms = [("attn_norm", hidden), ("post_attention_norm", hidden), ("ffn_norm", hidden), ("post_ffw_norm", hidden),
             ("attn_q_norm", head)]
    matrices = [("attn_q", (q, hidden)), ("attn_output", (hidden, q)), ("ffn_gate", (inner, hidden)),
                ("ffn_up", (inner, hidden)), ("ffn_down", (hidden, inner))]
    if not is_shared(config, index):
        norms += [("attn_k_norm", head)]
        matrices += [("attn_k", (kv, hidden))]
        if not (config.get("attention_k_eq_v") and is_full(config, index)):
            matrices += [("attn_v", (kv, hidden))]
    if config["hidden_size_per_layer_input"] > 0:
        own = config["hidden_size_per_layer_input"]
        norms += [("post_norm", hidden)]
        matrices += [("inp_gate", (own, hidden)), ("proj", (hidden, own))]
    if "num_experts" in config:
        count, small = config["num_experts"], config["moe_intermediate_size"]
        norms += [("post_ffw_norm_1", hidden), ("pre_ffw_norm_2", hidden), ("post_ffw_norm_2", hidden)]
        matrices += [("ffn_gate_up_exps", (count, 2 * small, hidden)), ("ffn_down_exps", (count, hidden, small))]
        writer.add(f"{prefix}ffn_gate_inp.weight", (count, hidden), floats, 0.0, 6.0 / hidden ** 0.5)
        writer.add(f"{prefix}ffn_gate_inp.scale", (hidden,), floats, 1.0, 0.2)
        writer.add(f"{prefix}ffn_down_exps.scale", (count,), floats, 1.0, 0.2)
    for name, length in norms:
        writer.add(f"{prefix}{name}.weight", (length,), floats, 1.0, 0.2)
    writer.add(f"{prefix}layer_output_scale.weight", (1,), floats, 1.0, 0.3)
    for place, (name, shape) in enumerate(matrices):
        writer.add(f"{prefix}{name}.weight", shape, kinds[place % len(kinds)])


NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "post_attention_norm": "post_attention_layernorm",
         "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
         "ffn_gate_inp": "router.proj", "post_ffw_norm_1": "post_feedforward_layernorm_1",
         "pre_ffw_norm_2": "pre_feedforward_layernorm_2", "post_ffw_norm_2": "post_feedforward_layernorm_2"}
WHOLE_NAMES = {"layer_output_scale.weight": "layer_scalar", "ffn_gate_inp.scale": "router.scale",
               "ffn_down_exps.scale": "router.per_expert_scale", "ffn_gate_up_exps.weight": "experts.gate_up_proj",
               "ffn_down_exps.weight": "experts.down_proj"}


def hugging_face_weights(values, _config):
    whole = {"token_embd": "embed_tokens", "output_norm": "norm", "per_layer_token_embd": "embed_tokens_per_layer",
             "per_layer_model_proj": "per_layer_model_projection", "per_layer_proj_norm": "per_layer_projection_norm"}
    result = {}
    for name, value in values.items():
        if not name.startswith("blk."):
            result[f"model.{whole[name.removesuffix('.weight')]}.weight"] = value
            continue
        _, index, part = name.split(".", 2)
        own = WHOLE_NAMES.get(part) or f"{NAMES[part.removesuffix('.weight')]}.weight"
        result[f"model.layers.{index}.{own}"] = value
    return result
