import { byteSize, type DType } from "../../../ir/dtype.js";
import type { X64 } from "../x64/assembler.js";
import { gpr, low32, type Mem, type Vector, vec } from "../x64/operands.js";

const { rax } = gpr;

/** What loads and stores need besides their operands. */
export interface StorageTools {
  readonly x: X64;
  /** A constant with the same 32 bits in every lane. */
  constant(word: number): Mem;
  /** A register until the end of the instruction. */
  temporary(): Vector;
}

/** Loads consecutive elements into lanes of 32 bits: halves with clear upper bits, bytes as masks. */
export function loadVector({ x, constant }: StorageTools, dtype: DType, to: Vector, from: Mem): void {
  switch (byteSize(dtype)) {
    case 1:
      x.vpmovzxbd(to, from);
      toMask(x, constant, to);
      return;
    case 2:
      x.vpmovzxwd(to, from);
      return;
    default:
      x.vmovups(to, from);
  }
}

/** Loads one element into every lane. */
export function loadSplat({ x, constant }: StorageTools, dtype: DType, to: Vector, from: Mem): void {
  const bytes = byteSize(dtype);
  if (bytes === 4) {
    x.vbroadcastss(to, from);
    return;
  }
  x[bytes === 1 ? "movzx8" : "movzx16"](low32(rax), from);
  splat(x, to);
  if (bytes === 1) toMask(x, constant, to);
}

/** Copies eax to every lane. */
export function splat(x: X64, to: Vector): void {
  if (to.bits === 512) x.vpbroadcastd(to, low32(rax));
  else x.vmovd(vec(128, to.id), low32(rax)).vpbroadcastd(to, vec(128, to.id));
}

/** Sets all bits of the lanes that are not zero. */
function toMask(x: X64, constant: (word: number) => Mem, to: Vector): void {
  if (to.bits === 512) expandMask(x.vpcmpd(1, to, constant(0), 4), to);
  else x.vpcmpeqd(to, to, constant(0)).vpxor(to, to, constant(0xffffffff));
}

/** Sets all bits of the lanes in mask register 1, and clears the others. */
export function expandMask(x: X64, to: Vector): void {
  x.vpternlogd(to, to, to, 0xff, { mask: 1, zero: true });
}

/** Stores all lanes at consecutive elements: the lower half of each, or 0 and 1 for a mask. */
export function storeVector(tools: StorageTools, dtype: DType, to: Mem, from: Vector): void {
  const { x } = tools;
  const bytes = byteSize(dtype);
  if (bytes === 4) {
    x.vmovups(to, from);
    return;
  }
  const narrow = tools.temporary();
  const bits = bytes === 1 ? 8 : 16;
  if (bits === 8) x.vpand(narrow, from, tools.constant(1));
  const lanes = bits === 8 ? narrow : from;
  if (from.bits === 512) {
    x[bits === 8 ? "vpmovdb" : "vpmovdw"](to, lanes);
    return;
  }
  x.vpackusdw(narrow, lanes, lanes);
  if (from.bits === 256) x.vpermq(narrow, narrow, 0b1000);
  const low = vec(128, narrow.id);
  if (bits === 8) x.vpackuswb(low, low, low)[from.bits === 256 ? "vmovq" : "vmovd"](to, low);
  else if (from.bits === 256) x.vmovups(to, low);
  else x.vmovq(to, low);
}

/** Stores the lowest lane of 128 bits. */
export function storeOne(tools: StorageTools, dtype: DType, to: Mem, from: Vector): void {
  const { x } = tools;
  const bytes = byteSize(dtype);
  if (bytes === 4) x.vmovd(to, from);
  else if (bytes === 2) x.vpextrw(to, from, 0);
  if (bytes !== 1) return;
  const bit = tools.temporary();
  x.vpand(bit, from, tools.constant(1)).vpextrb(to, bit, 0);
}
