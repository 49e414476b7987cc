"""Which format llama.cpp's mixes give each tensor, for the tests of vllm/weights/mix.h.

usage: make_mix_goldens.py PATH/llama-quantize OUT.txt [dense|experts]     (needs the packages gguf and numpy)
Lines: "model LAYERS HEADS_PER_KV TIED EXPERTS" (dense models say no experts), then "mix NAME", then
"TENSOR ROWS COLUMNS TYPE".
"""
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np

# Q2_K_S asks for an importance matrix.
MIXES = ["Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_1", "Q4_K_S", "Q4_K_M", "Q5_0", "Q5_1", "Q5_K_S", "Q5_K_M",
         "Q6_K", "Q8_0", "IQ4_NL", "IQ4_XS", "F16", "BF16"]
# layers, heads, kv heads, width, feed-forward, tied
MODELS = [(17, 4, 1, 256, 512, True), (9, 3, 3, 288, 512, False), (16, 4, 2, 256, 288, False)]

# architecture, layers, heads, kv heads, experts: Mixtral's eight have rules of their own
EXPERT_MODELS = [("llama", 9, 4, 2, 8), ("qwen3moe", 8, 4, 1, 6), ("qwen35moe", 9, 4, 2, 12)]
EXPERT_MIXES = ["Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0",
                "IQ4_XS", "F16"]


def write_experts(path, arch, layers, heads, kv, experts):
    w = gguf.GGUFWriter(path, arch)
    d, inner, hd = 256, 256, 64
    w.add_block_count(layers), w.add_context_length(64), w.add_embedding_length(d), w.add_feed_forward_length(inner)
    w.add_head_count(heads), w.add_head_count_kv(kv), w.add_key_length(hd), w.add_value_length(hd)
    w.add_layer_norm_rms_eps(1e-5), w.add_vocab_size(32), w.add_file_type(1), w.add_tokenizer_model("none")
    w.add_expert_count(experts), w.add_expert_used_count(2), w.add_expert_feed_forward_length(inner)
    hybrid = arch == "qwen35moe"
    if hybrid:
        w.add_expert_shared_feed_forward_length(inner), w.add_rope_dimension_sections([1, 1, 1, 0])
        w.add_ssm_conv_kernel(4), w.add_ssm_inner_size(256), w.add_ssm_state_size(64)
        w.add_ssm_time_step_rank(4), w.add_ssm_group_count(2)
    r = np.random.default_rng(0)
    def matrix(name, *shape):  # the converter writes in f32 what is not to be quantised
        kept = name.endswith(("ffn_gate_inp", "ssm_conv1d"))
        w.add_tensor(name + ".weight", r.standard_normal(shape).astype(np.float32 if kept else np.float16))
    matrix("token_embd", 32, d), matrix("output", 32, d)
    for i in range(layers):
        p = f"blk.{i}."
        if hybrid and (i + 1) % 4:
            matrix(p + "attn_qkv", 512, d), matrix(p + "attn_gate", 256, d), matrix(p + "ssm_out", d, 256)
            matrix(p + "ssm_alpha", 4, d), matrix(p + "ssm_beta", 4, d), matrix(p + "ssm_conv1d", 512, 4)
        else:
            matrix(p + "attn_q", heads * hd * (2 if hybrid else 1), d), matrix(p + "attn_k", kv * hd, d)
            matrix(p + "attn_v", kv * hd, d), matrix(p + "attn_output", d, heads * hd)
        matrix(p + "ffn_gate_inp", experts, d)
        for name in ["gate", "up", "down"]:
            matrix(p + f"ffn_{name}_exps", experts, inner, d)
            if hybrid:
                matrix(p + f"ffn_{name}_shexp", inner, d)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def write(path, layers, heads, kv, width, inner, tied):
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(layers), w.add_context_length(64), w.add_embedding_length(width), w.add_feed_forward_length(inner)
    w.add_head_count(heads), w.add_head_count_kv(kv), w.add_layer_norm_rms_eps(1e-5), w.add_vocab_size(32), w.add_file_type(1)
    w.add_tokenizer_model("none")
    r = np.random.default_rng(0)
    def matrix(name, rows, columns):
        w.add_tensor(name, r.standard_normal((rows, columns)).astype(np.float16))
    def norm(name):
        w.add_tensor(name, np.ones(width, np.float32))
    matrix("token_embd.weight", 32, width), norm("output_norm.weight")
    if not tied:
        matrix("output.weight", 32, width)
    for i in range(layers):
        p = f"blk.{i}."
        kv_width = width // heads * kv
        norm(p + "attn_norm.weight"), norm(p + "ffn_norm.weight")
        matrix(p + "attn_q.weight", width, width), matrix(p + "attn_k.weight", kv_width, width)
        matrix(p + "attn_v.weight", kv_width, width), matrix(p + "attn_output.weight", width, width)
        matrix(p + "ffn_gate.weight", inner, width), matrix(p + "ffn_up.weight", inner, width)
        matrix(p + "ffn_down.weight", width, inner)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


quantize, out = sys.argv[1:3]
with_experts = sys.argv[3:] == ["experts"]
lines = []
with tempfile.TemporaryDirectory() as folder:
    for model in EXPERT_MODELS if with_experts else MODELS:
        source, target = os.path.join(folder, "s.gguf"), os.path.join(folder, "t.gguf")
        if with_experts:
            write_experts(source, *model)
            lines.append(f"model {model[1]} {model[2] // model[3]} 0 {model[4]}")
        else:
            write(source, *model)
            lines.append(f"model {model[0]} {model[1] // model[2]} {int(model[5])}")
        for mix in EXPERT_MIXES if with_experts else MIXES:
            subprocess.run([quantize, source, target, mix], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            lines.append(f"mix {mix}")
            for t in sorted(gguf.GGUFReader(target).tensors, key=lambda t: t.name):
                if "norm" not in t.name:
                    lines.append(f"{t.name} {t.n_elements // t.shape[0]} {t.shape[0]} {t.tensor_type.name}")
with open(out, "w") as f:
    f.write("\n".join(lines) + "\n")
print(len(lines), "lines")
