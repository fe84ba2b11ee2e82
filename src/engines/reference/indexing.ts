import type { OpParams } from "../../ir/ops.js";
import { at, type Shape, sizeOf, type TensorType } from "../../ir/shape.js";
import { decode, encode, type HostTensor, zeros } from "./hostTensor.js";
import { type EvalRule, onEveryLane } from "./rule.js";

/** The sizes of x `[batch, pre, n, post]` and of the indices `[batch, rest]`, dims of one kind taken together. */
interface Extent {
  readonly batch: number;
  readonly pre: number;
  readonly n: number;
  readonly post: number;
  readonly rest: number;
}

function extentOf(x: Shape, indices: Shape, { dim, batchDims }: OpParams["gather"]): Extent {
  return {
    batch: sizeOf(x.slice(0, batchDims)),
    pre: sizeOf(x.slice(batchDims, dim)),
    n: at(x, dim),
    post: sizeOf(x.slice(dim + 1)),
    rest: sizeOf(indices.slice(batchDims)),
  };
}

/**
 * Visits every run of `post` contiguous elements that an index selects, in row-major order of the result.
 *
 * @param visit receives the index, the offset in x of the run with index 0, and the offset of the run in the result
 */
function forEachRun(
  { batch, pre, n, post, rest }: Extent,
  indices: HostTensor,
  visit: (index: number, inX: number, inResult: number) => void,
): void {
  for (let b = 0; b < batch; b++) {
    for (let p = 0; p < pre; p++) {
      const row = b * pre + p;
      for (let r = 0; r < rest; r++) {
        visit(indices.data[b * rest + r] as number, row * n * post, (row * rest + r) * post);
      }
    }
  }
}

function gather(
  x: HostTensor,
  indices: HostTensor,
  params: OpParams["gather"],
  type: TensorType,
): HostTensor {
  const extent = extentOf(x.type.shape, indices.type.shape, params);
  const { n, post } = extent;
  const result = zeros(type);
  forEachRun(extent, indices, (index, inX, inResult) => {
    const start = inX + Math.min(Math.max(index, 0), n - 1) * post;
    result.data.set(x.data.subarray(start, start + post), inResult);
  });
  return result;
}

/** Adding accumulates all updates of an element in float64 and rounds once, as sums do. */
function scatter(ins: readonly HostTensor[], params: OpParams["scatter"]): HostTensor {
  const [x, indices] = [at(ins, 0), at(ins, 1)];
  const extent = extentOf(x.type.shape, indices.type.shape, params);
  const { n, post } = extent;
  const updates = decode(at(ins, 2));
  const result = decode(x).slice();
  const isSum = params.combine === "add";
  forEachRun(extent, indices, (index, inX, inUpdates) => {
    if (index < 0 || index >= n) return;
    const start = inX + index * post;
    for (let i = 0; i < post; i++) {
      const update = updates[inUpdates + i] as number;
      result[start + i] = isSum ? (result[start + i] as number) + update : update;
    }
  });
  return encode(x.type, result);
}

/** Reference rules of the ops that look up elements by index. */
export const indexingRules: { readonly [K in "gather" | "scatter"]: EvalRule<K> } = {
  gather: onEveryLane((ins, params, types) => [gather(at(ins, 0), at(ins, 1), params, at(types, 0))]),
  scatter: onEveryLane((ins, params) => [scatter(ins, params)]),
};
