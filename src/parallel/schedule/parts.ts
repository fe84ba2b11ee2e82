/** A function of a pipeline as programs: forward, and backward as a whole or as the gradients of its stream and of its weights. */
import { isFloat } from "../../ir/dtype.js";
import { GradientError } from "../../ir/errors.js";
import type { Program, Var } from "../../ir/program.js";
import { at, formatType, type TensorType } from "../../ir/shape.js";
import { inline } from "../../trace/builder.js";
import { toDifferentiate } from "../../trace/order.js";
import type { Tensor } from "../../trace/tensor.js";
import { flattenArgs, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { vjpProgram } from "../../transforms/derivatives/grad.js";
import { inlineAdding } from "../../transforms/rewrite/addResults.js";
import { removeDeadCode, sliceOf } from "../../transforms/rewrite/deadCode.js";
import { cut, dependsOnlyOn } from "../../transforms/rewrite/split.js";
import { splitOutputs } from "../../transforms/rewrite/splitOutputs.js";

/**
 * The lifetime of a kept value: `input` values from `F` to `I`, `weight` values from `F` to `W`, `postponed` values
 * from `I` to `W`.
 */
export type Lifetime = "input" | "weight" | "postponed";

/** Kept values by their lifetime. */
export type KeptValues = { readonly [L in Lifetime]: readonly Tensor[] };

/** What a part reads in every run: captured tensors, weights, and values computed from these alone. */
export interface Given {
  readonly weights: readonly Tensor[];
  readonly fixed: readonly Tensor[];
}

/** The arguments of a function as types: weights, the stream it differentiates, and data it does not. */
export interface PartTypes {
  readonly weights: unknown;
  readonly stream: unknown;
  readonly data: readonly unknown[];
}

/**
 * A function `(weights, …stream, …data) → results` of a pipeline, split so that its forward pass and its backward pass, or
 * the two halves of it, can run at different times. The residuals that one of them passes to another are a list of tensors,
 * which the caller keeps.
 */
export class PartPrograms {
  readonly outTypes: readonly TensorType[];
  readonly outStructure: tree.Structure;
  /** The types of kept values. */
  readonly keptTypes: { readonly [L in Lifetime]: readonly TensorType[] };
  private readonly captures: readonly Tensor[];
  private readonly inputs: Inputs;
  private readonly forwardProgram: Program;
  private readonly fixedProgram: Program;
  private readonly gradient: Program;
  private readonly inputGradient: Program;
  private readonly weightGradient: Program;
  private readonly kept: { readonly [L in Lifetime]: readonly Var[] };
  private readonly fixed: readonly Var[];
  private readonly cotangents: readonly Var[];
  private readonly handed: readonly Var[];

  /**
   * @param numDifferentiated how many of the results' leaves have a gradient; the first ones
   */
  constructor(
    fn: (...args: never[]) => unknown,
    args: PartTypes,
    name: string,
    numDifferentiated: (structure: tree.Structure) => number,
  ) {
    const flat = flattenArgs(
      [args.weights, ...(args.stream === null ? [] : [args.stream]), ...args.data],
      name,
    );
    const types = flat.tensors.map(({ type }) => type);
    const traced = toDifferentiate(() =>
      traceTree(fn as (...a: unknown[]) => unknown, flat.structure, types, name),
    );
    const program = removeDeadCode(traced.program);
    const counts = {
      captures: traced.captures.length,
      weights: numLeaves(args.weights),
      stream: args.stream === null ? 0 : numLeaves(args.stream),
    };
    const active = counts.captures + counts.weights + counts.stream;
    checkFloats(program.inputs.slice(counts.captures, active), flat.paths, name);
    this.captures = traced.captures;
    this.outStructure = traced.outStructure;
    this.outTypes = program.outputs.map(({ type }) => type);
    const numOuts = numDifferentiated(traced.outStructure);
    const { forward, backward, residuals } = vjpProgram(
      program,
      program.inputs.map((_, i) => i >= counts.captures && i < active),
      program.outputs.map((_, i) => i < numOuts),
    );
    const [captures = [], weights = [], stream = []] = cut(
      forward.inputs,
      counts.captures,
      counts.weights,
      counts.stream,
    );
    this.inputs = { captures, weights, stream };
    this.cotangents = backward.inputs.slice(residuals.length);
    const { first, second, kept } = splitOutputs(
      backward,
      backward.outputs.map((_, i) => i >= weights.length),
    );
    this.gradient = backward;
    this.inputGradient = first;
    this.weightGradient = second;
    this.handed = kept;
    const sorted = sortResiduals(forward, residuals, [...captures, ...weights], second);
    this.fixed = sorted.fixed;
    const late = this.cotangents.filter(isReadBy(second));
    this.kept = { input: sorted.input, weight: sorted.weight, postponed: [...kept, ...late] };
    this.keptTypes = mapLifetimes((lifetime) => this.kept[lifetime].map(({ type }) => type));
    this.fixedProgram = sliceOf({ ...forward, outputs: this.fixed });
    this.forwardProgram = removeDeadCode({
      ...forward,
      outputs: [...forward.outputs, ...sorted.input, ...sorted.weight],
    });
  }

  /** Computes everything that depends on weights alone, once before the first run. */
  give(weights: readonly Tensor[]): Given {
    const { captures, weights: vars } = this.inputs;
    const program = { ...this.fixedProgram, inputs: [...captures, ...vars] };
    return { weights, fixed: inline(program, [...this.captures, ...weights]) };
  }

  /** The forward pass: results and residuals. */
  forward(
    given: Given,
    stream: readonly Tensor[],
    data: readonly Tensor[],
  ): { outs: Tensor[]; kept: Omit<KeptValues, "postponed"> } {
    const results = inline(this.forwardProgram, [...this.captures, ...given.weights, ...stream, ...data]);
    const [outs = [], input = [], weight = []] = cut(results, this.outTypes.length, this.kept.input.length);
    return { outs, kept: { input, weight } };
  }

  /** The whole backward pass: the gradient of the stream; those of the weights are added to sums. */
  pull(
    given: Given,
    kept: Omit<KeptValues, "postponed">,
    cotangents: readonly Tensor[],
    sums: readonly Tensor[],
  ): { stream: Tensor[]; sums: Tensor[] } {
    const values = this.known(given, kept);
    values.define(this.cotangents, cotangents);
    const { rest, sums: after } = inlineAdding(this.gradient, values.of(this.gradient.inputs), sums);
    return { stream: rest, sums: after };
  }

  /** The first half of the backward pass: the gradient of the stream, and residuals of the second half. */
  pullInput(
    given: Given,
    kept: Omit<KeptValues, "postponed">,
    cotangents: readonly Tensor[],
  ): { stream: Tensor[]; postponed: Tensor[] } {
    const values = this.known(given, kept);
    values.define(this.cotangents, cotangents);
    const results = inline(this.inputGradient, values.of(this.inputGradient.inputs));
    const [stream = [], handed = []] = cut(results, this.inputs.stream.length);
    const late = this.kept.postponed.slice(this.handed.length);
    return { stream, postponed: [...handed, ...values.of(late)] };
  }

  /** The second half of the backward pass: the gradients of the weights are added to sums. */
  pullWeights(
    given: Given,
    kept: Pick<KeptValues, "weight" | "postponed">,
    sums: readonly Tensor[],
  ): Tensor[] {
    const values = this.known(given, { input: [], weight: kept.weight });
    values.define(this.kept.postponed, kept.postponed);
    const inputs = this.weightGradient.inputs.filter(isReadBy(this.weightGradient));
    return inlineAdding({ ...this.weightGradient, inputs }, values.of(inputs), sums).sums;
  }

  /** What is known before a backward pass. */
  private known(given: Given, kept: Omit<KeptValues, "postponed">): Values {
    const values = new Values();
    values.define([...this.inputs.captures, ...this.inputs.weights], [...this.captures, ...given.weights]);
    values.define(this.fixed, given.fixed);
    values.define(this.kept.input, kept.input);
    values.define(this.kept.weight, kept.weight);
    return values;
  }
}

interface Inputs {
  readonly captures: readonly Var[];
  readonly weights: readonly Var[];
  readonly stream: readonly Var[];
}

/** The tensors that stand for some values of a program. */
class Values {
  private readonly tensors = new Map<number, Tensor>();

  define(vars: readonly Var[], tensors: readonly Tensor[]): void {
    vars.forEach((variable, i) => {
      const tensor = tensors[i];
      if (tensor) this.tensors.set(variable.id, tensor);
    });
  }

  of(vars: readonly Var[]): Tensor[] {
    return vars.map(({ id, type }) => {
      const tensor = this.tensors.get(id);
      if (!tensor) throw new GradientError(`[pipelineTrainStep] a value ${formatType(type)} was not kept`);
      return tensor;
    });
  }
}

/** Sorts the residuals of the forward pass by lifetime. */
function sortResiduals(
  forward: Program,
  residuals: readonly Var[],
  given: readonly Var[],
  second: Program,
): { fixed: Var[]; input: Var[]; weight: Var[] } {
  const isGiven = new Set(given.map(({ id }) => id));
  const isFixed = dependsOnlyOn(forward, given);
  const readLate = isReadBy(second);
  const computed = residuals.filter(({ id }) => !isGiven.has(id));
  const moving = computed.filter((residual) => !isFixed(residual));
  return {
    fixed: computed.filter(isFixed),
    input: moving.filter((residual) => !readLate(residual)),
    weight: moving.filter(readLate),
  };
}

/** Whether a program reads a value from outside. */
function isReadBy({ eqns, outputs }: Program): (value: Var) => boolean {
  const read = new Set(
    [...eqns.flatMap(({ ins }) => ins), ...outputs].flatMap((atom) => (atom.kind === "var" ? [atom.id] : [])),
  );
  return ({ id }) => read.has(id);
}

/** A record with an entry for every lifetime. */
export function mapLifetimes<T>(make: (lifetime: Lifetime) => T): { readonly [L in Lifetime]: T } {
  return { input: make("input"), weight: make("weight"), postponed: make("postponed") };
}

function numLeaves(value: unknown): number {
  return tree.numLeaves(tree.structure(value));
}

function checkFloats(inputs: readonly Var[], paths: readonly string[], name: string): void {
  const wrong = inputs.findIndex(({ type }) => !isFloat(type.dtype));
  if (wrong < 0) return;
  throw new GradientError(
    `[${name}] the leaf ${at(paths, wrong)} is ${formatType(at(inputs, wrong).type)}; weights and what stages hand on must be floats, other tensors belong into the inputs or targets`,
  );
}
