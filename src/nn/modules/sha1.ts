/**
 * The first 32 bits of the SHA-1 hash of some bytes. Keys of random numbers are derived with it, because it
 * gives the same number on every platform and is computed at once.
 */
export function sha1Word(bytes: Uint8Array): number {
  const padded = pad(bytes);
  const state = Uint32Array.of(0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0);
  for (let start = 0; start < padded.byteLength; start += 64) addBlock(state, padded, start);
  return state[0] ?? 0;
}

/** The message with a one bit, zeros, and its length in bits at the end of the last block of 64 bytes. */
function pad(bytes: Uint8Array): DataView {
  const numBlocks = Math.ceil((bytes.length + 9) / 64);
  const padded = new Uint8Array(numBlocks * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  return view;
}

function addBlock(state: Uint32Array, message: DataView, start: number): void {
  const words = new Uint32Array(80);
  for (let t = 0; t < 80; t++) {
    words[t] =
      t < 16
        ? message.getUint32(start + 4 * t)
        : rotate(word(words, t - 3) ^ word(words, t - 8) ^ word(words, t - 14) ^ word(words, t - 16), 1);
  }
  let [a, b, c, d, e] = [word(state, 0), word(state, 1), word(state, 2), word(state, 3), word(state, 4)];
  for (let t = 0; t < 80; t++) {
    const { mix, constant } = round(t, b, c, d);
    const next = (rotate(a, 5) + mix + e + constant + word(words, t)) >>> 0;
    [a, b, c, d, e] = [next, a, rotate(b, 30), c, d];
  }
  [a, b, c, d, e].forEach((value, i) => {
    state[i] = word(state, i) + value;
  });
}

function round(t: number, b: number, c: number, d: number): { mix: number; constant: number } {
  if (t < 20) return { mix: (b & c) | (~b & d), constant: 0x5a827999 };
  if (t < 40) return { mix: b ^ c ^ d, constant: 0x6ed9eba1 };
  if (t < 60) return { mix: (b & c) | (b & d) | (c & d), constant: 0x8f1bbcdc };
  return { mix: b ^ c ^ d, constant: 0xca62c1d6 };
}

function rotate(value: number, count: number): number {
  return ((value << count) | (value >>> (32 - count))) >>> 0;
}

function word(words: Uint32Array, index: number): number {
  return words[index] ?? 0;
}
