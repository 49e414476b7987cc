"""Make the tiny encoders of tests/goldens/encoders and what transformers says of them, in float32.

usage: make_encoder_goldens.py OUT_DIR [--minilm FOLDER] [--llama-cpp CHECKOUT]

NAME/ is a checkpoint with random weights, large enough that each tensor matters, and a WordPiece tokenizer. NAME.json
has texts with their ids, and of each the first token's hidden state, the mean over all tokens and the last token's; of
a classifier the scores (logits) of pairs of texts. With --minilm, the folder of all-MiniLM-L6-v2: minilm.json, twenty
texts and their unit vectors (the mean over tokens). With --llama-cpp, bert.gguf: the same as bert/, by its converter.

Needs torch, transformers >= 5.17, tokenizers, safetensors.
"""

import argparse
import json
import shutil
import tempfile
import zlib
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer

BASE = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, hidden_act="gelu",
            max_position_embeddings=64)
MODELS = {
    "bert": ("Bert", "Model", {}),
    "bert_classifier": ("Bert", "ForSequenceClassification", dict(num_labels=1)),
    "bert_two_classes": ("Bert", "ForSequenceClassification", dict(num_labels=2, num_hidden_layers=1)),
    "xlm_roberta": ("XLMRoberta", "Model", dict(type_vocab_size=1, pad_token_id=1, hidden_act="gelu_new")),
    "roberta_classifier": ("Roberta", "ForSequenceClassification",
                           dict(type_vocab_size=1, pad_token_id=1, num_labels=1)),
}
TEXTS = ["Hello, world!", "the quick brown fox", "Über das 東京 naïve cafés, unknownword 42", "a",
         "to be or not to be, that is the question " * 2]
MORE = ["How do I bake bread?", "Bread is made of flour, water, salt and yeast.", "El pan se hace con harina y agua.",
        "The stock market fell by three percent today.", "Une pomme par jour éloigne le médecin.",
        "Photosynthesis turns light into chemical energy.", "What is the capital of France?", "Paris", "pärîs",
        "x = [i ** 2 for i in range(10)]", "https://example.com/path?query=1#top", "人工智能正在改变世界。",
        "Emoji \N{GRINNING FACE} and symbols \N{EURO SIGN}100", "In the beginning " * 30,
        "A man is eating food. A man is eating a piece of bread. " * 4]
PAIRS = [["Hello, world!", "the quick brown fox"], ["a", "to be or not to be"], ["question", "a"]]


def tokenizer_json(roberta):
    pieces = [chr(c) for c in range(33, 127)] + ["##" + chr(c) for c in range(97, 123)]
    pieces += ["hello", "world", "the", "quick", "##uick", "brown", "fox", "to", "be", "or", "not", "that", "is",
               "question", "##wn", "##ord", "un", "##known", "42", "東", "##es", "caf"]
    special = ["<s>", "<pad>", "</s>", "<unk>"] if roberta else ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocab = {text: i for i, text in enumerate(special + pieces)}
    cls, sep, unknown = (special[0], special[2], special[3]) if roberta else (special[2], special[3], special[1])

    def token(text, type_id=0):
        return {"SpecialToken": {"id": text, "type_id": type_id}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0 if roberta else 1}}
    pair = [token(cls), a, token(sep)] + ([token(sep), b, token(sep)] if roberta else [b, token(sep, 1)])
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for i, text in enumerate(special)],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": [token(cls), a, token(sep)], "pair": pair,
                               "special_tokens": {t: {"id": t, "ids": [vocab[t]], "tokens": [t]} for t in (cls, sep)}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": vocab}}


def rounded(tensor):
    return [float(f"{x:.7g}") for x in tensor.flatten().tolist()]


@torch.no_grad()
def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator)
        if "LayerNorm.weight" in name:
            tensor.copy_(1 + 0.3 * noise)
        elif tensor.ndim == 1:
            tensor.copy_(0.5 * noise)
        elif "embeddings" in name:
            tensor.copy_(0.7 * noise)
        else:
            tensor.copy_(1.5 * noise / tensor.shape[-1] ** 0.5)


@torch.no_grad()
def make(out, name):
    prefix, kind, settings = MODELS[name]
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json("oberta" in prefix), ensure_ascii=False) + "\n")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = getattr(transformers, prefix + "Config")(**(BASE | settings), vocab_size=tokenizer.get_vocab_size())
    config._attn_implementation = "eager"
    model = getattr(transformers, prefix + kind)(config).eval()
    randomise(model, zlib.crc32(name.encode()))
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    golden = {"texts": [], "pairs": []}
    for first, second in PAIRS if kind != "Model" else []:
        encoded = tokenizer.encode(first, second)
        logits = model(torch.tensor([encoded.ids]), token_type_ids=torch.tensor([encoded.type_ids])).logits[0]
        golden["pairs"].append({"first": first, "second": second, "ids": encoded.ids, "scores": rounded(logits)})
    for text in TEXTS if kind == "Model" else []:
        ids = tokenizer.encode(text).ids
        rows = model(torch.tensor([ids])).last_hidden_state[0]
        golden["texts"].append({"text": text, "ids": ids, "first": rounded(rows[0]), "mean": rounded(rows.mean(0)),
                                "last": rounded(rows[-1])})
    (out / f"{name}.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


@torch.no_grad()
def make_minilm(out, folder):
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    golden = []
    for text in TEXTS + MORE:
        rows = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
        vector = torch.nn.functional.normalize(rows.mean(0), dim=0)
        golden.append({"text": text, "vector": [round(x, 5) for x in vector.tolist()]})
    (out / "minilm.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


def make_gguf(out, checkout):
    from make_model_goldens import convert_to_gguf
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "bert"
        shutil.copytree(out / "bert", folder)
        (folder / "tokenizer_config.json").write_text(json.dumps(dict(
            tokenizer_class="PreTrainedTokenizerFast", bos_token="[CLS]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
            unk_token="[UNK]")))
        convert_to_gguf(checkout, folder, out / "bert.gguf", "default", False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--llama-cpp", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for name in MODELS:
        make(arguments.out, name)
    if arguments.minilm:
        make_minilm(arguments.out, arguments.minilm)
    if arguments.llama_cpp:
        make_gguf(arguments.out, arguments.llama_cpp)


if __name__ == "__main__":
    main()
