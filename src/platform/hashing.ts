import { createHash as nodeHash } from "node:crypto";

/** A checksum of bytes, or of strings as UTF-8, that are added one after the other. */
export interface Hash {
  update(data: Uint8Array | string): Hash;
  digest(): Uint8Array;
  digest(encoding: "hex"): string;
}

export const createHash: (algorithm: "sha256") => Hash = nodeHash;

/** The SHA-256 of bytes, as hexadecimal digits. */
export const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
