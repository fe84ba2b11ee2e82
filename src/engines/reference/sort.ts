import type { OpParams } from "../../ir/ops.js";
import { at, inversePermutation, range, tensorType } from "../../ir/shape.js";
import { decode, type HostTensor, zeros } from "./hostTensor.js";
import { type EvalRule, onEveryLane } from "./rule.js";
import { transposed } from "./strided.js";

/** The order of two keys: NaN is larger than everything and equal to itself, −0 equals 0. */
function compareKeys(x: number, y: number): number {
  if (x < y) return -1;
  if (x > y) return 1;
  return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
}

function sort(ins: readonly HostTensor[], { dim, numKeys }: OpParams["sort"]): HostTensor[] {
  const { shape } = at(ins, 0).type;
  const order = [...range(shape.length).filter((d) => d !== dim), dim];
  const rows = ins.map((x) => transposed(x, order));
  const keys = rows.slice(0, numKeys).map(decode);
  const results = rows.map((x) => zeros(tensorType(x.type.dtype, x.type.shape)));
  const length = at(shape, dim);
  const size = at(rows, 0).data.length;
  const compare = (i: number, j: number): number => {
    for (const key of keys) {
      const result = compareKeys(key[i] as number, key[j] as number);
      if (result !== 0) return result;
    }
    return 0;
  };
  for (let row = 0; row < size; row += length) {
    const sources = range(length)
      .map((i) => row + i)
      .sort(compare);
    results.forEach(({ data }, k) => {
      const source = at(rows, k).data;
      sources.forEach((from, i) => {
        data[row + i] = source[from] as number;
      });
    });
  }
  return results.map((x) => transposed(x, inversePermutation(order)));
}

/** Reference rule of `sort`. */
export const sortRules: { readonly [K in "sort"]: EvalRule<K> } = {
  sort: onEveryLane((ins, params) => sort(ins, params)),
};
