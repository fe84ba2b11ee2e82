import { need } from "../../ir/arguments.js";
import { isFloat } from "../../ir/dtype.js";
import { ShapeError, TreeError } from "../../ir/errors.js";
import { at, formatType, sameType, type TensorType, typesOf } from "../../ir/shape.js";
import { asOneCall, bind, callOnce, orderOf, type Traced, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { atOrder } from "../../trace/order.js";
import type { Whole } from "../../trace/prefix.js";
import type { Tensor } from "../../trace/tensor.js";
import { type FlatArgs, flattenArgs, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { shareCaptures } from "../control/closure.js";
import { split } from "../rewrite/split.js";
import { conjugated } from "./conjugate.js";

/**
 * Maximum nesting of a rule that calls its own function and differentiates the result; below that the plain function is
 * used. Calls that are differentiated less often than those around them end by themselves.
 */
const deepestRule = 3;

/** The two halves of a derivative. */
export interface CustomRule<A extends readonly unknown[], R, S> {
  /** The result, and whatever `backward` needs. */
  readonly forward: (...args: A) => readonly [R, S];
  /**
   * From the residuals and the result's cotangent to a cotangent for every argument; `null` means zeros, for an argument
   * or any part of it.
   */
  readonly backward: (residuals: S, cotangent: R) => { readonly [I in keyof A]: Cotangent<A[I]> };
}

/** A cotangent of a tree, in which `null` stands for zeros of whole subtrees. */
export type Cotangent<T> =
  | T
  | null
  | (T extends Whole ? never : { readonly [K in keyof T]: Cotangent<T[K]> });

/**
 * A function with a custom derivative.
 *
 * @example
 * ```ts
 * const clipped = customVjp((x: Tensor) => x, {
 *   forward: (x) => [x, null],
 *   backward: (_, ct) => [np.clip(ct, -1, 1)],
 * });
 * grad((x: Tensor) => clipped(x).mul(100))(np.array(3)); // 1
 * ```
 */
export function customVjp<A extends readonly unknown[], R, S>(
  fn: (...args: A) => R,
  rule: CustomRule<A, R, S>,
): (...args: A) => R {
  need("function", fn, "fn", "customVjp");
  need("object", rule, "rule", "customVjp");
  let around = { order: Number.POSITIVE_INFINITY, depth: 0 };
  return (...args) => {
    const flat = flattenArgs(args, "customVjp");
    const types = flat.tensors.map(({ type }) => type);
    // Where the function is differentiated its rule is used, so the function itself never is differentiated.
    const body = atOrder(0, () => traceTree(fn, flat.structure, types, "customVjp"));
    const order = orderOf([...body.captures, ...flat.tensors]);
    const depth = around.depth + (order < around.order ? 0 : 1);
    if (order === 0 || depth >= deepestRule) return callPlain(flat, body, body.outStructure);
    const traceRule = <T>(trace: () => T): T => {
      const before = around;
      around = { order, depth };
      try {
        return atOrder(order - 1, trace);
      } finally {
        around = before;
      }
    };
    const forward = traceRule(() => traceTree(rule.forward, flat.structure, types, "customVjp forward"));
    const { outStructure } = forward;
    if (outStructure.kind !== "array" || outStructure.children.length !== 2) {
      throw new TreeError(
        `[customVjp] forward must return [result, residuals], it returned ${tree.formatStructure(outStructure)}`,
      );
    }
    const [result, residuals] = [at(outStructure.children, 0), at(outStructure.children, 1)];
    tree.checkSameStructure(
      body.outStructure,
      result,
      "customVjp",
      "the function's result",
      "forward's result",
    );
    const outTypes = forward.program.outputs.map(({ type }) => type);
    const numOuts = tree.numLeaves(result);
    checkForward(typesOf(body.program.outputs), outTypes.slice(0, numOuts));
    const numResiduals = outTypes.length - numOuts;
    const pull = (leaves: readonly Tensor[]) => {
      const kept = tree.unflatten<S>(residuals, leaves.slice(0, numResiduals));
      const cotangent = tree.unflatten<R>(result, conjugated(result, leaves.slice(numResiduals)));
      return floatCotangents(args, flat, rule.backward(kept, cotangent), "customVjp");
    };
    const pulled = [...outTypes.slice(numOuts), ...outTypes.slice(0, numOuts)];
    const backward = traceRule(() => traceFlat(pull, pulled, "customVjp"));
    return bindRule(flat, body.outStructure, [body, forward, backward], numResiduals);
  };
}

/**
 * A {@link customVjp} inside the library, whose functions call no user code. Bundlers leave unused ones out.
 *
 * @__NO_SIDE_EFFECTS__
 */
export function libraryVjp<A extends readonly unknown[], R, S>(
  fn: (...args: A) => R,
  rule: CustomRule<A, R, S>,
): (...args: A) => R {
  const withRule = customVjp(fn, rule);
  return (...args) => asOneCall(() => withRule(...args));
}

function checkForward(wanted: readonly TensorType[], given: readonly TensorType[]): void {
  const wrong = wanted.findIndex((type, i) => !sameType(type, at(given, i)));
  if (wrong < 0) return;
  const where = wanted.length === 1 ? "" : ` in leaf ${wrong}`;
  throw new ShapeError(
    `[customVjp] the function returns ${formatType(at(wanted, wrong))}${where} but forward returns ${formatType(at(given, wrong))}: forward must return the function's own result and the residuals`,
  );
}

/**
 * A function that returns its result together with its derivative:
 *
 * @example
 * ```ts
 * const double = customGradient((x: Tensor) => [x.mul(2), (ct: Tensor) => [ct.mul(2)]]);
 * grad(double)(np.array(3)); // 2
 * ```
 */
export function customGradient<A extends readonly unknown[], R>(
  fn: (...args: A) => readonly [R, (cotangent: R) => { readonly [I in keyof A]: Cotangent<A[I]> }],
): (...args: A) => R {
  need("function", fn, "fn", "customGradient");
  return (...args) => {
    const flat = flattenArgs(args, "customGradient");
    const types = flat.tensors.map(({ type }) => type);
    const call = (leaves: readonly Tensor[]) => {
      const made = fn(...tree.unflatten<A>(flat.structure, leaves));
      need("list", made, "what the function returns", "customGradient");
      need("function", made[1], "the second result of the function", "customGradient");
      return made;
    };
    let outStructure: tree.Structure | undefined;
    const plain = (leaves: readonly Tensor[]) => {
      const out = flattenArgs(call(leaves)[0], "customGradient");
      outStructure = out.structure;
      return out.tensors;
    };
    const body = atOrder(0, () => traceFlat(plain, types, "customGradient"));
    const order = orderOf([...body.captures, ...flat.tensors]);
    const structure = outStructure ?? tree.structure(null);
    if (order === 0) return callPlain(flat, body, structure);
    const outTypes = body.program.outputs.map(({ type }) => type);
    const withPullback = (leaves: readonly Tensor[]) => {
      const [result, pullback] = call(leaves.slice(0, types.length));
      const cotangent = tree.unflatten<R>(structure, conjugated(structure, leaves.slice(types.length)));
      const outs = flattenArgs(result, "customGradient").tensors;
      return [...outs, ...floatCotangents(args, flat, pullback(cotangent), "customGradient")];
    };
    const joint = atOrder(order - 1, () =>
      traceFlat(withPullback, [...types, ...outTypes], "customGradient"),
    );
    const early = joint.captures.length + types.length;
    const { forward, backward, residuals } = split(joint.program, early, outTypes.length);
    const withResiduals = { ...forward, outputs: [...forward.outputs, ...residuals] };
    const parts: [Traced, Traced, Traced] = [
      body,
      { ...joint, program: withResiduals },
      { ...joint, program: backward, captures: [] },
    ];
    return bindRule(flat, structure, parts, residuals.length);
  };
}

/** The plain function, where it will not be differentiated. */
function callPlain<R>(
  flat: FlatArgs,
  { program, captures, target }: Traced,
  outStructure: tree.Structure,
): R {
  return tree.unflatten<R>(outStructure, callOnce(program, [...captures, ...flat.tensors], target));
}

function bindRule<R>(
  flat: FlatArgs,
  outStructure: tree.Structure,
  parts: readonly [body: Traced, forward: Traced, backward: Traced],
  numResiduals: number,
): R {
  const { captures, programs, target } = shareCaptures(parts);
  const params = {
    body: at(programs, 0),
    forward: at(programs, 1),
    backward: at(programs, 2),
    numCaptures: captures.length,
    numResiduals,
  };
  const results = bind("customVjp", [...captures, ...flat.tensors], params, target);
  return tree.unflatten<R>(outStructure, results);
}

/** What a backward rule returned, as one tensor for every float leaf of the arguments. */
function floatCotangents(
  args: readonly unknown[],
  flat: FlatArgs,
  returned: readonly unknown[],
  caller: string,
): Tensor[] {
  if (!Array.isArray(returned) || returned.length !== args.length) {
    throw new TreeError(
      `[${caller}] backward must return one cotangent (or null) for each of the ${args.length} arguments`,
    );
  }
  let next = 0;
  const leaves = args.flatMap((arg, i) =>
    cotangentLeaves(arg, returned[i], i, caller).flatMap(({ leaf, ct }) => {
      const own = flattenArgs(leaf, caller).tensors.length;
      const types = typesOf(flat.tensors.slice(next, next + own));
      next += own;
      if (ct === null || ct === undefined) return types.map((type) => ops.zeros(type));
      const cts = flattenArgs(ct, caller).tensors;
      if (cts.length === own) return cts.map((tensor, j) => checked(tensor, at(types, j), i, caller));
      throw new TreeError(
        `[${caller}] the cotangent of argument ${i} must be ${own === 2 ? "complex" : "real"} where the argument is`,
      );
    }),
  );
  return conjugated(flat.structure, leaves).filter((_, i) => isFloat(at(flat.tensors, i).dtype));
}

/** The leaves of an argument, each with its cotangent; `null` stands for that of any subtree. */
function cotangentLeaves(
  arg: unknown,
  returned: unknown,
  argument: number,
  caller: string,
): { leaf: unknown; ct: unknown }[] {
  const { leaves, structure } = tree.flatten(arg);
  const isNull = (node: unknown) => node === null || node === undefined;
  const cts = tree.broadcastPrefix(returned, structure, caller);
  const numGiven = tree.leaves(returned).length;
  if (numGiven !== cts.filter((ct) => !isNull(ct)).length) {
    throw new TreeError(
      `[${caller}] the cotangent of argument ${argument} has ${numGiven} leaves, the argument has ${leaves.length}`,
    );
  }
  return leaves.map((leaf, i) => ({ leaf, ct: cts[i] }));
}

function checked(ct: Tensor, type: TensorType, argument: number, caller: string): Tensor {
  if (isFloat(type.dtype) && !sameType(ct.type, type)) {
    throw new ShapeError(
      `[${caller}] the cotangent of argument ${argument} is ${formatType(ct.type)} but must be ${formatType(type)}`,
    );
  }
  return ct;
}
