import { InternalError } from "../../../ir/errors.js";
import { X64 } from "../x64/assembler.js";
import { gpr, mem } from "../x64/operands.js";
import { elementsOf, type GemmTarget, kernelWith, type ProductType, RECORD_BYTES } from "./target.js";
import { writeMultiply } from "./x64Multiply.js";
import { writePackColumns, writePackRows } from "./x64Packing.js";
import { Vectors } from "./x64Vectors.js";

const { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r12, r13, r14, r15 } = gpr;

/**
 * The kernels for x86-64 with vectors of 256 bits (AVX2 and FMA) or of 512 bits (AVX-512F, with AVX512-BF16 for
 * bfloat16).
 */
export function x64Gemm(bits: 256 | 512, type: ProductType, Assembler = X64): GemmTarget {
  const v = new Vectors(bits, type);
  const isWide = bits === 512;
  const isPaired = v.perLane === 2;
  if (isPaired && !isWide) throw new InternalError("[x64Gemm] AVX2 cannot multiply bfloat16");
  return {
    name: isPaired ? "AVX-512-BF16" : isWide ? "AVX-512" : "AVX2",
    ...elementsOf(type),
    perLane: v.perLane,
    lanes: v.lanes,
    depthUnit: v.perLane,
    // Four of the 32 or 16 registers are left for two vectors of B and two elements of A.
    rows: isWide ? 14 : 6,
    columns: 2 * v.lanes,
    // A set of the L1 cache has at least eight lines, of which six rows of A leave some to B.
    flat: isPaired ? undefined : { rows: 6, columns: (isWide ? 4 : 2) * v.lanes, maxColumns: 16 * v.lanes },
    fullStrips: false,
    prefetches: true,
    // Blocks of A are whole strips of slightly more than 2048 rows, so that B is packed once for all of them. Deep and
    // narrow blocks of B add to C less often than square ones, which takes 2 % of the time of large products.
    block: isWide
      ? { rows: 2058, columns: 256, depth: (2560 / v.size) * v.perLane }
      : { rows: 2052, columns: 192, depth: 1280 / v.size },
    // Rows that are farther apart than 1 KiB share so few lines of the L1 cache that a column of A does not fit, nor
    // a strip of a transposed A at 512 bytes. B is read in place while half of the L1 cache holds it, or for two strips:
    // from the third on, and wherever B comes from memory, packing takes less time than reading it in place loses.
    // Pairs are adjacent along k, which only rows of A are before packing.
    direct: isPaired
      ? { a: 1024, transposedA: 0, b: 0, rows: 0 }
      : { a: 1024, transposedA: 448, b: 16 * 1024, rows: isWide ? 28 : 12 },
    kernel: kernelWith(Assembler, {
      packRows: (x, kernel) => writePackRows(x, v, kernel),
      packColumns: (x, kernel) => writePackColumns(x, v, kernel),
      multiply: (x, kernel) => writeMultiply(x, v, kernel),
    }),
    runner: (listing?: string[]) => writeRunner(new X64(listing)).finish(),
  };
}

/** Kernels receive their arguments in these registers and may change all but r15 and rsp. */
const ARGUMENTS = [rdi, rsi, rdx, rcx, r8, r9, r10];

/** Writes the code that runs the task records of programs. */
export function writeRunner(x: X64): X64 {
  const [program, a, b, c, record] = [rdi, rsi, rdx, rcx, r15];
  const saved = [rbx, rbp, r12, r13, r14, r15];
  for (const register of saved) x.push(register);
  // The frame: the addresses of A, B and C of the current product, the number of products left, the program.
  const frameBytes = 40;
  const [left, start] = [mem(rsp, 24), mem(rsp, 32)];
  x.sub(rsp, frameBytes).mov(mem(rsp, 0), a).mov(mem(rsp, 8), b).mov(mem(rsp, 16), c);
  x.mov(rax, mem(program)).mov(left, rax).mov(start, program);
  const product = x.here();
  const done = x.label();
  x.mov(record, start);
  const task = x.here();
  x.add(record, RECORD_BYTES).mov(rax, mem(record)).test(rax, rax).j("e", done);
  ARGUMENTS.forEach((register, i) => {
    x.mov(register, mem(record, 8 + 8 * i));
  });
  x.call(rax).jmp(task);
  x.place(done).mov(program, start);
  for (const i of [0, 1, 2]) {
    x.mov(rax, mem(rsp, 8 * i))
      .add(rax, mem(program, 8 + 8 * i))
      .mov(mem(rsp, 8 * i), rax);
  }
  x.mov(rax, left).dec(rax).mov(left, rax).j("ne", product);
  x.vzeroupper().add(rsp, frameBytes);
  for (const register of saved.toReversed()) x.pop(register);
  return x.ret();
}
