import { readFileSync } from "node:fs";
import { X64 } from "../../compiler/native/x64/assembler.js";
import { gpr, low32, mem } from "../../compiler/native/x64/operands.js";
import type { CodeMemory } from "./codeMemory.js";
import { loadKoffi } from "./koffi.js";

const { rax, rcx, rdx, rbx, rdi, r8, r9 } = gpr;

/** Instructions that the processor and the operating system support. */
export interface X64Features {
  readonly isIntel: boolean;
  readonly avx2: boolean;
  readonly avx512: boolean;
  /** Products of pairs of bfloat16 in vectors of 512 bits. */
  readonly avx512Bfloat16: boolean;
  /** Products of tiles of bfloat16, for which a process also needs permission: see {@link requestTiles}. */
  readonly amxBfloat16: boolean;
}

/** Leaves and subleaves of CPUID that are queried. */
const LEAVES = [
  [0, 0],
  [1, 0],
  [7, 0],
  [7, 1],
] as const;
const LEAF_BYTES = 16;

/** The code of `(target)`: writes eax, ebx, ecx and edx of every leaf, then the registers that the system saves. */
export function writeFeatureProbe(x: X64): X64 {
  const [target, kept] = [r8, r9];
  x.mov(target, rdi).mov(kept, rbx);
  LEAVES.forEach(([leaf, subleaf], i) => {
    x.mov(low32(rax), leaf).mov(low32(rcx), subleaf).cpuid();
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

/** Queries which vectors the processor has, and which the system saves when it switches threads. */
export function detectX64Features(memory: CodeMemory): X64Features {
  const [at = 0] = memory.load([writeFeatureProbe(new X64()).finish()]);
  const words = new Uint32Array(new SharedArrayBuffer(128));
  memory.bind(at, 1)(memory.addressOf(words.buffer));
  const word = (index: number) => words[index] ?? 0;
  const has = (value: number, bits: number) => (value & bits) === bits;
  const [largestLeaf, ecx1, largestSubleaf, ebx7] = [word(0), word(6), word(8), word(9)];
  const [bfloat16, saved] = [word(12), word(4 * LEAVES.length)];
  const fma = 1 << 12;
  const avx = 1 << 28;
  const avx2 = largestLeaf >= 7 && has(ecx1, fma | avx) && has(ebx7, 1 << 5) && has(saved, 0b110);
  const avx512 = avx2 && has(ebx7, 1 << 16) && has(saved, 0b1110_0110);
  return {
    // The first of the three words of "GenuineIntel".
    isIntel: word(1) === 0x756e6547,
    ...{ avx2, avx512 },
    avx512Bfloat16: avx512 && largestSubleaf >= 1 && has(bfloat16, 1 << 5),
    // AMX-TILE and AMX-BF16, and both kinds of tile state.
    amxBfloat16: avx512 && has(word(11), (1 << 24) | (1 << 22)) && has(saved, 0b11 << 17),
  };
}

const [ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA] = [158, 0x1023, 18];

/** Asks Linux to save tiles for this process; returns whether all threads may use them from now on. */
export function requestTiles(): boolean {
  const koffi = loadKoffi();
  if (koffi === undefined) return false;
  const syscall = koffi.load(null).func("syscall", "long", ["long", "long", "long"]);
  return Number(syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA)) === 0;
}

const [AT_HWCAP2, HWCAP2_BF16] = [26n, 1n << 14n];

/** Whether an ARM processor multiplies bfloat16, according to the process's auxiliary vector. */
export function hasArmBfloat16(): boolean {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync("/proc/self/auxv");
  } catch {
    // Without permission to read files, these instructions are not used.
    return false;
  }
  const words = new BigUint64Array(Uint8Array.from(bytes).buffer, 0, Math.floor(bytes.length / 8));
  return words.some(
    (key, i) => i % 2 === 0 && key === AT_HWCAP2 && ((words[i + 1] ?? 0n) & HWCAP2_BF16) !== 0n,
  );
}
