"""The fixtures of DeepSeek's routing and of what shares it, and how their tensors are called in GGUF.

make_model_goldens.py imports this: its own tables stay those of the families that need none of it.
"""
import gguf
import numpy

TYPES = gguf.GGMLQuantizationType

# Groups, a bias for the choice and two shared experts, after a layer without any.
ROUTED = {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 2,
          "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1, "norm_topk_prob": True,
          "routed_scaling_factor": 2.5}
# What GGUF's blocks of 32 demand.
ROUTED_IN_BLOCKS = {**ROUTED, "moe_intermediate_size": 32}


def glm4_moe(base, **settings):
    return {**base, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 32, "attention_bias": True, "pad_token_id": 0,
            "tie_word_embeddings": False, **settings}


LATENT = {"num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 40, "qk_nope_head_dim": 24,
          "qk_rope_head_dim": 16, "v_head_dim": 20, "pad_token_id": 0, "tie_word_embeddings": False,
          "rope_theta": 10000.0, "rms_norm_eps": 1e-5}
LATENT_IN_BLOCKS = {**LATENT, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "v_head_dim": 32}
V2 = {"n_group": None, "topk_group": None, "topk_method": "greedy", "norm_topk_prob": False,
      "scoring_func": "softmax"}


def yarn(scale):
    return {"type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": scale,
            "mscale_all_dim": scale, "original_max_position_embeddings": 64}


def deepseek(base, version, shape, **settings):
    return {**base, "architectures": [f"DeepseekV{version}ForCausalLM"], "model_type": f"deepseek_v{version}",
            **shape, **settings}


