/** The hash of which zstd keeps 32 bits as the checksum of a frame: XXH64 with the seed 0. */

const PRIMES = [
  0x9e3779b185ebca87n,
  0xc2b2ae3d27d4eb4fn,
  0x165667b19e3779f9n,
  0x85ebca77c2b2ae63n,
  0x27d4eb2f165667c5n,
] as const;
const [P1, P2, P3, P4, P5] = PRIMES;

const word = (value: bigint) => BigInt.asUintN(64, value);
const turned = (value: bigint, bits: number) => word(value << BigInt(bits)) | (value >> BigInt(64 - bits));
const round = (sum: bigint, input: bigint) => word(turned(word(sum + input * P2), 31) * P1);

/** Bytes that go round together: eight for each of four sums. */
const STRIPE = 32;

/** Hashes bytes that come piece by piece. */
export class XxHash64 {
  /** Four sums of 64 bits, in halves of which the lower is the first. */
  private readonly sums = new Int32Array(BigUint64Array.of(word(P1 + P2), P2, 0n, word(-P1)).buffer);
  /** The bytes after the last whole stripe. */
  private readonly rest = new Uint8Array(STRIPE);
  private total = 0;

  push(bytes: Uint8Array): void {
    let from = 0;
    const kept = this.total % STRIPE;
    this.total += bytes.length;
    if (kept > 0) {
      from = Math.min(STRIPE - kept, bytes.length);
      this.rest.set(bytes.subarray(0, from), kept);
      if (kept + from < STRIPE) return;
      this.stripes(this.rest, 0, 1);
    }
    const count = Math.floor((bytes.length - from) / STRIPE);
    this.stripes(bytes, from, count);
    this.rest.set(bytes.subarray(from + STRIPE * count));
  }

  private stripes({ buffer, byteOffset }: Uint8Array, from: number, count: number): void {
    const view = new DataView(buffer, byteOffset);
    for (let i = 0; i < 4; i++) addRounds(this.sums, 2 * i, view, from + 8 * i, count);
  }

  /** The lower 32 bits of the hash. */
  low(): number {
    const { total } = this;
    let hash = word((total < STRIPE ? P5 : this.joined()) + BigInt(total));
    const view = new DataView(this.rest.buffer);
    const end = total % STRIPE;
    let at = 0;
    for (; at + 8 <= end; at += 8)
      hash = word(turned(hash ^ round(0n, view.getBigUint64(at, true)), 27) * P1 + P4);
    for (; at + 4 <= end; at += 4)
      hash = word(turned(hash ^ word(BigInt(view.getUint32(at, true)) * P1), 23) * P2 + P3);
    for (; at < end; at++) hash = word(turned(hash ^ word(BigInt(view.getUint8(at)) * P5), 11) * P1);
    hash = word((hash ^ (hash >> 33n)) * P2);
    hash = word((hash ^ (hash >> 29n)) * P3);
    return Number(BigInt.asUintN(32, hash ^ (hash >> 32n)));
  }

  private joined(): bigint {
    const sums = [...new BigUint64Array(this.sums.buffer)];
    const start = sums.reduce((hash, sum, i) => hash + turned(sum, [1, 7, 12, 18][i] ?? 0), 0n);
    return sums.reduce((hash, sum) => word((hash ^ round(0n, sum)) * P1 + P4), word(start));
  }
}

/** The halves of a prime, and the parts of 16 bits of the lower one. */
function partsOf(prime: bigint) {
  const low = Number(BigInt.asIntN(32, prime));
  return { low, high: Number(BigInt.asIntN(32, prime >> 32n)), a: low & 0xffff, b: low >>> 16 };
}
const [first, second] = [partsOf(P1), partsOf(P2)];

/** The upper half of a product of 32 bits and the lower half of a prime, of which `a` and `b` are the parts. */
function upper(x: number, a: number, b: number): number {
  const [low, high] = [x & 0xffff, x >>> 16];
  const middle = high * a + ((low * a) >>> 16);
  return (high * b + (middle >>> 16) + ((low * b + (middle & 0xffff)) >>> 16)) | 0;
}

/** What `round` does with eight bytes of each stripe, in halves of 32 bits: a bigint for each takes ten times as long. */
function addRounds(sums: Int32Array, place: number, view: DataView, from: number, count: number): void {
  let low = sums[place] ?? 0;
  let high = sums[place + 1] ?? 0;
  for (let at = from; at < from + STRIPE * count; at += STRIPE) {
    const x = view.getInt32(at, true);
    const y = view.getInt32(at + 4, true);
    const added = Math.imul(x, second.low);
    const sum = (low + added) | 0;
    const carried = sum >>> 0 < added >>> 0 ? 1 : 0;
    const product = upper(x, second.a, second.b) + Math.imul(x, second.high) + Math.imul(y, second.low);
    high = (high + product + carried) | 0;
    const left = (sum << 31) | (high >>> 1);
    const right = (high << 31) | (sum >>> 1);
    low = Math.imul(left, first.low);
    high = (upper(left, first.a, first.b) + Math.imul(left, first.high) + Math.imul(right, first.low)) | 0;
  }
  sums[place] = low;
  sums[place + 1] = high;
}
