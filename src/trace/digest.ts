/** A multiplier, odd so that no bit is lost, and a rotation for each of four independent sums of 32 bits. */
const lanes = [
  [0x9e3779b1, 15],
  [0x85ebca77, 13],
  [0xc2b2ae3d, 17],
  [0x27d4eb2f, 11],
] as const;

/** Test runners such as Jest look globals up through hooks, a microsecond each time. */
const { imul } = Math;

/**
 * A 128-bit hash of the bytes of an array, as hexadecimal digits. A single differing word always changes it; several
 * cancel out in all four sums with the probability of guessing 128 bits. Not cryptographic: collisions can be
 * constructed.
 */
export function digestOf(data: ArrayBufferView): string {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const words = new Int32Array(Math.ceil(bytes.length / 4) + 1);
  new Uint8Array(words.buffer).set(bytes);
  words[words.length - 1] = bytes.length;
  return lanes.map(([factor, turn], lane) => sumOf(words, factor, turn, lane)).join("");
}

function sumOf(words: Int32Array, factor: number, turn: number, start: number): string {
  let sum = start;
  for (let i = 0; i < words.length; i++) {
    const mixed = imul(sum ^ (words[i] ?? 0), factor);
    sum = (mixed << turn) | (mixed >>> (32 - turn));
  }
  // Words near the end have not affected all bits yet.
  for (let i = 0; i < 3; i++) sum = imul(sum ^ (sum >>> 15), factor);
  return ((sum ^ (sum >>> 16)) >>> 0).toString(16).padStart(8, "0");
}
