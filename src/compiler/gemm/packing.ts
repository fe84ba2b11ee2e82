import type { FuncType } from "../wasm/assembler.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import { countDown } from "./microKernel.js";

/** rows, k, source, row step of the source in bytes, destination, row width of the destination in elements. */
export const PACK_SIGNATURE: FuncType = {
  params: ["address", "address", "address", "address", "address", "address"],
  results: [],
};

/**
 * Writes the function that interleaves `rows` rows of k elements: destination[k][row] = source[row][k].
 *
 * Four rows at a time are transposed in registers, the rest element by element.
 */
export function writeInterleave(code: FunctionBody): void {
  const [rows, k, source, sourceStep, destination, width] = sixParams(code);
  const [column, from, to, stride] = [0, 1, 2, 3].map(() => code.local("address")) as [
    Local,
    Local,
    Local,
    Local,
  ];
  const vectors = [0, 1, 2, 3].map(() => code.local("v128")) as [Local, Local, Local, Local];
  const mixed = [0, 1, 2, 3].map(() => code.local("v128")) as [Local, Local, Local, Local];
  const pointers = [0, 1, 2, 3].map(() => code.local("address"));
  clearPadding(code);
  code.get(width).address(2).op("address.shl").set(stride);
  countDown(code, rows, 4, () => {
    pointers.forEach((pointer, index) => {
      code.get(source).get(sourceStep).address(index).op("address.mul").op("address.add").set(pointer);
    });
    code.get(destination).set(to);
    code.get(k).set(column);
    countDown(code, column, 4, () => {
      pointers.forEach((pointer, index) => {
        code
          .get(pointer)
          .memory("v128.load")
          .set(vectors[index] ?? vectors[0]);
        code.advance(pointer, 16);
      });
      storeTransposed(code, vectors, mixed, { to, stride });
    });
    countDown(code, column, 1, () => {
      pointers.forEach((pointer, index) => {
        code
          .get(to)
          .get(pointer)
          .memory("f32.load")
          .memory("f32.store", index * 4);
        code.advance(pointer, 4);
      });
      code.get(to).get(stride).op("address.add").set(to);
    });
    code.get(source).get(sourceStep).address(2).op("address.shl").op("address.add").set(source);
    code.advance(destination, 16);
  });
  countDown(code, rows, 1, () => {
    code.get(source).set(from);
    code.get(destination).set(to);
    code.get(k).set(column);
    countDown(code, column, 1, () => {
      code.get(to).get(from).memory("f32.load").memory("f32.store");
      code.advance(from, 4);
      code.get(to).get(stride).op("address.add").set(to);
    });
    code.get(source).get(sourceStep).op("address.add").set(source);
    code.advance(destination, 4);
  });
}

type FourLocals = readonly [Local, Local, Local, Local];

/** Stores the columns of a 4×4 block whose rows are vectors, `stride` bytes apart, and advances `to` past them. */
function storeTransposed(
  code: FunctionBody,
  [x0, x1, x2, x3]: FourLocals,
  [y0, y1, y2, y3]: FourLocals,
  { to, stride }: { readonly to: Local; readonly stride: Local },
): void {
  code.get(x0).get(x1).shuffle([0, 4, 1, 5]).set(y0);
  code.get(x2).get(x3).shuffle([0, 4, 1, 5]).set(y1);
  code.get(x0).get(x1).shuffle([2, 6, 3, 7]).set(y2);
  code.get(x2).get(x3).shuffle([2, 6, 3, 7]).set(y3);
  const storeRow = (low: Local, high: Local, lanes: readonly [number, number, number, number]): void => {
    code.get(to).get(low).get(high).shuffle(lanes).memory("v128.store");
    code.get(to).get(stride).op("address.add").set(to);
  };
  storeRow(y0, y1, [0, 1, 4, 5]);
  storeRow(y0, y1, [2, 3, 6, 7]);
  storeRow(y2, y3, [0, 1, 4, 5]);
  storeRow(y2, y3, [2, 3, 6, 7]);
}

/** Writes the function that gathers k runs of `rows` elements: destination[k][row] = source[k][row]. */
export function writeGather(code: FunctionBody): void {
  const [rows, k, source, sourceStep, destination, width] = sixParams(code);
  const [left, from, to] = [0, 1, 2].map(() => code.local("address")) as [Local, Local, Local];
  clearPadding(code);
  countDown(code, k, 1, () => {
    code.get(source).set(from);
    code.get(destination).set(to);
    code.get(rows).set(left);
    countDown(code, left, 4, () => {
      code.get(to).get(from).memory("v128.load").memory("v128.store");
      code.advance(from, 16).advance(to, 16);
    });
    countDown(code, left, 1, () => {
      code.get(to).get(from).memory("f32.load").memory("f32.store");
      code.advance(from, 4).advance(to, 4);
    });
    code.get(source).get(sourceStep).op("address.add").set(source);
    code.get(destination).get(width).address(2).op("address.shl").op("address.add").set(destination);
  });
}

/** Zeroes the destination when it is wider than what will be written. */
function clearPadding(code: FunctionBody): void {
  const [rows, k, , , destination, width] = sixParams(code);
  code
    .get(rows)
    .get(width)
    .op("address.ne")
    .if(() => {
      code
        .get(destination)
        .i32(0)
        .get(k)
        .get(width)
        .op("address.mul")
        .address(2)
        .op("address.shl")
        .memoryFill();
    });
}

/** The parameters of a function that has six. */
export function sixParams(code: FunctionBody): [Local, Local, Local, Local, Local, Local] {
  return [0, 1, 2, 3, 4, 5].map((index) => code.param(index)) as [Local, Local, Local, Local, Local, Local];
}
