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

from golden_models import BASE, GGUF_MODELS, MODELS, SENTENCEPIECE_VOCAB, VOCAB


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
