#!/usr/bin/env python3
"""Writes the tiny random-weight models of tests/golden/models and what they must compute.

Needs torch 2.15.0, transformers 5.23.0, safetensors 0.8.0, gguf 0.19.0, numpy 2.4.6. Run it from anywhere:
    python3 tests/golden/models/make_model_goldens.py [name …]

Each fixture is a folder with a model as it would be published, and golden.json: a prompt and 64 greedy tokens
of the float32 reference, logits of some rows, and the error that the reference itself makes in bfloat16.
Weights are drawn so that every float format of the file holds them exactly, and seeds so that the two best
logits are never closer than MIN_GAP, which is checked.
"""
import base64
import json
import math
import pathlib
import shutil
import sys

import gguf
import numpy
import safetensors.torch
import torch
import transformers

import gemma4_models
import granite_models
import nemotron_models
import qwen35_models
import routed_models

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 256
PROMPT = 40
GENERATED = 64
# Rows whose logits are kept: the prompt's last, and some of the generated ones.
KEPT_ROWS = [PROMPT - 1, PROMPT, PROMPT + 9, PROMPT + 23, PROMPT + 40, PROMPT + GENERATED - 2]
MIN_GAP = 1e-3
# Between the last expert that a token uses and the next, as logits of a router.
MIN_ROUTER_GAP = 1e-3
# Of the largest logit, where the reference computes a recurrence in chunks and token by token.
MAX_ROUNDING = 1e-5
VERSIONS = {"torch": "2.15.0", "transformers": "5.23.0", "safetensors": "0.8.0", "gguf": "0.19.0",
            "numpy": "2.4.6"}

