"""Make the tiny checkpoints of tests/goldens/models and their fp32 logits, with transformers as the oracle.

usage: make_model_goldens.py OUT_DIR [--llama-cpp CHECKOUT] [--llama-quantize PROGRAM] [--only NAME,NAME]

Each checkpoint has random weights, large enough that every tensor and every setting moves the logits: random norm
weights and biases, tight soft caps, windows shorter than the prompts, rope scaling with a short original length.
For NAME it writes the checkpoint (folder NAME/, or gguf/NAME.gguf made by llama.cpp's converter), NAME.json
(the prompts' ids and what the checkpoint is there for) and NAME.bin: the logits as little-endian float32, the rows
of all positions of all prompts in order, `vocab` values a row.

Needs torch, transformers >= 5.17, tokenizers, sentencepiece, safetensors; gguf files also a llama.cpp checkout.
"""

import argparse
import contextlib
import copy
import json
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

VOCAB = 288  # 256 bytes, two special tokens, one merge, and ids that no tokenizer knows
SENTENCEPIECE_VOCAB = 320

BASE = dict(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5,
    bos_token_id=256, eos_token_id=257, pad_token_id=None, tie_word_embeddings=False)


def rope(theta=10000.0, kind="default", **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


LLAMA3 = rope(500000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
LINEAR = rope(10000.0, "linear", factor=4.0)
YARN = rope(10000.0, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=16)
ODD = dict(num_attention_heads=3, num_key_value_heads=1, hidden_size=60)  # also no multiple of a vector

# name: (class prefix, settings over BASE, how it is stored: dtype, config style, shards)
MODELS = {
    "llama_rope3": ("Llama", dict(rope_parameters=LLAMA3), dict(style="flat", shard="120KB")),
    "llama_tied": ("Llama", dict(rope_parameters=rope(), tie_word_embeddings=True), dict(dtype="bfloat16")),
    "llama_bias": ("Llama", dict(rope_parameters=rope(), attention_bias=True, mlp_bias=True, head_dim=24, **ODD),
                   dict(dtype="float16", style="flat")),
    "llama_linear": ("Llama", dict(rope_parameters=LINEAR), dict(dtype="bfloat16", style="flat")),
    "llama_dynamic": ("Llama", dict(rope_parameters=rope(10000.0, "dynamic", factor=2.0),
                                    max_position_embeddings=24), dict(dtype="bfloat16")),
    "llama_yarn": ("Llama", dict(rope_parameters=YARN), dict(dtype="bfloat16", style="flat")),
    "llama_yarn_nested": ("Llama", dict(rope_parameters=YARN | dict(attention_factor=1.25), head_dim=32, **ODD),
                          dict(dtype="bfloat16")),
    "mistral_window": ("Mistral", dict(rope_parameters=rope(), sliding_window=12, head_dim=24, **ODD), {}),
    # One layer, so that the last position sees exactly the window's tokens.
    "mistral_one_layer": ("Mistral", dict(rope_parameters=rope(), sliding_window=8, num_hidden_layers=1),
                          dict(dtype="bfloat16", style="flat")),
    "qwen2": ("Qwen2", dict(rope_parameters=rope(1000000.0), tie_word_embeddings=True), dict(style="flat")),
    "qwen2_window": ("Qwen2", dict(rope_parameters=rope(1000000.0), use_sliding_window=True, sliding_window=7,
                                   max_window_layers=1), dict(dtype="bfloat16", shard="60KB")),
    "qwen3": ("Qwen3", dict(rope_parameters=rope(1000000.0), head_dim=32, **ODD), dict(dtype="bfloat16")),
    "qwen3_tied": ("Qwen3", dict(rope_parameters=rope(1000000.0), tie_word_embeddings=True), dict(style="flat")),
    "gemma2": ("Gemma2", dict(rope_parameters=rope(), head_dim=24, query_pre_attn_scalar=40, sliding_window=10,
                              attn_logit_softcapping=4.0, final_logit_softcapping=6.0, tie_word_embeddings=True,
                              num_hidden_layers=3, **ODD), dict(style="flat")),
    "gemma3": ("Gemma3Text", dict(
        rope_parameters=dict(full_attention=rope(1000000.0), sliding_attention=rope(10000.0)), head_dim=32,
        query_pre_attn_scalar=20, sliding_window=9, tie_word_embeddings=True, num_hidden_layers=4,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], **ODD),
        dict(dtype="bfloat16")),
    "gemma3_linear": ("Gemma3Text", dict(
        rope_parameters=dict(full_attention=rope(1000000.0, "linear", factor=8.0), sliding_attention=rope(10000.0)),
        query_pre_attn_scalar=16, sliding_window=9, tie_word_embeddings=True, num_hidden_layers=4,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]),
        dict(dtype="bfloat16", style="flat", pattern=3)),
}

PARTIAL = dict(partial_rotary_factor=0.5)
MROPE = dict(partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=24,
             linear_conv_kernel_dim=4)
LINEAR_FULL_LINEAR = ["linear_attention", "full_attention", "linear_attention"]

