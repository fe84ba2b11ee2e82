/**
 * Afterwards every point of a row's inner dims is computed exactly once: by unrolled vectors as long as they fit,
 * then by single vectors, then by single elements; nothing is written outside the stores.
 *
 * Unchanged are the values; sums over a row are added in a different order, which is the same in every run.
 */

import { type DType, isInteger } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { at, entriesOf, range, rowMajorStrides } from "../../ir/shape.js";
import { identityOf } from "../identities.js";
import { chooseUnroll } from "../wasm/emitInterleaved.js";
import type { VectorOp } from "../wasm/opcodes.js";
import { float32Bits, type VecProgram, type Words } from "../wasm/vectorProgram.js";
import { combineInstruction } from "./lanes.js";
import { type KernelPlan, kernelArgs, spillBytes } from "./phases.js";
import type { Section } from "./section.js";
import type { Access, Indirection, KernelSpec } from "./spec.js";

/** A kernel as loops and what happens in them; a `LoopRenderer` writes them as code. */
export interface LoopPlan {
  readonly dims: readonly number[];
  /** The data type of every argument; rows of scratch memory come last. */
  readonly args: readonly DType[];
  /** Bytes that each row of scratch memory takes for one thread. */
  readonly scratch: readonly number[];
  /** Arguments that are filled before the loops. */
  readonly fills: KernelSpec["fills"];
  /** The loops over rows, the first outermost. */
  readonly loops: readonly Loop[];
  /** What happens in every row, in this order. */
  readonly sections: readonly SectionPlan[];
}

/** A loop that counts the iterations of a dim. */
export interface Loop {
  readonly dim: number;
  readonly count: number;
  /** Whether threads share the iterations; the first and the last are then arguments of the kernel. */
  readonly isDivided: boolean;
}

/** One program on all elements of a row, or once for the row itself. */
export interface SectionPlan {
  /** What is computed; its inputs, uniforms and outputs are those below. */
  readonly program: VecProgram;
  readonly inputs: readonly InputPlan[];
  /** The nodes whose values in this row the program reads. */
  readonly uniforms: readonly number[];
  readonly outputs: readonly OutputPlan[];
  /** Whether it runs once for the row: its streams have one element, and there are no loops. */
  readonly isRow: boolean;
  /** The loops around the vectorised dim, the first outermost. */
  readonly loops: readonly Loop[];
  /** The vectorised dim, from the first element to the last. */
  readonly stages: readonly LoopStage[];
  /** How many vectors of partial results every reduction has. */
  readonly numPartials: number;
}

/** A part of the vectorised dim that is walked in equal turns. */
export interface LoopStage {
  /** The number of turns. */
  readonly count: number;
  /** Vectors that a turn computes side by side, and elements in each; a single element fills all lanes. */
  readonly copies: number;
  readonly lanes: number;
  readonly isSingle: boolean;
  /** Elements that a turn computes. */
  readonly elements: number;
  /** The element after the last of the stage. */
  readonly end: number;
}

/** `factor` for every iteration of a dim's loop. */
export interface LoopTerm {
  readonly dim: number;
  readonly factor: number;
}

/**
 * Elements of an argument: the first is at the offset plus the sum of the terms, and those of the vectorised dim are
 * `step` apart.
 */
export interface Stream {
  readonly kind: "stream";
  readonly arg: number;
  readonly dtype: DType;
  readonly offset: number;
  readonly terms: readonly LoopTerm[];
  readonly step: number;
  readonly index: StreamIndex | undefined;
}

/**
 * An index from memory that moves a stream by `index · factor` elements. It is clamped to `[0, limit)` for loads; stores
 * drop values whose index is not in this range.
 */
export interface StreamIndex {
  readonly stream: Stream;
  readonly factor: number;
  readonly limit: number;
}

/** The integers that begin with the sum of the terms and increase by `step`. */
export interface Iota {
  readonly kind: "iota";
  readonly terms: readonly LoopTerm[];
  readonly step: number;
}

/** What an input of a program reads. */
export type InputPlan = Stream | Iota;

/** A value that is stored, combined with the old one if there is an instruction for it. */
export interface Store {
  readonly kind: "store";
  readonly stream: Stream;
  readonly combine: VectorOp | undefined;
}

