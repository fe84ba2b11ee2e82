import { type DType, fromBfloat16Bits, fromFloat16Bits, isInteger, viewHost } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import type { HostKernel, HostStep } from "../steps.js";
import type { Addresses } from "../wasm/addresses.js";

/** Runs a host step on the addresses of a table. */
export function runHostStep(step: HostStep, table: Addresses, memory: ArrayBufferLike): void {
  const addresses = step.places.map(({ slot, offset }) => (table[slot] as number) + offset);
  const { kernel } = step;
  if (kernel.kind === "sort") sort(kernel, addresses, memory);
  else if (kernel.kind === "argmax" || kernel.kind === "argmin") indexOfExtreme(kernel, addresses, memory);
  else cumulate(kernel, addresses, memory);
}

/** The elements of a tensor as numbers that compare and add as its values do. */
function numbersAt(
  dtype: DType,
  memory: ArrayBufferLike,
  address: number,
  length: number,
): ArrayLike<number> {
  const data = viewHost(dtype, memory, address, length);
  if (dtype === "bfloat16") return Float64Array.from(data, fromBfloat16Bits);
  return dtype === "float16" ? Float64Array.from(data, fromFloat16Bits) : data;
}

/** Smaller numbers first, −0 with 0, NaN last. */
function compareNumbers(x: number, y: number): number {
  if (x < y) return -1;
  if (x > y) return 1;
  return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
}

function sort(
  kernel: HostKernel & { kind: "sort" },
  addresses: readonly number[],
  memory: ArrayBufferLike,
): void {
  const { dtypes, numKeys, outer, n, inner } = kernel;
  const length = outer * n * inner;
  const keys = range(numKeys).map((i) => numbersAt(at(dtypes, i), memory, at(addresses, i), length));
  const sources = dtypes.map((dtype, i) => viewHost(dtype, memory, at(addresses, i), length));
  const targets = dtypes.map((dtype, i) => viewHost(dtype, memory, at(addresses, dtypes.length + i), length));
  const order = new Array<number>(n);
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      const start = o * n * inner + i;
      for (let k = 0; k < n; k++) order[k] = start + k * inner;
      order.sort((a, b) => {
        for (const key of keys) {
          const compared = compareNumbers(key[a] as number, key[b] as number);
          if (compared !== 0) return compared;
        }
        return a - b;
      });
      targets.forEach((target, t) => {
        const source = at(sources, t);
        for (let k = 0; k < n; k++) target[start + k * inner] = source[order[k] as number] as number;
      });
    }
  }
}

type Along = HostKernel & { kind: "argmax" | "argmin" | "cumsum" | "cumsumReverse" };

function indexOfExtreme(kernel: Along, addresses: readonly number[], memory: ArrayBufferLike): void {
  const { dtype, outer, n, inner, kind } = kernel;
  const x = numbersAt(dtype, memory, at(addresses, 0), outer * n * inner);
  const result = new Int32Array(memory, at(addresses, 1), outer * inner);
  const isMax = kind === "argmax";
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      const start = o * n * inner + i;
      let best = 0;
      let most = x[start] as number;
      for (let k = 1; k < n && !Number.isNaN(most); k++) {
        const value = x[start + k * inner] as number;
        if (Number.isNaN(value) || (isMax ? value > most : value < most)) {
          best = k;
          most = value;
        }
      }
      result[o * inner + i] = best;
    }
  }
}

function cumulate(kernel: Along, addresses: readonly number[], memory: ArrayBufferLike): void {
  const { dtype, outer, n, inner, kind } = kernel;
  const length = outer * n * inner;
  const x = viewHost(dtype, memory, at(addresses, 0), length);
  const result = viewHost(dtype, memory, at(addresses, 1), length);
  // Integers wrap around. Memory is walked in its order, so there is a sum for every inner index.
  const sums = isInteger(dtype) ? new Int32Array(inner) : new Float64Array(inner);
  for (let o = 0; o < outer; o++) {
    sums.fill(0);
    for (let k = 0; k < n; k++) {
      const start = (o * n + (kind === "cumsum" ? k : n - 1 - k)) * inner;
      for (let i = 0; i < inner; i++) {
        sums[i] = (sums[i] as number) + (x[start + i] as number);
        result[start + i] = sums[i] as number;
      }
    }
  }
}
