#!/usr/bin/env python3
"""Makes tests/goldens/text: tokenizers with inputs and the ids that the `tokenizers` package and llama.cpp give.

  make_tokenizer_goldens.py OUT --tokenizers DIR --cases DIR --vocabs DIR
  make_tokenizer_goldens.py OUT --tekken            # needs mistral-common
  make_tokenizer_goldens.py OUT --llama4            # needs tokenizers, gguf, llama-cpp-python
  make_tokenizer_goldens.py OUT --gguf FILE...      # only dump vocabularies, for trying things out

DIR of --tokenizers: <name>/tokenizer.json.xz. --cases: R2.json, R3.json, ... --vocabs: ggml-vocab-*.gguf with .inp and
.out. Needs: tokenizers, gguf, numpy; Python's own Unicode data must be 14.0, so that every code point in the random
strings is known to all libraries involved.

A vocabulary (*.vocab.gz, gzip of): "TVOC1\n"; uint32 size and bytes of a JSON header (metadata and cases); varint count
of tokens, varint length of each, their bytes; one byte a token of type; float32 scores if header.has_scores; merges if
header.merges > 0, each a zigzag varint (id of the merged token minus that of the merge before minus 1, times 2; or 1
followed by the two texts, each with a varint length, if the merged text is no token) and a varint length of the left
part.
"""
import argparse
import gzip
import json
import lzma
import os
import random
import struct
import unicodedata

SEED = 20240607
NAMES = ['qwen3', 'llama3', 'gemma3', 'deepseek_v3']


def write_gz(path, data):
    with open(path, 'wb') as f:
        with gzip.GzipFile(filename='', mode='wb', fileobj=f, compresslevel=9, mtime=0) as z:
            z.write(data)
    print(f'{path}: {os.path.getsize(path)} bytes')


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(',', ':')).encode('utf-8', 'surrogatepass')


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


# ---------------------------------------------------------------- random strings

def assigned():
    assert unicodedata.unidata_version == '14.0.0', unicodedata.unidata_version
    return [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ('Cn', 'Cs')]


WORDS = ("the of and to in is that it was for on are with as his they at be this from have or by one had not but what "
         "all were when we there can an your which their said if do will each about how up out them then she many some "
         "so these would other into has more her two like him see time could no make than first been its who now people "
         "my made over did down only way find use may water long little very after words called just where most know "
         "It's I'll you're we've don't he'd I'm O'Neil rock'n'roll 'tis CamelCase snake_case HTTPServer x86_64 "
         "café naïve Straße Привет мир 你好 世界 こんにちは 안녕하세요 नमस्ते مرحبا שלום ไทย γειά").split()
PUNCTUATION = list('.,;:!?()[]{}<>"\'`~@#$%^&*-_=+/\\|') + ['...', '--', '->', '==', '//', '“', '”', '’', '—', '…', '。']
SPACES = [' ', ' ', ' ', ' ', '  ', '   ', '\n', '\n\n', '\t', '\r\n', ' \n', '\n ', '\u00a0', '\u3000', '\u2028', '\u2003',
          '\u0085', '\u180e', '\u200b', '']


def old_and_unchanged():
    """What is the same since Unicode 3.2: the package's tables of punctuation and marks are old."""
    old = unicodedata.ucd_3_2_0
    return [c for c in assigned() if old.category(chr(c)) == unicodedata.category(chr(c))]


def random_strings(n, seed, chars=None):
    rng = random.Random(seed)
    chars = chars or assigned()
    small = [c for c in chars if c < 0x3000]
    marks = [c for c in small if unicodedata.category(chr(c)) in ('Mn', 'Mc')]
    out = []
    for i in range(n):
        kind = i % 5
        parts = []
        if kind == 0:  # any characters at all
            parts = [chr(rng.choice(chars)) for _ in range(rng.randint(1, 24))]
        elif kind == 1:  # below the ideographs, with combining marks
            for _ in range(rng.randint(1, 24)):
                parts.append(chr(rng.choice(small)))
                if rng.random() < 0.3:
                    parts.append(chr(rng.choice(marks)))
        elif kind == 2:  # words, punctuation, numbers, odd spaces
            for _ in range(rng.randint(1, 16)):
                parts.append(rng.choice(WORDS))
                if rng.random() < 0.3:
                    parts.append(rng.choice(PUNCTUATION) * rng.randint(1, 3))
                if rng.random() < 0.2:
                    parts.append(str(rng.randint(0, 10 ** rng.randint(1, 12))))
                parts.append(rng.choice(SPACES))
        elif kind == 3:  # everything mixed
            for _ in range(rng.randint(1, 24)):
                parts.append(rng.choice([rng.choice(WORDS), chr(rng.choice(chars)), rng.choice(PUNCTUATION),
                                         rng.choice(SPACES), chr(rng.randint(32, 126)), chr(rng.choice(marks))]))
        else:  # ASCII noise with long runs
            for _ in range(rng.randint(1, 12)):
                parts.append(chr(rng.choice([9, 10, 13] + list(range(32, 127)))) * rng.choice([1, 1, 1, 2, 3, 17]))
        out.append(''.join(parts))
    return out


