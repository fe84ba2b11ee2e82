import { integerFrom, need } from "../../ir/arguments.js";
import { sumType } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { isTyped } from "../../ir/shape.js";
import { zerosLike } from "../../numpy/arrays/creation.js";
import { reshape, swapaxes } from "../../numpy/arrays/shaping.js";
import { add, divide } from "../../numpy/elementwise/arithmetic.js";
import { astype } from "../../numpy/elementwise/elementwise.js";
import { equal, where } from "../../numpy/elementwise/logic.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { scan } from "../../transforms/control/scan.js";
import { evalShape } from "../../transforms/makeProgram.js";
import { zeroCount } from "../transformations/moments.js";
import {
  type ExtraArgs,
  type GradientTransformation,
  mapTensors,
  needTransformation,
  type Opaque,
  type StateOf,
  type StepState,
  type TypedTransformation,
  typedTransformation,
} from "../transformations/transformation.js";

/**
 * Splits a batch into microbatches along the first dim, runs them one after the other and returns the means
 * of the values and gradients, so that a batch needs the memory of one microbatch. 16-bit floats are added up
 * in float32 and their means stay float32. A microbatch takes every `numMicrobatches`-th row, so that no row
 * leaves its device when the batch is split over several.
 *
 * @param fn a function of parameters and a batch that returns a tree of tensors, such as `valueAndGrad(loss)`
 *
 * @example
 * ```ts
 * const loss = (w: Tensor, batch: Tensor) => np.mean(np.square(w.mul(batch)));
 * optim.microbatch(valueAndGrad(loss), 2)(np.array(1), np.array([1, 2, 3, 4])); // [7.5, 15]
 * ```
 */
export function microbatch<P, B, R>(
  fn: (params: P, batch: B) => R,
  numMicrobatches: number,
): (params: P, batch: B) => R {
  need("function", fn, "fn", "microbatch");
  need("number", numMicrobatches, "numMicrobatches", "microbatch");
  need(integerFrom(1), numMicrobatches, "the number of microbatches", "microbatch");
  if (numMicrobatches === 1) return fn;
  return (params, batch) => {
    const parts = tree.mapWithPath<B, unknown, unknown>(
      (path, x) => dealRows(x, path, numMicrobatches),
      batch,
    ) as B;
    const collect = (sums: R, part: B): [R, null] => [
      mapTensors((sum, x) => add(sum, astype(x, sum.dtype)), sums, fn(params, part)),
      null,
    ];
    const first = mapTensors((x) => x.get(0), parts);
    const [total] = scan(collect, emptySums(fn, params, first), parts);
    return mapTensors((x) => astype(divide(x, numMicrobatches), x.dtype), total);
  };
}

/** Zeros like the results of a function, in types that sums do not overflow. */
function emptySums<P, B, R>(fn: (params: P, batch: B) => R, params: P, batch: B): R {
  const { leaves, structure } = tree.flatten(evalShape(fn)(params, batch), isTyped);
  const zeros = leaves.filter(isTyped).map(({ dtype, shape }) => ops.zeros({ dtype: sumType(dtype), shape }));
  return tree.unflatten<R>(structure, zeros);
}

/** Rows as [microbatch, row]: each microbatch has rows of every part of the batch. */
function dealRows(x: unknown, path: string, parts: number): Tensor {
  if (!(x instanceof Tensor) || x.ndim === 0) {
    throw new ShapeError(`[microbatch] the batch leaf at "${path}" has no dim to split: ${String(x)}`);
  }
  const [n = 0, ...inner] = x.shape;
  if (n % parts !== 0) {
    throw new ShapeError(
      `[microbatch] the batch leaf at "${path}" of ${n} rows does not split into ${parts} microbatches (${n} / ${parts} = ${n / parts}): use a batch that is a multiple of ${parts}`,
    );
  }
  return swapaxes(reshape(x, [n / parts, parts, ...inner]), 0, 1);
}

