import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";

/** What a peer is asked to sign: another one on every connection, so that a proof that was overheard is of no use. */
export function newChallenge(): Uint8Array {
  return randomBytes(32);
}

/** Proves that a process knows the secret, which is never sent. */
export function proofOf(secret: string, challenge: Uint8Array, process: number): string {
  return createHmac("sha256", secret).update(challenge).update(`process ${process}`).digest("hex");
}

/** Whether a proof is the expected one; the time it takes does not tell how much of it is right. */
export function isExpectedProof(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
