import { X64 } from "../../../compiler/native/x64.js";
import { low32, mem, r8, r9, rax, rbx, rcx, rdi, rdx } from "../../../compiler/native/x64Operands.js";
import type { CodeMemory } from "./codeMemory.js";

/** What the processor and the system let programs use. */
export interface X64Features {
  readonly avx2: boolean;
  readonly avx512: boolean;
}

/** Leaves of CPUID that are asked, each with subleaf 0. */
const LEAVES = [0, 1, 7];
const LEAF_BYTES = 16;

/** The code of `(target)`: writes eax, ebx, ecx and edx of every leaf, then the registers that the system saves. */
export function writeFeatureProbe(x: X64): X64 {
  const [target, kept] = [r8, r9];
  x.mov(target, rdi).mov(kept, rbx);
  LEAVES.forEach((leaf, i) => {
    x.mov(low32(rax), leaf).xor(low32(rcx), low32(rcx)).cpuid();
    [rax, rbx, rcx, rdx].forEach((register, j) => {
      x.mov(mem(target, i * LEAF_BYTES + 4 * j), low32(register));
    });
  });
  const done = x.label();
  // Without OSXSAVE (bit 27 of leaf 1's ecx) there is no XGETBV to ask.
  x.mov(low32(rax), mem(target, LEAF_BYTES + 8))
    .and(low32(rax), 1 << 27)
    .j("e", done);
  x.xor(low32(rcx), low32(rcx))
    .xgetbv()
    .mov(mem(target, LEAVES.length * LEAF_BYTES), low32(rax));
  return x.place(done).mov(rbx, kept).ret();
}

/** Asks the processor which vectors it has, and the system which it keeps when it switches threads. */
export function detectX64Features(memory: CodeMemory): X64Features {
  const [at = 0] = memory.load([writeFeatureProbe(new X64()).finish()]);
  const words = new Uint32Array(new SharedArrayBuffer(64));
  memory.bind(at, 1)(memory.addressOf(words.buffer));
  const word = (index: number) => words[index] ?? 0;
  const has = (value: number, bits: number) => (value & bits) === bits;
  const [largestLeaf, ecx1, ebx7, saved] = [word(0), word(6), word(9), word(12)];
  const fma = 1 << 12;
  const avx = 1 << 28;
  const avx2 = largestLeaf >= 7 && has(ecx1, fma | avx) && has(ebx7, 1 << 5) && has(saved, 0b110);
  return { avx2, avx512: avx2 && has(ebx7, 1 << 16) && has(saved, 0b1110_0110) };
}
