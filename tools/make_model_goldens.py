"""Make the tiny checkpoints of tests/goldens/models and their fp32 logits, with transformers as the oracle.

usage: make_model_goldens.py OUT_DIR [--llama-cpp CHECKOUT] [--only NAME,NAME]

Each checkpoint has random weights, large enough that every tensor and every setting moves the logits: random norm
weights and biases, tight soft caps, windows shorter than the prompts, rope scaling with a short original length.
For NAME it writes the checkpoint (folder NAME/, or gguf/NAME.gguf made by llama.cpp's converter), NAME.json
(the prompts' ids and what the checkpoint is there for) and NAME.bin: the logits as little-endian float32, the rows
of all positions of all prompts in order, `vocab` values a row.

Needs torch, transformers >= 5.17, tokenizers, sentencepiece, safetensors; gguf files also a llama.cpp checkout.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import torch
import transformers

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


def random_model(prefix, settings, seed):
    """A model of the family with weights that all matter, in float32."""
    config = getattr(transformers, prefix + "Config")(**(BASE | settings))
    config._attn_implementation = "eager"  # the only one that applies Gemma 2's attention soft cap
    name = {"Gemma3Text": "Gemma3ForCausalLM"}.get(prefix, prefix + "ForCausalLM")
    model = getattr(transformers, name)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    shifted = prefix.startswith("Gemma")  # Gemma's norms multiply by 1 + weight
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if key.endswith("norm.weight"):
                tensor.copy_(0.3 * noise + (0.0 if shifted else 1.0))
            elif key.endswith("bias"):
                tensor.copy_(0.5 * noise)
            elif "embed_tokens" in key:
                tensor.copy_(0.3 * noise)
            else:  # rows of unit scale keep the activations near 1 and the attention far from uniform
                tensor.copy_(1.3 * noise / tensor.shape[-1] ** 0.5)
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


def flatten_rope(config, pattern):
    """Rewrites config.json's nested rope_parameters as the flat fields that older files carry."""
    parameters = config.pop("rope_parameters")
    if "full_attention" in parameters:
        config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        parameters = parameters["full_attention"]
        config.pop("_sliding_window_pattern", None)
        config["sliding_window_pattern"] = pattern
    config.pop("layer_types", None)
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    config["torch_dtype"] = config.pop("dtype")
    return config


def write_golden(out, name, path, model, purpose):
    vocab = model.config.vocab_size
    ids = prompts(vocab, zlib.crc32(name.encode()) % 1000)
    golden = {"model": path, "about": purpose, "vocab": vocab, "prompts": ids}
    rows = [logits_of(model, p) for p in ids]
    assert all(r.isfinite().all() for r in rows)
    (out / f"{name}.bin").write_bytes(torch.cat(rows).numpy().astype("<f4").tobytes())
    if getattr(model.config, "rope_parameters", {}).get("rope_type") == "dynamic":
        # The rows of a prompt hold for frequencies that are made for its length.
        golden["context_is_prompt_length"] = True
    (out / f"{name}.json").write_text(json.dumps(golden) + "\n")
    print(f"{name}: max|logit| {torch.cat(rows).abs().max():.2f}")


def make_safetensors(out, name, seed):
    prefix, settings, how = MODELS[name]
    model = random_model(prefix, settings, seed)
    dtype = getattr(torch, how.get("dtype", "float32"))
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.copy_(tensor.to(dtype).float())
    direct = logits_of(model, prompts(VOCAB, 1)[2])
    model.to(dtype).save_pretrained(folder, max_shard_size=how.get("shard", "1GB"))
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder)
    config = json.loads((folder / "config.json").read_text())
    if how.get("style") == "flat":
        config = flatten_rope(config, how.get("pattern"))
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    # What is on disk is the model: read it back, rounded weights and rewritten settings included.
    reloaded = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    again = logits_of(reloaded, prompts(VOCAB, 1)[2])
    assert torch.allclose(again, direct, atol=1e-4), f"{name}: config.json does not mean the same when read back"
    write_golden(out, name, name, reloaded, f"{prefix}, {dtype}, {how.get('style', 'nested')} rope settings")


def train_sentencepiece(folder):
    import sentencepiece
    text = ["the quick brown fox jumps over the lazy dog and then it rests", "hello world, how are you today?"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=str(folder / "tokenizer"), vocab_size=SENTENCEPIECE_VOCAB,
        model_type="bpe", byte_fallback=True, pad_id=0, eos_id=1, bos_id=2, unk_id=3, hard_vocab_limit=False,
        minloglevel=2)
    (folder / "tokenizer.vocab").unlink()


def convert_to_gguf(checkout, folder, target, pre):
    """llama.cpp's own converter; only its table of known pre-tokenizers is answered for it."""
    sys.path[:0] = [str(checkout), str(checkout / "gguf-py")]
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    import conversion.base
    import gguf
    conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    hparams = ModelBase.load_hparams(folder, False)
    converter = get_model_class(get_model_architecture(hparams, ModelType.TEXT), mmproj=False)
    with torch.inference_mode():
        converter(folder, gguf.LlamaFileType.ALL_F32, target, eager=True).write()


def make_gguf(out, name, seed, checkout):
    prefix, settings, how = GGUF_MODELS[name]
    model = random_model(prefix, settings, seed)
    (out / "gguf").mkdir(exist_ok=True)
    file = f"gguf/{name.removeprefix('gguf_')}.gguf"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "tiny"
        model.save_pretrained(folder)
        train_sentencepiece(folder) if how.get("sentencepiece") else write_tokenizer(folder)
        with contextlib.redirect_stdout(sys.stderr):
            convert_to_gguf(checkout, folder, out / file, how.get("pre", "default"))
    write_golden(out, name, file, model, f"{prefix} as llama.cpp's converter writes it, f32")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--llama-cpp", type=Path)
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
        elif arguments.llama_cpp:
            make_gguf(arguments.out, name, seed, arguments.llama_cpp)


if __name__ == "__main__":
    main()
