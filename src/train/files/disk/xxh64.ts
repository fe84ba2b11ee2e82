/**
 * XXH64, a checksum that costs little more than reading the bytes. It notices damage, not forgery:
 * https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
 */
import { ModuleBuilder } from "../../../compiler/wasm/assembler.js";
import type { FunctionBody, Local } from "../../../compiler/wasm/functionBody.js";
import { InternalError } from "../../../ir/errors.js";
import { at } from "../../../ir/shape.js";

const [p1, p2, p3, p4, p5] = [
  0x9e3779b185ebca87n,
  0xc2b2ae3d27d4eb4fn,
  0x165667b19e3779f9n,
  0x85ebca77c2b2ae63n,
  0x27d4eb2f165667c5n,
] as const;

const stripeBytes = 32;
const pageBytes = 2 ** 16;

/** Four sums, each of one of the four words of every stripe of 32 bytes. */
type Lanes = readonly bigint[];

const u64 = (x: bigint) => BigInt.asUintN(64, x);
const rotate = (x: bigint, by: bigint) => u64((x << by) | (u64(x) >> (64n - by)));
const round = (lane: bigint, word: bigint) => u64(rotate(u64(lane + word * p2), 31n) * p1);

const noStripes: Lanes = [p1 + p2, p2, 0n, -p1];
const wholeStripes = (length: number) => length - (length % stripeBytes);

/** Memory that checksums are computed in; it begins at a page, as writes past the system's cache must. */
export class ChecksumMemory {
  readonly bytes: Uint8Array;
  private readonly view: DataView;
  private readonly addStripes: (start: number, end: number, ...lanes: Lanes) => Lanes;

  constructor(size: number) {
    const pages = Math.max(1, Math.ceil(size / pageBytes));
    const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
    this.bytes = new Uint8Array(memory.buffer, 0, size);
    this.view = new DataView(memory.buffer);
    this.addStripes = instantiateLanes(memory);
  }

  /** The checksum of some of the bytes, as 16 hexadecimal digits. */
  checksum(start: number, end: number): string {
    const rest = start + wholeStripes(end - start);
    const hash = this.finish(this.add(noStripes, start, rest), rest, end, end - start);
    return hash.toString(16).padStart(16, "0");
  }

  /** The lanes after the whole stripes between two addresses. */
  add(lanes: Lanes, start: number, end: number): Lanes {
    return start < end ? this.addStripes(start, end, ...lanes) : lanes;
  }

  /** The hash of `length` bytes: those that are in the lanes, and fewer than 32 between two addresses. */
  finish(lanes: Lanes, start: number, end: number, length: number): bigint {
    const { view } = this;
    let position = start;
    let hash: bigint = p5;
    if (length >= stripeBytes) {
      hash = lanes.reduce((sum, lane, i) => u64(sum + rotate(lane, at([1n, 7n, 12n, 18n], i))), 0n);
      for (const lane of lanes) hash = u64((hash ^ round(0n, lane)) * p1 + p4);
    }
    hash = u64(hash + BigInt(length));
    for (; position + 8 <= end; position += 8)
      hash = u64(rotate(hash ^ round(0n, view.getBigUint64(position, true)), 27n) * p1 + p4);
    for (; position + 4 <= end; position += 4)
      hash = u64(rotate(hash ^ u64(BigInt(view.getUint32(position, true)) * p1), 23n) * p2 + p3);
    for (; position < end; position++)
      hash = u64(rotate(hash ^ u64(BigInt(view.getUint8(position)) * p5), 11n) * p1);
    hash = u64((hash ^ (hash >> 33n)) * p2);
    hash = u64((hash ^ (hash >> 29n)) * p3);
    return hash ^ (hash >> 32n);
  }
}

/** Hashes bytes that come piece by piece. */
export class StreamChecksum {
  private readonly memory = new ChecksumMemory(pageBytes);
  private lanes = noStripes;
  private length = 0;
  /** Bytes of the memory that are not yet in the lanes. */
  private held = 0;

  push(bytes: Uint8Array): void {
    const { memory } = this;
    this.length += bytes.length;
    for (let from = 0; from < bytes.length; ) {
      const piece = bytes.subarray(from, from + pageBytes - this.held);
      memory.bytes.set(piece, this.held);
      from += piece.length;
      this.held += piece.length;
      if (this.held < pageBytes) return;
      this.lanes = memory.add(this.lanes, 0, pageBytes);
      this.held = 0;
    }
  }

  /** The hash of everything since the last end. */
  end(): bigint {
    const { memory, held, length } = this;
    const rest = wholeStripes(held);
    const hash = memory.finish(memory.add(this.lanes, 0, rest), rest, held, length);
    this.lanes = noStripes;
    this.length = 0;
    this.held = 0;
    return hash;
  }
}

/** What adds the stripes between two addresses, at least one, to the lanes. */
function instantiateLanes(
  memory: WebAssembly.Memory,
): (start: number, end: number, ...lanes: Lanes) => Lanes {
  const builder = new ModuleBuilder();
  builder.importMemory({ module: "env", name: "memory", shared: false, minimumPages: 0 });
  const fourWords = ["i64", "i64", "i64", "i64"] as const;
  builder.function({ params: ["i32", "i32", ...fourWords], results: fourWords }, writeLanes, "lanes");
  const module = new WebAssembly.Module(builder.toBytes());
  const { lanes } = new WebAssembly.Instance(module, { env: { memory } }).exports;
  if (typeof lanes !== "function") throw new InternalError("[xxh64] the module exports no lanes");
  return (...operands) => lanes(...operands) as bigint[];
}

function writeLanes(f: FunctionBody): void {
  const [start, end] = [f.param(0), f.param(1)];
  const lanes = [2, 3, 4, 5].map((i) => f.param(i));
  const add = (lane: Local, i: number) =>
    f
      .get(lane)
      .get(start)
      .memory("i64.load", 8 * i)
      .i64(p2)
      .op("i64.mul")
      .op("i64.add")
      .i64(31n)
      .op("i64.rotl")
      .i64(p1)
      .op("i64.mul")
      .set(lane);
  f.loop((again) => {
    lanes.forEach(add);
    f.increment(start, stripeBytes).get(start).get(end).op("i32.lt_u").brIf(again);
  });
  for (const lane of lanes) f.get(lane);
}
