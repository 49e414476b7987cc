"""Makes tiny checkpoints in every quantised layout of safetensors, and the fp32 logits of what they stand for.

usage: make_quantised_goldens.py OUT_DIR [--only NAME,NAME]

Beside make_model_goldens.py's in tests/goldens/models, and in its form. Random weights are rounded and packed here,
as AutoAWQ, AutoGPTQ, compressed-tensors (whose own package does the packing) and FP8 checkpoints store them; the
logits are transformers' with the rounded weights expanded. Scales have six bits, so that a scale times a zero is
exact in the sixteen bits in which the engine holds it.

Needs what make_model_goldens.py needs, and compressed-tensors.
"""

import argparse
import json
import shutil
import tempfile
import zlib
from pathlib import Path

import torch
import transformers
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from golden_models import rope
from make_model_goldens import prompts, random_model, write_golden, write_tokenizer
from safetensors.torch import load_file, save_file

LLAMA = ("Llama", dict(rope_parameters=rope(), intermediate_size=96, tie_word_embeddings=True))
QWEN = ("Qwen3", dict(rope_parameters=rope(1000000.0), intermediate_size=96, tie_word_embeddings=True))
MOE = ("Qwen3Moe", dict(rope_parameters=rope(1000000.0), head_dim=16, num_experts=4, num_experts_per_tok=2,
                        moe_intermediate_size=32, norm_topk_prob=True, tie_word_embeddings=True))


def short(scale, dtype):
    """Six bits of mantissa, rounded up."""
    exponent = torch.floor(torch.log2(scale))
    return (torch.ceil(scale / 2.0 ** exponent * 32) / 32 * 2.0 ** exponent).to(dtype).float()


