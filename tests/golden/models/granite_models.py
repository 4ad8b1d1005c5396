"""The fixtures of Granite 4 H in GGUF, and how the reference calls their tensors.

make_model_goldens.py imports this. llama.cpp's converter writes no KV heads for layers of Mamba-2, and a switch for
positions that turn q and k.
"""
import numpy

import recurrent_models

MAMBA = {"mamba_n_heads": 4, "mamba_expand": 2, "mamba_d_state": 32, "mamba_d_conv": 4, "head_dim": 16,
         "position_embedding_type": "nope", "tie_word_embeddings": True}


def gguf_models(granite, types):
    """name: (config of the reference, types cycled over the matrices of each layer, type of the embedding)"""
    def hybrid(layers, **settings):
        return granite(num_attention_heads=4, num_key_value_heads=2, **{**MAMBA, **settings}) | {
            "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
            "num_hidden_layers": len(layers), "layer_types": layers, "intermediate_size": 32}
    return {
        "gguf-granite-hybrid": (hybrid(["mamba", "attention"], num_local_experts=4, num_experts_per_tok=2,
                                       shared_intermediate_size=64, mamba_n_groups=1),
                                [[types.Q8_0, types.Q5_1]] * 2, types.Q8_0),
        "gguf-granite-hybrid-dense": (hybrid(["attention", "mamba", "mamba"], num_local_experts=0,
                                             shared_intermediate_size=64, mamba_n_groups=2, attention_bias=False),
                                      [[types.Q8_0, types.Q5_0, types.Q4_1]] * 3, types.Q8_0),
    }


def architecture(_):
    return "granitehybrid"


def state_sizes(config):
    return (config["mamba_d_conv"], config["mamba_d_state"], config["mamba_n_groups"],
            config["mamba_expand"] * config["hidden_size"], config["mamba_n_heads"])


def add_metadata(writer, config):
    writer.add_context_length(2 ** 20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([config["num_key_value_heads"] if kind == "attention" else 0
                              for kind in config["layer_types"]])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_embedding_scale(config["embedding_multiplier"])
    writer.add_residual_scale(config["residual_multiplier"])
    writer.add_attention_scale(config["attention_multiplier"])
    writer.add_logit_scale(config["logits_scaling"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_scaling_finetuned(False)
    recurrent_models.add_state_sizes(writer, *state_sizes(config))
    writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    writer.add_expert_count(config["num_local_experts"])
    if config["num_local_experts"] > 0:
        writer.add_expert_used_count(config["num_experts_per_tok"])


def add_layer(writer, index, config, kinds, floats):
    """The tensors of one layer; `kinds` is cycled over its matrices, `floats` is the type of the others."""
    hidden, prefix = config["hidden_size"], f"blk.{index}."
    for norm in ("attn_norm", "ffn_norm"):
        writer.add(f"{prefix}{norm}.weight", (hidden,), floats, 1.0, 0.2)
    if config["layer_types"][index] == "mamba":
        matrices = recurrent_models.add_mamba(writer, prefix, hidden, state_sizes(config), floats)
    else:
        width = hidden // config["num_attention_heads"]
        kv = config["num_key_value_heads"] * width
        matrices = [("attn_q", (hidden, hidden)), ("attn_k", (kv, hidden)), ("attn_v", (kv, hidden)),
                    ("attn_output", (hidden, hidden))]
    shared = config["shared_intermediate_size"]
    end = "" if config["num_local_experts"] == 0 else "_shexp"
    matrices += [(f"ffn_gate{end}", (shared, hidden)), (f"ffn_up{end}", (shared, hidden)),
                 (f"ffn_down{end}", (hidden, shared))]
    if config["num_local_experts"] > 0:
        count, width = config["num_local_experts"], config["intermediate_size"]
        writer.add(prefix + "ffn_gate_inp.weight", (count, hidden), floats, 0.0, 6.0 / hidden ** 0.5)
        matrices += [("ffn_gate_exps", (count, width, hidden)), ("ffn_up_exps", (count, width, hidden)),
                     ("ffn_down_exps", (count, hidden, width))]
    for place, (name, shape) in enumerate(matrices):
        writer.add(f"{prefix}{name}.weight", shape, kinds[place % len(kinds)])


NAMES = {"attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
         "attn_q.weight": "self_attn.q_proj.weight", "attn_k.weight": "self_attn.k_proj.weight",
         "attn_v.weight": "self_attn.v_proj.weight", "attn_output.weight": "self_attn.o_proj.weight",
         "ssm_in.weight": "mamba.in_proj.weight", "ssm_out.weight": "mamba.out_proj.weight",
         "ssm_conv1d.weight": "mamba.conv1d.weight", "ssm_conv1d.bias": "mamba.conv1d.bias",
         "ssm_dt.bias": "mamba.dt_bias", "ssm_a": "mamba.A_log", "ssm_d": "mamba.D", "ssm_norm.weight": "mamba.norm.weight",
         "ffn_down.weight": "shared_mlp.output_linear.weight", "ffn_down_shexp.weight": "shared_mlp.output_linear.weight",
         "ffn_gate_inp.weight": "block_sparse_moe.router.weight",
         "ffn_down_exps.weight": "block_sparse_moe.experts.down_proj"}
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
         "output.weight": "lm_head.weight"}
# Gate and up are one tensor in the reference.
PAIRS = {"ffn_gate": "shared_mlp.input_linear.weight", "ffn_gate_shexp": "shared_mlp.input_linear.weight",
         "ffn_gate_exps": "block_sparse_moe.experts.gate_up_proj"}


def hugging_face_weights(values, _):
    result = {}
    for name, value in values.items():
        if name in WHOLE:
            result[WHOLE[name]] = value
            continue
        _, index, part = name.split(".", 2)
        prefix, base = f"model.layers.{index}.", part.removesuffix(".weight")
        if base in PAIRS:
            up = values[name.replace("ffn_gate", "ffn_up")]
            result[prefix + PAIRS[base]] = numpy.concatenate([value, up], value.ndim - 2)
        elif part == "ssm_conv1d.weight":
            result[prefix + NAMES[part]] = value[:, None, :]
        elif part == "ssm_a":
            result[prefix + NAMES[part]] = numpy.log(-value.reshape(-1))
        elif part in NAMES:
            result[prefix + NAMES[part]] = value.reshape(-1) if part in ("ssm_d", "ssm_norm.weight") else value
        else:
            assert base.startswith("ffn_up"), name
    return result