/** A value that is combined over the inner dims; the result is the value of a node in this row. */
export interface Reduce {
  readonly kind: "reduce";
  readonly node: number;
  readonly dtype: DType;
  readonly combine: VectorOp;
  /** Whether elements must be counted exactly once, so that a single element may not fill all lanes. */
  readonly isSum: boolean;
  readonly identity: Words;
  /** The orders in which the lanes of the result are combined with themselves, until all are equal. */
  readonly folds: readonly Words[];
}

/** What becomes of an output of a program. */
export type OutputPlan = Store | Reduce | { readonly kind: "keep"; readonly node: number };

/** What a plan has to know about vectors. */
export interface VectorTarget {
  /** Elements of a vector, widest first. The last is the width of partial results: sums depend on it. */
  readonly widths: readonly number[];
  /** The most vectors of a width that are worth computing side by side where nothing is reduced. */
  copies(program: VecProgram, width: number): number;
}

/** Decides on the loops of a kernel. */
export function planLoops(plan: KernelPlan, isDivided: boolean, target: VectorTarget): LoopPlan {
  const { dims, numRows, fills } = plan.spec;
  const planner = new LoopPlanner(plan, target);
  const sections = plan.phases.flatMap(({ row, inner }) => [planner.row(row), planner.inner(inner)]);
  return {
    ...{ dims, fills, args: kernelArgs(plan), scratch: spillBytes(plan) },
    loops: loopsOver(dims, 0, numRows).map((loop) => ({ ...loop, isDivided: isDivided && loop.dim === 0 })),
    sections: [...sections, planner.row(plan.last)].filter(({ outputs }) => outputs.length > 0),
  };
}

function loopsOver(dims: readonly number[], from: number, to: number): Loop[] {
  return range(to)
    .slice(from)
    .map((dim) => ({ dim, count: at(dims, dim), isDivided: false }));
}

class LoopPlanner {
  private readonly last: number;

  constructor(
    private readonly plan: KernelPlan,
    private readonly target: VectorTarget,
  ) {
    this.last = plan.spec.dims.length - 1;
  }

  row(section: Section): SectionPlan {
    const stage = { count: 1, copies: 1, lanes: this.narrowest, isSingle: true, elements: 1, end: 1 };
    return { ...this.ports(section, true), isRow: true, loops: [], stages: [stage], numPartials: 0 };
  }

  inner(section: Section): SectionPlan {
    const { dims, numRows } = this.plan.spec;
    const ports = this.ports(section, false);
    const size = at(dims, this.last);
    // Elements of one vector must not go to the same place.
    const isOneByOne = ports.outputs.some((output) => {
      const { index, step } = output.kind === "store" ? output.stream : {};
      return index !== undefined && (index.stream.step !== 0 || step === 0);
    });
    const reduces = ports.outputs.some(({ kind }) => kind === "reduce");
    const stages = planStages(section.program, size, this.target, { reduces, isOneByOne });
    const widest = stages[0];
    return {
      ...{ ...ports, stages, isRow: false, loops: loopsOver(dims, numRows, this.last) },
      numPartials: widest === undefined ? 1 : (widest.copies * widest.lanes) / this.narrowest,
    };
  }

  private get narrowest(): number {
    return at(this.target.widths, this.target.widths.length - 1);
  }

  private ports({ program, uniforms, inputs, outputs }: Section, isRow: boolean) {
    const { spec } = this.plan;
    return {
      ...{ program, uniforms },
      inputs: inputs.map(({ kind, node: i }): InputPlan => {
        const node = at(spec.nodes, i);
        if (kind === "spill") return this.scratch(i);
        if (node.kind === "load") return this.stream(node.access, node.dtype, isRow, node.index);
        if (node.kind !== "iota") throw new InternalError("[planLoops] only loads and iotas are inputs");
        return { kind: "iota", ...this.walk(node.coefficients, isRow) };
      }),
      outputs: outputs.map((output): OutputPlan => {
        if (output.kind === "keep") return output;
        if (output.kind === "reduce") return this.reduction(output.node);
        if (output.kind === "spill")
          return { kind: "store", stream: this.scratch(output.node), combine: undefined };
        const { access, combine, index, node } = output.store;
        const { dtype } = at(spec.nodes, node);
        const stream = this.stream(access, dtype, isRow, index);
        return { kind: "store", stream, combine: combine && combineInstruction(combine, dtype) };
      }),
    };
  }

