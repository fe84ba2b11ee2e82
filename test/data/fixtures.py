"""Writes the Parquet and zstd fixtures with pyarrow and the zstd command: python test/data/fixtures.py"""
import json, pathlib, subprocess
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
