"""Writes the fuzzers' starting corpus: small valid inputs of every kind. usage: make_fuzz_corpus.py OUT  (fuzz/corpus)"""
import base64
import json
import os
import struct
import sys


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, kind, raw):
    return text(name) + struct.pack("<I", kind) + raw


def u32(name, value):
    return key(name, 4, struct.pack("<I", value))


def f32(name, value):
    return key(name, 6, struct.pack("<f", value))


def string(name, value):
    return key(name, 8, text(value))


def array(name, kind, items):
    return key(name, 9, struct.pack("<IQ", kind, len(items)) + b"".join(items))


def gguf(arch, extra, tensors, alignment=32, version=3):
    keys = [string("general.architecture", arch)] + [u32(f"{arch}.{k}", v) for k, v in {
        "block_count": 2, "context_length": 64, "embedding_length": 8, "feed_forward_length": 16, "attention.head_count": 2,
        "attention.head_count_kv": 1}.items()] + [f32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)] + extra
    entries, data = b"", b""
    for name, dims, kind, size in tensors:
        entries += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        entries += struct.pack("<IQ", kind, len(data))
        data += b"\0" * size
        data += b"\0" * (-len(data) % alignment)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + entries
    return head + b"\0" * (-len(head) % alignment) + data


def safetensors(header, size):
    h = json.dumps(header).encode()
    return struct.pack("<Q", len(h)) + h + b"\0" * size


def st(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32, "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
          "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": [2, 3], "torch_dtype": "bfloat16"}
TOKENIZER = {"version": "1.0", "truncation": None, "padding": None,
             "added_tokens": [{"id": 6, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
             "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
             "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
             "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                       "fuse_unk": False, "byte_fallback": False, "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "c": 4, "abc": 5},
                       "merges": [["a", "b"], ["ab", "c"]]}}
UNIGRAM = {**TOKENIZER, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, "pre_tokenizer": None,
           "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
           "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0], ["ab", -1.5], ["\u2581", -3.0]]}}
WORDPIECE = {**TOKENIZER, "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
             "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
             "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                       "vocab": {"[UNK]": 0, "a": 1, "##b": 2, "c": 3}}}
TEKKEN = {"config": {"pattern": "\\p{L}+| ?[^\\s\\p{L}]+|\\s+(?!\\S)|\\s+", "default_vocab_size": 263, "default_num_special_tokens": 5},
          "vocab": [{"rank": i, "token_bytes": base64.b64encode(b).decode()} for i, b in enumerate([bytes([i]) for i in range(256)] + [b"ab", b"abc"])],
          "special_tokens": [{"rank": i, "token_str": t} for i, t in enumerate(["<unk>", "<s>", "</s>", "[INST]"])]}
TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{%- macro show(x) -%}[{{ x | tojson }}]{%- endmacro %}{% set ns = namespace(i=0) %}{% for m in messages[::-1] %}"
    "{% if loop.first or m.role == 'user' %}{% set ns.i = ns.i + 1 %}{{ show(m.content) }}{% elif m.tool_calls is defined %}"
    "{% for c in m.tool_calls %}{{ c.function.name ~ '(' ~ c.function.arguments ~ ')' }}{% endfor %}{% else %}{% continue %}{% endif %}{% endfor %}{{ ns.i }}",
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages | length }}{{ 'a,b'.split(',')[1:] | join('-') | upper }}",
]

out = sys.argv[1]


