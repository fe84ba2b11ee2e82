/** The programs that a simulated page runs on the devices of its worker, and what they compute. */
import { HostFunction } from "../../../../src/ir/callbacks.js";
import { decode, encode } from "../../../../src/ir/dtype.js";
import type { MeshShape } from "../../../../src/ir/mesh.js";
import { newLiteral, type Program } from "../../../../src/ir/program.js";
import { at, range, tensorType } from "../../../../src/ir/shape.js";
import { buildProgram } from "../../../support/interpreting.js";
import { conditions } from "./conditions.js";

/** Blocks of elements that stay in JavaScript, and such that lie in the memory of the worker. */
export const sizes = [5, 1100] as const;

/** The elements of a device's block are `first + step · (i % 7)`. */
export interface Block {
  readonly first: number;
  readonly step: number;
}

export interface PageProgram {
  readonly name: string;
  readonly program: Program;
  readonly donated: boolean;
  /** What devices compute; undefined if they diverge. */
  readonly result: ((blocks: readonly Block[]) => readonly Block[]) | undefined;
  /** Whether every device calls the host once. */
  readonly calls: boolean;
}

const host = new HostFunction("host", ([x]) => {
  if (x === undefined) throw new RangeError("host takes one operand");
  conditions().called();
  return [
    encode(
      "float32",
      Array.from(decode("float32", x.data), (value) => value + 3),
    ),
  ];
});

/** The programs for one mesh, by size of the blocks. */
export function programsFor({ axes }: MeshShape): readonly (readonly PageProgram[])[] {
  const n = axes.reduce((product, { size }) => product * size, 1);
  const permutation = range(n).map((i): [number, number] => [i, (i + 1) % n]);
  const total = (blocks: readonly Block[], field: keyof Block) =>
    blocks.reduce((sum, block) => sum + block[field], 0);
  return sizes.map((size) => {
    const type = tensorType("float32", [size]);
    const same = buildProgram([type], (_, x) => [x]);
    const summed = buildProgram([type], (emit, x) => emit("psum", [x], { axes }));
    const shifted = (): Program =>
      buildProgram([type], (emit, x) => {
        const turned = at(emit("ppermute", [x], { axes, permutation }), 0);
        return emit("add", [turned, newLiteral(1, "float32")], {});
      });
    const called = buildProgram([type], (emit, x) => {
      const params = { fn: host, kind: "io", batching: "sequential", results: [type], once: [] } as const;
      return emit("ppermute", [at(emit("callback", [x], params), 0)], { axes, permutation });
    });
    const diverged = buildProgram([type], (emit, x) => {
      const index = at(emit("axisIndex", [], { axes }), 0);
      return emit("cond", [index, x], { branches: [summed, same] });
    });
    const shift = (by: number) => (blocks: readonly Block[]) =>
      range(n).map((i) => {
        const { first, step } = at(blocks, (i + n - 1) % n);
        return { first: first + by, step };
      });
    const sum = (blocks: readonly Block[]) =>
      range(n).map(() => ({ first: total(blocks, "first"), step: total(blocks, "step") }));
    return [
      { name: "sum", program: summed, donated: false, calls: false, result: sum },
      { name: "shift", program: shifted(), donated: false, calls: false, result: shift(1) },
      { name: "donate", program: shifted(), donated: true, calls: false, result: shift(1) },
      { name: "host", program: called, donated: false, calls: true, result: shift(3) },
      { name: "diverge", program: diverged, donated: false, calls: false, result: undefined },
    ];
  });
}