def integers(weight, group, bits, zeros, dtype):
    """Codes [N, K] from 0 up, zeros and scales [N, G], and what they stand for."""
    groups = weight.unflatten(-1, (-1, group))
    top = 2 ** bits - 1
    if zeros:
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scale = short((high - low) / (top - 1), dtype)
        zero = torch.round(-low / scale)
    else:
        scale = short(groups.abs().amax(-1) / (top // 2), dtype)
        zero = torch.full_like(scale, 2 ** (bits - 1))
    codes = (torch.round(groups / scale.unsqueeze(-1)) + zero.unsqueeze(-1)).clamp(0, top)
    values = scale.unsqueeze(-1) * (codes - zero.unsqueeze(-1))
    return codes.flatten(-2).to(torch.int64), zero.to(torch.int64), scale, values.flatten(-2)


def words(codes, bits, order=None):
    """The last dimension packed into int32, the first code lowest."""
    codes = codes.unflatten(-1, (-1, 32 // bits))
    if order is not None:
        codes = codes[..., order]
    packed = (codes << torch.arange(0, 32, bits)).sum(-1)
    return torch.where(packed >= 2 ** 31, packed - 2 ** 32, packed).to(torch.int32).contiguous()


def awq(name, weight):
    codes, zero, scale, values = integers(weight, 32, 4, True, torch.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {name + ".qweight": words(codes.T, 4, order), name + ".qzeros": words(zero.T, 4, order),
            name + ".scales": scale.T.half().contiguous()}, values


def gptq(name, weight, group=32, bits=4, zeros=True):
    group = group or weight.shape[1]
    codes, zero, scale, values = integers(weight, group, bits, zeros, torch.float16)
    return {name + ".qweight": words(codes, bits).T.contiguous(),
            name + ".qzeros": words((zero.T - 1) % 2 ** bits, bits), name + ".scales": scale.T.half().contiguous(),
            name + ".g_idx": (torch.arange(weight.shape[1]) // group).to(torch.int32)}, values


def packed(name, weight, group, bits, zeros):
    group = group or weight.shape[1]
    codes, zero, scale, values = integers(weight, group, bits, zeros, torch.bfloat16)
    middle = 2 ** (bits - 1)
    out = {name + ".weight_packed": pack_to_int32((codes - middle).to(torch.int8), bits),
           name + ".weight_scale": scale.bfloat16(), name + ".weight_shape": torch.tensor(weight.shape)}
    if zeros:
        out[name + ".weight_zero_point"] = pack_to_int32((zero - middle).to(torch.int8), bits, packed_dim=0)
    return out, values


def bytes_of(name, weight):
    codes, _, scale, values = integers(weight, weight.shape[1], 8, False, torch.bfloat16)
    return {name + ".weight": (codes - 128).to(torch.int8), name + ".weight_scale": scale.bfloat16()}, values


def fp8(name, weight, rows, columns, suffix, static=False):
    rows, columns = rows or weight.shape[0], columns or weight.shape[1]
    down, across = -(-weight.shape[0] // rows), -(-weight.shape[1] // columns)
    codes, scales = torch.empty_like(weight, dtype=torch.float8_e4m3fn), torch.empty(down, across)
    values = torch.empty_like(weight)
    for i in range(down):
        for j in range(across):
            block = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scales[i, j] = weight[block].abs().max() / 448
            codes[block] = (weight[block] / scales[i, j]).to(torch.float8_e4m3fn)
            values[block] = codes[block].float() * scales[i, j]
    out = {name + ".weight": codes, name + suffix: scales[0, 0].clone() if scales.numel() == 1 else scales}
    if static:
        out[name + ".input_scale"] = torch.tensor(0.02)
    return out, values


def compressed(form, bits, kind="int", **weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"], "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": dict(num_bits=bits, type=kind, symmetric=True) | weights}}}


# name: (model, dtype of what is not quantised, quantization_config, one matrix's tensors and values)
CHECKPOINTS = {
    "quant_awq": (LLAMA, "float16", {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True,
                                     "version": "gemm", "modules_to_not_convert": None}, awq),
    "quant_gptq": (QWEN, "float16", {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False,
                                     "desc_act": False, "checkpoint_format": "gptq"}, gptq),
    "quant_gptq_8": (MOE, "float16", {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True,
                                      "desc_act": False},
                     lambda n, w: gptq(n, w, group=0, bits=8, zeros=False)),
    "quant_ct_int4": (QWEN, "bfloat16", compressed("pack-quantized", 4, strategy="group", group_size=32),
                      lambda n, w: packed(n, w, 32, 4, False)),
    "quant_ct_zeros": (MOE, "bfloat16", compressed("pack-quantized", 4, strategy="channel", symmetric=False),
                       lambda n, w: packed(n, w, 0, 4, True)),
    "quant_ct_w8a8": (LLAMA, "bfloat16", compressed("int-quantized", 8, strategy="channel"), bytes_of),
    "quant_ct_fp8": (LLAMA, "bfloat16", compressed("float-quantized", 8, "float", strategy="channel"),
                     lambda n, w: fp8(n, w, 1, 0, ".weight_scale")),
    "quant_fp8": (QWEN, "bfloat16", {"quant_method": "fp8", "activation_scheme": "static"},
                  lambda n, w: fp8(n, w, 0, 0, ".weight_scale", static=True)),
    "quant_fp8_blocks": (MOE, "bfloat16", {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                                           "weight_block_size": [24, 64]},
                         lambda n, w: fp8(n, w, 24, 64, ".weight_scale_inv")),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    for name, ((prefix, settings), dtype, config, quantise) in CHECKPOINTS.items():
        if arguments.only and name not in arguments.only.split(","):
            continue
        folder = arguments.out / name
        shutil.rmtree(folder, ignore_errors=True)
        model = random_model(prefix, settings, zlib.crc32(name.encode()) % 1000)
        model.to(getattr(torch, dtype)).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        write_tokenizer(folder)
        stored, expanded = {}, {}
        for key, tensor in load_file(folder / "model.safetensors").items():
            if key.endswith("_proj.weight"):
                tensors, values = quantise(key.removesuffix(".weight"), tensor.float())
                assert (values - tensor.float()).abs().max() < tensor.float().abs().max() / 5, key
                stored |= tensors
                expanded[key] = values
            else:
                stored[key] = expanded[key] = tensor
        file = folder / "model.safetensors"
        with tempfile.TemporaryDirectory() as plain:
            shutil.copytree(folder, plain, dirs_exist_ok=True)
            save_file(expanded, Path(plain) / "model.safetensors", metadata={"format": "pt"})
            model = transformers.AutoModelForCausalLM.from_pretrained(
                plain, dtype=torch.float32, attn_implementation="eager").eval()
        save_file(stored, file, metadata={"format": "pt"})
        settings = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(settings | {"quantization_config": config}, indent=1) + "\n")
        write_golden(arguments.out, name, name, model, f"{prefix}, {config['quant_method']}, {dtype}")


if __name__ == "__main__":
    main()
