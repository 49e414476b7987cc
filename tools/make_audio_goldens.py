"""Make the tiny Voxtral of tests/goldens/audio and what transformers says of it, in float32.

usage: make_audio_goldens.py OUT_DIR

voxtral/ is a checkpoint with random weights (stored as bfloat16) and a byte tokenizer with Voxtral's special tokens.
voxtral.json says what stands in voxtral.bin, float32 in this order: a sound of 16 kHz, its log-mel spectrogram as
WhisperFeatureExtractor has it [frames, bins], once of 128 bins and once of the model's, the rows that the encoder makes
of it, and the logits of each prompt, of which some hear it. tone.{wav,flac,ogg,mp3} are 250 ms of 440 Hz, of other rates and
channels.

Needs torch, transformers >= 5.17, safetensors, soundfile.
"""

import copy
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import soundfile
import torch
import transformers

POSITIONS, BINS, FOLD, AUDIO = 20, 16, 4, 24
PIECE = POSITIONS * 2 * 160  # samples
SPECIAL = {0: "<unk>", 1: "<s>", 2: "</s>", 3: "[INST]", 4: "[/INST]", 17: "[SYSTEM_PROMPT]", 18: "[/SYSTEM_PROMPT]",
           24: "[AUDIO]", 25: "[BEGIN_AUDIO]", 34: "[TRANSCRIBE]"}


def byte_letters():
    """The 256 letters that stand for bytes in byte-level BPE."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in kept}
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + len(letters) - len(kept))
    return [letters[b] for b in range(256)]


def tokenizer_json():
    specials = [SPECIAL.get(i, f"<SPECIAL_{i}>") for i in range(40)]
    vocab = {text: i for i, text in enumerate(specials + byte_letters())}
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(specials)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                      "merges": []}}


@torch.no_grad()
def randomise(model):
    generator = torch.Generator().manual_seed(7)
    for name, tensor in model.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            tensor.copy_(1 + 0.3 * noise)
        elif tensor.ndim == 1:
            tensor.copy_(0.5 * noise)
        elif "embed" in name:
            tensor.copy_(0.7 * noise)
        else:
            tensor.copy_(1.5 * noise / tensor[0].numel() ** 0.5)
        tensor.copy_(tensor.to(torch.bfloat16).float())


def mel(sound, bins):
    extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
    return extractor._np_extract_fbank_features(sound[None], "cpu")[0].astype(np.float32)  # [bins, frames]


@torch.no_grad()
def main(out):
    folder = out / "voxtral"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = transformers.VoxtralConfig(
        audio_token_id=AUDIO,
        audio_config=dict(hidden_size=32, intermediate_size=32 * FOLD, num_hidden_layers=2, num_attention_heads=1,
                          num_mel_bins=BINS, max_source_positions=POSITIONS, vocab_size=64),
        text_config=dict(model_type="llama", vocab_size=296, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=1, head_dim=32, max_position_embeddings=256,
                         rope_theta=10000.0, bos_token_id=1, eos_token_id=2))
    config._attn_implementation = "eager"
    model = transformers.VoxtralForConditionalGeneration(config).eval()
    randomise(model)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)  # of the copy the buffers too are rounded
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(), ensure_ascii=False) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}) + "\n")

    generator = np.random.default_rng(3)
    time = np.arange(int(1.4 * PIECE)) / 16000  # two pieces
    sound = 0.4 * np.sin(2 * np.pi * (300 + 900 * time) * time) * np.exp(-2 * time)
    sound = (sound + 0.01 * generator.standard_normal(len(time))).astype(np.float32)
    padded = np.concatenate([sound, np.zeros(-len(sound) % PIECE, np.float32)])
    wide, narrow = mel(padded, 128), mel(padded, BINS)
    features = torch.tensor(narrow).reshape(BINS, -1, 2 * POSITIONS).transpose(0, 1)
    rows = model.get_audio_features(features).pooler_output.reshape(-1, 32)
    heard = [AUDIO] * len(rows)
    prompts = [[1, 3, 25, *heard, 4, 34], [1, 3, 150, 151, 25, *heard, 99, 120, 4], [1, 3, 77, 45, 4, 200]]
    logits = [model(torch.tensor([p]), input_features=features if AUDIO in p else None).logits[0] for p in prompts]
    parts = [sound, wide.T, narrow.T, rows, *logits]
    (out / "voxtral.bin").write_bytes(b"".join(np.ascontiguousarray(np.asarray(p, np.float32)).tobytes() for p in parts))
    (out / "voxtral.json").write_text(json.dumps({
        "samples": len(sound), "frames": wide.shape[1], "bins": [128, BINS], "rows": len(rows), "width": 32,
        "vocab": 296, "prompts": prompts}) + "\n")

    for kind, rate, channels in [("wav", 8000, 2), ("flac", 44100, 1), ("ogg", 22050, 2), ("mp3", 48000, 1)]:
        wave = 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate // 4) / rate)
        soundfile.write(out / f"tone.{kind}", np.stack([wave] * channels, axis=1), rate)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
