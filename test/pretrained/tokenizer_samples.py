"""Trains a small tokeniser of every kind and encodes and decodes random texts with Hugging Face's tokenizers.

usage: tokenizer_samples.py FOLDER TEXT-FILE NUMBER-OF-TEXTS [KIND …]
"""

import base64
import importlib.util
import io
import json
import os
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

folder, corpus, count = sys.argv[1], open(sys.argv[2], encoding="utf-8").read(), int(sys.argv[3])
words = corpus.split()
rng = random.Random(7)
emoji = list("😀🎉👩‍🚀🇩🇪❤️‍🔥👍🏽🧑‍🤝‍🧑☕️")
scripts = ["naïve café", "Straße", "Ελλάδα ΟΔΟΣ", "привет, мир", "こんにちは世界", "中文字符测试", "한국어", "עברית", "العربية", "ﬁ ﬂ ① ㎏ Å", "e\u0301 n\u0303", "\u200b\u00a0\u3000"]
code = ["def f(x):\n    return x ** 2\n", "for (let i = 0; i < n; i++) { a[i] += `${b}`; }\n", "\t<div class=\"x\">&amp;</div>", "SELECT * FROM t WHERE id='1';", "0x1F + 3.14e-10", "https://example.org/a?b=c#d"]
marks = ["<s>", "</s>", "[MASK]", "<|end|>", " <|end|> ", "[CLS]"]


def character():
    """A random character that every version of Unicode knows: libraries differ in what they know of newer ones."""
    while True:
        code = rng.choice([rng.randint(32, 126), rng.randint(160, 0x2FF), rng.randint(0x370, 0x1FFF), rng.randint(0x2000, 0xD7FF), rng.randint(0x10000, 0x1FFFF)])
        if unicodedata.ucd_3_2_0.category(chr(code)) != "Cn":
            return chr(code)


def text():
    parts = []
    for _ in range(rng.randint(0, 12)):
        kind = rng.random()
        if kind < 0.5:
            parts.append(rng.choice(words))
        elif kind < 0.6:
            parts.append(rng.choice(emoji))
        elif kind < 0.7:
            parts.append(rng.choice(scripts))
        elif kind < 0.8:
            parts.append(rng.choice(code))
        elif kind < 0.85:
            parts.append("".join(character() for _ in range(rng.randint(1, 6))))
        elif kind < 0.9:
            parts.append(rng.choice([" ", "  ", "\n\n", "\t", "\r\n", "   \n "]))
        elif kind < 0.95:
            parts.append(str(rng.randint(0, 10**6)) + rng.choice(["!", "...", "'s", "'LL", "?!", "%"]))
        else:
            parts.append(rng.choice(marks))
        parts.append(rng.choice([" ", " ", " ", "", "\n"]))
    return "".join(parts)


def lines():
    return [corpus[i : i + 400] for i in range(0, len(corpus), 400)]


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(lines(), trainer)
    return tokenizer


def charsmap():
    """The table of SentencePiece's nmt_nfkc, from the bytes of a model that it trained."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus.splitlines()[:400]), model_writer=model, vocab_size=120, hard_vocab_limit=False, minloglevel=2)

    def fields(data):
        at = 0
        while at < len(data):
            key, at = varint(data, at)
            if key & 7 == 2:
                size, at = varint(data, at)
                yield key >> 3, data[at : at + size]
                at += size
            elif key & 7 == 0:
                _, at = varint(data, at)
            else:
                at += 4 if key & 7 == 5 else 8

    def varint(data, at):
        value, shift = 0, 0
        while True:
            byte = data[at]
            value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
            if byte < 128:
                return value, at

    spec = next(value for key, value in fields(model.getvalue()) if key == 3)
    return next(value for key, value in fields(spec) if key == 2)


def kinds():
    size = 400 if count >= 1000 else 320
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.decoder = decoders.ByteLevel()
    gpt2.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "gpt2", train(gpt2, trainers.BpeTrainer(vocab_size=size, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))

    llama3 = Tokenizer(models.BPE(ignore_merges=True))
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    llama3.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    llama3.decoder = decoders.ByteLevel()
    train(llama3, trainers.BpeTrainer(vocab_size=size, special_tokens=["<s>", "<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    llama3.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])])
    yield "llama3", llama3

    llama2 = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama2.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    train(llama2, trainers.BpeTrainer(vocab_size=size + 256, special_tokens=["<unk>", "<s>", "</s>"] + bytes_, limit_alphabet=60))
    data = json.loads(llama2.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    llama2 = Tokenizer.from_str(json.dumps(data))
    llama2.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    yield "llama2", llama2

    gemma = Tokenizer.from_str(llama2.to_str())
    gemma.normalizer = normalizers.Replace(" ", "▁")
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    yield "gemma", gemma

    mistral = Tokenizer.from_str(llama2.to_str())
    mistral.normalizer = None
    mistral.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    mistral.add_tokens([AddedToken("<|end|>", lstrip=True, rstrip=True, normalized=False), AddedToken("the", single_word=True)])
    yield "mistral", mistral

    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer = normalizers.BertNormalizer()
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.decoder = decoders.WordPiece()
    train(bert, trainers.WordPieceTrainer(vocab_size=size, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    bert.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    bert.add_tokens([AddedToken("café", normalized=True)])
    yield "bert", bert

    t5 = Tokenizer(models.Unigram())
    t5.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()) if count >= 1000 and importlib.util.find_spec("sentencepiece") else normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), "▁")])
    t5.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    t5.decoder = decoders.Metaspace()
    yield "t5", train(t5, trainers.UnigramTrainer(vocab_size=size, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>"))

    albert = Tokenizer(models.Unigram())
    albert.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    albert.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Metaspace()])
    albert.decoder = decoders.Metaspace()
    train(albert, trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>"] + bytes_, unk_token="<unk>"))
    data = json.loads(albert.to_str())
    data["added_tokens"] = data["added_tokens"][:1]
    data["model"]["byte_fallback"] = True
    yield "unigramBytes", Tokenizer.from_str(json.dumps(data))

    clip = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    clip.pre_tokenizer = pre_tokenizers.Whitespace()
    clip.decoder = decoders.BPEDecoder()
    yield "suffix", train(clip, trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>"], end_of_word_suffix="</w>"))


os.makedirs(folder, exist_ok=True)
texts = [text() for _ in range(count)]
for name, tokenizer in kinds():
    if sys.argv[4:] and name not in sys.argv[4:]:
        continue
    path = os.path.join(folder, name)
    with open(path + ".tokenizer.json", "w", encoding="utf-8") as file:
        file.write(tokenizer.to_str())
    total = tokenizer.get_vocab_size()
    rows = []
    for one in texts:
        plain = tokenizer.encode(one, add_special_tokens=False).ids
        # Random tokens rarely make valid UTF-8.
        noise = [rng.randrange(total) for _ in range(rng.randint(1, 8))]
        rows.append(dict(
            text=one, ids=plain, special=tokenizer.encode(one).ids, decoded=tokenizer.decode(plain, skip_special_tokens=True),
            noise=noise, noiseDecoded=tokenizer.decode(noise, skip_special_tokens=False),
        ))
    with open(path + ".samples.json", "w", encoding="utf-8") as file:
        json.dump(rows, file, ensure_ascii=True, separators=(",", ":"))
    print(name, total, flush=True)
