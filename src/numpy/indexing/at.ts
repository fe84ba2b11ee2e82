/** Functional updates of parts of tensors. */
import { isComplex, isFloat, limits } from "../../ir/dtype.js";
import { DTypeError, ShapeError } from "../../ir/errors.js";
import { at, formatType, range, sameNumbers, sizeOf } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { broadcastTo } from "../arrays/shaping.js";
import { add, divide, maximum, minimum, multiply, power } from "../elementwise/arithmetic.js";
import { where } from "../elementwise/logic.js";
import { cast, like, toType } from "../operands.js";
import { type Index, index, type LookUp, planIndex } from "./indexing.js";

type Combine = (x: Tensor, y: Tensor) => Tensor;

/** How updates are combined with the existing elements. */
interface Update {
  readonly combine: Combine;
  readonly scatter?: "add" | "set";
}

const updates = {
  set: { combine: (_: Tensor, y: Tensor) => y, scatter: "set" },
  add: { combine: add, scatter: "add" },
  multiply: { combine: multiply },
  min: { combine: minimum },
  max: { combine: maximum },
} as const satisfies Record<string, Update>;

/**
 * A part of a tensor that can be read or replaced; `x.at(…)` makes it. A bool tensor alone is a mask of the first dims,
 * of which updates are the same for all that it chooses. Every update returns a new tensor.
 * Positions outside of the tensor that come from tensors are dropped by updates and clamped by `get`.
 * Where indices repeat, `set` keeps the last value and the others apply all of them.
 */
export class IndexUpdate {
  /** @internal */
  constructor(
    private readonly x: Tensor,
    private readonly indices: readonly Index[],
  ) {}

  /** The part itself. */
  get(): Tensor {
    return index(this.x, ...this.indices);
  }

  /** The tensor with the part replaced. */
  set(value: TensorLike): Tensor {
    return this.update("set", value);
  }

  /** The tensor with values added to the part. */
  add(value: TensorLike): Tensor {
    return this.update("add", value);
  }

  /** The tensor with values subtracted from the part. */
  subtract(value: TensorLike): Tensor {
    return this.update("add", value instanceof Tensor ? ops.neg(value) : -Number(value));
  }

  /** The tensor with the part multiplied. */
  multiply(value: TensorLike): Tensor {
    return this.update("multiply", value);
  }

  /** The tensor with the part divided. */
  divide(value: TensorLike): Tensor {
    return cast(divide(this.x, this.factors(value)), this.x.dtype);
  }

  /** The tensor with the part raised to a power. */
  power(value: TensorLike): Tensor {
    // Elements outside of the part are not raised: the derivative would contain the logarithm of negative ones.
    const isPart = new IndexUpdate(ops.full(this.x.shape, 0, "bool"), this.indices).set(true);
    const base = where(isPart, this.x, 1);
    return where(isPart, cast(power(base, this.factors(value)), this.x.dtype), this.x);
  }

  /** The tensor with the part limited from above: the smaller of both. */
  min(value: TensorLike): Tensor {
    return this.update("min", value);
  }

  /** The tensor with the part limited from below: the larger of both. */
  max(value: TensorLike): Tensor {
    return this.update("max", value);
  }

  /** Ones with the values at the part, multiplied where indices repeat. */
  private factors(value: TensorLike): Tensor {
    const ones = ops.full(this.x.shape, 1, operandType(this.x, value));
    return new IndexUpdate(ones, this.indices).multiply(value);
  }

  private update(kind: keyof typeof updates, value: TensorLike): Tensor {
    const caller = `at.${kind}`;
    const [mask] = this.indices;
    if (this.indices.length === 1 && mask instanceof Tensor && mask.dtype === "bool") {
      return masked(updates[kind], this.x, mask, toElements(value, this.x, caller), caller);
    }
    const { before, lookUp, after, shape } = planIndex(this.x.shape, this.indices, caller);
    const update: Update = updates[kind];
    const part = broadcastTo(toElements(value, this.x, caller), shape);
    const values = after.reduceRight((y, step) => step.put(this.x, y), part);
    // The tensor after each step, so that every step can be undone; what `set` replaces need not be read.
    const isRead = lookUp !== undefined || kind !== "set";
    const seen = [this.x];
    for (const step of isRead ? before : before.slice(0, -1)) seen.push(step.get(at(seen, seen.length - 1)));
    const inner = at(seen, seen.length - 1);
    let result = values;
    if (lookUp) result = scatter(update, inner, lookUp, values);
    else if (isRead) result = update.combine(inner, values);
    for (let i = before.length - 1; i >= 0; i--) result = at(before, i).put(at(seen, i), result);
    return result;
  }
}

