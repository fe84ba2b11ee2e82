import { at } from "../../ir/shape.js";
import type { FuncType } from "../wasm/assembler.js";
import type { WasmFeatures } from "../wasm/features.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import { type GemmTile, PANEL_WIDTH } from "./tile.js";

/**
 * How a micro-kernel finds A: `columns` has the rows' elements side by side for each k (packed, or A transposed), `rows` has
 * each row's elements side by side. `packed` is `columns` where both operands are packed: no step has to be added.
 */
export const LAYOUTS = ["packed", "columns", "rows"] as const;

/** One of {@link LAYOUTS}. */
export type ALayout = (typeof LAYOUTS)[number];

/** How many k of packed operands are added between two changes of the pointers. */
const PACKED_STEPS = 8;

/** k, a, step of a (bytes from k to k + 1, or from row to row), b, step of b, c, row step of c, alpha, beta. */
export const MICRO_KERNEL_SIGNATURE: FuncType = {
  params: ["address", "address", "address", "address", "address", "address", "address", "f32", "f32"],
  results: [],
};

/** A micro-kernel under construction: where it reads, and what it keeps in registers. */
interface MicroKernel {
  readonly code: FunctionBody;
  readonly features: WasmFeatures;
  readonly broadcast: GemmTile["broadcast"];
  readonly k: Local;
  readonly a: Local;
  readonly aStep: Local;
  readonly b: Local;
  readonly bStep: Local;
  /** The sums of each row of C, two vectors wide. */
  readonly rows: readonly (readonly [Local, Local])[];
  /** The two vectors of B for one k. */
  readonly columns: readonly [Local, Local];
  /** The current element of A, in all lanes. */
  readonly element: Local;
}

/** Writes the function that computes `height` rows by two vectors of C over the whole of k. */
export function writeMicroKernel(
  code: FunctionBody,
  height: number,
  layout: ALayout,
  tile: GemmTile,
  features: WasmFeatures,
): void {
  const rows = Array.from({ length: height }, () => [code.local("v128"), code.local("v128")] as const);
  const kernel: MicroKernel = {
    code,
    features,
    broadcast: tile.broadcast,
    k: code.param(0),
    a: code.param(1),
    aStep: code.param(2),
    b: code.param(3),
    bStep: code.param(4),
    rows,
    columns: [code.local("v128"), code.local("v128")],
    element: code.local("v128"),
  };
  if (layout === "packed") sumPacked(kernel);
  else if (layout === "columns") sumColumns(kernel);
  else sumRows(kernel);
  writeBack(code, rows);
}

/** The sums over k where the rows' elements of A lie side by side for each k. */
function sumColumns(kernel: MicroKernel): void {
  const { code, k, a, aStep, b, bStep } = kernel;
  const addOne = columnAdder(kernel);
  const step = (): void => {
    addOne(0);
    code.get(b).get(bStep).op("address.add").set(b);
    code.get(a).get(aStep).op("address.add").set(a);
  };
  countDown(code, k, 2, () => {
    step();
    step();
  });
  countDown(code, k, 1, step);
}

/** The sums over k where both operands are packed. */
function sumPacked(kernel: MicroKernel): void {
  const { code, k, a, b, rows } = kernel;
  const addOne = columnAdder(kernel);
  for (const count of [PACKED_STEPS, 1]) {
    countDown(code, k, count, () => {
      for (let index = 0; index < count; index++) addOne(index);
      code.advance(a, count * rows.length * 4).advance(b, count * PANEL_WIDTH * 4);
    });
  }
}

/** Adds the products of one k, the `index`-th from where both pointers are, in packed operands. */
function columnAdder(kernel: MicroKernel): (index: number) => void {
  const { code, broadcast, a, rows } = kernel;
  const quads =
    broadcast === "lane" && rows.length % 4 === 0
      ? Array.from({ length: rows.length / 4 }, () => code.local("v128"))
      : undefined;
  return (index) => {
    const from = index * rows.length * 4;
    loadColumns(kernel, index);
    quads?.forEach((quad, q) => {
      code
        .get(a)
        .memory("v128.load", from + q * 16)
        .set(quad);
    });
    rows.forEach((row, r) => {
      const quad = quads?.[r >> 2];
      if (quad === undefined) code.get(a).memory("v128.load32_splat", from + r * 4);
      else repeatLane(code, quad, r & 3);
      accumulate(kernel, row);
    });
  };
}

