import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { tinyConfig } from "../../../../test/support/runs.js";
import { encodeSafetensors } from "../../files/safetensors/safetensorsBytes.js";
import { openRunData } from "../../run/runData.js";
import { writeTokenShard } from "../tokens/tokenShards.js";
import { textProblem } from "./textFile.js";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "shardwise-text-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const text = "Call me Ishmael. Some years ago, never mind how long precisely. ".repeat(20);
const latin1 = (start: string) => Buffer.concat([Buffer.from(start, "latin1"), Buffer.from(text)]);
const array = { dtype: "float32", shape: [1], data: new Float32Array([1]) } as const;

/** Files that are no text, under names that say nothing, with what the error says. */
const others: readonly (readonly [string, Uint8Array, string])[] = [
  ["bzip2", latin1("BZh91AY"), "byte 0: this is compressed by bzip2"],
  ["xz", latin1("\xfd7zXZ\0"), "byte 0: this is compressed by xz"],
  ["ZIP", latin1("PK\x03\x04"), "byte 0: this is a ZIP archive or an office document"],
  ["SQLite", latin1("SQLite format 3\0"), "byte 0: this is an SQLite database"],
  ["PDF", latin1("%PDF-1.7\n"), "byte 0: this is a PDF document"],
  ["UTF-16", Buffer.from(`\ufeff${text}`, "utf16le"), "byte 0: this is text in UTF-16"],
  ["safetensors", encodeSafetensors([["w", array]]), "this is a binary file, not text"],
  ["a NUL far behind", Buffer.from(`${text}\0`), `byte ${text.length}: this is a binary file, not text`],
  ["Latin-1", latin1("caf\xe9 "), "byte 3: the text is not UTF-8 here: convert it"],
];

describe.each(others)("%s", (kind, bytes, message) => {
  test.each(["bytes", "bpe"])("is refused as text for a tokeniser of %s", async (tokenizer) => {
    const source = join(folder, `${kind.replaceAll(" ", "-")}.data`);
    await writeFile(source, bytes);
    const config = tinyConfig(folder, { "data.source": source, "data.tokenizer": tokenizer });
    const opened = openRunData(config, folder, { begun: false });
    await expect(opened).rejects.toThrow(`[data] ${source}, byte`);
    await expect(opened).rejects.toThrow(message);
  });
});

test("text is taken as it is: any characters, marks of a decoder, braces", () => {
  const texts = ["", text, "\ufeffmarked", "\ufffd mark", "naïve 🦈 文", "{ a } b\n", '{"a": 1}\nand text\n'];
  for (const each of texts) expect(textProblem(Buffer.from(each))).toBeUndefined();
});

test("the byte that is not UTF-8 is found behind megabytes, where characters lie across pieces", () => {
  for (const before of [2 ** 20 - 2, 2 ** 20 - 1, 2 ** 20, 3 * 2 ** 20 + 5]) {
    const good = Buffer.from(`${"a".repeat(before)}文\ufffd`);
    expect(textProblem(good)).toBeUndefined();
    const bad = textProblem(Buffer.concat([good, Buffer.from([0xe6, 0x61])]));
    expect(bad).toMatchObject({ offset: before + 6, rule: expect.stringContaining("the text is not UTF-8") });
  }
});

test("a file of tokens is taken under its ending and named without it, and holds any bytes", async () => {
  const source = join(folder, "bytes.tokens");
  await writeTokenShard(source, gzipSync(text.repeat(9)), 256);
  const config = tinyConfig(folder, { "data.source": source });
  const { training, close } = await openRunData(config, folder, { begun: false });
  const [rows] = training.sources;
  expect(rows && "numRows" in rows && [...(await rows.read(0)).tokens.subarray(0, 2)]).toEqual([0x1f, 0x8b]);
  const rule = "this is a file of tokens, not text: give it a name that ends with .tokens";
  expect(textProblem(await readFile(source))).toEqual({ offset: 0, rule });
  await close();
});