# Experts, Gated DeltaNet and gated attention: every kind of layer, more value heads than key heads, values wider than
# keys. `wider`: stored as a part of a model with vision, whose other tensors a text model skips.
MODELS |= {
    "qwen3_moe": ("Qwen3Moe", dict(rope_parameters=rope(1000000.0), head_dim=32, num_hidden_layers=3,
                                   mlp_only_layers=[1], norm_topk_prob=True, **EXPERTS),
                  dict(dtype="bfloat16", style="flat")),
    "qwen3_moe_step": ("Qwen3Moe", dict(rope_parameters=rope(1000000.0), decoder_sparse_step=2, norm_topk_prob=False,
                                        tie_word_embeddings=True, **EXPERTS, **ODD), dict(dtype="bfloat16")),
    "mixtral": ("Mixtral", dict(rope_parameters=rope(1000000.0), sliding_window=11, num_local_experts=5,
                                num_experts_per_tok=3, intermediate_size=24), dict(dtype="bfloat16", style="flat")),
    "qwen3_next": ("Qwen3Next", dict(rope_parameters=rope(1000000.0, **PARTIAL), head_dim=32, num_hidden_layers=4,
                                     layer_types=["linear_attention", "full_attention"] * 2, mlp_only_layers=[2],
                                     shared_expert_intermediate_size=40, norm_topk_prob=True, **EXPERTS, **DELTA),
                   dict(dtype="bfloat16", style="flat", interval=2)),
    "qwen3_next_bias": ("Qwen3Next", dict(rope_parameters=rope(), head_dim=16, num_hidden_layers=2,
                                          layer_types=LINEAR_FULL_LINEAR[:2], attention_bias=True,
                                          decoder_sparse_step=2, shared_expert_intermediate_size=24,
                                          norm_topk_prob=False, **EXPERTS, **DELTA, **ODD), dict(dtype="float16")),
    "qwen3_5": ("Qwen3_5Text", dict(rope_parameters=rope(1000000.0, **MROPE), head_dim=32, num_hidden_layers=3,
                                    layer_types=LINEAR_FULL_LINEAR, tie_word_embeddings=True,
                                    **DELTA | dict(linear_conv_kernel_dim=3)),
                dict(dtype="bfloat16", wider=("Qwen3_5ForConditionalGeneration", "qwen3_5"))),
    "qwen3_5_moe": ("Qwen3_5MoeText", dict(
        rope_parameters=rope(1000000.0, **MROPE), head_dim=32, num_hidden_layers=3, layer_types=LINEAR_FULL_LINEAR,
        shared_expert_intermediate_size=40, **EXPERTS, **DELTA),
        dict(dtype="bfloat16", wider=("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"), tie=True)),
    "qwen3_5_moe_text": ("Qwen3_5MoeText", dict(
        rope_parameters=rope(1000000.0, **MROPE), head_dim=16, num_hidden_layers=2, layer_types=LINEAR_FULL_LINEAR[:2],
        shared_expert_intermediate_size=24, **EXPERTS, **DELTA), dict(dtype="bfloat16", fused_experts=True)),
}

# Sinks, clamped experts with biases, every other layer a window; rope as published, whose ramp is not rounded.
GPT_OSS = dict(rope_parameters=YARN | dict(truncate=False), head_dim=16, hidden_size=32, sliding_window=9,
               num_hidden_layers=3, num_local_experts=4, num_experts_per_tok=2, intermediate_size=20)
MODELS |= {
    "gpt_oss": ("GptOss", GPT_OSS, dict(dtype="bfloat16", style="flat")),
    "gpt_oss_odd": ("GptOss", GPT_OSS | dict(num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, hidden_size=36,
                                         num_experts_per_tok=3), dict(dtype="float16")),
}

# Llama's layers with something of their own. LongRoPE's list goes by the context: the first two prompts are short.
def longrope(pairs):
    return rope(10000.0, "longrope", short_factor=[1.0 + 0.1 * i for i in range(pairs)],
                long_factor=[1.5 + 0.7 * i for i in range(pairs)], original_max_position_embeddings=16)


PHI3_LONG = dict(rope_parameters=longrope(6) | dict(partial_rotary_factor=0.75), max_position_embeddings=64,
                 original_max_position_embeddings=16, tie_word_embeddings=True)
GRANITE = dict(rope_parameters=rope(), embedding_multiplier=3.0, attention_multiplier=0.15, residual_multiplier=0.4,
               logits_scaling=2.0)
OLMO3 = dict(rope_parameters=dict(full_attention=YARN | dict(rope_theta=500000.0), sliding_attention=rope(500000.0)),
             sliding_window=9, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
GLM4_MOE = dict(
    rope_parameters=rope(**PARTIAL), n_routed_experts=8, num_experts_per_tok=3,
    moe_intermediate_size=16, n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True, use_qk_norm=True,
    routed_scaling_factor=1.5)
MODELS |= {
    "phi3": ("Phi3", dict(rope_parameters=rope(), sliding_window=11), dict(dtype="bfloat16", style="flat")),
    "phi3_long": ("Phi3", PHI3_LONG, dict(dtype="bfloat16")),
    "olmo2": ("Olmo2", dict(rope_parameters=rope(100.0), attention_bias=True, head_dim=24,
                            **ODD | dict(hidden_size=72)),
              dict(dtype="bfloat16", style="flat")),
    "olmo3": ("Olmo3", OLMO3, dict(dtype="bfloat16")),
    "granite": ("Granite", GRANITE | dict(tie_word_embeddings=True), dict(dtype="bfloat16", style="flat")),
    "granite_bias": ("Granite", GRANITE | dict(attention_bias=True, mlp_bias=True), dict(dtype="bfloat16")),
    "granite_moe": ("GraniteMoe", GRANITE | dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=24),
                    dict(dtype="bfloat16")),
    "glm4": ("Glm4", dict(rope_parameters=rope(**PARTIAL)), dict(dtype="bfloat16", style="flat")),
    "glm4_moe": ("Glm4Moe", GLM4_MOE | dict(n_group=4, topk_group=2), dict(dtype="bfloat16", style="flat")),
    "glm4_moe_bias": ("Glm4Moe", GLM4_MOE | dict(use_qk_norm=False, attention_bias=True, norm_topk_prob=False),
                      dict(dtype="bfloat16", tie=True)),
    "smollm3": ("SmolLM3", dict(rope_parameters=rope(2000000.0), num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0],
                                tie_word_embeddings=True), dict(dtype="bfloat16", style="flat")),
    "smollm3_interval": ("SmolLM3", dict(rope_parameters=rope(2000000.0), num_hidden_layers=3,
                                         no_rope_layer_interval=3), dict(dtype="bfloat16")),
    # As embedding models are stored: the body alone, whose names lack "model.".
    "qwen3_headless": ("Qwen3", dict(rope_parameters=rope(1000000.0), tie_word_embeddings=True),
                       dict(dtype="bfloat16", headless=True)),
    "starcoder2": ("Starcoder2", dict(rope_parameters=rope(), sliding_window=11, norm_epsilon=1e-3,
                                      tie_word_embeddings=True), dict(dtype="bfloat16", style="flat")),
    "starcoder2_plain": ("Starcoder2", dict(rope_parameters=rope(), use_bias=False), dict(dtype="bfloat16")),
}

# Latent attention: with and without a rank of queries, experts in groups, scaled rope in the scores' scale.
MLA = dict(kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=20, n_routed_experts=8, num_experts_per_tok=3,
           moe_intermediate_size=16, n_shared_experts=2, first_k_dense_replace=1, num_key_value_heads=4, head_dim=8,
           hidden_size=48, intermediate_size=48)
MSCALE = YARN | dict(mscale=0.707, mscale_all_dim=0.707)
WHOLE_BLOCKS = dict(kv_lora_rank=32, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, v_head_dim=32,
                    n_shared_experts=1, num_attention_heads=3, num_key_value_heads=3)  # rows of 32s, as FP8 wants them
