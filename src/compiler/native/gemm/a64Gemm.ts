import { InternalError } from "../../../ir/errors.js";
import { A64, saveRegisters } from "../a64/assembler.js";
import { d, x } from "../a64/operands.js";
import { writeMultiply } from "./a64Multiply.js";
import { MATRIX, packingOf, VECTOR, writePackColumns, writePackRows } from "./a64Packing.js";
import { elementsOf, type GemmTarget, kernelWith, type ProductType, RECORD_BYTES } from "./target.js";

/** The kernels for AArch64 with NEON, and with BF16 for bfloat16. */
export function a64Gemm(type: ProductType): GemmTarget {
  const elements = elementsOf(type);
  const { size, factorBytes } = elements;
  const packing = packingOf(elements);
  return {
    name: type === "bfloat16" ? "NEON-BF16" : "NEON",
    ...elements,
    perLane: packing.perLane,
    lanes: VECTOR / packing.laneBytes,
    depthUnit: packing.perLane,
    // 24 vectors of sums leave eight registers for factors.
    rows: 8,
    columns: 3 * (VECTOR / size),
    fullStrips: false,
    prefetches: false,
    block: { rows: 2048, columns: 480, depth: 1024 / factorBytes },
    // Both instructions need a step of A in adjacent elements, so everything is packed.
    direct: { a: 0, transposedA: 0, b: 0, rows: 0 },
    kernel: kernelWith(A64, {
      packRows: (code, kernel) => writePackRows(code, packing, kernel),
      packColumns: (code, kernel) => writePackColumns(code, packing, kernel),
      multiply: (code, kernel) => {
        if (kernel.a !== "packed" || kernel.b !== "packed")
          throw new InternalError("[a64Gemm] kernels for NEON take packed factors");
        writeMultiply(code, elements, kernel);
      },
    }),
    runner: (listing?: string[]) => writeRunner(new A64(listing)).finish(),
  };
}

/**
 * Kernels receive their arguments in x0 to x6 and may change all registers but x18 and those of the runner, x19 to x24.
 */
function writeRunner(code: A64): A64 {
  const [record, program, left, address] = [x(19), x(23), x(24), x(16)];
  const { a, b, c } = MATRIX;
  const saved = [29, 30, 19, 20, 21, 22, 23, 24].map(x);
  const restore = saveRegisters(code, [...saved, ...[8, 9, 10, 11, 12, 13, 14, 15].map(d)]);
  code.mov(program, x(0)).mov(a, x(1)).mov(b, x(2)).mov(c, x(3)).ldr(left, program);
  const product = code.here();
  const done = code.label();
  code.mov(record, program);
  const task = code.here();
  code.add(record, record, RECORD_BYTES).ldr(address, record).cbz(address, done);
  for (let i = 0; i < 7; i++) code.ldr(x(i), record, 8 + 8 * i);
  code.blr(address).b(task);
  code.place(done);
  [a, b, c].forEach((matrix, i) => {
    code.ldr(address, program, 8 + 8 * i).add(matrix, matrix, address);
  });
  code.subs(left, left, 1).bCond("ne", product);
  restore();
  return code.ret();
}