/** The sums over k where each row's elements of A lie side by side, four k at a time. */
function sumRows(kernel: MicroKernel): void {
  const { code, broadcast, k, a, aStep, b, bStep } = kernel;
  const nextColumns = (): void => {
    loadColumns(kernel);
    code.get(b).get(bStep).op("address.add").set(b);
  };
  const pointers = kernel.rows.map((_, index) => {
    const pointer = code.local("address");
    code.get(a).get(aStep).address(index).op("address.mul").op("address.add").set(pointer);
    return pointer;
  });
  const rows = kernel.rows.map((sums, index) => ({
    sums,
    pointer: at(pointers, index),
    quad: code.local("v128"),
  }));
  countDown(code, k, 4, () => {
    if (broadcast === "lane") {
      for (const { pointer, quad } of rows) code.get(pointer).memory("v128.load").set(quad);
    }
    for (let inner = 0; inner < 4; inner++) {
      nextColumns();
      for (const { sums, pointer, quad } of rows) {
        if (broadcast === "lane") repeatLane(code, quad, inner);
        else code.get(pointer).memory("v128.load32_splat", inner * 4);
        accumulate(kernel, sums);
      }
    }
    for (const { pointer } of rows) code.advance(pointer, 16);
  });
  countDown(code, k, 1, () => {
    nextColumns();
    for (const { sums, pointer } of rows) {
      code.get(pointer).memory("v128.load32_splat");
      accumulate(kernel, sums);
    }
    for (const { pointer } of rows) code.advance(pointer, 4);
  });
}

/** Loads the two vectors of B, those of the `index`-th k from its pointer in a packed panel. */
function loadColumns({ code, b, columns }: MicroKernel, index = 0): void {
  columns.forEach((column, half) => {
    code
      .get(b)
      .memory("v128.load", index * PANEL_WIDTH * 4 + half * 16)
      .set(column);
  });
}

/** Adds the product of the element on the stack with the two vectors of B to one row. */
function accumulate({ code, features, element, columns }: MicroKernel, row: readonly [Local, Local]): void {
  code.set(element);
  row.forEach((sum, index) => {
    const column = at(columns, index);
    if (features.fma) code.get(element).get(column).get(sum).vector("f32x4.relaxed_madd").set(sum);
    else code.get(sum).get(element).get(column).vector("f32x4.mul").vector("f32x4.add").set(sum);
  });
}

/** Pushes a vector with one lane of another in all lanes. */
function repeatLane(code: FunctionBody, vector: Local, lane: number): void {
  code.get(vector).get(vector).shuffle([lane, lane, lane, lane]);
}

/** C = alpha · sum + beta · C; C is not read when beta is 0, so that it may hold anything. */
function writeBack(code: FunctionBody, rows: readonly (readonly [Local, Local])[]): void {
  const c = code.param(5);
  const cStep = code.param(6);
  const alpha = code.local("v128");
  const beta = code.local("v128");
  const store = (add: boolean): void => {
    for (const row of rows) {
      row.forEach((sum, index) => {
        code.get(c).get(sum).get(alpha).vector("f32x4.mul");
        if (add) {
          code
            .get(c)
            .memory("v128.load", index * 16)
            .get(beta)
            .vector("f32x4.mul")
            .vector("f32x4.add");
        }
        code.memory("v128.store", index * 16);
      });
      code.get(c).get(cStep).op("address.add").set(c);
    }
  };
  code.get(code.param(7)).vector("f32x4.splat").set(alpha);
  code.get(code.param(8)).vector("f32x4.splat").set(beta);
  code.get(code.param(8)).f32(0).op("f32.ne");
  code.if(
    () => store(true),
    () => store(false),
  );
}

/** Runs the body while a counter is at least `step`, and decrements it by `step` each time. */
export function countDown(code: FunctionBody, left: Local, step: number, body: () => void): void {
  code
    .get(left)
    .address(step)
    .op("address.ge_s")
    .if(() => {
      code.loop((next) => {
        body();
        code.get(left).address(step).op("address.sub").tee(left).address(step).op("address.ge_s").brIf(next);
      });
    });
}