  private walk(factors: readonly number[], isRow: boolean): { terms: LoopTerm[]; step: number } {
    const { dims, numRows } = this.plan.spec;
    const terms = factors.slice(0, isRow ? numRows : this.last).map((factor, dim) => ({ dim, factor }));
    return {
      terms: terms.filter(({ dim, factor }) => factor !== 0 && dims[dim] !== 1),
      step: isRow ? 0 : at(factors, this.last),
    };
  }

  private stream(access: Access, dtype: DType, isRow: boolean, index?: Indirection): Stream {
    const moved = index && {
      stream: this.stream(index.access, "int32", isRow),
      ...{ factor: index.stride, limit: index.limit },
    };
    const { arg, strides, offset = 0 } = access;
    return { kind: "stream", arg, dtype, offset, ...this.walk(strides, isRow), index: moved };
  }

  /** The row of scratch memory that keeps an inner value for later sections. */
  private scratch(node: number): Stream {
    const { args, dims, numRows } = this.plan.spec;
    const arg = args.length + this.plan.spills.indexOf(node);
    const strides = [...range(numRows).map(() => 0), ...rowMajorStrides(dims.slice(numRows))];
    return this.stream({ arg, strides }, at(kernelArgs(this.plan), arg), false);
  }

  private reduction(index: number): Reduce {
    const node = at(this.plan.spec.nodes, index);
    if (node.kind !== "reduce") throw new InternalError("[planLoops] only reductions are reduced");
    const { dtype, combine } = node;
    return {
      ...{ kind: "reduce", node: index, dtype, isSum: combine === "sum" },
      combine: combineInstruction(combine, dtype),
      identity: identityWords(dtype, identityOf(combine, dtype)),
      folds: foldsOf(dtype, this.narrowest),
    };
  }
}

const HALVES: Words = [2, 3, 0, 1];
const NEIGHBOURS: Words = [1, 0, 3, 2];

function foldsOf(dtype: DType, lanes: number): readonly Words[] {
  if (lanes === 1) return [];
  if (dtype === "float64") return [HALVES];
  return lanes === 2 ? [NEIGHBOURS] : [HALVES, NEIGHBOURS];
}

/**
 * Divides the vectorised dim into stages: wide vectors as long as they fit, then narrow ones, then single elements.
 *
 * A loop that reduces has as many partial results whatever the width of vectors, so that every element is added to the
 * same one on all targets.
 */
function planStages(
  program: VecProgram,
  size: number,
  { widths, copies: copiesOf }: VectorTarget,
  { reduces, isOneByOne }: { readonly reduces: boolean; readonly isOneByOne: boolean },
): readonly LoopStage[] {
  const stages: LoopStage[] = [];
  const narrowest = at(widths, widths.length - 1);
  const add = (lanes: number, copies: number, isSingle = false): void => {
    const elements = isSingle ? 1 : copies * lanes;
    const begin = stages.at(-1)?.end ?? 0;
    const count = Math.floor((size - begin) / elements);
    if (count > 0) stages.push({ count, copies, lanes, isSingle, elements, end: begin + count * elements });
  };
  const fitting = (copies: number, lanes: number): number =>
    copies > 1 && copies * lanes > size ? fitting(copies / 2, lanes) : copies;
  if (!isOneByOne) {
    const partials = fitting(chooseUnroll(program), narrowest) * narrowest;
    const width = widths.find((lanes) => lanes <= (reduces ? partials : size)) ?? narrowest;
    const copies = reduces ? partials / width : fitting(copiesOf(program, width), width);
    add(width, copies);
    if (!reduces && copies > 1) add(width, 1);
    add(narrowest, 1);
  }
  add(narrowest, 1, true);
  return stages;
}

function identityWords(dtype: DType, value: number): Words {
  if (dtype === "float64") {
    return entriesOf([...new Uint32Array(new Float64Array([value, value]).buffer)], 4);
  }
  const word = dtype === "bool" ? (value ? -1 : 0) : isInteger(dtype) ? value : float32Bits(value);
  return [word, word, word, word];
}
