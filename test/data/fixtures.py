"""Writes the Parquet and zstd fixtures with pyarrow and the zstd command: python test/data/fixtures.py"""
import base64, json, pathlib, subprocess
import pyarrow as pa, pyarrow.parquet as pq

here = pathlib.Path(__file__).parent / "fixtures"
here.mkdir(exist_ok=True)
texts = [f"Text {i} with naïve 🦈 signs." for i in range(12)]
chats = [[{"role": "user", "content": f"{i} + 1?"}, {"role": "assistant", "content": str(i + 1)}] for i in range(12)]
table = pa.table({"id": list(range(12)), "text": texts, "messages": chats})
for codec in ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]:
    pq.write_table(table, here / f"{codec}.parquet", compression=codec, row_group_size=5)
lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
(here / "texts.jsonl.zst").write_bytes(subprocess.run(["zstd", "-19", "-c"], input=lines, stdout=subprocess.PIPE, check=True).stdout)

links = [None if i % 11 == 0 else f"https://example.org/a/{i // 7}/page-{i * i % 101}" for i in range(300)]
for version, name in [("1.0", "deltaStrings"), ("2.0", "deltaStringsV2")]:
    options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}, "data_page_version": version}
    pq.write_table(pa.table({"text": links}), here / f"{name}.parquet", compression="zstd", **options)


class Contents:
    """What `src/train/data/sources/zstd.test.ts` makes, too."""

    def __init__(self):
        self.state = 1

    def next(self, below):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.state * below // 2**32

    def word(self):
        letters = "abcdefghijklmnopqrstuvwxyz"
        letters = letters[self.next(20):21 + self.next(5)]
        return letters[:1 + self.next(7)]

    def make(self, name):
        if name == "words":
            return " ".join(self.word() for _ in range(900)).encode()
        if name == "lines":
            same = "as the line before it"
            return "".join(f"{i % 70} {self.word() if self.next(50) == 0 else same}\n" for i in range(9000)).encode()
        if name == "noise":
            return bytes(self.next(256) for _ in range(900))
        if name == "zeros":
            return bytes(400_000)
        if name == "numbers":
            return b"".join((1000 * i + self.next(9)).to_bytes(4, "little") for i in range(1500))
        return b""


given = [
    ("words", "-1"), ("words", "-19"), ("words", "--ultra -22"), ("words", "--fast=7 --no-check"), ("lines", "-1"),
    ("lines", "-12 -B4096"), ("noise", "-3"), ("zeros", "-3"), ("nothing", "-3"), ("numbers", "-19"),
]
rows = []
for content, options in given:
    command = ["zstd", "-q", "-c", *options.split()]
    made = subprocess.run(command, input=Contents().make(content), stdout=subprocess.PIPE, check=True).stdout
    rows.append({"content": content, "options": options, "base64": base64.b64encode(made).decode()})
(here / "zstd.json").write_text(json.dumps(rows, indent=2) + "\n")
