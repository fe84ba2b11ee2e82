/** Whole matrices of derivatives. */
import { need } from "../../ir/arguments.js";
import { isComplex } from "../../ir/dtype.js";
import { GradientError, TreeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { formatType, range, type TensorType } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { type Argnums, argumentPositions } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { vmap } from "../batching/vmap.js";
import { type GradsOf, vjpHere } from "./grad.js";
import { jvp } from "./jvp.js";

const jacobianOptions = schema({
  argnums: optional("integerOrIntegers", 0),
  /** Whether the function is holomorphic: arguments and results are complex, and so are the derivatives. */
  holomorphic: false,
});

/** Options of {@link jacrev}, {@link jacfwd} and {@link hessian}. */
export interface JacobianOptions<N extends Argnums = Argnums> extends OptionsOf<typeof jacobianOptions> {
  /** The argument, or arguments, to differentiate by; the first by default. Negative numbers count from the end. */
  readonly argnums?: N;
}

/**
 * The derivatives of results `R`: every tensor is replaced by a tree like the argument, or by a list of such trees for
 * several arguments.
 */
export type JacobianOf<R, A extends readonly unknown[], N extends Argnums = 0> = tree.MapTree<
  R,
  Tensor,
  GradsOf<A, N>
>;

/** Throws when a function with complex numbers is not declared holomorphic, or the reverse. */
function checkHolomorphic(
  tensors: readonly Tensor[],
  { holomorphic = false }: JacobianOptions,
  what: "arguments" | "results",
  caller: string,
): void {
  const wrong = tensors.find(({ dtype }) => isComplex(dtype) !== holomorphic);
  if (wrong === undefined) return;
  throw new GradientError(
    holomorphic
      ? `[${caller}] a holomorphic function has complex ${what}, got ${formatType(wrong.type)}: omit holomorphic`
      : `[${caller}] the ${what} ${formatType(wrong.type)} can change in two directions: set { holomorphic: true } if the function is, or use vjp and jvp`,
  );
}

/** The tensors of a tree, which must hold nothing else. */
function tensorsOf(values: unknown, caller: string): Tensor[] {
  return tree.leaves(values).map((leaf) => {
    if (leaf instanceof Tensor) return leaf;
    throw new TreeError(`[${caller}] differentiates trees of tensors, got ${String(leaf)}`);
  });
}

/** The unit vectors of a tensor's space, stacked along a new first dim. */
function unitVectors({ dtype, shape }: TensorType): Tensor {
  const n = shape.reduce((a, b) => a * b, 1);
  const same = ops.compare("eq", ops.iota("int32", [n, n], 0), ops.iota("int32", [n, n], 1));
  return ops.reshape(ops.convert(same, dtype), [n, ...shape]);
}

/** A tree of zeros except for one leaf. */
function onlyLeaf(values: unknown, tensors: readonly Tensor[], place: number, leaf: Tensor): unknown {
  return tree.unflatten(
    tree.structure(values),
    tensors.map((x, i) => (i === place ? leaf : ops.zeros(x.type))),
  );
}

/** The function of the chosen arguments alone, and these: one argument, or a list of several. */
function alone<A extends readonly unknown[]>(
  fn: (...args: A) => unknown,
  args: A,
  { argnums = 0 }: JacobianOptions,
  caller: string,
): [fn: (x: unknown) => unknown, x: unknown] {
  const places = argumentPositions(argnums, args.length, caller, "argnums");
  const chosen = places.map((place) => args[place]);
  const withThese = (given: readonly unknown[]) => {
    const all: unknown[] = [...args];
    places.forEach((place, i) => {
      all[place] = given[i];
    });
    return fn(...(all as readonly unknown[] as A));
  };
  if (typeof argnums !== "number") return [(list) => withThese(list as readonly unknown[]), chosen];
  return [(x) => withThese([x]), chosen[0]];
}

/**
 * The derivatives of every result by every element of an argument, a row of them for each result: for functions
 * with few results. In a tree of results every leaf is a tree like the argument, of shape `[...result, ...argument]`, or
 * a list of such trees for a list of `argnums`.
 *
 * @example
 * ```ts
 * jacrev((x: Tensor) => np.square(x))(np.array([1, 2])); // [[2, 0], [0, 4]]
 * ```
 */
export function jacrev<A extends readonly unknown[], R, const N extends Argnums = 0>(
  fn: (...args: A) => R,
  options: JacobianOptions<N> = {},
): (...args: A) => JacobianOf<R, A, N> {
  need("function", fn, "fn", "jacrev");
  jacobianOptions.read(options, "jacrev");
  return (...args) => {
    const [f, x] = alone(fn, args, options, "jacrev");
    const value = f(x);
    const outs = tensorsOf(value, "jacrev");
    const ins = tensorsOf(x, "jacrev");
    checkHolomorphic(outs, options, "results", "jacrev");
    if (options.holomorphic) checkHolomorphic(ins, options, "arguments", "jacrev");
    const rows = outs.map((out, place) => {
      const pull = (ct: Tensor) => vjpHere(f, [x])[1](onlyLeaf(value, outs, place, ct))[0];
      const stacked: unknown = vmap(pull)(unitVectors(out.type));
      return tree.map((leaf: Tensor) => ops.reshape(leaf, [...out.shape, ...leaf.shape.slice(1)]), stacked);
    });
    return tree.unflatten<JacobianOf<R, A, N>>(tree.structure(value), rows);
  };
}

/**
 * Like {@link jacrev}, a column for each element of the argument: for functions of few elements.
 *
 * @example
 * ```ts
 * jacfwd((x: Tensor) => np.square(x))(np.array([1, 2])); // [[2, 0], [0, 4]]
 * ```
 */
export function jacfwd<A extends readonly unknown[], R, const N extends Argnums = 0>(
  fn: (...args: A) => R,
  options: JacobianOptions<N> = {},
): (...args: A) => JacobianOf<R, A, N> {
  need("function", fn, "fn", "jacfwd");
  jacobianOptions.read(options, "jacfwd");
  return (...args) => {
    const [f, x] = alone(fn, args, options, "jacfwd");
    const ins = tensorsOf(x, "jacfwd");
    checkHolomorphic(ins, options, "arguments", "jacfwd");
    const pushed = ins.map((input, place) => {
      const push = (tangent: Tensor) => jvp(f, [x], [onlyLeaf(x, ins, place, tangent)]);
      // The value is the same for all directions and is computed along with them.
      const [value, stacked]: readonly unknown[] = vmap(push, { outAxes: [null, 0] })(
        unitVectors(input.type),
      );
      const column = tensorsOf(stacked, "jacfwd").map((leaf) => {
        const outer = range(leaf.ndim - 1).map((d) => d + 1);
        return ops.reshape(ops.transpose(leaf, [...outer, 0]), [...leaf.shape.slice(1), ...input.shape]);
      });
      return { value, column };
    });
    const value = pushed[0] ? pushed[0].value : f(x);
    const columns = (o: number) => pushed.map(({ column }) => column[o]);
    const rows = tensorsOf(value, "jacfwd").map((_, o) => tree.unflatten(tree.structure(x), columns(o)));
    return tree.unflatten<JacobianOf<R, A, N>>(tree.structure(value), rows);
  };
}

/**
 * The second derivatives of a function with a scalar result: {@link jacfwd} of {@link jacrev}. For a tensor this is a
 * tensor of shape `[...x.shape, ...x.shape]`, for a tree a tree of such trees.
 *
 * ```ts
 * const curvature = hessian((params: { w: Tensor; b: Tensor }) => loss(params))(params);
 * curvature.w.b; // derivatives by w and then by b: [...w.shape, ...b.shape]
 * ```
 *
 * @example
 * ```ts
 * hessian((x: Tensor) => np.sum(x.mul(x)))(np.array([1, 2])); // [[2, 0], [0, 2]]
 * ```
 */
export function hessian<A extends readonly unknown[], R, const N extends Argnums = 0>(
  fn: (...args: A) => R,
  options: JacobianOptions<N> = {},
): (...args: A) => JacobianOf<JacobianOf<R, A, N>, A, N> {
  need("function", fn, "fn", "hessian");
  jacobianOptions.read(options, "hessian");
  return jacfwd(jacrev(fn, options), options);
}
