/**
 * Checksums that tell where a file is damaged, not only that it is. Files of tensors have one for each piece, listed
 * in the manifest. The manifest has a seal, its last field: the checksums of its own pieces up to the seal, and one
 * over those, so that a change of any byte is noticed.
 */
import { createHash } from "node:crypto";
import { range } from "../../ir/shape.js";
import { FileError } from "./fileError.js";

/** The size of the pieces of files of tensors. */
export const pieceBytes = 2 ** 20;

/** The size of the pieces of a manifest. */
const sealedBytes = 512;

const digits = 16;

function shortHash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex").slice(0, digits);
}

/** The checksums of all pieces of some bytes. */
function hashPieces(bytes: Uint8Array, size: number): string {
  return range(Math.ceil(bytes.length / size))
    .map((i) => shortHash(bytes.subarray(i * size, (i + 1) * size)))
    .join("");
}

/** Takes the bytes of a file in any portions and gives the checksums of its pieces. */
export class PieceHasher {
  private hash = createHash("sha256");
  private filled = 0;
  private done = "";

  /** Adds the next bytes. */
  update(bytes: Uint8Array): void {
    for (let start = 0; start < bytes.length; ) {
      const portion = bytes.subarray(start, start + pieceBytes - this.filled);
      this.hash.update(portion);
      this.filled += portion.length;
      start += portion.length;
      if (this.filled === pieceBytes) this.next();
    }
  }

  /** The checksums of all pieces. */
  digest(): string {
    if (this.filled > 0) this.next();
    return this.done;
  }

  private next(): void {
    this.done += this.hash.digest("hex").slice(0, digits);
    this.hash = createHash("sha256");
    this.filled = 0;
  }
}

/** Where the first piece lies that differs; undefined when none does, or when they are not known. */
export function firstDifference(expected: string, got: string): { start: number; end: number } | undefined {
  const count = Math.ceil(expected.length / digits);
  const found = range(count).find(
    (i) => expected.slice(i * digits, (i + 1) * digits) !== got.slice(i * digits, (i + 1) * digits),
  );
  return found === undefined ? undefined : { start: found * pieceBytes, end: (found + 1) * pieceBytes };
}

const opening = ',\n "seal": "';
const closing = '"\n}\n';

/** The bytes of a JSON object with a seal as its last field. @param text the object, each field on a line of its own */
export function seal(text: string): Uint8Array {
  const body = new TextEncoder().encode(text.replace(/\s*\}\s*$/, opening));
  const pieces = hashPieces(body, sealedBytes);
  const total = shortHash(new TextEncoder().encode(pieces));
  return Buffer.concat([body, new TextEncoder().encode(`${pieces}${total}${closing}`)]);
}

/** Compares a sealed file with its seal, and names the place of damage; false for a file that has none. */
export function checkSeal(bytes: Uint8Array, file: string): boolean {
  const start = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).lastIndexOf(opening);
  if (start < 0) return false;
  const body = bytes.subarray(0, start + opening.length);
  const damaged = (offset: number, what: string) =>
    new FileError("checkpoint", file, offset, `the file is damaged ${what}; load an older checkpoint`);
  const pieces = hashPieces(body, sealedBytes);
  const sealed = new TextDecoder().decode(bytes.subarray(body.length));
  const wanted = `${pieces}${shortHash(new TextEncoder().encode(pieces))}${closing}`;
  if (sealed === wanted) return true;
  const piece = range(pieces.length / digits).find(
    (i) => pieces.slice(i * digits, (i + 1) * digits) !== sealed.slice(i * digits, (i + 1) * digits),
  );
  const intact = shortHash(new TextEncoder().encode(sealed.slice(0, pieces.length)));
  // The checksum over the checksums tells which side of the difference changed.
  if (piece === undefined || sealed.slice(pieces.length) !== `${intact}${closing}`) {
    throw damaged(body.length, "in or before its seal");
  }
  const end = Math.min(body.length, (piece + 1) * sealedBytes);
  throw damaged(piece * sealedBytes, `between here and byte ${end}`);
}
