"""The fixtures of Nemotron-H, whose layers are one block each, and how published files call its tensors.

make_model_goldens.py imports this.
"""

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
