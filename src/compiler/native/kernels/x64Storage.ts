import { byteSize, type DType } from "../../../ir/dtype.js";
import { low32, type Mem, rax, type Vector, vec } from "../x64/operands.js";
import type { X64Simd } from "../x64/simd.js";

/** What loads and stores need beside their operands. */
export interface StorageTools {
  readonly x: X64Simd;
  /** Where 32 bits stand in every lane. */
  constant(word: number): Mem;
  /** A register until the end of the instruction. */
  temporary(): Vector;
}

/** Loads consecutive elements into lanes of 32 bits: halves with clear upper bits, bytes as masks. */
export function loadVector({ x, constant }: StorageTools, dtype: DType, to: Vector, from: Mem): void {
  switch (byteSize(dtype)) {
    case 1:
      x.unary("vpmovzxbd", to, from);
      toMask(x, constant, to);
      return;
    case 2:
      x.unary("vpmovzxwd", to, from);
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
  x.movzx(low32(rax), from, bytes === 1 ? 8 : 16);
  splat(x, to);
  if (bytes === 1) toMask(x, constant, to);
}

/** Puts eax into every lane. */
export function splat(x: X64Simd, to: Vector): void {
  if (to.bits === 512) x.vpbroadcastGpr(to, low32(rax));
  else x.vmovd(vec(128, to.id), low32(rax)).unary("vpbroadcastd", to, vec(128, to.id));
}

/** Sets all bits of the lanes that are not zero. */
function toMask(x: X64Simd, constant: (word: number) => Mem, to: Vector): void {
  if (to.bits === 512) x.compare("vpcmpd", 1, to, constant(0), 4).fill(to, 1);
  else x.binary("vpcmpeqd", to, to, constant(0)).binary("vpxor", to, to, constant(0xffffffff));
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
  if (bits === 8) x.binary("vpand", narrow, from, tools.constant(1));
  const lanes = bits === 8 ? narrow : from;
  if (from.bits === 512) {
    x.storeNarrow(to, lanes, bits);
    return;
  }
  x.binary("vpackusdw", narrow, lanes, lanes);
  if (from.bits === 256) x.vpermq(narrow, narrow, 0b1000);
  const low = vec(128, narrow.id);
  if (bits === 8) x.binary("vpackuswb", low, low, low).storeLow(to, low, from.bits === 256 ? 64 : 32);
  else if (from.bits === 256) x.vmovups(to, low);
  else x.storeLow(to, low, 64);
}

/** Stores the lowest of 128 bits' lanes. */
export function storeOne(tools: StorageTools, dtype: DType, to: Mem, from: Vector): void {
  const { x } = tools;
  const bytes = byteSize(dtype);
  if (bytes !== 1) {
    x.storeLow(to, from, bytes === 2 ? 16 : 32);
    return;
  }
  const bit = tools.temporary();
  x.binary("vpand", bit, from, tools.constant(1)).storeLow(to, bit, 8);
}