MODELS |= {
    "deepseek_v3_fp8": ("DeepseekV3", MLA | WHOLE_BLOCKS | dict(rope_parameters=rope(), q_lora_rank=32, n_group=4,
                                                                topk_group=2, norm_topk_prob=True),
                        dict(dtype="bfloat16", fp8=[40, 64])),
    "deepseek_v3_fp8_q": ("DeepseekV3", MLA | WHOLE_BLOCKS | dict(rope_parameters=rope(), q_lora_rank=None, n_group=1,
                                                                  topk_group=1),
                          dict(dtype="bfloat16", fp8=[128, 128])),
    "deepseek_v2": ("DeepseekV2", MLA | dict(rope_parameters=MSCALE, q_lora_rank=28, topk_method="group_limited_greedy",
                                             n_group=4, topk_group=2, routed_scaling_factor=4.0),
                    dict(dtype="bfloat16", style="flat")),
    "deepseek_v2_lite": ("DeepseekV2", MLA | dict(rope_parameters=rope(), q_lora_rank=None, topk_method="greedy",
                                                  num_attention_heads=3, num_key_value_heads=3, hidden_size=36),
                         dict(dtype="float16")),
    "deepseek_v3": ("DeepseekV3", MLA | dict(rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0), q_lora_rank=28,
                                             n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5),
                    dict(dtype="bfloat16", style="flat")),
    "deepseek_v3_halves": ("DeepseekV3", MLA | dict(rope_parameters=rope(), q_lora_rank=None, n_group=1, topk_group=1,
                                                    norm_topk_prob=False, rope_interleave=False, attention_bias=True),
                           dict(dtype="bfloat16")),
}

# Inputs a layer, later layers that read an earlier one's keys and have wider MLPs; keys that are values too, and
# experts beside the MLP; heads of layers without a window are of another size and number everywhere.
GEMMA4 = dict(rope_parameters=dict(
    full_attention=rope(1000000.0, "proportional", partial_rotary_factor=0.25), sliding_attention=rope(10000.0)),
    head_dim=16, global_head_dim=32, sliding_window=9, tie_word_embeddings=True, final_logit_softcapping=6.0,
    vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=0, hidden_size=48, intermediate_size=40, pad_token_id=0)
SLIDING_FULL = ["sliding_attention", "full_attention"]
GEMMA4_EXPERTS = dict(attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=6,
                      top_k_experts=2, moe_intermediate_size=24, num_hidden_layers=2, layer_types=SLIDING_FULL)
GEMMA4_GGUF = dict(hidden_size=32, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1,
                   vocab_size=259, vocab_size_per_layer_input=259)  # its converter cuts what the tokenizer lacks
GEMMA4_SHARED = dict(hidden_size_per_layer_input=8, num_kv_shared_layers=2, use_double_wide_mlp=True, num_attention_heads=2,
                     num_key_value_heads=1,
                     num_hidden_layers=4, layer_types=SLIDING_FULL * 2)
MODELS |= {
    "gemma4": ("Gemma4Text", GEMMA4 | GEMMA4_SHARED,
               dict(dtype="bfloat16", wider=("Gemma4ForConditionalGeneration", "gemma4"), exact=True)),
    "gemma4_k_eq_v": ("Gemma4Text", GEMMA4 | dict(
        attention_k_eq_v=True, num_global_key_value_heads=1, attention_bias=True, final_logit_softcapping=None,
        tie_word_embeddings=False, num_hidden_layers=3, layer_types=["sliding_attention"] + SLIDING_FULL,
        num_key_value_heads=3, num_attention_heads=3, hidden_size=36), dict(dtype="float16")),
    "gemma4_moe": ("Gemma4Text", GEMMA4 | GEMMA4_EXPERTS, dict(dtype="bfloat16")),
    # Heads as large as published ones.
    "gemma4_heads512": ("Gemma4Text", GEMMA4 | dict(
        attention_k_eq_v=True, num_global_key_value_heads=1, global_head_dim=512, head_dim=256, num_attention_heads=2,
        num_key_value_heads=2, num_hidden_layers=2, layer_types=SLIDING_FULL, hidden_size=16, intermediate_size=24),
        dict(dtype="bfloat16")),
}

# Layers that see the chunk they are in and rotate beside those that see all, unrotated, with queries that grow with
# the position; experts whose input is scaled.
LLAMA4 = dict(rope_parameters=LLAMA3, num_hidden_layers=3, no_rope_layer_interval=2, interleave_moe_layer_step=2,
              attention_chunk_size=9, floor_scale=8, attn_scale=0.5, num_local_experts=3, intermediate_size=24,
              intermediate_size_mlp=40, hidden_size=48)
MODELS |= {
    "llama4": ("Llama4Text", LLAMA4, dict(dtype="bfloat16", wider=("Llama4ForConditionalGeneration", "llama4"), exact=True)),
    "llama4_flat": ("Llama4Text", LLAMA4 | dict(rope_parameters=rope(500000.0), num_hidden_layers=2,
                                                no_rope_layers=[0, 1], moe_layers=[0], attn_temperature_tuning=False),
                    dict(dtype="bfloat16", style="flat")),
    "llama4_several": ("Llama4Text", LLAMA4 | dict(num_hidden_layers=2, interleave_moe_layer_step=1, num_local_experts=5,
                                                   num_experts_per_tok=2, intermediate_size=16), dict(dtype="bfloat16")),
    "llama4_plain": ("Llama4Text", LLAMA4 | dict(
        rope_parameters=rope(500000.0), num_hidden_layers=3, no_rope_layers=[1, 1, 1], moe_layers=[1],
        layer_types=["chunked_attention", "full_attention", "full_attention"], use_qk_norm=False,
        attention_bias=True, **ODD | dict(hidden_size=36)), dict(dtype="float16")),
}

# A gate on what attention gives, heads that differ by layer, a rope for each kind of layer, experts by sigmoid and bias.
FULL_SLIDING = ["full_attention", "sliding_attention", "sliding_attention"]
LAGUNA_ROPES = dict(full_attention=YARN | dict(rope_theta=500000.0, partial_rotary_factor=0.5),
                    sliding_attention=rope(100.0, partial_rotary_factor=1.0))
