/** A loop of multiply-adds alone, as many per cycle as a core can do: the peak that products are compared with. */
import { A64 } from "./a64/assembler.js";
import { q, x } from "./a64/operands.js";
import { X64 } from "./x64/assembler.js";
import { gpr, vec } from "./x64/operands.js";

const { rdi } = gpr;

/** The code of `(turns)`, and the number of floating-point operations in a turn. */
export interface PeakLoop {
  readonly code: Uint8Array<ArrayBuffer>;
  readonly flops: number;
}

/** Number of independent sums: more than any core has multiply-adds in flight. */
const NUM_SUMS = 12;

/** The loop with vectors of these instructions. */
export function writePeakLoop(set: "AVX-512" | "AVX2" | "NEON"): PeakLoop {
  if (set === "NEON") return { code: neonLoop(), flops: 2 * 4 * NUM_SUMS };
  const bits = set === "AVX-512" ? 512 : 256;
  return { code: x64Loop(bits), flops: 2 * (bits / 32) * NUM_SUMS };
}

function x64Loop(bits: 256 | 512): Uint8Array<ArrayBuffer> {
  const code = new X64();
  // Clearing 128 bits clears all bits of a register.
  for (let id = 0; id <= NUM_SUMS; id++) code.vxorps(vec(128, id), vec(128, id), vec(128, id));
  const [factor, loop] = [vec(bits, NUM_SUMS), code.here()];
  for (let id = 0; id < NUM_SUMS; id++) code.vfmadd231ps(vec(bits, id), factor, factor);
  return code.dec(rdi).j("ne", loop).vzeroupper().ret().finish();
}

function neonLoop(): Uint8Array<ArrayBuffer> {
  const code = new A64();
  // The first registers after the eight that callees preserve.
  const [turns, factor, first] = [x(0), q(0), 16];
  code.movi0(factor);
  for (let id = 0; id < NUM_SUMS; id++) code.movi0(q(first + id));
  const loop = code.here();
  for (let id = 0; id < NUM_SUMS; id++) code.fmla("4s", q(first + id), factor, factor);
  return code.subs(turns, turns, 1).bCond("ne", loop).ret().finish();
}