/** The state of {@link multiSteps}. */
export interface MultiStepsState<S> {
  /** How many gradients are collected. */
  readonly miniStep: Tensor;
  /** How many steps were taken. */
  readonly gradientStep: Tensor;
  readonly inner: S;
  /** The mean of the collected gradients. */
  readonly grads: unknown;
  /** What `shouldSkipUpdateFn` said about the last gradients. */
  readonly skipState: Opaque<unknown>;
}

type State = StateOf<MultiStepsState<unknown>, unknown>;

/** Whether the gradients of a call are to be left out, and what is kept of the decision in the state. */
export type ShouldSkipUpdate = (
  grads: unknown,
  gradientStep: Tensor,
  params: unknown,
) => readonly [skip: Tensor, state: unknown];

const multiStepsOptions = schema({
  /** Which gradients are left out, as if the call had not been made: {@link skipNotFinite}, {@link skipLargeUpdates}. */
  shouldSkipUpdateFn: optional<ShouldSkipUpdate>("function"),
});

/** Options of {@link multiSteps}. */
export interface MultiStepsOptions extends OptionsOf<typeof multiStepsOptions> {}

/**
 * Collects the gradients of `every` calls and takes a step with their mean at the last one; the updates of
 * the calls between are zero.
 *
 * @example
 * ```ts
 * const step = optim.multiSteps(optim.sgd({ learningRate: 1 }), 2);
 * const [, state] = step.update(np.array([1, 2]), step.init(np.array([1, 2])));
 * step.update(np.array([3, 4]), state)[0]; // [-2, -3]
 * ```
 */
export function multiSteps<G extends GradientTransformation>(
  inner: G,
  every: number,
  options?: MultiStepsOptions,
): TypedTransformation<MultiStepsState<StepState<G>>> {
  needTransformation(inner, "multiSteps");
  const { shouldSkipUpdateFn } = multiStepsOptions.read(options, "multiSteps");
  need("number", every, "every", "multiSteps");
  need(integerFrom(1), every, "the number of calls per step", "multiSteps");
  return typedTransformation<State, MultiStepsState<StepState<G>>>(
    "multiSteps",
    { miniStep: "tensor", gradientStep: "tensor", inner: "tree", grads: "tree", skipState: "tree" },
    {
      init: (params) => {
        const grads = mapTensors((p) => zerosLike(p), params);
        return {
          miniStep: zeroCount(),
          gradientStep: zeroCount(),
          inner: inner.init(params),
          grads,
          skipState: shouldSkipUpdateFn?.(grads, zeroCount(), params)[1] ?? [],
        };
      },
      update: <T>(grads: T, state: State, params?: T, extra?: ExtraArgs<T>): [T, State] => {
        const { miniStep } = state;
        const mean = mapTensors(
          (g, m) => add(m, divide(g.sub(m), astype(miniStep.add(1), m.dtype))),
          grads,
          state.grads,
        );
        const [updates, next] = inner.update(mean, state.inner, params, extra);
        const last = equal(miniStep, every - 1);
        const stepped = mapTensors((u) => where(last, u, zerosLike(u)), updates);
        const { skipState, ...before } = state;
        const after: Omit<State, "skipState"> = {
          miniStep: where(last, zeroCount(), miniStep.add(1)),
          gradientStep: where(last, state.gradientStep.add(1), state.gradientStep),
          inner: select(last, next, state.inner),
          grads: mapTensors((m) => where(last, zerosLike(m), m), mean),
        };
        if (!shouldSkipUpdateFn) return [stepped, { ...after, skipState }];
        const [skip, said] = shouldSkipUpdateFn(grads, state.gradientStep, params);
        const unchanged = mapTensors((u) => zerosLike(u), stepped);
        return [select(skip, unchanged, stepped), { ...select(skip, before, after), skipState: said }];
      },
    },
  );
}

/** The leaves of one tree or the other, by a bool scalar. */
export function select<T>(condition: Tensor, onTrue: T, onFalse: T): T {
  needTensor(condition, "condition", "select");
  return mapTensors((x, y) => where(condition, x, y), onTrue, onFalse);
}