LAGUNA = dict(num_hidden_layers=3, rope_parameters=LAGUNA_ROPES, layer_types=FULL_SLIDING, sliding_window=9,
              num_attention_heads_per_layer=[4, 2, 6], shared_expert_intermediate_size=40, moe_routed_scaling_factor=2.5,
              mlp_layer_types=["dense", "sparse", "sparse"], **EXPERTS)
MODELS |= {
    "laguna": ("Laguna", LAGUNA | dict(mlp_layer_types=["sparse", "dense", "sparse"]), dict(dtype="bfloat16")),
    "laguna_wide": ("Laguna", dict(gating="per-element", attention_bias=True, moe_router_logit_softcapping=1.5,
                                   shared_expert_intermediate_size=24, **EXPERTS), dict(dtype="float16", tie=True)),
}

# Attention and MLP side by side, norms without a bias, only the layers that slide rotate.
COHERE2 = dict(rope_parameters=rope(), sliding_window=9, num_hidden_layers=4, layer_norm_eps=1e-3)
MODELS |= {
    "cohere2": ("Cohere2", COHERE2 | dict(logit_scale=0.25, tie_word_embeddings=True),
                dict(dtype="bfloat16", style="flat", pattern=4)),
    "cohere2_bias": ("Cohere2", COHERE2 | dict(num_hidden_layers=2, layer_types=["sliding_attention"] * 2,
                                               attention_bias=True, **ODD | dict(hidden_size=72)), dict(dtype="bfloat16")),
}

# Neighbours rotate; experts are ranked by softmax and a bias.
ERNIE_MOE = dict(rope_parameters=rope(500000.0), num_hidden_layers=3, moe_num_experts=6, moe_k=2,
                 moe_intermediate_size=24, moe_num_shared_experts=2)
MODELS |= {
    "ernie4_5": ("Ernie4_5", dict(rope_parameters=rope(500000.0), tie_word_embeddings=True),
                 dict(dtype="bfloat16", style="flat")),
    "ernie4_5_bias": ("Ernie4_5", dict(rope_parameters=rope(500000.0), use_bias=True), dict(dtype="bfloat16")),
    "ernie4_5_moe": ("Ernie4_5_Moe", ERNIE_MOE | dict(tie_word_embeddings=True), dict(dtype="bfloat16", style="flat")),
    "ernie4_5_moe_some": ("Ernie4_5_Moe", ERNIE_MOE | dict(
        num_hidden_layers=4, moe_num_shared_experts=0, moe_layer_interval=2, moe_layer_start_index=0,
        moe_layer_end_index=2, use_bias=True), dict(dtype="bfloat16")),
}

# As published: experts in blocks of 32 four-bit floats with an exponent each.
MODELS |= {"gpt_oss_mxfp4": ("GptOss", GPT_OSS | dict(num_hidden_layers=2, intermediate_size=32),
                             dict(dtype="bfloat16", style="flat", mxfp4=True))}

# GGUF has no field for Gemma's query scale (it is 1/sqrt(head_dim) but in the 27B models) nor, as its converter
# writes it, for Gemma 3's pattern of layers (every sixth is global), so these keep to both.
SP = dict(vocab_size=SENTENCEPIECE_VOCAB, bos_token_id=2, eos_token_id=1)
GGUF_MODELS = {
    "gguf_llama_rope3": ("Llama", dict(rope_parameters=LLAMA3), dict(pre="llama-bpe")),
    "gguf_llama_yarn": ("Llama", dict(rope_parameters=YARN, head_dim=32, **ODD), dict(pre="llama-bpe")),
    "gguf_llama_linear": ("Llama", dict(rope_parameters=LINEAR, tie_word_embeddings=True), dict(pre="llama-bpe")),
    "gguf_qwen2": ("Qwen2", dict(rope_parameters=rope(1000000.0), tie_word_embeddings=True), dict(pre="qwen2")),
    "gguf_qwen3": ("Qwen3", dict(rope_parameters=rope(1000000.0), head_dim=32, **ODD), dict(pre="qwen2")),
    "gguf_gemma2": ("Gemma2", dict(
        rope_parameters=rope(), query_pre_attn_scalar=16, sliding_window=10, attn_logit_softcapping=4.0,
        final_logit_softcapping=6.0, tie_word_embeddings=True, **SP), dict(sentencepiece=True)),
    "gguf_gemma3": ("Gemma3Text", dict(
        rope_parameters=dict(full_attention=rope(1000000.0, "linear", factor=8.0), sliding_attention=rope(10000.0)),
        query_pre_attn_scalar=16, sliding_window=9, tie_word_embeddings=True, num_hidden_layers=7,
        intermediate_size=48, layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"], **SP),
        dict(sentencepiece=True)),
}


# llama.cpp's graphs have experts in every layer, weights that sum to 1, and values as wide as keys.
GGUF_DELTA = DELTA | dict(linear_value_head_dim=16)
GGUF_EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
GGUF_MODELS |= {
    "gguf_qwen3_moe": ("Qwen3Moe", dict(rope_parameters=rope(1000000.0), head_dim=32, norm_topk_prob=True,
                                        **GGUF_EXPERTS), dict(pre="qwen2")),
    "gguf_mixtral": ("Mixtral", dict(rope_parameters=rope(1000000.0), num_local_experts=5, num_experts_per_tok=3,
                                     intermediate_size=24), dict(pre="llama-bpe")),
    "gguf_qwen3_next": ("Qwen3Next", dict(
        rope_parameters=rope(1000000.0, **PARTIAL), head_dim=32, num_hidden_layers=3, layer_types=LINEAR_FULL_LINEAR,
        shared_expert_intermediate_size=40, norm_topk_prob=True, **GGUF_EXPERTS, **GGUF_DELTA), dict(pre="qwen2")),
    "gguf_qwen3_5": ("Qwen3_5Text", dict(
        rope_parameters=rope(1000000.0, **MROPE), head_dim=32, num_hidden_layers=3, layer_types=LINEAR_FULL_LINEAR,
        **GGUF_DELTA), dict(pre="qwen2")),
    "gguf_qwen3_5_moe": ("Qwen3_5MoeText", dict(
        rope_parameters=rope(1000000.0, **MROPE), head_dim=32, layer_types=LINEAR_FULL_LINEAR[:2],
        shared_expert_intermediate_size=40, **GGUF_EXPERTS, **GGUF_DELTA), dict(pre="qwen2", nextn=True)),
}

SMALL_MLA = dict(hidden_size=32, intermediate_size=32, num_attention_heads=2, num_key_value_heads=2)
GGUF_MODELS |= {
    "gguf_deepseek_v2": ("DeepseekV2", MLA | SMALL_MLA | dict(rope_parameters=MSCALE, q_lora_rank=None, topk_method="greedy"),
                         dict(pre="deepseek-llm")),
    "gguf_deepseek_v3": ("DeepseekV3", MLA | SMALL_MLA | dict(rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0),
                                                  q_lora_rank=28, n_group=4, topk_group=2, norm_topk_prob=True,
                                                  routed_scaling_factor=2.5, scoring_func="sigmoid"),
                         dict(pre="deepseek-v3")),
}