# ---------------------------------------------------------------- tokenizer.json

def make_tokenizers(out, folder, only=None):
    from tokenizers import Tokenizer
    for k, name in enumerate(NAMES):
        if only and name != only:
            continue
        raw = lzma.open(os.path.join(folder, name, 'tokenizer.json.xz')).read()
        write_gz(f'{out}/{name}.tokenizer.json.gz', dump(json.loads(raw)))
        t = Tokenizer.from_buffer(raw)
        special = [a for a in t.get_added_tokens_decoder().values()]
        cases = []
        rng = random.Random(SEED + k)
        for i, s in enumerate(random_strings(1000, SEED + k)):
            if i % 10 == 9:  # an added token somewhere
                at = rng.randint(0, len(s))
                s = s[:at] + rng.choice(special).content + s[at:]
            # The package's own tables for NFC are older than Unicode 14 and lack some combining marks.
            if name == 'qwen3' and t.normalizer.normalize_str(s) != unicodedata.normalize('NFC', s):
                s = ''.join(c for c in s if not unicodedata.combining(c))
            e = t.encode(s, add_special_tokens=False)
            cases.append({'text': s, 'ids': e.ids, 'decoded': t.decode(e.ids, skip_special_tokens=False),
                          'plain': t.decode(e.ids, skip_special_tokens=True)})
        # Bytes as a sampler may put them together, whole characters or not.
        ids = []
        for _ in range(200):
            seq = [rng.randrange(t.get_vocab_size()) for _ in range(rng.randint(1, 12))]
            if name == 'gemma3':
                seq = [rng.randrange(238, 238 + 256) if rng.random() < 0.5 else x for x in seq]
            ids.append({'ids': seq, 'decoded': t.decode(seq, skip_special_tokens=False)})
        t.encode_special_tokens = True
        plain = []
        for a in special[:40]:
            s = f'a{a.content}b'
            plain.append({'text': s, 'ids': t.encode(s, add_special_tokens=False).ids})
        write_gz(f'{out}/{name}.strings.json.gz', dump({'cases': cases, 'ids': ids, 'no_special': plain}))


