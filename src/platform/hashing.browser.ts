import type * as node from "./hashing.js";

/** The first 32 bits of the fractions of the roots of the first 64 primes: square roots to begin with, cube roots. */
const primes = Array.from({ length: 312 }, (_, n) => n).filter(
  (n) => n > 1 && !Array.from({ length: n }, (_, d) => d).some((d) => d > 1 && n % d === 0),
);
const fraction = (x: number) => ((x - Math.floor(x)) * 2 ** 32) | 0;
const initial = primes.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
const constants = primes.map((p) => fraction(Math.cbrt(p)));

const rotate = (x: number, by: number) => (x >>> by) | (x << (32 - by));

/** As FIPS 180-4 defines it. Browsers hash asynchronously only, and fingerprints are wanted at once. */
class Sha256 implements node.Hash {
  private readonly state = Int32Array.from(initial);
  private readonly words = new Int32Array(64);
  /** The last bytes, which do not fill a block. */
  private readonly block = new Uint8Array(64);
  private readonly view = new DataView(this.block.buffer);
  private length = 0;

  update(data: Uint8Array | string): this {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let done = 0; done < bytes.length; ) {
      const filled = this.length % 64;
      const part = bytes.subarray(done, done + 64 - filled);
      this.block.set(part, filled);
      this.length += part.length;
      done += part.length;
      if (this.length % 64 === 0) this.mixBlock();
    }
    return this;
  }

  digest(): Uint8Array;
  digest(encoding: "hex"): string;
  digest(encoding?: "hex"): Uint8Array | string {
    const bits = 8n * BigInt(this.length);
    const end = new Uint8Array(((119 - (this.length % 64)) % 64) + 9);
    end[0] = 0x80;
    new DataView(end.buffer).setBigUint64(end.length - 8, bits);
    this.update(end);
    const digest = new Uint8Array(32);
    const view = new DataView(digest.buffer);
    this.state.forEach((word, i) => {
      view.setInt32(4 * i, word);
    });
    if (encoding === undefined) return digest;
    return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  private mixBlock(): void {
    const { words, view, state } = this;
    for (let i = 0; i < 16; i++) words[i] = view.getInt32(4 * i);
    for (let i = 16; i < 64; i++) {
      const [a, b] = [words[i - 15] ?? 0, words[i - 2] ?? 0];
      const low = rotate(a, 7) ^ rotate(a, 18) ^ (a >>> 3);
      const high = rotate(b, 17) ^ rotate(b, 19) ^ (b >>> 10);
      words[i] = (words[i - 16] ?? 0) + low + (words[i - 7] ?? 0) + high;
    }
    mix(state, words);
  }
}

export const createHash: typeof node.createHash = () => new Sha256();

export const sha256: typeof node.sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** Mixes the words of a block into the state. */
function mix(state: Int32Array, words: Int32Array): void {
  let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = state;
  for (let i = 0; i < 64; i++) {
    const choice = (e & f) ^ (~e & g);
    const first =
      h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + (constants[i] ?? 0) + (words[i] ?? 0);
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => {
    state[i] = (state[i] ?? 0) + word;
  });
}