def put(kind, name, data):
    os.makedirs(os.path.join(out, kind), exist_ok=True)
    with open(os.path.join(out, kind, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


LAYER = [("token_embd.weight", [8, 32], 0, 1024), ("output_norm.weight", [8], 0, 32), ("blk.0.attn_q.weight", [8, 8], 1, 128)]
put("gguf", "llama", gguf("llama", [array("tokenizer.ggml.tokens", 8, [text("a"), text("bc")]), array("tokenizer.ggml.scores", 6, [struct.pack("<f", 1.0)] * 2)], LAYER))
put("gguf", "gemma3", gguf("gemma3", [u32("gemma3.attention.sliding_window", 4), string("gemma3.rope.scaling.type", "linear"), f32("gemma3.rope.scaling.factor", 8)],
                           [("blk.0.ffn_down.weight", [256, 2], 12, 288), ("blk.1.post_ffw_norm.weight", [8], 0, 32)], version=2))
put("gguf", "split", gguf("qwen2", [key("split.no", 2, struct.pack("<H", 0)), key("split.count", 2, struct.pack("<H", 2)), key("split.tensors.count", 5, struct.pack("<i", 2)),
                                    u32("general.alignment", 64), key("x", 7, b"\1"), key("y", 12, struct.pack("<d", 1)), array("z", 7, [b"\1", b"\0"])], LAYER[:1], alignment=64))
put("safetensors", "two", safetensors({"__metadata__": {"format": "pt"}, "b": st("F16", [2, 4], 16, 32), "a": st("F32", [4], 0, 16), "e": st("BF16", [0], 32, 32)}, 32))
put("safetensors", "scalar", safetensors({"model.language_model.x": st("I64", [], 0, 8)}, 8))
put("safetensors", "fp8", safetensors({"a.weight": st("F8_E4M3", [2, 32], 0, 64), "a.weight_scale_inv": st("F32", [1, 1], 64, 68)}, 68))
put("safetensors", "gptq", safetensors({"a.qweight": st("I32", [4, 8], 0, 128), "a.qzeros": st("I32", [1, 1], 128, 132), "a.scales": st("F16", [1, 8], 132, 148)}, 148))
put("safetensors", "mxfp4", safetensors({"a_blocks": st("U8", [1, 2, 1, 16], 0, 32), "a_scales": st("U8", [1, 2, 1], 32, 34)}, 34))
put("safetensors", "index", json.dumps({"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}))
put("config", "llama", json.dumps(CONFIG | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}))
put("config", "qwen2", json.dumps(CONFIG | {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1,
                                            "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0}}))
put("config", "gemma3", json.dumps({"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": 1, "text_config": CONFIG | {
    "sliding_window_pattern": 2, "sliding_window": 8, "rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 2.0}, "sliding_attention": {"rope_theta": 1e4}}}}))
put("config", "gemma2", json.dumps(CONFIG | {"architectures": ["Gemma2ForCausalLM"], "layer_types": ["sliding_attention", "full_attention"], "final_logit_softcapping": 30.0}))
HYBRID = {"layer_types": ["linear_attention", "full_attention"], "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
          "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4}
put("config", "qwen3_next", json.dumps(CONFIG | HYBRID | {"architectures": ["Qwen3NextForCausalLM"], "mlp_only_layers": [1], "partial_rotary_factor": 0.5}))
put("config", "qwen3_5_moe", json.dumps({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": CONFIG | HYBRID | {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.25}}}))
put("config", "mixtral", json.dumps(CONFIG | {"architectures": ["MixtralForCausalLM"], "num_local_experts": 2, "sliding_window": None}))
put("gguf", "qwen35moe", gguf("qwen35moe", [u32(f"qwen35moe.{k}", v) for k, v in {
    "expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": 4, "expert_shared_feed_forward_length": 4, "ssm.conv_kernel": 2, "ssm.state_size": 2,
    "ssm.group_count": 1, "ssm.time_step_rank": 2, "ssm.inner_size": 4, "full_attention_interval": 2}.items()],
    [("blk.0.ffn_gate_up_exps.weight", [8, 8, 2], 0, 512), ("blk.0.ffn_down_exps.weight", [4, 8, 2], 0, 256), ("blk.0.ssm_a", [2], 0, 8),
     ("blk.1.attn_q.weight", [8, 16], 0, 512), ("blk.0.ssm_ba.weight", [8, 4], 0, 128), ("blk.0.ffn_gate_inp_shexp.weight", [8], 0, 32)]))
for name, value in {"bpe": TOKENIZER, "unigram": UNIGRAM, "wordpiece": WORDPIECE, "tekken": TEKKEN}.items():
    put("tokenizer", name, "<s>ab abc \u00e9\n" + json.dumps(value, ensure_ascii=False, separators=(",", ":") if name == "tekken" else None))
for i, template in enumerate(TEMPLATES):
    put("template", f"t{i}", template)
