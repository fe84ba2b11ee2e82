import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { tinyConfig } from "../../../test/support/runs.js";
import { encodeSafetensors } from "../files/safetensorsBytes.js";
import { openRunData } from "../run/runData.js";
import { checkText } from "./textFile.js";
import { writeTokenShard } from "./tokenShards.js";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "shardwise-text-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const text = "Call me Ishmael. Some years ago, never mind how long precisely. ".repeat(20);
const latin1 = (start: string) => Buffer.concat([Buffer.from(start, "latin1"), Buffer.from(text)]);
const lines = (n: number) => `${JSON.stringify({ text })}\n`.repeat(n);
const array = { dtype: "float32", shape: [1], data: new Float32Array([1]) } as const;

/** Files that are no text, under names that say nothing, with what the error says. */
const others: readonly (readonly [string, Uint8Array, string])[] = [
  ["gzip", gzipSync(text), "byte 0: this is compressed by gzip, not text: unpack it with gunzip"],
  [
    "zstd",
    latin1("\x28\xb5\x2f\xfd"),
    "byte 0: this is compressed by zstd, not text: unpack it with zstd -d",
  ],
  ["bzip2", latin1("BZh91AY"), "byte 0: this is compressed by bzip2"],
  ["xz", latin1("\xfd7zXZ\0"), "byte 0: this is compressed by xz"],
  ["ZIP", latin1("PK\x03\x04"), "byte 0: this is a ZIP archive or an office document"],
  ["Parquet", latin1("PAR1\x15\x04"), "byte 0: this is a Parquet file, not text: write its column of text"],
  ["SQLite", latin1("SQLite format 3\0"), "byte 0: this is an SQLite database"],
  ["PDF", latin1("%PDF-1.7\n"), "byte 0: this is a PDF document"],
  ["UTF-16", Buffer.from(`\ufeff${text}`, "utf16le"), "byte 0: this is text in UTF-16"],
  ["safetensors", encodeSafetensors([["w", array]]), "this is a binary file, not text"],
  ["a NUL far behind", Buffer.from(`${text}\0`), `byte ${text.length}: this is a binary file, not text`],
  ["Latin-1", latin1("caf\xe9 "), "byte 3: the text is not UTF-8 here: convert it"],
  ["JSON Lines", Buffer.from(lines(5)), "byte 0: every line is a JSON object: write the field"],
  ["one line of JSON", Buffer.from(lines(1)), "byte 0: every line is a JSON object"],
];

describe.each(others)("%s", (kind, bytes, message) => {
  test.each(["bytes", "bpe"])("is refused as text for a tokeniser of %s", async (tokenizer) => {
    const source = join(folder, `${kind.replaceAll(" ", "-")}.data`);
    await writeFile(source, bytes);
    const config = tinyConfig(folder, { "data.source": source, "data.tokenizer": tokenizer });
    const opened = openRunData(config, folder, { begun: false });
    await expect(opened).rejects.toThrow(`[text] ${source}, byte`);
    await expect(opened).rejects.toThrow(message);
  });
});

test("text is taken as it is: any characters, marks of a decoder, braces, and JSON where .txt says so", () => {
  const texts = ["", text, "\ufeffmarked", "\ufffd mark", "naïve 🦈 文", "{ a } b\n", '{"a": 1}\nand text\n'];
  for (const each of texts) checkText(Buffer.from(each), "some.md");
  checkText(Buffer.from(lines(5)), "json.txt");
  checkText(Buffer.from("[1, 2]\n[3]\n"), "lists.data");
});

test("the byte that is not UTF-8 is found behind megabytes, where characters lie across pieces", () => {
  for (const before of [2 ** 20 - 2, 2 ** 20 - 1, 2 ** 20, 3 * 2 ** 20 + 5]) {
    const good = Buffer.from(`${"a".repeat(before)}文\ufffd`);
    checkText(good, "x");
    expect(() => checkText(Buffer.concat([good, Buffer.from([0xe6, 0x61])]), "x")).toThrow(
      `x, byte ${before + 6}: the text is not UTF-8`,
    );
  }
});

test("a file of tokens is taken under its ending and named without it, and holds any bytes", async () => {
  const source = join(folder, "bytes.tokens");
  await writeTokenShard(source, gzipSync(text.repeat(9)), 256);
  const config = tinyConfig(folder, { "data.source": source });
  const { training } = await openRunData(config, folder, { begun: false });
  expect([...(await training.read(0, 2))]).toEqual([0x1f, 0x8b]);
  const tokens = await readFile(source);
  expect(() => checkText(tokens, "x")).toThrow(
    "this is a file of tokens, not text: give it a name that ends with .tokens",
  );
});
