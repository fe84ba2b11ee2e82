import { at } from "../../ir/shape.js";
import type { FuncType } from "../wasm/assembler.js";
import type { WasmFeatures } from "../wasm/features.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import type { GemmTile } from "./tile.js";

/**
 * How a micro-kernel finds A: `columns` has the rows' elements side by side for each k (packed, or A
 * transposed), `rows` has each row's elements side by side.
 */
export type ALayout = "columns" | "rows";

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
  if (layout === "columns") sumColumns(kernel);
  else sumRows(kernel);
  writeBack(code, rows);
}

/** The sums over k where the rows' elements of A lie side by side for each k. */
function sumColumns(kernel: MicroKernel): void {
  const { code, broadcast, k, a, aStep, rows } = kernel;
  const quads =
    broadcast === "lane" && rows.length % 4 === 0
      ? Array.from({ length: rows.length / 4 }, () => code.local("v128"))
      : undefined;
  const step = (): void => {
    loadColumns(kernel);
    quads?.forEach((quad, index) => {
      code
        .get(a)
        .memory("v128.load", index * 16)
        .set(quad);
    });
    rows.forEach((row, index) => {
      const quad = quads?.[index >> 2];
      if (quad === undefined) code.get(a).memory("v128.load32_splat", index * 4);
      else repeatLane(code, quad, index & 3);
      accumulate(kernel, row);
    });
    code.get(a).get(aStep).op("address.add").set(a);
  };
  countDown(code, k, 2, () => {
    step();
    step();
  });
  countDown(code, k, 1, step);
}

/** The sums over k where each row's elements of A lie side by side, four k at a time. */
function sumRows(kernel: MicroKernel): void {
  const { code, broadcast, k, a, aStep } = kernel;
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
      loadColumns(kernel);
      for (const { sums, pointer, quad } of rows) {
        if (broadcast === "lane") repeatLane(code, quad, inner);
        else code.get(pointer).memory("v128.load32_splat", inner * 4);
        accumulate(kernel, sums);
      }
    }
    for (const { pointer } of rows) code.advance(pointer, 16);
  });
  countDown(code, k, 1, () => {
    loadColumns(kernel);
    for (const { sums, pointer } of rows) {
      code.get(pointer).memory("v128.load32_splat");
      accumulate(kernel, sums);
    }
    for (const { pointer } of rows) code.advance(pointer, 4);
  });
}

/** Loads the two vectors of B and advances to the next k. */
function loadColumns({ code, b, bStep, columns }: MicroKernel): void {
  columns.forEach((column, index) => {
    code
      .get(b)
      .memory("v128.load", index * 16)
      .set(column);
  });
  code.get(b).get(bStep).op("address.add").set(b);
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