BASE = {"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


def model(architecture, model_type, **settings):
    return {"architectures": [architecture], "model_type": model_type, **BASE, **settings}


def llama(**settings):
    return model("LlamaForCausalLM", "llama", rms_norm_eps=1e-5, **settings)


def gemma3(**settings):
    return model("Gemma3ForCausalLM", "gemma3_text", rms_norm_eps=1e-6, num_hidden_layers=6,
                 **settings)


def gemma2(**settings):
    return model("Gemma2ForCausalLM", "gemma2", rms_norm_eps=1e-6, rope_theta=10000.0,
                 hidden_activation="gelu_pytorch_tanh", sliding_window=12, **settings) | {"num_hidden_layers": 3}


def gemma4(**settings):
    return model("Gemma4ForCausalLM", "gemma4_text", rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh",
                 num_attention_heads=4, head_dim=16, global_head_dim=32, sliding_window=12, pad_token_id=0,
                 tie_word_embeddings=True, rope_parameters={
                     "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                        "rope_theta": 1000000.0},
                     "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
                 **({"layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                                     "full_attention"]} | settings)) | {"num_hidden_layers": 4}


def cohere(architecture, model_type, **settings):
    return model(architecture, model_type, layer_norm_eps=1e-5, rope_theta=50000.0, logit_scale=0.5,
                 tie_word_embeddings=True, **settings)


def granite(**settings):
    return llama(**settings) | {
        "architectures": ["GraniteForCausalLM"], "model_type": "granite", "rope_theta": 10000.0,
        "embedding_multiplier": 1.5, "residual_multiplier": 0.75, "attention_multiplier": 0.0625,
        "logits_scaling": 2.0}


def gpt_oss(**settings):
    return model("GptOssForCausalLM", "gpt_oss", rms_norm_eps=1e-5, rope_theta=150000.0, num_local_experts=6,
                 num_experts_per_tok=4, sliding_window=12, attention_bias=True, swiglu_limit=7.0,
                 tie_word_embeddings=False,
                 rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                               "truncate": False, "original_max_position_embeddings": 128}, **settings)


def olmo(version, **settings):
    return model(f"Olmo{version}ForCausalLM", f"olmo{version}", rms_norm_eps=1e-6, rope_theta=500000.0, pad_token_id=0,
                 tie_word_embeddings=False, **settings)


def factors(count, growth):
    return [round(1.0 + growth * i / count, 3) for i in range(count)]


def ministral3(**settings):
    return model("Ministral3ForCausalLM", "ministral3", rms_norm_eps=1e-5, sliding_window=None,
                 rope_parameters={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0,
                                  "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
                                  "original_max_position_embeddings": 24}, **settings)


def opt(**settings):
    config = model("OPTForCausalLM", "opt", num_attention_heads=4, ffn_dim=96, pad_token_id=1,
                   activation_function="relu", **settings)
    del config["intermediate_size"]
    return config


def experts(architecture, model_type, **settings):
    return model(architecture, model_type, rms_norm_eps=1e-6, rope_theta=1000000.0, **settings)


def lfm2(**settings):
    return model("Lfm2ForCausalLM", "lfm2", norm_eps=1e-5, rope_theta=1000000.0, num_attention_heads=4,
                 block_multiple_of=32, **settings) | {"num_hidden_layers": 3}


def delta(**settings):
    """Three layers of the gated delta rule for each with attention, heads of sizes that fill no lanes."""
    return {"rms_norm_eps": 1e-6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 20,
            "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                "partial_rotary_factor": 0.25},
            **settings, "num_hidden_layers": 4}


def mamba2(**settings):
    return granite(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, mamba_n_heads=4,
                   mamba_expand=2, mamba_d_state=20, mamba_d_conv=4, **settings) | {
        "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "intermediate_size": 40,
        "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"]}


def qwen35(text, **settings):
    """As published: the language model one level down, beside parts that are not served."""
    architecture, model_type = text
    config = model(architecture + "ForConditionalGeneration", model_type)
    inner = {**BASE, **delta(**settings), "model_type": model_type + "_text"}
    inner["rope_parameters"] |= {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
    return {"architectures": config["architectures"], "model_type": model_type, "text_config": inner,
            "vision_config": {"model_type": model_type, "depth": 1, "hidden_size": 16},
            "tie_word_embeddings": inner["tie_word_embeddings"], "image_token_id": 250}


# name: (config.json, element type of the file, shards)
CHECKPOINTS = {
    "llama-tied-mha": (llama(num_attention_heads=4, rope_theta=10000.0, tie_word_embeddings=True),
                       torch.bfloat16, 1),
    "llama3-sharded-gqa4": (
        llama(num_attention_heads=4, num_key_value_heads=1, tie_word_embeddings=False,
              rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3}),
        torch.bfloat16, 3),
    "llama3-gqa8-bias": (
        llama(num_attention_heads=8, num_key_value_heads=1, head_dim=16, attention_bias=True,
              mlp_bias=True, rope_theta=500000.0, rope_scaling={"rope_type": "llama3", **LLAMA3}),
        torch.float32, 1),
    "llama-linear-f16": (
        llama(num_attention_heads=4, num_key_value_heads=2, rope_theta=10000.0,
              rope_scaling={"type": "linear", "factor": 2.0}), torch.float16, 1),
    "llama-yarn": (
        llama(num_attention_heads=4, num_key_value_heads=2,
              rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                               "original_max_position_embeddings": 128}), torch.bfloat16, 1),
    "mistral-window": (
        model("MistralForCausalLM", "mistral", num_attention_heads=4, num_key_value_heads=1,
              head_dim=32, rope_theta=10000.0, sliding_window=12, rms_norm_eps=1e-5,
              tie_word_embeddings=False), torch.bfloat16, 1),
    "mistral-full": (
        model("MistralForCausalLM", "mistral", num_attention_heads=4, num_key_value_heads=4,
              rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
              sliding_window=None, rms_norm_eps=1e-5, tie_word_embeddings=True), torch.bfloat16, 1),
    "qwen2-untied": (
        model("Qwen2ForCausalLM", "qwen2", num_attention_heads=4, num_key_value_heads=1,
              rope_theta=1000000.0, use_sliding_window=False, sliding_window=32, max_window_layers=1,
              rms_norm_eps=1e-6, tie_word_embeddings=False), torch.bfloat16, 1),
    "qwen2-tied-window": (
        model("Qwen2ForCausalLM", "qwen2", num_attention_heads=4, num_key_value_heads=2,
              rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
              use_sliding_window=True, sliding_window=17, max_window_layers=1, rms_norm_eps=1e-6,
              tie_word_embeddings=True), torch.bfloat16, 1),
    "qwen3-tied-gqa8": (
        model("Qwen3ForCausalLM", "qwen3", num_attention_heads=8, num_key_value_heads=1, head_dim=16,
              rope_theta=1000000.0, rms_norm_eps=1e-6, attention_bias=False,
              tie_word_embeddings=True), torch.bfloat16, 1),
    "qwen3-untied-mha": (
        model("Qwen3ForCausalLM", "qwen3", num_attention_heads=4, num_key_value_heads=4, head_dim=32,
              rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, rms_norm_eps=1e-6,
              tie_word_embeddings=False), torch.bfloat16, 1),
    # The older spelling: a pattern, a local base, tied because the family is.
    "gemma3-pattern": (
        gemma3(num_attention_heads=4, num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=24,
               hidden_activation="gelu_pytorch_tanh", sliding_window=16, sliding_window_pattern=3,
               rope_theta=1000000.0, rope_local_base_freq=10000.0), torch.bfloat16, 1),
    # The newer one: a type and a rope for each kind of layer.
    "gemma3-layer-types": (
        gemma3(num_attention_heads=2, num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=32,
               hidden_activation="gelu_pytorch_tanh", sliding_window=10, final_logit_softcapping=30.0,
               layer_types=["sliding_attention", "full_attention", "sliding_attention",
                            "sliding_attention", "sliding_attention", "full_attention"],
               rope_parameters={
                   "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                   "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
               tie_word_embeddings=False), torch.bfloat16, 1),
    "gemma2": (gemma2(num_attention_heads=4, num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=24),
               torch.bfloat16, 1),
    # Full layers have wider and fewer heads, and no projection of values.
    "gemma4": (gemma4(num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
                      hidden_size_per_layer_input=0, final_logit_softcapping=30.0), torch.bfloat16, 1),
    # Experts beside the mlp of every layer.
    "gemma4-moe": (gemma4(num_key_value_heads=1, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=5,
                          top_k_experts=2, moe_intermediate_size=24,
                          layer_types=["sliding_attention", "full_attention"]) | {"num_hidden_layers": 2},
                   torch.bfloat16, 1),
    # Inputs for each layer; the last two layers read the keys of others and have a wide mlp; below a wrapper.
    "gemma4-e": (
        {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
         "text_config": gemma4(num_key_value_heads=1, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB,
                               num_kv_shared_layers=2, use_double_wide_mlp=True,
                               layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                            "sliding_attention", "full_attention"]) | {"num_hidden_layers": 5}},
        torch.bfloat16, 1),
    "phi3-window": (
        model("Phi3ForCausalLM", "phi3", num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
              rope_theta=10000.0, sliding_window=15, pad_token_id=0, tie_word_embeddings=False),
        torch.bfloat16, 1),
    "phi4-partial": (
        model("Phi3ForCausalLM", "phi3", num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5,
              rope_theta=250000.0, partial_rotary_factor=0.75, sliding_window=None, pad_token_id=0,
              tie_word_embeddings=True), torch.bfloat16, 1),
    # Factors for long contexts: all positions lie beyond the original context, or all within it.
    "phi4-longrope": (
        model("Phi3ForCausalLM", "phi3", num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5,
              rope_theta=10000.0, partial_rotary_factor=0.75, sliding_window=None, pad_token_id=0,
              original_max_position_embeddings=32,
              rope_scaling={"type": "longrope", "long_factor": factors(12, 4.0), "short_factor": factors(12, 0.5)},
              tie_word_embeddings=True), torch.bfloat16, 1),
    "phi3-longrope-short": (
        model("Phi3ForCausalLM", "phi3", num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
              rope_theta=10000.0, sliding_window=400, pad_token_id=0, original_max_position_embeddings=128,
              rope_scaling={"rope_type": "longrope", "long_factor": factors(8, 4.0), "short_factor": factors(8, 0.5)},
              tie_word_embeddings=False), torch.bfloat16, 1),
    # The text part of a checkpoint for images and text, as published.
    "ministral3": (
        {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
         "image_token_index": 10, "text_config": ministral3(
             num_attention_heads=4, num_key_value_heads=2, head_dim=24, tie_word_embeddings=False)},
        torch.bfloat16, 1),
    "ministral3-text": (
        ministral3(num_attention_heads=4, num_key_value_heads=1, head_dim=32, tie_word_embeddings=True),
        torch.bfloat16, 1),
    "smollm3": (
        llama(num_attention_heads=4, num_key_value_heads=2, rope_theta=2000000.0, pad_token_id=0,
              tie_word_embeddings=False, use_sliding_window=False)
        | {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "no_rope_layer_interval": 2},
        torch.bfloat16, 1),
    "smollm3-listed": (
        llama(num_attention_heads=2, num_key_value_heads=2, rope_theta=2000000.0, pad_token_id=0,
              tie_word_embeddings=True, no_rope_layers=[0, 1], use_sliding_window=False)
        | {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3"}, torch.bfloat16, 1),
    "granite": (granite(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True),
                torch.bfloat16, 1),
    "granite-moe": (
        granite(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, num_local_experts=5,
                num_experts_per_tok=2)
        | {"architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe", "intermediate_size": 40},
        torch.bfloat16, 1),
    "glm4": (
        model("Glm4ForCausalLM", "glm4", num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              rms_norm_eps=1e-5, rope_theta=10000.0, partial_rotary_factor=0.5, attention_bias=True,
              pad_token_id=0, tie_word_embeddings=False), torch.bfloat16, 1),
    "cohere": (cohere("CohereForCausalLM", "cohere", num_attention_heads=4, num_key_value_heads=2),
               torch.bfloat16, 1),
    # As in Command-R+: weights of their own for each head's norm.
    "cohere-norms": (cohere("CohereForCausalLM", "cohere", num_attention_heads=4, num_key_value_heads=2,
                            use_qk_norm=True), torch.bfloat16, 1),
    "glm": (
        model("GlmForCausalLM", "glm", num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              rms_norm_eps=1e-5, rope_theta=10000.0, partial_rotary_factor=0.5, attention_bias=True,
              pad_token_id=0, tie_word_embeddings=False), torch.bfloat16, 1),
    "exaone4": (
        model("Exaone4ForCausalLM", "exaone4", num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
              rope_theta=1000000.0, sliding_window=12, sliding_window_pattern="LLLG", pad_token_id=0,
              layer_types=["sliding_attention"] * 2 + ["full_attention"], tie_word_embeddings=False)
        | {"num_hidden_layers": 3}, torch.bfloat16, 1),
    "exaone4-full": (
        model("Exaone4ForCausalLM", "exaone4", num_attention_heads=4, num_key_value_heads=1, rms_norm_eps=1e-5,
              rope_scaling={"rope_type": "llama3", **LLAMA3}, rope_theta=1000000.0, sliding_window=None,
              pad_token_id=0, layer_types=["full_attention"] * 2, tie_word_embeddings=True), torch.bfloat16, 1),
    "seed-oss": (
        model("SeedOssForCausalLM", "seed_oss", num_attention_heads=4, num_key_value_heads=1, head_dim=24,
              rms_norm_eps=1e-6, rope_theta=10000000.0, attention_bias=True, attention_out_bias=True, mlp_bias=True,
              pad_token_id=0, tie_word_embeddings=False), torch.bfloat16, 1),
    "ernie4-5": (
        model("Ernie4_5ForCausalLM", "ernie4_5", num_attention_heads=4, num_key_value_heads=2, head_dim=24,
              rms_norm_eps=1e-5, rope_theta=500000.0, use_bias=True, pad_token_id=0, tie_word_embeddings=True),
        torch.bfloat16, 1),
    "cohere2": (cohere("Cohere2ForCausalLM", "cohere2", num_attention_heads=4, num_key_value_heads=1,
                       sliding_window=12) | {"num_hidden_layers": 4}, torch.bfloat16, 1),
    "gpt-oss": (gpt_oss(num_attention_heads=4, num_key_value_heads=2, head_dim=32)
                | {"intermediate_size": 40}, torch.bfloat16, 1),
    "gpt-oss-mxfp4": (gpt_oss(num_attention_heads=4, num_key_value_heads=1, head_dim=32)
                      | {"intermediate_size": 128}, torch.bfloat16, 1),
    "olmo2": (olmo(2, num_attention_heads=4, num_key_value_heads=2, attention_bias=False), torch.bfloat16, 1),
    # The layers' kinds follow from the family's pattern; the scaling is that of the last layer alone.
    "olmo3": (olmo(3, num_attention_heads=4, num_key_value_heads=4, sliding_window=12,
                   rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                 "attention_factor": 1.2, "original_max_position_embeddings": 128})
              | {"num_hidden_layers": 4}, torch.bfloat16, 1),
    "olmoe": (olmo("e", num_attention_heads=4, num_key_value_heads=2, num_experts=5, num_experts_per_tok=2,
                   norm_topk_prob=False, clip_qkv=None) | {"intermediate_size": 40}, torch.bfloat16, 1),
    # Experts in every layer; odd counts, a width that is no multiple of 16.
    "mixtral": (
        experts("MixtralForCausalLM", "mixtral", num_attention_heads=4, num_key_value_heads=2,
                num_local_experts=5, num_experts_per_tok=2, sliding_window=None,
                tie_word_embeddings=False) | {"intermediate_size": 40}, torch.bfloat16, 1),
    # The last layer alone has experts; the other a plain mlp.
    "qwen2-moe": (
        experts("Qwen2MoeForCausalLM", "qwen2_moe", num_attention_heads=4, num_key_value_heads=2,
                num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                shared_expert_intermediate_size=56, norm_topk_prob=False, decoder_sparse_step=2,
                use_sliding_window=True, sliding_window=17, max_window_layers=1,
                tie_word_embeddings=False), torch.bfloat16, 1),
    "qwen3-moe": (
        experts("Qwen3MoeForCausalLM", "qwen3_moe", num_attention_heads=4, num_key_value_heads=1,
                head_dim=32, num_experts=9, num_experts_per_tok=3, moe_intermediate_size=32,
                norm_topk_prob=True, tie_word_embeddings=True), torch.bfloat16, 2),
    # norm_topk_prob is left out: false.
    "qwen3-moe-plain-weights": (
        experts("Qwen3MoeForCausalLM", "qwen3_moe", num_attention_heads=2, num_key_value_heads=2,
                head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
                mlp_only_layers=[0], attention_bias=True, tie_word_embeddings=False),
        torch.bfloat16, 1),
    "lfm2": (lfm2(num_key_value_heads=2, conv_L_cache=3, layer_types=["conv", "full_attention", "conv"],
                  tie_word_embeddings=True), torch.bfloat16, 1),
    # The older spelling, four taps, biases.
    "lfm2-biases": (lfm2(num_key_value_heads=1, conv_L_cache=4, conv_bias=True, full_attn_idxs=[0],
                         block_ff_dim=150, block_ffn_dim_multiplier=1.3, tie_embedding=False,
                         tie_word_embeddings=False), torch.bfloat16, 1),
    "qwen3-next": (
        model("Qwen3NextForCausalLM", "qwen3_next",
              **delta(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                      shared_expert_intermediate_size=40, norm_topk_prob=True, decoder_sparse_step=2)),
        torch.bfloat16, 1),
    "qwen35": (qwen35(("Qwen3_5", "qwen3_5"), linear_num_key_heads=4, full_attention_interval=2),
                torch.bfloat16, 1),
    "qwen35-text": (
        model("Qwen3_5ForCausalLM", "qwen3_5_text",
              **delta(linear_conv_kernel_dim=3, linear_num_value_heads=6, full_attention_interval=2,
                      tie_word_embeddings=True) | {"num_hidden_layers": 2}), torch.float32, 1),
    "qwen35-moe": (
        qwen35(("Qwen3_5Moe", "qwen3_5_moe"), num_experts=5, num_experts_per_tok=2,
               moe_intermediate_size=32, shared_expert_intermediate_size=24), torch.bfloat16, 1),
    "granite-hybrid": (
        mamba2(num_local_experts=3, num_experts_per_tok=2, shared_intermediate_size=40, mamba_n_groups=1,
               position_embedding_type="nope"), torch.bfloat16, 1),
    "granite-hybrid-dense": (
        mamba2(num_local_experts=0, shared_intermediate_size=64, mamba_n_groups=2,
               position_embedding_type="rope"), torch.bfloat16, 1),
    "opt-pre-norm": (opt(do_layer_norm_before=True, word_embed_proj_dim=64), torch.bfloat16, 1),
    "opt-post-norm-projected": (opt(do_layer_norm_before=False, word_embed_proj_dim=32),
                                torch.bfloat16, 1),
    "opt-untied": (opt(do_layer_norm_before=True, word_embed_proj_dim=64, tie_word_embeddings=False),
                   torch.float16, 1),
    **routed_models.checkpoints(BASE, torch.bfloat16),
    **nemotron_models.checkpoints(BASE, (torch.bfloat16, torch.float32)),
}


# Served with a shorter context than the model's.
MAX_MODEL_LEN = {"phi3-longrope-short": 128}


def zero_centred(model_type, name):
    return ("gemma" in model_type and not model_type.startswith("gemma4")) or (
        model_type.startswith(("qwen3_next", "qwen3_5")) and "linear_attn" not in name)


def randomise(network, generator, dtype):
    """Draws every parameter so that activations and logits keep a size of about one."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name and name.endswith("weight"):
                centre = 0.0 if zero_centred(network.config.model_type, name) else 1.0
                value = centre + 0.2 * noise
            elif name.endswith("scale"):
                value = 1.0 + 0.2 * noise
            elif name.endswith((".gate.weight", ".router.weight", "router.proj.weight", "shared_expert_gate.weight")):
                value = noise * (6.0 / parameter.shape[-1] ** 0.5)  # choices that are seldom close
            elif name.endswith("A_log"):
                value = noise - 3.0  # a state that remembers some ten to a hundred tokens
            elif name.endswith("sinks"):
                value = noise
            elif "experts" in name and network.config.model_type == "gpt_oss" and not name.endswith("bias"):
                value = noise * (1.5 / parameter.shape[-2] ** 0.5)  # inputs come first
            elif name.endswith("bias"):
                value = 0.1 * noise
            elif "embed" in name:
                # Tied tables would predict the last token for ever if they spoke too loudly.
                loud = 0.08 if "gemma" in network.config.model_type else 0.25
                value = noise * (loud if network.config.tie_word_embeddings else 1.0)
            else:
                value = noise * (1.5 / parameter.shape[-1] ** 0.5)
            parameter.copy_(value.to(dtype).to(torch.float32))
        for name, buffer in network.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.copy_((1.0 + 0.3 * torch.randn(1, generator=generator)).to(dtype).to(torch.float32))
        for name, buffer in network.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))


class RouterGaps:
    """The smallest difference between a chosen expert's logit and the next, while it watches."""

    def __init__(self, network):
        self.smallest = float("inf")
        for module in network.modules():
            if type(module).__name__ == "Gemma4TextRouter":
                module.top_k, module.num_experts = module.config.top_k_experts, module.config.num_experts
            if hasattr(module, "top_k") and hasattr(module, "num_experts"):
                module.register_forward_hook(self.look)

    def look(self, module, _inputs, outputs):
        keys, of_groups = routed_models.choice_keys(module, outputs[0])
        for values, count in ((keys, module.top_k), (of_groups, getattr(module, "topk_group", None))):
            if values is None or count == values.shape[-1]:
                continue
            best = torch.topk(values, count + 1, dim=-1).values
            self.smallest = min(self.smallest, float((best[:, -2] - best[:, -1]).min()))


def greedy(network, prompt):
    tokens = list(prompt)
    smallest = float("inf")
    cache = None
    feed = torch.tensor([tokens])
    for _ in range(GENERATED):
        with torch.no_grad():
            out = network(input_ids=feed, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        best = torch.topk(out.logits[0, -1].float(), 2)
        smallest = min(smallest, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
        feed = torch.tensor([[tokens[-1]]])
    return tokens, smallest


def all_logits(network, tokens):
    with torch.no_grad():
        return network(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()


def rounding_grows(network, tokens):
    """Whether two orders of the reference's own sums differ by more than a few bits at some position.

    A recurrence's first results may be next to nothing, and its norm makes them as large as others."""
    if not any(hasattr(network.config, name) for name in ("linear_num_key_heads", "mamba_d_state", "ssm_state_size")):
        return False
    full = all_logits(network, tokens)
    cache, worst = None, 0.0
    for position, token in enumerate(tokens):
        with torch.no_grad():
            out = network(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        difference = (out.logits[0, -1].float() - full[position]).abs().max()
        worst = max(worst, float(difference / full[position].abs().max()))
    return worst > MAX_ROUNDING


def reference(folder):
    network = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    if network.config.model_type == "nemotron_h" and network.config.tie_word_embeddings:
        network.lm_head.weight = network.get_input_embeddings().weight  # transformers leaves it random
    return network.eval()


def in_bfloat16(network):
    """The network as transformers loads it in bfloat16: rotary frequencies and biases of routers stay float32."""
    frequencies = {name: buffer.clone() for name, buffer in network.named_buffers()
                   if "inv_freq" in name or name.endswith("e_score_correction_bias")}
    network = network.to(torch.bfloat16)
    for name, buffer in network.named_buffers():
        if name in frequencies:
            buffer.data = frequencies[name]
    return network


def pack(row):
    return base64.b64encode(row.numpy().astype("<f4").tobytes()).decode()


def write_golden(folder, network, tokens, smallest):
    """`network` is the float32 reference; logits come from one pass over all tokens."""
    full = all_logits(network, tokens[:-1])
    for position in range(PROMPT - 1, len(tokens) - 1):
        assert int(full[position].argmax()) == tokens[position + 1], "cache and full pass disagree"
    coarse = all_logits(in_bfloat16(network), tokens[:-1])
    rows = []
    for position in KEPT_ROWS:
        best = torch.topk(full[position], 2).values
        rows.append({"position": position, "logits": pack(full[position]),
                     "gap": float(best[0] - best[1]),
                     "bfloat16_error": float((coarse[position] - full[position]).abs().max())})
    golden = {"versions": VERSIONS, "prompt_length": PROMPT, "tokens": tokens,
              "smallest_gap": round(smallest, 6), "rows": rows}
    if folder.name in MAX_MODEL_LEN:
        golden["max_model_len"] = MAX_MODEL_LEN[folder.name]
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


EXPERT_NAMES = {"mixtral": ("block_sparse_moe", "w1", "w3", "w2")}


def published(name, tensor, model_type):
    """A parameter of a network under the names that files have: a tensor for each expert."""
    if model_type == "nemotron_h":
        return nemotron_models.published(name, tensor)
    block, gate, up, down = EXPERT_NAMES.get(model_type, ("mlp", "gate_proj", "up_proj", "down_proj"))
    name = name.replace(".mlp.gate.", f".{block}.gate.")
    if model_type == "granitemoe":
        return {name.replace(".experts.gate_up_proj", ".input_linear.weight")
                .replace(".experts.down_proj", ".output_linear.weight").replace(".router.", ".router.layer."): tensor}
    name = name.replace("block_sparse_moe.router.weight", "block_sparse_moe.router.layer.weight")
    if model_type == "granitemoehybrid" and ".experts." in name:
        part = "output_linear" if name.endswith("down_proj") else "input_linear"
        return {name[:name.index("experts.")] + part + ".weight": tensor}
    # Qwen3.5's are one tensor for all experts of a layer.
    fused = ("gpt_oss", "gemma4_text", "qwen3_5_moe_text")
    if model_type in fused or not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
        return {name: tensor}
    prefix = name[:name.index(".mlp.")] + f".{block}.experts"
    result = {}
    for expert, own in enumerate(tensor):
        if name.endswith("down_proj"):
            result[f"{prefix}.{expert}.{down}.weight"] = own
        else:
            result[f"{prefix}.{expert}.{gate}.weight"], result[f"{prefix}.{expert}.{up}.weight"] = own.chunk(2)
    return result


def mxfp4(name, tensor):
    """Experts as gpt-oss is published, and their values: [E, inputs, outputs] in blocks along the inputs."""
    rows = tensor.swapaxes(1, 2).contiguous().numpy()
    packed = gguf.quants.quantize(rows, TYPES.MXFP4).reshape(*rows.shape[:2], -1, 17)
    codes = numpy.concatenate([packed[..., 1:] & 15, packed[..., 1:] >> 4], -1)
    values = gguf.quants.dequantize(packed.reshape(*rows.shape[:2], -1), TYPES.MXFP4).reshape(rows.shape)
    return ({f"{name}_blocks": torch.from_numpy(codes[..., 0::2] | codes[..., 1::2] << 4),
             f"{name}_scales": torch.from_numpy(packed[..., 0].copy())},
            torch.from_numpy(values.copy()).swapaxes(1, 2))


def quantise_experts(folder, network):
    """Replaces a saved checkpoint's experts by MXFP4, and the network's by what that means."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for name, parameter in network.named_parameters():
        if "experts" in name and not name.endswith("bias"):
            blocks, values = mxfp4(name, tensors.pop(name).float())
            tensors.update(blocks)
            parameter.data.copy_(values)
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path,
                                {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


# Checkpoints for images and text keep the language model's tensors below a name of its own.
def below(name, wrapper):
    if wrapper in ("gemma4", "qwen3_5", "qwen3_5_moe"):
        return name.replace("model.", "model.language_model.", 1)
    return name if wrapper is None else f"language_model.{name}"


def save_checkpoint(folder, network, dtype, shards, wrapper=None):
    tensors = {}
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight" and network.config.tie_word_embeddings:
            continue
        for own, value in published(name, tensor, network.config.model_type).items():
            tensors[below(own, wrapper)] = value
    if wrapper is not None:
        tensors["vision_tower.patch_conv.weight"] = torch.ones(2, 2)
    tensors = {name: tensor.to(torch.float32 if name.endswith("e_score_correction_bias") else dtype).contiguous()
               for name, tensor in tensors.items()}
    if wrapper in ("qwen3_5", "qwen3_5_moe"):
        tensors["mtp.layers.0.input_layernorm.weight"] = torch.ones(64, dtype=dtype)
    if shards == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names = sorted(tensors)
    weight_map = {}
    for index in range(shards):
        file = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[index::shards]}
        safetensors.torch.save_file(part, folder / file, {"format": "pt"})
        weight_map.update({name: file for name in part})
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def make_checkpoint(name):
    config, dtype, shards = CHECKPOINTS[name]
    folder = HERE / name
    for seed in range(1, 100):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        wrapper = config["model_type"] if "text_config" in config else None
        parsed = (transformers.AutoConfig.from_pretrained(folder) if wrapper is None
                  else transformers.AutoConfig.for_model(**config["text_config"]))
        network = transformers.AutoModelForCausalLM.from_config(parsed, attn_implementation="eager")
        generator = torch.Generator().manual_seed(seed)
        randomise(network, generator, dtype)
        save_checkpoint(folder, network, dtype, shards, wrapper)
        network = reference(folder) if wrapper is None else network.eval()
        if name.endswith("-mxfp4"):
            quantise_experts(folder, network)
        gaps = RouterGaps(network)
        prompt = torch.randint(3, VOCAB, (PROMPT,), generator=generator).tolist()
        tokens, smallest = greedy(network, prompt)
        if rounding_grows(network, tokens[:-1]):
            continue
        if smallest >= MIN_GAP and gaps.smallest >= MIN_ROUTER_GAP and len(set(tokens[PROMPT:])) >= 8:
            write_golden(folder, network, tokens, smallest)
            return seed
    raise SystemExit(f"{name}: no seed keeps the two best logits apart")


# --- GGUF ---------------------------------------------------------------------------------------

TYPES = gguf.GGMLQuantizationType
# Where the step lies, and the size of the numbers that it is multiplied by.
STEPS = {TYPES.Q3_K: (108, 18.5 * 2.3), TYPES.IQ4_NL: (0, 70.0), TYPES.IQ4_XS: (0, 70.0 * 18.5),
         TYPES.IQ1_S: (0, 8.0), TYPES.IQ1_M: (None, 8.0), TYPES.IQ2_XXS: (0, 60.0), TYPES.IQ2_XS: (0, 60.0),
         TYPES.IQ2_S: (0, 60.0), TYPES.IQ3_XXS: (0, 160.0), TYPES.IQ3_S: (0, 160.0), TYPES.TQ1_0: (52, 0.8),
         TYPES.TQ2_0: (64, 1.2)}
DRAWN = {TYPES.Q2_K, TYPES.Q4_K, TYPES.Q5_K, TYPES.Q6_K, TYPES.NVFP4, *STEPS}


def random_blocks(kind, rows, cols, rng):
    """A matrix of a type that gguf cannot write: random quants under scales that give values a size of 1 / sqrt(cols)."""
    size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, cols // size, block_bytes), dtype=numpy.uint8)
    if kind == TYPES.Q6_K:
        scales = rng.integers(-64, 64, (rows, cols // size, 16), dtype=numpy.int8)
        data[:, :, 192:208] = scales.view(numpy.uint8)
        step = numpy.full((rows, cols // size, 1), 1.5 / cols ** 0.5 / (18.5 * 37), numpy.float16)
        data[:, :, 208:210] = step.view(numpy.uint8)
    elif kind == TYPES.NVFP4:  # a power of two below, and eighths of it
        power = numpy.floor(numpy.log2(1.5 / cols ** 0.5 / 3.5)).astype(int) + 7
        data[:, :, :4] = 8 * power + data[:, :, :4] % 8
    elif kind in STEPS:
        place, size_of_code = STEPS[kind]
        step = numpy.full((rows, cols // size, 1), 1.5 / cols ** 0.5 / size_of_code, numpy.float16)
        if kind == TYPES.IQ1_M:  # four bits of the step in each word of scales
            words = data[:, :, 48:].view(numpy.uint16)
            words[:] = words & 0x0fff | step.view(numpy.uint16) >> numpy.array([0, 4, 8, 12]) << 12
        else:
            data[:, :, place:place + 2] = step.view(numpy.uint8)
    elif kind == TYPES.Q2_K:
        step = numpy.full((rows, cols // size, 1), 1.5 / cols ** 0.5 / 12, numpy.float16)
        data[:, :, 80:82] = step.view(numpy.uint8)
        data[:, :, 82:84] = (step * 1.5).astype(numpy.float16).view(numpy.uint8)
    else:
        levels = 15 if kind == TYPES.Q4_K else 31
        step = numpy.full((rows, cols // size, 1), 3.0 / cols ** 0.5 / (levels * 40), numpy.float16)
        least = (step * (levels / 2)).astype(numpy.float16)
        data[:, :, 0:2] = step.view(numpy.uint8)
        data[:, :, 2:4] = least.view(numpy.uint8)
    return data.reshape(rows, -1)


class Writer:
    """Adds tensors of given types to a GGUF file and remembers what they mean as float32."""

    def __init__(self, path, architecture, rng):
        self.writer = gguf.GGUFWriter(path, architecture)
        self.rng = rng
        self.values = {}

    def add(self, name, shape, kind, centre=0.0, spread=None):
        shape = tuple(shape)
        if kind in DRAWN:
            data = random_blocks(kind, int(numpy.prod(shape[:-1])), shape[-1], self.rng)
            data = data.reshape(*shape[:-1], -1)
        else:
            spread = 1.5 / shape[-1] ** 0.5 if spread is None else spread
            values = (centre + spread * self.rng.standard_normal(shape)).astype(numpy.float32)
            data = gguf.quants.quantize(values, kind)
        self.values[name] = gguf.quants.dequantize(data, kind).astype(numpy.float32).reshape(shape)
        if kind == TYPES.NVFP4 and len(self.values) % 3 != 0:
            self.add_scale(name)
        if kind in (TYPES.F32, TYPES.F16):
            self.writer.add_tensor(name, data)
        else:
            self.writer.add_tensor(name, data, raw_dtype=kind)

    def add_scale(self, name):
        """One more scale of a matrix of NVFP4, as converted checkpoints have, and one that nothing uses."""
        scale = self.rng.uniform(0.5, 2.0, 1).astype(numpy.float32)
        self.values[name] = self.values[name] * scale
        self.writer.add_tensor(name.replace(".weight", ".scale"), scale)
        self.writer.add_tensor(name.replace(".weight", ".input_scale"), scale)

    def save(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def add_layer(writer, index, config, kinds):
    """The tensors of one layer; `kinds` is cycled over its matrices in this order."""
    if config["model_type"] in OWN_GGUF:
        return OWN_GGUF[config["model_type"]].add_layer(writer, index, config, kinds, TYPES.F32)
    hidden, inter = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config.get("head_dim", 0)
    kv = config["num_key_value_heads"] * config.get("head_dim", 0)
    matrices = [("attn_q", q, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden),
                ("attn_output", hidden, q)]
    family = config["model_type"]
    convolves = config.get("layer_types", [])[index:index + 1] == ["conv"]
    if convolves:
        matrices = [("shortconv.in_proj", 3 * hidden, hidden), ("shortconv.out_proj", hidden, hidden)]
        writer.add(f"blk.{index}.shortconv.conv.weight", (hidden, config["conv_L_cache"]), TYPES.F32)
    fused = family == "phi3" or (family == "glm" and index == 0)
    if fused:
        matrices[:3] = [("attn_qkv", q + 2 * kv, hidden)]
    if family in ("phi3", "glm", "glm4"):
        matrices += [("ffn_up", 2 * inter, hidden), ("ffn_down", hidden, inter)]
    elif expert_count(config) == 0 or routed_models.is_dense(config, index):
        matrices += [("ffn_gate", inter, hidden), ("ffn_up", inter, hidden), ("ffn_down", hidden, inter)]
    # Four layers without a norm behind each block stay within what bfloat16 loses if they are quieter.
    spread = {"smollm3": 0.8}.get(family, 1.5)
    if family in routed_models.LATENT_FAMILIES:
        del matrices[:4]
        routed_models.add_latent_attention(writer, index, config, kinds)
    for place, (name, rows, cols) in enumerate(matrices):
        writer.add(f"blk.{index}.{name}.weight", (rows, cols), kinds[place % len(kinds)], 0.0,
                   spread / cols ** 0.5)
    if family in routed_models.ROUTED_FAMILIES and not routed_models.is_dense(config, index):
        routed_models.add_experts(writer, index, config, kinds)
    elif expert_count(config) > 0 and not routed_models.is_dense(config, index):
        add_experts(writer, index, config, kinds)
    second = {"cohere": [], "cohere2": [], "gpt_oss": [("post_attention_norm", hidden)],
              "glm4_moe": [("post_attention_norm", hidden)], "seed_oss": [("post_attention_norm", hidden)]}
    norms = [("attn_norm", hidden)] + second.get(family, [("ffn_norm", hidden)])
    if family == "olmo3":
        norms = [("post_attention_norm", hidden), ("post_ffw_norm", hidden)]
    if family in ("olmo3", "olmoe"):
        norms += [("attn_q_norm", q), ("attn_k_norm", kv)]
    if family in ("qwen3", "qwen3_moe", "gemma3_text") or (family == "lfm2" and not convolves):
        norms += [("attn_q_norm", config["head_dim"]), ("attn_k_norm", config["head_dim"])]
    if family in ("gemma2", "gemma3_text", "glm4"):
        norms += [("post_attention_norm", hidden), ("post_ffw_norm", hidden)]
    for name, length in norms:
        writer.add(f"blk.{index}.{name}.weight", (length,), TYPES.F32, 1.0, 0.2)
    if config.get("use_qk_norm") and family == "cohere":
        for name, heads in (("attn_q_norm", "num_attention_heads"), ("attn_k_norm", "num_key_value_heads")):
            writer.add(f"blk.{index}.{name}.weight", (config[heads], config["head_dim"]), TYPES.F32, 1.0, 0.2)
    if family == "gpt_oss":
        writer.add(f"blk.{index}.attn_sinks.weight", (config["num_attention_heads"],), TYPES.F32, 0.0, 1.0)
        writer.add(f"blk.{index}.attn_output.bias", (hidden,), TYPES.F32, 0.0, 0.1)
    if family == "glm" and fused:
        writer.add(f"blk.{index}.attn_qkv.bias", (q + 2 * kv,), TYPES.F32, 0.0, 0.1)
    elif family in ("seed_oss", "qwen2", "qwen2_moe", "glm", "glm4", "glm4_moe", "gpt_oss"):
        for name, length in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            writer.add(f"blk.{index}.{name}.bias", (length,), TYPES.F32, 0.0, 0.1)


def expert_count(config):
    return config.get("num_experts", config.get("num_local_experts", config.get("n_routed_experts", 0)))


def add_experts(writer, index, config, kinds):
    """The experts of a layer, one tensor for all, and the shared one."""
    hidden, count = config["hidden_size"], expert_count(config)
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    shared = config.get("shared_expert_intermediate_size", 0)
    writer.add(f"blk.{index}.ffn_gate_inp.weight", (count, hidden), TYPES.F32, 0.0, 6.0 / hidden ** 0.5)
    if config["model_type"] == "gpt_oss":
        for name, shape in (("ffn_gate_inp", (count,)), ("ffn_gate_exps", (count, inner)),
                            ("ffn_up_exps", (count, inner)), ("ffn_down_exps", (count, hidden))):
            writer.add(f"blk.{index}.{name}.bias", shape, TYPES.F32, 0.0, 0.1)
    matrices = [("ffn_gate_exps", (count, inner, hidden)), ("ffn_up_exps", (count, inner, hidden)),
                ("ffn_down_exps", (count, hidden, inner))]
    if shared:
        writer.add(f"blk.{index}.ffn_gate_inp_shexp.weight", (hidden,), TYPES.F32)
        matrices += [("ffn_gate_shexp", (shared, hidden)), ("ffn_up_shexp", (shared, hidden)),
                     ("ffn_down_shexp", (hidden, shared))]
    for place, (name, shape) in enumerate(matrices):
        writer.add(f"blk.{index}.{name}.weight", shape, kinds[(place + 1) % len(kinds)])


def to_halves(values, heads):
    """GGUF's llama keeps rotary pairs as neighbours; Hugging Face keeps them half a head apart."""
    rows = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return rows.swapaxes(1, 2).reshape(values.shape)


NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "ffn_norm": "post_attention_layernorm"}
GEMMA_NAMES = {**NAMES, "ffn_norm": "pre_feedforward_layernorm",
               "post_attention_norm": "post_attention_layernorm",
               "post_ffw_norm": "post_feedforward_layernorm"}


PHI_NAMES = {**NAMES, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
GLM_NAMES = {**NAMES, "ffn_up": "mlp.gate_up_proj", "post_attention_norm": "post_self_attn_layernorm",
             "post_ffw_norm": "post_mlp_layernorm"}
LFM_NAMES = {**NAMES, "attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_output": "self_attn.out_proj",
             "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
             "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2",
             "shortconv.in_proj": "conv.in_proj", "shortconv.conv": "conv.conv",
             "shortconv.out_proj": "conv.out_proj"}
FAMILY_NAMES = {"lfm2": LFM_NAMES, "seed_oss": {**NAMES, "post_attention_norm": "post_attention_layernorm"}, "olmo3": GEMMA_NAMES, "gemma2": GEMMA_NAMES, "gemma3_text": GEMMA_NAMES, "phi3": PHI_NAMES, "glm4": GLM_NAMES,
                "glm": GLM_NAMES}
# Families whose rotary rows GGUF reorders.
REORDERED = ("llama", "granitemoe", "ministral3", "mixtral", "granite", "smollm3")
EXPERTS = {"ffn_gate_inp": "mlp.gate.weight", "ffn_down_exps": "mlp.experts.down_proj",
           "ffn_gate_inp_shexp": "mlp.shared_expert_gate.weight",
           "ffn_gate_shexp": "mlp.shared_expert.gate_proj.weight",
           "ffn_up_shexp": "mlp.shared_expert.up_proj.weight",
           "ffn_down_shexp": "mlp.shared_expert.down_proj.weight"}


OSS_NAMES = {"ffn_gate_inp.weight": "mlp.router.weight", "ffn_gate_inp.bias": "mlp.router.bias",
             "attn_sinks.weight": "self_attn.sinks", "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
             "post_attention_norm.weight": "post_attention_layernorm.weight"}


def gpt_oss_weight(values, index, tensor):
    """The name and value of a layer's tensor in gpt-oss' own layout; None: it is a part of another."""
    value = values[f"blk.{index}.{tensor}"]
    if tensor.startswith("ffn_up_exps"):
        return None
    if tensor.startswith("ffn_gate_exps"):
        up = values[f"blk.{index}.{tensor.replace('gate', 'up')}"]
        both = numpy.stack([value, up], 2).reshape(value.shape[0], -1, *value.shape[2:])
        end = "" if tensor.endswith("weight") else "_bias"
        return f"mlp.experts.gate_up_proj{end}", both if end else both.swapaxes(1, 2)
    if tensor == "ffn_down_exps.weight":
        return "mlp.experts.down_proj", value.swapaxes(1, 2)
    part, suffix = tensor.split(".")
    return OSS_NAMES.get(tensor) or f"{NAMES[part]}.{suffix}", value


def hugging_face_weights(values, config):
    if config["model_type"] in OWN_GGUF:
        own = OWN_GGUF[config["model_type"]].hugging_face_weights(values, config)
        return {name: torch.from_numpy(value.copy()) for name, value in own.items()}
    gemma = "gemma" in config["model_type"]
    names = FAMILY_NAMES.get(config["model_type"], NAMES)
    result = {}
    for name, value in values.items():
        if name == "rope_freqs.weight":
            continue
        if gemma and "norm" in name:
            value = value - 1.0  # the file has one added
        if name.startswith("blk."):
            if int(name.split(".")[1]) >= config["num_hidden_layers"]:
                continue
            _, index, part = name.split(".", 2)
            part, suffix = part.rsplit(".", 1)
            if part == "shortconv.conv":
                value = value[:, None, :]
            if config["model_type"] == "gpt_oss":
                entry = gpt_oss_weight(values, index, f"{part}.{suffix}")
                if entry is not None:
                    result[f"model.layers.{index}.{entry[0]}"] = entry[1]
                continue
            if part in ("ffn_up_exps", "attn_v_b"):
                continue
            if config["model_type"] == "glm" and part == "attn_qkv":
                q, kv = (config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value"))
                for own, rows in zip("qkv", numpy.split(value, [q, q + kv])):
                    result[f"model.layers.{index}.self_attn.{own}_proj.{suffix}"] = rows
                continue
            if part == "attn_k_b":
                own, both = routed_models.keys_and_values(values, index)
                result[f"model.layers.{index}.{own}"] = both
                continue
            if part == "ffn_gate_exps":
                up = values[f"blk.{index}.ffn_up_exps.weight"]
                result[f"model.layers.{index}.mlp.experts.gate_up_proj"] = numpy.concatenate([value, up], 1)
                continue
            if config["model_type"] in routed_models.ROUTED_FAMILIES and part in routed_models.NAMES:
                result[f"model.layers.{index}.{routed_models.NAMES[part]}"] = value
                continue
            if part in EXPERTS:
                shape = (1, -1) if part == "ffn_gate_inp_shexp" else value.shape
                result[f"model.layers.{index}.{EXPERTS[part]}"] = value.reshape(shape)
                continue
            if config["model_type"] in REORDERED and part in ("attn_q", "attn_k"):
                heads = "num_attention_heads" if part == "attn_q" else "num_key_value_heads"
                value = to_halves(value, config[heads])
            result[f"model.layers.{index}.{names[part]}.{suffix}"] = value
        else:
            whole = {"token_embd.weight": "model.embed_tokens.weight",
                     "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight",
                     "token_embd_norm.weight": "model.embedding_norm.weight"}
            result[whole[name]] = value
    if config["model_type"] == "granitemoe":
        result = {name.replace("mlp.gate.", "block_sparse_moe.router.").replace("mlp.", "block_sparse_moe."): value
                  for name, value in result.items()}
    return {name: torch.from_numpy(value.copy()) for name, value in result.items()}


GGUF_ARCHITECTURES = {**routed_models.ARCHITECTURES, "lfm2": "lfm2", "granitemoe": "granitemoe", "ministral3": "mistral3", "seed_oss": "seed_oss", "ernie4_5": "ernie4_5", "olmo3": "olmo2", "olmoe": "olmoe", "gpt_oss": "gpt-oss", "gemma2": "gemma2", "phi3": "phi3", "glm": "chatglm", "glm4": "glm4", "granite": "granite",
                      "smollm3": "smollm3", "cohere": "command-r", "cohere2": "cohere2",
                      "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}
Q = TYPES
# name: (config of the reference, types cycled over the matrices of each layer, type of the embedding)
GGUF_MODELS = {
    # Every served type once, q and k interleaved, Llama 3's frequencies as factors.
    "gguf-llama-all-types": (
        llama(num_attention_heads=4, num_key_value_heads=1, head_dim=64,
              rope_theta=500000.0, rope_scaling={"rope_type": "llama3", **LLAMA3},
              tie_word_embeddings=False) | {"hidden_size": 256, "intermediate_size": 256},
        [[Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0],
         [Q.Q5_1, Q.F16, Q.BF16, Q.F32, Q.Q6_K, Q.Q4_K, Q.Q5_K]], Q.Q8_0),
    "gguf-llama-few-bits": (
        llama(num_attention_heads=4, num_key_value_heads=1, head_dim=64, rope_theta=10000.0,
              tie_word_embeddings=True)
        | {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1},
        [[Q.Q2_K, Q.Q3_K, Q.IQ4_NL, Q.IQ4_XS, Q.MXFP4, Q.Q2_K, Q.Q3_K]], Q.Q8_0),
    # Grids and ternary numbers, also looked up as embeddings and as the head.
    "gguf-llama-grids": (
        llama(num_attention_heads=4, num_key_value_heads=1, head_dim=64, rope_theta=10000.0,
              tie_word_embeddings=True) | {"hidden_size": 256, "intermediate_size": 256},
        [[Q.IQ1_S, Q.IQ1_M, Q.IQ2_XXS, Q.IQ2_XS, Q.IQ2_S, Q.IQ3_XXS, Q.IQ3_S],
         [Q.TQ1_0, Q.TQ2_0, Q.IQ1_M, Q.IQ3_XXS, Q.IQ1_S, Q.TQ1_0, Q.IQ2_XS]], Q.IQ3_S),
    # Some matrices with one more scale; the head is the embedding.
    "gguf-llama-nvfp4": (
        llama(num_attention_heads=2, num_key_value_heads=1, head_dim=32, rope_theta=10000.0,
              tie_word_embeddings=True) | {"intermediate_size": 64},
        [[Q.NVFP4]] * 2, Q.Q8_0),
    "gguf-qwen2": (
        model("Qwen2ForCausalLM", "qwen2", num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rope_theta=1000000.0, rms_norm_eps=1e-6, tie_word_embeddings=True),
        [[Q.Q8_0, Q.Q5_0, Q.Q4_0]] * 2, Q.Q8_0),
    "gguf-qwen3": (
        model("Qwen3ForCausalLM", "qwen3", num_attention_heads=4, num_key_value_heads=1, head_dim=32,
              rope_theta=1000000.0, rms_norm_eps=1e-6, tie_word_embeddings=False),
        [[Q.Q4_1, Q.Q8_0, Q.Q5_1]] * 2, Q.F16),
    # Experts in MXFP4, as published.
    "gguf-gpt-oss": (gpt_oss(num_attention_heads=4, num_key_value_heads=1, head_dim=32)
                     | {"intermediate_size": 64}, [[Q.Q8_0, Q.MXFP4, Q.MXFP4, Q.MXFP4]] * 2, Q.Q8_0),
    "gguf-phi4-longrope": (
        model("Phi3ForCausalLM", "phi3", num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
              head_dim=16, rope_theta=10000.0, partial_rotary_factor=0.75, sliding_window=None, pad_token_id=0,
              original_max_position_embeddings=32,
              rope_scaling={"type": "longrope", "long_factor": factors(6, 4.0), "short_factor": factors(6, 0.5)},
              tie_word_embeddings=True), [[Q.Q8_0, Q.Q5_0]] * 2, Q.Q8_0),
    "gguf-ministral3": (
        ministral3(num_attention_heads=4, num_key_value_heads=2, head_dim=32, tie_word_embeddings=False),
        [[Q.Q8_0, Q.Q4_0]] * 2, Q.Q8_0),
    "gguf-olmo3": (olmo(3, num_attention_heads=4, num_key_value_heads=2, head_dim=16, sliding_window=12,
                        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128})
                   | {"num_hidden_layers": 4}, [[Q.Q8_0, Q.Q4_0]] * 4, Q.Q8_0),
    "gguf-olmoe": (olmo("e", num_attention_heads=4, num_key_value_heads=4, head_dim=16, num_experts=5,
                        num_experts_per_tok=2, norm_topk_prob=False) | {"intermediate_size": 64},
                   [[Q.Q8_0, Q.Q5_1]] * 2, Q.Q8_0),
    "gguf-gemma2": (gemma2(num_attention_heads=4, num_key_value_heads=1, head_dim=32,
                           query_pre_attn_scalar=32, tie_word_embeddings=True),
                    [[Q.Q8_0, Q.Q5_0]] * 3, Q.Q8_0),
    "gguf-phi3": (
        model("Phi3ForCausalLM", "phi3", num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
              head_dim=32, rope_theta=10000.0, partial_rotary_factor=0.75, sliding_window=15, pad_token_id=0,
              tie_word_embeddings=False), [[Q.Q8_0, Q.Q4_0, Q.Q5_0]] * 2, Q.Q8_0),
    # GLM-4 9B. Files of it have q, k and v in one tensor or in three: the first layer here and the second.
    "gguf-glm": (
        model("GlmForCausalLM", "glm", num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              rms_norm_eps=1e-5, rope_theta=10000.0, partial_rotary_factor=0.5, attention_bias=True,
              pad_token_id=0, tie_word_embeddings=False), [[Q.Q8_0, Q.Q5_1]] * 2, Q.Q8_0),
    "gguf-glm4": (
        model("Glm4ForCausalLM", "glm4", num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              rms_norm_eps=1e-5, rope_theta=10000.0, partial_rotary_factor=0.5, attention_bias=True,
              pad_token_id=0, tie_word_embeddings=False), [[Q.Q8_0, Q.Q5_1]] * 2, Q.Q8_0),
    "gguf-granite": (granite(num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                             tie_word_embeddings=True), [[Q.Q8_0, Q.Q4_1]] * 2, Q.Q8_0),
    "gguf-granite-moe": (
        granite(num_attention_heads=4, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
                num_local_experts=4, num_experts_per_tok=2)
        | {"architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe", "intermediate_size": 64},
        [[Q.Q8_0, Q.Q5_0]] * 2, Q.Q8_0),
    "gguf-smollm3": (
        llama(num_attention_heads=4, num_key_value_heads=2, head_dim=16, rope_theta=2000000.0, pad_token_id=0,
              tie_word_embeddings=False, use_sliding_window=False)
        | {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "num_hidden_layers": 4},
        [[Q.Q8_0, Q.Q5_0]] * 4, Q.Q8_0),
    "gguf-cohere": (cohere("CohereForCausalLM", "cohere", num_attention_heads=4, num_key_value_heads=2,
                           head_dim=16), [[Q.Q8_0, Q.Q4_0]] * 2, Q.Q8_0),
    "gguf-cohere-norms": (cohere("CohereForCausalLM", "cohere", num_attention_heads=4, num_key_value_heads=2,
                                 head_dim=16, use_qk_norm=True), [[Q.Q8_0, Q.Q5_0]] * 2, Q.Q8_0),
    "gguf-seed-oss": (
        model("SeedOssForCausalLM", "seed_oss", num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rms_norm_eps=1e-6, rope_theta=10000000.0, attention_bias=True, pad_token_id=0,
              tie_word_embeddings=False), [[Q.Q8_0, Q.Q4_0]] * 2, Q.Q8_0),
    "gguf-ernie4-5": (
        model("Ernie4_5ForCausalLM", "ernie4_5", num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rms_norm_eps=1e-5, rope_theta=500000.0, pad_token_id=0, tie_word_embeddings=True),
        [[Q.Q8_0, Q.Q5_1]] * 2, Q.Q8_0),
    "gguf-cohere2": (cohere("Cohere2ForCausalLM", "cohere2", num_attention_heads=4, num_key_value_heads=1,
                            head_dim=16, sliding_window=12) | {"num_hidden_layers": 4},
                     [[Q.Q8_0, Q.Q5_1]] * 4, Q.Q8_0),
    "gguf-mixtral": (
        experts("MixtralForCausalLM", "mixtral", num_attention_heads=4, num_key_value_heads=2,
                head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=None,
                tie_word_embeddings=False) | {"intermediate_size": 64}, [[Q.Q8_0, Q.Q4_0, Q.Q5_1]] * 2, Q.Q8_0),
    "gguf-qwen2moe": (
        experts("Qwen2MoeForCausalLM", "qwen2_moe", num_attention_heads=4, num_key_value_heads=2,
                head_dim=16, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32,
                shared_expert_intermediate_size=96, norm_topk_prob=False, tie_word_embeddings=False),
        [[Q.Q5_0, Q.Q8_0]] * 2, Q.Q8_0),
    # One layer in K formats, whose rows are whole blocks of 256.
    "gguf-qwen3moe": (
        experts("Qwen3MoeForCausalLM", "qwen3_moe", num_attention_heads=4, num_key_value_heads=1,
                head_dim=64, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=256,
                norm_topk_prob=True, tie_word_embeddings=True)
        | {"hidden_size": 256, "num_hidden_layers": 1}, [[Q.Q4_K, Q.Q6_K, Q.Q5_K]], Q.Q8_0),
    "gguf-lfm2": (
        lfm2(num_key_value_heads=2, head_dim=16, conv_L_cache=3, block_auto_adjust_ff_dim=False,
             layer_types=["conv", "full_attention", "conv"], tie_word_embeddings=True),
        [[Q.Q8_0, Q.Q4_0, Q.Q5_0]] * 3, Q.Q8_0),
    "gguf-gemma3": (
        gemma3(num_attention_heads=4, num_key_value_heads=1, head_dim=32, query_pre_attn_scalar=32,
               hidden_activation="gelu_pytorch_tanh", sliding_window=16, rope_theta=1000000.0,
               rope_local_base_freq=10000.0, tie_word_embeddings=True) | {"num_hidden_layers": 7},
        [[Q.Q5_0, Q.Q8_0, Q.Q4_0]] * 7, Q.Q8_0),
    **routed_models.gguf_models(BASE),
    **nemotron_models.gguf_models(BASE, TYPES),
    **qwen35_models.gguf_models(model, delta, TYPES),
    **granite_models.gguf_models(granite, TYPES),
    **gemma4_models.gguf_models(gemma4, TYPES),
}
# Families whose modules write their files.
OWN_GGUF = {"nemotron_h": nemotron_models, "qwen3_5_text": qwen35_models, "qwen3_5_moe_text": qwen35_models,
            "qwen3_next": qwen35_models, "granitemoehybrid": granite_models,
            "gemma4_text": gemma4_models}


def add_metadata(writer, config):
    if config["model_type"] in OWN_GGUF:
        return OWN_GGUF[config["model_type"]].add_metadata(writer, config)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"] + config.get("num_nextn_predict_layers", 0))
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    if config["model_type"] in routed_models.LATENT_FAMILIES:
        routed_models.add_latent_metadata(writer, config)
    else:
        if "conv_L_cache" in config:
            writer.add_head_count_kv([0 if kind == "conv" else config["num_key_value_heads"]
                                      for kind in config["layer_types"]])
            writer.add_shortconv_l_cache(config["conv_L_cache"])
        else:
            writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    writer.add_rope_freq_base(config.get("rope_theta") or rope["rope_theta"])
    if "layer_norm_eps" in config:
        writer.add_layer_norm_eps(config["layer_norm_eps"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps" if "rms_norm_eps" in config else "norm_eps"])
    if "partial_rotary_factor" in config:
        writer.add_rope_dimension_count(int(config["head_dim"] * config["partial_rotary_factor"]))
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if "llama_4_scaling_beta" in rope:
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if "long_factor" in rope:
        original = config["original_max_position_embeddings"]
        stretch = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors((1 + math.log(stretch) / math.log(original)) ** 0.5)
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", numpy.array(rope[f"{kind}_factor"], numpy.float32))
    if config["model_type"] == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
    if "embedding_multiplier" in config:
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if "logit_scale" in config:
        writer.add_logit_scale(config["logit_scale"])
    if config["model_type"] in routed_models.ROUTED_FAMILIES:
        return routed_models.add_metadata(writer, config)
    if expert_count(config) > 0:
        writer.add_expert_count(expert_count(config))
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])


def write_gguf(folder, config, kinds, embedding, seed):
    rng = numpy.random.default_rng(seed)
    module = OWN_GGUF.get(config["model_type"])
    architecture = module.architecture(config) if module else GGUF_ARCHITECTURES[config["model_type"]]
    writer = Writer(folder / "model.gguf", architecture, rng)
    add_metadata(writer.writer, config)
    writer.add("token_embd.weight", (VOCAB, config["hidden_size"]), embedding, 0.0,
               0.08 if "gemma" in config["model_type"] else 0.25)
    final_norm = "token_embd_norm" if config["model_type"] == "lfm2" else "output_norm"
    writer.add(f"{final_norm}.weight", (config["hidden_size"],), TYPES.F32, 1.0, 0.2)
    if not config["tie_word_embeddings"]:
        writer.add("output.weight", (VOCAB, config["hidden_size"]), TYPES.Q8_0)
    if config["model_type"] == "gemma4_text":
        gemma4_models.add_whole(writer, config, embedding, TYPES.F32)
    for index in range(config["num_hidden_layers"]):
        add_layer(writer, index, config, kinds[index])
    routed_models.add_further_layers(writer, config)
    return writer


def make_gguf(name):
    config, kinds, embedding = GGUF_MODELS[name]
    folder = HERE / name
    for seed in range(1, 100):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        writer = write_gguf(folder, config, kinds, embedding, seed)
        (folder / "config.json").write_text(json.dumps(config))
        parsed = transformers.AutoConfig.from_pretrained(folder)
        (folder / "config.json").unlink()
        network = transformers.AutoModelForCausalLM.from_config(parsed, attn_implementation="eager")
        if config.get("rope_scaling", {}).get("rope_type") == "llama3":
            plain = 1.0 / config["rope_theta"] ** (
                torch.arange(0, config["head_dim"], 2).float() / config["head_dim"])
            factors = (plain / network.model.rotary_emb.inv_freq).numpy().astype(numpy.float32)
            writer.writer.add_tensor("rope_freqs.weight", factors)
        writer.save()
        missing = network.load_state_dict(hugging_face_weights(writer.values, config), strict=False)
        allowed = {"lm_head.weight"} if config["tie_word_embeddings"] else set()
        assert set(missing.missing_keys) <= allowed and not missing.unexpected_keys, missing
        network.tie_weights()
        network = network.float().eval()
        gaps = RouterGaps(network)
        prompt = torch.randint(3, VOCAB, (PROMPT,), generator=torch.Generator().manual_seed(seed))
        tokens, smallest = greedy(network, prompt.tolist())
        if smallest >= MIN_GAP and gaps.smallest >= MIN_ROUTER_GAP and len(set(tokens[PROMPT:])) >= 8:
            write_golden(folder, network, tokens, smallest)
            return seed
    raise SystemExit(f"{name}: no seed keeps the two best logits apart")


def make_all(here, names, make):
    """The fixtures of the command line, or all; `make` returns a fixture's seed."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or names:
        seed = make(name)
        size = sum(file.stat().st_size for file in (here / name).iterdir())
        print(f"{name}: seed {seed}, {size} bytes", flush=True)


def main():
    for module in (torch, transformers, safetensors, numpy):
        found = module.__version__.split("+")[0]
        if found != VERSIONS[module.__name__]:
            raise SystemExit(f"{module.__name__} is {found}, the goldens come from {VERSIONS[module.__name__]}")
    make_all(HERE, [*CHECKPOINTS, *GGUF_MODELS],
             lambda name: make_checkpoint(name) if name in CHECKPOINTS else make_gguf(name))


if __name__ == "__main__":
    main()
