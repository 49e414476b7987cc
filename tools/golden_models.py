"""The tiny checkpoints of tests/goldens/models: configurations of transformers, and how they are stored.

MODELS and GGUF_MODELS: name -> (class prefix, settings beside BASE, options of make_model_goldens.py).
"""

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
