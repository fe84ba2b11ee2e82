/**
 * The seal of a manifest, its last field: the checksums of its pieces up to the seal, and one over those, so that a change
 * of any byte is noticed and located.
 */
import { createHash } from "#platform/hashing";
import { range } from "../../../ir/shape.js";
import { concatBytes } from "../disk/bytes.js";
import { FileError } from "../disk/fileError.js";

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
