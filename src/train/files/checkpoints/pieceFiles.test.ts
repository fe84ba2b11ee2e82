import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { checksumsOf, type FileParts, pieceBytes, writePieces } from "./pieceFiles.js";

let root: string;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), "shardwise-pieces-"));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const counted = (bytes: number) => new Uint8Array(bytes).map((_, i) => (i * 131 + (i >> 8)) & 255);

/** A file in memory whose writes take a while; what it is given must not change meanwhile. */
function slowFile() {
  const writes: Uint8Array[] = [];
  let isWriting = false;
  const write = async (bytes: Uint8Array) => {
    expect(isWriting).toBe(false);
    isWriting = true;
    await new Promise((resolve) => setTimeout(resolve, 5));
    writes.push(bytes.slice());
    isWriting = false;
  };
  return { writes, file: { write, sync: async () => {}, close: async () => {} } };
}

async function written(parts: FileParts) {
  const { writes, file } = slowFile();
  const checksums = await writePieces(file, parts);
  return { writes, bytes: Buffer.concat(writes), checksums };
}

describe("a file that is written in pieces", () => {
  test("has all bytes in order, a few MiB at a time, wherever its parts end", async () => {
    const sizes = [10, 0, pieceBytes - 10, 3 * pieceBytes, 1, 2 * pieceBytes, 6 * pieceBytes - 2, 5];
    const parts = sizes.map(counted);
    const { writes, bytes, checksums } = await written(parts);
    expect(writes.map(({ length }) => length)).toEqual([4, 4, 4].map((n) => n * pieceBytes).concat(4));
    expect(bytes.equals(Buffer.concat(parts))).toBe(true);
    expect(checksums.bytes).toBe(bytes.length);
    expect(checksums.pieces).toHaveLength(16 * 13);
    writeFileSync(join(root, "same"), bytes);
    const { bytes: length, ...expected } = checksums;
    expect(await checksumsOf(join(root, "same"), length, 4)).toEqual(expected);
  });

  test("takes parts that are overwritten when the next is asked for", async () => {
    const memory = new Uint8Array(new SharedArrayBuffer(3 * pieceBytes));
    async function* overwritten() {
      for (let i = 1; i < 6; i++) yield memory.fill(i);
    }
    const { bytes } = await written(overwritten());
    expect(bytes.length).toBe(15 * pieceBytes);
    for (let i = 1; i < 6; i++) {
      const part = bytes.subarray(3 * (i - 1) * pieceBytes, 3 * i * pieceBytes);
      expect(part.equals(Buffer.alloc(part.length, i))).toBe(true);
    }
  });

  test("has no pieces if it is empty", async () => {
    expect((await written([new Uint8Array()])).checksums).toMatchObject({ bytes: 0, pieces: "" });
  });

  test("fails as its disk does, when nothing is written any more", async () => {
    let numRunning = 0;
    const write = async () => {
      numRunning++;
      await new Promise((resolve) => setTimeout(resolve, 5));
      numRunning--;
      throw new Error("no disk");
    };
    const file = { write, sync: async () => {}, close: async () => {} };
    await expect(writePieces(file, [counted(20 * pieceBytes)])).rejects.toThrow("no disk");
    expect(numRunning).toBe(0);
  });
});

test("checksums of pieces are XXH64, as xxHash computes it", async () => {
  const bytes = counted(pieceBytes);
  // From the Python package xxhash.
  const expected: Record<number, string> = {
    0: "ef46db3751d8e999",
    1: "e934a84adb052768",
    4: "9882e57ed36c4cfc",
    20: "744dedc3499b864d",
    31: "1add2d10328c4897",
    32: "333288d992cf3b16",
    33: "379b60150f2cfc7f",
    63: "230f593878fe3703",
    100: "acd07a6400e07def",
    1000: "a2f5fad80629422e",
    [pieceBytes]: "db9d70ec2be21cf3",
  };
  for (const [length, checksum] of Object.entries(expected)) {
    const { checksums } = await written([bytes.subarray(0, Number(length))]);
    expect(checksums.pieces).toBe(length === "0" ? "" : checksum);
    expect(checksums.sha256).toBe(createHash("sha256").update(checksums.pieces).digest("hex"));
  }
});
