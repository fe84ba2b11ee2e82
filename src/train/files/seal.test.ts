import { describe, expect, test } from "vitest";
import { type FileParts, PieceHasher, pieceBytes, piecesOf } from "./seal.js";

async function piecesIn(parts: FileParts): Promise<Uint8Array[]> {
  const pieces: Uint8Array[] = [];
  for await (const piece of piecesOf(parts)) pieces.push(piece);
  return pieces;
}

const counted = (bytes: number) => new Uint8Array(bytes).map((_, i) => i % 251);

describe("pieces of a file", () => {
  test("are all of one size but the last, wherever its parts end", async () => {
    const sizes = [10, 0, pieceBytes - 10, 3 * pieceBytes, 1, 2 * pieceBytes, pieceBytes - 2, 5];
    const parts = sizes.map(counted);
    const pieces = await piecesIn(parts);
    expect(pieces.map(({ length }) => length)).toEqual([...Array(7).fill(pieceBytes), 4]);
    expect(Buffer.concat(pieces).equals(Buffer.concat(parts))).toBe(true);
    // Whole pieces in one part are not copied.
    expect(pieces.map(({ buffer }) => parts.findIndex((part) => part.buffer === buffer))).toEqual([
      -1, 3, 3, 3, -1, 5, -1, -1,
    ]);
  });

  test("of nothing are none", async () => {
    expect(await piecesIn([new Uint8Array()])).toEqual([]);
    expect((await new PieceHasher().finish()).pieces).toBe("");
  });
});

test("pieces are hashed as they are when they are added, also those in memory that threads share", async () => {
  const [own, shared] = [new PieceHasher(), new PieceHasher()];
  const memory = new Uint8Array(new SharedArrayBuffer(pieceBytes));
  for (let i = 0; i < 8; i++) {
    memory.fill(i);
    await shared.add(memory);
    const piece = new Uint8Array(pieceBytes).fill(i);
    const added = own.add(piece);
    piece.fill(255);
    await added;
  }
  memory.fill(255);
  const { sha256, pieces } = await own.finish();
  expect(new Set(pieces.match(/.{16}/g)).size).toBe(8);
  expect(await shared.finish()).toEqual({ sha256, pieces });
});
