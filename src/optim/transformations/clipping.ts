import { describe } from "../../ir/describe.js";
import { type DType, isComplex, isFloat, partType } from "../../ir/dtype.js";
import { ValueError } from "../../ir/errors.js";
import { zeros } from "../../numpy/arrays/creation.js";
import { add, divide, multiply } from "../../numpy/elementwise/arithmetic.js";
import { imag, real } from "../../numpy/elementwise/complex.js";
import { astype, sqrt, square } from "../../numpy/elementwise/elementwise.js";
import { less, where } from "../../numpy/elementwise/logic.js";
import { sum } from "../../numpy/reductions/reductions.js";
import { psum } from "../../spmd/mesh/collectives.js";
import type { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { boundAxes } from "../../trace/axes.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import { promoteTypes } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { type EmptyState, type GradientTransformation, mapTensors, stateless } from "./transformation.js";

/** A box that says which mesh axes split its value, such as `nn.Partitioned`. */
interface SpecBox {
  getPartitionSpec(): PartitionSpec;
}

function isSpecBox(node: unknown): node is SpecBox {
  return (
    typeof node === "object" &&
    node !== null &&
    "getPartitionSpec" in node &&
    typeof node.getPartitionSpec === "function"
  );
}

/**
 * The tensors of a tree with the axes over which each is split here: inside a shard map those that its box
 * names. Elsewhere, and for axes that the partitioner handles, a tensor is whole and there are none.
 */
export function tensorsWithAxes(values: unknown): { tensor: Tensor; axes: readonly string[] }[] {
  const bound = new Set(boundAxes().map(({ name }) => name));
  return tree.leaves(values, isSpecBox).flatMap((node) => {
    const names = isSpecBox(node) ? node.getPartitionSpec().dims(0) : [];
    const axes = names.flatMap((dim) =>
      dim === "unconstrained" ? [] : dim.filter((name) => bound.has(name)),
    );
    // A box is opened by asking for the leaves of a list of its parts.
    const tensors = isSpecBox(node) ? tree.leaves(node) : [node];
    return tensors
      .filter((leaf) => leaf instanceof Tensor)
      .map((tensor) => ({ tensor, axes: [...new Set(axes)] }));
  });
}

/**
 * Adds up a scalar of every tensor over the whole tree and over the axes that split the tensors.
 *
 * @param measure calls no function of the user's
 */
export function sumOverTree(values: unknown, measure: (x: Tensor) => Tensor): Tensor {
  return tracedAsOneCall(() => sumOfAll(values, measure));
}

function sumOfAll(values: unknown, measure: (x: Tensor) => Tensor): Tensor {
  const groups = new Map<string, { axes: readonly string[]; total: Tensor }>();
  for (const { tensor, axes } of tensorsWithAxes(values)) {
    const key = [...axes].sort().join();
    const part = measure(tensor);
    const group = groups.get(key);
    groups.set(key, { axes, total: group ? group.total.add(part) : part });
  }
  // One collective for each set of axes, however many tensors there are.
  const totals = [...groups.values()].map(({ axes, total }) => (axes.length > 0 ? psum(total, axes) : total));
  return totals.reduce<Tensor | undefined>((all, part) => all?.add(part) ?? part, undefined) ?? zeros([]);
}

/**
 * The root of the sum of all squares of a tree, in the type that its tensors are promoted to; 16-bit floats are added
 * up in float32 and rounded in the end. Inside a shard map the tensors in boxes (`nn.Partitioned`) are blocks: their
 * squares are summed over exactly the axes that split them, and tensors without a box count once.
 *
 * @example
 * ```ts
 * optim.globalNorm({ w: np.array([3]), b: np.array([4]) }); // 5
 * ```
 */
export function globalNorm(values: unknown): Tensor {
  const dtypes = tensorsWithAxes(values).map(({ tensor }) => partType(tensor.dtype));
  const dtype = dtypes.reduce<DType>(promoteTypes, "bool");
  return astype(wideNorm(values), isFloat(dtype) ? dtype : "float32");
}

/** The global norm in float32, or in float64 where a tensor has it. */
function wideNorm(values: unknown): Tensor {
  return sqrt(
    sumOverTree(values, (x) =>
      sum(isComplex(x.dtype) ? add(squares(real(x)), squares(imag(x))) : squares(x)),
    ),
  );
}

function squares(x: Tensor): Tensor {
  return square(astype(x, x.dtype === "float64" ? "float64" : "float32"));
}

/**
 * Shrinks all gradients together so that their {@link globalNorm} is at most `maxNorm`.
 *
 * @example
 * ```ts
 * const clip = optim.clipByGlobalNorm(1);
 * const grads = { w: np.array([3, 4]) };
 * clip.update(grads, clip.init(grads))[0]; // { "w": [0.6, 0.8] }
 * ```
 */
export function clipByGlobalNorm(maxNorm: number): GradientTransformation<EmptyState> {
  if (!(typeof maxNorm === "number" && maxNorm >= 0)) {
    throw new ValueError(
      `[clipByGlobalNorm] the norm must be a number of at least 0, got ${describe(maxNorm)}: a negative one would reverse the gradients`,
    );
  }
  return stateless((grads) => {
    const norm = wideNorm(grads);
    const small = less(norm, maxNorm);
    return mapTensors((g) => where(small, g, multiply(divide(g, astype(norm, g.dtype)), maxNorm)), grads);
  });
}
