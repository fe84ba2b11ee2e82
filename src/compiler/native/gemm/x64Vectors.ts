import type { Label } from "../code.js";
import type { X64 } from "../x64/assembler.js";
import { gpr, low32, type Mem, mem, ripTo, type Vector, vec } from "../x64/operands.js";
import { elementsOf, type ProductType } from "./target.js";

const { rax, rsp } = gpr;

/** Where kernels find the addresses of A, B and C: in the runner's frame, above the return address. */
export const MATRIX: { readonly [K in "a" | "b" | "c"]: Mem } = {
  a: mem(rsp, 8),
  b: mem(rsp, 16),
  c: mem(rsp, 24),
};

/** Vectors of one type of factors in 256 or 512 bits, for which instructions have different names. */
export class Vectors {
  /** Bytes of a lane. */
  readonly size: 4 | 8;
  /** Adjacent elements along k that share a lane of a factor. */
  readonly perLane: 1 | 2;
  /** Bytes of a vector. */
  readonly bytes: number;
  readonly lanes: number;
  /** The last letter of mnemonics. */
  private readonly type: "s" | "d";

  constructor(
    readonly bits: 256 | 512,
    type: ProductType,
  ) {
    const { size, factorBytes } = elementsOf(type);
    this.size = size;
    this.perLane = factorBytes === 2 ? 2 : 1;
    this.bytes = bits / 8;
    this.lanes = this.bytes / size;
    this.type = size === 4 ? "s" : "d";
  }

  /** A vector register. */
  vec(id: number): Vector {
    return vec(this.bits, id);
  }

  /** Loads, stores or copies a whole vector. */
  move(x: X64, to: Vector | Mem, from: Vector | Mem): void {
    x[`vmovup${this.type}` as const](to, from);
  }

  /** Repeats one element in all lanes. */
  broadcast(x: X64, to: Vector, from: Mem): void {
    x[`vbroadcasts${this.type}` as const](to, from);
  }

  /** sum += a · b for lanes of factors, over all elements that share a lane. */
  sumProducts(x: X64, sum: Vector, a: Vector, b: Vector | Mem): void {
    if (this.perLane === 2) x.vdpbf16ps(sum, a, b);
    else this.multiplyAdd(x, sum, a, b);
  }

  /** sum += a · b. */
  multiplyAdd(x: X64, sum: Vector, a: Vector, b: Vector | Mem): void {
    x[`vfmadd231p${this.type}` as const](sum, a, b);
  }

  /** to = a · b. */
  multiply(x: X64, to: Vector, a: Vector, b: Vector): void {
    x[`vmulp${this.type}` as const](to, a, b);
  }

  /** to = a + b. */
  add(x: X64, to: Vector, a: Vector, b: Vector | Mem): void {
    x[`vaddp${this.type}` as const](to, a, b);
  }

  /** Clears a register. */
  clear(x: X64, id: number): void {
    // Clearing 128 bits of one of the first sixteen clears all of its bits, in fewer bytes.
    if (id < 16) x.vxorps(vec(128, id), vec(128, id), vec(128, id));
    else x.vpxor(this.vec(id), this.vec(id), this.vec(id));
  }

  /** Sets mask register 1 to the first `lanes` lanes; masks of 256 bits are vectors, see `placeMask`. */
  prepareMask(x: X64, lanes: number): void {
    if (lanes > 0 && this.bits === 512) x.mov(low32(rax), 2 ** lanes - 1).kmovw(1, low32(rax));
  }

  /** Loads the mask of 256 bits that `placeMask` wrote. */
  loadMask(x: X64, lanes: number, to: Vector, label: Label): void {
    if (lanes > 0 && this.bits === 256) x.vmovups(to, ripTo(label));
  }

  /** Writes the mask of the first `lanes` lanes after the code, where masks are vectors. */
  placeMask(x: X64, lanes: number, label: Label): void {
    if (lanes === 0 || this.bits === 512) return;
    const bytes = Array.from({ length: this.bytes }, (_, byte) => (byte < lanes * this.size ? 255 : 0));
    x.place(label).data(bytes);
  }

  /** Writes a number after the code. */
  placeNumber(x: X64, label: Label, value: number): void {
    const number = this.size === 4 ? Float32Array.of(value) : Float64Array.of(value);
    x.place(label).data(new Uint8Array(number.buffer));
  }

  /** Loads the lanes of the mask and clears the others; memory after them is not accessed. */
  loadPart(x: X64, to: Vector, from: Mem, mask: Vector): void {
    if (this.bits === 512) x[`vmovup${this.type}` as const](to, from, { mask: 1, zero: true });
    else x[`vmaskmovp${this.type}` as const](to, mask, from);
  }

  /** Stores the lanes of the mask. */
  storePart(x: X64, to: Mem, from: Vector, mask: Vector): void {
    if (this.bits === 512) x[`vmovup${this.type}` as const](to, from, { mask: 1 });
    else x[`vmaskmovp${this.type}` as const](to, mask, from);
  }
}