def small_tokenizers():
    """Tiny tokenizers, trained here, that use the parts which the four big ones don't."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    text = [' '.join(random.Random(i).choices(WORDS, k=12)) + '.' for i in range(400)]
    big = 400
    out = {}

    def finish(name, t, trainer, **extra):
        t.train_from_iterator(text, trainer)
        out[name] = t

    t = Tokenizer(models.WordPiece(unk_token='[UNK]'))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    finish('bert', t, trainers.WordPieceTrainer(vocab_size=big, special_tokens=['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']))
    t.post_processor = processors.BertProcessing(('[SEP]', 3), ('[CLS]', 2))

    t = Tokenizer(models.WordPiece(unk_token='[UNK]'))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                         normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=False)])
    t.decoder = decoders.WordPiece(cleanup=False)
    finish('wordpiece_nfkd', t, trainers.WordPieceTrainer(vocab_size=big, special_tokens=['[UNK]']))
    t.add_tokens([AddedToken('wurd', normalized=True, single_word=True), AddedToken('<x>', lstrip=True, rstrip=True)])

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(' {2,}'), ' ')])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    finish('unigram', t, trainers.UnigramTrainer(vocab_size=big, special_tokens=['<pad>', '</s>', '<unk>'], unk_token='<unk>'))
    t.post_processor = processors.TemplateProcessing(single='$A </s>', special_tokens=[('</s>', 1)])

    t = Tokenizer(models.Unigram(byte_fallback=True))
    t.normalizer = normalizers.Prepend('\u2581')
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first', split=False)
    t.decoder = decoders.Sequence([decoders.Replace('\u2581', ' '), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(' ', 1, 0)])
    bytes_ = [f'<0x{b:02X}>' for b in range(256)]
    finish('unigram_bytes', t, trainers.UnigramTrainer(vocab_size=big + 256, special_tokens=['<unk>'] + bytes_, unk_token='<unk>'))
    j = json.loads(t.to_str())
    j['added_tokens'] = [a for a in j['added_tokens'] if not a['content'].startswith('<0x')]
    j['model']['byte_fallback'] = True
    out['unigram_bytes'] = Tokenizer.from_str(json.dumps(j))

    t = Tokenizer(models.BPE(unk_token='<unk>', end_of_word_suffix='</w>'))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                               pre_tokenizers.Punctuation('isolated')])
    t.decoder = decoders.BPEDecoder(suffix='</w>')
    finish('bpe_suffix', t, trainers.BpeTrainer(vocab_size=big, special_tokens=['<unk>'], end_of_word_suffix='</w>'))

    t = Tokenizer(models.BPE(unk_token='<unk>', continuing_subword_prefix='##', fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit(' '),
                                               pre_tokenizers.Punctuation('merged_with_previous')])
    finish('bpe_prefix', t, trainers.BpeTrainer(vocab_size=big, special_tokens=['<unk>'], continuing_subword_prefix='##'))

    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.ByteLevel()
    t.pre_tokenizer = pre_tokenizers.Split(Regex('\u0120?[A-Za-z]+|\\d|.'), 'isolated')
    t.decoder = decoders.ByteLevel()
    finish('bytes_by_normalizer', t, trainers.BpeTrainer(
        vocab_size=big, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=['<|end|>']))

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation('contiguous'), pre_tokenizers.Digits(True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=True)])
    t.decoder = decoders.ByteLevel()
    finish('roberta', t, trainers.BpeTrainer(
        vocab_size=big, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=['<s>', '</s>', '<mask>']))
    t.post_processor = processors.RobertaProcessing(('</s>', 1), ('<s>', 0))
    t.add_special_tokens([AddedToken('<mask>', lstrip=True)])

    for behavior in ['removed', 'merged_with_previous', 'merged_with_next', 'contiguous']:
        for invert in [False, True]:
            t = Tokenizer(models.BPE())
            t.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex('[aeiou\\s]'), behavior, invert),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
            t.decoder = decoders.ByteLevel()
            finish(f'split_{behavior}_{invert}', t, trainers.BpeTrainer(
                vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return out


def make_small(out):
    result = []
    old = old_and_unchanged()
    for k, (name, t) in enumerate(small_tokenizers().items()):
        cases = []
        extra = ['', ' ', '  a  b ', 'WURD', 'xwurd', 'Wu\u0308rd!', 'a <x>  b', 'a <mask> b', '</s>', '<|end|>x', 'the<mask>',
                 'ABC abc ÀÉ', '12 345 6', 'don\'t stop...now', 'İstanbul ẞ']
        # NUL and the like are dropped by some trainers' alphabets, and that is what gets compared.
        for s in extra + random_strings(60 if name.startswith('split') else 150, SEED + 100 + k, old):
            e = t.encode(s, add_special_tokens=False)
            cases.append({'text': s, 'ids': e.ids, 'all': t.encode(s).ids, 'decoded': t.decode(e.ids, skip_special_tokens=False)})
        result.append({'name': name, 'tokenizer': json.loads(t.to_str()), 'cases': cases})
    write_gz(f'{out}/small.json.gz', dump(result))


# ---------------------------------------------------------------- GGUF

def read_gguf(path):
    from gguf import GGUFReader
    r = GGUFReader(path)

    def get(key, default=None):
        f = r.fields.get(key)
        return default if f is None else f.contents()

    t = 'tokenizer.ggml.'
    f = r.fields[t + 'tokens']
    raw = lambda f: [bytes(f.parts[i]) for i in f.data]
    v = {'model': get(t + 'model'), 'pre': get(t + 'pre', ''), 'architecture': get('general.architecture', ''),
         'name': get('general.name', '')}
    for key, name in [('bos_token_id', 'bos'), ('eos_token_id', 'eos'), ('unknown_token_id', 'unk'), ('padding_token_id', 'pad'),
                      ('seperator_token_id', 'sep'), ('cls_token_id', 'cls'), ('add_bos_token', 'add_bos'),
                      ('add_eos_token', 'add_eos'), ('add_space_prefix', 'add_space_prefix'),
                      ('remove_extra_whitespaces', 'remove_extra_whitespaces')]:
        x = get(t + key)
        if x is not None:
            v[name] = x if isinstance(x, bool) else int(x)
    merges = r.fields.get(t + 'merges')
    scores = r.fields.get(t + 'scores')
    types = r.fields.get(t + 'token_type')
    return (v, raw(f), None if types is None else [int(x) for x in types.contents()],
            None if scores is None else [float(x) for x in scores.contents()],
            [] if merges is None else raw(merges))


def pack_vocab(path, out, cases):
    v, tokens, types, scores, merges = read_gguf(path)
    if v['model'] in ('gpt2', 'bert', 'gemma4'):
        scores = None
    v['has_scores'] = scores is not None
    v['merges'] = len(merges)
    v['cases'] = cases
    header = dump(v)
    data = bytearray(b'TVOC1\n' + struct.pack('<I', len(header)) + header)
    data += varint(len(tokens))
    for x in tokens:
        data += varint(len(x))
    for x in tokens:
        data += x
    data += bytes(types or [1] * len(tokens))
    if scores is not None:
        data += struct.pack(f'<{len(scores)}f', *scores)
    ids = {}
    for i, x in enumerate(tokens):
        ids.setdefault(x, i)
    previous = -1
    deltas, lefts = bytearray(), bytearray()
    for m in merges:
        a, b = m[:m.index(b' ', 1)], m[m.index(b' ', 1) + 1:]
        i = ids.get(a + b)
        if i is None:
            deltas += varint(1) + varint(len(a)) + a + varint(len(b)) + b
            continue
        d = i - previous - 1
        previous = i
        deltas += varint((d * 2 if d >= 0 else -d * 2 - 1) * 2)
        lefts += varint(len(a))
    data += deltas + lefts
    write_gz(out, bytes(data))


def make_vocabs(out, folder):
    for f in sorted(os.listdir(folder)):
        if not f.endswith('.gguf.inp'):
            continue
        base = os.path.join(folder, f[:-4])
        inputs = open(base + '.inp', encoding='utf-8', newline='').read().split('\n__ggml_vocab_test__\n')
        outputs = open(base + '.out', encoding='utf-8').read().split('\n')
        cases = []
        for s, ids in zip(inputs, outputs):
            cases.append({'text': s, 'ids': [int(x) for x in ids.split()]})
        assert len(inputs) - 1 <= len(outputs), base
        pack_vocab(base, f'{out}/{f[len("ggml-vocab-"):-len(".gguf.inp")]}.vocab.gz', cases)


def make_llama4(out):
    """A small vocabulary as llama.cpp's converter writes Llama 4's (of which it publishes none), with the ids of the
    tokenizers package by the published tokenizer's pattern. llama.cpp must agree but for texts with combining marks, which
    it takes for no part of words."""
    import tempfile
    import gguf
    from llama_cpp import llama_cpp
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    mark = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    pattern = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + mark +
               r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + mark +
               r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), 'isolated'),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    text = [' '.join(WORDS * 3)] + random_strings(80, SEED + 9)
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=900, show_progress=False,
                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                    special_tokens=['<|begin_of_text|>', '<|end_of_text|>']))
    model = json.loads(t.to_str())['model']
    tokens = sorted(model['vocab'], key=model['vocab'].get)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'llama4.gguf')
        w = gguf.GGUFWriter(path, 'llama4')
        w.add_context_length(64)  # what llama.cpp asks of any file
        w.add_tokenizer_model('gpt2')
        w.add_tokenizer_pre('llama4')
        w.add_token_list(tokens)
        w.add_token_types([3, 3] + [1] * (len(tokens) - 2))
        w.add_token_merges([' '.join(m) for m in model['merges']])
        w.add_bos_token_id(0)
        w.add_eos_token_id(1)
        w.add_add_bos_token(True)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.close()
        p = llama_cpp.llama_model_default_params()
        p.vocab_only = True
        m = llama_cpp.llama_model_load_from_file(path.encode(), p)
        vocab = llama_cpp.llama_model_get_vocab(m)
        cases = []
        strings = random_strings(200, SEED + 10) + ["I'LL don't WE'VE", 'ABCdef GhI', '1234567', 'a/b//\n/c', '<|begin_of_text|>x']
        for s in strings:
            raw = s.encode()
            ids = (llama_cpp.llama_token * (len(raw) + 8))()
            n = llama_cpp.llama_tokenize(vocab, raw, len(raw), ids, len(ids), False, False)
            want = t.encode(s, add_special_tokens=False).ids
            if s.startswith('<|'):  # here it is text, which the package has no way to say
                want = list(ids[:n])
            marks = any(unicodedata.category(c).startswith('M') for c in s)
            assert marks or list(ids[:n]) == want, (s, list(ids[:n]), want)
            cases.append({'text': s, 'ids': want})
        pack_vocab(path, f'{out}/llama4.vocab.gz', cases)


# ---------------------------------------------------------------- tekken.json

TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def make_tekken(out):
    """A small file as Mistral's are, and what mistral-common makes of it."""
    import base64
    import tempfile
    from mistral_common.tokens.tokenizers.tekken import SpecialTokenPolicy, Tekkenizer
    from tiktoken._educational import bpe_train
    strings = random_strings(600, SEED + 7)
    ranks = bpe_train(' '.join(WORDS * 3) + '\n'.join(random_strings(60, SEED + 8)), 600, TEKKEN, visualise=None)
    tokens = [b for b, _ in sorted(ranks.items(), key=lambda x: x[1])]
    # Ways that meet in one token, tokens that no two others make, one whose parts come later, and bytes that are no text.
    for more in ['aa', 'aaa', 'aaaa', 'xyzzy', ' xyzzy!', 'qzqzqz', 'qzq', 'qz', '[INST]']:
        if more.encode() not in ranks:
            tokens.append(more.encode())
    tokens += [b'\xe4\xbd', b'\xbd\xa0', b'\xff\xfe']
    tokens = list(dict.fromkeys(tokens))
    def text(b):
        try:
            return b.decode()
        except UnicodeDecodeError:
            return None
    names = ['<unk>', '<s>', '</s>', '[INST]', '[/INST]', '<pad>', '[AUDIO]', '[BEGIN_AUDIO]', 'a']
    count = 16
    file = {'config': {'pattern': TEKKEN, 'num_vocab_tokens': len(tokens) + 2, 'default_vocab_size': len(tokens) + count,
                       'default_num_special_tokens': count, 'version': 'v13'},
            'vocab': [{'rank': i, 'token_bytes': base64.b64encode(b).decode(), 'token_str': text(b)}
                      for i, b in enumerate(tokens + [b'cut off', b'as well'])],
            'special_tokens': [{'rank': i, 'token_str': n, 'is_control': n != 'a'} for i, n in enumerate(names)]}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'tekken.json')
        with open(path, 'w') as f:
            json.dump(file, f)
        t = Tekkenizer.from_file(path)
    cases = []
    for s in strings + ['', 'xyzzy', ' xyzzy!', 'xyzzyx', 'a' * 40, 'qzqzqzqzqz', '[INST]x[/INST]', '<s></s>', 'aaaab你好你']:
        ids = t.encode(s, bos=False, eos=False)
        cases.append({'text': s, 'ids': ids})
        assert t.decode(ids) == s
    rng = random.Random(SEED)
    decoded = []
    for _ in range(200):
        ids = [rng.randrange(t.n_words) for _ in range(rng.randint(1, 12))]
        decoded.append({'ids': ids, 'decoded': t.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP)})
    write_gz(f'{out}/tekken.json.gz', dump({'tokenizer': file, 'cases': cases, 'ids': decoded}))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('out')
    p.add_argument('--tokenizers')
    p.add_argument('--cases')
    p.add_argument('--vocabs')
    p.add_argument('--only', help='of the tokenizers, just this one')
    p.add_argument('--small', action='store_true')
    p.add_argument('--llama4', action='store_true')
    p.add_argument('--tekken', action='store_true')
    p.add_argument('--gguf', nargs='*', default=[])
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    if a.tokenizers:
        make_tokenizers(a.out, a.tokenizers, a.only)
        if not a.only:
            make_small(a.out)
    if a.small:
        make_small(a.out)
    if a.cases:
        cases = []
        for r in ['R2', 'R3', 'R5', 'R8']:
            for c in json.load(open(os.path.join(a.cases, r + '.json')))['cases']:
                cases.append({'report': r, **c})
        with open(f'{a.out}/reports.json', 'wb') as f:
            f.write(dump(cases))
    if a.vocabs:
        make_vocabs(a.out, a.vocabs)
    if a.llama4:
        make_llama4(a.out)
    if a.tekken:
        make_tekken(a.out)
    for path in a.gguf:
        pack_vocab(path, f'{a.out}/{os.path.basename(path)}.vocab.gz', [])


if __name__ == '__main__':
    main()