GGUF_MODELS |= {"gguf_gpt_oss": ("GptOss", GPT_OSS, dict(pre="gpt-4o"))}

SMALL = dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48)
GGUF_MODELS |= {
    "gguf_phi3": ("Phi3", PHI3_LONG | SP | SMALL, dict(sentencepiece=True)),
    "gguf_olmo2": ("Olmo2", dict(rope_parameters=rope(500000.0), **SMALL), dict(pre="olmo")),
    "gguf_olmo3": ("Olmo3", OLMO3 | SMALL, dict(pre="olmo")),
    "gguf_granite": ("Granite", GRANITE | SMALL, dict(pre="refact")),
    "gguf_granite_moe": ("GraniteMoe", GRANITE | SMALL | dict(num_local_experts=5, num_experts_per_tok=2,
                                                              intermediate_size=24), dict(pre="refact")),
    "gguf_glm4": ("Glm4", dict(rope_parameters=rope(**PARTIAL), **SMALL), dict(pre="glm4")),
    "gguf_glm4_moe": ("Glm4Moe", GLM4_MOE | SMALL, dict(pre="glm4")),
    "gguf_smollm3": ("SmolLM3", dict(rope_parameters=rope(2000000.0), num_hidden_layers=4, **SMALL),
                     dict(pre="smaug-bpe")),
    "gguf_gemma4": ("Gemma4Text", GEMMA4 | GEMMA4_SHARED | GEMMA4_GGUF, dict(pre="llama-bpe")),
    "gguf_gemma4_moe": ("Gemma4Text", GEMMA4 | GEMMA4_EXPERTS | GEMMA4_GGUF | dict(num_experts=4, moe_intermediate_size=16),
                        dict(pre="llama-bpe")),
    # llama.cpp's graph takes the chunk, the growth and every fourth layer from the published models.
    "gguf_llama4": ("Llama4Text", LLAMA4 | SMALL | dict(
        num_hidden_layers=4, no_rope_layer_interval=4, attention_chunk_size=8192, floor_scale=8192, attn_scale=0.1,
        num_local_experts=2, intermediate_size=16), dict(pre="llama4")),
    "gguf_llama4_several": ("Llama4Text", LLAMA4 | SMALL | dict(
        num_hidden_layers=1, interleave_moe_layer_step=1, attention_chunk_size=8192, floor_scale=8192, attn_scale=0.1,
        no_rope_layer_interval=4, num_local_experts=4, num_experts_per_tok=2, intermediate_size=16), dict(pre="llama4")),
    "gguf_starcoder2": ("Starcoder2", dict(rope_parameters=rope(), **SMALL), dict(pre="starcoder")),
    "gguf_laguna": ("Laguna", LAGUNA | dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, layer_types=FULL_SLIDING[:2],
        num_attention_heads_per_layer=[4, 2], mlp_layer_types=["dense", "sparse"]), dict(pre="laguna")),
    "gguf_laguna_wide": ("Laguna", dict(gating="per-element", sliding_window=0, shared_expert_intermediate_size=24,
                                        **EXPERTS, **SMALL), dict(pre="laguna")),
    "gguf_cohere2": ("Cohere2", COHERE2 | SMALL | dict(tie_word_embeddings=True, rotary_pct=1.0), dict(pre="command-r")),
    "gguf_ernie4_5": ("Ernie4_5", dict(rope_parameters=rope(500000.0), **SP, **SMALL), dict(sentencepiece=True)),
    "gguf_ernie4_5_moe": ("Ernie4_5_Moe", ERNIE_MOE | SP | SMALL | dict(num_hidden_layers=2, moe_num_experts=4),
                          dict(sentencepiece=True)),
}

# Quantised by llama-quantize: wide enough for superblocks, with rows that fall back to smaller blocks.
QUANT = dict(hidden_size=256, num_hidden_layers=2, layer_types=LINEAR_FULL_LINEAR[:2], head_dim=32,
             shared_expert_intermediate_size=64, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
             linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32)
GGUF_MODELS |= {
    "gguf_qwen3_5_moe_q4_k_m": ("Qwen3_5MoeText", dict(rope_parameters=rope(1000000.0, **MROPE), **QUANT),
                                dict(pre="qwen2", quantize="Q4_K_M")),
    "gguf_qwen3_next_q5_k_m": ("Qwen3Next", dict(rope_parameters=rope(1000000.0, **PARTIAL), norm_topk_prob=True,
                                                 **QUANT), dict(pre="qwen2", quantize="Q5_K_M")),
}


# Windows shorter than the prompts, entries that an index chooses among (more than it takes), entries of many tokens;
# experts by the token and by score; clamps that are met.
V4 = dict(hidden_size=32, head_dim=16, num_attention_heads=4, num_key_value_heads=1, q_lora_rank=16, o_groups=2,
          o_lora_rank=12, qk_rope_head_dim=8, sliding_window=7, index_n_heads=8, index_head_dim=16, index_topk=1, hc_mult=3,
          hc_sinkhorn_iters=4, n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=16, intermediate_size=16,
          swiglu_limit=0.8, compress_rope_theta=4000.0, rope_parameters=YARN)
V4_RATES = dict(compressed_sparse_attention=4, heavily_compressed_attention=8)
MODELS |= {
    "deepseek_v4": ("DeepseekV4", V4 | dict(
        num_hidden_layers=3, compress_rates=V4_RATES, mlp_layer_types=["hash_moe", "moe", "moe"],
        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]),
        dict(dtype="bfloat16")),
    "deepseek_v4_fp4": ("DeepseekV4", V4 | dict(
        num_hidden_layers=1, compress_rates=V4_RATES, mlp_layer_types=["moe"], layer_types=["compressed_sparse_attention"],
        moe_intermediate_size=32, intermediate_size=32, q_lora_rank=32, o_lora_rank=16, n_routed_experts=3),
        dict(dtype="bfloat16", fp8=[24, 32])),
    "deepseek_v4_wide": ("DeepseekV4", V4 | dict(  # windows of tokens that are no divisor of blocks
        num_hidden_layers=2, compress_rates=dict(compressed_sparse_attention=3, heavily_compressed_attention=12),
        mlp_layer_types=["moe", "hash_moe"], index_topk=2, hc_mult=4, rope_parameters=None, num_attention_heads=6,
        o_groups=3, layer_types=["heavily_compressed_attention", "compressed_sparse_attention"]), dict(dtype="bfloat16")),
}


