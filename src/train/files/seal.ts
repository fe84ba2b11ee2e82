/**
 * Checksums that locate damage in a file. Tensor files have one for each piece, listed in the manifest. The manifest
 * has a seal, its last field: the checksums of its own pieces up to the seal, and one over those, so that a change of
 * any byte is noticed.
 */
import { createHash } from "#platform/hashing";
import { range } from "../../ir/shape.js";
import { concatBytes, toHex } from "./bytes.js";
import { FileError } from "./fileError.js";

/** The size of the pieces of tensor files. */
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

/** The parts of a file, one after the other. */
export type FileParts = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;

/**
 * The pieces of a file that is the concatenation of parts, each of which may be overwritten when the next is asked for.
 * Only pieces that span parts are copies.
 */
export async function* piecesOf(parts: FileParts): AsyncGenerator<Uint8Array> {
  let begun: Uint8Array[] = [];
  let missing = pieceBytes;
  for await (const part of parts) {
    for (let start = 0; start < part.length; ) {
      const portion = part.subarray(start, start + missing);
      start += portion.length;
      missing -= portion.length;
      if (missing > 0) {
        begun.push(portion.slice());
        continue;
      }
      yield begun.length === 0 ? portion : concatBytes([...begun, portion]);
      begun = [];
      missing = pieceBytes;
    }
  }
  if (begun.length > 0) yield concatBytes(begun);
}

/** Maximum number of pieces hashed at once; leaves one of the four threads of Node's pool to other work. */
const maxUnderWay = 3;

/** Hashes the pieces of a file on other threads than the caller's. */
export class PieceHasher {
  private readonly digests: Promise<ArrayBuffer>[] = [];

  /**
   * Adds the next piece, which may be overwritten as soon as the call returns; waits while too many are in progress.
   */
  async add(piece: Uint8Array): Promise<void> {
    // WebCrypto rejects shared memory.
    const { buffer, byteOffset, byteLength } = piece;
    const own =
      buffer instanceof ArrayBuffer ? new Uint8Array(buffer, byteOffset, byteLength) : piece.slice();
    const digest = crypto.subtle.digest("SHA-256", own);
    // If writing fails, the result is never awaited.
    digest.catch(() => {});
    this.digests.push(digest);
    await this.digests.at(-maxUnderWay);
  }

  /** The checksums of all pieces, and one over them in full. */
  async finish(): Promise<{ readonly sha256: string; readonly pieces: string }> {
    const digests = (await Promise.all(this.digests)).map((digest) => new Uint8Array(digest));
    const total = createHash("sha256");
    for (const digest of digests) total.update(digest);
    return {
      sha256: total.digest("hex"),
      pieces: digests.map((digest) => toHex(digest).slice(0, digits)).join(""),
    };
  }
}

/** The byte range of the first piece that differs; undefined if none does or if there are no checksums. */
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
  return concatBytes([body, new TextEncoder().encode(`${pieces}${total}${closing}`)]);
}

/** Checks a file against its seal, and reports where it is damaged; false for a file without one. */
export function checkSeal(bytes: Uint8Array, file: string): boolean {
  const start = new TextDecoder("latin1").decode(bytes).lastIndexOf(opening);
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
  // The checksum over the checksums tells whether the content or the seal changed.
  if (piece === undefined || sealed.slice(pieces.length) !== `${intact}${closing}`) {
    throw damaged(body.length, "in or before its seal");
  }
  const end = Math.min(body.length, (piece + 1) * sealedBytes);
  throw damaged(piece * sealedBytes, `between here and byte ${end}`);
}