def checkpoints(base, dtype):
    """name: (config.json, element type of the file, shards)"""
    return {
        "glm4-moe": (glm4_moe(base, use_qk_norm=True, **ROUTED), dtype, 1),
        "deepseek-v2": (
            deepseek(base, 2, LATENT, q_lora_rank=28, rope_scaling=yarn(0.707),
                     **{**ROUTED, **V2, "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2}),
            dtype, 1),
        "deepseek-v2-lite": (deepseek(base, 2, LATENT, q_lora_rank=None, **{**ROUTED, **V2}), dtype, 1),
        "deepseek-v3": (deepseek(base, 3, LATENT, q_lora_rank=28, rope_scaling=yarn(1.0), attention_bias=True,
                                 num_nextn_predict_layers=1, **ROUTED), dtype, 2),
        # The part that turns is in halves.
        "glm4-moe-lite": (
            deepseek(base, 3, LATENT, q_lora_rank=28, rope_interleave=False, mlp_layer_types=["sparse", "dense"],
                     **{**ROUTED, "n_group": 1, "topk_group": 1})
            | {"architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite"}, dtype, 1),
    }


def gguf_models(base):
    """name: (config of the reference, types cycled over the matrices of each layer, type of the embedding)"""
    q = TYPES
    return {
        "gguf-glm4moe": (
            glm4_moe(base, **{**ROUTED_IN_BLOCKS, "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 1}),
            [[q.Q8_0, q.Q5_0, q.Q4_1]] * 2, q.Q8_0),
        "gguf-deepseek2": (
            deepseek(base, 3, LATENT_IN_BLOCKS, q_lora_rank=32, rope_scaling=yarn(1.0),
                     num_nextn_predict_layers=1, **ROUTED_IN_BLOCKS), [[q.Q8_0, q.Q5_0, q.Q4_0]] * 2, q.Q8_0),
        "gguf-deepseek2-lite": (
            deepseek(base, 2, LATENT_IN_BLOCKS, q_lora_rank=None, **{**ROUTED_IN_BLOCKS, **V2}),
            [[q.Q8_0, q.F16]] * 2, q.Q8_0),
    }


ARCHITECTURES = {"glm4_moe": "glm4moe", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2"}
LATENT_FAMILIES = {"deepseek_v2", "deepseek_v3"}
ROUTED_FAMILIES = set(ARCHITECTURES)
# Parts of a layer whose names or values differ from other families'.
NAMES = {"exp_probs_b": "mlp.gate.e_score_correction_bias", "ffn_gate_shexp": "mlp.shared_experts.gate_proj.weight",
         "ffn_up_shexp": "mlp.shared_experts.up_proj.weight", "ffn_down_shexp": "mlp.shared_experts.down_proj.weight",
         "post_attention_norm": "post_attention_layernorm.weight", "attn_q_a": "self_attn.q_a_proj.weight",
         "attn_q_a_norm": "self_attn.q_a_layernorm.weight", "attn_q_b": "self_attn.q_b_proj.weight",
         "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_norm": "self_attn.kv_a_layernorm.weight"}


def is_dense(config, index):
    return index < config.get("first_k_dense_replace", 0)


def add_metadata(writer, config):
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if (config["n_group"] or 1) > 1:
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    if config["model_type"] != "deepseek_v2":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if config.get("num_nextn_predict_layers"):
        writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])


def add_latent_metadata(writer, config):
    rank, turning = config["kv_lora_rank"], config["qk_rope_head_dim"]
    writer.add_head_count_kv(1)
    writer.add_key_length(rank + turning)
    writer.add_value_length(rank)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + turning)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_kv_lora_rank(rank)
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_rope_dimension_count(turning)
    if "rope_scaling" in config:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(config["rope_scaling"]["factor"])
        writer.add_rope_scaling_orig_ctx_len(config["rope_scaling"]["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * config["rope_scaling"]["mscale_all_dim"])


def add_latent_attention(writer, index, config, kinds):
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    still, value = config["qk_nope_head_dim"], config["v_head_dim"]
    queries, query_rank = heads * (still + config["qk_rope_head_dim"]), config["q_lora_rank"]
    matrices = [("attn_kv_a_mqa", (rank + config["qk_rope_head_dim"], hidden)), ("attn_k_b", (heads, rank, still)),
                ("attn_v_b", (heads, value, rank)), ("attn_output", (hidden, heads * value))]
    if query_rank:
        matrices += [("attn_q_a", (query_rank, hidden)), ("attn_q_b", (queries, query_rank))]
        writer.add(f"blk.{index}.attn_q_a_norm.weight", (query_rank,), TYPES.F32, 1.0, 0.2)
    else:
        matrices += [("attn_q", (queries, hidden))]
    writer.add(f"blk.{index}.attn_kv_a_norm.weight", (rank,), TYPES.F32, 1.0, 0.2)
    for place, (name, shape) in enumerate(matrices):
        writer.add(f"blk.{index}.{name}.weight", shape, kinds[place % len(kinds)])


def keys_and_values(values, index):
    """Both of a layer's heads in one matrix, by head, as published."""
    keys, of_values = values[f"blk.{index}.attn_k_b.weight"], values[f"blk.{index}.attn_v_b.weight"]
    both = [part for head in range(len(keys)) for part in (keys[head].T, of_values[head])]
    return "self_attn.kv_b_proj.weight", numpy.concatenate(both)


def add_experts(writer, index, config, kinds):
    hidden, count = config["hidden_size"], config["n_routed_experts"]
    inner = config["moe_intermediate_size"]
    shared = inner * config["n_shared_experts"]
    writer.add(f"blk.{index}.ffn_gate_inp.weight", (count, hidden), TYPES.F32, 0.0, 6.0 / hidden ** 0.5)
    if config["model_type"] != "deepseek_v2":
        writer.add(f"blk.{index}.exp_probs_b.bias", (count,), TYPES.F32, 0.0, 0.2)
    matrices = [("ffn_gate_exps", (count, inner, hidden)), ("ffn_up_exps", (count, inner, hidden)),
                ("ffn_down_exps", (count, hidden, inner)), ("ffn_gate_shexp", (shared, hidden)),
                ("ffn_up_shexp", (shared, hidden)), ("ffn_down_shexp", (hidden, shared))]
    for place, (name, shape) in enumerate(matrices):
        writer.add(f"blk.{index}.{name}.weight", shape, kinds[(place + 1) % len(kinds)])


def add_further_layers(writer, config):
    """What predicts further tokens: it is skipped."""
    for index in range(config.get("num_nextn_predict_layers", 0)):
        place = config["num_hidden_layers"] + index
        writer.add(f"blk.{place}.nextn.eh_proj.weight", (config["hidden_size"], 2 * config["hidden_size"]), TYPES.F32)
        writer.add(f"blk.{place}.attn_norm.weight", (config["hidden_size"],), TYPES.F32)


def choice_keys(module, logits):
    """What a router of this kind compares: the scores of open groups, and those of the groups."""
    scores = logits.float()
    bias = getattr(module, "e_score_correction_bias", None)
    if bias is not None:
        scores = scores.sigmoid() + bias.float()
    groups = getattr(module, "num_group", None) or 1
    if groups == 1 or getattr(module, "topk_method", "") == "greedy":
        return scores, None
    parts = scores.view(scores.shape[0], groups, -1)
    of_groups = parts.topk(1 if bias is None else 2, dim=-1).values.sum(-1)
    chosen = of_groups.topk(module.topk_group, dim=-1).indices
    open_groups = of_groups.new_zeros(of_groups.shape).scatter(1, chosen, 1).bool().unsqueeze(-1)
    return parts.masked_fill(~open_groups, float("-inf")).flatten(1), of_groups