def everything(model):
    """What is learned: parameters, and the buffers that routers keep their biases in."""
    buffers = {key: t for key, t in model.named_buffers()
               if key.endswith(("e_score_correction_bias", "layer_scalar"))}
    return dict(model.named_parameters()) | buffers


def random_model(prefix, settings, seed):
    """A model of the family with weights that all matter, in float32."""
    kind = getattr(transformers, prefix + "Config")
    base = {key: v for key, v in BASE.items() if key != "rms_norm_eps" or hasattr(kind, key)}
    config = kind(**(base | settings))
    config._attn_implementation = "eager"  # the only one that applies Gemma 2's attention soft cap
    config._experts_implementation = "eager"
    name = prefix.removesuffix("Text") + "ForCausalLM"
    model = getattr(transformers, name)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    # These norms multiply by 1 + weight, but for the one that is gated.
    shifted = prefix.startswith(("Gemma2", "Gemma3", "Qwen3Next", "Qwen3_5"))
    with torch.no_grad():
        for key, tensor in everything(model).items():
            noise = torch.randn(tensor.shape, generator=generator)
            if key.endswith(("norm.weight", "norm_1.weight", "norm_2.weight", "scale", "layer_scalar")):
                tensor.copy_(0.3 * noise + (0.0 if shifted and not key.endswith("linear_attn.norm.weight") else 1.0))
            elif key.endswith("A_log"):  # some heads forget in a token, some remember the whole prompt
                tensor.copy_(noise - 1.5)
            elif key.endswith("sinks"):  # as much as several keys
                tensor.copy_(2.5 + 0.5 * noise)
            elif key.endswith("position_bias"):  # enough for an index to choose another entry
                tensor.copy_(3.0 * noise)
            elif key.endswith("bias"):  # OLMo's queries and keys are normed behind it
                tensor.copy_((1.5 if prefix == "Olmo2" else 0.5) * noise)
            elif "embed_tokens" in key:
                tensor.copy_(0.3 * noise)
            elif key.endswith("experts.gate_up_proj") and prefix == "GptOss":  # into the clamp
                tensor.copy_(5.0 * noise / tensor.shape[1] ** 0.5)
            elif key.endswith(("mlp.gate.weight", "mlp.router.weight", "router.layer.weight", "router.proj.weight",
                               "feed_forward.router.weight")):  # a router that is sure of itself: no near ties
                tensor.copy_(4.0 * noise / tensor.shape[-1] ** 0.5)
            else:  # rows of unit scale keep the activations near 1 and the attention far from uniform
                tensor.copy_(1.3 * noise / tensor.shape[-1] ** 0.5)
        for key, table in model.named_buffers():
            if key.endswith("tid2eid"):
                scores = torch.rand(table.shape[0], config.n_routed_experts, generator=generator)
                table.copy_(scores.topk(table.shape[1]).indices)
    return model


def prompts(vocab, seed):
    """Lengths below, at and above the windows and the original lengths of the scaled ropes."""
    generator = torch.Generator().manual_seed(seed + 1000)
    return [torch.randint(0, vocab, (n,), generator=generator).tolist() for n in (5, 13, 40)]


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def byte_tokenizer():
    """tokenizer.json with one token a byte, two special ones and one merge."""
    letters = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    chars = {b: chr(b) for b in letters}
    chars |= {b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in letters)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    special = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, text in enumerate(["<s>", "</s>"])]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {chars[b]: b for b in range(256)} | {"th": 258}, "merges": ["t h"]}}


def write_tokenizer(folder):
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(), ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}))


def flatten_rope(config, pattern, interval):
    """Rewrites config.json's nested rope_parameters as the flat fields that older files carry."""
    parameters = config.pop("rope_parameters")
    if "full_attention" in parameters:
        config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        parameters = parameters["full_attention"]
        config.pop("_sliding_window_pattern", None)
        config["sliding_window_pattern"] = pattern
    config.pop("layer_types", None)
    if interval:
        config["full_attention_interval"] = interval
    if "partial_rotary_factor" in parameters:
        config["partial_rotary_factor"] = parameters.pop("partial_rotary_factor")
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    config["torch_dtype"] = config.pop("dtype")
    return config


def widen(folder, config, architecture, model_type):
    """Makes a text checkpoint the text part of a multimodal one, as published: other names, and tensors of the
    vision tower and of the head that predicts further tokens, which a text model skips."""
    file = folder / "model.safetensors"
    tensors = {}
    for name, tensor in load_file(file).items():
        inner = name.removeprefix("model.").removeprefix("language_model.")
        tensors[name if name.startswith("lm_head.") else f"model.language_model.{inner}"] = tensor
    hidden = config["hidden_size"]
    tensors["model.visual.blocks.0.attn.qkv.weight"] = torch.zeros(3, 2, dtype=torch.bfloat16)
    tensors["model.visual.patch_embed.proj.bias"] = torch.zeros(2, dtype=torch.bfloat16)
    tensors["mtp.fc.weight"] = torch.zeros(hidden, 2 * hidden, dtype=torch.bfloat16)
    tensors["mtp.layers.0.input_layernorm.weight"] = torch.zeros(hidden, dtype=torch.bfloat16)
    save_file(tensors, file, metadata={"format": "pt"})
    outer = {key: config[key] for key in ["tie_word_embeddings", "transformers_version"] if key in config}
    config.pop("architectures")
    return dict(architectures=[architecture], model_type=model_type, text_config=config, image_token_id=250,
                vision_config=dict(model_type=model_type + "_vision" if "moe" in model_type else model_type,
                                   depth=1, hidden_size=2), **outer)