/**
 * Updates what a mask of the first dims selects. The number of selected slices depends on its values, so the updates
 * must be the same for all of them.
 */
function masked({ combine }: Update, x: Tensor, mask: Tensor, value: Tensor, caller: string): Tensor {
  if (!sameNumbers(mask.shape, x.shape.slice(0, mask.ndim))) {
    throw new ShapeError(
      `[${caller}] mask ${formatType(mask.type)} does not fit ${formatType(x.type)}: its dims must be the first ones there`,
    );
  }
  const slice = x.shape.slice(mask.ndim);
  if (value.ndim > slice.length) {
    throw new ShapeError(
      `[${caller}] how many slices a mask chooses depends on its values, got updates ${formatType(value.type)}: pass one that broadcasts to [${slice}] for all, or use np.place or np.where`,
    );
  }
  const chosen = ops.broadcastInDim(mask, x.shape, range(mask.ndim));
  return ops.select(chosen, combine(x, broadcastTo(broadcastTo(value, slice), x.shape)), x);
}

/** Values as elements of a tensor; throws for numbers that do not fit instead of truncating them. */
function toElements(value: TensorLike, x: Tensor, caller: string): Tensor {
  const dtype = operandType(x, value);
  const isWider = isComplex(dtype) ? !isComplex(x.dtype) : isFloat(dtype) && !isFloat(x.dtype);
  if (!(value instanceof Tensor) && isWider) {
    throw new DTypeError(
      `[${caller}] ${value} is not a valid ${x.dtype}: convert the tensor with astype("${dtype}"), or the number`,
    );
  }
  return value instanceof Tensor ? cast(value, x.dtype) : toType(value, x.dtype, caller);
}

function scatter(update: Update, x: Tensor, { dim, writing }: LookUp, values: Tensor): Tensor {
  const isOp = update.scatter === "set" || (update.scatter === "add" && x.dtype !== "bool");
  if (!isOp) return scatterBy(update.combine, x, writing(), values, dim);
  return ops.scatter(x, writing(), values, { dim, batchDims: 0, combine: update.scatter });
}

/**
 * A scatter for any associative combination: the updates are sorted by index, combined with their
 * predecessors of the same index by doubling, and the last of each run is written.
 */
function scatterBy(combine: Combine, x: Tensor, indices: Tensor, values: Tensor, dim: number): Tensor {
  const n = sizeOf(indices.shape);
  const rank = indices.ndim;
  // Updates as [n, …], rows of x as [size, …].
  const order = [
    ...range(rank).map((i) => dim + i),
    ...range(values.ndim).filter((d) => d < dim || d >= dim + rank),
  ];
  const rest = [...x.shape.slice(0, dim), ...x.shape.slice(dim + 1)];
  const rows = ops.reshape(ops.transpose(values, order), [n, ...rest]);
  const [sorted, positions] = ops.sort([ops.reshape(indices, [n]), ops.iota("int32", [n], 0)], 0);
  if (n === 0 || !sorted || !positions) return x;
  let runs = ops.gather(rows, positions, { dim: 0, batchDims: 0 });
  for (let step = 1; step < n; step *= 2) {
    const shift = (y: Tensor, filler: number) =>
      ops.pad(ops.sliceDim(y, 0, 0, n - step), like(y, filler), {
        low: y.shape.map((_, d) => (d === 0 ? step : 0)),
        high: y.shape.map(() => 0),
        interior: y.shape.map(() => 0),
      });
    // No index is the smallest int32, so the padding belongs to no run.
    const same = ops.compare("eq", sorted, shift(sorted, limits("int32").min));
    runs = ops.select(spread(same, runs), combine(shift(runs, 0), runs), runs);
  }
  const next = ops.pad(ops.sliceDim(sorted, 0, 1, n), Tensor.scalar(-1, "int32"), {
    low: [0],
    high: [1],
    interior: [0],
  });
  const last = ops.select(ops.compare("eq", sorted, next), Tensor.scalar(-1, "int32"), sorted);
  const target = ops.moveDim(x, dim, 0);
  const current = ops.gather(target, last, { dim: 0, batchDims: 0 });
  const written = ops.scatter(target, last, combine(current, runs), { dim: 0, batchDims: 0, combine: "set" });
  return ops.moveDim(written, 0, dim);
}

/** A vector repeated along all further dims of another tensor. */
function spread(vector: Tensor, like: Tensor): Tensor {
  return like.ndim === 1 ? vector : ops.broadcastInDim(vector, like.shape, [0]);
}
