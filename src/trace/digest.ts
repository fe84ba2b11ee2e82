/** A multiplier, odd so that no bit is lost, and a rotation for each of four independent sums of 32 bits. */
const lanes = [
  [0x9e3779b1, 15],
  [0x85ebca77, 13],
  [0xc2b2ae3d, 17],
  [0x27d4eb2f, 11],
] as const;

/**
 * 128 bits that tell the bytes of an array from those of others, as hexadecimal digits. One differing word always shows;
 * that several cancel each other out in all four sums is as likely as guessing 128 bits. No protection against those
 * who want two arrays to look alike.
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
    const mixed = Math.imul(sum ^ (words[i] ?? 0), factor);
    sum = (mixed << turn) | (mixed >>> (32 - turn));
  }
  // Words near the end have not reached all bits yet.
  for (let i = 0; i < 3; i++) sum = Math.imul(sum ^ (sum >>> 15), factor);
  return ((sum ^ (sum >>> 16)) >>> 0).toString(16).padStart(8, "0");
}