def fuse_experts(folder):
    """Stores the experts of a layer in one tensor, gate above up, as newer files do."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    layers = sorted({name.split(".mlp.experts.")[0] for name in tensors if ".mlp.experts.0." in name})
    for layer in layers:
        def take(name):
            found = []
            while (one := f"{layer}.mlp.experts.{len(found)}.{name}.weight") in tensors:
                found.append(tensors.pop(one))
            return torch.stack(found)
        tensors[f"{layer}.mlp.experts.gate_up_proj"] = torch.cat([take("gate_proj"), take("up_proj")], dim=1)
        tensors[f"{layer}.mlp.experts.down_proj"] = take("down_proj")
    save_file(tensors, file, metadata={"format": "pt"})


def to_mxfp4(weight):
    """Rows of a matrix [.., K] as (blocks [.., K / 32, 16], scales [.., K / 32], what they stand for)."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat([values, -values])
    groups = weight.unflatten(-1, (-1, 32))
    exponents = torch.floor(torch.log2(groups.abs().amax(-1))).clamp(min=-100) - 2
    codes = (groups.unsqueeze(-1) / 2.0 ** exponents[..., None, None] - values).abs().argmin(-1).to(torch.uint8)
    rounded = (values[codes.long()] * 2.0 ** exponents[..., None]).flatten(-2)
    return codes[..., ::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8), rounded


@torch.no_grad()
def round_experts(model):
    for key, tensor in model.named_parameters():
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensor.copy_(to_mxfp4(tensor.transpose(1, 2))[2].transpose(1, 2))


def store_mxfp4(folder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        blocks, scales, _ = to_mxfp4(tensors.pop(name).float().transpose(1, 2))
        tensors |= {name + "_blocks": blocks.contiguous(), name + "_scales": scales.contiguous()}
    save_file(tensors, file, metadata={"format": "pt"})


def to_fp8(weight, rows, columns, powers=False):
    """A matrix as 8-bit floats, a scale for each block (smaller ones at the edges), and what they stand for."""
    padded = torch.zeros(-(-weight.shape[0] // rows) * rows, -(-weight.shape[1] // columns) * columns)
    padded[:weight.shape[0], :weight.shape[1]] = weight
    blocks = padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows))
    scales = blocks.abs().amax((1, 3)) / 448
    scales = 2 ** torch.log2(scales).ceil() if powers else scales
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    rounded = (codes.float() * scales[:, None, :, None]).flatten(2).flatten(0, 1)
    cut = lambda m: m[:weight.shape[0], :weight.shape[1]].contiguous()
    return cut(codes.flatten(2).flatten(0, 1)), scales, cut(rounded)


def store_fp8(folder, block):
    """Stores the matrices of projections as 8-bit floats with scales; gives all tensors as they then are."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    values = {name: tensor.float() for name, tensor in tensors.items()}
    for name in [n for n, t in tensors.items() if t.dim() == 2 and n.endswith("_proj.weight")]:
        tensors[name], tensors[name + "_scale_inv"], values[name] = to_fp8(values[name], *block)
    save_file(tensors, file, metadata={"format": "pt"})
    return values


def store_v4(folder, block):
    """As DeepSeek-V4 is published: experts in 4 bits, the matrices around them and of attention in 8, scales that are
    powers of two."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    values = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    for name in [n for n in tensors if n.endswith(".weight") and "compressor" not in n]:
        scale = name.removesuffix("weight") + "scale"
        if ".ffn.experts." in name:
            codes, exponents, values[name] = to_mxfp4(values[name])
            tensors[name], tensors[scale] = codes.flatten(1).to(torch.uint8).view(torch.int8), exponents
        elif name.split(".")[-2] in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b", "w1", "w2", "w3"):
            tensors[name], scales, values[name] = to_fp8(values[name], *block, powers=True)
            tensors[scale] = (torch.log2(scales) + 127).round().to(torch.uint8)
    save_file(tensors, file, metadata={"format": "pt"})
    return values


def reload(folder, values=None, dtype=torch.float32):
    """The model that a checkpoint is; `values` in place of its tensors."""
    with tempfile.TemporaryDirectory() as copied:
        if values:
            save_file(values, Path(copied) / "model.safetensors", metadata={"format": "pt"})
            shutil.copy(folder / "config.json", copied)
        return transformers.AutoModelForCausalLM.from_pretrained(
            copied if values else folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()


def error_of(model, ids, rows):
    """What a model in bfloat16 is away from these rows, of a row's largest logit."""
    return max(((logits_of(model, p) - r).abs().amax(1) / r.abs().amax(1)).max().item() for p, r in zip(ids, rows))


def write_golden(out, name, path, model, purpose, halved=None):
    vocab = model.config.vocab_size
    ids = prompts(vocab, zlib.crc32(name.encode()) % 1000)
    golden = {"model": path, "about": purpose, "vocab": vocab, "prompts": ids}
    rows = [logits_of(model, p) for p in ids]
    assert all(r.isfinite().all() for r in rows)
    (out / f"{name}.bin").write_bytes(torch.cat(rows).numpy().astype("<f4").tobytes())
    if getattr(model.config, "rope_parameters", {}).get("rope_type") in ("dynamic", "longrope"):
        # The rows of a prompt hold for frequencies that are made for its length.
        golden["context_is_prompt_length"] = True
    if halved is not None:
        golden["bf16_error"] = float(f"{error_of(halved, ids, rows):.4g}")
    (out / f"{name}.json").write_text(json.dumps(golden) + "\n")
    print(f"{name}: max|logit| {torch.cat(rows).abs().max():.2f}")


def make_safetensors(out, name, seed):
    prefix, settings, how = MODELS[name]
    model = random_model(prefix, settings, seed)
    dtype = getattr(torch, how.get("dtype", "float32"))
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    with torch.no_grad():
        for tensor in everything(model).values():
            tensor.copy_(tensor.to(dtype).float())
    if how.get("mxfp4"):
        round_experts(model)
    exact = copy.deepcopy(model)
    direct = logits_of(model, prompts(VOCAB, 1)[2])
    model.to(dtype).save_pretrained(folder, max_shard_size=how.get("shard", "1GB"))
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder)
    config = json.loads((folder / "config.json").read_text())
    if how.get("style") == "flat":
        config = flatten_rope(config, how.get("pattern"), how.get("interval"))
    if "wider" in how:
        config = widen(folder, config, *how["wider"])
    if how.get("fused_experts"):
        fuse_experts(folder)
    if how.get("headless"):
        tensors = {name.removeprefix("model."): t for name, t in load_file(folder / "model.safetensors").items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if how.get("mxfp4"):
        store_mxfp4(folder)
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    values = None
    if "fp8" in how:
        values = (store_v4 if prefix == "DeepseekV4" else store_fp8)(folder, how["fp8"])
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    # What is on disk is the model: read it back, rounded weights and rewritten settings included. (`exact`: transformers
    # would make the parts around the text model too.)
    reloaded = exact if how.get("exact") else reload(folder, values)
    if "fp8" in how:  # the values that were written, which are not the model's
        direct = logits_of(reloaded, prompts(VOCAB, 1)[2])
        config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                         "weight_block_size": how["fp8"]}
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if how.get("mxfp4"):  # which transformers runs in bfloat16: the weights must be the same, not the logits
        expanded = dict(reloaded.named_parameters())
        assert all(torch.equal(expanded[key].float(), tensor.float()) for key, tensor in model.named_parameters()), name
        reloaded = exact
    again = logits_of(reloaded, prompts(VOCAB, 1)[2])
    assert torch.allclose(again, direct, atol=1e-4), f"{name}: config.json does not mean the same when read back"
    halved = None  # where transformers can run it so, and no near tie of experts (`tie`) makes it chance
    if not how.keys() & {"mxfp4", "fp8", "exact", "tie"} and prefix != "DeepseekV4":
        halved = reload(folder, dtype=torch.bfloat16)
    write_golden(out, name, name, reloaded, f"{prefix}, {dtype}, {how.get('style', 'nested')} rope settings", halved)


def train_sentencepiece(folder):
    import sentencepiece
    text = ["the quick brown fox jumps over the lazy dog and then it rests", "hello world, how are you today?"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=str(folder / "tokenizer"), vocab_size=SENTENCEPIECE_VOCAB,
        model_type="bpe", byte_fallback=True, pad_id=0, eos_id=1, bos_id=2, unk_id=3, hard_vocab_limit=False,
        minloglevel=2)
    (folder / "tokenizer.vocab").unlink()


def add_nextn(folder):
    """Adds a layer that predicts further tokens, which the converter puts after the last."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    last = max(int(name.split(".layers.")[1].split(".")[0]) for name in tensors if ".self_attn.q_proj." in name)
    marker = f".layers.{last}."
    for name, tensor in list(tensors.items()):
        if marker in name:
            tensors["mtp.layers.0." + name.split(marker)[1]] = tensor.clone()
    width = next(t for name, t in tensors.items() if name.endswith("input_layernorm.weight")).shape[0]
    tensors["mtp.fc.weight"] = torch.ones(width, 2 * width)
    for name in ["norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"]:
        tensors[f"mtp.{name}.weight"] = torch.ones(width)
    save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mtp_num_hidden_layers": 1}))


def convert_to_gguf(checkout, folder, target, pre, nextn):
    """llama.cpp's own converter; only its table of known pre-tokenizers is answered for it."""
    sys.path[:0] = [str(checkout), str(checkout / "gguf-py")]
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    import conversion.base
    import gguf
    conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    hparams = ModelBase.load_hparams(folder, False)
    converter = get_model_class(get_model_architecture(hparams, ModelType.TEXT), mmproj=False)
    if converter.__name__.startswith(("Glm4", "Gemma4")):  # asks for special tokens by name
        converter.set_vocab = converter._set_vocab_gpt2
    converter.no_mtp = not nextn
    with torch.inference_mode():
        converter(folder, gguf.LlamaFileType.ALL_F32, target, eager=True).write()


def convert_model(model, folder, target, how, checkout):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    train_sentencepiece(folder) if how.get("sentencepiece") else write_tokenizer(folder)
    if how.get("nextn"):
        add_nextn(folder)
    with contextlib.redirect_stdout(sys.stderr):
        convert_to_gguf(checkout, folder, target, how.get("pre", "default"), how.get("nextn", False))


@torch.no_grad()
def take_quantised(model, numbered, file):
    """Gives the model the values that the quantised file's matrices stand for. `numbered` is the same model as a file,
    each of its matrices' elements holding its number: so it is known where the converter put which."""
    import gguf
    values, places = [], []
    numbers = {t.name: t for t in gguf.GGUFReader(numbered).tensors}
    for tensor in gguf.GGUFReader(file).tensors:
        if len(tensor.shape) < 2 and "ffn_gate_inp_shexp" not in tensor.name:  # a matrix of one row
            continue
        values.append(torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy()).flatten().float())
        places.append(torch.from_numpy(numbers[tensor.name].data.copy()).flatten().long())
    flat = torch.full((sum(p.numel() for p in model.parameters()),), float("nan"))
    flat[torch.cat(places)] = torch.cat(values)
    at = 0
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            parameter.copy_(flat[at:at + parameter.numel()].view(parameter.shape))
        at += parameter.numel()


