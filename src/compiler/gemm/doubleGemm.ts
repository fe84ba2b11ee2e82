import type { FuncType } from "../wasm/assembler.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import { countDown } from "./microKernel.js";

/** m, n, k, then a, row and k step, b, k and column step, c, row step (bytes), alpha, beta. */
export const DOUBLE_GEMM_SIGNATURE: FuncType = {
  params: [...Array.from({ length: 11 }, () => "address" as const), "f64", "f64"],
  results: [],
};

/** Writes the float64 product: one dot product per element of C, whatever the layouts. */
export function writeDoubleGemm(code: FunctionBody): void {
  const at = (index: number): Local => code.param(index);
  const [rowsLeft, n, k, a, aRow, aStep, b, bStep, bColumn, c] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(at) as [
    ...[Local, Local, Local, Local, Local],
    ...[Local, Local, Local, Local, Local],
  ];
  const cRow = at(10);
  const alpha = at(11);
  const beta = at(12);
  const [columnsLeft, left, x, y, column, target] = [0, 1, 2, 3, 4, 5].map(() => code.local("address")) as [
    ...[Local, Local, Local],
    ...[Local, Local, Local],
  ];
  const sum = code.local("f64");
  const advance = (pointer: Local, step: Local): void => {
    code.get(pointer).get(step).op("address.add").set(pointer);
  };
  countDown(code, rowsLeft, 1, () => {
    code.get(n).set(columnsLeft).get(b).set(column).get(c).set(target);
    countDown(code, columnsLeft, 1, () => {
      code.f64(0).set(sum).get(k).set(left).get(a).set(x).get(column).set(y);
      countDown(code, left, 1, () => {
        code.get(sum).get(x).memory("f64.load").get(y).memory("f64.load");
        code.op("f64.mul").op("f64.add").set(sum);
        advance(x, aStep);
        advance(y, bStep);
      });
      code.get(sum).get(alpha).op("f64.mul").set(sum);
      // C may hold anything, NaN too, when beta is 0.
      code
        .get(beta)
        .f64(0)
        .op("f64.ne")
        .if(() => {
          code.get(target).memory("f64.load").get(beta).op("f64.mul").get(sum).op("f64.add").set(sum);
        });
      code.get(target).get(sum).memory("f64.store");
      advance(column, bColumn);
      code.advance(target, 8);
    });
    advance(a, aRow);
    advance(c, cRow);
  });
}
