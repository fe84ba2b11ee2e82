import { X64 } from "../../src/compiler/native/x64/assembler.js";
import { gpr, type Mem, mem, type Vector, vec } from "../../src/compiler/native/x64/operands.js";

const { rsp } = gpr;

/**
 * Writes the products of pairs of bfloat16 in instructions that every processor with AVX-512 has, so that kernels for
 * those with AVX512-BF16 run there too. Two registers are put aside below the stack pointer, where 128 bytes are free.
 */
export class EmulatedPairs extends X64 {
  override readonly vdpbf16ps = (to: Vector, a: Vector, b: Vector | Mem): X64 => {
    const taken = [to, a, b].flatMap((operand) => (operand.kind === "vector" ? operand.id : []));
    const [x = 0, y = 1] = [0, 1, 2, 3, 4].filter((id) => !taken.includes(id));
    const [left, right] = [vec(512, x), vec(512, y)];
    /** The pair of memory in all lanes, if it is no register. */
    const pair = () => {
      if (b.kind === "mem") this.vbroadcastss(right, mem(b.base, b.disp));
      return b.kind === "vector" ? b : right;
    };
    this.vmovups(mem(rsp, -128), left).vmovups(mem(rsp, -64), right);
    // The upper halves, then the lower ones, each as float32 whose lower bits are zero.
    this.vpsrld(left, a, 16).vpsrld(right, pair(), 16);
    this.vpslld(left, left, 16).vpslld(right, right, 16);
    this.vfmadd231ps(to, left, right);
    this.vpslld(left, a, 16).vpslld(right, pair(), 16);
    this.vfmadd231ps(to, left, right);
    return this.vmovups(left, mem(rsp, -128)).vmovups(right, mem(rsp, -64));
  };
}