@torch.no_grad()
def number_elements(model):
    at = 0
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            parameter.copy_(torch.arange(at, at + parameter.numel()).view(parameter.shape))
        at += parameter.numel()
    assert at < 2 ** 24  # exact in f32


def make_gguf(out, name, seed, checkout, quantize):
    prefix, settings, how = GGUF_MODELS[name]
    model = random_model(prefix, settings, seed)
    (out / "gguf").mkdir(exist_ok=True)
    file = f"gguf/{name.removeprefix('gguf_')}.gguf"
    purpose = f"{prefix} as llama.cpp's converter writes it, f32"
    with tempfile.TemporaryDirectory() as temporary:
        folder, plain = Path(temporary) / "tiny", Path(temporary) / "plain.gguf"
        if "quantize" not in how:
            convert_model(model, folder, out / file, how, checkout)
        else:
            purpose = f"{prefix}, {how['quantize']} as llama-quantize makes it"
            convert_model(model, folder, plain, how, checkout)
            subprocess.run([quantize, plain, out / file, how["quantize"]], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            numbered = copy.deepcopy(model)
            number_elements(numbered)
            convert_model(numbered, folder, plain, how, checkout)
            take_quantised(model, plain, out / file)
    write_golden(out, name, file, model, purpose)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--llama-cpp", type=Path)
    parser.add_argument("--llama-quantize", type=Path, help="the program, for the quantised ones")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = arguments.only.split(",") if arguments.only else [*MODELS, *GGUF_MODELS]
    for name in wanted:
        seed = zlib.crc32(name.encode())  # a new checkpoint leaves the others as they are
        if name in MODELS:
            make_safetensors(arguments.out, name, seed)
        elif arguments.llama_cpp and (arguments.llama_quantize or "quantize" not in GGUF_MODELS[name][2]):
            make_gguf(arguments.out, name, seed, arguments.llama_cpp, arguments.llama_quantize)


if __name__ == "__main__":
    main()
